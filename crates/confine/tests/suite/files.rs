//! Where a tree may write and what it may not see: each attack is tried in a real tree, at each
//! mode, by the program itself and by a command of its keeper.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use confine::files::{AgentPlaces, FilePolicy, GitAccess, WriteMode, Writes};
use confine::policy::JailPolicy;
use confine::report::{FilesystemGuard, JailLine, Rung};

use crate::keeping::{ask, reports};
use crate::support::{
    BUDGET, Finished, User, exactly, public_dir, start_heard, start_script, users,
};

const MODES: [WriteMode; 2] = [WriteMode::Workspace, WriteMode::Scope];

/// A workspace with everything that is protected in one, below a home with secrets in it, all of
/// it writable by every user.
struct Place {
    _keep: tempfile::TempDir,
    home: PathBuf,
    workspace: PathBuf,
}

impl Place {
    fn new() -> Place {
        Place::below(public_dir())
    }

    /// Outside `/tmp`, which is covered: what is there is there as it is.
    fn in_sight() -> Place {
        let keep = tempfile::tempdir_in("/var/tmp").unwrap();
        Place::below(keep)
    }

    fn below(keep: tempfile::TempDir) -> Place {
        let home = keep.path().canonicalize().unwrap();
        let workspace = home.join("w");
        for directory in [
            ".ssh",
            "w/.git/hooks",
            "w/.muster/cache",
            "w/.muster/runs",
            "w/.claude",
            "w/src",
            "w/sub_agent_results/agent_1/.subagent",
            "w/sub_agent_results/agent_2",
        ] {
            fs::create_dir_all(home.join(directory)).unwrap();
        }
        for (file, text) in [
            (".ssh/id", "secret-key\n"),
            (".netrc", "secret-word\n"),
            ("outside", "untouched\n"),
            ("w/.git/config", "[core]\n"),
            ("w/muster.toml", "\n"),
            ("w/.mcp.json", "{}\n"),
        ] {
            fs::write(home.join(file), text).unwrap();
        }
        let place = Place {
            _keep: keep,
            home,
            workspace,
        };
        open_to_all(&place.home);
        place
    }

    fn places(&self, mode: WriteMode) -> AgentPlaces {
        let deliverables = self.workspace.join("sub_agent_results/agent_1");
        AgentPlaces {
            mode,
            writes: Writes::Granted,
            git: GitAccess::Read,
            workspace: self.workspace.clone(),
            own: deliverables.join(".subagent"),
            deliverables,
            write_paths: Vec::new(),
            secrets: vec![self.home.join(".ssh"), self.home.join(".netrc")],
        }
    }

    fn policy(&self, mode: WriteMode) -> JailPolicy {
        self.holding(self.places(mode).policy())
    }

    fn holding(&self, files: FilePolicy) -> JailPolicy {
        JailPolicy {
            workspace: Some(self.workspace.clone()),
            files: Some(files),
            ..exactly(Rung::Pidns)
        }
    }

    /// Everything in it with its kind, mode and text, but for what an agent may write.
    fn state(&self) -> Vec<String> {
        let mut found = Vec::new();
        list(&self.home, &mut found);
        found.retain(|line| !line.contains("/agent_1") && !line.contains("/.muster/cache"));
        found.sort();
        found
    }
}

fn list(directory: &Path, found: &mut Vec<String>) {
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        let meta = path.symlink_metadata().unwrap();
        let text = match meta.is_file() {
            true => String::from_utf8_lossy(&fs::read(&path).unwrap()).into_owned(),
            false => String::new(),
        };
        let (mode, kind) = (meta.permissions().mode(), meta.file_type());
        found.push(format!("{} {mode:o} {kind:?} {text}", path.display()));
        if meta.is_dir() {
            list(&path, found);
        }
    }
}

fn open_to_all(directory: &Path) {
    let mut found = vec![directory.to_owned()];
    while let Some(path) = found.pop() {
        let is_dir = path.is_dir();
        let mode = if is_dir { 0o777 } else { 0o666 };
        fs::set_permissions(&path, PermissionsExt::from_mode(mode)).unwrap();
        if is_dir {
            found.extend(
                fs::read_dir(&path)
                    .unwrap()
                    .map(|entry| entry.unwrap().path()),
            );
        }
    }
}

/// Runs a script as the program itself.
fn by_program(user: User, policy: &JailPolicy, script: &str) -> Finished {
    start_script(user, policy, script).finish()
}

/// Runs a script as a command that the keeper starts; gives what it printed.
fn by_command(user: User, policy: &JailPolicy, script: &str) -> String {
    let cwd = policy.workspace.as_ref().unwrap().to_str().unwrap();
    let wish = serde_json::json!({"argv": ["/bin/bash", "-c", script], "cwd": cwd});
    let end = ask(user, policy, &wish.to_string());
    let (_, rest) = reports(&end);
    let own = rest.iter().filter(|line| !line.starts_with("processes "));
    own.map(|line| format!("{line}\n")).collect()
}

/// What is tried, each line on its own; it prints the number of each attempt that succeeded.
fn attempts(lines: &[String]) -> String {
    let tries = lines
        .iter()
        .enumerate()
        .map(|(number, line)| format!("({line}) >/dev/null 2>&1 && echo {number}\n"));
    let all: String = tries.collect();
    format!("{all}echo done")
}

/// Attempts that must fail in each mode, on a place whose home is `home`.
fn outside_and_protected(home: &str) -> Vec<String> {
    let w = format!("{home}/w");
    [
        // Outside, directly and on the way of links, and by what is no write of a file.
        "echo x > HOME/new",
        "echo x >> HOME/outside",
        "truncate -s 0 HOME/outside",
        "chmod 600 HOME/outside",
        "chown 0:0 HOME/outside",
        "touch HOME/outside",
        "touch -d 2001-01-01 HOME/outside",
        "rm HOME/outside",
        "mv HOME/outside HOME/other",
        "ln HOME/outside W/sub_agent_results/agent_1/hard && echo x > W/sub_agent_results/agent_1/hard",
        "ln -s HOME/outside W/sub_agent_results/agent_1/l && echo x > W/sub_agent_results/agent_1/l",
        "cd W/sub_agent_results/agent_1 && ln -sfn HOME d && echo x > d/through",
        "exec 5<HOME/outside && echo x > /proc/self/fd/5",
        "mknod HOME/node p",
        "mkfifo HOME/fifo",
        "python3 -c \"open('HOME/new','w')\"",
        "python3 -c \"import os; os.open('HOME', os.O_TMPFILE | os.O_RDWR)\"",
        "python3 -c \"import os; os.utime('HOME/outside')\"",
        // What is protected in the workspace, and the names that it stands on.
        "echo x > W/.git/hooks/pre-commit",
        "echo x >> W/.git/config",
        "git -C W config a.b c",
        "echo x > W/.git/commondir",
        "mv W/.git W/gone",
        "mv W/.git/config W/.git/gone",
        "rm -r W/.git/hooks",
        "cp -r W/.git W/.muster/cache/g && rm -rf W/.git && mv W/.muster/cache/g W/.git",
        "echo x > W/muster.toml",
        "mv W/muster.toml W/gone.toml",
        "echo x > W/.t && { mv -f W/.t W/muster.toml; e=$?; rm -f W/.t; exit $e; }",
        "rm W/.mcp.json",
        "echo x > W/.mcp.json",
        "echo x > W/.claude/x",
        "echo x > W/.muster/x",
        "echo x > W/.muster/runs/x",
        "mv W/.muster W/.m2",
        "echo x > W/sub_agent_results/agent_2/x",
        "mkdir W/sub_agent_results/agent_3",
        "mv W/sub_agent_results W/s2",
        "mv W/sub_agent_results/agent_1 W/sub_agent_results/agent_9",
        "mv W HOME/w2",
        // Around the mounts.
        "umount W/.git",
        "umount -l W/.git",
        "mount -o remount,rw,bind W/.git",
        "mount --bind HOME W/sub_agent_results/agent_1",
        "unshare -m umount W/.git",
        "unshare -Urm umount W/.git",
        "unshare -Urm mount -o remount,rw,bind /",
        "nsenter -t 1 -m true",
        "echo x > /proc/1/root/HOME/new",
        "echo x > /proc/1/cwd/new",
        "ls /proc/1/root/",
        // Secrets.
        "grep -r secret HOME/.ssh",
        "grep secret HOME/.netrc",
        "cat ../.ssh/id",
        "cat /proc/self/cwd/../.ssh/id",
        "echo x > HOME/.ssh/new",
        // The machine.
        "echo x > /etc/muster-test",
        "echo 1 > /proc/sys/kernel/panic_on_oops",
        "ls /run/* && [ \"$(find /run -type s | head -1)\" ]",
    ]
    .map(|line| line.replace("HOME", home).replace("W/", &format!("{w}/")).replace("mv W ", &format!("mv {w} ")).replace("-C W ", &format!("-C {w} ")))
    .to_vec()
}

#[test]
fn in_both_modes_nothing_is_written_outside_and_nothing_protected_and_no_secret_is_read() {
    for user in users() {
        for mode in MODES {
            let place = Place::in_sight();
            let before = place.state();
            let script = attempts(&outside_and_protected(place.home.to_str().unwrap()));
            let end = by_program(user, &place.policy(mode), &script);
            assert_eq!(end.output, "done\n", "{user:?} {mode:?}: the program");
            let confinement = end.started.unwrap().confinement;
            let guard = match mode {
                WriteMode::Workspace => FilesystemGuard::Workspace,
                WriteMode::Scope => FilesystemGuard::Scope,
            };
            assert_eq!(confinement.filesystem, guard, "{:?}", confinement.gaps);
            let said = by_command(user, &place.policy(mode), &script);
            assert_eq!(said, "done\n", "{user:?} {mode:?}: a command");
            assert_eq!(place.state(), before, "{user:?} {mode:?}");
        }
    }
}

#[test]
fn what_was_given_can_be_written_and_nothing_else_of_the_workspace_in_a_scope() {
    let lines = [
        "echo x > new",
        "echo x > src/new",
        "echo x > sub_agent_results/agent_1/new",
        "echo x > .muster/cache/new",
        "echo x > $(mktemp)",
        "echo x > /dev/shm/x && echo x > /dev/null",
        "mv sub_agent_results/agent_1/new sub_agent_results/agent_1/other",
        "rm sub_agent_results/agent_1/other",
        "echo x > sub_agent_results/agent_1/.subagent/x",
    ]
    .map(str::to_owned);
    let all = |numbers: &[u8]| {
        let lines: String = numbers.iter().map(|number| format!("{number}\n")).collect();
        format!("{lines}done\n")
    };
    for user in users() {
        for place in [Place::new(), Place::in_sight()] {
            let wide = place.policy(WriteMode::Workspace);
            let end = by_program(user, &wide, &attempts(&lines));
            assert_eq!(end.output, all(&[0, 1, 2, 3, 4, 5, 6, 7, 8]), "{user:?}");
            let said = by_command(user, &wide, &attempts(&lines));
            assert_eq!(said, all(&[0, 1, 2, 3, 4, 5, 6, 7]), "{user:?}");
            let narrow = place.policy(WriteMode::Scope);
            let end = by_program(user, &narrow, &attempts(&lines));
            assert_eq!(end.output, all(&[2, 3, 4, 5, 6, 7, 8]), "{user:?}");
            let said = by_command(user, &narrow, &attempts(&lines));
            assert_eq!(said, all(&[2, 3, 4, 5, 6, 7]), "{user:?}");
            assert!(place.workspace.join(".muster/cache/new").exists());
        }
    }
}

/// A directory that holds something protected was renamed, copied back, and the copy changed.
#[test]
fn a_directory_above_the_agents_records_can_not_be_moved_away() {
    for user in users() {
        let place = Place::in_sight();
        let deliverables = place.workspace.join("docs/api");
        fs::create_dir_all(deliverables.join(".subagent")).unwrap();
        open_to_all(&place.workspace.join("docs"));
        let places = AgentPlaces {
            own: deliverables.join(".subagent"),
            deliverables,
            ..place.places(WriteMode::Workspace)
        };
        let lines = [
            "mv docs gone",
            "mv docs/api docs/gone",
            "mv docs/api/.subagent docs/api/gone",
            "rm -rf docs/api/.subagent",
            "echo x > docs/api/.subagent/x",
            "echo x > docs/api/fine",
        ]
        .map(str::to_owned);
        let policy = place.holding(places.policy());
        let said = by_command(user, &policy, &attempts(&lines));
        assert_eq!(said, "5\ndone\n", "{user:?}");
    }
}

#[test]
fn an_agent_without_writing_tools_has_commands_that_write_nothing() {
    for user in users() {
        let place = Place::in_sight();
        let places = AgentPlaces {
            writes: Writes::ReadOnly,
            ..place.places(WriteMode::Workspace)
        };
        let lines = [
            "echo x > w.txt",
            "sed -i s/a/b/ muster.toml",
            "git commit --allow-empty -m x",
            "echo x > sub_agent_results/agent_1/x",
            "echo x > /tmp/x",
        ]
        .map(str::to_owned);
        let policy = place.holding(places.policy());
        assert_eq!(by_command(user, &policy, &attempts(&lines)), "4\ndone\n");
    }
}

/// The name of what is protected was replaced from outside, as an editor that saves or git itself
/// does, and with the name its protection was gone for the rest of the run.
#[test]
fn what_somebody_outside_replaces_is_protected_again_and_told() {
    for user in users() {
        let place = Place::in_sight();
        let policy = place.policy(WriteMode::Workspace);
        let script = "echo up; read go < go; (echo x >> .git/config) 2>/dev/null || echo held; \
                      grep -q secret ../.netrc || echo hidden; \
                      [ -z \"$(ls ../.ssh)\" ] && echo empty";
        let go = place.workspace.join("go");
        nix::unistd::mkfifo(&go, nix::sys::stat::Mode::from_bits_truncate(0o666)).unwrap();
        open_to_all(&go);
        let (mut running, heard) = start_heard(user, &policy, script);
        running.wait_for("up");
        let at = |name: &str| place.home.join(name);
        fs::rename(at("w/.git"), at("w/.git.old")).unwrap();
        fs::create_dir(at("w/.git")).unwrap();
        fs::write(at("w/.git/config"), "[core]\n").unwrap();
        fs::write(at("netrc.new"), "secret-word\n").unwrap();
        fs::rename(at("netrc.new"), at(".netrc")).unwrap();
        fs::rename(at(".ssh"), at("ssh.old")).unwrap();
        fs::create_dir(at(".ssh")).unwrap();
        fs::write(at(".ssh/id"), "secret-key\n").unwrap();
        open_to_all(&place.home);
        let expected = [".netrc", ".ssh", "w/.git"].map(|name| place.home.join(name));
        let mut told = BTreeSet::new();
        while told.len() < expected.len() {
            let line = heard.recv_timeout(BUDGET).unwrap();
            if let Some(JailLine::Fallen(fallen)) = JailLine::parse(&line) {
                assert!(fallen.again, "{user:?} {fallen:?}");
                told.insert(fallen.path);
            }
        }
        assert_eq!(told, BTreeSet::from(expected), "{user:?}");
        fs::write(&go, "go\n").unwrap();
        for word in ["held", "hidden", "empty"] {
            running.wait_for(word);
        }
        assert_eq!(running.finish().status.code(), Some(0));
    }
}

/// Init watched names by inotify(7), and when it ended it waited some 10 ms for the kernel to put the
/// instance away, while the rest of its namespace lived on: each kill and each end took that long.
#[test]
fn init_holds_no_inotify_instance_that_its_end_would_wait_for() {
    // /proc/PID/fd of a process that hides is for root alone.
    if !nix::unistd::geteuid().is_root() {
        return;
    }
    let place = Place::in_sight();
    let policy = place.policy(WriteMode::Workspace);
    let (mut running, _heard) = start_heard(User::Myself, &policy, "echo up; read go");
    running.wait_for("up");
    let jail = running.child.id();
    let tree = descendants(jail);
    assert!(tree.len() >= 3, "init, keeper and program: {tree:?}");
    let inotify: Vec<(u32, PathBuf)> = tree
        .iter()
        .chain([&jail])
        .flat_map(|&pid| {
            let entries = fs::read_dir(format!("/proc/{pid}/fd")).unwrap();
            entries.filter_map(move |entry| {
                let target = fs::read_link(entry.unwrap().path()).ok()?;
                target
                    .ends_with("anon_inode:inotify")
                    .then_some((pid, target))
            })
        })
        .collect();
    assert_eq!(inotify, []);
    running.child.kill().unwrap();
    running.finish();
}

/// All processes below one.
fn descendants(pid: u32) -> Vec<u32> {
    let tasks = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
    tasks
        .unwrap_or_default()
        .split_whitespace()
        .map(|child| child.parse().unwrap())
        .flat_map(|child: u32| [vec![child], descendants(child)].concat())
        .collect()
}

#[test]
fn a_link_in_the_place_of_what_is_protected_is_told_as_a_gap() {
    let place = Place::in_sight();
    fs::remove_dir_all(place.workspace.join(".claude")).unwrap();
    symlink("src", place.workspace.join(".claude")).unwrap();
    fs::remove_file(place.workspace.join(".mcp.json")).unwrap();
    let end = by_program(User::Myself, &place.policy(WriteMode::Workspace), "exit 0");
    let gaps = end.started.unwrap().confinement.gaps.join("\n");
    let w = place.workspace.display();
    assert!(gaps.contains(&format!("`{w}/.claude` is a link")), "{gaps}");
    assert!(gaps.contains(&format!("`{w}/.mcp.json`")), "{gaps}");
}

#[test]
fn without_mounts_landlock_alone_holds_writes_and_the_rest_is_a_gap() {
    for user in users() {
        for rung in [Rung::Subreaper, Rung::Group] {
            let place = Place::in_sight();
            let policy = JailPolicy {
                files: Some(place.places(WriteMode::Scope).policy()),
                workspace: Some(place.workspace.clone()),
                ..exactly(rung)
            };
            let lines = [
                "echo x > new",
                "echo x > ../outside",
                "echo x > .git/hooks/x",
                "rm muster.toml",
                "echo x > sub_agent_results/agent_1/new",
                "echo x > $(mktemp)",
            ]
            .map(str::to_owned);
            let end = by_program(user, &policy, &attempts(&lines));
            assert_eq!(end.output, "4\n5\ndone\n", "{user:?} {rung}");
            let confinement = end.started.unwrap().confinement;
            assert_eq!(confinement.filesystem, FilesystemGuard::LandlockScope);
            let gaps = confinement.gaps.join("\n");
            assert!(gaps.contains("no mounts of its own hold files"), "{gaps}");
        }
    }
}

/// A workspace below /tmp was open as a whole where no mounts hold files, for /tmp was open; and so
/// was all that lay beside it.
#[test]
fn without_mounts_a_workspace_below_tmp_is_held_as_any_other() {
    for user in users() {
        for mode in [WriteMode::Workspace, WriteMode::Scope] {
            let place = Place::new();
            assert!(place.workspace.starts_with("/tmp"));
            let policy = JailPolicy {
                files: Some(place.places(mode).policy()),
                workspace: Some(place.workspace.clone()),
                ..exactly(Rung::Subreaper)
            };
            let lines = [
                "echo x > ../outside",
                "echo x > /tmp/outside-of-it",
                "echo x > new",
                "echo x > sub_agent_results/agent_1/new",
            ]
            .map(str::to_owned);
            let end = by_program(user, &policy, &attempts(&lines));
            let expected = match mode {
                WriteMode::Workspace => "2\n3\ndone\n",
                WriteMode::Scope => "3\ndone\n",
            };
            assert_eq!(end.output, expected, "{user:?} {mode:?}");
            let gaps = end.started.unwrap().confinement.gaps.join("\n");
            let told = "the machine's `/tmp` holds the workspace, so commands can't write there";
            assert!(gaps.contains(told), "{gaps}");
        }
    }
}

#[test]
fn a_seventeenth_layer_of_landlock_is_an_error_of_whoever_wants_it() {
    // A tool that brings a sandbox of its own must be told no, and go on.
    let script = "
import ctypes, sys
libc = ctypes.CDLL(None, use_errno=True)
attr = ctypes.c_uint64(2)
layers = 0
while True:
    fd = libc.syscall(444, ctypes.byref(attr), 8, 0)
    if libc.syscall(446, fd, 0) != 0:
        break
    layers += 1
print(layers, ctypes.get_errno())
";
    let place = Place::in_sight();
    let policy = place.policy(WriteMode::Workspace);
    let end = crate::support::start(User::Myself, &policy, &["python3", "-c", script]).finish();
    assert_eq!(end.output, format!("15 {}\n", libc::E2BIG));
}
