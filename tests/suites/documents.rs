//! What the README and docs/socket.md show is what the real executables do.

use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};
use system_tests::{Serve, Turn, Workspace, run, until};

fn document(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(name);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The blocks of a document that are fenced as `kind`.
fn blocks(document: &str, kind: &str) -> Vec<String> {
    let opening = format!("```{kind}\n");
    let mut blocks = Vec::new();
    let mut rest = document;
    while let Some((_, tail)) = rest.split_once("```") {
        let tail = &rest[rest.len() - tail.len() - 3..];
        let Some((block, after)) = tail[3..].split_once("\n```") else {
            break;
        };
        if tail.starts_with(&opening) {
            blocks.push(block[opening.len() - 3..].to_owned());
        }
        rest = after;
    }
    blocks
}

#[test]
fn the_readme_shows_the_demo_as_it_is() {
    let shown = blocks(&document("README.md"), "")
        .into_iter()
        .find(|block| block.starts_with("1. A temporary workspace"))
        .expect("a transcript of the demo");
    let workspace = Workspace::new();
    let ended = run(
        workspace.command("leader").arg("demo"),
        Duration::from_secs(60),
    );
    assert_eq!(ended.code(), 0, "{ended:?}");
    // Only how long things took differs from run to run, which agent of two is quicker, how the
    // executable was called, and on another machine the rung.
    let timeless = |text: &str| -> Vec<String> {
        let line_of = |line: &str| match line.split_once(" leader demo --keep") {
            Some(_) => "  leader demo --keep".to_owned(),
            None if line.contains("(It was held by the rung") => "(rung)".to_owned(),
            None => line
                .chars()
                .map(|c| if c.is_ascii_digit() { 'N' } else { c })
                .collect(),
        };
        let mut lines: Vec<String> = text
            .lines()
            .map(|line| line_of(&line.replace("/leader demo", " leader demo")))
            .collect();
        let is_end = |line: &String| line.starts_with("   after ");
        let first = lines.iter().position(is_end).unwrap();
        let last = lines.iter().rposition(is_end).unwrap();
        lines[first..=last].sort();
        lines
    };
    assert_eq!(timeless(&ended.stdout), timeless(&shown));
}

#[test]
fn the_example_session_of_the_socket_is_answered_as_shown() {
    // The first agent is asked about while it works, so its model takes its time.
    let workspace = Workspace::scripted(&[
        Turn::call(
            "write_file",
            json!({"file_path": "docs/api/api.md", "content": "endpoints"}),
        )
        .late(1_500),
        Turn::finish("Twelve endpoints are described in api.md, one after the other."),
    ]);
    let mut serve = Serve::start(&workspace);
    let sessions = blocks(&document("docs/socket.md"), "session");
    assert_eq!(sessions.len(), 2);
    let mut listener = serve.connect();
    listener.call("subscribe", json!({}));
    for (number, session) in sessions.iter().enumerate() {
        if number > 0 {
            // The caller has its answer before the end's last event is told, which a subscription
            // begun in between would show first.
            while listener.event()["params"]["event"] != "notice.done" {}
        }
        let mut client = serve.connect();
        for line in session.lines() {
            let shown: Value = serde_json::from_str(&line[2..]).unwrap();
            if line.starts_with('>') {
                if shown["method"] == "get_sub_agent_status" {
                    // Whoever types it is slower than the start; calls run side by side.
                    let made = until(Duration::from_secs(20), || {
                        let told = serve.call("get_sub_agent_status", json!({"agent_id": 1}));
                        told["agents"][0]["deadline_in_seconds"].as_u64()
                    });
                    assert!(made.is_some(), "no agent is at work");
                }
                client.send_line(&line[2..]);
                continue;
            }
            let Some(id) = shown["id"].as_u64() else {
                let event = client.event();
                assert_eq!(
                    event["params"]["event"], shown["params"]["event"],
                    "{event}"
                );
                has_the_shape_of(&event, &shown, line);
                continue;
            };
            let answer = client.answer(id);
            match shown.get("error") {
                Some(error) => {
                    assert_eq!(answer["rpc_error"]["code"], error["code"], "{answer}");
                    has_the_shape_of(&answer["rpc_error"], error, line);
                }
                None => has_the_shape_of(&answer, &shown["result"], line),
            }
            assert_eq!(answer["success"], shown["result"]["success"], "{answer}");
            assert_eq!(
                answer["error"]["code"], shown["result"]["error"]["code"],
                "{answer}"
            );
        }
    }
    let status = serve.wait(Duration::from_secs(20)).expect("shut down");
    assert!(status.success(), "{status}");
}

/// Every field that is shown is there, with a value of the same kind.
fn has_the_shape_of(real: &Value, shown: &Value, line: &str) {
    match (real, shown) {
        (Value::Object(real), Value::Object(shown)) => {
            for (key, value) in shown {
                let found = real
                    .get(key)
                    .unwrap_or_else(|| panic!("no `{key}` in {real:?}, as in {line}"));
                has_the_shape_of(found, value, line);
            }
        }
        (Value::Array(real), Value::Array(shown)) => {
            for (real, shown) in real.iter().zip(shown) {
                has_the_shape_of(real, shown, line);
            }
        }
        (real, shown) => assert_eq!(
            std::mem::discriminant(real),
            std::mem::discriminant(shown),
            "{real} is shown as {shown} in {line}"
        ),
    }
}
