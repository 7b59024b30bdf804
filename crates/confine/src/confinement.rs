//! From what stands to what is told: the report of a tree, as a pure function.

use crate::cgroup::Bounds;
use crate::report::{
    Confinement, FilesystemGuard, KillReach, MemoryCap, NetworkReach, ProcessCap, Rung,
};

/// What holds the tree together below the cgroup, if there is one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Hold {
    /// A PID namespace.
    Namespace,
    /// The jail as subreaper.
    Subreaper,
    /// A process group.
    Group,
}

impl Hold {
    fn rung(self) -> Rung {
        match self {
            Hold::Namespace => Rung::Pidns,
            Hold::Subreaper => Rung::Subreaper,
            Hold::Group => Rung::Group,
        }
    }
}

/// Everything that was found to stand.
#[derive(Debug, Clone)]
pub(crate) struct Facts {
    pub(crate) hold: Hold,
    pub(crate) cgroup: Option<Bounds>,
    /// What bounds the number of processes besides a cgroup.
    pub(crate) procs: ProcessCap,
    pub(crate) network: NetworkReach,
    pub(crate) filesystem: FilesystemGuard,
    pub(crate) gaps: Vec<String>,
}

/// The report of these facts.
pub(crate) fn report(facts: Facts) -> Confinement {
    let Facts {
        hold,
        cgroup,
        procs,
        network,
        filesystem,
        mut gaps,
    } = facts;
    let rung = if cgroup.is_some() {
        Rung::Cgroup2
    } else {
        hold.rung()
    };
    let kill = match (hold, cgroup) {
        (Hold::Namespace, _) => KillReach::Complete,
        (Hold::Subreaper, _) | (Hold::Group, Some(_)) => {
            gaps.push("the tree survives if its jail is killed with SIGKILL".to_owned());
            KillReach::BestEffort
        }
        (Hold::Group, None) => {
            gaps.push("a process that calls setsid escapes a kill".to_owned());
            KillReach::Group
        }
    };
    let bounds = cgroup.unwrap_or_default();
    let procs = if bounds.pids { ProcessCap::Tree } else { procs };
    let memory = if bounds.memory {
        MemoryCap::Tree
    } else {
        MemoryCap::None
    };
    Confinement {
        rung,
        kill,
        procs,
        memory,
        network,
        filesystem,
        gaps,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(hold: Hold, cgroup: Option<Bounds>) -> Facts {
        Facts {
            hold,
            cgroup,
            procs: ProcessCap::None,
            network: NetworkReach::Full,
            filesystem: FilesystemGuard::None,
            gaps: Vec::new(),
        }
    }

    #[test]
    fn each_hold_with_and_without_a_cgroup_promises_what_it_keeps() {
        let full = Some(Bounds {
            pids: true,
            memory: true,
        });
        let bare = Some(Bounds::default());
        use {Hold as H, KillReach as K, MemoryCap as M, ProcessCap as P, Rung as R};
        let cases = [
            (
                H::Namespace,
                None,
                (R::Pidns, K::Complete, P::None, M::None, 0),
            ),
            (
                H::Namespace,
                full,
                (R::Cgroup2, K::Complete, P::Tree, M::Tree, 0),
            ),
            (
                H::Namespace,
                bare,
                (R::Cgroup2, K::Complete, P::None, M::None, 0),
            ),
            (
                H::Subreaper,
                None,
                (R::Subreaper, K::BestEffort, P::None, M::None, 1),
            ),
            (
                H::Subreaper,
                full,
                (R::Cgroup2, K::BestEffort, P::Tree, M::Tree, 1),
            ),
            (H::Group, None, (R::Group, K::Group, P::None, M::None, 1)),
            (
                H::Group,
                bare,
                (R::Cgroup2, K::BestEffort, P::None, M::None, 1),
            ),
        ];
        for (hold, cgroup, expected) in cases {
            let told = report(facts(hold, cgroup));
            let found = (
                told.rung,
                told.kill,
                told.procs,
                told.memory,
                told.gaps.len(),
            );
            assert_eq!(found, expected, "{hold:?} {cgroup:?}");
        }
    }
}
