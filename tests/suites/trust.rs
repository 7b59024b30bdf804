//! A file that came with a repository, before and after its user accepted it.

use std::io::Write;
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::{Value, json};
use system_tests::{Ended, Turn, Workspace, run};

const BUDGET: Duration = Duration::from_secs(60);
const DONE: &str = "The work is done, as the test wants it.";

/// A workspace whose own file wants a model of its own and more agents than its user allows.
fn wanting() -> Workspace {
    let workspace = Workspace::new();
    workspace.configure("[limits]\nmax_concurrent = 2\n");
    let script = format!("{}\n", Turn::finish(DONE).to_json());
    workspace.write("theirs.jsonl", script);
    workspace.write("muster.toml", theirs(&workspace));
    workspace
}

fn theirs(workspace: &Workspace) -> String {
    format!(
        "default_model = \"theirs\"\n[limits]\nmax_concurrent = 9\n\
         [models.theirs]\nprovider = \"script\"\nmodel = \"{}\"\n",
        workspace.join("theirs.jsonl").display()
    )
}

fn leader(workspace: &Workspace, arguments: &[&str]) -> Ended {
    run(workspace.command("leader").args(arguments), BUDGET)
}

fn shown(workspace: &Workspace) -> Value {
    let ended = leader(workspace, &["trust", "--show", "--json"]);
    assert_eq!(ended.code(), 0, "{ended:?}");
    serde_json::from_str(&ended.stdout).unwrap()
}

fn config(workspace: &Workspace) -> Value {
    let ended = leader(workspace, &["config", "--json"]);
    serde_json::from_str(&ended.stdout).unwrap()
}

/// A cloned repository once brought its own server, and the user's key went there.
#[test]
fn a_workspaces_file_gets_what_it_wants_once_it_was_accepted_and_not_before() {
    let workspace = wanting();
    let refused = leader(&workspace, &["run", "do it"]);
    assert_eq!(refused.code(), 3, "{refused:?}");
    assert!(
        refused.stderr.contains("no model configured"),
        "{refused:?}"
    );
    assert!(
        refused.stderr.contains("`leader trust` shows it"),
        "{refused:?}"
    );
    let view = shown(&workspace);
    let keys: Vec<&str> = view["wishes"]
        .as_array()
        .unwrap()
        .iter()
        .map(|wish| wish["key"].as_str().unwrap())
        .collect();
    assert_eq!(
        keys,
        [
            "default_model",
            "limits.max_concurrent",
            "models.theirs.provider",
            "models.theirs.model"
        ]
    );
    assert_eq!(view["trust"], "never");
    assert_eq!(view["wishes"][1]["in_force"], "2");

    let accepted = leader(&workspace, &["trust", "--yes"]);
    assert_eq!(accepted.code(), 0, "{accepted:?}");
    assert!(accepted.stdout.ends_with(&format!(
        "accepted: {}\n",
        workspace.join("muster.toml").display()
    )));
    let resolved = config(&workspace);
    assert_eq!(resolved["limits"]["max_concurrent"], 9);
    let source = resolved["sources"]["limits.max_concurrent"]
        .as_str()
        .unwrap();
    assert!(source.ends_with("muster.toml:3 (trusted)"), "{source}");
    let ran = leader(&workspace, &["run", "--json", "do it"]);
    assert_eq!((ran.code(), ran.stderr.as_str()), (0, ""), "{ran:?}");
    // A worker without a leader reads the same acceptance.
    workspace.write("task.md", "do it");
    let alone = run(
        workspace.command("worker").args(["--task-file", "task.md"]),
        BUDGET,
    );
    assert_eq!(alone.code(), 0, "{alone:?}");

    let again = leader(&workspace, &["trust"]);
    assert_eq!(again.code(), 0, "{again:?}");
    assert!(
        again
            .stdout
            .contains("Exactly this content was accepted on ")
    );
}

#[test]
fn a_file_that_changes_loses_its_trust_and_says_so() {
    let workspace = wanting();
    assert_eq!(leader(&workspace, &["trust", "--yes"]).code(), 0);
    let file = workspace.read("muster.toml");
    workspace.write("muster.toml", format!("{file}# one more line\n"));
    let refused = leader(&workspace, &["run", "do it"]);
    assert_eq!(refused.code(), 3, "{refused:?}");
    assert!(
        refused.stderr.contains("has changed since it was accepted"),
        "{refused:?}"
    );
    assert_eq!(config(&workspace)["limits"]["max_concurrent"], 2);
    assert_eq!(shown(&workspace)["trust"], "changed");
    // The old content is still the one that was accepted.
    workspace.write("muster.toml", file);
    assert_eq!(shown(&workspace)["trust"], "accepted");

    let list = leader(&workspace, &["trust", "--list"]);
    assert_eq!(list.stdout.lines().count(), 1, "{list:?}");
    let revoked = leader(&workspace, &["trust", "--revoke", "--json"]);
    let file = workspace.join("muster.toml");
    assert_eq!(
        serde_json::from_str::<Value>(&revoked.stdout).unwrap(),
        json!({"success": true, "file": file, "revoked": true})
    );
    assert_eq!(shown(&workspace)["trust"], "never");
    assert_eq!(
        leader(&workspace, &["trust", "--list"]).stdout,
        "no file is accepted\n"
    );
}

/// Acceptance is a person's: a script that forgot `--yes` must not accept by accident, nor hang.
#[test]
fn where_nobody_can_be_asked_nothing_is_accepted() {
    let workspace = wanting();
    let refused = leader(&workspace, &["trust"]);
    assert_eq!(refused.code(), 2, "{refused:?}");
    assert!(
        refused.stderr.contains("nobody can be asked"),
        "{refused:?}"
    );
    assert!(
        refused.stdout.contains("models.theirs.model"),
        "{refused:?}"
    );
    assert_eq!(shown(&workspace)["trust"], "never");
}

/// Runs the command on a terminal of its own and types the answer.
fn answered(workspace: &Workspace, answer: &str) -> Ended {
    let leader = workspace.command("leader");
    let mut command = Command::new("python3");
    command
        .args([
            "-c",
            "import os, pty, sys; sys.exit(os.waitstatus_to_exitcode(pty.spawn(sys.argv[1:])))",
        ])
        .arg(leader.get_program())
        .arg("trust")
        .current_dir(workspace.path())
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap())
        .env("HOME", workspace.home());
    let (reader, mut writer) = std::io::pipe().unwrap();
    writer.write_all(answer.as_bytes()).unwrap();
    // The pipe stays open: its end would be the terminal's hang-up.
    let ended = system_tests::run_with_stdin(&mut command, Stdio::from(reader), BUDGET);
    drop(writer);
    ended
}

#[test]
fn a_person_is_asked_and_only_a_yes_accepts() {
    let workspace = wanting();
    for (answer, trust) in [("n\n", "never"), ("\n", "never"), ("yes\n", "accepted")] {
        let ended = answered(&workspace, answer);
        assert_eq!(ended.code(), 0, "{ended:?}");
        assert!(
            ended.stdout.contains("Accept exactly this content? [y/N]"),
            "{ended:?}"
        );
        assert_eq!(shown(&workspace)["trust"], trust, "{answer:?}");
    }
}

#[test]
fn a_file_that_could_not_be_used_is_not_accepted() {
    let workspace = wanting();
    let file = format!("{}[team]\n", theirs(&workspace));
    workspace.write("muster.toml", file);
    let refused = leader(&workspace, &["trust", "--yes"]);
    assert_eq!(refused.code(), 2, "{refused:?}");
    assert!(refused.stderr.contains("not accepted"), "{refused:?}");
    assert!(
        refused.stderr.contains("`team` is not available"),
        "{refused:?}"
    );
    workspace.write(
        "muster.toml",
        "language = \"en\"\n[limits]\ngrace_seconds = 1\n",
    );
    let tight = leader(&workspace, &["trust"]);
    assert_eq!(tight.code(), 0, "{tight:?}");
    assert!(tight.stdout.contains("wants nothing that needs your word"));
    std::fs::remove_file(workspace.join("muster.toml")).unwrap();
    let none = leader(&workspace, &["trust"]);
    assert!(none.stdout.contains("is not there"), "{none:?}");
}

/// An agent that works where the user's state lies could write its own acceptance.
#[test]
fn a_state_folder_that_agents_can_write_is_not_believed() {
    let workspace = wanting();
    let inside = workspace.join("state");
    let mut command = workspace.command("leader");
    command
        .args(["trust", "--yes"])
        .env("XDG_STATE_HOME", &inside);
    let refused = run(&mut command, BUDGET);
    assert_eq!(refused.code(), 2, "{refused:?}");
    assert!(
        refused.stderr.contains("lies in the workspace"),
        "{refused:?}"
    );
    assert!(!inside.exists());
    // A record that an agent put there by itself says nothing either.
    assert_eq!(leader(&workspace, &["trust", "--yes"]).code(), 0);
    let copied = Command::new("cp")
        .arg("-r")
        .arg(workspace.home().join(".local/state"))
        .arg(&inside)
        .status()
        .unwrap();
    assert!(copied.success());
    let mut command = workspace.command("leader");
    command
        .args(["config", "--json"])
        .env("XDG_STATE_HOME", &inside);
    let value: Value = serde_json::from_str(&run(&mut command, BUDGET).stdout).unwrap();
    assert_eq!(value["limits"]["max_concurrent"], 2);
}
