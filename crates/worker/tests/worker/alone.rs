//! A worker without a leader, from its task to its exit code.

use protocol::conversation::Role;
use protocol::status::{Status, StopReason};
use serde_json::{Value, json};

use crate::harness::{Place, REPORT, assert_paired, calls, finishes, runs, says, stderr, stdout};

fn greeting() -> Value {
    json!([
        {"text": "I write it.", "tool_calls": [
            {"name": "write_file",
             "arguments": {"file_path": "{deliverables_dir}/a.txt", "content": "hello"}},
            {"name": "run_command", "arguments": {"command": "cat out/a.txt"}}],
         "usage": {"prompt": 100, "completion": 20}},
        finishes(true),
    ])
}

#[test]
fn a_task_is_carried_out_and_recorded() {
    let place = Place::new(greeting());
    let output = place.run().output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert_eq!(stdout(&output), "");
    assert!(stderr(&output).contains(REPORT));
    let delivered = std::fs::read_to_string(place.path("ws/out/a.txt")).unwrap();
    assert_eq!(delivered, "hello");

    let conversation = place.conversation();
    assert_eq!(conversation.status, Status::Completed);
    let result = conversation.result.clone().unwrap();
    assert_eq!((result.success, result.stop_reason), (true, None));
    assert_eq!(result.summary, REPORT);
    let stats = conversation.stats;
    assert_eq!(
        (stats.turns, stats.files_written, stats.commands),
        (2, 1, 1)
    );
    assert_eq!(stats.token_usage.total, 120);
    let roles: Vec<Role> = conversation
        .messages
        .iter()
        .map(|message| message.role)
        .collect();
    assert_eq!(
        roles,
        [
            Role::System,
            Role::User,
            Role::Assistant,
            Role::Tool,
            Role::Tool,
            Role::Assistant,
            Role::Tool
        ]
    );
    assert_paired(&conversation);
    let folded = protocol::journal::fold(&place.journal(), &conversation.task_id).unwrap();
    assert_eq!((folded.file, folded.skipped), (conversation, 0));
    for name in ["task.md", "system_prompt.md", "job.json"] {
        assert!(place.own_file(name).is_file(), "{name}");
    }
}

#[test]
fn the_first_message_is_exact_in_both_languages() {
    let place = Place::new(json!([finishes(true)]));
    std::fs::write(place.path("task.md"), "写一份 {braces} 问候").unwrap();
    let output = place
        .run()
        .args(["--summary", "生成API文档"])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let expected = "你是子智能体 1，负责以下任务：\n\n【任务摘要】\n生成API文档\n\n\
                    【任务详情】\n写一份 {braces} 问候\n\n【交付目录】\nout\n\n【要求】\n\
                    1. 完成任务后，将所有结果文件放到交付目录\n\
                    2. 使用 finish_task 工具提交任务完成报告\n\
                    3. 任务超时时间：600 秒\n\n现在开始执行任务。";
    let first = place.conversation().messages[1].content.clone().unwrap();
    assert_eq!(first, expected);
}

#[test]
fn json_is_the_whole_result_and_nothing_else() {
    let place = Place::new(greeting());
    let output = place.run().args(["--output-format=json"]).output().unwrap();
    let mut result: Value = serde_json::from_str(&stdout(&output)).unwrap();
    let ids = ["task_id", "sub_conversation_id"];
    for id in ids {
        assert!(result[id].as_str().unwrap().len() > 10);
        result[id] = Value::Null;
    }
    result["stats"]["runtime_seconds"] = json!(0);
    // What a jail holds here is this machine's; that it tells how commands are held is ours.
    assert_eq!(
        result["confinement"]["commands"].take()["held_by"],
        json!("jail")
    );
    assert_eq!(
        result,
        json!({
            "success": true, "agent_id": 1, "task_id": null, "role_id": null,
            "display_name": "Sub-agent 1", "status": "completed", "stop_reason": null,
            "error": null, "summary": "Write a greeting into a.txt",
            "message": "Sub-agent 1 has completed its task",
            "deliverables_dir": "out", "deliverables_files": ["a.txt"],
            "result_summary": REPORT, "sub_conversation_id": null,
            "stats": {"runtime_seconds": 0, "files_read": 0, "searches": 0, "web_pages": 0,
                      "commands": 1, "files_written": 1, "turns": 2,
                      "token_usage": {"prompt": 100, "completion": 20, "total": 120}},
            "partial_results": false, "warnings": [],
            "confinement": {"rung": null,
                            "gaps": ["a worker without a leader is not confined"],
                            "commands": null}})
    );
}

#[test]
fn stream_json_is_one_object_a_line_with_the_result_last() {
    let place = Place::new(greeting());
    let output = place
        .run()
        .args(["--output-format=stream-json", "-q"])
        .output()
        .unwrap();
    assert_eq!(stderr(&output), "");
    let events: Vec<Value> = stdout(&output)
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let kinds: Vec<&str> = events
        .iter()
        .map(|event| event["event"].as_str().unwrap())
        .collect();
    assert_eq!(
        kinds,
        [
            "message", "message", "message", "action", "message", "action", "message", "message",
            "action", "message", "result"
        ]
    );
    assert_eq!(events.last().unwrap()["result"]["success"], true);
}

#[test]
fn a_reader_that_leaves_ends_the_run_quietly() {
    use std::io::Read;
    let place = Place::new(json!([
        runs("true"),
        {"delay_ms": 300, "tool_calls": [{"name": "run_command", "arguments": {"command": "true"}}]},
        {"text": "never", "delay_ms": 600_000},
    ]));
    let mut command = place.run();
    command.arg("--output-format=stream-json");
    let mut worker = Place::start(&mut command);
    let mut out = worker.0.stdout.take().unwrap();
    out.read_exact(&mut [0]).unwrap();
    drop(out);
    assert_eq!(worker.end().code(), Some(1));
    let mut errors = String::new();
    let mut stderr = worker.0.stderr.take().unwrap();
    stderr.read_to_string(&mut errors).unwrap();
    for word in ["panick", "Broken pipe", "error"] {
        assert!(!errors.contains(word), "{errors}");
    }
    let conversation = place.conversation();
    assert_eq!(conversation.status, Status::Terminated);
    assert_paired(&conversation);
}

/// One way to end without success: the script, more flags, and what it comes to.
struct Miss {
    script: Value,
    flags: &'static [&'static str],
    code: i32,
    reason: StopReason,
    turns: u64,
    summary: &'static str,
}

#[test]
fn every_miss_has_its_reason_and_its_exit_code() {
    let forever = |mut reply: Value| {
        reply["repeat"] = json!(true);
        json!([reply])
    };
    let reads = |n: u32| calls(&[("no_such_tool", json!({"n": n}))]);
    let misses = [
        Miss {
            script: forever(says("I am done.")),
            flags: &[],
            code: 1,
            reason: StopReason::NoFinish,
            turns: 4,
            summary: "I am done.",
        },
        Miss {
            script: json!([finishes(false)]),
            flags: &[],
            code: 1,
            reason: StopReason::ReportedFailure,
            turns: 1,
            summary: REPORT,
        },
        Miss {
            script: json!([reads(1), reads(2), reads(3)]),
            flags: &["--max-turns=2"],
            code: 3,
            reason: StopReason::TurnLimit,
            turns: 2,
            summary: "",
        },
        Miss {
            script: forever(calls(&[("read", json!({"path": "x"}))])),
            flags: &[],
            code: 3,
            reason: StopReason::LoopDetected,
            turns: 5,
            summary: "",
        },
        Miss {
            script: forever(json!({"text": "and so", "finish": "length"})),
            flags: &[],
            code: 3,
            reason: StopReason::OutputLimit,
            turns: 4,
            summary: "and so",
        },
        Miss {
            script: json!([{"error": {"kind": "server", "message": "500: out of chips"}}]),
            flags: &[],
            code: 4,
            reason: StopReason::ModelError,
            turns: 0,
            summary: "500: out of chips",
        },
        Miss {
            script: json!([{"text": "late", "delay_ms": 600_000}]),
            flags: &["--timeout-seconds=1"],
            code: 124,
            reason: StopReason::Deadline,
            turns: 0,
            summary: "",
        },
    ];
    for miss in misses {
        let place = Place::new(miss.script);
        let output = place.run().args(miss.flags).output().unwrap();
        let reason = miss.reason;
        let shown = stderr(&output);
        assert_eq!(output.status.code(), Some(miss.code), "{reason}: {shown}");
        let conversation = place.conversation();
        let result = conversation.result.clone().unwrap();
        assert!(!result.success);
        assert_eq!(result.stop_reason, Some(reason), "{shown}");
        assert_eq!(result.summary, miss.summary, "{reason}");
        assert_eq!(conversation.stats.turns, miss.turns, "{reason}");
        assert_paired(&conversation);
        assert!(conversation.completed_at.is_some());
        assert!(shown.contains(reason.as_str()), "{shown}");
    }
}

#[test]
fn what_stands_before_the_report_is_done_and_what_follows_is_not() {
    let write = |name: &str| {
        let path = format!("out/{name}");
        ("write_file", json!({"file_path": path, "content": "x"}))
    };
    let finish = |success: bool| {
        let report = json!({"success": success, "summary": REPORT});
        ("finish_task", report)
    };
    let place = Place::new(json!([calls(&[
        write("a"),
        write("b"),
        finish(true),
        write("c"),
        finish(false),
    ])]));
    let output = place.run().output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let there = |name: &str| place.path("ws/out").join(name).exists();
    assert!(there("a") && there("b") && !there("c"));
    let conversation = place.conversation();
    assert_paired(&conversation);
    assert!(conversation.result.unwrap().success);
}

#[test]
fn a_report_without_files_is_warned_about() {
    let place = Place::new(json!([finishes(true)]));
    let output = place.run().args(["--output-format=json"]).output().unwrap();
    let result: Value = serde_json::from_str(&stdout(&output)).unwrap();
    assert_eq!(result["deliverables_files"], json!([]));
    let warnings = result["warnings"].as_array().unwrap();
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    assert!(warnings[0].as_str().unwrap().contains("out"));
}

#[test]
fn a_job_file_reproduces_the_run_and_keeps_the_earlier_record() {
    let place = Place::new(json!([finishes(true)]));
    assert!(place.run().output().unwrap().status.success());
    let first = place.conversation();
    let job = place.own_file("job.json");
    let output = place.worker().arg("--job").arg(&job).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let second = place.conversation();
    assert_eq!(second.messages, first.messages);
    let kept = place.own_file("earlier/1/conversations.json");
    assert_eq!(crate::harness::read_conversation(&kept), Some(first));
}

#[test]
fn a_recorded_conversation_is_replayed_with_its_tools() {
    let place = Place::new(greeting());
    assert_eq!(place.run().output().unwrap().status.code(), Some(0));
    let first = place.conversation();
    // So that the same call of write_file creates it once more.
    std::fs::remove_file(place.path("ws/out/a.txt")).unwrap();
    let mut again = place.worker();
    again.args([
        "--task-file=task.md",
        "--workspace=ws",
        "--deliverables-dir=again",
        "--replay=ws/out/.subagent/conversations.json",
    ]);
    let output = again.output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let path = place.path("ws/again/.subagent/conversations.json");
    let second = crate::harness::read_conversation(&path).unwrap();
    // The first two tell of the time and of the other directory.
    assert_eq!(second.messages[2..], first.messages[2..]);
    assert_eq!(second.result, first.result);
}

#[test]
fn a_run_that_was_broken_off_goes_on_from_its_journal() {
    // Killed in the middle of a call: the call is answered, what was done is not done again, and a
    // second worker keeps away while the first lives.
    let wait = json!({"command": "exec 9>alive; echo >&9; sleep 600"});
    let first = |text: &str, name: &str, arguments: Value| json!({"text": text, "tool_calls": [{"name": name, "arguments": arguments}]});
    let place = Place::new(json!([
        first(
            "I write.",
            "write_file",
            json!({"file_path": "out/a", "content": "x", "append": true})
        ),
        first("I wait.", "run_command", wait),
    ]));
    let mut alive = crate::harness::Alive::new(&place.path("ws/alive"));
    let mut worker = Place::start(&mut place.run());
    alive.wait_for_holder();
    let job = place.own_file("job.json");
    let resume = || {
        let mut command = place.worker();
        command.arg("--job").arg(&job).arg("--resume");
        command.output().unwrap()
    };
    let refused = resume();
    assert_eq!(refused.status.code(), Some(2), "{}", stderr(&refused));
    assert!(stderr(&refused).contains("held by another process"));
    worker.signal(nix::sys::signal::Signal::SIGKILL);
    worker.end();
    alive.wait_for_nobody();
    let before = place.conversation();
    // Of a script the replies go by the answers so far.
    place.script(json!([{"text": "never"}, {"text": "never"}, finishes(true)]));
    let output = resume();
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let after = place.conversation();
    assert_paired(&after);
    assert_ne!(after.task_id, before.task_id);
    assert_eq!(after.created_at, before.created_at);
    assert_eq!(after.stats.turns, 1, "counted anew");
    let said: Vec<Option<&str>> = after
        .messages
        .iter()
        .filter(|message| message.role == Role::Assistant)
        .map(|message| message.content.as_deref())
        .collect();
    assert_eq!(said[..2], [Some("I write."), Some("I wait.")]);
    assert_eq!(said.len(), 3);
    assert_eq!(
        std::fs::read_to_string(place.path("ws/out/a")).unwrap(),
        "x"
    );
    let spec: Value = serde_json::from_str(&std::fs::read_to_string(&job).unwrap()).unwrap();
    assert_eq!(spec["attempt"], 2);
    assert_eq!(spec["resumes"], json!(before.task_id));
    // What was completed is not gone on with.
    let refused = resume();
    assert_eq!(refused.status.code(), Some(2), "{}", stderr(&refused));
    assert!(
        stderr(&refused).contains("was completed"),
        "{}",
        stderr(&refused)
    );
    assert_eq!(place.conversation(), after);
}

#[test]
fn what_has_no_journal_or_belongs_to_a_leader_is_not_gone_on_with() {
    let place = Place::new(json!([{"text": "x", "delay_ms": 600_000}]));
    let output = place.run().arg("--timeout-seconds=1").output().unwrap();
    assert_eq!(output.status.code(), Some(124), "{}", stderr(&output));
    let job = place.own_file("job.json");
    let spec = std::fs::read_to_string(&job).unwrap();
    let refused = |why: &str| {
        let mut command = place.worker();
        let output = command
            .arg("--job")
            .arg(&job)
            .arg("--resume")
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
        assert!(stderr(&output).contains(why), "{}", stderr(&output));
    };
    let mut led: Value = serde_json::from_str(&spec).unwrap();
    led["conversation"] = json!("conv_00000009");
    std::fs::write(&job, led.to_string()).unwrap();
    refused("leader resume 1");
    std::fs::write(&job, &spec).unwrap();
    std::fs::remove_file(place.own_file("journal.jsonl")).unwrap();
    refused("nothing to go on with");
    assert_eq!(std::fs::read_to_string(&job).unwrap(), spec);
}

#[test]
fn each_step_is_shown_as_it_happens_and_plain() {
    // Text as it comes, the call in short, what it took and what came of it; no escape codes
    // where nobody looks at a terminal.
    let place = Place::new(json!([
        {"text": "I look at it.\nThen \u{1b}[31mI write.", "tool_calls": [
            {"name": "read_file", "arguments": {"path": "gone.md"}},
            {"name": "run_command", "arguments": {"command": "printf abc"}}],
         "usage": {"prompt": 120, "completion": 30}},
        finishes(true),
    ]));
    let output = place.run().arg("--lang=en").output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let shown = stderr(&output);
    assert!(!shown.contains('\u{1b}'), "{shown}");
    let steps: Vec<String> = shown
        .lines()
        .filter_map(|line| line.strip_prefix("turn 1: ").map(without_seconds))
        .collect();
    assert_eq!(
        steps,
        [
            "I look at it.",
            "Then \u{fffd}[31mI write.",
            "answered in # s, 120 tokens in, 30 out",
            "reading gone.md",
            "failed in # s: no file `gone.md`",
            "running printf abc",
            "done in # s: [exit code 0; 3 bytes of output]",
        ],
        "{shown}"
    );
}

/// The line with its time taken out.
fn without_seconds(line: &str) -> String {
    match line.split_once(" in ").zip(line.split_once(" s")) {
        Some(((before, _), (_, after)))
            if before == "answered" || before == "done" || before == "failed" =>
        {
            format!("{before} in # s{after}")
        }
        _ => line.to_owned(),
    }
}
