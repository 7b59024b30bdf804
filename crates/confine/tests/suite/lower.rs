//! Where something is missing: the next rung below is taken and told, or nothing is started.

use std::path::{Path, PathBuf};
use std::process::Command;

use confine::policy::JailPolicy;
use confine::report::{FilesystemGuard, JailLine, KillReach, MemoryCap, ProcessCap, Rung, Step};
use confine::signal::Signal;

use crate::support::{
    BUDGET, KEEP, Running, User, everywhere, exactly, jail, signal, skipped, start, start_script,
    users, wait_until,
};

/// Starts a jail where namespaces can't be had: no user namespace may be made any more, and there
/// is no capability to make the others without one. Only root can arrange that.
fn without_namespaces(policy: &JailPolicy, script: &str) -> Option<Running> {
    if !nix::unistd::geteuid().is_root() {
        skipped("only root can take the namespaces away");
        return None;
    }
    let policy = JailPolicy {
        keep_fd: Some(KEEP),
        ..policy.clone()
    };
    let bare = "echo 0 > /proc/sys/user/max_user_namespaces && \
                exec setpriv --inh-caps=-all --bounding-set=-all --no-new-privs \"$@\"";
    let mut command = Command::new("unshare");
    command
        .args(["-U", "-r", "/bin/sh", "-c", bare, "sh"])
        .arg(jail());
    command.args(policy.to_args("/bin/bash".as_ref(), &["-c".into(), script.into()]));
    Some(Running::spawn(command))
}

#[test]
fn without_namespaces_the_subreaper_is_taken_and_each_obstacle_told() {
    let script = format!("setsid bash -c 'printf x >&{KEEP}; sleep 1000' & read go; exit 4");
    let Some(mut jail) = without_namespaces(&JailPolicy::default(), &script) else {
        return;
    };
    let confinement = jail.started().confinement;
    assert_eq!(
        (confinement.rung, confinement.kill),
        (Rung::Subreaper, KillReach::BestEffort)
    );
    let gaps: Vec<&str> = confinement
        .gaps
        .iter()
        .map(|gap| gap.split(':').next().unwrap())
        .collect();
    assert_eq!(
        gaps,
        [
            "no namespaces by own privilege",
            "no namespaces inside a user namespace",
            "the tree survives if its jail is killed with SIGKILL"
        ]
    );
    jail.live.wait_for_marks(1);
    std::io::Write::write_all(jail.stdin.as_mut().unwrap(), b"go\n").unwrap();
    assert!(jail.live.is_empty_within(BUDGET));
    assert_eq!(jail.finish().status.code(), Some(4));
}

#[test]
fn a_required_rung_that_can_not_be_had_starts_nothing() {
    let policy = JailPolicy {
        require: Rung::Pidns,
        ..JailPolicy::default()
    };
    let Some(jail) = without_namespaces(&policy, "echo never") else {
        return;
    };
    let end = jail.finish();
    assert_eq!((end.status.code(), end.output.as_str()), (Some(125), ""));
    assert_eq!(end.started, None);
    let Some(JailLine::Failed(failed)) = end.last else {
        panic!("{:?}", end.last)
    };
    assert_eq!(
        (failed.step, failed.errno_name.as_deref()),
        (Step::Require, Some("ENOSPC"))
    );
    assert!(
        failed
            .message
            .starts_with("could not reach the required rung `pidns` (no namespaces by"),
        "{}",
        failed.message
    );
}

/// As in a container: parts of /proc are read-only or covered, by mounts that can't be undone.
#[test]
fn behind_a_masked_proc_the_namespace_stands_and_each_loss_is_a_gap() {
    if !nix::unistd::geteuid().is_root() {
        skipped("only root can cover parts of /proc");
        return;
    }
    let policy = JailPolicy {
        keep_fd: Some(KEEP),
        ..exactly(Rung::Pidns)
    };
    let mask = "mount --make-rprivate / && mount --bind /proc/sys /proc/sys && \
                mount -o remount,bind,ro /proc/sys && mount -t tmpfs none /proc/scsi 2>/dev/null; \
                exec setpriv --reuid 12345 --regid 12345 --clear-groups \"$@\"";
    let script = format!("setsid bash -c 'printf x >&{KEEP}; sleep 1000' & read go; exit 5");
    let mut command = Command::new("unshare");
    command
        .args(["-m", "/bin/sh", "-c", mask, "sh"])
        .arg(jail());
    command.args(policy.to_args("/bin/bash".as_ref(), &["-c".into(), script.into()]));
    let mut jail = Running::spawn(command);
    let confinement = jail.started().confinement;
    assert_eq!(
        (confinement.rung, confinement.kill),
        (Rung::Pidns, KillReach::Complete)
    );
    assert_eq!(confinement.filesystem, FilesystemGuard::None);
    let gaps: Vec<&str> = confinement
        .gaps
        .iter()
        .map(|gap| gap.split([',', ':']).next().unwrap())
        .collect();
    assert_eq!(
        gaps,
        ["no private /proc", "no cap on the number of processes"]
    );
    assert_eq!(confinement.procs, ProcessCap::Uid);
    jail.live.wait_for_marks(1);
    std::io::Write::write_all(jail.stdin.as_mut().unwrap(), b"go\n").unwrap();
    assert!(jail.live.is_empty_within(BUDGET));
    assert_eq!(jail.finish().status.code(), Some(5));
}

#[test]
fn a_required_cgroup_that_was_not_delegated_starts_nothing() {
    for user in users() {
        let policy = JailPolicy {
            require: Rung::Cgroup2,
            ..JailPolicy::default()
        };
        let end = start(user, &policy, &["/bin/echo", "never"]).finish();
        assert_eq!((end.status.code(), end.output.as_str()), (Some(125), ""));
        let Some(JailLine::Failed(failed)) = end.last else {
            panic!("{:?}", end.last)
        };
        assert_eq!(failed.step, Step::Require);
        assert!(
            failed.message.contains("no cgroup directory was delegated"),
            "{}",
            failed.message
        );
    }
}

#[test]
fn nothing_outside_can_be_signalled() {
    for (user, rung) in everywhere() {
        // Not a signal that could do harm if it got through.
        let script = "kill -CONT $PPID 2>/dev/null && echo reached; echo done";
        let end = start_script(user, &exactly(rung), script).finish();
        assert_eq!(end.output, "done\n", "{user:?} {rung}");
    }
}

#[test]
fn a_killed_subreaper_takes_its_program_and_its_gaps_tell_the_rest() {
    for user in users() {
        let mut jail = start_script(
            user,
            &exactly(Rung::Subreaper),
            &format!("printf x >&{KEEP}; sleep 1000 & wait"),
        );
        let confinement = jail.started().confinement;
        assert_eq!(confinement.kill, KillReach::BestEffort);
        assert_eq!(
            confinement.gaps,
            ["the tree survives if its jail is killed with SIGKILL"],
            "{user:?}"
        );
        jail.live.wait_for_marks(1);
        drop(jail.stdin.take());
        assert!(jail.live.is_empty_within(BUDGET));
    }
}

/// A directory below the machine's cgroup v2 tree, as a service manager would delegate it.
struct Delegated(PathBuf);

impl Delegated {
    /// Only root can make one here.
    fn make(name: &str) -> Option<Delegated> {
        if !nix::unistd::geteuid().is_root() {
            skipped("only root can make a cgroup here");
            return None;
        }
        let mounts = std::fs::read_to_string("/proc/mounts").unwrap();
        let root = mounts.lines().find_map(|line| {
            let mut words = line.split(' ');
            let path = words.nth(1)?;
            (words.next()? == "cgroup2").then(|| PathBuf::from(path))
        });
        let Some(root) = root else {
            skipped("no cgroup v2 tree is mounted here");
            return None;
        };
        let path = root.join(format!("confine-test-{name}-{}", std::process::id()));
        if let Err(error) = std::fs::create_dir(&path) {
            skipped(&format!(
                "no cgroup can be made at {}: {error}",
                path.display()
            ));
            return None;
        }
        Some(Delegated(path))
    }

    fn groups(&self) -> usize {
        self.0
            .read_dir()
            .unwrap()
            .filter(|entry| entry.as_ref().unwrap().path().is_dir())
            .count()
    }
}

impl Drop for Delegated {
    fn drop(&mut self) {
        // A failed test may have left a group inside.
        for entry in self.0.read_dir().into_iter().flatten().flatten() {
            drop(std::fs::remove_dir(entry.path()));
        }
        drop(std::fs::remove_dir(&self.0));
    }
}

#[test]
fn in_a_delegated_cgroup_the_tree_is_killed_as_one_and_its_group_removed() {
    let Some(delegated) = Delegated::make("whole") else {
        return;
    };
    let policy = JailPolicy {
        cgroup: Some(delegated.0.clone()),
        require: Rung::Cgroup2,
        ..JailPolicy::default()
    };
    // One of them tries to leave the group, as root may.
    let leave = format!("echo 0 > {}/cgroup.procs", delegated.0.display());
    let script = format!(
        "setsid bash -c '{leave}; printf x >&{KEEP}; sleep 1000' 2>/dev/null & \
         setsid bash -c 'printf x >&{KEEP}; sleep 1000' & read go; exit 6"
    );
    let mut jail = start_script(User::Myself, &policy, &script);
    let confinement = jail.started().confinement;
    assert_eq!(
        (confinement.rung, confinement.kill),
        (Rung::Cgroup2, KillReach::Complete)
    );
    jail.live.wait_for_marks(2);
    assert_eq!(delegated.groups(), 1);
    std::io::Write::write_all(jail.stdin.as_mut().unwrap(), b"go\n").unwrap();
    assert!(jail.live.is_empty_within(BUDGET));
    let end = jail.finish();
    assert_eq!(end.status.code(), Some(6));
    assert_eq!(delegated.groups(), 0);
    let controllers = std::fs::read_to_string(delegated.0.join("cgroup.controllers")).unwrap();
    // What the directory does not hand on is not claimed.
    assert!(confinement.memory == MemoryCap::None || controllers.contains("memory"));
    assert_eq!(confinement.procs, ProcessCap::Tree);
}

#[test]
fn a_group_left_by_a_killed_jail_is_swept_by_the_next() {
    let Some(delegated) = Delegated::make("swept") else {
        return;
    };
    let policy = JailPolicy {
        cgroup: Some(delegated.0.clone()),
        ..JailPolicy::default()
    };
    let mut jail = start_script(User::Myself, &policy, "echo up; sleep 1000");
    jail.wait_for("up");
    signal(&jail.child, Signal::SIGKILL);
    assert!(jail.live.is_empty_within(BUDGET));
    jail.child.wait().unwrap();
    assert_eq!(delegated.groups(), 1);
    // The dead leave their group a moment after they have closed their files, so the first jail
    // that follows may still find it taken.
    wait_until("the group is swept", || {
        let end = start_script(User::Myself, &policy, "exit 0").finish();
        assert_eq!(end.started.unwrap().confinement.rung, Rung::Cgroup2);
        delegated.groups() == 0
    });
}

#[test]
fn a_cgroup_that_can_not_be_used_is_a_gap_and_the_next_rung_stands() {
    for user in users() {
        let policy = JailPolicy {
            cgroup: Some("/no/such/cgroup".into()),
            ..JailPolicy::default()
        };
        let end = start_script(user, &policy, "exit 0").finish();
        let confinement = end.started.unwrap().confinement;
        assert_eq!(confinement.rung, Rung::Pidns);
        assert_eq!(
            confinement.gaps,
            [
                "no cgroup: could not open the delegated cgroup directory `/no/such/cgroup`: \
              No such file or directory"
            ],
            "{user:?}"
        );
        assert!(!Path::new("/no").exists());
    }
}
