//! The agent's loop from outside: what ends it, and how often the model is asked.

use std::time::Duration;

use serde_json::json;
use system_tests::leader::Ended;
use system_tests::model::{Behaviour, ModelServer};
use system_tests::{Turn, Workspace, run, tool_texts};

fn with_server(turns: Vec<Turn>) -> (Workspace, ModelServer) {
    with_behaviour(Behaviour::Turns(turns))
}

fn with_behaviour(behaviour: Behaviour) -> (Workspace, ModelServer) {
    let server = ModelServer::start(behaviour);
    let workspace = Workspace::new();
    workspace.configure(&format!(
        "default_model = \"m\"\n[models.m]\nprovider = \"openai\"\nmodel = \"x\"\nbase_url = \"{}\"\n",
        server.base_url()
    ));
    (workspace, server)
}

fn leader_run(workspace: &Workspace, more: &[&str]) -> Ended {
    let mut command = workspace.command("leader");
    command
        .args([
            "run",
            "--json",
            "--summary",
            "goes round in a loop",
            "do it",
        ])
        .args(more);
    run(&mut command, Duration::from_secs(60))
}

#[test]
fn a_model_that_never_reports_is_reminded_three_times() {
    // A child ended without a final summary and counted as completed with nothing.
    let (workspace, server) = with_server(vec![Turn::text("I am done.")]);
    let ended = leader_run(&workspace, &[]);
    assert_eq!(ended.code(), 1, "{ended:?}");
    let result = ended.json();
    assert_eq!(result["status"], "failed");
    assert_eq!(result["stop_reason"], "no_finish");
    assert_eq!(result["result_summary"], "I am done.");
    assert_eq!(server.requests().len(), 4);
}

#[test]
fn a_call_written_as_text_is_no_call() {
    let text = "<tool_call>{\"name\":\"finish_task\",\"arguments\":{\"success\":true,\"summary\":\"x\"}}</tool_call>";
    let (workspace, server) = with_server(vec![Turn::text(text)]);
    let ended = leader_run(&workspace, &[]);
    assert_eq!(ended.json()["stop_reason"], "no_finish", "{ended:?}");
    assert_eq!(server.requests().len(), 4);
}

#[test]
fn a_tool_that_does_not_exist_is_answered_with_those_that_do() {
    let unknown = Turn::call("read", json!({"path": "x"}));
    let done = Turn::finish("found another way, as the answer had the real names in it");
    let (workspace, _server) = with_server(vec![
        unknown.clone(),
        unknown.clone(),
        unknown.clone(),
        done,
    ]);
    let ended = leader_run(&workspace, &[]);
    assert_eq!(ended.code(), 0, "{ended:?}");
    let texts = tool_texts(&workspace.conversation("sub_agent_results/agent_1"));
    assert!(
        texts[0].contains("read_file") && texts[0].contains("finish_task"),
        "{texts:?}"
    );

    let (workspace, server) = with_server(vec![unknown]);
    let ended = leader_run(&workspace, &[]);
    assert_eq!(ended.json()["stop_reason"], "loop_detected", "{ended:?}");
    assert!(server.requests().len() <= 6, "{}", server.requests().len());
}

#[test]
fn calls_before_the_report_are_run_and_calls_after_it_are_answered() {
    let write = |name: &str| ("write_file", json!({"file_path": name, "content": name}));
    let report = |success: bool| {
        (
            "finish_task",
            json!({"success": success, "summary": "wrote a and b and reported in the same turn as them"}),
        )
    };
    let turn = Turn::calls(&[
        write("a"),
        write("b"),
        report(true),
        write("c"),
        report(false),
    ]);
    let (workspace, server) = with_server(vec![turn]);
    let ended = leader_run(&workspace, &[]);
    assert_eq!(ended.code(), 0, "{ended:?}");
    assert_eq!(
        (workspace.read("a"), workspace.read("b")),
        ("a".into(), "b".into())
    );
    assert!(!workspace.join("c").exists());
    let texts = tool_texts(&workspace.conversation("sub_agent_results/agent_1"));
    assert_eq!(texts.len(), 5, "{texts:?}");
    for (at, success) in [(0, true), (1, true), (2, true), (3, false), (4, false)] {
        let answer: serde_json::Value = serde_json::from_str(&texts[at]).unwrap();
        assert_eq!(answer["success"], success, "{at}: {answer}");
        if !success {
            assert_eq!(answer["error"]["code"], "cancelled", "{at}: {answer}");
        }
    }
    assert_eq!(server.requests().len(), 1);
}

#[test]
fn two_reports_that_disagree_count_once_and_the_first_does() {
    let report = |success: bool| {
        (
            "finish_task",
            json!({"success": success, "summary": "says that it did and that it did not do the task"}),
        )
    };
    let (workspace, _server) = with_server(vec![Turn::calls(&[report(false), report(true)])]);
    let ended = leader_run(&workspace, &[]);
    assert_eq!(ended.code(), 1, "{ended:?}");
    assert_eq!(ended.json()["stop_reason"], "reported_failure", "{ended:?}");
    let texts = tool_texts(&workspace.conversation("sub_agent_results/agent_1"));
    assert_eq!(texts.len(), 2, "{texts:?}");
    assert!(texts[1].contains("ignored"), "{texts:?}");
}

#[test]
fn turns_have_a_cap_of_their_own() {
    let turns: Vec<Turn> = (0..60)
        .map(|n| {
            Turn::call(
                "read_file",
                json!({"path": "notes.txt", "start_line": n % 50 + 1}),
            )
        })
        .collect();
    let (workspace, server) = with_server(turns);
    workspace.write(
        "notes.txt",
        (0..80).map(|n| format!("line {n}\n")).collect::<String>(),
    );
    let ended = leader_run(&workspace, &["--max-turns", "7"]);
    assert_eq!(ended.code(), 1, "{ended:?}");
    assert_eq!(ended.json()["stop_reason"], "turn_limit", "{ended:?}");
    assert_eq!(server.requests().len(), 7);
}

#[test]
fn the_first_request_without_the_task_is_small_and_raw() {
    for (language, task) in [("zh", "写一个文件"), ("en", "write a file")] {
        let (workspace, server) = with_server(vec![Turn::finish(
            "nothing had to be done for this task of one line",
        )]);
        let mut command = workspace.command("leader");
        command.args(["run", "--json", "--summary", task, "--lang", language, task]);
        let ended = run(&mut command, Duration::from_secs(60));
        assert_eq!(ended.code(), 0, "{ended:?}");
        let request = server.requests().remove(0).to_string();
        let size = request.len() - task.len();
        assert!(size <= 6_000, "{language}: {size} bytes");
        assert!(!request.contains("\\u"), "{language}: not raw UTF-8");
    }
}

#[test]
fn a_context_that_is_always_too_long_is_given_up_after_three_requests() {
    // Overflow, compaction, overflow: an agent once tried 408 times in silence.
    let (workspace, server) = with_behaviour(Behaviour::Limited(0, vec![Turn::text("x")]));
    let ended = leader_run(&workspace, &[]);
    assert_eq!(ended.code(), 1, "{ended:?}");
    let result = ended.json();
    assert_eq!(result["stop_reason"], "model_error");
    assert!(
        result.to_string().contains("maximum context is 0 bytes"),
        "{result}"
    );
    assert!(server.requests().len() <= 3, "{}", server.requests().len());
}

#[test]
fn a_conversation_that_grew_too_long_is_shortened_and_goes_on() {
    const MOST: usize = 60_000;
    let read = |n: usize| Turn::call("read_file", json!({"path": format!("{n}.txt")}));
    let mut turns: Vec<Turn> = (0..12).map(read).collect();
    turns.push(Turn::finish(
        "read twelve files of ten thousand bytes each, although ten were too many",
    ));
    let (workspace, server) = with_behaviour(Behaviour::Limited(MOST, turns));
    for n in 0..12 {
        workspace.write(&format!("{n}.txt"), format!("line {n}\n").repeat(1_300));
    }
    let ended = leader_run(&workspace, &[]);
    assert_eq!(ended.code(), 0, "{ended:?}");
    let requests = server.requests();
    let fitting: Vec<_> = requests
        .iter()
        .filter(|request| request.to_string().len() <= MOST)
        .collect();
    assert_eq!(fitting.len(), 13, "one for each turn");
    assert!(requests.len() - fitting.len() <= 8, "{}", requests.len());
    for request in &requests {
        let messages = request["messages"].as_array().unwrap();
        assert_eq!(messages[0], requests[0]["messages"][0]);
        assert_eq!(messages[1], requests[0]["messages"][1], "the task stays");
        for (at, message) in messages.iter().enumerate() {
            if message["role"] == "tool" {
                // One call a turn: its answer stands right behind it.
                let call = &messages[at - 1]["tool_calls"][0]["id"];
                assert_eq!(&message["tool_call_id"], call);
            }
        }
    }
    // What was taken away can still be read.
    let last = requests.last().unwrap().to_string();
    assert!(last.contains("outputs/1.txt"), "{last}");
    let kept = workspace.read("sub_agent_results/agent_1/.subagent/outputs/1.txt");
    assert!(kept.contains("line 0"), "{kept}");
}

#[test]
fn a_failing_provider_is_a_failure_with_its_words() {
    // A child whose provider failed came back as a successful empty run.
    let body = json!({"error": {"message": "the key is not known here"}}).to_string();
    let server = ModelServer::start(Behaviour::Fixed(401, "application/json", body));
    let workspace = Workspace::new();
    workspace.configure(&format!(
        "default_model = \"m\"\n[models.m]\nprovider = \"openai\"\nmodel = \"x\"\nbase_url = \"{}\"\napi_key_env = \"SOME_KEY\"\n",
        server.base_url()
    ));
    let mut command = workspace.command("leader");
    command
        .args(["run", "--json", "--summary", "has a wrong key", "do it"])
        .env("SOME_KEY", "tok123456789");
    let ended = run(&mut command, Duration::from_secs(60));
    assert_eq!(ended.code(), 1, "{ended:?}");
    assert_eq!(ended.json()["stop_reason"], "model_error");
    assert!(server.requests().len() <= 2);
    let said = format!("{}{}", ended.stdout, ended.stderr);
    assert!(said.contains("401"), "{said}");
    assert!(!said.contains("tok123456789"), "{said}");
}

#[test]
fn html_instead_of_json_is_named_as_such() {
    let html = "<html><body>502 from a proxy</body></html>".to_owned();
    let server = ModelServer::start(Behaviour::Fixed(200, "text/html", html));
    let workspace = Workspace::new();
    workspace.configure(&format!(
        "default_model = \"m\"\n[models.m]\nprovider = \"openai\"\nmodel = \"x\"\nbase_url = \"{}\"\n",
        server.base_url()
    ));
    let ended = leader_run(&workspace, &[]);
    assert_eq!(ended.code(), 1, "{ended:?}");
    let text = ended.json().to_string();
    assert!(text.contains("text/html") && text.contains("200"), "{text}");
}
