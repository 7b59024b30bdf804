//! Bad input: each does the right thing or says clearly why not, and hangs or breaks nothing.

use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;
use std::time::Duration;

use serde_json::json;
use system_tests::leader::Ended;
use system_tests::model::{Behaviour, ModelServer};
use system_tests::{Serve, Turn, Workspace, run};

const DONE: &str = "did all that the script had in it, which was not much at all";

fn leader(workspace: &Workspace, args: &[&str]) -> Ended {
    run(
        workspace.command("leader").args(args),
        Duration::from_secs(30),
    )
}

/// It failed with this code and said these words, in whole sentences and without a panic.
fn refused(ended: &Ended, code: i32, words: &[&str]) {
    let said = format!("{}{}", ended.stdout, ended.stderr);
    assert_eq!(ended.code(), code, "{said}");
    for word in words {
        assert!(said.contains(word), "no `{word}` in: {said}");
    }
    assert!(!said.contains("panicked"), "{said}");
}

#[test]
fn a_task_file_must_be_there_and_hold_a_text_of_a_fit_size() {
    let workspace = Workspace::scripted(&[Turn::finish(DONE)]);
    workspace.write("empty.md", "");
    workspace.write("blank.md", " \n\n");
    workspace.write("large.md", "x".repeat(5 * 1024 * 1024));
    workspace.write("bytes.md", [0xff, 0xfe, 0x00, 0x61]);
    for (file, word) in [
        ("missing.md", "missing.md"),
        ("empty.md", "empty"),
        ("blank.md", "empty"),
        ("large.md", "200000"),
        ("bytes.md", "UTF-8"),
        (".", "directory"),
    ] {
        refused(
            &leader(&workspace, &["run", "--task-file", file]),
            2,
            &[word],
        );
    }
    assert!(!workspace.join("sub_agent_results").exists());
}

#[test]
fn a_deliverables_dir_must_lie_inside_and_be_free() {
    let workspace = Workspace::scripted(&[Turn::finish(DONE)]);
    workspace.write("full/old.txt", "from before");
    workspace.write("file", "a file");
    std::os::unix::fs::symlink("/tmp", workspace.join("out")).unwrap();
    for dir in ["/tmp/x", "../x", "out", "file"] {
        let ended = leader(&workspace, &["run", "--deliverables-dir", dir, "do it"]);
        refused(&ended, 2, &[dir]);
    }
    let full = leader(&workspace, &["run", "--deliverables-dir", "full", "do it"]);
    refused(&full, 2, &["full", "--reuse-deliverables-dir"]);
    let reused = leader(
        &workspace,
        &[
            "run",
            "--deliverables-dir",
            "full",
            "--reuse-deliverables-dir",
            "go",
        ],
    );
    assert_eq!(reused.code(), 0, "{reused:?}");
}

#[test]
fn no_model_is_told_with_three_ways_to_go_on() {
    let workspace = Workspace::new();
    let ended = leader(&workspace, &["run", "do it"]);
    refused(
        &ended,
        3,
        &["no model", "OPENAI_API_KEY", "muster.toml", "--model"],
    );
    // Something greets as Ollama does, so that is worth a line.
    let greeting = "Ollama is running".to_owned();
    let server = ModelServer::start(Behaviour::Fixed(200, "text/plain", greeting));
    let host = server.base_url().replace("/v1", "");
    let mut command = workspace.command("leader");
    command.args(["run", "do it"]).env("OLLAMA_HOST", host);
    refused(
        &run(&mut command, Duration::from_secs(30)),
        3,
        &["an Ollama answers"],
    );
}

#[test]
fn an_endpoint_that_refuses_ends_in_its_name() {
    let free = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let workspace = Workspace::new();
    let model = format!("http://{free}/v1#x");
    let ended = run(
        workspace
            .command("leader")
            .args(["run", "--json", "--model", &model, "do it"]),
        Duration::from_secs(90),
    );
    refused(&ended, 1, &["model_error", &free.port().to_string()]);
}

#[test]
fn odd_caps_are_refused_at_the_start_with_key_and_range() {
    // A wish for one sub-agent was silently raised to two by a clamp.
    let workspace = Workspace::scripted(&[Turn::finish(DONE)]);
    for bad in ["0", "-1", "\"3\"", "1001", "1.5"] {
        workspace.configure(&format!("[limits]\nmax_concurrent = {bad}\n"));
        let ended = leader(&workspace, &["run", "do it"]);
        refused(&ended, 2, &["max_concurrent", "1000", "muster.toml"]);
    }
    for good in ["1", "6", "100", "1000"] {
        workspace.configure(&format!("[limits]\nmax_concurrent = {good}\n"));
        let ended = leader(
            &workspace,
            &["run", "--deliverables-dir", &format!("out{good}"), "do it"],
        );
        assert_eq!(ended.code(), 0, "{good}: {ended:?}");
    }
}

#[test]
fn unknown_keys_and_flags_name_the_closest_known_one() {
    let workspace = Workspace::scripted(&[Turn::finish(DONE)]);
    workspace.configure("[limits]\nmax_concurent = 3\n");
    refused(
        &leader(&workspace, &["run", "do it"]),
        2,
        &["max_concurent", "max_concurrent"],
    );
    workspace.configure("");
    refused(
        &leader(&workspace, &["run", "--sumary", "x", "do it"]),
        2,
        &["--summary"],
    );
    for later in [&["run", "--worktree", "tree"][..], &["chat"], &["mcp"]] {
        refused(&leader(&workspace, later), 2, &["not available"]);
    }
}

#[test]
fn a_workspaces_own_file_may_only_tighten() {
    let workspace = Workspace::scripted(&[Turn::finish(DONE)]);
    workspace.configure("[limits]\nmax_concurrent = 4\n");
    workspace.write(
        "muster.toml",
        "default_model = \"evil\"\n[limits]\nmax_concurrent = 50\n[models.evil]\nprovider = \"openai\"\n\
         base_url = \"http://127.0.0.1:1/v1\"\nmodel = \"x\"\n",
    );
    let ended = leader(&workspace, &["run", "do it"]);
    assert_eq!(ended.code(), 0, "{ended:?}");
    for word in ["muster.toml", "max_concurrent", "default_model", "models"] {
        assert!(ended.stderr.contains(word), "{}", ended.stderr);
    }
}

#[test]
fn a_read_only_workspace_is_refused_with_its_path() {
    let workspace = Workspace::scripted(&[Turn::finish(DONE)]);
    let folder = workspace.path();
    std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(0o555)).unwrap();
    let mut command;
    if nix::unistd::geteuid().is_root() {
        // Root writes anywhere, so the leader runs as somebody else from a place it may read.
        let bin = tempfile::tempdir().unwrap();
        std::fs::set_permissions(bin.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
        for name in ["leader", "worker", "jail"] {
            std::fs::copy(system_tests::executable(name), bin.path().join(name)).unwrap();
        }
        let root = folder.parent().unwrap().to_path_buf();
        std::fs::set_permissions(&root, std::fs::Permissions::from_mode(0o755)).unwrap();
        command = Command::new("setpriv");
        command
            .args(["--reuid", "12345", "--regid", "12345", "--clear-groups"])
            .arg(bin.path().join("leader"))
            .args(["run", "do it"])
            .current_dir(&folder)
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap())
            .env("HOME", workspace.home());
        let ended = run(&mut command, Duration::from_secs(30));
        refused(&ended, 3, &[folder.to_str().unwrap()]);
    } else {
        command = workspace.command("leader");
        let ended = run(command.args(["run", "do it"]), Duration::from_secs(30));
        refused(&ended, 3, &[folder.to_str().unwrap()]);
    }
    std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(0o755)).unwrap();
}

#[test]
fn a_second_run_takes_the_next_number_and_two_leaders_keep_apart() {
    let write = |n: u32| {
        Turn::call(
            "write_file",
            json!({"file_path": format!("sub_agent_results/agent_{n}/f.txt"), "content": "x"}),
        )
    };
    let workspace = Workspace::scripted(&[write(1), Turn::finish(DONE)]);
    let first = leader(&workspace, &["run", "--json", "do it"]);
    assert_eq!(first.json()["agent_id"], 1, "{first:?}");
    // The first one's folder holds something now, so the second gets a number whose folder is free.
    workspace.script("default", &[write(2), Turn::finish(DONE)]);
    let second = leader(&workspace, &["run", "--json", "do it"]);
    assert_eq!(second.json()["agent_id"], 2, "{second:?}");

    workspace.script("default", &[Turn::text("late").late(600_000)]);
    let one = Serve::start(&workspace);
    let two = Serve::start(&workspace);
    let create = |serve: &Serve| {
        serve.call(
            "create_sub_agent",
            json!({"summary": "wants one folder", "task": "go", "deliverables_dir": "shared",
                   "run_in_background": true, "reuse_deliverables_dir": true}),
        )
    };
    assert_eq!(create(&one)["status"], "running");
    let refused = create(&two);
    assert_eq!(
        refused["error"]["code"], "deliverables_overlap",
        "{refused}"
    );
    assert_ne!(one.conversation, two.conversation);
}

#[test]
fn calls_that_are_none_get_an_error_and_leave_the_socket_usable() {
    let workspace = Workspace::scripted(&[Turn::finish(DONE)]);
    let serve = Serve::start(&workspace);
    let mut client = serve.connect();
    client.send_line("this is no JSON");
    assert_eq!(client.event()["error"]["code"], -32700);
    client.send_line("[]");
    assert_eq!(client.event()["error"]["code"], -32600);
    let unknown = client.call("create_subagent", json!({}));
    assert_eq!(unknown["rpc_error"]["code"], -32601, "{unknown}");
    let misfit = client.call("create_sub_agent", json!({"tsk": "x"}));
    assert_eq!(misfit["error"]["code"], "invalid_parameters", "{misfit}");
    assert!(
        misfit["error"]["hint"].as_str().unwrap().contains("task"),
        "{misfit}"
    );
    assert_eq!(
        client.call("list_active_sub_agents", json!({}))["success"],
        true
    );
}
