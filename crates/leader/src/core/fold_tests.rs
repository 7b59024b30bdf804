//! Logs of leaders that died, and what becomes of their agents.

use protocol::config::RequiredRung;
use protocol::ids::ConversationId;

use super::*;
use crate::core::effect::Effect;
use crate::core::input::{Caller, Input, Mode, StopHow, Ticket, Verdict};
use crate::core::supervisor::{Admission, Supervisor, SupervisorConfig};
use crate::core::test_kit::*;

/// The records of these inputs, in order.
fn records(it: &mut Supervisor, inputs: Vec<Input>) -> Vec<Record> {
    let mut records = Vec::new();
    for (now_ms, input) in inputs.into_iter().enumerate() {
        for effect in it.handle(now_ms as u64, input) {
            if let Effect::Log(record) = effect {
                records.push(*record);
            }
        }
    }
    records
}

fn create(number: u32) -> Input {
    Input::Create {
        ticket: Ticket(u64::from(number)),
        caller: Caller(0),
        order: Box::new(order(number, Mode::Background)),
    }
}

fn spawned(number: u32) -> Input {
    Input::Spawned {
        agent: task(number),
        process: process(),
    }
}

fn reported(number: u32, success: bool) -> Input {
    Input::Reported {
        agent: task(number),
        report: report(success, Some(StopReason::TurnLimit).filter(|_| !success)),
    }
}

fn terminate(number: u32) -> Input {
    Input::Terminate {
        ticket: Ticket(100 + u64::from(number)),
        caller: Caller(0),
        agent: protocol::tool::leader::AgentRef::Name(task(number).as_str().to_owned()),
        how: StopHow::Now,
    }
}

/// Seven agents, one for each place where a leader can die.
fn story() -> Vec<Record> {
    let mut it = Supervisor::new(SupervisorConfig {
        max_concurrent: 6,
        ..config(Admission::Queue)
    });
    let mut all = vec![Record::run_started(
        ConversationId::new("conv_00000001").unwrap(),
        "0.1.0",
        "/w".into(),
    )];
    let mut inputs: Vec<Input> = (1..=7).map(create).collect();
    inputs.extend((2..=6).map(spawned));
    inputs.extend([
        reported(3, true),
        reported(4, false),
        terminate(5),
        Input::Exited {
            agent: task(6),
            facts: exit(Verdict::Exited(7), unfinished(), 0),
        },
        Input::NoticeTaken { agent: task(6) },
        create(8),
    ]);
    all.extend(records(&mut it, inputs));
    all
}

#[test]
fn every_agent_of_a_dead_leader_has_an_end_with_a_reason() {
    let run = FoldedRun::of(story());
    let ends: Vec<(u32, End)> = run
        .agents
        .iter()
        .map(|agent| (agent.tag.agent_id.get(), agent.end()))
        .collect();
    let expected = [
        // Starting and live: cut off.
        (1, End::Interrupted),
        (2, End::Interrupted),
        // What was reported counts.
        (3, End::Completed),
        (4, End::Failed(StopReason::TurnLimit)),
        // Being stopped without a report: cut off as well.
        (5, End::Interrupted),
        // Ended before.
        (6, End::Failed(StopReason::WorkerCrashed)),
        // The seventh got the slot of the sixth; the eighth never started.
        (7, End::Interrupted),
        (8, End::Terminated(StopReason::LeaderDied)),
    ];
    assert_eq!(ends, expected);
    assert_eq!((run.misfits, run.ended, run.stopping), (0, false, None));
    let cut_off: Vec<u32> = run
        .cut_off()
        .map(|agent| agent.tag.agent_id.get())
        .collect();
    assert_eq!(cut_off, [1, 2, 3, 4, 5, 7, 8]);
    let sixth = run.agent(&task(6)).unwrap();
    assert!(sixth.told);
    assert_eq!(sixth.process, Some(process()));
    assert_eq!(
        run.agent(&task(3)).unwrap().report,
        Some(report(true, None))
    );
    assert_eq!(run.agent(&task(1)).unwrap().job, job(1));
    assert_eq!(run.agent(&task(99)), None);
}

#[test]
fn a_log_that_breaks_off_anywhere_folds() {
    let all = story();
    for length in 0..=all.len() {
        let run = FoldedRun::of(all[..length].to_vec());
        assert_eq!(run.misfits, 0, "after {length} records");
    }
}

#[test]
fn records_without_what_came_before_them_change_nothing() {
    let all = story();
    let orphans: Vec<Record> = all
        .iter()
        .filter(|record| record.agent().is_some() && !matches!(record, Record::Created { .. }))
        .cloned()
        .collect();
    let count = orphans.len();
    let run = FoldedRun::of(orphans);
    assert_eq!((run.misfits, run.agents.len()), (count, 0));
    // Told twice, as after a copy of a log, each agent is there once and each end stands.
    let twice = FoldedRun::of(all.iter().chain(&all).cloned());
    assert_eq!(twice.agents.len(), 8);
    assert_eq!(
        twice.agent(&task(6)).unwrap().end(),
        End::Failed(StopReason::WorkerCrashed)
    );
}

#[test]
fn every_record_comes_back_from_its_line() {
    let mut it = Supervisor::new(config(Admission::Queue));
    let mut all = story();
    all.extend(records(
        &mut it,
        vec![
            create(1),
            spawned(1),
            Input::Confined {
                agent: task(1),
                confinement: serde_json::json!({"rung": "pidns", "gaps": []}),
            },
            Input::Pause,
            Input::Continue,
            Input::Initialized {
                agent: task(1),
                commands: None,
            },
            Input::Asked { agent: task(1) },
            Input::Resume { agent: task(1) },
            Input::WentIdle {
                agent: task(1),
                text: "t".to_owned(),
            },
            Input::StopAll {
                reason: StopReason::ConversationClosed,
                how: StopHow::Now,
            },
            Input::Exited {
                agent: task(1),
                facts: exit(Verdict::Signalled(9), bad_file(), 3),
            },
        ],
    ));
    let tag = AgentTag::of(&job_of_role(1, "docs", 1));
    all.push(Record::Unkillable {
        agent: tag.clone(),
        survivors: None,
    });
    all.push(Record::RungLost {
        agent: tag.clone(),
        had: RequiredRung::Cgroup2,
        has: RequiredRung::Pidns,
    });
    all.push(Record::NameReplaced {
        agent: tag.clone(),
        path: "/w/.git".to_owned(),
        again: true,
    });
    all.push(Record::Signalled {
        agent: tag,
        signal: LadderSignal::Term,
    });
    let mut names = std::collections::BTreeSet::new();
    for (seq, record) in (1..).zip(&all) {
        let line = record.to_line(seq, "2026-03-10T12:00:00Z".to_owned());
        names.insert(line.event.clone());
        let text = serde_json::to_string(&line).unwrap();
        let read: protocol::event::EventLine = serde_json::from_str(&text).unwrap();
        assert_eq!(read.seq, seq);
        assert_eq!(Record::of_line(&read).as_ref(), Some(record), "{text}");
    }
    let expected = [
        "agent.confined",
        "agent.created",
        "agent.ended",
        "agent.idle",
        "agent.initialized",
        "agent.name_replaced",
        "agent.queued",
        "agent.reported",
        "agent.resumed",
        "agent.rung_lost",
        "agent.running",
        "agent.signalled",
        "agent.starting",
        "agent.stopping",
        "agent.unkillable",
        "agent.waiting",
        "notice.done",
        "run.continued",
        "run.ended",
        "run.paused",
        "run.started",
        "run.stopping",
    ];
    assert_eq!(Vec::from_iter(names), expected);
}

#[test]
fn a_line_of_this_version_is_read_by_every_later_one() {
    // Written by version 0.1; never to be changed.
    let line = r#"{"seq":5,"ts":"2026-03-10T12:00:00Z","event":"agent.stopping","agent":{"task_id":"sub_00000001","agent_id":1,"display_name":"Sub-agent 1"},"cause":"deadline","grace_ms":5000,"of_later":true}"#;
    let line: protocol::event::EventLine = serde_json::from_str(line).unwrap();
    let expected = Record::Stopping {
        agent: AgentTag::of(&job(1)),
        cause: StopCause::Deadline,
        grace_ms: 5_000,
    };
    assert_eq!(Record::of_line(&line), Some(expected));
    let later = protocol::event::EventLine {
        event: "agent.of_later".to_owned(),
        ..line
    };
    assert_eq!(Record::of_line(&later), None);
}
