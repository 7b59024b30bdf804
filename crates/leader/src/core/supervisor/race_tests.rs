//! Ends that come within one millisecond of each other: a report, an exit, a terminate and the
//! deadline, in every order that a seed brings. Whatever comes first decides, and it decides once.

use protocol::status::Status;
use protocol::tool::leader::AgentRef;

use super::*;
use crate::core::effect::Answer;
use crate::core::input::{Caller, Mode, StopHow, Ticket, Verdict};
use crate::core::record::Record;
use crate::core::test_kit::*;

/// Runs, each with one agent whose deadline is a second after its start.
const RUNS: u64 = 1_000;
const DEADLINE_MS: u64 = 1_000;
const LEAD: Caller = Caller(0);

/// What may end an agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Cause {
    Deadline,
    Report,
    Terminate,
    Exit,
}

/// A small generator (xorshift) whose seed reproduces a run.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }
}

/// The deadline, and others around it, each at most one millisecond away; those at the same time
/// come in any order.
fn schedule(random: &mut Random) -> Vec<(u64, Cause)> {
    let mut causes = vec![(DEADLINE_MS, 0, Cause::Deadline)];
    for cause in [Cause::Report, Cause::Terminate, Cause::Exit] {
        if random.below(3) > 0 {
            let at_ms = DEADLINE_MS - 1 + random.below(3);
            causes.push((at_ms, 0, cause));
        }
    }
    for (_, order, _) in &mut causes {
        *order = random.below(1_000_000);
    }
    causes.sort_by_key(|(at_ms, order, _)| (*at_ms, *order));
    // What ends a process comes in the end, if nothing else brought it about.
    let mut causes: Vec<(u64, Cause)> = causes
        .into_iter()
        .map(|(at_ms, _, cause)| (at_ms, cause))
        .collect();
    if !causes.iter().any(|(_, cause)| *cause == Cause::Exit) {
        causes.push((DEADLINE_MS + 2, Cause::Exit));
    }
    causes
}

fn input(cause: Cause) -> Input {
    match cause {
        Cause::Deadline => Input::TimerDue,
        Cause::Report => Input::Reported {
            agent: task(1),
            report: report(true, None),
        },
        Cause::Terminate => Input::Terminate {
            ticket: Ticket(2),
            caller: LEAD,
            agent: AgentRef::Number {
                agent_id: AgentId::new(1).unwrap(),
                role_id: None,
            },
            how: StopHow::Graceful,
        },
        Cause::Exit => Input::Exited {
            agent: task(1),
            facts: exit(Verdict::Exited(0), unfinished(), 1),
        },
    }
}

/// Brings an agent to where its deadline is at [`DEADLINE_MS`].
fn started(mode: Mode) -> Supervisor {
    let mut it = Supervisor::new(config(Admission::Reject));
    let mut order = order(1, mode);
    order.job.limits.timeout_seconds = 1;
    let create = Input::Create {
        ticket: Ticket(1),
        caller: LEAD,
        order: Box::new(order),
    };
    let spawned = Input::Spawned {
        agent: task(1),
        process: process(),
    };
    let initialized = Input::Initialized {
        agent: task(1),
        commands: None,
    };
    for input in [create, spawned, initialized] {
        it.handle(0, input);
    }
    assert_eq!(it.next_timer(), Some(DEADLINE_MS));
    it
}

#[test]
fn of_ends_within_a_millisecond_the_first_decides_and_it_is_told_once() {
    let mut seen = std::collections::BTreeSet::new();
    for seed in 1..=RUNS {
        let mut random = Random(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
        let mode = [Mode::Blocking, Mode::Background][usize::from(seed % 2 == 0)];
        let mut it = started(mode);
        let schedule = schedule(&mut random);
        let told = format!("seed {seed}: {schedule:?}");
        let (mut ends, mut answers, mut notices, mut releases) = (Vec::new(), 0, 0, 0);
        for (at_ms, cause) in &schedule {
            for effect in it.handle(*at_ms, input(*cause)) {
                match effect {
                    Effect::Log(record) => {
                        if let Record::Ended { result, .. } = *record {
                            ends.push(result.status);
                        }
                    }
                    Effect::Answer {
                        answer: Answer::Created(_) | Answer::Terminated(_),
                        ..
                    } => answers += 1,
                    Effect::Notice(_) => notices += 1,
                    Effect::ReleaseClaim { .. } => releases += 1,
                    _ => {}
                }
            }
        }
        let expected = match schedule[0].1 {
            Cause::Deadline => Status::TimedOut,
            Cause::Report => Status::Completed,
            Cause::Terminate => Status::Terminated,
            Cause::Exit => Status::Failed,
        };
        assert_eq!(ends, [expected], "{told}");
        assert_eq!(releases, 1, "{told}");
        assert_eq!(it.slots_used(), 0, "{told}");
        assert_eq!(it.next_timer(), None, "{told}");
        // Told by an answer, or else by one notice; a caller that waits and one that terminates
        // each get theirs.
        let terminated = schedule
            .iter()
            .take_while(|(_, cause)| *cause != Cause::Exit)
            .any(|(_, cause)| *cause == Cause::Terminate);
        let blocking = mode == Mode::Blocking;
        assert_eq!(
            (answers, notices),
            (
                u32::from(blocking) + u32::from(terminated),
                u32::from(!blocking && !terminated)
            ),
            "{told}"
        );
        seen.insert(expected);
    }
    assert_eq!(seen.len(), 4, "{seen:?}");
}
