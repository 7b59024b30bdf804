//! The supervisor as a whole: short stories, each with its accident or rule.

use protocol::channel::ProgressParams;
use protocol::error::{ErrorCode, ToolError};
use protocol::result::AgentResult;
use protocol::stats::Stats;
use protocol::status::{Status, StopReason};
use protocol::tool::leader::{AgentRef, WaitMode};

use super::*;
use crate::core::effect::Answer;
use crate::core::input::{Caller, Evidence, ExitFacts, Mode, StopHow, Survivors, Ticket, Verdict};
use crate::core::lifecycle::StopCause;
use crate::core::record::{LadderSignal, Record};
use crate::core::test_kit::*;

const LEAD: Caller = Caller(0);

/// A supervisor with a clock, and tickets that count up.
struct Story {
    it: Supervisor,
    now_ms: u64,
    tickets: u64,
}

impl Story {
    fn new(config: SupervisorConfig) -> Self {
        Story {
            it: Supervisor::new(config),
            now_ms: 1_000,
            tickets: 0,
        }
    }

    fn ticket(&mut self) -> Ticket {
        self.tickets += 1;
        Ticket(self.tickets)
    }

    fn take(&mut self, input: Input) -> Vec<Effect> {
        self.it.handle(self.now_ms, input)
    }

    fn create(&mut self, order: CreateOrder) -> (Ticket, Vec<Effect>) {
        let ticket = self.ticket();
        let effects = self.take(Input::Create {
            ticket,
            caller: LEAD,
            order: Box::new(order),
        });
        (ticket, effects)
    }

    /// Creates an agent and brings it to where its worker has said `initialize`.
    fn start(&mut self, number: u32, mode: Mode) -> Ticket {
        let (ticket, _) = self.create(order(number, mode));
        self.spawned(number);
        self.take(Input::Initialized {
            agent: task(number),
            commands: None,
        });
        ticket
    }

    fn spawned(&mut self, number: u32) -> Vec<Effect> {
        self.take(Input::Spawned {
            agent: task(number),
            process: process(),
        })
    }

    fn reported(&mut self, number: u32, success: bool) -> Vec<Effect> {
        self.take(Input::Reported {
            agent: task(number),
            report: report(success, None),
        })
    }

    fn exited(&mut self, number: u32, facts: Box<ExitFacts>) -> Vec<Effect> {
        self.take(Input::Exited {
            agent: task(number),
            facts,
        })
    }

    fn crashed(&mut self, number: u32) -> Vec<Effect> {
        self.exited(number, exit(Verdict::Exited(7), unfinished(), 1))
    }

    fn terminate(&mut self, number: u32, how: StopHow) -> (Ticket, Vec<Effect>) {
        let ticket = self.ticket();
        let effects = self.take(Input::Terminate {
            ticket,
            caller: LEAD,
            agent: by_number(number),
            how,
        });
        (ticket, effects)
    }

    fn wait(
        &mut self,
        numbers: &[u32],
        mode: WaitMode,
        timeout_ms: Option<u64>,
    ) -> (Ticket, Vec<Effect>) {
        let ticket = self.ticket();
        let effects = self.take(Input::Wait {
            ticket,
            caller: LEAD,
            agents: numbers.iter().map(|number| by_number(*number)).collect(),
            mode,
            timeout_ms,
        });
        (ticket, effects)
    }

    /// Goes to the next timer, which must be due at `at_ms`, and lets it fire.
    fn timer(&mut self, at_ms: u64) -> Vec<Effect> {
        assert_eq!(self.it.next_timer(), Some(at_ms));
        self.now_ms = at_ms;
        self.take(Input::TimerDue)
    }

    fn status_of(&self, number: u32) -> Status {
        self.it.agent(&task(number)).unwrap().state.status()
    }
}

fn by_number(number: u32) -> AgentRef {
    AgentRef::Number {
        agent_id: AgentId::new(number).unwrap(),
        role_id: None,
    }
}

/// The effects by short names, without records that only accompany them.
fn names(effects: &[Effect]) -> Vec<String> {
    effects
        .iter()
        .map(|effect| match effect {
            Effect::Log(record) => {
                let line = record.to_line(1, String::new());
                format!("log {}", line.event)
            }
            Effect::Spawn { .. } => "spawn".to_owned(),
            Effect::SendStop {
                reason, grace_ms, ..
            } => format!("stop {reason} {grace_ms}"),
            Effect::SendDeadline {
                remaining_ms,
                paused,
                ..
            } => format!("deadline {remaining_ms} {paused}"),
            Effect::Term { .. } => "term".to_owned(),
            Effect::PauseTree { .. } => "pause".to_owned(),
            Effect::ContinueTree { .. } => "continue".to_owned(),
            Effect::Kill { .. } => "kill".to_owned(),
            Effect::Inspect { .. } => "inspect".to_owned(),
            Effect::GoOn { .. } => "go on".to_owned(),
            Effect::Conclude { status, .. } => format!("conclude {status}"),
            Effect::ReleaseClaim { .. } => "release".to_owned(),
            Effect::Answer { ticket, answer } => {
                let what = match answer {
                    Answer::Refused(error) => format!("refused {}", error.code),
                    Answer::Created(result) => format!("created {}", result.status),
                    Answer::Started(result) => format!("started {}", result.status),
                    Answer::Terminated(result) => format!("terminated {}", result.status),
                    Answer::Waited(result) => format!(
                        "waited {} of {}",
                        result.agents.len(),
                        result.agents.len() + result.running.len()
                    ),
                };
                format!("answer {} {what}", ticket.0)
            }
            Effect::Notice(result) => format!("notice {}", result.status),
            Effect::DropNotice { .. } => "drop notice".to_owned(),
            Effect::AllEnded => "all ended".to_owned(),
            Effect::Ignored { .. } => "ignored".to_owned(),
        })
        .collect()
}

fn refused(effects: &[Effect]) -> ToolError {
    effects
        .iter()
        .find_map(|effect| match effect {
            Effect::Answer {
                answer: Answer::Refused(error),
                ..
            } => Some(error.clone()),
            _ => None,
        })
        .expect("a refusal")
}

fn result_of(effects: &[Effect]) -> AgentResult {
    effects
        .iter()
        .find_map(|effect| match effect {
            Effect::Answer {
                answer: Answer::Created(result),
                ..
            } => Some(result.as_ref().clone()),
            Effect::Notice(result) => Some(result.as_ref().clone()),
            _ => None,
        })
        .expect("a result")
}

#[test]
fn a_blocking_create_is_logged_spawned_and_answered_at_its_end() {
    let mut story = Story::new(config(Admission::Reject));
    let (ticket, effects) = story.create(order(1, Mode::Blocking));
    assert_eq!(
        names(&effects),
        ["log agent.created", "log agent.starting", "spawn"]
    );
    assert_eq!(names(&story.spawned(1)), ["log agent.running"]);
    let effects = story.take(Input::Initialized {
        agent: task(1),
        commands: None,
    });
    assert_eq!(names(&effects), ["log agent.initialized"]);
    story.now_ms += 12_345;
    assert_eq!(names(&story.reported(1, true)), ["log agent.reported"]);
    assert_eq!(story.status_of(1), Status::Stopping);
    let effects = story.exited(1, exit(Verdict::Exited(0), bad_file(), 2));
    assert_eq!(
        names(&effects),
        [
            "log agent.ended",
            "conclude completed",
            "release",
            &format!("answer {} created completed", ticket.0),
            "log notice.done",
        ]
    );
    let expected = AgentResult {
        success: true,
        agent_id: AgentId::FIRST,
        task_id: task(1),
        role_id: None,
        display_name: "Sub-agent 1".to_owned(),
        status: Status::Completed,
        stop_reason: None,
        error: None,
        summary: "work 1".to_owned(),
        message: "en: Sub-agent 1 completed".to_owned(),
        deliverables_dir: "out/1".to_owned(),
        deliverables_files: vec!["f0".to_owned(), "f1".to_owned()],
        deliverables_skipped: Vec::new(),
        deliverables_truncated: false,
        deliverables_count: None,
        result_summary: "the report".to_owned(),
        sub_conversation_id: job(1).sub_conversation_id,
        stats: Stats {
            runtime_seconds: 12,
            turns: 3,
            ..Stats::default()
        },
        usage: Default::default(),
        partial_results: false,
        warnings: Vec::new(),
        confinement: serde_json::Value::Null,
    };
    assert_eq!(result_of(&effects), expected);
    assert_eq!(story.it.next_timer(), None);
    assert_eq!(story.it.slots_used(), 0);
}

#[test]
fn a_background_create_is_answered_at_once_and_its_end_is_one_notice() {
    let mut story = Story::new(config(Admission::Reject));
    let (ticket, effects) = story.create(order(1, Mode::Background));
    let started = format!("answer {} started running", ticket.0);
    assert_eq!(names(&effects).last(), Some(&started));
    story.spawned(1);
    let effects = story.crashed(1);
    assert_eq!(
        names(&effects).last().map(String::as_str),
        Some("notice failed")
    );
    let result = result_of(&effects);
    assert_eq!(result.stop_reason, Some(StopReason::WorkerCrashed));
    assert!(result.partial_results);
    assert_eq!(
        result.error.unwrap().message,
        "Sub-agent 1 exited with code 7 without a report"
    );
    let taken = Input::NoticeTaken { agent: task(1) };
    assert_eq!(names(&story.take(taken.clone())), ["log notice.done"]);
    assert_eq!(names(&story.take(taken)), Vec::<String>::new());
}

#[test]
fn six_at_once_make_five_and_one_clear_refusal() {
    // Calls above the limit were once cut away silently.
    let mut story = Story::new(config(Admission::Reject));
    let mut answers = Vec::new();
    for number in 1..=6 {
        answers.push(story.create(order(number, Mode::Background)).1);
    }
    let sixth = answers.pop().unwrap();
    for effects in answers {
        assert!(names(&effects).contains(&"spawn".to_owned()));
    }
    assert_eq!(
        names(&sixth),
        ["release", "answer 6 refused too_many_agents"]
    );
    let error = refused(&sixth);
    assert!(
        error
            .message
            .starts_with("at most 5 agents run at once, and 5 do: Sub-agent 1 (work 1), ")
    );
    // The refused number is not spent, and a slot that comes free takes it.
    story.spawned(1);
    story.crashed(1);
    let (_, effects) = story.create(order(6, Mode::Background));
    assert!(names(&effects).contains(&"spawn".to_owned()));
}

#[test]
fn a_cap_of_one_means_one() {
    let mut story = Story::new(SupervisorConfig {
        max_concurrent: 1,
        ..config(Admission::Reject)
    });
    story.start(1, Mode::Background);
    let (_, effects) = story.create(order(2, Mode::Background));
    assert_eq!(refused(&effects).code, ErrorCode::TooManyAgents);
}

#[test]
fn the_queue_is_first_come_first_served_and_shows_places() {
    let mut story = Story::new(SupervisorConfig {
        max_concurrent: 1,
        ..config(Admission::Queue)
    });
    story.start(1, Mode::Background);
    let (_, second) = story.create(order(2, Mode::Background));
    assert_eq!(
        names(&second),
        [
            "log agent.created",
            "log agent.queued",
            "answer 2 started queued"
        ]
    );
    story.create(order(3, Mode::Background));
    let place = |story: &Story, number| {
        let agent = story.it.agent(&task(number)).unwrap();
        story.it.status(story.now_ms, agent).queue_position
    };
    assert_eq!(
        (place(&story, 1), place(&story, 2), place(&story, 3)),
        (None, Some(1), Some(2))
    );
    // Its deadline starts when its worker speaks, not while it waits.
    story.now_ms += 700_000;
    story.reported(1, true);
    let effects = story.exited(1, exit(Verdict::Exited(0), bad_file(), 1));
    let names = names(&effects);
    assert_eq!(names[names.len() - 2..], ["log agent.starting", "spawn"]);
    assert_eq!((place(&story, 2), place(&story, 3)), (None, Some(1)));
    story.spawned(2);
    story.take(Input::Initialized {
        agent: task(2),
        commands: None,
    });
    let agent = story.it.agent(&task(2)).unwrap();
    assert_eq!(
        story.it.status(story.now_ms, agent).deadline_in_seconds,
        Some(600)
    );
}

#[test]
fn nobody_waits_for_a_slot_for_ever() {
    let mut story = Story::new(SupervisorConfig {
        max_concurrent: 1,
        queue_timeout_ms: 30_000,
        ..config(Admission::Queue)
    });
    story.start(1, Mode::Background);
    story.create(order(2, Mode::Blocking));
    let effects = story.timer(31_000);
    assert_eq!(
        names(&effects),
        [
            "log agent.ended",
            "conclude failed",
            "release",
            "answer 2 created failed",
            "log notice.done"
        ]
    );
    assert_eq!(
        result_of(&effects).stop_reason,
        Some(StopReason::QueueTimeout)
    );
}

#[test]
fn the_ladder_climbs_on_time_and_an_unkillable_agent_is_told_and_tried_again() {
    let mut story = Story::new(config(Admission::Reject));
    story.start(1, Mode::Background);
    let (ticket, effects) = story.terminate(1, StopHow::Graceful);
    assert_eq!(
        names(&effects),
        ["log agent.stopping", "stop terminated 5000"]
    );
    assert_eq!(names(&story.timer(3_000)), ["log agent.signalled", "term"]);
    assert_eq!(names(&story.timer(6_000)), ["log agent.signalled", "kill"]);
    let (patient, _) = story.wait(&[1], WaitMode::All, None);
    let (timed, _) = story.wait(&[1], WaitMode::All, Some(60_000));
    let unkillable = format!("answer {} refused timed_out", ticket.0);
    assert_eq!(
        names(&story.timer(8_000)),
        ["log agent.unkillable", "kill", "inspect"]
    );
    let survivors = Survivors {
        pids: vec![17],
        why: "nfs_wait".to_owned(),
    };
    let seen = Input::Survivors {
        agent: task(1),
        survivors,
    };
    // Whoever waits for the end is told who is left, and what that waits on.
    let effects = story.take(seen.clone());
    let told = names(&effects);
    assert_eq!(told[..2], ["log agent.unkillable", unkillable.as_str()]);
    // A wait without a time of its own would last for ever; one with a time goes on.
    assert_eq!(told.len(), 3, "{told:?}");
    assert!(
        told[2].starts_with(&format!("answer {} ", patient.0)),
        "{told:?}"
    );
    assert_ne!(patient, timed);
    let (_, again) = story.wait(&[1], WaitMode::All, None);
    assert_eq!(again.len(), 1, "{:?}", names(&again));
    assert!(
        refused(&effects)
            .message
            .contains("pids 17, waiting on nfs_wait")
    );
    assert_eq!(names(&story.timer(9_000)), ["kill", "inspect"]);
    assert_eq!(names(&story.take(seen)), Vec::<String>::new());
    assert_eq!(story.it.slots_used(), 1, "the slot is kept");
    let agent = story.it.agent(&task(1)).unwrap();
    assert_eq!(
        story.it.status(9_000, agent).unkillable,
        Some(serde_json::json!({"pids": [17], "why": "nfs_wait"}))
    );
    let (_, effects) = story.terminate(1, StopHow::Now);
    assert!(
        refused(&effects)
            .message
            .contains("pids 17, waiting on nfs_wait")
    );
    let effects = story.exited(1, exit(Verdict::Signalled(9), unfinished(), 0));
    assert_eq!(
        names(&effects),
        [
            "log agent.ended",
            "conclude terminated",
            "release",
            "answer 4 waited 1 of 1",
            "log notice.done"
        ]
    );
    assert_eq!(story.it.slots_used(), 0);
}

#[test]
fn trees_stand_still_with_their_leader_and_are_told_what_is_left() {
    let mut story = Story::new(config(Admission::Reject));
    story.start(1, Mode::Background);
    story.now_ms = 101_000;
    // The second one is being started when the leader is stopped.
    story.create(order(2, Mode::Background));
    assert_eq!(
        names(&story.take(Input::Pause)),
        ["log run.paused", "deadline 500000 true", "pause"]
    );
    assert_eq!(names(&story.take(Input::Pause)), Vec::<String>::new());
    assert_eq!(names(&story.spawned(2)), ["log agent.running", "pause"]);
    // The clock that the times come from has stood still meanwhile.
    assert_eq!(
        names(&story.take(Input::Continue)),
        [
            "log run.continued",
            "deadline 500000 false",
            "continue",
            "continue"
        ]
    );
    assert_eq!(names(&story.take(Input::Continue)), Vec::<String>::new());
    // An agent that waits goes on to wait.
    story.take(Input::Asked { agent: task(1) });
    story.take(Input::Pause);
    assert_eq!(
        names(&story.take(Input::Continue)),
        [
            "log run.continued",
            "deadline 500000 true",
            "continue",
            "continue"
        ]
    );
    // One that has ended is left alone.
    story.crashed(2);
    story.crashed(1);
    assert_eq!(names(&story.take(Input::Pause)), ["log run.paused"]);
}

#[test]
fn a_second_terminate_kills_at_once_and_both_are_answered() {
    let mut story = Story::new(config(Admission::Reject));
    story.start(1, Mode::Background);
    let (first, _) = story.terminate(1, StopHow::Graceful);
    let (second, effects) = story.terminate(1, StopHow::Graceful);
    assert_eq!(names(&effects), ["log agent.signalled", "kill"]);
    let effects = story.exited(1, exit(Verdict::Signalled(9), unfinished(), 1));
    assert_eq!(
        names(&effects),
        [
            "log agent.ended".to_owned(),
            "conclude terminated".to_owned(),
            "release".to_owned(),
            format!("answer {} terminated terminated", first.0),
            "log notice.done".to_owned(),
            format!("answer {} terminated terminated", second.0),
        ]
    );
    let (_, effects) = story.terminate(1, StopHow::Graceful);
    let error = refused(&effects);
    assert_eq!(error.code, ErrorCode::AlreadyEnded);
    assert_eq!(error.message, "Sub-agent 1 has ended already: terminated");
}

#[test]
fn a_grace_of_nothing_is_a_kill() {
    let mut story = Story::new(config(Admission::Reject));
    let mut quick = order(1, Mode::Background);
    quick.job.limits.grace_seconds = 0;
    story.create(quick);
    story.spawned(1);
    let (_, effects) = story.terminate(1, StopHow::Graceful);
    assert_eq!(
        names(&effects),
        [
            "log agent.stopping",
            "stop terminated 0",
            "log agent.signalled",
            "kill"
        ]
    );
    // A reporter gets time to save all the same.
    let mut story = Story::new(config(Admission::Reject));
    let mut quick = order(1, Mode::Background);
    quick.job.limits.grace_seconds = 0;
    story.create(quick);
    story.spawned(1);
    assert_eq!(names(&story.reported(1, true)), ["log agent.reported"]);
    assert_eq!(names(&story.timer(3_000)), ["log agent.signalled", "kill"]);
}

#[test]
fn a_terminate_just_before_the_deadline_stays_a_terminate() {
    // The handler of a deadline once overwrote "cancelled" without looking.
    for (ahead_ms, success) in [(1, true), (50, false), (4_999, true)] {
        let mut story = Story::new(config(Admission::Reject));
        story.start(1, Mode::Background);
        story.now_ms = 601_000 - ahead_ms;
        story.terminate(1, StopHow::Graceful);
        story.now_ms = 601_000;
        story.take(Input::TimerDue);
        story.reported(1, success);
        let effects = story.exited(1, exit(Verdict::Exited(0), bad_file(), 1));
        let told = names(&effects);
        assert!(
            told.contains(&"answer 2 terminated terminated".to_owned()),
            "{told:?}"
        );
        assert_eq!(
            told.iter()
                .filter(|name| name.starts_with("notice"))
                .count(),
            0
        );
        let agent = story.it.agent(&task(1)).unwrap();
        let result = agent.result.as_ref().unwrap();
        assert_eq!(result.stop_reason, Some(StopReason::Terminated));
        // One that says truthfully that it was stopped has said nothing odd.
        let odd = "its report came after its stop had begun and did not change its end";
        let wanted: &[&str] = if success { &[odd] } else { &[] };
        assert_eq!(result.warnings, wanted);
    }
}

#[test]
fn a_deadline_stops_and_the_answer_comes_only_when_the_tree_is_gone() {
    let mut story = Story::new(config(Admission::Reject));
    story.start(1, Mode::Blocking);
    let effects = story.timer(601_000);
    assert_eq!(
        names(&effects),
        ["log agent.stopping", "stop deadline 5000"]
    );
    assert_eq!(story.it.slots_used(), 1);
    story.timer(603_000);
    story.timer(606_000);
    let effects = story.exited(1, exit(Verdict::Signalled(9), unfinished(), 3));
    let result = result_of(&effects);
    assert_eq!(
        (result.status, result.stop_reason),
        (Status::TimedOut, Some(StopReason::Deadline))
    );
    assert_eq!(
        (result.partial_results, result.deliverables_files.len()),
        (true, 3)
    );
    assert_eq!(result.result_summary, "half way");
    let error = result.error.unwrap();
    assert_eq!(error.code, ErrorCode::TimedOut);
    assert_eq!(
        error.message,
        "Sub-agent 1 was stopped at its deadline of 600 s"
    );
    assert_eq!(story.it.slots_used(), 0);
}

#[test]
fn a_reporter_that_lingers_is_killed_after_the_grace_and_still_counts() {
    // An agent had its complete answer, but a handle kept its process; its work was thrown away.
    let mut story = Story::new(config(Admission::Reject));
    story.start(1, Mode::Blocking);
    story.reported(1, true);
    assert_eq!(names(&story.timer(6_000)), ["log agent.signalled", "kill"]);
    let effects = story.exited(1, exit(Verdict::Signalled(9), unfinished(), 1));
    let result = result_of(&effects);
    assert_eq!(
        (result.status, result.success, result.error),
        (Status::Completed, true, None)
    );
    assert_eq!(
        result.warnings,
        ["it did not leave after its report and was killed"]
    );
}

#[test]
fn a_worker_that_never_speaks_is_stopped_and_its_file_still_counts() {
    let mut story = Story::new(config(Admission::Reject));
    story.create(order(1, Mode::Background));
    story.spawned(1);
    let effects = story.timer(11_000);
    assert_eq!(
        names(&effects),
        ["log agent.stopping", "stop start_timeout 5000"]
    );
    let found = Evidence::Report(report(true, None));
    let result = result_of(&story.exited(1, exit(Verdict::Signalled(9), found, 1)));
    assert_eq!(
        (result.status, result.result_summary.as_str()),
        (Status::Completed, "the report")
    );
    assert_eq!(result.warnings.len(), 1);

    let mut story = Story::new(config(Admission::Reject));
    story.create(order(1, Mode::Background));
    story.spawned(1);
    story.timer(11_000);
    let result = result_of(&story.exited(1, exit(Verdict::Signalled(9), bad_file(), 0)));
    assert_eq!(
        (result.status, result.stop_reason),
        (Status::Failed, Some(StopReason::StartTimeout))
    );
}

#[test]
fn an_end_without_our_doing_says_what_happened() {
    // A child killed with SIGKILL never wrote its end and showed as running for ever.
    let success = || Evidence::Report(report(true, None));
    let failure = |reason| Evidence::Report(report(false, Some(reason)));
    use StopReason as R;
    let table = [
        (
            Verdict::Signalled(9),
            unfinished(),
            Status::Failed,
            Some(R::KilledFromOutside),
            "was killed by SIGKILL",
        ),
        (
            Verdict::Signalled(11),
            unfinished(),
            Status::Failed,
            Some(R::WorkerCrashed),
            "was killed by SIGSEGV",
        ),
        (
            Verdict::Exited(7),
            unfinished(),
            Status::Failed,
            Some(R::WorkerCrashed),
            "exited with code 7",
        ),
        (
            Verdict::Exited(0),
            bad_file(),
            Status::Failed,
            Some(R::BadResultFile),
            "it is missing",
        ),
        (
            Verdict::Exited(124),
            unfinished(),
            Status::TimedOut,
            Some(R::Deadline),
            "deadline of 600 s",
        ),
        (
            Verdict::Exited(3),
            failure(R::TurnLimit),
            Status::Failed,
            Some(R::TurnLimit),
            "its 50 turns",
        ),
        (
            Verdict::Exited(4),
            failure(R::ModelError),
            Status::Failed,
            Some(R::ModelError),
            "its model",
        ),
        (
            Verdict::Exited(1),
            failure(R::NoFinish),
            Status::Failed,
            Some(R::NoFinish),
            "finish_task",
        ),
        (
            Verdict::Exited(124),
            failure(R::Deadline),
            Status::TimedOut,
            Some(R::Deadline),
            "deadline",
        ),
        (
            Verdict::Exited(5),
            bad_file(),
            Status::Failed,
            Some(R::ConfinementRefused),
            "confined",
        ),
        (
            Verdict::Exited(143),
            failure(R::Terminated),
            Status::Failed,
            Some(R::KilledFromOutside),
            "something else",
        ),
        (Verdict::Exited(0), success(), Status::Completed, None, ""),
        (
            Verdict::Signalled(9),
            success(),
            Status::Completed,
            None,
            "",
        ),
    ];
    for (verdict, evidence, status, reason, words) in table {
        let mut story = Story::new(config(Admission::Reject));
        story.start(1, Mode::Blocking);
        let result = result_of(&story.exited(1, exit(verdict, evidence.clone(), 1)));
        let told = format!("{verdict:?} {evidence:?} {:?}", result.error);
        assert_eq!(
            (result.status, result.stop_reason),
            (status, reason),
            "{told}"
        );
        assert_eq!(result.success, status == Status::Completed, "{told}");
        let message = result.error.map_or(String::new(), |error| error.message);
        assert!(message.contains(words), "{told}");
    }
}

#[test]
fn a_failed_start_is_an_end_with_the_reason_of_the_start() {
    for (code, reason) in [
        (ErrorCode::SpawnFailed, StopReason::SpawnFailed),
        (
            ErrorCode::ConfinementRefused,
            StopReason::ConfinementRefused,
        ),
    ] {
        let mut story = Story::new(config(Admission::Reject));
        story.create(order(1, Mode::Blocking));
        let error = ToolError::new(code, "worker `w` is not executable").hint("build it");
        let effects = story.take(Input::SpawnFailed {
            agent: task(1),
            error: error.clone(),
        });
        let result = result_of(&effects);
        assert_eq!(
            (result.stop_reason, result.error),
            (Some(reason), Some(error))
        );
        assert_eq!(story.it.slots_used(), 0);
    }
    // The jail says it with its exit code, as long as the worker has not spoken.
    let mut story = Story::new(config(Admission::Reject));
    story.create(order(1, Mode::Blocking));
    story.spawned(1);
    let mut facts = exit(Verdict::Exited(127), bad_file(), 0);
    facts.last_lines = "exec worker: no such file\n".to_owned();
    let error = result_of(&story.exited(1, facts)).error.unwrap();
    assert_eq!(error.code, ErrorCode::SpawnFailed);
    assert_eq!(
        error.message,
        "Sub-agent 1 could not be started: its jail exited with code 127; its last lines: \
         exec worker: no such file"
    );
}

#[test]
fn a_stop_during_the_start_is_obeyed_as_soon_as_the_process_exists() {
    let mut story = Story::new(config(Admission::Reject));
    story.create(order(1, Mode::Background));
    let (_, effects) = story.terminate(1, StopHow::Graceful);
    assert_eq!(names(&effects), Vec::<String>::new());
    assert_eq!(
        names(&story.spawned(1)),
        [
            "log agent.running",
            "log agent.stopping",
            "stop terminated 5000"
        ]
    );
    assert_eq!(story.it.next_timer(), Some(3_000));
}

#[test]
fn a_broken_channel_stops_its_worker() {
    let mut story = Story::new(config(Admission::Reject));
    story.start(1, Mode::Blocking);
    let effects = story.take(Input::Broke {
        agent: task(1),
        detail: "it does not read its stdin".to_owned(),
    });
    assert_eq!(
        names(&effects),
        ["log agent.stopping", "stop protocol_error 5000"]
    );
    let result = result_of(&story.exited(1, exit(Verdict::Exited(0), unfinished(), 0)));
    assert_eq!(result.stop_reason, Some(StopReason::ProtocolError));
    assert_eq!(
        result.error.unwrap().message,
        "Sub-agent 1 broke a rule of the channel and was stopped: it does not read its stdin"
    );
}

#[test]
fn a_success_with_nothing_delivered_is_warned_of() {
    let mut story = Story::new(config(Admission::Reject));
    let mut odd = order(1, Mode::Blocking);
    odd.warnings.push("short summary".to_owned());
    story.create(odd);
    story.spawned(1);
    story.reported(1, true);
    let mut facts = exit(Verdict::Exited(0), bad_file(), 0);
    facts.warnings.push("slow disk".to_owned());
    let result = result_of(&story.exited(1, facts));
    assert!(result.success);
    assert_eq!(result.warnings, ["short summary", "no files", "slow disk"]);
}

#[test]
fn waits_end_at_the_first_at_the_last_and_at_their_time() {
    let mut story = Story::new(config(Admission::Reject));
    for number in 1..=3 {
        story.start(number, Mode::Background);
    }
    let (any, effects) = story.wait(&[1, 2], WaitMode::Any, None);
    assert_eq!(names(&effects), Vec::<String>::new());
    let (all, _) = story.wait(&[], WaitMode::All, Some(600_000));
    let (late, _) = story.wait(&[3, 3], WaitMode::All, Some(1_000));
    assert_eq!(
        names(&story.timer(2_000)),
        [format!("answer {} waited 0 of 1", late.0)]
    );
    let told = names(&story.crashed(2));
    assert_eq!(
        told[3..],
        [
            format!("answer {} waited 1 of 2", any.0),
            "log notice.done".to_owned()
        ]
    );
    // It tells of an end that was told before: no notice comes of it.
    let (_, effects) = story.wait(&[2, 1], WaitMode::Any, None);
    assert_eq!(names(&effects), ["answer 7 waited 1 of 2"]);
    assert_eq!(
        names(&story.crashed(1)).last().map(String::as_str),
        Some("notice failed")
    );
    let told = names(&story.crashed(3));
    assert_eq!(
        told[3..],
        [
            format!("answer {} waited 3 of 3", all.0),
            // The first agent's notice was on its way: the wait overtakes it.
            "drop notice".to_owned(),
            "log notice.done".to_owned(),
            "log notice.done".to_owned(),
        ]
    );
    let (_, effects) = story.wait(&[], WaitMode::All, None);
    assert_eq!(names(&effects), ["answer 8 waited 0 of 0"]);
    let (_, effects) = story.wait(&[9], WaitMode::All, None);
    assert_eq!(refused(&effects).code, ErrorCode::UnknownAgent);
}

#[test]
fn an_end_told_to_somebody_else_still_gets_its_owner_a_notice() {
    let mut story = Story::new(config(Admission::Reject));
    story.start(1, Mode::Background);
    let ticket = story.ticket();
    story.take(Input::Terminate {
        ticket,
        caller: Caller(77),
        agent: by_number(1),
        how: StopHow::Graceful,
    });
    let told = names(&story.crashed(1));
    assert_eq!(
        told[3..],
        ["answer 2 terminated terminated", "notice terminated"]
    );
}

#[test]
fn a_caller_that_went_away_gets_its_word_as_a_notice() {
    let mut story = Story::new(config(Admission::Reject));
    let ticket = story.start(1, Mode::Blocking);
    assert_eq!(
        names(&story.take(Input::GiveUp { ticket })),
        Vec::<String>::new()
    );
    assert_eq!(story.status_of(1), Status::Running);
    assert_eq!(
        names(&story.crashed(1)).last().map(String::as_str),
        Some("notice failed")
    );
}

#[test]
fn two_agents_never_share_a_directory() {
    let mut story = Story::new(config(Admission::Reject));
    let at = |number, dir: &str| {
        let mut order = order(number, Mode::Background);
        order.job.deliverables_dir = dir.into();
        order.deliverables = std::path::Path::new("/w").join(dir);
        order
    };
    story.create(at(1, "docs"));
    story.spawned(1);
    for dir in ["docs", "docs/api", ""] {
        let mut newcomer = at(2, dir);
        // What lies there is the first one's work; the overlap is what matters.
        newcomer.deliverables_facts = DirFacts::NotEmpty;
        let (_, effects) = story.create(newcomer.clone());
        let error = refused(&effects);
        assert_eq!(error.code, ErrorCode::DeliverablesOverlap, "{dir}");
        assert!(error.message.contains("Sub-agent 1"), "{}", error.message);
        assert_eq!(story.it.refusal(&newcomer), Some(error));
    }
    let mut writer = at(2, "other");
    writer.write_paths = vec!["/w/docs/x".into()];
    assert_eq!(
        refused(&story.create(writer).1).code,
        ErrorCode::ScopeOverlap
    );
    story.crashed(1);
    let mut full = at(2, "docs");
    full.deliverables_facts = DirFacts::NotEmpty;
    assert_eq!(
        refused(&story.create(full.clone()).1).code,
        ErrorCode::DeliverablesDirNotEmpty
    );
    full.deliverables_facts = DirFacts::NotEmptyReused;
    assert!(names(&story.create(full).1).contains(&"spawn".to_owned()));
}

#[test]
fn a_number_is_used_once_in_a_role_and_ambiguity_names_both() {
    let mut story = Story::new(config(Admission::Reject));
    story.start(1, Mode::Background);
    let again = |run| {
        let mut order = order(1, Mode::Background);
        order.job.task_id = task(run);
        order.deliverables = "/w/elsewhere".into();
        order
    };
    let running = refused(&story.create(again(50)).1);
    assert_eq!(running.code, ErrorCode::AgentIdTaken);
    assert!(
        running.message.ends_with("it is Sub-agent 1, running"),
        "{}",
        running.message
    );
    story.crashed(1);
    let ended = refused(&story.create(again(51)).1);
    assert!(
        ended.message.ends_with("it is Sub-agent 1, failed"),
        "{}",
        ended.message
    );
    // The same number of a role is somebody else.
    let (_, effects) = story.create(order_of(job_of_role(1, "docs", 60), Mode::Background));
    assert!(names(&effects).contains(&"spawn".to_owned()));
    let error = story.it.find(&by_number(1)).unwrap_err();
    assert_eq!(error.code, ErrorCode::AmbiguousAgentId);
    assert!(
        error.message.contains("Sub-agent 1 (role_id none"),
        "{}",
        error.message
    );
    assert!(
        error.message.contains("docs_1 (role_id docs"),
        "{}",
        error.message
    );
    let with_role = AgentRef::Number {
        agent_id: AgentId::FIRST,
        role_id: Some(RoleId::new("docs").unwrap()),
    };
    for wanted in [
        with_role,
        AgentRef::Name("docs_1".to_owned()),
        AgentRef::Name(task(60).as_str().to_owned()),
    ] {
        assert_eq!(story.it.find(&wanted).unwrap().job.task_id, task(60));
    }
    let nobody = AgentRef::Name("docs_2".to_owned());
    assert_eq!(
        story.it.find(&nobody).unwrap_err().code,
        ErrorCode::UnknownAgent
    );
}

#[test]
fn the_next_number_skips_what_is_taken_or_in_the_way_until_all_are_spent() {
    let mut story = Story::new(SupervisorConfig {
        max_concurrent: 99,
        max_live: 99,
        ..config(Admission::Reject)
    });
    story.start(1, Mode::Background);
    story.start(3, Mode::Background);
    let next = |story: &Story, blocked: &[u32]| {
        let free = |number: AgentId| !blocked.contains(&number.get());
        story.it.next_number(None, AgentId::TOOL_MAX, free)
    };
    assert_eq!(next(&story, &[]).unwrap().get(), 2);
    assert_eq!(next(&story, &[2, 4]).unwrap().get(), 5);
    for number in (2..=99).filter(|number| *number != 3) {
        story.start(number, Mode::Background);
    }
    let error = next(&story, &[]).unwrap_err();
    assert_eq!(error.code, ErrorCode::AgentIdsSpent);
    assert!(error.hint.contains("/new"), "{}", error.hint);
    // Batches go beyond, and another role has all its numbers.
    assert_eq!(
        story
            .it
            .next_number(None, u32::MAX, |_| true)
            .unwrap()
            .get(),
        100
    );
    let role = RoleId::new("docs").unwrap();
    assert_eq!(
        story
            .it
            .next_number(Some(&role), 99, |_| true)
            .unwrap()
            .get(),
        1
    );
}

#[test]
fn an_idle_agent_answers_its_create_gives_its_slot_and_gets_it_back_before_a_new_one() {
    let mut story = Story::new(SupervisorConfig {
        max_concurrent: 1,
        ..config(Admission::Queue)
    });
    let ticket = story.start(1, Mode::Blocking);
    story.now_ms += 100_000;
    let idle = Input::WentIdle {
        agent: task(1),
        text: "hello".to_owned(),
    };
    let effects = story.take(idle);
    assert_eq!(
        names(&effects),
        [
            "log agent.idle".to_owned(),
            "deadline 500000 true".to_owned(),
            format!("answer {} created idle", ticket.0)
        ]
    );
    let result = result_of(&effects);
    assert_eq!(
        (result.success, result.result_summary.as_str()),
        (true, "hello")
    );
    // Its slot is somebody else's now; a third one is in the queue before it comes back.
    story.start(2, Mode::Background);
    story.create(order(3, Mode::Background));
    assert_eq!(
        names(&story.take(Input::Resume { agent: task(1) })),
        Vec::<String>::new()
    );
    story.now_ms += 1_000_000;
    let told = names(&story.crashed(2));
    assert_eq!(
        told[told.len() - 3..],
        ["log agent.resumed", "deadline 500000 false", "go on"]
    );
    assert_eq!(
        (story.status_of(1), story.status_of(3)),
        (Status::Running, Status::Queued)
    );
    let told = names(&story.crashed(1));
    assert!(
        told.contains(&"notice failed".to_owned()),
        "its end is news: {told:?}"
    );
    assert_eq!(story.status_of(3), Status::Starting);
}

#[test]
fn an_answer_that_never_comes_lets_a_waiting_agent_go_on() {
    let mut story = Story::new(config(Admission::Reject));
    story.start(1, Mode::Background);
    let told = names(&story.take(Input::Asked { agent: task(1) }));
    assert_eq!(told, ["log agent.waiting", "deadline 600000 true"]);
    assert_eq!(story.it.slots_used(), 0);
    let told = names(&story.timer(601_000));
    assert_eq!(
        told,
        ["log agent.resumed", "deadline 600000 false", "go on"]
    );
    assert_eq!(story.it.slots_used(), 1);
    // One that waits for its slot and is stopped meanwhile does not come back.
    story.take(Input::Asked { agent: task(1) });
    for number in 2..=6 {
        story.start(number, Mode::Background);
    }
    story.take(Input::Resume { agent: task(1) });
    story.terminate(1, StopHow::Now);
    assert_eq!(story.it.slots_used(), 5);
    let told = names(&story.exited(1, exit(Verdict::Signalled(9), unfinished(), 0)));
    assert!(!told.contains(&"go on".to_owned()), "{told:?}");
}

#[test]
fn closing_stops_all_refuses_new_ones_and_says_once_that_nobody_is_left() {
    let mut story = Story::new(SupervisorConfig {
        max_concurrent: 1,
        ..config(Admission::Queue)
    });
    story.start(1, Mode::Background);
    story.create(order(2, Mode::Background));
    let stop = |how| Input::StopAll {
        reason: StopReason::LeaderStopped,
        how,
    };
    let told = names(&story.take(stop(StopHow::Graceful)));
    assert_eq!(
        told,
        [
            "log run.stopping",
            "log agent.stopping",
            "stop leader_stopped 5000",
            "log agent.ended",
            "conclude terminated",
            "release",
            "notice terminated"
        ]
    );
    let error = refused(&story.create(order(3, Mode::Background)).1);
    assert_eq!(error.code, ErrorCode::ShuttingDown);
    assert_eq!(
        names(&story.take(stop(StopHow::Now))),
        ["log agent.signalled", "kill"]
    );
    let told = names(&story.exited(1, exit(Verdict::Signalled(9), unfinished(), 0)));
    assert_eq!(
        told[3..],
        ["notice terminated", "log run.ended", "all ended"]
    );
    assert_eq!(names(&story.take(stop(StopHow::Now))), ["all ended"]);
    let result = story.it.agent(&task(1)).unwrap().result.clone().unwrap();
    assert_eq!(result.stop_reason, Some(StopReason::LeaderStopped));
}

#[test]
fn nobody_to_stop_is_told_at_once() {
    let mut story = Story::new(config(Admission::Reject));
    let told = names(&story.take(Input::StopAll {
        reason: StopReason::ConversationClosed,
        how: StopHow::Graceful,
    }));
    assert_eq!(told, ["log run.stopping", "log run.ended", "all ended"]);
}

#[test]
fn progress_is_shown_as_far_as_it_may_be_long() {
    let mut story = Story::new(config(Admission::Reject));
    story.start(1, Mode::Background);
    let progress = ProgressParams {
        stats: Stats {
            runtime_seconds: 99_999,
            files_read: 8,
            ..Stats::default()
        },
        last_action: "字".repeat(300),
        state: Status::Running,
        output_tail: "é".repeat(2_000),
    };
    let agent = task(1);
    story.take(Input::Progress { agent, progress });
    story.take(Input::Confined {
        agent: task(1),
        confinement: serde_json::json!({"rung": "pidns"}),
    });
    story.now_ms += 5_000;
    let status = story
        .it
        .status(story.now_ms, story.it.agent(&task(1)).unwrap());
    // The time is the leader's: a worker can't set how long it ran.
    assert_eq!((status.runtime_seconds, status.files_read), (5, 8));
    assert_eq!(status.last_action.chars().count(), 200);
    assert_eq!(status.last_output.len(), 2_048);
    assert_eq!(status.deadline_in_seconds, Some(595));
    assert_eq!(status.rung.as_deref(), Some("pidns"));
}

/// A machine whose user namespaces were used up let later agents run with less, and nobody knew.
#[test]
fn a_rung_that_is_lost_in_mid_run_is_an_event_and_a_warning() {
    let mut story = Story::new(SupervisorConfig {
        rung: Some(RequiredRung::Pidns),
        ..config(Admission::Reject)
    });
    let mut confined = |number: u32, rung: &str| {
        story.start(number, Mode::Background);
        let confinement = serde_json::json!({"rung": rung, "gaps": []});
        let agent = task(number);
        let effects = story.take(Input::Confined { agent, confinement });
        let agent = story.it.agent(&task(number)).unwrap();
        let standing = crate::core::result::standing(agent, Status::Running, 0, &PlainTexts);
        (names(&effects), standing.warnings)
    };
    assert_eq!(
        confined(1, "pidns"),
        (vec!["log agent.confined".to_owned()], vec![])
    );
    let (logged, warnings) = confined(2, "group");
    assert_eq!(logged, ["log agent.confined", "log agent.rung_lost"]);
    assert_eq!(warnings.len(), 1);
    assert!(
        warnings[0].starts_with("its confinement is `group`, and `pidns` stood in this run before"),
        "{warnings:?}"
    );
}

#[test]
fn late_and_foreign_inputs_change_nothing() {
    let mut story = Story::new(config(Admission::Reject));
    story.start(1, Mode::Background);
    story.crashed(1);
    let before = format!("{:?}", story.it.agent(&task(1)).unwrap());
    for input in [
        Input::Spawned {
            agent: task(1),
            process: process(),
        },
        Input::Reported {
            agent: task(1),
            report: report(true, None),
        },
        Input::Asked { agent: task(1) },
        Input::Resume { agent: task(1) },
        Input::Broke {
            agent: task(1),
            detail: "late".to_owned(),
        },
        Input::Exited {
            agent: task(1),
            facts: exit(Verdict::Exited(0), Evidence::Report(report(true, None)), 0),
        },
    ] {
        assert_eq!(names(&story.take(input.clone())), ["ignored"], "{input:?}");
    }
    for input in [
        Input::Initialized {
            agent: task(1),
            commands: None,
        },
        Input::Confined {
            agent: task(1),
            confinement: serde_json::json!({"rung": "x"}),
        },
        Input::Initialized {
            agent: task(9),
            commands: None,
        },
        Input::GiveUp { ticket: Ticket(99) },
        Input::TimerDue,
    ] {
        assert_eq!(
            names(&story.take(input.clone())),
            Vec::<String>::new(),
            "{input:?}"
        );
    }
    assert_eq!(format!("{:?}", story.it.agent(&task(1)).unwrap()), before);
}

#[test]
fn records_of_the_ladder_name_cause_and_step() {
    let mut story = Story::new(config(Admission::Reject));
    story.start(1, Mode::Background);
    let (_, effects) = story.terminate(1, StopHow::Now);
    let records: Vec<&Record> = effects
        .iter()
        .filter_map(|effect| match effect {
            Effect::Log(record) => Some(record.as_ref()),
            _ => None,
        })
        .collect();
    let agent = story.it.agent(&task(1)).unwrap().tag();
    assert_eq!(
        records,
        [
            &Record::Stopping {
                agent: agent.clone(),
                cause: StopCause::Terminated,
                grace_ms: 0
            },
            &Record::Signalled {
                agent,
                signal: LadderSignal::Kill
            }
        ]
    );
}
