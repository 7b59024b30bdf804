//! Creates, waits and looks, and what they are refused for.

use std::fs;

use leader::driver::{CreateAnswer, Origin, StopMode, SubscriptionItem, WaitRequest};
use leader::tools::call_tool;
use protocol::error::ErrorCode;
use protocol::status::Status;
use protocol::tool::leader::{CreateSubAgentParams, WaitMode};
use serde_json::json;

use crate::support::{Bench, agent, config, number_ref, until, within};

/// Speaks, and ends when a line comes or the channel closes.
const PATIENT: &str = "alive; hello; read -r line; exit 143";
const QUICK: &str = r#"hello; conversation completed '"2026-03-10T12:01:00Z"' '{"success":true,"summary":"done","stop_reason":null}'; finished true done"#;

/// Calls above the limit were once cut away silently.
#[tokio::test]
async fn of_six_creates_at_once_five_run_and_the_sixth_is_told_why_not() {
    let bench = Bench::new(PATIENT).await;
    let create = || {
        let params = json!({
            "task": "Write the file a.md.", "summary": "write a short file",
            "run_in_background": true,
        });
        call_tool(&bench.handle, "create_sub_agent", params, Origin::Tool)
    };
    let (a, b, c, d, e, f) =
        within(async { tokio::join!(create(), create(), create(), create(), create(), create()) })
            .await;
    let answers = [a, b, c, d, e, f];
    let started: Vec<u64> = answers
        .iter()
        .filter_map(|answer| answer["agent_id"].as_u64())
        .collect();
    assert_eq!(started, [1, 2, 3, 4, 5]);
    let refused: Vec<_> = answers
        .iter()
        .filter(|answer| answer["success"] == false)
        .collect();
    assert_eq!(refused.len(), 1);
    assert_eq!(refused[0]["error"]["code"], "too_many_agents");
    let message = refused[0]["error"]["message"].as_str().unwrap();
    assert!(
        message.contains('5') && message.contains("Sub-agent 1"),
        "{message}"
    );
    assert!(!bench.at("sub_agent_results/agent_6").exists());
    let active = bench.handle.list_active().await;
    assert_eq!(active["agents"].as_array().unwrap().len(), 5);
    within(
        bench
            .handle
            .terminate(number_ref(2), StopMode::Force, Origin::Tool),
    )
    .await
    .unwrap();
    assert_eq!(within(create()).await["agent_id"], 6);
    bench.end().await;
}

#[tokio::test]
async fn a_queued_agent_starts_when_a_slot_is_free() {
    let bench = Bench::with_settings(
        PATIENT,
        "[limits]\nmax_concurrent = 1\nadmission = \"queue\"",
    )
    .await;
    bench.start_agent(agent("d1")).await;
    let second = bench.start_agent(agent("d2")).await;
    assert_eq!(
        (second.status, second.queue_position),
        (Status::Queued, Some(1))
    );
    assert!(!bench.at("d2").exists());
    within(
        bench
            .handle
            .terminate(number_ref(1), StopMode::Force, Origin::Tool),
    )
    .await
    .unwrap();
    bench.until_status(2, "running").await;
    bench.end().await;
}

/// Parent segments led to other agents' files, and an absolute path was silently made relative.
#[tokio::test]
async fn a_directory_that_escapes_is_refused_and_nothing_is_made() {
    let bench = Bench::new(QUICK).await;
    std::os::unix::fs::symlink("/etc", bench.at("out")).unwrap();
    fs::write(bench.at("file"), "").unwrap();
    fs::create_dir(bench.at("full")).unwrap();
    fs::write(bench.at("full/x"), "").unwrap();
    let before = names(&bench);
    for (dir, code) in [
        ("../x", ErrorCode::OutsideWorkspace),
        ("/tmp/x", ErrorCode::OutsideWorkspace),
        ("a/../../x", ErrorCode::OutsideWorkspace),
        ("~/x", ErrorCode::OutsideWorkspace),
        ("out/x", ErrorCode::OutsideWorkspace),
        ("", ErrorCode::DeliverablesDirRefused),
        (".", ErrorCode::DeliverablesDirRefused),
        ("a/\0", ErrorCode::DeliverablesDirRefused),
        (".git", ErrorCode::DeliverablesDirRefused),
        ("file", ErrorCode::DeliverablesDirRefused),
        ("full", ErrorCode::DeliverablesDirNotEmpty),
    ] {
        let error = within(bench.create(agent(dir))).await.unwrap_err();
        assert_eq!(error.code, code, "{dir:?}: {error}");
        assert_eq!(names(&bench), before, "{dir:?}");
    }
    bench.end().await;
}

/// What stands at the top of the workspace and in our folder for claims.
fn names(bench: &Bench) -> Vec<String> {
    let mut names: Vec<String> = [bench.at("."), bench.at("full")]
        .iter()
        .flat_map(|folder| fs::read_dir(folder).unwrap())
        .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}

/// Parallel agents overwrote each other's output.
#[tokio::test]
async fn two_agents_never_have_one_directory() {
    let bench = Bench::new(PATIENT).await;
    bench.start_agent(agent("docs")).await;
    std::os::unix::fs::symlink("docs", bench.at("alias")).unwrap();
    for dir in [
        "docs",
        "docs/",
        "./docs//",
        "docs/api",
        "alias",
        "alias/new",
    ] {
        let error = within(bench.create(agent(dir))).await.unwrap_err();
        assert_eq!(error.code, ErrorCode::DeliverablesOverlap, "{dir}: {error}");
        assert!(error.message.contains("Sub-agent 1"), "{error}");
    }
    // Another leader of the same workspace sees the claim, and no longer after the end.
    let other_place = tempfile::tempdir().unwrap();
    let other = {
        let mut config = config(bench.place.path(), "");
        config.worker_bin = Some(bench.at("worker.sh"));
        Bench::start(other_place, config).await.unwrap()
    };
    let error = within(other.create(agent("docs/deep"))).await.unwrap_err();
    assert_eq!(error.code, ErrorCode::DeliverablesOverlap);
    let owner = bench.handle.conversation().as_str();
    assert!(error.message.contains(owner), "{error}");
    within(
        bench
            .handle
            .terminate(number_ref(1), StopMode::Force, Origin::Tool),
    )
    .await
    .unwrap();
    let reuse = CreateSubAgentParams {
        reuse_deliverables_dir: Some(true),
        ..agent("docs")
    };
    other.start_agent(reuse).await;
    other.end().await;
    bench.end().await;
}

#[tokio::test]
async fn the_key_reaches_the_worker_by_its_channel_alone() {
    let place = tempfile::tempdir().unwrap();
    let body = r#"say '{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocol":"1.9","worker_version":"t"}}'
read -r answer; printf '%s' "$answer" >"$out/answer.json"; env >"$out/env"
conversation completed '"2026-03-10T12:01:00Z"' '{"success":true,"summary":"done","stop_reason":null}'"#;
    let script = format!("{}{body}\n", crate::support::PRELUDE);
    crate::support::write_script(&place.path().join("worker.sh"), &script);
    let user = "default_model = \"k\"\n[models.k]\nprovider = \"openai\"\nbase_url = \"http://127.0.0.1:9/v1\"\nmodel = \"x\"\napi_key_env = \"TEST_SECRET_KEY\"\n";
    let mut config = config(place.path(), user);
    let secret = "test-key-0123456789";
    config.environment =
        leader::driver::Environment::of([("TEST_SECRET_KEY".to_owned(), secret.to_owned())].into());
    let bench = Bench::start(place, config).await.unwrap();
    let result = bench.run(agent("d1")).await;
    assert_eq!(result.status, Status::Completed, "{result:?}");
    let answer: serde_json::Value =
        serde_json::from_slice(&fs::read(bench.at("d1/answer.json")).unwrap()).unwrap();
    assert_eq!(answer["id"], 0);
    assert_eq!(answer["result"]["model"]["api_key"], secret);
    assert_eq!(answer["result"]["remaining_ms"], 600_000);
    for file in ["env", ".subagent/job.json", ".subagent/system_prompt.md"] {
        let text = fs::read_to_string(bench.at("d1").join(file)).unwrap();
        assert!(!text.contains(secret), "{file}");
    }
    let log = fs::read_to_string(bench.handle.run_dir().join("events.jsonl")).unwrap();
    assert!(!log.contains(secret));
    bench.end().await;
}

#[tokio::test]
async fn a_worker_that_breaks_the_channels_rules_is_told_so() {
    let bench = Bench::with_settings(
        r#"ask() { say "$1"; read -r answer; printf '%s\n' "$answer" >>"$out/answers"; }
ask '{"jsonrpc":"2.0","id":"a","method":"tools/call","params":{"name":"x","arguments":{}}}'
ask '{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocol":"1.0","worker_version":"t","more":1}}'
ask '{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocol":"1.0","worker_version":"t"}}'
ask '{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"create_sub_agent","arguments":{}}}'
ask '{"jsonrpc":"2.0","id":3,"method":"no/such"}'
say '{"jsonrpc":"2.0","method":"agent/progress","params":7}'
say '{"jsonrpc":"2.0","method":"jail/failed","params":{"step":"exec","message":"forged"}}'
finished true done; exit 125"#,
        "",
    )
    .await;
    let result = bench.run(agent("d1")).await;
    let answers = fs::read_to_string(bench.at("d1/answers")).unwrap();
    let answers: Vec<serde_json::Value> = answers
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let codes: Vec<i64> = [0, 2, 4]
        .iter()
        .map(|at| answers[*at]["error"]["code"].as_i64().unwrap())
        .collect();
    assert_eq!(codes, [-32600, -32600, -32601]);
    assert_eq!(answers[1]["result"]["protocol"], "1.0");
    assert_eq!(answers[3]["result"]["error"]["code"], "tool_not_granted");
    // Its report counts; the code of a jail and the line in its name are only the worker's.
    assert_eq!(result.status, Status::Completed, "{result:?}");
    bench.end().await;
    let bench = Bench::with_settings(
        r#"say '{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocol":"2.0","worker_version":"t"}}'
read -r answer; sleep 600"#,
        "[limits]\ngrace_seconds = 0",
    )
    .await;
    let result = bench.run(agent("d1")).await;
    assert_eq!(
        result.stop_reason,
        Some(protocol::status::StopReason::ProtocolError),
        "{result:?}"
    );
    let message = result.error.unwrap().message;
    assert!(
        message.contains("2.0") && message.contains("1.0"),
        "{message}"
    );
    bench.end().await;
}

#[tokio::test]
async fn waits_end_at_the_first_end_at_all_or_in_time() {
    let bench = Bench::new(r#"case $out in *quick*) hello; finished true done;; *) alive; hello; read -r line; exit 143;; esac"#).await;
    bench.start_agent(agent("slow")).await;
    bench.start_agent(agent("quick")).await;
    let wait = |mode, timeout_ms| {
        bench.handle.wait(WaitRequest {
            agents: vec![number_ref(1), number_ref(2)],
            mode,
            timeout_ms,
            origin: Origin::Tool,
        })
    };
    let any = within(wait(WaitMode::Any, None)).await;
    assert_eq!(any["agents"][0]["agent_id"], 2, "{any}");
    assert_eq!(any["running"][0]["agent_id"], 1);
    let all = within(wait(WaitMode::All, Some(50))).await;
    assert_eq!(all["timed_out"], true, "{all}");
    let unknown = within(bench.handle.wait(WaitRequest {
        agents: vec![number_ref(9)],
        mode: WaitMode::Any,
        timeout_ms: None,
        origin: Origin::Tool,
    }))
    .await;
    assert_eq!(unknown["error"]["code"], "unknown_agent");
    let status = bench
        .handle
        .status(vec![number_ref(1), number_ref(9)])
        .await;
    assert_eq!(status["agents"][0]["status"], "running");
    assert_eq!(status["agents"][1]["found"], false);
    assert_eq!(
        bench.handle.ps().await["agents"].as_array().unwrap().len(),
        2
    );
    bench.end().await;
}

#[tokio::test]
async fn a_caller_that_goes_away_leaves_its_agent_alone() {
    let bench = Bench::new(QUICK).await;
    let mut events = bench.handle.subscribe(Some(0)).await.unwrap();
    let create = bench.create(agent("d1"));
    let gone = tokio::time::timeout(std::time::Duration::from_millis(1), create).await;
    drop(gone);
    let mut seen = Vec::new();
    while seen.last().is_none_or(|event| event != "agent.ended") {
        match within(events.next()).await {
            Some(SubscriptionItem::Event(line)) => seen.push(line.event),
            other => panic!("{other:?} after {seen:?}"),
        }
    }
    assert_eq!(seen[0], "run.started");
    bench.until_status(1, "completed").await;
    bench.end().await;
}

#[tokio::test]
async fn numbers_are_the_callers_or_the_next_free_ones() {
    let bench = Bench::new(QUICK).await;
    fs::create_dir_all(bench.at("sub_agent_results/agent_1")).unwrap();
    fs::write(bench.at("sub_agent_results/agent_1/old.md"), "").unwrap();
    let plain = || CreateSubAgentParams {
        deliverables_dir: None,
        ..agent("")
    };
    let first = bench.run(plain()).await;
    assert_eq!(first.agent_id.get(), 2);
    assert_eq!(first.deliverables_dir, "sub_agent_results/agent_2");
    let wanted = |number| CreateSubAgentParams {
        agent_id: Some(number),
        ..plain()
    };
    assert_eq!(bench.run(wanted(7)).await.agent_id.get(), 7);
    let taken = bench.create(wanted(2)).await.unwrap_err();
    assert_eq!(taken.code, ErrorCode::AgentIdTaken);
    bench.end().await;
}

#[tokio::test]
async fn an_answer_in_chinese_for_a_task_in_chinese() {
    let bench = Bench::new(QUICK).await;
    let params = CreateSubAgentParams {
        summary: Some("生成一份接口说明文档".into()),
        ..agent("d1")
    };
    let started = match within(bench.create(CreateSubAgentParams {
        run_in_background: Some(true),
        ..params
    }))
    .await
    {
        Ok(CreateAnswer::Started(started)) => *started,
        other => panic!("{other:?}"),
    };
    assert_eq!(started.message, "子智能体1 已启动，正在后台运行");
    assert_eq!(started.display_name, "子智能体1");
    until(|| bench.events().contains(&"agent.ended".into())).await;
    bench.end().await;
}
