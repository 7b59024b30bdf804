//! Ends that race each other in real processes: a report at the deadline, a terminate just before
//! it. `MUSTER_RACES` asks for more of them than an ordinary run makes.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use system_tests::{Random, Serve, Workspace, rounds, until};

use super::crash::assert_one_end_each;

const UP: Duration = Duration::from_secs(60);
/// Agents that run at once; most of the time goes into waiting for their deadlines.
const AT_ONCE: u32 = 10;
/// Numbers of agents that one conversation of a test uses; it has 99.
const AGENTS_PER_CONVERSATION: u32 = 90;

fn racing() -> (Workspace, Serve) {
    let workspace = Workspace::new();
    workspace.script("default", &[]);
    workspace.configure(&format!(
        "[limits]\nmax_concurrent = {AT_ONCE}\ngrace_seconds = 1\ntimeout_seconds_min = 1\n"
    ));
    let serve = Serve::start_as(&workspace, |command| {
        command.env("MUSTER_WORKER", workspace.executable("fake_worker"));
    });
    (workspace, serve)
}

/// Runs so many races, several at a time: `begin` starts one with the number that it is given.
fn race(count: u32, mut some: impl FnMut(&Workspace, &Serve, std::ops::RangeInclusive<u32>)) {
    let mut left = count;
    while left > 0 {
        let here = left.min(AGENTS_PER_CONVERSATION);
        left -= here;
        let (workspace, mut serve) = racing();
        let mut first = 1;
        while first <= here {
            let last = here.min(first + AT_ONCE - 1);
            some(&workspace, &serve, first..=last);
            first = last + 1;
        }
        serve.call("shutdown", json!({}));
        assert!(serve.wait(UP).is_some());
        assert_one_end_each(&workspace, &serve.conversation, "races");
    }
}

fn records(workspace: &Workspace, serve: &Serve) -> Vec<Value> {
    let log = workspace.read(&format!(".muster/runs/{}/events.jsonl", serve.conversation));
    log.lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

#[test]
fn a_report_at_the_deadline_has_one_end() {
    let seed = u64::from(std::process::id());
    let mut random = Random::new(seed);
    race(rounds("MUSTER_RACES", 50), |workspace, serve, numbers| {
        let mut client = serve.connect();
        let calls: Vec<u64> = numbers
            .map(|n| {
                // The clock of the agent starts a moment before the worker's pause.
                let pause_ms = 985 + random.below(25);
                let task = format!("fake: report after\n{pause_ms}");
                client.send(
                    "create_sub_agent",
                    json!({"agent_id": n, "summary": "is done at its deadline", "task": task,
                           "timeout_seconds": 1}),
                )
            })
            .collect();
        for call in calls {
            let answer = client.answer(call);
            let told = format!("seed {seed}: {answer}");
            match answer["status"].as_str().unwrap_or_default() {
                "completed" => assert_eq!(answer["success"], true, "{told}"),
                "timed_out" => {
                    assert_eq!(answer["success"], false, "{told}");
                    assert_eq!(answer["stop_reason"], "deadline", "{told}");
                }
                _ => panic!("{told}"),
            }
            let file = workspace
                .join(answer["deliverables_dir"].as_str().unwrap())
                .join(".subagent/conversations.json");
            if let Ok(text) = std::fs::read(file) {
                let file: Value = serde_json::from_slice(&text).unwrap();
                assert_eq!(file["status"], answer["status"], "{told}");
            }
        }
    });
}

#[test]
fn a_terminate_just_before_the_deadline_is_not_told_as_a_deadline() {
    // The handler of the deadline overwrote "cancelled" with "timed out" without looking.
    let terminated = AtomicUsize::new(0);
    race(rounds("MUSTER_RACES", 50), |workspace, serve, numbers| {
        std::thread::scope(|scope| {
            for n in numbers {
                let terminated = &terminated;
                scope.spawn(move || {
                    let end = terminate_just_before(workspace, serve, n);
                    terminated.fetch_add(usize::from(end == "terminated"), Ordering::SeqCst);
                });
            }
        });
    });
    let terminated = terminated.into_inner();
    assert!(terminated > 0, "no terminate came in time");
}

/// Terminates a deaf agent a moment before its deadline of 1 s, and says how it ended.
fn terminate_just_before(workspace: &Workspace, serve: &Serve, n: u32) -> &'static str {
    let mut client = serve.connect();
    let started = client.call(
        "create_sub_agent",
        json!({"agent_id": n, "summary": "is ended at its deadline", "task": "fake: hang",
               "timeout_seconds": 1, "run_in_background": true}),
    );
    assert_eq!(started["status"], "running", "{started}");
    let of = |event: &str| {
        records(workspace, serve)
            .into_iter()
            .find(|it| it["event"] == event && it["agent"]["agent_id"] == n)
    };
    // The agent's clock starts with its first word.
    assert!(until(UP, || of("agent.initialized")).is_some());
    // Nothing but the time brings the moment.
    std::thread::sleep(Duration::from_millis(925));
    let answer = client.call("terminate_sub_agent", json!({"agent_id": n}));
    // Whichever came first is the cause, and the end and every word of it follow.
    let stopping = of("agent.stopping").unwrap();
    let expected = match stopping["cause"].as_str().unwrap() {
        "terminated" => "terminated",
        "deadline" => "timed_out",
        other => panic!("{other}: {stopping}"),
    };
    let ended = of("agent.ended").unwrap();
    assert_eq!(ended["result"]["status"], expected, "{answer}");
    // On a machine that is slow enough it has ended before it was asked for.
    if answer["error"]["code"] == "already_ended" {
        assert_eq!(expected, "timed_out", "{answer}");
    } else {
        assert_eq!(answer["status"], expected, "{answer}");
    }
    expected
}
