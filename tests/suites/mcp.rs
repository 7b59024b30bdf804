//! MCP servers behind a leader: their tools in an agent's hands, and what becomes of servers that
//! end, say nothing or say too much.

use std::process::Command;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};
use system_tests::model::{Behaviour, ModelServer};
use system_tests::{Liveness, Serve, Turn, Workspace, executable, run, tool_texts};

const DONE: &str = "used the tools of the server that was configured and reported what they said";
const BUDGET: Duration = Duration::from_secs(60);
const TOKEN: &str = "tok-server-123456789";

/// `fake_mcp`, where agents see it: a build folder may lie in what is private to them.
fn program(workspace: &Workspace) -> String {
    let place = workspace.join("fake_mcp");
    if !place.exists() {
        // A program of its own makes the copy, so that no thread of ours holds it open for
        // writing while another one forks. A link costs nothing; across file systems there is
        // none.
        let copy = |how: &str| {
            let mut cp = Command::new("cp");
            cp.arg(how).arg(executable("fake_mcp")).arg(&place);
            cp.output().is_ok_and(|output| output.status.success())
        };
        assert!(copy("--link") || copy("--force"), "no copy at {place:?}");
    }
    place.display().to_string()
}

/// A server of the configuration in one of the modes of `fake_mcp`.
fn server(workspace: &Workspace, name: &str, mode: &str, more: &str) -> String {
    let program = program(workspace);
    format!("[mcp.servers.{name}]\ncommand = {program:?}\nargs = [{mode:?}]\n{more}\n")
}

/// Runs an agent with these turns; the texts of its tools' results.
fn told(workspace: &Workspace) -> Vec<String> {
    let mut command = workspace.command("leader");
    command
        .args(["run", "--json", "--summary", "uses an MCP server", "do it"])
        .env("FAKE_TOKEN", TOKEN);
    let ended = run(&mut command, BUDGET);
    assert_eq!(ended.code(), 0, "{ended:?}");
    tool_texts(&workspace.conversation("sub_agent_results/agent_1"))
}

/// A workspace whose model replays turns, and one server with more of its section.
fn scripted(turns: &[Turn], more: &str) -> Workspace {
    let workspace = Workspace::scripted(turns);
    workspace.configure(&server(&workspace, "fake", "plain", more));
    workspace
}

fn error_of(text: &str) -> (String, String) {
    let answer: Value = serde_json::from_str(text).unwrap_or_else(|_| panic!("{text}"));
    let word = |key: &str| answer["error"][key].as_str().unwrap_or_default().to_owned();
    (word("code"), word("message"))
}

fn log_of(workspace: &Workspace, name: &str) -> String {
    workspace.read(&format!("sub_agent_results/agent_1/.subagent/{name}"))
}

#[test]
fn tools_of_a_server_are_offered_called_and_get_what_their_server_was_given() {
    let model = ModelServer::start(Behaviour::Turns(vec![
        Turn::call("mcp__fake__echo", json!({"text": "said back"})),
        Turn::call("mcp__fake__echo", json!({})),
        Turn::call("mcp__fake__env", json!({"text": "FAKE_TOKEN"})),
        Turn::call("mcp__fake__env", json!({"text": "MODEL_KEY"})),
        Turn::command("env"),
        Turn::finish(DONE),
    ]));
    let workspace = Workspace::new();
    workspace.configure(&format!(
        "default_model = \"m\"\n[models.m]\nprovider = \"openai\"\nmodel = \"x\"\n\
         base_url = \"{}\"\napi_key_env = \"MODEL_KEY\"\n{}",
        model.base_url(),
        server(
            &workspace,
            "fake",
            "noisy",
            "env = [\"FAKE_TOKEN\", \"MODEL_KEY\"]"
        )
    ));
    let mut command = workspace.command("leader");
    command
        .args(["run", "--json", "--summary", "uses an MCP server", "do it"])
        .env("FAKE_TOKEN", TOKEN)
        .env("MODEL_KEY", "key-of-the-model-0123");
    let ended = run(&mut command, BUDGET);
    assert_eq!(ended.code(), 0, "{ended:?}");
    let first = model.requests().remove(0);
    let tools = first["tools"].as_array().unwrap();
    let names: Vec<&str> = tools
        .iter()
        .filter_map(|tool| tool["function"]["name"].as_str())
        .filter(|name| name.starts_with("mcp__"))
        .collect();
    assert_eq!(
        names,
        [
            "mcp__fake__echo",
            "mcp__fake__env",
            "mcp__fake__die",
            "mcp__fake__hang"
        ]
    );
    assert!(!first["tools"].to_string().contains("$schema"), "{first}");
    let told = tool_texts(&workspace.conversation("sub_agent_results/agent_1"));
    assert_eq!(told[0], "said back");
    let (code, message) = error_of(&told[1]);
    assert_eq!((&*code, &*message), ("mcp_failed", "there is no text"));
    // It has the value, which stands in nothing that is kept.
    let bytes = format!("{} bytes: ", TOKEN.len());
    assert!(
        told[2].starts_with(&bytes) && !told[2].contains(TOKEN),
        "{}",
        told[2]
    );
    assert_eq!(told[3], "9 bytes: (not set)");
    assert!(
        told[4].contains("PATH=") && !told[4].contains("FAKE_TOKEN"),
        "{}",
        told[4]
    );
    let job = log_of(&workspace, "job.json");
    assert!(job.contains("FAKE_TOKEN") && !job.contains(TOKEN), "{job}");
    assert_eq!(
        log_of(&workspace, "mcp_fake.log"),
        "fake_mcp is up in mode noisy\n"
    );
}

#[test]
fn a_server_that_dies_is_told_of_and_started_once_more() {
    let echo = || Turn::call("mcp__fake__echo", json!({"text": "here"}));
    let die = || Turn::call("mcp__fake__die", json!({}));
    let turns = [die(), echo(), die(), echo(), Turn::finish(DONE)];
    let told = told(&scripted(&turns, ""));
    for at in [0, 2] {
        let (code, message) = error_of(&told[at]);
        assert_eq!(code, "mcp_failed");
        assert!(
            message.contains("it has ended") && message.contains("dying as asked"),
            "{message}"
        );
    }
    assert_eq!(told[1], "here");
    let (code, _) = error_of(&told[3]);
    assert_eq!(code, "mcp_failed");
    assert!(told[3].contains("not started again"), "{}", told[3]);
}

#[test]
fn a_call_that_takes_too_long_is_given_up_and_the_server_goes_on() {
    let turns = [
        Turn::call("mcp__fake__hang", json!({})),
        Turn::call("mcp__fake__echo", json!({"text": "here"})),
        Turn::finish(DONE),
    ];
    let told = told(&scripted(&turns, "timeout_seconds = 1"));
    let (code, message) = error_of(&told[0]);
    assert_eq!(code, "timed_out", "{message}");
    assert_eq!(told[1], "here");
}

#[test]
fn servers_that_say_nothing_or_too_much_or_do_not_exist_stop_no_agent() {
    let workspace = Workspace::scripted(&[
        Turn::call("mcp__silent__echo", json!({})),
        Turn::call("mcp__fake__echo", json!({"text": "here"})),
        Turn::finish(DONE),
    ]);
    let config = [
        server(&workspace, "silent", "silent", ""),
        server(&workspace, "flood", "flood", ""),
        "[mcp.servers.absent]\ncommand = \"/no/such/server\"\n".to_owned(),
        server(&workspace, "fake", "plain", ""),
    ]
    .concat();
    workspace.configure(&config);
    let told = told(&workspace);
    assert_eq!(error_of(&told[0]).0, "unknown_tool", "{}", told[0]);
    assert_eq!(told[1], "here");
    let log = log_of(&workspace, "worker.log");
    for words in [
        "`silent` is not there",
        "`flood` is not there",
        "`absent` is not there",
    ] {
        assert!(log.contains(words), "{words}: {log}");
    }
}

#[test]
fn servers_of_a_workspace_are_not_started_until_it_is_trusted() {
    let turns = [
        Turn::call("mcp__fake__echo", json!({"text": "here"})),
        Turn::finish(DONE),
    ];
    let workspace = Workspace::scripted(&turns);
    workspace.write("muster.toml", server(&workspace, "fake", "plain", ""));
    let mut command = workspace.command("leader");
    command.args(["run", "--json", "--summary", "has no server", "do it"]);
    let ended = run(&mut command, BUDGET);
    assert_eq!(ended.code(), 0, "{ended:?}");
    let warned = ended.stderr.contains("`mcp` is ignored") && ended.stderr.contains("leader trust");
    assert!(warned, "{ended:?}");
    let texts = tool_texts(&workspace.conversation("sub_agent_results/agent_1"));
    assert_eq!(error_of(&texts[0]).0, "unknown_tool", "{}", texts[0]);
    let mut trust = workspace.command("leader");
    let trusted = run(trust.args(["trust", "--yes"]), BUDGET);
    assert_eq!(trusted.code(), 0, "{trusted:?}");
    let mut again = workspace.command("leader");
    again.args(["run", "--json", "--summary", "has a server", "do it"]);
    let ended = run(&mut again, BUDGET);
    assert_eq!(ended.code(), 0, "{ended:?}");
    let texts = tool_texts(&workspace.conversation("sub_agent_results/agent_2"));
    assert_eq!(texts[0], "here");
}

/// A server that a shell becomes after it has done something.
fn prepared(workspace: &Workspace, words: &str) -> String {
    let program = program(workspace);
    format!(
        "[mcp.servers.fake]\ncommand = \"/bin/sh\"\nargs = [\"-c\", {:?}]\n",
        format!("{words} exec '{program}' plain")
    )
}

#[test]
fn a_server_is_held_as_commands_are() {
    let turns = [
        Turn::call("mcp__fake__echo", json!({"text": "here"})),
        Turn::finish(DONE),
    ];
    let words = "readlink /proc/self/ns/net >&2; echo x >> muster.toml || echo held >&2;";
    let workspace = Workspace::scripted(&turns);
    let server = prepared(&workspace, words);
    workspace.write("muster.toml", "");
    workspace.configure(&format!("{server}[confinement]\nnetwork = \"none\"\n"));
    assert_eq!(told(&workspace)[0], "here");
    let log = log_of(&workspace, "mcp_fake.log");
    let ours = std::fs::read_link("/proc/self/ns/net").unwrap();
    let ours = ours.display().to_string();
    assert!(log.contains("net:[") && !log.contains(&ours), "{log}");
    assert!(log.contains("\nheld\n"), "{log}");
    assert_eq!(workspace.read("muster.toml"), "");
}

#[test]
fn nothing_of_a_server_outlives_its_agent_or_its_leader() {
    let echo = Turn::call("mcp__fake__echo", json!({"text": "here"}));
    let wait = Turn::command_within("sleep 300", 300);
    for (turns, is_killed) in [
        (vec![echo.clone(), Turn::finish(DONE)], false),
        (vec![echo, wait], true),
    ] {
        let workspace = Workspace::scripted(&turns);
        let mut pipe = Liveness::new(&workspace.path(), "alive");
        // What leaves the server's session is held as the server itself.
        workspace.configure(&prepared(
            &workspace,
            &format!("{} setsid sleep 300 &", pipe.hold()),
        ));
        let serve = Serve::start(&workspace);
        let wanted =
            json!({"summary": "has an MCP server", "task": "go", "run_in_background": true});
        let started = serve.call("create_sub_agent", wanted);
        assert_eq!(started["status"], "running", "{started}");
        assert!(pipe.wait_up(1, BUDGET), "the server started");
        if is_killed {
            assert!(serve.pid() > 1);
            kill(Pid::from_raw(serve.pid()), Signal::SIGKILL).unwrap();
        }
        let gone = pipe.wait_gone(BUDGET);
        assert!(gone.is_some(), "killed: {is_killed}");
    }
}
