//! Every state against every event, and docs/lifecycle.md, which is generated from that.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt::Write as _;
use std::path::PathBuf;

use protocol::config::RequiredRung;
use protocol::ids::ConversationId;
use protocol::status::{Status, StopReason};

use super::*;
use crate::core::agent::Agent;
use crate::core::input::{Caller, Mode, Survivors};
use crate::core::record::{AgentTag, Durability, LadderSignal, Record};
use crate::core::result;
use crate::core::test_kit::{PlainTexts, job, order, process, report};
use crate::core::usage::Excess;

/// Set to write docs/lifecycle.md anew instead of comparing it.
const UPDATE: &str = "UPDATE_LIFECYCLE_DOC";

fn reports() -> Vec<Report> {
    let mut reports = vec![
        Report {
            success: true,
            reason: None,
        },
        Report {
            success: false,
            reason: None,
        },
    ];
    reports.extend(StopReason::ALL.iter().map(|reason| Report {
        success: false,
        reason: Some(*reason),
    }));
    reports
}

fn exits() -> Vec<Exit> {
    let mut exits = Vec::new();
    for found in std::iter::once(None).chain(reports().into_iter().map(Some)) {
        for otherwise in [
            StopReason::WorkerCrashed,
            StopReason::BadResultFile,
            StopReason::KilledFromOutside,
            StopReason::Deadline,
        ] {
            exits.push(Exit { found, otherwise });
        }
    }
    exits
}

fn events() -> Vec<Event> {
    let mut events = vec![
        Event::Enqueued,
        Event::SlotGranted,
        Event::QueueTimeout,
        Event::Spawned,
        Event::SpawnFailed(StopReason::SpawnFailed),
        Event::SpawnFailed(StopReason::ConfinementRefused),
        Event::StartTimeout,
        Event::WentIdle,
        Event::Asked,
        Event::Answered,
        Event::AnswerTimeout,
        Event::HandshakeTimeout,
        Event::Woken,
        Event::IdleTimeout,
        Event::DeadlinePassed,
        Event::ProtocolBroken,
        Event::ConversationClosed,
        Event::GraceExpired,
        Event::Unkillable,
    ];
    events.extend(Resource::ALL.iter().copied().map(Event::LimitPassed));
    for cause in StopCause::ALL {
        for now in [false, true] {
            events.push(Event::StopRequested(PendingStop { cause: *cause, now }));
        }
    }
    events.extend(reports().into_iter().map(Event::Reported));
    events.extend(exits().into_iter().map(Event::Exited));
    events
}

/// Every state that can be reached, found breadth first.
fn reachable() -> BTreeSet<State> {
    let events = events();
    let mut seen = BTreeSet::from([State::Created]);
    let mut open = VecDeque::from([State::Created]);
    while let Some(state) = open.pop_front() {
        for event in &events {
            if let Ok((next, _)) = apply(state, *event)
                && seen.insert(next)
            {
                open.push_back(next);
            }
        }
    }
    seen
}

#[test]
fn every_state_takes_every_event_by_the_rules() {
    let states = reachable();
    let mut pairs = 0;
    for state in &states {
        for event in events() {
            pairs += 1;
            let applied = apply(*state, event);
            let Ok((next, actions)) = applied else {
                assert_eq!(
                    applied,
                    Err(Illegal {
                        state: *state,
                        event
                    })
                );
                continue;
            };
            let told = format!("{state:?} at {event:?} gives {next:?} with {actions:?}");
            assert_eq!(state.end(), None, "an end absorbs: {told}");
            check_slots(*state, next, &actions, &told);
            check_end(*state, event, next, &actions, &told);
            check_stop(*state, next, &actions, &told);
        }
    }
    // Every state of the machine is reached, and each was tried with everything.
    let words: BTreeSet<Status> = states.iter().map(|state| state.status()).collect();
    let expected: BTreeSet<Status> = Status::ALL
        .iter()
        .copied()
        .filter(|status| *status != Status::Interrupted)
        .collect();
    assert_eq!(words, expected);
    assert_eq!(pairs, states.len() * events().len());
}

fn check_slots(state: State, next: State, actions: &[Action], told: &str) {
    let count = |wanted: Action| actions.iter().filter(|action| **action == wanted).count();
    let taken = usize::from(!state.holds_slot() && next.holds_slot());
    let released = usize::from(state.holds_slot() && !next.holds_slot());
    assert_eq!(count(Action::TakeSlot), taken, "{told}");
    assert_eq!(count(Action::ReleaseSlot), released, "{told}");
    // Only an event that a slot comes with may take one.
    if taken == 1 {
        assert!(
            matches!(next, State::Starting { .. } | State::Live(Activity::Busy)),
            "{told}"
        );
    }
    // A process, once it is being started, holds on until its tree has ended or never was.
    if state.holds_process() && !next.holds_process() {
        assert!(next.end().is_some(), "{told}");
    }
}

fn check_end(state: State, event: Event, next: State, actions: &[Action], told: &str) {
    let ends: Vec<End> = actions
        .iter()
        .filter_map(|action| match action {
            Action::Conclude(end) => Some(*end),
            _ => None,
        })
        .collect();
    assert_eq!(ends, Vec::from_iter(next.end()), "{told}");
    let Some(end) = next.end() else { return };
    if end == End::Completed {
        let reported = matches!(state, State::Stopping(stopping)
            if stopping.report.is_some_and(|report| report.success));
        let found = matches!(event, Event::Exited(exit)
            if exit.found.is_some_and(|report| report.success));
        let exited = matches!(event, Event::Exited(_));
        assert!(
            exited && (reported || found),
            "completed for nothing: {told}"
        );
    }
    if let State::Stopping(stopping) = state {
        assert!(
            matches!(event, Event::Exited(_)),
            "ended before its tree: {told}"
        );
        // The first cause wins over whatever the agent said later.
        let wins = match stopping.cause {
            StopCause::Finished | StopCause::StartTimeout | StopCause::ProtocolError => None,
            StopCause::Deadline => Some(End::TimedOut),
            StopCause::OutOfMemory | StopCause::CpuLimit | StopCause::DiskLimit => {
                stopping.cause.reason().map(End::Failed)
            }
            other => other.reason().map(End::Terminated),
        };
        if let Some(wins) = wins {
            assert_eq!(end, wins, "{told}");
        }
    }
}

fn check_stop(state: State, next: State, actions: &[Action], told: &str) {
    if let (State::Stopping(before), State::Stopping(after)) = (state, next) {
        assert_eq!(before.cause, after.cause, "{told}");
        assert_eq!(before.holds_slot, after.holds_slot, "{told}");
        assert!(after.killed || !before.killed, "{told}");
        assert!(after.unkillable || !before.unkillable, "{told}");
        assert!(
            before.report.is_none() || before.report == after.report,
            "{told}"
        );
    }
    if actions.contains(&Action::Kill) {
        assert!(
            matches!(next, State::Stopping(stopping) if stopping.killed),
            "{told}"
        );
    }
    let begins = actions
        .iter()
        .any(|action| matches!(action, Action::BeginStop(_) | Action::Linger));
    let stops = !matches!(state, State::Stopping(_)) && matches!(next, State::Stopping(_));
    assert_eq!(begins, stops, "{told}");
}

#[test]
fn a_stop_while_starting_is_obeyed_once_the_process_exists() {
    let terminate = |now| {
        Event::StopRequested(PendingStop {
            cause: StopCause::Terminated,
            now,
        })
    };
    let starting = State::Starting { stop: None };
    let (asked, actions) = apply(starting, terminate(false)).unwrap();
    assert_eq!(actions, []);
    // A later stop of another cause changes nothing, a kill hurries it.
    let (asked, _) = apply(asked, Event::ConversationClosed).unwrap();
    let (hurried, _) = apply(asked, terminate(true)).unwrap();
    let stopping = |killed| {
        State::Stopping(Stopping {
            cause: StopCause::Terminated,
            holds_slot: true,
            report: None,
            killed,
            unkillable: false,
        })
    };
    let begin = Action::BeginStop(StopCause::Terminated);
    assert_eq!(
        apply(asked, Event::Spawned),
        Ok((stopping(false), vec![begin]))
    );
    assert_eq!(
        apply(hurried, Event::Spawned),
        Ok((stopping(true), vec![begin, Action::Kill]))
    );
    let end = End::Terminated(StopReason::Terminated);
    assert_eq!(
        apply(hurried, Event::SpawnFailed(StopReason::SpawnFailed)),
        Ok((
            State::Ended(end),
            vec![Action::ReleaseSlot, Action::Conclude(end)]
        ))
    );
}

#[test]
fn too_much_memory_is_a_kill_and_too_much_of_the_rest_a_stop() {
    let busy = State::Live(Activity::Busy);
    for resource in Resource::ALL {
        let (state, actions) = apply(busy, Event::LimitPassed(*resource)).unwrap();
        let cause = resource.cause();
        let at_once = *resource == Resource::Memory;
        let mut expected = vec![Action::BeginStop(cause)];
        expected.extend(at_once.then_some(Action::Kill));
        assert_eq!(actions, expected);
        // A report of success that comes now is too late.
        let report = Report {
            success: true,
            reason: None,
        };
        let (state, _) = apply(state, Event::Reported(report)).unwrap();
        let exit = Exit {
            found: Some(report),
            otherwise: StopReason::KilledFromOutside,
        };
        let (ended, _) = apply(state, Event::Exited(exit)).unwrap();
        let reason = cause.reason().unwrap();
        assert_eq!(ended, State::Ended(End::Failed(reason)));
    }
    // One that lingers after its report has its success, and no memory for it.
    let report = Report {
        success: true,
        reason: None,
    };
    let (lingers, _) = apply(busy, Event::Reported(report)).unwrap();
    let memory = Event::LimitPassed(Resource::Memory);
    let (state, actions) = apply(lingers, memory).unwrap();
    assert_eq!(actions, [Action::Kill]);
    assert_eq!(apply(state, memory), Ok((state, vec![])));
    let cpu = Event::LimitPassed(Resource::Cpu);
    assert_eq!(apply(lingers, cpu), Ok((lingers, vec![])));
}

#[test]
fn an_agent_that_waits_takes_no_slot_to_be_stopped() {
    let waiting = State::Live(Activity::Waiting);
    let (stopping, actions) = apply(waiting, Event::DeadlinePassed).unwrap();
    assert_eq!(actions, [Action::BeginStop(StopCause::Deadline)]);
    assert!(!stopping.holds_slot());
    assert!(stopping.holds_process());
    let exit = Exit {
        found: None,
        otherwise: StopReason::WorkerCrashed,
    };
    assert_eq!(
        apply(stopping, Event::Exited(exit)),
        Ok((
            State::Ended(End::TimedOut),
            vec![Action::Conclude(End::TimedOut)]
        ))
    );
}

#[test]
fn what_the_leaders_death_makes_of_each_state() {
    let success = Report {
        success: true,
        reason: None,
    };
    let failure = Report {
        success: false,
        reason: Some(StopReason::TurnLimit),
    };
    for state in reachable() {
        let expected = match state {
            State::Created | State::Queued => End::Terminated(StopReason::LeaderDied),
            State::Starting { .. } | State::Live(_) => End::Interrupted,
            State::Stopping(stopping) if stopping.report == Some(success) => End::Completed,
            State::Stopping(stopping) if stopping.report == Some(failure) => {
                End::Failed(StopReason::TurnLimit)
            }
            State::Stopping(stopping) if stopping.report.is_none() => End::Interrupted,
            State::Stopping(_) => continue,
            State::Ended(end) => end,
        };
        assert_eq!(after_leader_death(state), expected, "{state:?}");
    }
}

/// A row of the table: its name and the state that stands for it.
fn rows() -> Vec<(&'static str, State)> {
    let stopping = |cause, report, killed| {
        State::Stopping(Stopping {
            cause,
            holds_slot: true,
            report,
            killed,
            unkillable: false,
        })
    };
    let success = Some(Report {
        success: true,
        reason: None,
    });
    let stop = Some(PendingStop {
        cause: StopCause::Terminated,
        now: false,
    });
    vec![
        ("Created", State::Created),
        ("Queued", State::Queued),
        ("Starting", State::Starting { stop: None }),
        ("Starting, stop requested", State::Starting { stop }),
        ("Live, busy", State::Live(Activity::Busy)),
        ("Live, waiting", State::Live(Activity::Waiting)),
        ("Live, idle", State::Live(Activity::Idle)),
        (
            "Stopping, reported",
            stopping(StopCause::Finished, success, false),
        ),
        (
            "Stopping, other cause",
            stopping(StopCause::Terminated, None, false),
        ),
        (
            "Stopping, killed",
            stopping(StopCause::Terminated, None, true),
        ),
        ("Ended", State::Ended(End::Completed)),
    ]
}

/// The events of the table, each with the name that it has there.
fn columns() -> Vec<(&'static str, Event)> {
    let exited = |found| {
        Event::Exited(Exit {
            found,
            otherwise: StopReason::WorkerCrashed,
        })
    };
    let success = Report {
        success: true,
        reason: None,
    };
    let stop = |now| {
        Event::StopRequested(PendingStop {
            cause: StopCause::Terminated,
            now,
        })
    };
    vec![
        ("Enqueued", Event::Enqueued),
        ("SlotGranted", Event::SlotGranted),
        ("QueueTimeout", Event::QueueTimeout),
        ("Spawned", Event::Spawned),
        ("SpawnFailed", Event::SpawnFailed(StopReason::SpawnFailed)),
        ("StartTimeout", Event::StartTimeout),
        ("WentIdle", Event::WentIdle),
        ("Asked", Event::Asked),
        ("Answered", Event::Answered),
        ("AnswerTimeout", Event::AnswerTimeout),
        ("HandshakeTimeout", Event::HandshakeTimeout),
        ("Woken", Event::Woken),
        ("IdleTimeout", Event::IdleTimeout),
        ("Reported, success", Event::Reported(success)),
        ("DeadlinePassed", Event::DeadlinePassed),
        ("ProtocolBroken", Event::ProtocolBroken),
        ("LimitPassed, memory", Event::LimitPassed(Resource::Memory)),
        ("LimitPassed, other", Event::LimitPassed(Resource::Cpu)),
        ("StopRequested", stop(false)),
        ("StopRequested, now", stop(true)),
        ("ConversationClosed", Event::ConversationClosed),
        ("GraceExpired", Event::GraceExpired),
        ("Unkillable", Event::Unkillable),
        ("Exited, report found", exited(Some(success))),
        ("Exited, no report", exited(None)),
    ]
}

fn cell(state: State) -> String {
    match state {
        State::Ended(end) => match end.reason() {
            Some(reason) => format!("`{}`, `{reason}`", end.status()),
            None => format!("`{}`", end.status()),
        },
        State::Starting { stop: Some(_) } => "`starting`, stop kept".to_owned(),
        State::Stopping(stopping) => {
            let mut text = "`stopping`".to_owned();
            if stopping.unkillable {
                text.push_str(", unkillable");
            } else if stopping.killed {
                text.push_str(", killed");
            }
            text
        }
        other => format!("`{}`", other.status()),
    }
}

fn document() -> String {
    let mut text = String::from(INTRODUCTION);
    text.push_str(
        "| state | word | slot | process | if the leader dies |\n|---|---|---|---|---|\n",
    );
    for (name, state) in rows() {
        if state.end().is_some() {
            continue;
        }
        let yes = |held| if held { "yes" } else { "no" };
        let _ = writeln!(
            text,
            "| {name} | `{}` | {} | {} | {} |",
            state.status(),
            yes(state.holds_slot()),
            yes(state.holds_process()),
            cell(State::Ended(after_leader_death(state))),
        );
    }
    text.push_str(TRANSITIONS);
    for (state_name, state) in rows() {
        let _ = write!(text, "\n### {state_name}\n\n");
        let mut fitting = 0;
        for (event_name, event) in columns() {
            let Ok((next, actions)) = apply(state, event) else {
                continue;
            };
            if fitting == 0 {
                text.push_str("| event | next | done |\n|---|---|---|\n");
            }
            fitting += 1;
            let done: Vec<&str> = actions.iter().map(|action| action_words(*action)).collect();
            let next = if next == state {
                "unchanged".to_owned()
            } else {
                cell(next)
            };
            let _ = writeln!(text, "| {event_name} | {next} | {} |", done.join(", "));
        }
        if fitting == 0 {
            text.push_str("No event fits.\n");
        }
    }
    text.push_str(EVENTS);
    for (record, words) in samples() {
        let line = record.to_line(1, String::new());
        let fields: Vec<String> = line.fields.keys().map(|key| format!("`{key}`")).collect();
        let synced = match record.durability() {
            Durability::Synced => "yes",
            Durability::Lazy => "no",
        };
        let _ = writeln!(
            text,
            "| `{}` | {words} | {} | {synced} |",
            line.event,
            fields.join(", ")
        );
    }
    text.push_str(REASONS);
    for (status, reasons) in reasons_by_end() {
        let reasons: Vec<String> = reasons.iter().map(|reason| format!("`{reason}`")).collect();
        let _ = writeln!(text, "| `{status}` | {} |", reasons.join(", "));
    }
    text
}

fn action_words(action: Action) -> &'static str {
    match action {
        Action::TakeSlot => "takes a slot",
        Action::ReleaseSlot => "gives its slot back",
        Action::Spawn => "starts its process",
        Action::PauseClock => "pauses its clock",
        Action::ResumeClock => "lets its clock go on",
        Action::Linger => "gives it the grace to leave by itself",
        Action::BeginStop(_) => "sends `agent/stop`, begins the ladder",
        Action::Kill => "kills its tree",
        Action::Conclude(_) => "tells its end",
    }
}

/// Every reason that an end can have, found by trying everything.
fn reasons_by_end() -> BTreeMap<Status, BTreeSet<StopReason>> {
    let mut found: BTreeMap<Status, BTreeSet<StopReason>> = BTreeMap::new();
    let states = reachable();
    let reached = states.iter().filter_map(|state| state.end());
    let folded = states.iter().map(|state| after_leader_death(*state));
    for end in reached.chain(folded) {
        found.entry(end.status()).or_default().extend(end.reason());
    }
    found.remove(&Status::Completed);
    found
}

const INTRODUCTION: &str = "\
# The life of an agent

This page is generated from the state machine in `crates/leader/src/core/lifecycle/` by one of its
tests; run it with `UPDATE_LIFECYCLE_DOC=1` to write the page anew.

An agent has one of the states below. The word is what every answer, record and file says. A slot
counts against `limits.max_concurrent`, a process against `limits.max_live`. An agent that waits or
is idle holds no slot, and takes none to be stopped.

";

const TRANSITIONS: &str = "
## Transitions

An event that is not listed for a state does not fit it and changes nothing. The first cause of a
stop wins: a report that comes after a stop for the deadline, a terminate or the end of the leader
or conversation does not change the end. A report counts although the agent lingers after it, does
not say `initialize`, or breaks a rule of the channel. `completed` needs a success report and the
end of the process tree. Where an example is needed, a stop is a terminate, and an exit is one of a
worker that crashed.
";

/// One record of each event, with what it tells.
fn samples() -> Vec<(Record, &'static str)> {
    let agent = || AgentTag::of(&job(1));
    let standing = || {
        let agent = Agent::new(order(1, Mode::Background), Caller(0), 0);
        Box::new(result::standing(&agent, Status::Completed, 0, &PlainTexts))
    };
    let conversation = ConversationId::new("conv_00000001").unwrap();
    let survivors = Some(Survivors {
        pids: vec![2],
        why: String::new(),
    });
    vec![
        (
            Record::run_started(conversation, "0.1.0", "/w".into()),
            "whose log it is",
        ),
        (
            Record::Created {
                agent: agent(),
                job: Box::new(job(1)),
                task: "t".to_owned(),
                deliverables: "/w/out/1".into(),
                write_paths: Vec::new(),
            },
            "an agent was accepted",
        ),
        (
            Record::Queued {
                agent: agent(),
                position: 1,
            },
            "it waits for a slot",
        ),
        (
            Record::Starting { agent: agent() },
            "its process is about to be started",
        ),
        (
            Record::Running {
                agent: agent(),
                process: process(),
            },
            "its process runs",
        ),
        (
            Record::Confined {
                agent: agent(),
                confinement: serde_json::Value::Null,
            },
            "what its jail enforces",
        ),
        (
            Record::RungLost {
                agent: agent(),
                had: RequiredRung::Pidns,
                has: RequiredRung::Group,
            },
            "it is held by less than its run was before",
        ),
        (
            Record::NameReplaced {
                agent: agent(),
                path: "/w/.git".to_owned(),
                again: true,
            },
            "somebody outside replaced a name that its jail guards",
        ),
        (
            Record::OverLimit {
                agent: agent(),
                excess: Excess {
                    resource: Resource::Memory,
                    used: 2,
                    limit: 1,
                },
            },
            "its processes use more than they may",
        ),
        (
            Record::Initialized {
                agent: agent(),
                commands: None,
            },
            "its worker spoke, its clock runs",
        ),
        (Record::Waiting { agent: agent() }, "it waits for an answer"),
        (Record::Idle { agent: agent() }, "it has ended a round"),
        (Record::Resumed { agent: agent() }, "it goes on"),
        (
            Record::Reported {
                agent: agent(),
                report: report(true, None),
            },
            "it reported its outcome",
        ),
        (
            Record::Stopping {
                agent: agent(),
                cause: StopCause::Deadline,
                grace_ms: 0,
            },
            "it is being stopped",
        ),
        (
            Record::Signalled {
                agent: agent(),
                signal: LadderSignal::Term,
            },
            "the kill ladder took a step",
        ),
        (
            Record::Unkillable {
                agent: agent(),
                survivors,
            },
            "a kill did not end its tree",
        ),
        (
            Record::Ended {
                agent: agent(),
                result: standing(),
            },
            "it has ended; the result is cut as for a model",
        ),
        (
            Record::NoticeDone { agent: agent() },
            "its end is told for good",
        ),
        (
            Record::RunStopping {
                reason: StopReason::LeaderStopped,
            },
            "all agents are being stopped",
        ),
        (
            Record::RunPaused {},
            "the leader, its trees and their clocks stand still",
        ),
        (Record::RunContinued {}, "they go on"),
        (Record::RunEnded {}, "no agent is left"),
    ]
}

const EVENTS: &str = "
## Events of the log

Each line of `events.jsonl` has `seq`, `ts`, `event` and the fields of its event. `agent` is
`{\"task_id\", \"agent_id\", \"role_id\"?, \"display_name\"}`. What follows a synced event waits until it
is on the disk. A line that is no event, or an event of a later version, is skipped and counted.

| event | what it tells | fields | synced |
|---|---|---|---|
";

const REASONS: &str = "
## Reasons of ends

`completed` has none. A reason stands in `stop_reason`.

| end | reasons |
|---|---|
";

#[test]
fn the_document_says_what_the_machine_does() {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/lifecycle.md");
    let wanted = document();
    if std::env::var_os(UPDATE).is_some() {
        std::fs::write(&path, &wanted).unwrap();
    }
    let found = std::fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(
        found, wanted,
        "docs/lifecycle.md is not what the machine does; run this test with {UPDATE}=1"
    );
}
