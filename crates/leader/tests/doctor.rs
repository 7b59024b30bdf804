//! `leader doctor` with executables that are not what they should be.

#![expect(
    clippy::disallowed_methods,
    reason = "tests measure, wait and start processes themselves"
)]
#![expect(
    clippy::unwrap_used,
    reason = "what a test needs and does not get ends the test"
)]

use std::fs;
use std::io::Read;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

/// Long enough for anything on a busy machine; never waited out when all is well.
const BUDGET: Duration = Duration::from_secs(60);

/// The jail lies in the folder above the test's own executable, once the workspace is built.
fn jail() -> PathBuf {
    let own = std::env::current_exe().unwrap();
    let jail = own.parent().unwrap().parent().unwrap().join("jail");
    assert!(jail.is_file(), "no `jail`: run `cargo build -p confine`");
    jail
}

/// Writes an executable script. It is renamed into its place, because a file that is open for
/// writing, also by another test's child, can't be executed.
fn script(folder: &Path, name: &str, body: &str) -> PathBuf {
    let (beside, path) = (folder.join("new"), folder.join(name));
    fs::write(&beside, format!("#!/bin/sh\n{body}\n")).unwrap();
    fs::set_permissions(&beside, fs::Permissions::from_mode(0o755)).unwrap();
    fs::rename(&beside, &path).unwrap();
    path
}

fn doctor(folder: &Path, worker: &Path, jail: &Path) -> (Output, Value) {
    let output = Command::new(env!("CARGO_BIN_EXE_leader"))
        .args(["doctor", "--json"])
        .current_dir(folder)
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap())
        .env("HOME", folder)
        .env("MUSTER_DEFAULT_MODEL", "script:replies.jsonl")
        .env("MUSTER_WORKER", worker)
        .env("MUSTER_JAIL", jail)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let report = serde_json::from_slice(&output.stdout).unwrap();
    (output, report)
}

fn program<'a>(report: &'a Value, name: &str) -> &'a Value {
    let all = report["programs"].as_array().unwrap();
    all.iter().find(|program| program["name"] == name).unwrap()
}

#[test]
fn executables_that_are_missing_are_named_with_where_they_were_looked_for() {
    let folder = tempfile::tempdir().unwrap();
    let missing = folder.path().join("none");
    let (output, report) = doctor(folder.path(), &missing, &missing);
    assert_eq!(output.status.code(), Some(3), "{report}");
    for name in ["worker", "jail"] {
        let problem = program(&report, name)["problem"]["message"]
            .as_str()
            .unwrap();
        assert_eq!(
            problem,
            format!("{name} `{}` is not there", missing.display())
        );
    }
    assert_eq!(report["confinement"]["enforced"], Value::Null);
}

#[test]
fn an_executable_in_the_place_of_the_jail_gives_no_confinement() {
    let folder = tempfile::tempdir().unwrap();
    let jail = script(folder.path(), "jail", "echo nonsense");
    let worker = script(folder.path(), "worker", "echo mine 3");
    let (output, report) = doctor(folder.path(), &worker, &jail);
    assert_eq!(output.status.code(), Some(3), "{report}");
    let problem = report["confinement"]["problem"]["message"]
        .as_str()
        .unwrap();
    assert!(problem.contains("nonsense"), "{problem}");
}

#[test]
fn a_worker_whose_interpreter_is_missing_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let worker = script(folder.path(), "worker", "");
    fs::write(folder.path().join("new"), "#!/no/such/interpreter\n").unwrap();
    fs::copy(folder.path().join("new"), folder.path().join("odd")).unwrap();
    fs::set_permissions(folder.path().join("odd"), fs::Permissions::from_mode(0o755)).unwrap();
    let (output, report) = doctor(folder.path(), &folder.path().join("odd"), &jail());
    assert_eq!(output.status.code(), Some(3), "{report}");
    let problem = program(&report, "worker")["problem"]["message"]
        .as_str()
        .unwrap();
    assert!(
        problem.starts_with("`worker` can't be started: "),
        "{problem}"
    );
    // One that says nothing is no problem: who knows what foreign workers take.
    let (output, report) = doctor(folder.path(), &worker, &jail());
    assert_eq!(output.status.code(), Some(0), "{report}");
    assert_eq!(
        *program(&report, "worker"),
        json!({"name": "worker", "path": worker, "version": null, "problem": null})
    );
}

/// A foreign worker may take `--version` for a task and begin to work.
#[test]
fn a_worker_that_does_something_else_than_tell_its_version_leaves_nothing_behind() {
    let folder = tempfile::tempdir().unwrap();
    let pipe = folder.path().join("live");
    nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).unwrap();
    let mut reader = fs::OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_NONBLOCK)
        .open(&pipe)
        .unwrap();
    let escape = "exec 9>live; echo up >&9; setsid sleep 60 >/dev/null 2>&1 & echo mine 3";
    let worker = script(folder.path(), "worker", escape);
    let (output, report) = doctor(folder.path(), &worker, &jail());
    assert_eq!(output.status.code(), Some(0), "{report}");
    assert_eq!(program(&report, "worker")["version"], "mine 3");
    let start = Instant::now();
    let mut said = String::new();
    // The end of file comes with the end of the last holder.
    while reader.read_to_string(&mut said).is_err() {
        assert!(start.elapsed() < BUDGET, "it still lives");
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(said, "up\n");
}
