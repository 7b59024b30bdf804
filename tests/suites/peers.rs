//! Model servers that others wrote.

use std::io::Write;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::{Value, json};
use system_tests::{Serve, Workspace, run, until};

/// Says that a peer is missing: a skip on a user's machine, a failure in CI.
fn missing(what: &str) {
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

fn aimock() -> Option<PathBuf> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("peers/node_modules/@copilotkit/aimock/dist/cli.js");
    path.is_file().then_some(path)
}

/// A running peer; it is ended when dropped.
struct Peer(Child);

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

fn get(port: u16, path: &str) -> Option<String> {
    let url = format!("http://127.0.0.1:{port}{path}");
    let ended = run(
        Command::new("curl").args(["-sf", "--max-time", "10", &url]),
        Duration::from_secs(15),
    );
    (ended.code() == 0).then_some(ended.stdout)
}

/// Three turns by the count of assistant messages, so that any number of agents can share them.
fn fixtures() -> Value {
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
        let port = free_port();
        let _peer = Peer(
            Command::new("node")
                .arg(&cli)
                .args(["-p", &port.to_string(), "-f"])
                .arg(&folder)
                .args(["--journal-max", "1000"])
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()
                .unwrap(),
        );
        assert!(until(Duration::from_secs(20), || get(port, "/health")).is_some());
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
