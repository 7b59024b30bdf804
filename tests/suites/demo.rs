//! The demo, as somebody sees it who has just built the product.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::json;
use system_tests::{Ended, Rung, Workspace, on_each, run, until};

const BUDGET: Duration = Duration::from_secs(60);
/// A person waits no longer than this; without load it takes six seconds.
const DEMO_BUDGET: Duration = Duration::from_secs(20);

/// Where a demo makes its workspace, so that what it leaves can be seen.
fn ground_of(workspace: &Workspace) -> PathBuf {
    let folder = workspace.join("tmp");
    std::fs::create_dir_all(&folder).unwrap();
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o777);
    std::fs::set_permissions(&folder, mode).unwrap();
    folder
}

fn demo(workspace: &Workspace, arguments: &[&str]) -> Command {
    let mut command = workspace.command("leader");
    command
        .arg("demo")
        .args(arguments)
        .env("TMPDIR", ground_of(workspace));
    command
}

fn entries(folder: &Path) -> usize {
    std::fs::read_dir(folder).unwrap().count()
}

/// Every claim of the story is one about real processes, so that it must hold on each rung, told
/// as it is there.
#[test]
fn the_story_comes_true_on_every_rung_and_is_told_as_it_is_there() {
    on_each(&[Rung::Pidns, Rung::Subreaper, Rung::Group], |ground| {
        let workspace = Workspace::on(ground);
        let folder = ground_of(&workspace);
        let mut command = demo(&workspace, &["--json"]);
        let ended = run(&mut command, BUDGET);
        assert_eq!(
            (ended.code(), ended.stderr.as_str()),
            (0, ""),
            "{ground:?}: {ended:?}"
        );
        let told = ended.json();
        assert_eq!(told["untruths"], json!([]), "{told}");
        let ends: Vec<&str> = told["agents"]
            .as_array()
            .unwrap()
            .iter()
            .map(|agent| agent["status"].as_str().unwrap())
            .collect();
        assert_eq!(ends, ["completed", "timed_out", "completed"]);
        assert_eq!(told["agents"][1]["partial_results"], true);
        let rung = told["left_behind"]["rung"].as_str().unwrap();
        let fate = match rung {
            "group" => "ended_by_the_demo",
            _ => "died_with_its_agent",
        };
        assert_eq!(told["left_behind"]["fate"], fate, "{rung}");
        assert_eq!(entries(&folder), 0, "{ground:?}");
    });
}

fn told(workspace: &Workspace, arguments: &[&str]) -> Ended {
    let ended = run(&mut demo(workspace, arguments), BUDGET);
    assert_eq!((ended.code(), ended.stderr.as_str()), (0, ""), "{ended:?}");
    ended
}

#[test]
fn the_story_is_short_plain_and_fits_into_80_columns() {
    let workspace = Workspace::new();
    let ended = told(&workspace, &["-q"]);
    assert!(ended.took < DEMO_BUDGET, "{:?}", ended.took);
    assert!(!ended.stdout.contains('\u{1b}'), "{ended:?}");
    for line in ended.stdout.lines() {
        assert!(
            line.chars().count() <= 80 || line.contains("leader"),
            "{line}"
        );
    }
    for part in [
        "      - tuesday: water the plants (today)\n",
        "agent 2  timed_out (deadline)\n",
        "      # Report (draft)\n",
        "\nAll of it came true, in ",
        "Everything of the demo is removed again.",
    ] {
        assert!(ended.stdout.contains(part), "{part}: {ended:?}");
    }
    assert_eq!(entries(&ground_of(&workspace)), 0);
}

/// What is recommended to somebody new must work as it is written.
#[test]
fn a_kept_workspace_is_where_it_says_and_every_command_it_names_works() {
    let workspace = Workspace::new();
    let ended = told(&workspace, &["--keep"]);
    assert_eq!(entries(&ground_of(&workspace)), 1);
    let (_, next) = ended.stdout.split_once("Where to look next:\n").unwrap();
    let commands: Vec<&str> = next.lines().map(str::trim).collect();
    assert_eq!(commands.len(), 4, "{next}");
    let mut said = Vec::new();
    for command in commands {
        let shell = run(
            Command::new("sh")
                .args(["-c", command])
                .env_clear()
                .env("PATH", std::env::var_os("PATH").unwrap())
                .env("HOME", workspace.home()),
            BUDGET,
        );
        assert_eq!(shell.code(), 0, "{command}: {shell:?}");
        said.push(shell.stdout);
    }
    assert!(said[0].contains("Collect the open points"), "{}", said[0]);
    assert!(said[1].contains("search_workspace"), "{}", said[1]);
    assert!(said[2].contains("timed_out"), "{}", said[2]);
    assert!(said[3].contains("\"status\": \"timed_out\"") || said[3].contains("timed_out"));
}

/// Whoever breaks it off wants nothing of it left: no file, and no process on any rung.
#[test]
fn a_demo_that_is_broken_off_leaves_nothing() {
    on_each(&[Rung::Pidns, Rung::Group], |ground| {
        let workspace = Workspace::on(ground);
        let folder = ground_of(&workspace);
        // Every process below inherits this pipe's writing end, if it holds on to its stderr.
        let mut child = demo(&workspace, &["--keep"])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        // The third agent has left its process behind by then, and the second is at work.
        let seen = lines.find(|line| line.as_ref().unwrap().contains("agent 3  completed"));
        assert!(seen.is_some(), "{ground:?}");
        let pid = Pid::from_raw(i32::try_from(child.id()).unwrap());
        kill(pid, Signal::SIGINT).unwrap();
        let status = until(BUDGET, || child.try_wait().unwrap()).unwrap();
        assert_eq!(status.code(), Some(130), "{ground:?}");
        let said = std::io::read_to_string(child.stderr.take().unwrap()).unwrap();
        assert!(
            said.contains("everything of the demo is ended and removed"),
            "{said}"
        );
        assert_eq!(entries(&folder), 0, "{ground:?}");
    });
}
