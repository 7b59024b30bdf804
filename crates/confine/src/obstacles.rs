//! Why a machine does not hold more, and the exact command or setting that changes it.

use serde::{Deserialize, Serialize};
use std::path::Path;

use crate::report::{Confinement, ProcessCap, Rung};

/// One thing in the way.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Obstacle {
    /// The rung that it keeps from standing, or standing whole.
    pub rung: Rung,
    /// What it is.
    pub reason: String,
    /// What to do about it.
    pub remedy: String,
}

/// What a machine says about itself; `None` where it has no such setting.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Machine {
    /// `user.max_user_namespaces`.
    pub(crate) max_user_namespaces: Option<u64>,
    /// `kernel.unprivileged_userns_clone`, of Debian's kernels.
    pub(crate) unprivileged_userns_clone: Option<u64>,
    /// `kernel.apparmor_restrict_unprivileged_userns`, of Ubuntu.
    pub(crate) apparmor_restrict_userns: Option<u64>,
    /// Whether this process is in a container, as far as can be seen.
    pub(crate) in_container: bool,
    /// Whether systemd runs this machine.
    pub(crate) has_systemd: bool,
}

impl Machine {
    pub(crate) fn look() -> Machine {
        let number = |name: &str| {
            let text = std::fs::read_to_string(format!("/proc/sys/{name}")).ok()?;
            text.trim().parse().ok()
        };
        let marks = ["/.dockerenv", "/run/.containerenv"];
        Machine {
            max_user_namespaces: number("user/max_user_namespaces"),
            unprivileged_userns_clone: number("kernel/unprivileged_userns_clone"),
            apparmor_restrict_userns: number("kernel/apparmor_restrict_unprivileged_userns"),
            in_container: marks.iter().any(|mark| Path::new(mark).exists())
                || std::env::var_os("container").is_some(),
            has_systemd: Path::new("/run/systemd/system").exists(),
        }
    }
}

/// What stands in the way of more than `found`, nearest first.
pub(crate) fn explain(found: &Confinement, machine: &Machine) -> Vec<Obstacle> {
    let mut obstacles = Vec::new();
    let mut add = |rung, reason: &str, remedy: &str| {
        obstacles.push(Obstacle {
            rung,
            reason: reason.to_owned(),
            remedy: remedy.to_owned(),
        });
    };
    if found.rung < Rung::Subreaper {
        add(
            Rung::Subreaper,
            "the kernel has no Landlock with signal scopes, or does not list children",
            "use Linux 6.12 or newer and boot it with `landlock` in `lsm=`",
        );
    }
    if found.rung < Rung::Pidns {
        let (reason, remedy) = missing_namespaces(machine);
        add(Rung::Pidns, reason, remedy);
    }
    if found.rung >= Rung::Pidns && found.procs != ProcessCap::Tree {
        add(
            found.rung,
            "the number of processes is not capped",
            "use Linux 6.14 or newer with a writable /proc/sys, or delegate a cgroup with `pids`",
        );
    }
    if found.rung < Rung::Cgroup2 {
        let remedy = if machine.has_systemd {
            "make `systemd-run --user --scope true` work, as it does in a login session of your own: \
             the leader then takes a scope by itself"
        } else {
            "let the administrator make a cgroup v2 directory, move the leader into a group in it, \
             hand it over with chown, and give it as `confinement.cgroup`"
        };
        add(
            Rung::Cgroup2,
            "no usable cgroup v2 directory was delegated",
            remedy,
        );
    }
    obstacles
}

/// The likeliest cause is the first setting that forbids what was tried.
fn missing_namespaces(machine: &Machine) -> (&'static str, &'static str) {
    if machine.max_user_namespaces == Some(0) {
        (
            "user namespaces are switched off (user.max_user_namespaces = 0)",
            "sudo sysctl -w user.max_user_namespaces=15000",
        )
    } else if machine.unprivileged_userns_clone == Some(0) {
        (
            "user namespaces are for root alone (kernel.unprivileged_userns_clone = 0)",
            "sudo sysctl -w kernel.unprivileged_userns_clone=1",
        )
    } else if machine.apparmor_restrict_userns == Some(1) {
        (
            "AppArmor restricts user namespaces (kernel.apparmor_restrict_unprivileged_userns = 1)",
            "sudo sysctl -w kernel.apparmor_restrict_unprivileged_userns=0, or give `jail` an \
             AppArmor profile with `userns,`",
        )
    } else if machine.in_container {
        (
            "the container's filter or missing capabilities forbid namespaces",
            "start the container with `--security-opt seccomp=unconfined --cap-add SYS_ADMIN`",
        )
    } else {
        (
            "the kernel refuses namespaces to this user",
            "run `unshare --user --pid --fork true` to see its reason; a service manager or a \
             seccomp filter may forbid them",
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::{FilesystemGuard, KillReach, MemoryCap, NetworkReach};

    fn found(rung: Rung, procs: ProcessCap) -> Confinement {
        Confinement {
            rung,
            kill: KillReach::Complete,
            procs,
            memory: MemoryCap::None,
            network: NetworkReach::Full,
            filesystem: FilesystemGuard::None,
            gaps: Vec::new(),
        }
    }

    #[test]
    fn each_rung_names_what_is_above_it_and_the_highest_nothing() {
        let above = |rung, procs| -> Vec<Rung> {
            let obstacles = explain(&found(rung, procs), &Machine::default());
            obstacles.iter().map(|obstacle| obstacle.rung).collect()
        };
        use {ProcessCap as P, Rung as R};
        assert_eq!(above(R::Cgroup2, P::Tree), []);
        assert_eq!(above(R::Pidns, P::Tree), [R::Cgroup2]);
        assert_eq!(above(R::Pidns, P::None), [R::Pidns, R::Cgroup2]);
        assert_eq!(above(R::Subreaper, P::None), [R::Pidns, R::Cgroup2]);
        assert_eq!(
            above(R::Group, P::None),
            [R::Subreaper, R::Pidns, R::Cgroup2]
        );
    }

    #[test]
    fn the_setting_in_the_way_of_namespaces_is_named_with_the_command_that_changes_it() {
        let cases = [
            (
                Machine {
                    max_user_namespaces: Some(0),
                    ..Machine::default()
                },
                "sudo sysctl -w user.max_user_namespaces=15000",
            ),
            (
                Machine {
                    unprivileged_userns_clone: Some(0),
                    ..Machine::default()
                },
                "sudo sysctl -w kernel.unprivileged_userns_clone=1",
            ),
            (
                Machine {
                    apparmor_restrict_userns: Some(1),
                    ..Machine::default()
                },
                "sudo sysctl -w kernel.apparmor_restrict_unprivileged_userns=0",
            ),
            (
                Machine {
                    in_container: true,
                    ..Machine::default()
                },
                "start the container with",
            ),
            (
                Machine {
                    max_user_namespaces: Some(9),
                    ..Machine::default()
                },
                "run `unshare --user --pid --fork true`",
            ),
        ];
        for (machine, remedy) in cases {
            let (_, found) = missing_namespaces(&machine);
            assert!(found.starts_with(remedy), "{machine:?}: {found}");
        }
    }
}
