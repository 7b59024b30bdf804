//! `leader run` from its start to its exit code.

use std::fs;
use std::io::Write;
use std::process::Stdio;

use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::support::{BUDGET, DELIVERS, Place, Running, STUBBORN, WORKS, until};

#[test]
fn a_success_is_told_to_people_without_a_control_code() {
    let place = Place::new(DELIVERS);
    let ended = place.run(&["run", "Write a file."]);
    assert_eq!(
        (ended.code(), ended.stderr.as_str()),
        (Some(0), ""),
        "{ended:?}"
    );
    assert_eq!(
        ended.stdout,
        "completed Sub-agent 1: Write a file. (0s, 4 turns)\n\n  wrote a.txt\n\n\
         files in sub_agent_results/agent_1:\n  a.txt\n  args\n\
         conversation: sub_agent_results/agent_1/.subagent/conversations.json\n"
    );
    assert!(!place.run_dir().join("leader.sock").exists());
}

#[test]
fn json_is_the_whole_result_and_nothing_else() {
    let place = Place::new(DELIVERS);
    let ended = place.run(&[
        "run",
        "--json",
        "--agent-id",
        "7",
        "--summary",
        "生成接口文档与示例代码",
        "--deliverables-dir",
        "docs/api",
        "写文档",
    ]);
    assert_eq!(ended.code(), Some(0), "{ended:?}");
    let mut result = ended.json();
    for unstable in ["task_id", "sub_conversation_id", "confinement"] {
        assert!(!result[unstable].is_null(), "{unstable}");
        result[unstable] = Value::Null;
    }
    assert_eq!(
        result,
        json!({
            "success": true,
            "agent_id": 7,
            "task_id": null,
            "role_id": null,
            "display_name": "子智能体7",
            "status": "completed",
            "stop_reason": null,
            "error": null,
            "summary": "生成接口文档与示例代码",
            "message": "子智能体7 已完成任务",
            "deliverables_dir": "docs/api",
            "deliverables_files": ["a.txt", "args"],
            "result_summary": "wrote a.txt",
            "sub_conversation_id": null,
            "stats": {
                "runtime_seconds": 0, "files_read": 0, "searches": 0, "web_pages": 0,
                "commands": 0, "files_written": 0, "turns": 4,
                "token_usage": {"prompt": 0, "completion": 0, "total": 0},
            },
            "partial_results": false,
            "warnings": [],
            "confinement": null,
        })
    );
}

#[test]
fn stream_json_tells_every_event_and_ends_with_the_result() {
    let place = Place::new(DELIVERS);
    let ended = place.run(&["run", "--stream-json", "Write a file."]);
    assert_eq!(ended.code(), Some(0), "{ended:?}");
    let lines: Vec<Value> = ended
        .stdout
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let (last, events) = lines.split_last().unwrap();
    assert_eq!(last["event"], "result");
    assert_eq!(last["result"]["status"], "completed");
    for (at, event) in events.iter().enumerate() {
        assert_eq!(event["seq"], at as u64 + 1, "{event}");
    }
    let names: Vec<&str> = events
        .iter()
        .map(|event| event["event"].as_str().unwrap())
        .collect();
    assert_eq!(names.first(), Some(&"run.started"));
    assert_eq!(names.last(), Some(&"run.ended"));
    for name in [
        "agent.created",
        "agent.running",
        "agent.reported",
        "agent.ended",
    ] {
        assert_eq!(
            names.iter().filter(|found| **found == name).count(),
            1,
            "{names:?}"
        );
    }
}

#[test]
fn the_task_reaches_the_worker_in_a_file_and_never_in_an_argument() {
    let place = Place::new(DELIVERS);
    let mut command = place.leader(&["run", "-"]);
    command.stdin(Stdio::piped());
    let mut running = Running::start(command);
    let mut stdin = running.child.stdin.take().unwrap();
    stdin.write_all("secret-task-words: 写".as_bytes()).unwrap();
    drop(stdin);
    assert_eq!(running.end().code(), Some(0));
    let results = place.workspace().join("sub_agent_results/agent_1");
    let arguments = fs::read_to_string(results.join("args")).unwrap();
    assert!(arguments.contains("--job"), "{arguments}");
    assert!(!arguments.contains("secret-task-words"), "{arguments}");
    let task = fs::read_to_string(results.join(".subagent/task.md")).unwrap();
    assert!(task.contains("secret-task-words: 写"), "{task}");
}

#[test]
fn each_end_has_its_exit_code() {
    for (body, arguments, code, status, reason) in [
        (
            "hello\nfinished false 'could not'",
            &[][..],
            1,
            "failed",
            "reported_failure",
        ),
        ("hello\nexit 7", &[][..], 1, "failed", "worker_crashed"),
        (
            STUBBORN,
            &["--timeout-seconds", "1"][..],
            124,
            "timed_out",
            "deadline",
        ),
    ] {
        let place = Place::new(body);
        place.configure("[limits]\ngrace_seconds = 0");
        let mut line = vec!["run", "--json", "Write a file."];
        line.extend(arguments);
        let ended = place.run(&line);
        assert_eq!(ended.code(), Some(code), "{ended:?}");
        let result = ended.json();
        assert_eq!(result["status"], status, "{result}");
        assert_eq!(result["stop_reason"], reason, "{result}");
        assert_eq!(result["success"], false);
        assert!(result["error"]["message"].is_string(), "{result}");
    }
}

#[test]
fn a_reader_that_leaves_ends_the_run_quietly() {
    let place = Place::new(STUBBORN);
    place.configure("[limits]\ngrace_seconds = 0");
    let mut command = place.leader(&["run", "--stream-json", "Write a file."]);
    let (reader, writer) = std::io::pipe().unwrap();
    let stderr = fs::File::create(place.path("stderr")).unwrap();
    let mut child = command.stdout(writer).stderr(stderr).spawn().unwrap();
    // The command holds its end of the pipe as long as it lives.
    drop(command);
    drop(reader);
    let start = std::time::Instant::now();
    let status = until("the end of the leader", || child.try_wait().unwrap());
    assert!(start.elapsed() < BUDGET);
    assert_eq!(status.code(), Some(1));
    assert_eq!(fs::read_to_string(place.path("stderr")).unwrap(), "");
}

#[test]
fn a_second_run_in_one_workspace_takes_a_place_of_its_own() {
    let place = Place::new(WORKS);
    let first = place.start(&["run", "--json", "One."]);
    let half = place.workspace().join("sub_agent_results/agent_1/half.txt");
    until("the first at work", || half.exists().then_some(()));
    let second = place.start(&["run", "--json", "Two."]);
    let half = place.workspace().join("sub_agent_results/agent_2/half.txt");
    until("the second at work", || half.exists().then_some(()));
    for (running, dir) in [
        (first, "sub_agent_results/agent_1"),
        (second, "sub_agent_results/agent_2"),
    ] {
        running.signal(Signal::SIGTERM);
        let ended = running.end();
        assert_eq!(ended.code(), Some(143), "{ended:?}");
        assert_eq!(ended.json()["deliverables_dir"], dir);
    }
}

#[test]
fn runs_that_start_at_once_never_meet() {
    let place = Place::new(DELIVERS);
    let runs: Vec<Running> = (0..6)
        .map(|_| place.start(&["run", "--json", "Write a file."]))
        .collect();
    let mut dirs = std::collections::BTreeSet::new();
    for run in runs {
        let ended = run.end();
        assert_eq!(ended.code(), Some(0), "{ended:?}");
        dirs.insert(ended.json()["deliverables_dir"].to_string());
    }
    assert_eq!(dirs.len(), 6, "{dirs:?}");
}

/// A demo that always says that all went well would be worth nothing.
#[test]
fn a_demo_whose_story_does_not_come_true_says_so_and_removes_everything() {
    let place = Place::new("hello\njournal\nfinished true 'did something else'");
    let tmp = place.path("tmp");
    fs::create_dir(&tmp).unwrap();
    let mut command = place.leader(&["demo"]);
    // A setting of the user's, even a broken one, has no say here.
    command
        .env("TMPDIR", &tmp)
        .env("MUSTER_MAX_CONCURRENT", "0");
    let ended = Running::start(command).end();
    assert_eq!(ended.code(), Some(1), "{ended:?}");
    assert!(
        ended.stdout.contains(
            "The story did not come true:\n  agent 1 did not deliver todo.md\n  \
             agent 2 was to end timed_out, and ended completed\n  \
             the process that agent 3 was to leave behind was never there\n"
        ),
        "{ended:?}"
    );
    assert_eq!(fs::read_dir(&tmp).unwrap().count(), 0);
}

#[test]
fn a_command_that_looks_is_quiet_when_nobody_reads() {
    let place = Place::new(DELIVERS);
    assert_eq!(place.run(&["run", "Write a file."]).code(), Some(0));
    for arguments in [&["ps"][..], &["logs", "1"], &["--help"]] {
        let mut command = place.leader(arguments);
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let ended = command
            .stdout(writer)
            .stderr(Stdio::piped())
            .spawn()
            .unwrap()
            .wait_with_output()
            .unwrap();
        assert_eq!(ended.status.code(), Some(0), "{arguments:?}");
        assert_eq!(String::from_utf8_lossy(&ended.stderr), "", "{arguments:?}");
    }
}

#[test]
fn a_refusal_is_json_where_json_is_wanted() {
    let place = Place::new(DELIVERS);
    let ended = place.run(&["run", "--json", "t", "--deliverables-dir", "../x"]);
    assert_eq!(ended.code(), Some(2), "{ended:?}");
    let refusal = ended.json();
    assert_eq!(refusal["success"], false);
    assert_eq!(refusal["error"]["code"], "outside_workspace");
    assert!(ended.stderr.starts_with("error: "), "{ended:?}");
}
