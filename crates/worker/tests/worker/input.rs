//! Bad input, and what is printed without a run.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::process::Command;

use serde_json::{Value, json};

use crate::harness::{Place, finishes, stderr, stdout};

fn place() -> Place {
    Place::new(json!([finishes(true)]))
}

/// Runs it and wants it refused with these words; the workspace must be as it was.
fn assert_refused(place: &Place, command: &mut Command, words: &[&str]) {
    let before = entries(place);
    let output = command.output().unwrap();
    let shown = stderr(&output);
    assert_eq!(output.status.code(), Some(2), "{words:?}: {shown}");
    assert_eq!(stdout(&output), "");
    for word in words {
        assert!(shown.contains(word), "{word}: {shown}");
    }
    assert!(!shown.contains("panicked"), "{shown}");
    assert_eq!(entries(place), before);
}

fn entries(place: &Place) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(place.workspace())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

#[test]
fn a_task_that_no_agent_can_get_is_refused() {
    let place = place();
    let task = place.path("task.md");
    for (content, word) in [
        (Some(Vec::new()), "is empty"),
        (Some(vec![b'x'; 5_000_000]), "is larger than 200000 bytes"),
        (Some(b"caf\xe9".to_vec()), "is not UTF-8"),
        (None, "does not exist"),
    ] {
        match content {
            Some(bytes) => fs::write(&task, bytes).unwrap(),
            None => fs::remove_file(&task).unwrap(),
        }
        assert_refused(&place, &mut place.run(), &["task.md", word]);
    }
}

#[test]
fn a_place_that_will_not_do_is_refused() {
    let place = place();
    let workspace = place.workspace();
    symlink("/tmp", workspace.join("link")).unwrap();
    fs::write(workspace.join("file"), "x").unwrap();
    fs::create_dir(workspace.join("full")).unwrap();
    fs::write(workspace.join("full/x"), "x").unwrap();
    let with = |flag: &str, value: &str| {
        let mut command = place.worker();
        command.args(["--task-file=task.md", "--model=script:script.yaml"]);
        if flag != "--workspace" {
            command.arg("--workspace=ws");
        }
        command.arg(format!("{flag}={value}"));
        command
    };
    for (value, word) in [
        ("/tmp/x", "relative"),
        ("../x", "`..`"),
        ("link/x", "out of the workspace"),
        ("file", "no directory"),
        (".git/x", "version control"),
        ("full", "holds something already"),
    ] {
        let mut command = with("--deliverables-dir", value);
        assert_refused(&place, &mut command, &[value, word, "hint: "]);
    }
    let mut reused = with("--deliverables-dir", "full");
    let output = reused.arg("--reuse-deliverables-dir").output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));

    for (value, word) in [("nowhere", "does not exist"), ("task.md", "no directory")] {
        let mut command = with("--workspace", value);
        assert_refused(&place, &mut command, &[value, word]);
    }
}

#[test]
fn a_workspace_that_can_not_be_written_is_refused() {
    let place = place();
    // Permissions do not hold root; a file in the way of the folder holds everyone.
    fs::write(place.path("ws/sub_agent_results"), "in the way").unwrap();
    let mut command = place.worker();
    command.args([
        "--task-file=task.md",
        "--workspace=ws",
        "--model=script:script.yaml",
        "--agent-id=1",
    ]);
    assert_refused(&place, &mut command, &["cannot make", "writable", "hint: "]);
    if !nix::unistd::geteuid().is_root() {
        let mode = |mode| fs::set_permissions(place.workspace(), PermissionsExt::from_mode(mode));
        mode(0o555).unwrap();
        assert_refused(&place, &mut place.run(), &["cannot make", "writable"]);
        mode(0o755).unwrap();
    }
}

#[test]
fn a_command_line_that_does_not_fit_is_refused() {
    let place = place();
    for (arguments, words) in [
        (&["--timeout-seconds=0"][..], &["1 to 3600"][..]),
        (&["--timeout-seconds=3601"], &["1 to 3600"]),
        (&["--summary="], &["--summary has 0 characters"]),
        (&["--agent=researcher"], &["not available in this version"]),
        (&["--resume"], &["--job"]),
        (&["--lang=fr"], &["fr", "zh"]),
        (&["--max-turn=3"], &["--max-turns"]),
        (&["--channel=stdio"], &["--job"]),
    ] {
        assert_refused(&place, place.run().args(arguments), words);
    }
    let mut nothing = place.worker();
    assert_refused(&place, &mut nothing, &["--task-file"]);
}

#[test]
fn without_a_model_three_ways_to_go_on_are_named() {
    let place = place();
    let mut command = place.worker();
    command.args(["--task-file=task.md", "--workspace=ws"]);
    let ways = ["OPENAI_API_KEY", "--model", "muster.toml"];
    assert_refused(&place, &mut command, &ways);

    let mut unknown = place.worker();
    unknown.args(["--task-file=task.md", "--workspace=ws", "--model=qwen"]);
    assert_refused(&place, &mut unknown, &["qwen", "hint: "]);
}

#[test]
fn a_configuration_with_a_mistake_is_named_with_its_line() {
    let place = place();
    fs::create_dir_all(place.path(".config/muster")).unwrap();
    let file = place.path(".config/muster/muster.toml");
    fs::write(&file, "language = \"en\"\n[limits]\nmax_turnz = 3\n").unwrap();
    assert_refused(&place, &mut place.run(), &["muster.toml:3", "max_turnz"]);
    let missing = place.path("other.toml");
    let mut command = place.run();
    command.env("MUSTER_CONFIG", &missing);
    assert_refused(&place, &mut command, &["other.toml", "does not exist"]);
}

#[test]
fn a_configured_model_language_and_limit_are_used() {
    let place = place();
    fs::create_dir_all(place.path(".config/muster")).unwrap();
    let script = place.path("script.yaml");
    let text = format!(
        "language = \"zh\"\n[limits]\ntimeout_seconds_max = 300\n\
         [models.demo]\nprovider = \"script\"\nmodel = \"{}\"\n",
        script.display()
    );
    fs::write(place.path(".config/muster/muster.toml"), text).unwrap();
    let output = place
        .worker()
        .args(["--task-file=task.md", "--workspace=ws", "--dry-run"])
        .output()
        .unwrap();
    let shown: Value = serde_json::from_str(&stdout(&output)).unwrap();
    let job = &shown["job"];
    assert_eq!(job["model"]["key"], "demo");
    assert_eq!(job["language"], "zh");
    assert_eq!(job["limits"]["timeout_seconds"], 300);
}

#[test]
fn a_dry_run_prints_everything_and_runs_nothing() {
    let place = place();
    let output = place.run().args(["--dry-run"]).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert_eq!(entries(&place), Vec::<String>::new());
    let mut shown: Value = serde_json::from_str(&stdout(&output)).unwrap();
    for made in ["sub_conversation_id", "task_id", "created_at"] {
        assert!(shown["job"][made].is_string());
        shown["job"][made] = Value::Null;
    }
    let model = &mut shown["job"]["model"];
    assert_eq!(model["model"], place.path("script.yaml").to_str().unwrap());
    assert_eq!(model["provider"], "script");
    *model = Value::Null;
    let tools = [
        "read_file",
        "write_file",
        "edit_file",
        "search_workspace",
        "run_command",
        "check_background",
        "stop_background",
        "read_mediafile",
        "web_search",
        "extract_webpage",
        "read_skill",
        "finish_task",
    ];
    assert_eq!(
        shown["job"],
        json!({
            "format": 1, "conversation": null, "sub_conversation_id": null, "agent_id": 1,
            "task_id": null, "role_id": null, "display_name": "Sub-agent 1",
            "summary": "Write a greeting into a.txt", "language": "en",
            "workspace": place.workspace(), "deliverables_dir": "out", "write_paths": [],
            "completion": "finish_task", "tools": tools, "model": null,
            "limits": {"timeout_seconds": 600, "max_turns": 50, "grace_seconds": 5,
                       "answer_timeout_seconds": 600, "max_total_tokens": null},
            "confinement": {"write": "workspace", "network": "full", "git": "read",
                            "env_allow": []},
            "web": null, "prompts_dir": null, "created_at": null, "attempt": 1, "resumes": null})
    );
    let offered: Vec<&str> = shown["tools"]
        .as_array()
        .unwrap()
        .iter()
        .map(|tool| tool["name"].as_str().unwrap())
        .collect();
    // There is neither a skill here, nor a model that sees, nor a section for the web.
    let useless = [
        "read_mediafile",
        "web_search",
        "extract_webpage",
        "read_skill",
    ];
    let with_use = tools.iter().filter(|tool| !useless.contains(tool));
    assert_eq!(offered, with_use.copied().collect::<Vec<_>>());
    let messages = shown["messages"].as_array().unwrap();
    assert_eq!(messages.len(), 2);
    assert!(messages[1]["content"].as_str().unwrap().contains("a.txt"));
    assert_eq!(shown["warnings"], json!([]));
}

#[test]
fn help_is_printed_and_ends_well() {
    let place = place();
    for flag in ["--help", "-h", "--version"] {
        let output = place.worker().arg(flag).output().unwrap();
        assert_eq!(output.status.code(), Some(0));
        assert!(stdout(&output).contains("worker") || stdout(&output).contains("Run one agent"));
    }
}

#[test]
fn a_channel_that_is_none_is_refused() {
    let place = place();
    assert!(place.run().output().unwrap().status.success());
    let output = place
        .worker()
        .args(["--channel=stdio", "--job"])
        .arg(place.own_file("job.json"))
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("must be a pipe or a socket"));
}
