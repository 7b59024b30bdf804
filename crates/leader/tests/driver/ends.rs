//! How agents end: by report, by file, by exit, by signal.

use std::fs;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use protocol::error::ErrorCode;
use protocol::status::{Status, StopReason};
use protocol::tool::leader::CreateSubAgentParams;

use crate::support::{Bench, agent, number_ref, until, within};
use leader::driver::{Origin, WaitRequest};
use protocol::tool::leader::WaitMode;

const DONE: &str = r#"conversation completed '"2026-03-10T12:01:00Z"' '{"success":true,"summary":"all done","stop_reason":null}'"#;

#[tokio::test]
async fn a_report_on_the_channel_is_a_success() {
    let bench = Bench::new(&format!(
        "hello; alive; echo hi >\"$out/a.md\"; {DONE}; finished true 'all done'"
    ))
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
    // The notice is done when the answer has told the end, which is logged after it.
    until(|| bench.events() == expected).await;
    bench.end().await;
}

#[tokio::test]
async fn a_result_file_alone_is_enough() {
    let bench = Bench::new(&format!("hello; echo hi >\"$out/a.md\"; {DONE}")).await;
    let result = bench.run(agent("d1")).await;
    assert_eq!(result.status, Status::Completed, "{result:?}");
    assert_eq!(result.result_summary, "all done");
    bench.end().await;
}

/// A banner on stdout once broke the framing and ended a connection.
#[tokio::test]
async fn junk_on_stdout_is_logged_and_skipped() {
    let bench = Bench::new(
        r#"echo 'Service started v1.2'; printf '\033[31mred\033[0m\n{"jsonrpc":"2.0","meth\n'
hello; echo 'after'; finished true "all done"; printf 'no newline at the end'"#,
    )
    .await;
    let result = bench.run(agent("d1")).await;
    assert_eq!(result.status, Status::Completed, "{result:?}");
    let log = fs::read_to_string(bench.at("d1/.subagent/worker.log")).unwrap();
    for line in [
        "[stdout] Service started v1.2\n",
        "[stdout] {\"jsonrpc\":\"2.0\",\"meth\n",
        "[stdout] after\n",
    ] {
        assert!(log.contains(line), "{log}");
    }
    assert!(
        result
            .warnings
            .iter()
            .any(|text| text.contains("no frames")),
        "{:?}",
        result.warnings
    );
    bench.end().await;
}

/// Writing to a dead child's pipe once brought a whole supervisor down.
#[tokio::test]
async fn a_worker_that_dies_before_it_reads_fails_with_its_code() {
    let bench = Bench::new("exit 7").await;
    for number in 0..50 {
        let result = bench
            .run(CreateSubAgentParams {
                task: "x".repeat(190_000),
                ..agent(&format!("d{number}"))
            })
            .await;
        assert_eq!(result.status, Status::Failed);
        assert_eq!(result.stop_reason, Some(StopReason::WorkerCrashed));
        let error = result.error.unwrap();
        assert!(error.message.contains("exited with code 7"), "{error:?}");
    }
    let task = fs::read(bench.at("d0/.subagent/task.md")).unwrap();
    assert_eq!(task.len(), 190_000);
    bench.end().await;
}

/// A piped stdout that nobody drained once blocked a child until its time-out.
#[tokio::test]
async fn a_chatty_worker_is_drained_and_its_log_is_cut() {
    let bench = Bench::new(&format!(
        r#"hello; head -c 20000000 /dev/zero | tr '\0' 'x' | fold -w 1000
head -c 20000000 /dev/zero | tr '\0' 'y' | fold -w 1000 >&2
echo 'the very end' >&2; {DONE}"#
    ))
    .await;
    let result = bench.run(agent("d1")).await;
    assert_eq!(result.status, Status::Completed, "{result:?}");
    let log = fs::read_to_string(bench.at("d1/.subagent/worker.log")).unwrap();
    assert!(log.len() < 11 * 1024 * 1024, "{}", log.len());
    assert!(log.contains("bytes left out"));
    assert!(log.ends_with("the very end\n"));
    bench.end().await;
}

/// A frame without an end was once collected for ever.
#[tokio::test]
async fn a_line_over_the_limit_is_dropped() {
    let bench = Bench::new(&format!(
        r#"head -c 60000000 /dev/zero | tr '\0' 'x'; echo; hello; {DONE}; finished true 'all done'"#
    ))
    .await;
    let result = bench.run(agent("d1")).await;
    assert_eq!(result.status, Status::Completed, "{result:?}");
    let log = fs::read_to_string(bench.at("d1/.subagent/worker.log")).unwrap();
    assert_eq!(log, "[stdout] [a line of 60000000 bytes]\n");
    bench.end().await;
}

/// A child with its complete answer that some handle kept alive was once waited for, and its
/// work thrown away.
#[tokio::test]
async fn one_that_lingers_after_its_report_counts_as_completed() {
    let bench = Bench::with_settings(
        &format!(
            "hello; alive; echo hi >\"$out/a.md\"; {DONE}; finished true 'all done'; sleep 600"
        ),
        "[limits]\ngrace_seconds = 1",
    )
    .await;
    let result = bench.run(agent("d1")).await;
    assert_eq!(result.status, Status::Completed, "{result:?}");
    assert_eq!(result.result_summary, "all done");
    assert_ne!(result.warnings, Vec::<String>::new());
    bench.end().await;
}

#[tokio::test]
async fn one_that_never_speaks_is_stopped_and_its_result_file_counts() {
    let settings = "[limits]\nstart_timeout_seconds = 1\ngrace_seconds = 0";
    let bench = Bench::with_settings(
        &format!("alive; echo hi >\"$out/a.md\"; {DONE}; sleep 600"),
        settings,
    )
    .await;
    let result = bench.run(agent("d1")).await;
    assert_eq!(result.status, Status::Completed, "{result:?}");
    bench.end().await;
    let bench = Bench::with_settings("alive; sleep 600", settings).await;
    let result = bench.run(agent("d1")).await;
    assert_eq!(result.status, Status::Failed);
    assert_eq!(result.stop_reason, Some(StopReason::StartTimeout));
    assert_eq!(bench.conversation("d1")["status"], "failed");
    bench.end().await;
}

/// A parent once waited for the pipes of a dead child, which a descendant held.
#[tokio::test]
async fn a_grandchild_that_holds_the_pipe_delays_nothing() {
    let mut bench = Bench::new("alive; sleep 300 & exit 0").await;
    let start = Instant::now();
    let result = bench.run(agent("d1")).await;
    assert!(start.elapsed() < Duration::from_secs(3));
    assert_eq!(result.status, Status::Failed);
    assert_eq!(result.stop_reason, Some(StopReason::BadResultFile));
    if result.confinement["kill"] == "complete" {
        bench.until_nobody_is_alive().await;
    }
    bench.end().await;
}

/// A child killed with SIGKILL never wrote its end marker and showed as running for ever.
#[tokio::test]
async fn a_kill_from_outside_is_told_as_such() {
    let bench = Bench::new("alive; journal; conversation running null null; echo part >\"$out/part.md\"; hello; read -r more; sleep 600").await;
    bench.start_agent(agent("d1")).await;
    bench.until_status(1, "running").await;
    until(|| {
        bench.at("d1/part.md").exists() && bench.events().contains(&"agent.initialized".into())
    })
    .await;
    let worker = worker_pid(&bench);
    kill(Pid::from_raw(worker), Signal::SIGKILL).unwrap();
    let start = Instant::now();
    let ended = within(bench.handle.wait(WaitRequest {
        agents: vec![number_ref(1)],
        mode: WaitMode::All,
        timeout_ms: None,
        origin: Origin::Person,
    }))
    .await;
    assert!(
        start.elapsed() < Duration::from_secs(1),
        "{:?}",
        start.elapsed()
    );
    let result = &ended["agents"][0];
    assert_eq!(result["status"], "failed", "{result}");
    assert_eq!(result["stop_reason"], "killed_from_outside");
    assert!(
        result["error"]["message"]
            .as_str()
            .unwrap()
            .contains("SIGKILL"),
        "{result}"
    );
    assert_eq!(result["deliverables_files"], serde_json::json!(["part.md"]));
    assert_eq!(result["partial_results"], true);
    let file = bench.conversation("d1");
    assert_eq!(file["status"], "failed");
    assert_eq!(file["messages"][0]["content"], "half way");
    assert_eq!(
        bench.handle.list_active().await["agents"],
        serde_json::json!([])
    );
    bench.end().await;
}

/// The worker is the last of the jail's line: jail, init where there is one, worker.
fn worker_pid(bench: &Bench) -> i32 {
    let text = fs::read_to_string(bench.handle.run_dir().join("events.jsonl")).unwrap();
    let running: serde_json::Value = text
        .lines()
        .map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap())
        .find(|line| line["event"] == "agent.running")
        .unwrap();
    let jail = running["process"]["pid"].as_i64().unwrap();
    let mut pids = vec![jail];
    let mut at = 0;
    while let Some(pid) = pids.get(at).copied() {
        at += 1;
        let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap();
        pids.extend(
            children
                .split_whitespace()
                .map(|pid| pid.parse::<i64>().unwrap()),
        );
    }
    let of_worker = |pid: &&i64| {
        let command = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let command = String::from_utf8_lossy(&command).into_owned();
        command.contains("worker.sh") && command.starts_with("/bin/sh")
    };
    let worker = pids.iter().find(of_worker).unwrap();
    i32::try_from(*worker).unwrap()
}

/// A half-written record once made a whole session unreadable.
#[tokio::test]
async fn a_result_file_that_is_none_fails_with_the_detail() {
    let bench = Bench::new(r#"hello; echo x >"$out/left.md"; . "$out/../write""#).await;
    for (number, write) in [
        "exit 0",
        ": >\"$own/conversations.json\"",
        "printf '{\"agent_id\":1,' >\"$own/conversations.json\"",
        "echo null >\"$own/conversations.json\"",
        "echo '[]' >\"$own/conversations.json\"",
        "echo '{\"format\":1,\"task_id\":5,\"messages\":{}}' >\"$own/conversations.json\"",
        "head -c 1000000 /dev/zero | tr '\\0' '[' >\"$own/conversations.json\"",
    ]
    .iter()
    .enumerate()
    {
        fs::write(bench.at("write"), write).unwrap();
        let dir = format!("d{number}");
        let result = bench.run(agent(&dir)).await;
        assert_eq!(
            result.stop_reason,
            Some(StopReason::BadResultFile),
            "{write}"
        );
        assert_eq!(result.deliverables_files, ["left.md"]);
        assert!(
            result.error.unwrap().message.contains("conversations.json"),
            "{write}"
        );
        assert_eq!(bench.conversation(&dir)["status"], "failed");
    }
    bench.end().await;
}

/// With mounts of its own a worker can neither remove nor replace its folder, so what the leader does
/// about that is shown where there are none.
const UNPINNED: &str = "[confinement]\nhighest = \"group\"\n";

/// Reading followed links, and opening a FIFO blocked for ever.
#[tokio::test]
async fn links_and_fifos_in_the_place_of_results_are_neither_read_nor_written() {
    let bench = Bench::with_settings(r#"hello; . "$out/../write""#, UNPINNED).await;
    let outside = tempfile::tempdir().unwrap();
    let link_out = format!(
        "rm -rf \"$own\"; ln -s '{}' \"$own\"; exit 0",
        outside.path().display()
    );
    for (number, write) in [
        link_out.as_str(),
        "mkfifo \"$own/conversations.json\"",
        "ln -s conversations.json \"$own/conversations.json\"",
        "rm -rf \"$own\"; mkfifo \"$own\"",
    ]
    .iter()
    .enumerate()
    {
        fs::write(bench.at("write"), write).unwrap();
        let result = bench.run(agent(&format!("d{number}"))).await;
        assert_eq!(
            result.stop_reason,
            Some(StopReason::BadResultFile),
            "{write}"
        );
    }
    assert_eq!(fs::read_dir(outside.path()).unwrap().count(), 0);
    bench.end().await;
}

/// A consumer once read the file of an earlier run, because the new one never came.
#[tokio::test]
async fn the_result_of_an_earlier_run_is_not_this_ones() {
    let bench = Bench::new(&format!(
        "hello; if [ -e \"$out/../again\" ]; then exit 0; fi; {DONE}"
    ))
    .await;
    let first = bench.run(agent("d1")).await;
    assert_eq!(first.status, Status::Completed);
    fs::write(bench.at("again"), "").unwrap();
    let again = CreateSubAgentParams {
        reuse_deliverables_dir: Some(true),
        ..agent("d1")
    };
    let second = bench.run(again).await;
    assert_eq!(
        second.stop_reason,
        Some(StopReason::BadResultFile),
        "{second:?}"
    );
    assert!(
        bench
            .at("d1/.subagent/earlier/1/conversations.json")
            .exists()
    );
    bench.end().await;
}

#[tokio::test]
async fn an_agent_that_removes_its_directory_ends_all_the_same() {
    let body =
        format!("hello; rm -rf \"$out\"; mkdir -p \"$own\"; {DONE}; finished true 'all done'");
    let bench = Bench::with_settings(&body, UNPINNED).await;
    let result = bench.run(agent("d1")).await;
    assert_eq!(result.status, Status::Completed, "{result:?}");
    assert_eq!(result.deliverables_files, Vec::<String>::new());
    let empty = "There is no file in the deliverables directory d1";
    assert!(result.warnings.contains(&empty.to_owned()), "{result:?}");
    assert_eq!(bench.conversation("d1")["status"], "completed");
    bench.end().await;
    let bench = Bench::with_settings("hello; rm -rf \"$out\"; : >\"$out\"; exit 0", UNPINNED).await;
    let result = bench.run(agent("d1")).await;
    assert_eq!(
        result.stop_reason,
        Some(StopReason::BadResultFile),
        "{result:?}"
    );
    bench.end().await;
}

#[tokio::test]
async fn many_files_are_counted_and_the_list_is_cut() {
    let bench = Bench::new(&format!(
        "hello; mkdir \"$out/n\"; cd \"$out/n\"; seq 1 20000 | xargs touch; {DONE}; finished true 'all done'"
    ))
    .await;
    let result = bench.run(agent("d1")).await;
    assert_eq!(result.status, Status::Completed, "{result:?}");
    assert_eq!(result.deliverables_count, Some(20_000));
    assert_eq!(result.deliverables_files.len(), 1_000);
    assert!(result.deliverables_truncated);
    bench.end().await;
}

#[tokio::test]
async fn what_can_not_be_executed_is_told_with_its_path() {
    let bench = Bench::new("exit 0").await;
    let worker = bench.at("worker.sh");
    let path = fs::canonicalize(&worker).unwrap();
    let refusal = async |dir: &str| {
        let result = bench.run(agent(dir)).await;
        assert_eq!(
            result.stop_reason,
            Some(StopReason::SpawnFailed),
            "{result:?}"
        );
        let error = result.error.unwrap();
        assert_eq!(error.code, ErrorCode::SpawnFailed);
        assert!(!error.hint.is_empty());
        error.message
    };
    fs::remove_file(&worker).unwrap();
    assert!(refusal("d1").await.contains("is not there"));
    fs::create_dir(&worker).unwrap();
    assert!(refusal("d2").await.contains("is a directory"));
    fs::remove_dir(&worker).unwrap();
    fs::write(&worker, "#!/bin/sh\n").unwrap();
    assert!(refusal("d3").await.contains("is not executable"));
    crate::support::write_script(&worker, "no script");
    let message = refusal("d4").await;
    assert!(
        message.contains("neither a Linux executable nor a script"),
        "{message}"
    );
    assert!(message.contains(path.to_str().unwrap()), "{message}");
    crate::support::write_script(&worker, "#!/no/such/interpreter\n");
    let message = refusal("d5").await;
    assert!(message.contains("worker.sh"), "{message}");
    assert_eq!(
        bench.handle.list_active().await["agents"],
        serde_json::json!([])
    );
    bench.end().await;
}
