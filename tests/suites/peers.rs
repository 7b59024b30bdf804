//! Model servers that others wrote.

use std::io::Write;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::{Value, json};
use system_tests::{Serve, Workspace, run, until};

/// Says that a peer is missing: a skip on a user's machine, a failure in CI.
pub(crate) fn missing(what: &str) {
    assert!(
        std::env::var_os("CI").is_none(),
        "{what} is not installed; tests/peers/install.sh does it"
    );
    writeln!(
        std::io::stderr(),
        "SKIPPED: {what} is not installed (tests/peers/install.sh)"
    )
    .ok();
}

pub(crate) fn aimock() -> Option<PathBuf> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("peers/node_modules/@copilotkit/aimock/dist/cli.js");
    path.is_file().then_some(path)
}

/// A running peer; it is ended when dropped.
pub(crate) struct Peer(Child);

impl Drop for Peer {
    fn drop(&mut self) {
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port()
}

pub(crate) fn get(port: u16, path: &str) -> Option<String> {
    let url = format!("http://127.0.0.1:{port}{path}");
    let ended = run(
        Command::new("curl").args(["-sf", "--max-time", "10", &url]),
        Duration::from_secs(15),
    );
    (ended.code() == 0).then_some(ended.stdout)
}

/// Three turns by the count of assistant messages, so that any number of agents can share them.
pub(crate) fn fixtures() -> Value {
    let call = |id: &str, name: &str, arguments: Value| json!({"toolCalls": [{"id": id, "name": name, "arguments": arguments.to_string()}]});
    json!({"fixtures": [
        {"match": {"turnIndex": 0},
         "response": call("call_a", "run_command", json!({"command": "echo first"}))},
        {"match": {"turnIndex": 1},
         "response": call("call_b", "search_workspace", json!({"query": "first"}))},
        {"match": {"turnIndex": 2},
         "response": call("call_c", "finish_task", json!({"success": true,
            "summary": "ran a command, searched the workspace, and reported the end of it"}))},
    ]})
}

/// Starts the server on a free port and waits until it answers.
pub(crate) fn serve_fixtures(cli: &Path, folder: &Path) -> (Peer, u16) {
    let port = free_port();
    let peer = Peer(
        Command::new("node")
            .arg(cli)
            .args(["-p", &port.to_string(), "-f"])
            .arg(folder)
            .args(["--journal-max", "1000"])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap(),
    );
    assert!(until(Duration::from_secs(20), || get(port, "/health")).is_some());
    (peer, port)
}

/// Text, two calls in one turn, arguments with quotes and other scripts, then the report.
fn a_conversation() -> Value {
    let calls = |text: &str, calls: Value| json!({"content": text, "toolCalls": calls});
    let call = |id: &str, name: &str, arguments: Value| json!({"id": id, "name": name, "arguments": arguments.to_string()});
    json!({"fixtures": [
        {"match": {"turnIndex": 0}, "response": calls("I write two files. 先写。", json!([
            call("call_a", "write_file", json!({"file_path": "a.md", "content": "# \"a\" 固🌍\n"})),
            call("call_b", "write_file", json!({"file_path": "b/c.md", "content": ""}))]))},
        {"match": {"turnIndex": 1}, "response": {"toolCalls": [
            call("call_c", "read_file", json!({"path": "nothing-here"}))]}},
        {"match": {"turnIndex": 2}, "response": {"content": "I am done."}},
        {"match": {"turnIndex": 3}, "response": {"toolCalls": [
            call("call_d", "finish_task", json!({"success": true,
                "summary": "wrote two files, looked for one that is not there, and reported"}))]}},
    ]})
}

/// A conversation without what differs from run to run.
fn without_ids_and_times(conversation: &Value) -> Value {
    let mut plain = conversation.clone();
    for field in ["task_id", "created_at", "completed_at"] {
        plain[field] = Value::Null;
    }
    plain["stats"]["runtime_seconds"] = Value::Null;
    // The peer counts nothing over chat completions, and guesses over Messages.
    plain["stats"]["token_usage"] = Value::Null;
    for message in plain["messages"].as_array_mut().unwrap() {
        if message["role"] == "system" {
            // It names the time and the workspace.
            message["content"] = Value::Null;
        }
    }
    plain
}

#[test]
fn one_conversation_is_the_same_over_both_interfaces_streamed_and_not() {
    let Some(cli) = aimock() else {
        return missing("aimock");
    };
    let home = Workspace::new();
    let folder = home.home().join("fixtures");
    std::fs::create_dir(&folder).unwrap();
    std::fs::write(folder.join("f.json"), a_conversation().to_string()).unwrap();
    let (_peer, port) = serve_fixtures(&cli, &folder);
    let mut seen = Vec::new();
    for (provider, path) in [("openai", "/v1"), ("anthropic", "")] {
        for stream in [true, false] {
            let workspace = Workspace::new();
            workspace.configure(&format!(
                "default_model = \"m\"\n[models.m]\nprovider = \"{provider}\"\nmodel = \"gpt-mock\"\n\
                 base_url = \"http://127.0.0.1:{port}{path}\"\nstream = {stream}\n"
            ));
            workspace.write("task.md", "write two files");
            let mut worker = workspace.command("worker");
            worker.args(["--task-file", "task.md", "--agent-id", "1"]);
            let ended = run(&mut worker, Duration::from_secs(60));
            assert_eq!(ended.code(), 0, "{provider} {stream}: {ended:?}");
            assert_eq!(workspace.read("a.md"), "# \"a\" 固🌍\n");
            let conversation = workspace.conversation("sub_agent_results/agent_1");
            seen.push((
                provider,
                stream,
                without_ids_and_times(&json!(conversation)),
            ));
        }
    }
    let (_, _, first) = &seen[0];
    assert_eq!(first["messages"].as_array().map(Vec::len), Some(11));
    for (provider, stream, conversation) in &seen {
        assert_eq!(conversation, first, "{provider} {stream}");
    }
}

#[test]
fn twenty_agents_share_one_server_streamed_and_not() {
    let Some(cli) = aimock() else {
        return missing("aimock");
    };
    for stream in [true, false] {
        let workspace = Workspace::new();
        let folder = workspace.home().join("fixtures");
        std::fs::create_dir(&folder).unwrap();
        std::fs::write(folder.join("f.json"), fixtures().to_string()).unwrap();
        let (_peer, port) = serve_fixtures(&cli, &folder);
        workspace.configure(&format!(
            "default_model = \"m\"\n[limits]\nadmission = \"queue\"\n[models.m]\nprovider = \"openai\"\n\
             model = \"gpt-mock\"\nbase_url = \"http://127.0.0.1:{port}/v1\"\nstream = {stream}\n"
        ));
        let serve = Serve::start(&workspace);
        let mut client = serve.connect();
        let ids: Vec<u64> = (1..=20)
            .map(|n| {
                client.send(
                    "create_sub_agent",
                    json!({"agent_id": n, "summary": "one of twenty agents", "task": "go"}),
                )
            })
            .collect();
        for id in ids {
            let answer = client.answer(id);
            assert_eq!(answer["status"], "completed", "{answer}");
            assert_eq!(answer["stats"]["turns"], 3, "{answer}");
            assert_eq!(answer["stats"]["commands"], 1, "{answer}");
        }
        let journal: Value =
            serde_json::from_str(&get(port, "/__aimock/journal").unwrap()).unwrap();
        let entries = journal
            .as_array()
            .or(journal["entries"].as_array())
            .unwrap();
        let chats = entries
            .iter()
            .filter(|entry| {
                entry["path"]
                    .as_str()
                    .is_some_and(|p| p.contains("chat/completions"))
            })
            .count();
        assert_eq!(chats, 60, "{}", entries.len());
    }
}

fn llmock() -> Option<PathBuf> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("peers/venv/bin/llmock");
    path.is_file().then_some(path)
}

/// Hands a server of faults its next answers.
fn behave(port: u16, behaviours: &Value) {
    let ended = run(
        Command::new("curl")
            .args([
                "-sf",
                "--max-time",
                "10",
                "-H",
                "content-type: application/json",
                "-d",
            ])
            .arg(json!({"behaviors": behaviours}).to_string())
            .arg(format!("http://127.0.0.1:{port}/_llmock/scenario")),
        Duration::from_secs(15),
    );
    assert_eq!(ended.code(), 0, "{ended:?}");
}

/// A server that judges its clients: an agent comes through each fault, waits as long as it was
/// told to, and tries nothing again that can't succeed.
#[test]
fn a_server_that_judges_its_clients_has_nothing_to_say_against_ours() {
    let Some(llmock) = llmock() else {
        return missing("llmock");
    };
    let port = free_port();
    let _peer = Peer(
        Command::new(llmock)
            .args(["serve", "-h", "127.0.0.1", "-p", &port.to_string()])
            .args(["--log-level", "warning"])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap(),
    );
    let ready = || get(port, "/_llmock/verdict");
    assert!(until(Duration::from_secs(60), ready).is_some());
    let report = json!({"success": true, "summary": "came through the faults of the server"});
    let done =
        json!({"type": "reply", "tool_calls": [{"name": "finish_task", "arguments": report}]});
    for fault in [
        json!({"type": "fail", "status": 429, "retry_after": 1, "times": 1}),
        json!({"type": "fail", "status": 500, "times": 1}),
        json!({"type": "stream_fault", "kind": "disconnect", "after_chunks": 1}),
        json!({"type": "stream_fault", "kind": "truncate", "after_chunks": 1}),
    ] {
        let workspace = Workspace::new();
        workspace.configure(&format!(
            "[models.m]\nprovider = \"openai\"\nmodel = \"gpt-4o\"\n\
             base_url = \"http://127.0.0.1:{port}/v1\"\n"
        ));
        // An error takes the place of an answer, and a broken stream is one that is broken.
        let answers = match fault["type"].as_str() {
            Some("stream_fault") => json!([fault, done, done]),
            _ => json!([fault, done]),
        };
        behave(port, &answers);
        let mut leader = workspace.command("leader");
        let ended = run(
            leader.args(["run", "--json", "do it"]),
            Duration::from_secs(90),
        );
        assert_eq!(ended.code(), 0, "{fault}: {ended:?}");
    }
    let verdict: Value = serde_json::from_str(&get(port, "/_llmock/verdict").unwrap()).unwrap();
    assert_eq!(verdict["passed"], true, "{verdict}");
    assert_eq!(verdict["faults_injected"], 4, "{verdict}");
}
