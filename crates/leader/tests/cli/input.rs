//! Bad input and machines that are not fit: each says what is wrong, and nothing is left behind.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::process::Command;

use serde_json::Value;

use crate::support::{DELIVERS, Place, Running};

/// Runs it, and checks the code, that stdout is empty, and that stderr holds each of the words.
fn refused(place: &Place, arguments: &[&str], code: i32, words: &[&str]) {
    let ended = place.run(arguments);
    assert_eq!(ended.code(), Some(code), "{arguments:?}: {ended:?}");
    assert_eq!(ended.stdout, "", "{arguments:?}");
    for word in words {
        assert!(
            ended.stderr.contains(word),
            "{arguments:?}: {word}: {ended:?}"
        );
    }
}

#[test]
fn what_is_no_task_is_told_by_name() {
    let place = Place::new(DELIVERS);
    let file = |name: &str, bytes: &[u8]| {
        fs::write(place.workspace().join(name), bytes).unwrap();
        name.to_owned()
    };
    refused(&place, &["run"], 2, &["no task was given", "--task-file"]);
    refused(&place, &["run", ""], 2, &["is empty"]);
    refused(&place, &["run", "-"], 2, &["stdin is empty"]);
    refused(&place, &["run", "--task-file", "none.md"], 2, &["none.md"]);
    let empty = file("empty.md", b"");
    refused(
        &place,
        &["run", "--task-file", &empty],
        2,
        &["empty.md` is empty"],
    );
    let large = file("large.md", &vec![b'x'; 5 << 20]);
    refused(
        &place,
        &["run", "--task-file", &large],
        2,
        &["200000", "hint:"],
    );
    let latin = file("latin.md", b"caf\xe9");
    refused(
        &place,
        &["run", "--task-file", &latin],
        2,
        &["UTF-8", "number 4"],
    );
    refused(&place, &["run", "--task-file", "."], 2, &["directory"]);
    assert!(!place.workspace().join(".muster").exists());
}

#[test]
fn a_deliverables_dir_that_leads_astray_is_refused_before_anything_is_made() {
    // Parent segments once led to other agents' files, and an absolute path was silently turned
    // into a relative one.
    let place = Place::new(DELIVERS);
    let workspace = place.workspace();
    let outside = place.path("outside");
    fs::create_dir(&outside).unwrap();
    symlink(&outside, workspace.join("link")).unwrap();
    fs::write(workspace.join("file"), "x").unwrap();
    fs::create_dir(workspace.join("full")).unwrap();
    fs::write(workspace.join("full/x"), "x").unwrap();
    let absolute = outside.join("x").display().to_string();
    for (given, word) in [
        ("../x", "`..`"),
        (&*absolute, "must be relative"),
        ("a/../../x", "`..`"),
        ("", "deliverables"),
        (".", "deliverables"),
        ("~/x", "~"),
        ("link", "link"),
        ("link/x", "link"),
        (".git", ".git"),
        (".muster/x", ".muster"),
        ("file", "file"),
        ("full", "not empty"),
    ] {
        refused(
            &place,
            &["run", "t", "--deliverables-dir", given],
            2,
            &[word],
        );
    }
    assert_eq!(fs::read_dir(&outside).unwrap().count(), 0);
    assert!(!place.path("x").exists());
    let reused = place.run(&[
        "run",
        "t",
        "--deliverables-dir",
        "full",
        "--reuse-deliverables-dir",
    ]);
    assert_eq!(reused.code(), Some(0), "{reused:?}");
}

#[test]
fn without_a_model_three_ways_are_named() {
    let place = Place::new(DELIVERS);
    place.unconfigure();
    let ways = ["no model", "OPENAI_API_KEY", "--model", "muster.toml"];
    refused(&place, &["run", "t"], 3, &ways);
    refused(&place, &["run", "t", "--model", "gpt"], 2, &["gpt"]);
}

#[test]
fn a_bad_configuration_is_named_with_file_line_and_range() {
    let place = Place::new(DELIVERS);
    for value in ["0", "-1", "1001", "\"3\"", "1.5"] {
        place.configure(&format!("[limits]\nmax_concurrent = {value}"));
        let words = ["muster.toml:2", "max_concurrent", "1000"];
        refused(&place, &["run", "t"], 2, &words);
        refused(&place, &["serve"], 2, &words);
    }
    place.configure("[limits]\nmax_concurent = 1");
    refused(
        &place,
        &["run", "t"],
        2,
        &["max_concurent", "max_concurrent"],
    );
}

#[test]
fn each_kind_of_missing_worker_has_its_own_words() {
    // The error once named the shell although the working directory was what was missing.
    let place = Place::new(DELIVERS);
    let path = |name: &str| place.path(name).display().to_string();
    fs::write(place.path("plain"), "#!/bin/sh\n").unwrap();
    fs::write(place.path("text"), "hello").unwrap();
    fs::set_permissions(place.path("text"), fs::Permissions::from_mode(0o755)).unwrap();
    for (name, word) in [
        ("none", "is not there"),
        ("plain", "is not executable"),
        ("text", "#!"),
        ("home", "is a directory"),
    ] {
        let worker = path(name);
        let words = [word, &*worker, "hint:"];
        refused(&place, &["run", "t", "--worker-bin", &worker], 3, &words);
    }
    assert!(!place.workspace().join(".muster/runs").exists());
}

#[test]
fn a_deadline_over_the_configured_one_is_refused() {
    let place = Place::new(DELIVERS);
    refused(
        &place,
        &["run", "t", "--timeout-seconds", "3601"],
        2,
        &["3600"],
    );
    place.configure("[limits]\ntimeout_seconds_max = 90\ntimeout_seconds_min = 1");
    refused(&place, &["run", "t", "--timeout-seconds", "91"], 2, &["90"]);
}

#[test]
fn a_directory_that_is_gone_or_closed_is_named() {
    let place = Place::new(DELIVERS);
    refused(&place, &["-C", "nowhere", "run", "t"], 2, &["-C nowhere"]);
    // The proc file system takes no files from anybody, root included.
    refused(&place, &["-C", "/proc", "run", "t"], 3, &["/proc", "hint:"]);
    let leader = env!("CARGO_BIN_EXE_leader");
    let mut shell = Command::new("/bin/sh");
    shell
        .args([
            "-c",
            "mkdir gone && cd gone && rmdir ../gone && exec \"$0\" run t",
            leader,
        ])
        .current_dir(place.path(""));
    let ended = Running::start(shell).end();
    assert_eq!(ended.code(), Some(2), "{ended:?}");
    assert!(ended.stderr.contains("present directory"), "{ended:?}");
}

#[test]
fn an_agent_starts_no_agents() {
    // Two calls once grew to hundreds of agents in minutes, because children could spawn.
    let place = Place::new(DELIVERS);
    for arguments in [&["run", "t"][..], &["serve"], &["ps"], &["demo"]] {
        let mut command = place.leader(arguments);
        command.env("MUSTER_NESTED", "1");
        let ended = Running::start(command).end();
        assert_eq!(ended.code(), Some(3), "{ended:?}");
        assert!(ended.stderr.contains("nested"), "{ended:?}");
    }
    let mut command = place.leader(&["run", "--json", "t"]);
    command.env("MUSTER_NESTED", "1");
    let refusal: Value = Running::start(command).end().json();
    assert_eq!(refusal["error"]["code"], "nested");
    assert!(!place.workspace().join(".muster").exists());
}

#[test]
fn what_a_later_version_has_is_refused_as_such() {
    let place = Place::new(DELIVERS);
    refused(&place, &["chat"], 2, &["not available in this version"]);
    refused(
        &place,
        &["run", "--worktree", "t"],
        2,
        &["`leader run --worktree`"],
    );
    refused(
        &place,
        &["run", "t", "--role-id"],
        2,
        &["`leader run --role-id`"],
    );
}
