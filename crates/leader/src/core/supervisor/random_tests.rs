//! A million random inputs, sensible and not, against what must never be.
//!
//! Each round is one conversation with its own seed. The test keeps its own books from the effects
//! alone (tickets, claims, ends, notices) and compares them with the supervisor after every input;
//! the records are folded on the side and must tell the same story.

use std::collections::{BTreeMap, BTreeSet};

use protocol::channel::ProgressParams;
use protocol::stats::Stats;
use protocol::status::{Status, StopReason};
use protocol::tool::leader::{AgentRef, WaitMode};

use super::*;
use crate::core::effect::Answer;
use crate::core::fold::FoldedRun;
use crate::core::input::{Caller, Evidence, Mode, StopHow, Survivors, Ticket, Verdict};
use crate::core::lifecycle::{Activity, End, State, after_leader_death};
use crate::core::record::Record;
use crate::core::test_kit::*;

const INPUTS: u64 = 1_000_000;
const INPUTS_PER_ROUND: u64 = 2_500;

/// A small generator (xorshift) whose seed reproduces a round.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }

    fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    fn of<T: Copy>(&mut self, all: &[T]) -> T {
        all[usize::try_from(self.below(all.len() as u64)).unwrap()]
    }
}

/// What the effects said of one create.
#[derive(Debug, Default)]
struct Book {
    owner: Option<Caller>,
    ended: Option<End>,
    spawns: u32,
    concludes: u32,
    releases: u32,
    notices: u32,
    dropped: u32,
    told_to_owner: u32,
}

/// Who a failed check is about; shown only then.
#[derive(Debug)]
struct Told<'a>(
    #[expect(dead_code, reason = "shown by Debug")] &'a Agent,
    #[expect(dead_code, reason = "shown by Debug")] &'a Book,
);

struct Round {
    random: Random,
    it: Supervisor,
    now_ms: u64,
    next_ticket: u64,
    next_task: u32,
    open: BTreeMap<Ticket, Caller>,
    books: BTreeMap<TaskId, Book>,
    fold: FoldedRun,
    all_ended: u32,
    refused: u64,
    ended: u64,
}

const CALLERS: [Caller; 2] = [Caller(0), Caller(1)];

impl Round {
    fn new(seed: u64) -> Self {
        let mut random = Random(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
        let max_concurrent = usize::try_from(1 + random.below(6)).unwrap();
        let admission = random.of(&[Admission::Reject, Admission::Queue]);
        let extra = usize::try_from(random.below(6)).unwrap();
        let config = SupervisorConfig {
            max_concurrent,
            max_live: max_concurrent + extra,
            queue_timeout_ms: 400_000,
            ..config(admission)
        };
        Round {
            random,
            it: Supervisor::new(config),
            now_ms: 0,
            next_ticket: 0,
            next_task: 0,
            open: BTreeMap::new(),
            books: BTreeMap::new(),
            fold: FoldedRun::default(),
            all_ended: 0,
            refused: 0,
            ended: 0,
        }
    }

    fn ticket(&mut self) -> (Ticket, Caller) {
        self.next_ticket += 1;
        let (ticket, caller) = (Ticket(self.next_ticket), self.random.of(&CALLERS));
        self.open.insert(ticket, caller);
        (ticket, caller)
    }

    /// Any agent, sometimes one that never was, mostly one that has not ended.
    fn any_agent(&mut self) -> TaskId {
        let active = self.it.active.len() as u64;
        if active > 0 && self.random.chance(90) {
            let at = usize::try_from(self.random.below(active)).unwrap();
            return self.it.active().nth(at).unwrap().job.task_id.clone();
        }
        let run = self.random.below(u64::from(self.next_task) + 2);
        task(u32::try_from(run).unwrap())
    }

    fn create(&mut self) -> Input {
        self.next_task += 1;
        let (ticket, caller) = self.ticket();
        // Numbers and places collide now and then.
        let number = if self.random.chance(90) {
            self.next_task
        } else {
            1 + u32::try_from(self.random.below(u64::from(self.next_task))).unwrap()
        };
        let mode = self.random.of(&[Mode::Blocking, Mode::Background]);
        let mut order = order(number, mode);
        order.job.task_id = task(self.next_task);
        order.job.limits.grace_seconds = self.random.of(&[0, 1, 5]);
        order.job.limits.timeout_seconds = self.random.of(&[1, 60, 600]);
        if self.random.chance(10) {
            order.write_paths = vec![format!("/w/shared/{}", self.random.below(3)).into()];
        }
        let book = Book {
            owner: Some(caller),
            ..Book::default()
        };
        self.books.insert(order.job.task_id.clone(), book);
        Input::Create {
            ticket,
            caller,
            order: Box::new(order),
        }
    }

    fn call(&mut self) -> Input {
        let agent = self.any_agent();
        match self.random.below(10) {
            0..=4 => self.create(),
            5 | 6 => {
                let (ticket, caller) = self.ticket();
                Input::Terminate {
                    ticket,
                    caller,
                    agent: AgentRef::Name(agent.as_str().to_owned()),
                    how: self
                        .random
                        .of(&[StopHow::Graceful, StopHow::Graceful, StopHow::Now]),
                }
            }
            7 | 8 => {
                let (ticket, caller) = self.ticket();
                let agents = (0..self.random.below(4))
                    .map(|_| AgentRef::Name(self.any_agent().as_str().to_owned()))
                    .collect();
                Input::Wait {
                    ticket,
                    caller,
                    agents,
                    mode: self.random.of(&[WaitMode::Any, WaitMode::All]),
                    timeout_ms: self.random.of(&[Some(0), Some(5_000), Some(600_000)]),
                }
            }
            _ => {
                let open: Vec<Ticket> = self.open.keys().copied().collect();
                let ticket = if open.is_empty() {
                    Ticket(u64::MAX)
                } else {
                    self.random.of(&open)
                };
                self.open.remove(&ticket);
                Input::GiveUp { ticket }
            }
        }
    }

    fn exit(&mut self, agent: TaskId) -> Input {
        let verdict = self.random.of(&[
            Verdict::Exited(0),
            Verdict::Exited(1),
            Verdict::Exited(124),
            Verdict::Exited(126),
            Verdict::Signalled(9),
        ]);
        let evidence = match self.random.below(4) {
            0 => bad_file(),
            1 => unfinished(),
            2 => Evidence::Report(report(true, None)),
            _ => Evidence::Report(report(false, Some(StopReason::TurnLimit))),
        };
        let files = self.random.below(3);
        Input::Exited {
            agent,
            facts: exit(verdict, evidence, files),
        }
    }

    /// What the driver would say next of an agent in this state.
    fn sensible(&mut self, agent: TaskId) -> Input {
        let state = self.it.agent(&agent).map(|found| found.state);
        match state {
            Some(State::Starting { .. }) if self.random.chance(90) => Input::Spawned {
                agent,
                process: process(),
            },
            Some(State::Starting { .. }) => Input::SpawnFailed {
                agent,
                error: ToolError::new(ErrorCode::SpawnFailed, "not there"),
            },
            Some(State::Live(Activity::Waiting | Activity::Idle)) => Input::Resume { agent },
            Some(State::Stopping(_)) => self.exit(agent),
            _ => match self.random.below(5) {
                0 | 1 => Input::Initialized {
                    agent,
                    commands: None,
                },
                2 => Input::Reported {
                    agent,
                    report: report(self.random.chance(70), None),
                },
                3 => Input::Asked { agent },
                _ => self.exit(agent),
            },
        }
    }

    /// Anything about an agent, whether it fits or not.
    fn nonsense(&mut self, agent: TaskId) -> Input {
        match self.random.below(11) {
            0 => Input::Spawned {
                agent,
                process: process(),
            },
            1 => Input::Confined {
                agent,
                confinement: serde_json::json!({"rung": "group"}),
            },
            2 => Input::Initialized {
                agent,
                commands: None,
            },
            3 => Input::Reported {
                agent,
                report: report(self.random.chance(50), None),
            },
            4 => Input::WentIdle {
                agent,
                text: "t".to_owned(),
            },
            5 => Input::Asked { agent },
            6 => Input::Resume { agent },
            7 => Input::Broke {
                agent,
                detail: "d".to_owned(),
            },
            8 => Input::Survivors {
                agent,
                survivors: Survivors {
                    pids: vec![2],
                    why: "d".to_owned(),
                },
            },
            9 => Input::Progress {
                agent,
                progress: ProgressParams {
                    stats: Stats::default(),
                    last_action: "a".to_owned(),
                    state: Status::Running,
                    output_tail: String::new(),
                },
            },
            _ => Input::NoticeTaken { agent },
        }
    }

    fn input(&mut self) -> Input {
        match self.random.below(100) {
            0..=24 => self.call(),
            25..=34 => {
                self.now_ms = match self.it.next_timer() {
                    Some(due_ms) if self.random.chance(80) => self.now_ms.max(due_ms),
                    _ => self.now_ms + self.random.below(3_000),
                };
                Input::TimerDue
            }
            35 if self.random.chance(50) => Input::Pause,
            35 => Input::Continue,
            36..=49 => {
                let agent = self.any_agent();
                self.nonsense(agent)
            }
            _ => {
                let agent = self.any_agent();
                self.sensible(agent)
            }
        }
    }

    fn take(&mut self, input: Input) {
        for effect in self.it.handle(self.now_ms, input.clone()) {
            self.enter(effect, &input);
        }
        self.check(&input);
    }

    /// Enters an effect into the books.
    fn enter(&mut self, effect: Effect, told: &Input) {
        match effect {
            Effect::Log(record) => {
                if let Record::Ended { agent, result } = record.as_ref() {
                    let end = self.it.agent(&agent.task_id).unwrap().state.end();
                    let book = self.books.get_mut(&agent.task_id).unwrap();
                    assert_eq!(book.ended, None, "a second end: {told:?}");
                    assert_eq!(end.map(End::status), Some(result.status), "{told:?}");
                    book.ended = end;
                    self.ended += 1;
                }
                self.fold.take(*record);
            }
            Effect::Answer { ticket, answer } => {
                let caller = self.open.remove(&ticket);
                let caller =
                    caller.unwrap_or_else(|| panic!("answered twice or given up: {told:?}"));
                self.enter_answer(caller, answer);
            }
            Effect::Spawn { agent } => self.books.get_mut(&agent).unwrap().spawns += 1,
            Effect::Conclude { agent, .. } => self.books.get_mut(&agent).unwrap().concludes += 1,
            Effect::ReleaseClaim { agent } => self.books.get_mut(&agent).unwrap().releases += 1,
            Effect::Notice(result) => {
                let book = self.books.get_mut(&result.task_id).unwrap();
                assert_eq!(book.told_to_owner, 0, "told, and then a notice: {told:?}");
                book.notices += 1;
            }
            Effect::DropNotice { agent } => self.books.get_mut(&agent).unwrap().dropped += 1,
            Effect::AllEnded => self.all_ended += 1,
            Effect::SendStop { agent, .. }
            | Effect::SendDeadline { agent, .. }
            | Effect::Term { agent }
            | Effect::PauseTree { agent }
            | Effect::ContinueTree { agent }
            | Effect::Kill { agent }
            | Effect::Inspect { agent }
            | Effect::GoOn { agent } => {
                let book = &self.books[&agent];
                assert_eq!(
                    book.ended, None,
                    "something for one that has ended: {told:?}"
                );
                assert_eq!(book.spawns, 1, "something for one that never was: {told:?}");
            }
            Effect::Ignored { .. } => {}
        }
    }

    fn enter_answer(&mut self, caller: Caller, answer: Answer) {
        let ends: Vec<(TaskId, Status)> = match answer {
            Answer::Refused(_) => {
                self.refused += 1;
                Vec::new()
            }
            Answer::Started(_) => Vec::new(),
            Answer::Created(result) => vec![(result.task_id, result.status)],
            Answer::Terminated(result) => vec![(result.task_id, result.status)],
            Answer::Waited(wait) => wait
                .agents
                .into_iter()
                .map(|result| (result.task_id, result.status))
                .collect(),
        };
        for (task, status) in ends {
            let book = self.books.get_mut(&task).unwrap();
            if status.is_end() {
                assert_eq!(book.ended.map(End::status), Some(status));
                book.told_to_owner += u32::from(book.owner == Some(caller));
            }
        }
    }

    /// What holds after every input.
    fn check(&mut self, told: &Input) {
        let config = self.it.config();
        let (mut slots, mut live) = (0, 0);
        for agent in self.it.active() {
            slots += usize::from(agent.state.holds_slot());
            live += usize::from(agent.state.holds_process());
        }
        assert_eq!(slots, self.it.slots_used(), "{told:?}");
        assert!(slots <= config.max_concurrent, "{slots} slots: {told:?}");
        assert!(live <= config.max_live, "{live} live: {told:?}");
        assert!(
            self.it.next_timer() > Some(self.now_ms)
                || *told != Input::TimerDue
                || self.it.next_timer().is_none(),
            "a timer stays due: {told:?}"
        );
    }

    /// What holds of every agent there was; `last` when all have ended.
    fn audit(&self, last: bool) {
        assert_eq!(self.fold.misfits, 0, "{:?}", self.fold);
        assert_eq!(self.fold.agents.len(), self.it.agents().len());
        for (agent, folded) in self.it.agents().iter().zip(&self.fold.agents) {
            let book = &self.books[&agent.job.task_id];
            let told = Told(agent, book);
            assert_eq!(book.ended, agent.state.end(), "{told:?}");
            assert_eq!(folded.end(), after_leader_death(agent.state), "{told:?}");
            assert_eq!(
                folded.result.is_some(),
                agent.state.end().is_some(),
                "{told:?}"
            );
            let ended = u32::from(book.ended.is_some());
            assert_eq!((book.concludes, book.releases), (ended, ended), "{told:?}");
            assert!(book.spawns <= 1, "{told:?}");
            assert!(
                book.notices <= 1 && book.dropped <= book.notices,
                "{told:?}"
            );
            if ended == 1 {
                // A notice, or an answer to the owner; both only where a later wait tells it again.
                assert!(book.notices == 1 || book.told_to_owner >= 1, "{told:?}");
                assert!(folded.told || book.notices == 1, "{told:?}");
            } else {
                assert_eq!((book.notices, book.told_to_owner), (0, 0), "{told:?}");
            }
            assert!(!last || ended == 1, "{told:?}");
        }
        let known: BTreeSet<&TaskId> = self
            .it
            .agents()
            .iter()
            .map(|agent| &agent.job.task_id)
            .collect();
        for (task, book) in &self.books {
            if !known.contains(task) {
                assert_eq!(
                    (book.releases, book.spawns, book.ended),
                    (1, 0, None),
                    "{task}"
                );
            }
        }
    }

    /// Closes the conversation and lets every process end.
    fn close(&mut self) {
        self.take(Input::StopAll {
            reason: StopReason::LeaderStopped,
            how: StopHow::Now,
        });
        loop {
            let first = self.it.active().next();
            let Some(agent) = first.map(|agent| agent.job.task_id.clone()) else {
                break;
            };
            let input = self.sensible(agent);
            self.take(input);
        }
        while let Some(due_ms) = self.it.next_timer() {
            self.now_ms = due_ms;
            self.take(Input::TimerDue);
        }
        assert_eq!(self.all_ended, 1);
        assert_eq!(self.it.slots_used(), 0);
        assert_eq!(self.open, BTreeMap::new(), "tickets without an answer");
        assert!(self.it.claims.is_empty());
        assert!(self.it.waits.is_empty());
        assert!(self.fold.ended);
        self.audit(true);
    }
}

#[test]
fn a_million_random_inputs_break_no_promise() {
    let (mut ended, mut refused, mut agents) = (0, 0, 0);
    let mut reached = BTreeSet::new();
    for seed in 0..INPUTS / INPUTS_PER_ROUND {
        let mut round = Round::new(seed);
        for turn in 0..INPUTS_PER_ROUND {
            let input = round.input();
            round.take(input);
            if turn % 250 == 0 {
                round.audit(false);
            }
        }
        round.close();
        ended += round.ended;
        refused += round.refused;
        agents += round.it.agents().len() as u64;
        reached.extend(
            round
                .books
                .values()
                .filter_map(|book| book.ended)
                .map(End::status),
        );
    }
    // The run is worth something only if it went everywhere.
    assert_eq!(ended, agents);
    assert!(agents > INPUTS / 50, "only {agents} agents");
    assert!(refused > INPUTS / 50, "only {refused} refusals");
    let expected = [
        Status::Completed,
        Status::Failed,
        Status::TimedOut,
        Status::Terminated,
    ];
    assert_eq!(reached, BTreeSet::from(expected));
}
