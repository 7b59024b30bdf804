//! How agents are stopped: at their deadline, by a call, with the conversation.

use std::fs;
use std::time::{Duration, Instant};

use leader::driver::{Origin, StopMode};
use protocol::error::ErrorCode;
use protocol::status::{Status, StopReason};
use protocol::tool::leader::CreateSubAgentParams;

use crate::support::{Bench, agent, number_ref, until, within};

/// Ignores SIGTERM and its stop message, and leaves a daemon behind.
const STUBBORN: &str = r#"trap '' TERM; alive; setsid sh -c 'trap "" TERM; sleep 600' &
journal; conversation running null null; echo part >"$out/part.md"; hello
while :; do sleep 1; done"#;

#[tokio::test]
async fn a_deadline_ends_the_tree_and_keeps_what_there_is() {
    let mut bench = Bench::with_settings(STUBBORN, "[limits]\ngrace_seconds = 1").await;
    let start = Instant::now();
    let result = bench
        .run(CreateSubAgentParams {
            timeout_seconds: Some(1),
            ..agent("d1")
        })
        .await;
    assert!(start.elapsed() >= Duration::from_secs(1));
    assert!(
        start.elapsed() < Duration::from_secs(5),
        "{:?}",
        start.elapsed()
    );
    assert_eq!(result.status, Status::TimedOut, "{result:?}");
    assert_eq!(result.stop_reason, Some(StopReason::Deadline));
    assert_eq!(result.deliverables_files, ["part.md"]);
    assert!(result.partial_results && !result.success);
    let file = bench.conversation("d1");
    assert_eq!(file["status"], "timed_out");
    assert_eq!(file["messages"][0]["content"], "half way");
    if result.confinement["kill"] == "complete" {
        bench.until_nobody_is_alive().await;
    }
    bench.end().await;
}

#[tokio::test]
async fn with_a_grace_of_0_a_terminate_kills_at_once() {
    let mut bench = Bench::with_settings(STUBBORN, "[limits]\ngrace_seconds = 0").await;
    bench.start_agent(agent("d1")).await;
    until(|| bench.events().contains(&"agent.initialized".into())).await;
    let start = Instant::now();
    let terminate = bench
        .handle
        .terminate(number_ref(1), StopMode::Graceful, Origin::Tool);
    let result = within(terminate).await.unwrap();
    assert!(
        start.elapsed() < Duration::from_secs(1),
        "{:?}",
        start.elapsed()
    );
    assert_eq!(result["status"], "terminated", "{result}");
    assert_eq!(result["deliverables_files"], serde_json::json!(["part.md"]));
    assert_eq!(bench.conversation("d1")["status"], "terminated");
    bench.until_nobody_is_alive().await;
    let again = bench
        .handle
        .terminate(number_ref(1), StopMode::Graceful, Origin::Tool)
        .await;
    assert_eq!(again.unwrap_err().code, ErrorCode::AlreadyEnded);
    bench.end().await;
}

#[tokio::test]
async fn a_worker_that_is_asked_to_stop_may_save_and_leave() {
    let bench = Bench::new(
        r#"alive; journal; hello
while read -r line; do case $line in *agent/stop*)
    echo saved >"$out/saved.md"; printf '%s' "$line" >"$out/stop.json"; exit 143;;
esac; done"#,
    )
    .await;
    bench.start_agent(agent("d1")).await;
    until(|| bench.events().contains(&"agent.initialized".into())).await;
    let terminate = bench
        .handle
        .terminate(number_ref(1), StopMode::Graceful, Origin::Tool);
    let result = within(terminate).await.unwrap();
    assert_eq!(result["status"], "terminated");
    let stop: serde_json::Value =
        serde_json::from_slice(&fs::read(bench.at("d1/stop.json")).unwrap()).unwrap();
    assert_eq!(
        stop["params"],
        serde_json::json!({"reason": "terminated", "grace_ms": 5000})
    );
    bench.end().await;
}

/// The channel's stop is not read; half a grace later SIGTERM goes through jail and init.
#[tokio::test]
async fn a_worker_that_does_not_listen_gets_a_signal_before_the_kill() {
    let bench = Bench::with_settings(
        r#"trap 'echo saved >"$out/saved.md"; exit 143' TERM; alive; journal; hello
while :; do sleep 0.05; done"#,
        "[limits]\ngrace_seconds = 2",
    )
    .await;
    bench.start_agent(agent("d1")).await;
    until(|| bench.events().contains(&"agent.initialized".into())).await;
    let start = Instant::now();
    let terminate = bench
        .handle
        .terminate(number_ref(1), StopMode::Graceful, Origin::Tool);
    let result = within(terminate).await.unwrap();
    assert!(
        start.elapsed() >= Duration::from_secs(1),
        "{:?}",
        start.elapsed()
    );
    assert_eq!(result["status"], "terminated", "{result}");
    assert_eq!(
        result["deliverables_files"],
        serde_json::json!(["saved.md"])
    );
    assert!(bench.events().contains(&"agent.signalled".into()));
    bench.end().await;
}

#[tokio::test]
async fn stopping_all_answers_every_call_and_refuses_new_ones() {
    let bench = Bench::with_settings(STUBBORN, "[limits]\ngrace_seconds = 1").await;
    let blocking = bench.create(agent("d1"));
    let stop = async {
        until(|| bench.events().contains(&"agent.initialized".into())).await;
        let first = bench
            .handle
            .stop_all(StopReason::LeaderStopped, StopMode::Graceful);
        let second = async {
            until(|| bench.events().contains(&"run.stopping".into())).await;
            let refused = bench.create(agent("d2")).await.unwrap_err();
            assert_eq!(refused.code, ErrorCode::ShuttingDown);
            bench
                .handle
                .stop_all(StopReason::LeaderStopped, StopMode::Force)
                .await;
        };
        tokio::join!(first, second);
    };
    let (answer, ()) = within(async { tokio::join!(blocking, stop) }).await;
    let result = answer.unwrap().to_value();
    assert_eq!(result["status"], "terminated", "{result}");
    assert_eq!(result["stop_reason"], "leader_stopped");
    assert!(!bench.at("d2").exists());
    assert_eq!(bench.status(1).await["status"], "terminated");
    within(
        bench
            .handle
            .close(StopReason::LeaderStopped, StopMode::Force),
    )
    .await;
    assert_eq!(bench.events().last().unwrap(), "run.ended");
    bench.end().await;
}

#[tokio::test]
async fn when_every_handle_is_gone_nothing_is_left() {
    let bench = Bench::new(STUBBORN).await;
    bench.start_agent(agent("d1")).await;
    until(|| bench.events().contains(&"agent.initialized".into())).await;
    bench.drop_handle_and_wait().await;
}

#[tokio::test]
async fn one_that_reads_nothing_is_stopped_not_waited_for() {
    let bench = Bench::with_settings(
        r#"alive; hello; call='{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"ask_master","arguments":{}}}'
while :; do say "$call"; done"#,
        "[limits]\ngrace_seconds = 0",
    )
    .await;
    let result = bench.run(agent("d1")).await;
    assert_eq!(result.status, Status::Failed, "{result:?}");
    assert_eq!(result.stop_reason, Some(StopReason::ProtocolError));
    let message = result.error.unwrap().message;
    assert!(message.contains("does not read"), "{message}");
    bench.end().await;
}
