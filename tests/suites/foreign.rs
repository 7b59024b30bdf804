//! Workers in another language: the one that docs/protocol.md shows, as it stands there, and one
//! that breaks every rule of that page.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::{Value, json};
use system_tests::leader::Ended;
use system_tests::{Serve, Workspace, run, until, within};

/// Talks to the leader as docs/protocol.md says; what each test appends says what it does then.
const TALK: &str = r#"
import json, os, sys, time

with open(sys.argv[sys.argv.index("--job") + 1], encoding="utf-8") as file:
    job = json.load(file)
target = os.path.join(job["workspace"], job["deliverables_dir"])

def raw(text):
    data = text if isinstance(text, bytes) else text.encode()
    while data:
        data = data[os.write(1, data):]

def send(**frame):
    raw(json.dumps(frame) + "\n")

def answer(id):
    for line in sys.stdin:
        frame = json.loads(line)
        if frame.get("id") == id and "method" not in frame:
            return frame
    sys.exit(9)

def ask(id, method, params):
    send(jsonrpc="2.0", id=id, method=method, params=params)
    return answer(id)

def keep(name, value):
    with open(os.path.join(target, name), "w", encoding="utf-8") as file:
        json.dump(value, file)

HELLO = {"protocol": "1.0", "worker_version": "other"}
DONE = {"success": True, "summary": "broke them all"}
"#;

/// Everything that a worker must not do and a leader must survive, around one good report.
const BREAKS_ALL: &str = r#"
raw("a banner\n\x1b[32mready\x1b[0m\n\n")
raw(b"\xff\xfe\x00 no text\n")
send(jsonrpc="2.0", method="agent/finished", params={"success": True, "summary": "too early"})
early = ask(10, "tools/call", {"name": "read_file", "arguments": {}})
hello = ask(1, "initialize", {**HELLO, "unknown_field": [1, {"a": None}]})
again = ask("again", "initialize", HELLO)
unknown = ask(0, "no/such/method", {"x": 1})
creates = ask(3, "tools/call", {"name": "create_sub_agent", "arguments": {"task": "x", "summary": "y"}})
shapeless = ask(4, "tools/call", "no object")
raw('{"jsonrpc":"2.0","method":"agent/progress","params":{"last_action":"' + "x" * (5 << 20) + '"}}\n')
raw('[{"jsonrpc":"2.0","method":"agent/finished"}]\n"text"\n17\nnull\n{}\n{"method": 5}\n{"id": {}}\n')
send(jsonrpc="2.0", method="agent/progress", params={"stats": "none", "state": "flying"})
send(jsonrpc="2.0", method="agent/no_such", params={"x": 1})
send(jsonrpc="2.0", id=99, result={"nobody": "asked"})
for line in ("jail/started", "jail/failed", "jail/ended"):
    send(jsonrpc="2.0", method=line, params={"step": "exec", "errno": 2, "exit_code": 0})
for number in range(500):
    send(jsonrpc="2.0", method="agent/progress", params={"stats": {"turns": number},
         "last_action": "floods", "state": "running", "output_tail": ""})
raw('{"jsonrpc":"2.0","method":"agent/output","params":')
raw("\n")
keep("answers.json", {"early": early, "again": again, "unknown": unknown,
                      "creates": creates, "shapeless": shapeless, "tools": hello["result"]["tools"]})
send(method="agent/finished", params=DONE)
raw('{"half a line')
"#;

/// An executable of Python in the workspace.
fn script(workspace: &Workspace, name: &str, text: &str) -> PathBuf {
    let path = workspace.write(name, format!("#!/usr/bin/env python3\n{text}"));
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    path
}

/// A run with this worker.
fn run_with(workspace: &Workspace, worker: &Path) -> Ended {
    let mut command = workspace.command("leader");
    command
        .args(["run", "--json", "--summary", "has a foreign worker"])
        .arg("--worker-bin")
        .arg(worker)
        .arg("do it");
    run(&mut command, Duration::from_secs(60))
}

fn as_is(body: &str) -> Ended {
    let workspace = Workspace::scripted(&[]);
    let worker = script(&workspace, "worker.py", &format!("{TALK}{body}"));
    run_with(&workspace, &worker)
}

#[test]
fn the_worker_of_the_document_is_one() {
    let document = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/protocol.md");
    let document = std::fs::read_to_string(document).unwrap();
    let (_, rest) = document.split_once("```python\n").unwrap();
    let (program, _) = rest.split_once("```").unwrap();
    let workspace = Workspace::scripted(&[]);
    let worker = script(&workspace, "worker.py", program);
    let ended = run_with(&workspace, &worker);
    assert_eq!(ended.code(), 0, "{ended:?}");
    let result = ended.json();
    assert_eq!(result["status"], "completed", "{result}");
    assert_eq!(result["result_summary"], "hello.txt is written.");
    assert_eq!(result["deliverables_files"], json!(["hello.txt"]));
    assert_eq!(result["warnings"], json!([]));
    assert_eq!(
        workspace.read("sub_agent_results/agent_1/hello.txt"),
        "hello from agent 1\n"
    );
    let file = workspace.conversation("sub_agent_results/agent_1");
    assert_eq!(file["status"], "completed", "{file}");
    assert_eq!(
        file["result"],
        json!({"success": true, "summary": "hello.txt is written.", "stop_reason": null})
    );
}

#[test]
fn the_worker_of_the_document_obeys_a_stop_and_the_end_of_its_input() {
    // It waits for its first answer in both cases: one that is stopped before it has read it.
    let body = r#"
ask(1, "initialize", HELLO)
open(os.path.join(target, "up"), "w").close()
for line in sys.stdin:
    if json.loads(line).get("method") == "agent/stop":
        keep("stop.json", json.loads(line))
        sys.exit(1)
"#;
    let workspace = Workspace::scripted(&[]);
    let worker = script(&workspace, "worker.py", &format!("{TALK}{body}"));
    let serve = Serve::start_as(&workspace, |command| {
        command.env("MUSTER_WORKER", &worker);
    });
    serve.call(
        "create_sub_agent",
        json!({"summary": "waits for its stop", "task": "go", "run_in_background": true}),
    );
    let up = workspace.join("sub_agent_results/agent_1/up");
    assert!(until(Duration::from_secs(20), || up.exists().then_some(())).is_some());
    let (answer, took) = within(|| serve.call("terminate_sub_agent", json!({"agent_id": 1})));
    // Well before the grace of 5 s is over.
    assert!(took < Duration::from_secs(4), "{took:?}");
    assert_eq!(answer["status"], "terminated", "{answer}");
    assert_eq!(answer["deliverables_files"], json!(["stop.json", "up"]));
    let stop: Value =
        serde_json::from_str(&workspace.read("sub_agent_results/agent_1/stop.json")).unwrap();
    assert_eq!(stop["jsonrpc"], "2.0", "{stop}");
    assert!(stop["params"]["reason"].is_string(), "{stop}");
    assert!(stop["params"]["grace_ms"].is_u64(), "{stop}");
}

#[test]
fn a_worker_that_breaks_every_rule_is_survived_and_answered() {
    let workspace = Workspace::scripted(&[]);
    let worker = script(&workspace, "worker.py", &format!("{TALK}{BREAKS_ALL}"));
    let ended = run_with(&workspace, &worker);
    assert_eq!(ended.code(), 0, "{ended:?}");
    let result = ended.json();
    assert_eq!(result["status"], "completed", "{result}");
    assert_eq!(result["result_summary"], "broke them all", "{result}");
    assert_eq!(result["deliverables_files"], json!(["answers.json"]));
    let answers: Value =
        serde_json::from_str(&workspace.read("sub_agent_results/agent_1/answers.json")).unwrap();
    assert_eq!(answers["tools"], json!([]), "{answers}");
    for (name, code) in [
        ("early", -32600),
        ("again", -32600),
        ("unknown", -32601),
        ("shapeless", -32602),
    ] {
        assert_eq!(answers[name]["error"]["code"], code, "{name}: {answers}");
    }
    assert_eq!(
        answers["creates"]["result"]["error"]["code"], "tool_not_granted",
        "{answers}"
    );
}

#[test]
fn what_a_workers_call_depended_on_is_a_protocol_error() {
    for (what, body) in [
        (
            "another major version",
            r#"keep("answer.json", ask(1, "initialize", {"protocol": "2.0", "worker_version": "x"})); time.sleep(60)"#,
        ),
        (
            "no version",
            r#"keep("answer.json", ask(1, "initialize", {})); time.sleep(60)"#,
        ),
        (
            "a report without its shape",
            r#"keep("answer.json", ask(1, "initialize", HELLO)); send(method="agent/finished", params={"success": "maybe"}); time.sleep(60)"#,
        ),
    ] {
        let ended = as_is(body);
        assert_eq!(ended.code(), 1, "{what}: {ended:?}");
        let result = ended.json();
        assert_eq!(result["status"], "failed", "{what}: {result}");
        assert_eq!(result["stop_reason"], "protocol_error", "{what}: {result}");
        assert_eq!(result["deliverables_files"], json!(["answer.json"]));
    }
}

#[test]
fn what_is_said_before_hello_is_no_report() {
    let ended = as_is(r#"send(method="agent/finished", params=DONE)"#);
    assert_eq!(ended.code(), 1, "{ended:?}");
    let result = ended.json();
    assert_eq!(result["success"], false, "{result}");
    assert_eq!(result["status"], "failed", "{result}");
    assert_ne!(result["result_summary"], "broke them all", "{result}");
}
