//! A scope of the user's service manager, asked for by the leader itself. The manager here is a
//! small program that does what systemd-run(1) does with `--scope`, or fails as it does.

use std::os::unix::fs::PermissionsExt;
use std::process::Command;
use std::time::Duration;

use serde_json::Value;
use system_tests::{Delegated, Ended, Rung, Turn, Workspace, on_each, run};

const BUDGET: Duration = Duration::from_secs(60);

/// Writes its arguments down, and, unless it is to fail or to hang, makes a group for its own
/// process and becomes the command behind `--`.
const MANAGER: &str = r#"#!/bin/sh
echo "$*" >>"$HOME/asked"
case $(cat "$HOME/mood") in
    fails) echo 'Failed to connect to bus: No medium found' >&2; exit 1 ;;
    hangs) exec sleep 60 ;;
esac
while [ "$1" != -- ]; do shift; done
shift
scope=$SCOPES/run-$$.scope
mkdir "$scope" && echo $$ >"$scope/cgroup.procs" || exit 1
exec "$@"
"#;

/// A workspace whose user has such a manager, and the groups that it hands out.
struct Managed<'a> {
    workspace: &'a Workspace,
    delegated: &'a Delegated,
}

impl<'a> Managed<'a> {
    fn on(workspace: &'a Workspace, mood: &str) -> Self {
        let done = Turn::finish("there was nothing to do in this task");
        workspace.script("default", &[Turn::command("echo ran"), done]);
        workspace.configure("");
        let home = workspace.home();
        for folder in ["run/systemd", "managers"] {
            std::fs::create_dir_all(home.join(folder)).unwrap();
        }
        std::fs::write(home.join("run/systemd/private"), "").unwrap();
        std::fs::write(home.join("mood"), mood).unwrap();
        let manager = home.join("managers/systemd-run");
        // In place as a whole, for a file that is open for writing can't be executed.
        std::fs::write(home.join("manager.new"), MANAGER).unwrap();
        let mode = PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(home.join("manager.new"), mode).unwrap();
        std::fs::rename(home.join("manager.new"), manager).unwrap();
        Managed {
            workspace,
            delegated: workspace.delegated().unwrap(),
        }
    }

    fn leader(&self, arguments: &[&str]) -> Command {
        let home = self.workspace.home();
        let path = std::env::var("PATH").unwrap_or_default();
        let mut command = self.workspace.command("leader");
        command
            .args(arguments)
            .env_remove("MUSTER_CONFINEMENT_CGROUP")
            .env("XDG_RUNTIME_DIR", home.join("run"))
            .env("SCOPES", self.delegated.path())
            .env("PATH", format!("{}/managers:{path}", home.display()));
        command
    }

    fn run(&self, more: &[(&str, &str)]) -> Ended {
        let mut command = self.leader(&["run", "--json", "--summary", "runs in a scope", "go"]);
        command.envs(more.iter().copied());
        run(&mut command, BUDGET)
    }

    /// How often the manager was asked.
    fn asked(&self) -> Vec<String> {
        let text = std::fs::read_to_string(self.workspace.home().join("asked"));
        text.unwrap_or_default()
            .lines()
            .map(str::to_owned)
            .collect()
    }

    /// Removes the empty scopes, as the manager would; none of them has a tree's group left.
    fn collect(&self) {
        for scope in self.delegated.path().read_dir().unwrap().flatten() {
            if scope.file_name().to_string_lossy().ends_with(".scope") {
                std::fs::remove_dir(scope.path().join("leader")).ok();
                std::fs::remove_dir(scope.path()).unwrap();
            }
        }
    }
}

fn rung(ended: &Ended) -> Value {
    assert_eq!(ended.code(), 0, "{ended:?}");
    ended.json()["confinement"]["rung"].take()
}

#[test]
fn a_scope_of_the_service_manager_brings_the_highest_rung_by_itself() {
    on_each(&[Rung::Cgroup2], |ground| {
        let workspace = Workspace::on(ground);
        let managed = Managed::on(&workspace, "works");
        assert_eq!(rung(&managed.run(&[])), "cgroup2", "{ground:?}");
        let asked = managed.asked();
        let options = "--user --scope --quiet --collect --property Delegate=yes --";
        assert_eq!(asked[0], format!("{options} true"), "{ground:?}");
        let leader = workspace.executable("leader").canonicalize().unwrap();
        let whole = format!(
            "{options} {} run --json --summary runs in a scope go",
            leader.display()
        );
        assert_eq!(asked[1..], [whole], "{ground:?}");
        managed.collect();
        // Another directory keeps its place, and the doctor tells the same.
        let mut doctor = managed.leader(&["-C", "..", "doctor", "--json"]);
        let report = run(doctor.env("OLLAMA_HOST", "127.0.0.1:1"), BUDGET).json();
        let enforced = &report["confinement"]["enforced"]["rung"];
        assert_eq!(enforced, "cgroup2", "{ground:?}: {report}");
        managed.collect();
        // Whoever names a directory, wants less, or wants none is not brought there.
        std::fs::remove_file(workspace.home().join("asked")).unwrap();
        let own = workspace.delegated().unwrap().path().to_str().unwrap();
        for (variable, expected) in [
            (("MUSTER_CONFINEMENT_HIGHEST", "pidns"), "pidns"),
            (("MUSTER_SCOPE", "off"), "pidns"),
            (("MUSTER_CONFINEMENT_CGROUP", own), "cgroup2"),
        ] {
            let ended = managed.run(&[variable]);
            assert_eq!(rung(&ended), expected, "{ground:?} {variable:?}");
        }
        assert_eq!(managed.asked(), [""; 0], "{ground:?}");
    });
}

#[test]
fn a_service_manager_that_fails_or_hangs_costs_a_rung_and_no_run() {
    on_each(&[Rung::Cgroup2], |ground| {
        for (mood, most) in [("fails", 10), ("hangs", 15)] {
            let workspace = Workspace::on(ground);
            let managed = Managed::on(&workspace, mood);
            let ended = managed.run(&[]);
            assert_eq!(rung(&ended), "pidns", "{ground:?} {mood}");
            assert!(ended.took < Duration::from_secs(most), "{:?}", ended.took);
            assert_eq!(managed.asked().len(), 1, "{ground:?} {mood}");
            assert_eq!(ended.stderr, "", "{ground:?} {mood}");
        }
    });
}
