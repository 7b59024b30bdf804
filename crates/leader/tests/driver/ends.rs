//! How agents end: by report, by file, by exit, by signal, by deadline.

use std::fs;
use std::time::{Duration, Instant};

use crate::support::{Bench, agent, number_ref, within};
use leader::driver::{Origin, StopMode};
use protocol::status::{Status, StopReason};
use serde_json::json;

#[tokio::test]
async fn a_report_on_the_channel_is_a_success() {
    let bench = Bench::new(
        r#"hello; alive; echo hi >"$out/a.md"; conversation completed '"2026-03-10T12:01:00Z"' '{"success":true,"summary":"all done","stop_reason":null}'
finished true "all done""#,
    )
    .await;
    let result = bench.run(agent("d1")).await;
    assert_eq!(result.status, Status::Completed, "{result:?}");
    assert_eq!(result.deliverables_files, ["a.md"]);
    assert_eq!(result.result_summary, "all done");
    assert_eq!((result.success, result.error), (true, None));
    assert_eq!(result.stats.turns, 4);
    assert_eq!(result.warnings, Vec::<String>::new());
    assert!(result.confinement["rung"].is_string());
    assert_eq!(bench.conversation("d1")["status"], "completed");
    let expected = [
        "run.started",
        "agent.created",
        "agent.starting",
        "agent.running",
        "agent.confined",
        "agent.initialized",
        "agent.reported",
        "agent.ended",
        "notice.done",
    ];
    assert_eq!(bench.events(), expected);
    bench.end().await;
}
