//! Texts that a model reads, exactly as they reach it.

use std::time::Duration;

use serde_json::json;
use system_tests::model::{Behaviour, ModelServer};
use system_tests::{Turn, Workspace, run};

fn first_messages(summary: &str, task: &str) -> (String, String, serde_json::Value) {
    let server = ModelServer::start(Behaviour::Turns(vec![
        Turn::text("…"),
        Turn::call(
            "finish_task",
            json!({"success": true, "summary": "好".repeat(60)}),
        ),
    ]));
    let workspace = Workspace::new();
    workspace.configure(&format!(
        "default_model = \"m\"\n[models.m]\nprovider = \"openai\"\nmodel = \"x\"\nbase_url = \"{}\"\n",
        server.base_url()
    ));
    let mut command = workspace.command("leader");
    command.args(["run", "--json", "--agent-id", "3", "--summary", summary]);
    command.args([
        "--deliverables-dir",
        "docs/api",
        "--timeout-seconds",
        "120",
        task,
    ]);
    let ended = run(&mut command, Duration::from_secs(60));
    assert_eq!(ended.code(), 0, "{ended:?}");
    let requests = server.requests();
    let text = |request: usize, message: usize| {
        requests[request]["messages"][message]["content"]
            .as_str()
            .unwrap()
            .to_owned()
    };
    (text(0, 1), text(1, 3), ended.json())
}

#[test]
fn a_chinese_conversation_has_the_exact_chinese_texts() {
    let (first, reminder, result) = first_messages("生成API文档", "为 src/api 写文档。");
    assert_eq!(
        first,
        "你是子智能体 3，负责以下任务：\n\n【任务摘要】\n生成API文档\n\n【任务详情】\n为 src/api 写文档。\n\n\
         【交付目录】\ndocs/api\n\n【要求】\n1. 完成任务后，将所有结果文件放到交付目录\n\
         2. 使用 finish_task 工具提交任务完成报告\n3. 任务超时时间：120 秒\n\n现在开始执行任务。"
    );
    assert_eq!(
        reminder,
        "如果你已经完成了任务，请调用 finish_task 工具提交完成报告。如果还没有完成，请继续执行任务。"
    );
    assert_eq!(result["display_name"], "子智能体3");
    assert_eq!(result["message"], "子智能体3 已完成任务");
}

#[test]
fn an_english_conversation_has_no_chinese_in_it() {
    let (first, reminder, result) = first_messages("write the API docs", "Document src/api.");
    for part in [
        "write the API docs",
        "Document src/api.",
        "docs/api",
        "finish_task",
        "120",
    ] {
        assert!(first.contains(part), "{first}");
    }
    assert!(reminder.contains("finish_task"), "{reminder}");
    let all = format!("{first}{reminder}{}", result["message"]);
    assert!(
        all.chars().all(|c| !('\u{4e00}'..='\u{9fff}').contains(&c)),
        "{all}"
    );
    assert_eq!(result["display_name"], "Sub-agent 3");
}
