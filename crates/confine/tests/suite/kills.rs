//! What ends a tree ends all of it.

use std::os::unix::process::ExitStatusExt;
use std::time::Duration;

use confine::policy::JailPolicy;
use confine::report::{EndReason, Ended, JailLine, Rung};
use confine::signal::Signal;

use crate::support::{
    BUDGET, KEEP, Running, User, command, everywhere, exactly, jail, signal, start_script, users,
    wait_until,
};

/// A chain of processes, each of which forks the next one and ends, for at most 30 s.
const HOPPER: &str = "
import os, sys, time
if len(sys.argv) > 2: os.setsid()
os.write(int(sys.argv[1]), b'x')
end = time.monotonic() + 30
while time.monotonic() < end:
    if os.fork(): os._exit(0)
    time.sleep(0.0002)
";

/// The parent of a vfork whose child never executes anything, and that child.
const VFORK: &str = "
import ctypes, os, sys, time
call = {'x86_64': 56, 'aarch64': 220}[os.uname().machine]
keep = int(sys.argv[1])
if ctypes.CDLL(None).syscall(call, 0x4000 | 17, 0, 0, 0, 0) == 0:
    os.write(keep, b'x')
    time.sleep(1000)
";

/// A child that its parent traces and never lets go on.
const TRACED: &str = "
import ctypes, os, signal, sys, time
if os.fork() == 0:
    ctypes.CDLL(None).ptrace(0, 0, 0, 0)
    os.kill(os.getpid(), signal.SIGSTOP)
os.wait3(os.WUNTRACED)
os.write(int(sys.argv[1]), b'x')
time.sleep(1000)
";

/// Every way to escape that is known; each marks the liveness socket once it is up, and holds it.
fn escapees() -> (usize, String) {
    let hold = format!("printf x >&{KEEP}; exec sleep 1000");
    let deaf = format!("trap \"\" TERM HUP INT; printf x >&{KEEP}; while :; do sleep 1; done");
    let python = |code: &str, more: &str| format!("python3 -c \"{code}\" {KEEP} {more} &");
    let script = [
        format!("bash -c '{hold}' &"),
        format!("setsid bash -c '{hold}' &"),
        // A daemon without its environment, its name and its standard descriptors.
        format!(
            "(cd /; setsid env -i bash -c 'exec -a {{}} bash -c \"{hold}\"' </dev/null >/dev/null 2>&1 &) &"
        ),
        format!("setsid bash -c '{deaf}' &"),
        format!("setsid bash -c 'printf x >&{KEEP}; kill -STOP $$' &"),
        // In namespaces of its own, where it may have them.
        format!("unshare -U -p -f bash -c '{hold}' || bash -c '{hold}' &"),
        python(HOPPER, ""),
        python(HOPPER, "session"),
        python(VFORK, ""),
        python(TRACED, ""),
    ];
    (script.len(), script.join("\n"))
}

/// Starts escapees under a jail and waits until all are up.
fn start_escapees(user: User, policy: &JailPolicy, then: &str) -> Running {
    let (count, script) = escapees();
    let jail = start_script(user, policy, &format!("{script}\n{then}"));
    jail.live.wait_for_marks(count);
    jail
}

/// The rungs that promise to reach what escaped, as long as their jail lives.
fn reaching() -> Vec<(User, Rung)> {
    everywhere()
        .into_iter()
        .filter(|(_, rung)| *rung > Rung::Group)
        .collect()
}

#[test]
fn what_escaped_ends_with_the_program() {
    for (user, rung) in reaching() {
        let mut jail = start_escapees(user, &exactly(rung), "read go; exit 3");
        std::io::Write::write_all(jail.stdin.as_mut().unwrap(), b"go\n").unwrap();
        assert!(jail.live.is_empty_within(BUDGET), "{user:?} {rung}");
        assert_eq!(jail.finish().status.code(), Some(3));
    }
}

#[test]
fn what_escaped_ends_with_the_channel() {
    for (user, rung) in reaching() {
        let mut jail = start_escapees(user, &exactly(rung), "exec 0</dev/null; sleep 1000");
        drop(jail.stdin.take());
        assert!(jail.live.is_empty_within(BUDGET), "{user:?} {rung}");
        assert_eq!(jail.finish().status.signal(), Some(9));
    }
}

#[test]
fn what_escaped_ends_with_the_jail() {
    for user in users() {
        let mut jail = start_escapees(user, &exactly(Rung::Pidns), "read never");
        signal(&jail.child, Signal::SIGKILL);
        assert!(jail.live.is_empty_within(BUDGET), "{user:?}");
        assert_eq!(jail.child.wait().unwrap().signal(), Some(9));
    }
}

#[test]
fn a_stopped_jail_can_be_killed_with_all_that_escaped() {
    for user in users() {
        let mut jail = start_escapees(user, &exactly(Rung::Pidns), "read never");
        signal(&jail.child, Signal::SIGSTOP);
        let pid = i32::try_from(jail.child.id()).unwrap();
        wait_until("the jail stops", || process_state(pid) == Some('T'));
        signal(&jail.child, Signal::SIGKILL);
        assert!(jail.live.is_empty_within(BUDGET), "{user:?}");
        assert_eq!(jail.child.wait().unwrap().signal(), Some(9));
    }
}

#[test]
fn a_group_kill_is_honest_about_what_it_misses() {
    for user in users() {
        let hold = format!("printf x >&{KEEP}; read end <&{KEEP}");
        let script = format!("setsid bash -c '{hold}' & exec 0</dev/null; sleep 1000");
        let mut jail = start_script(user, &exactly(Rung::Group), &script);
        let gaps = jail.started().confinement.gaps;
        assert_eq!(gaps, ["a process that calls setsid escapes a kill"]);
        jail.live.wait_for_marks(1);
        drop(jail.stdin.take());
        assert_eq!(jail.child.wait().unwrap().signal(), Some(9));
        assert!(!jail.live.is_empty_within(Duration::from_millis(200)));
        // Dropping the socket ends the survivor.
    }
}

#[test]
fn on_a_group_everything_that_stayed_in_it_ends_with_the_program() {
    for user in users() {
        let script = format!("bash -c 'printf x >&{KEEP}; sleep 1000' & read go; exit 2");
        let mut jail = start_script(user, &exactly(Rung::Group), &script);
        jail.live.wait_for_marks(1);
        std::io::Write::write_all(jail.stdin.as_mut().unwrap(), b"go\n").unwrap();
        assert!(jail.live.is_empty_within(BUDGET));
        assert_eq!(jail.finish().status.code(), Some(2));
    }
}

/// A leader that starts a jail as its own child, tells the jail's number and waits.
///
/// The escapees run in the jail; the leader's own input is not the jail's.
fn start_under_leader(user: User, rung: Rung, script: &str) -> (Running, i32) {
    let policy = JailPolicy {
        keep_fd: Some(KEEP),
        ..exactly(rung)
    };
    let arguments = policy.to_args("/bin/bash".as_ref(), &["-c".into(), script.into()]);
    let policy = arguments[1]
        .to_str()
        .unwrap()
        .replacen('{', "{\"leader_pid\":$$,", 1);
    let policy = policy
        .replacen("\"leader_pid\":null,", "", 1)
        .replace('"', "\\\"");
    let leader = format!("shift; \"$0\" --policy \"{policy}\" \"$@\" & echo jail $!; wait");
    let mut command = command(user, "/bin/sh".as_ref());
    command
        .args(["-c", &leader])
        .arg(jail())
        .arg("policy")
        .args(&arguments[2..]);
    let mut running = Running::spawn(command);
    let pid = running.line(|line| line.strip_prefix("jail ")?.parse().ok());
    (running, pid)
}

#[test]
fn what_escaped_ends_with_the_leader() {
    for (user, rung) in reaching() {
        let (count, script) = escapees();
        let (mut leader, _) = start_under_leader(user, rung, &format!("{script}\nsleep 1000"));
        leader.live.wait_for_marks(count);
        leader.child.kill().unwrap();
        assert!(leader.live.is_empty_within(BUDGET), "{user:?} {rung}");
    }
}

#[test]
fn a_stopped_jail_does_not_save_the_tree_of_a_killed_leader() {
    for user in users() {
        let (count, script) = escapees();
        let (mut leader, jail) =
            start_under_leader(user, Rung::Pidns, &format!("{script}\nsleep 1000"));
        leader.live.wait_for_marks(count);
        let jail = nix::unistd::Pid::from_raw(jail);
        nix::sys::signal::kill(jail, Signal::SIGSTOP).unwrap();
        wait_until("the jail stops", || {
            process_state(jail.as_raw()) == Some('T')
        });
        // Ours: the jail holds the liveness socket too, so it has to go on to be seen to end.
        leader.child.kill().unwrap();
        wait_until("the tree ends", || !has_children(jail.as_raw()));
        // The kernel itself lets an orphaned stopped group go on, so the jail may have ended already.
        nix::sys::signal::kill(jail, Signal::SIGCONT).ok();
        assert!(leader.live.is_empty_within(BUDGET), "{user:?}");
    }
}

fn process_state(pid: i32) -> Option<char> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit(')').next()?.trim_start().chars().next()
}

/// Every process below a jail whose executable is not the jail's: what it holds, without its own
/// init and keeper.
fn programs_below(jail: i32) -> Vec<i32> {
    let executable = |pid: i32| std::fs::read_link(format!("/proc/{pid}/exe")).ok();
    let mut found = Vec::new();
    let mut parents = vec![jail];
    while let Some(parent) = parents.pop() {
        let path = format!("/proc/{parent}/task/{parent}/children");
        let children = std::fs::read_to_string(path).unwrap_or_default();
        for child in children.split_whitespace() {
            let child = child.parse().unwrap();
            parents.push(child);
            if executable(child) != executable(jail) {
                found.push(child);
            }
        }
    }
    found
}

/// Whether a process has a child that has not ended.
fn has_children(pid: i32) -> bool {
    let path = format!("/proc/{pid}/task/{pid}/children");
    let children = std::fs::read_to_string(path).unwrap_or_default();
    children
        .split_whitespace()
        .any(|child| !matches!(process_state(child.parse().unwrap()), Some('Z')))
}

#[test]
fn the_end_of_the_input_ends_the_tree() {
    for (user, rung) in everywhere() {
        let mut jail = start_script(
            user,
            &exactly(rung),
            "trap '' TERM; echo up; exec 0</dev/null; sleep 1000",
        );
        jail.wait_for("up");
        drop(jail.stdin.take());
        assert!(jail.live.is_empty_within(BUDGET), "{user:?} {rung}");
        let end = jail.finish();
        assert_eq!(end.status.signal(), Some(9));
        let ended = Ended {
            exit_code: None,
            signal: Some(9),
            reason: EndReason::LeaderGone,
            left_behind: false,
        };
        assert_eq!(end.last, Some(JailLine::Ended(ended)));
    }
}

#[test]
fn signals_reach_the_programs_group_and_a_stopped_one_acts_on_term() {
    for (user, rung) in everywhere() {
        for (name, sent) in [
            ("TERM", Signal::SIGTERM),
            ("INT", Signal::SIGINT),
            ("HUP", Signal::SIGHUP),
            ("USR1", Signal::SIGUSR1),
        ] {
            let script = format!("trap 'exit 9' {name}; echo up; while :; do sleep 0.05; done");
            let mut jail = start_script(user, &exactly(rung), &script);
            jail.wait_for("up");
            signal(&jail.child, sent);
            assert_eq!(
                jail.finish().status.code(),
                Some(9),
                "{user:?} {rung} {name}"
            );
        }
        let script = "trap 'exit 8' TERM; echo up; kill -STOP $$; while :; do sleep 0.05; done";
        let mut jail = start_script(user, &exactly(rung), script);
        jail.wait_for("up");
        signal(&jail.child, Signal::SIGTERM);
        assert_eq!(
            jail.finish().status.code(),
            Some(8),
            "{user:?} {rung} stopped"
        );
    }
}

#[test]
fn a_pause_stops_what_escaped_too_and_all_of_it_goes_on_afterwards() {
    for (user, rung) in reaching() {
        let directory = crate::support::public_dir();
        let path = directory.path().display();
        let tick = |name: &str| format!("while :; do echo x >> {path}/{name}; sleep 0.01; done");
        let script = format!(
            "setsid bash -c '{}' & ({}) & echo up; read go; exit 3",
            tick("escaped"),
            tick("plain")
        );
        let policy = JailPolicy {
            workspace: Some(directory.path().to_owned()),
            ..exactly(rung)
        };
        let mut jail = start_script(user, &policy, &script);
        jail.wait_for("up");
        let size = |name: &str| {
            std::fs::metadata(directory.path().join(name)).map_or(0, |file| file.len())
        };
        let sizes = || (size("escaped"), size("plain"));
        wait_until("both tick", || sizes().0 > 0 && sizes().1 > 0);
        signal(&jail.child, Signal::SIGTSTP);
        let pid = i32::try_from(jail.child.id()).unwrap();
        wait_until("all of them are stopped", || {
            let programs = programs_below(pid);
            let stopped = |pid: &i32| matches!(process_state(*pid), Some('T' | 'Z'));
            programs.len() >= 2 && programs.iter().all(stopped)
        });
        let last = sizes();
        signal(&jail.child, Signal::SIGCONT);
        wait_until("both go on", || sizes().0 > last.0 && sizes().1 > last.1);
        std::io::Write::write_all(jail.stdin.as_mut().unwrap(), b"go\n").unwrap();
        assert!(jail.live.is_empty_within(BUDGET));
        assert_eq!(jail.finish().status.code(), Some(3), "{user:?} {rung}");
    }
}

#[test]
fn a_program_without_a_handler_dies_of_the_signal() {
    for (user, rung) in everywhere() {
        let mut jail = start_script(user, &exactly(rung), "echo up; exec sleep 1000");
        jail.wait_for("up");
        signal(&jail.child, Signal::SIGTERM);
        assert_eq!(jail.finish().status.signal(), Some(15), "{user:?} {rung}");
    }
}

#[test]
fn an_init_killed_by_somebody_else_is_told_as_that() {
    for user in users() {
        let mut jail = start_script(user, &exactly(Rung::Pidns), "echo up; sleep 1000");
        jail.wait_for("up");
        let init = jail.started().init_pid;
        // Init is not reaped before the jail is, so its number is still its own.
        let init = nix::unistd::Pid::from_raw(i32::try_from(init).unwrap());
        nix::sys::signal::kill(init, Signal::SIGKILL).unwrap();
        assert!(jail.live.is_empty_within(BUDGET));
        let end = jail.finish();
        assert_eq!(end.status.signal(), Some(9));
        let reason = EndReason::KilledFromOutside;
        let ended = Ended {
            exit_code: None,
            signal: Some(9),
            reason,
            left_behind: false,
        };
        assert_eq!(end.last, Some(JailLine::Ended(ended)));
    }
}
