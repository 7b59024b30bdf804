//! What the driver asks of a jail, beside what the jail says it enforces.

use std::path::PathBuf;

use confine::report::{Confinement, FilesystemGuard, NetworkReach, Rung};
use protocol::config::RequiredRung;
use protocol::confinement::{JobConfinement, NetworkMode, WriteMode};
use serde_json::{Map, Value, json};

use crate::driver::caps::CapsInForce;
use crate::os::rung::Wanted;

/// What every agent of this run is asked to be held by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Asked {
    /// Less than this starts nothing.
    pub(super) require: Rung,
    /// More than this is not tried.
    pub(super) highest: Rung,
    /// The delegated directory.
    pub(super) cgroup: Option<PathBuf>,
    /// The rung that the configuration asks for.
    pub(super) rung: Rung,
    /// What it may reach of the network.
    pub(super) network: NetworkReach,
    /// What its commands may.
    pub(super) command_network: NetworkReach,
    /// What is to hold its writes.
    pub(super) filesystem: FilesystemGuard,
}

impl Asked {
    /// What the configuration asks for.
    pub(super) fn of(wanted: Wanted, settings: &JobConfinement) -> Self {
        let (network, command_network) = reach(settings.network);
        Asked {
            rung: wanted.asked(),
            require: wanted.require,
            highest: wanted.highest,
            cgroup: wanted.cgroup,
            network,
            command_network,
            filesystem: match settings.write {
                WriteMode::Workspace => FilesystemGuard::Workspace,
                WriteMode::Scope => FilesystemGuard::Scope,
            },
        }
    }

    /// What is enforced as records and results carry it, with what was asked for where the two
    /// differ, and with the caps of the agent.
    pub(super) fn beside(&self, enforced: &Confinement, caps: &CapsInForce) -> Value {
        let mut told = json!(enforced);
        let mut differs = Map::new();
        if enforced.rung < self.rung {
            differs.insert("rung".to_owned(), json!(self.rung));
        }
        if enforced.network != self.network {
            differs.insert("network".to_owned(), json!(self.network));
        }
        if enforced.filesystem != self.filesystem {
            differs.insert("filesystem".to_owned(), json!(self.filesystem));
        }
        if !differs.is_empty() {
            told["asked"] = Value::Object(differs);
        }
        caps.tell(&mut told);
        told
    }
}

/// What the worker and its commands may reach.
fn reach(network: NetworkMode) -> (NetworkReach, NetworkReach) {
    match network {
        NetworkMode::Full => (NetworkReach::Full, NetworkReach::Full),
        NetworkMode::Model => (NetworkReach::Full, NetworkReach::Loopback),
        NetworkMode::None => (NetworkReach::Loopback, NetworkReach::Loopback),
    }
}

/// A rung as the core knows it.
pub(super) fn word_of(rung: Rung) -> RequiredRung {
    match rung {
        Rung::Group => RequiredRung::Group,
        Rung::Subreaper => RequiredRung::Subreaper,
        Rung::Pidns => RequiredRung::Pidns,
        Rung::Cgroup2 => RequiredRung::Cgroup2,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::os::rung::rung_of;
    use crate::os::rung::test_kit::found;
    use confine::report::MemoryCap;

    fn no_caps() -> CapsInForce {
        CapsInForce::of(protocol::job::Caps::default(), MemoryCap::None, None)
    }

    fn wanted(cgroup: Option<&str>) -> Wanted {
        Wanted {
            require: Rung::Subreaper,
            highest: Rung::Cgroup2,
            cgroup: cgroup.map(PathBuf::from),
        }
    }

    #[test]
    fn what_is_enforced_stands_alone_where_it_is_what_was_asked() {
        let machine = found(Rung::Pidns);
        let asked = Asked::of(wanted(None), &JobConfinement::default());
        assert_eq!(
            asked.beside(&machine.confinement, &no_caps()),
            json!({
                "rung": "pidns", "kill": "complete", "procs": "tree", "memory": "none",
                "network": "full", "filesystem": "workspace", "gaps": ["a gap of pidns"],
            })
        );
    }

    #[test]
    fn what_was_asked_stands_beside_where_it_differs() {
        let plain = JobConfinement::default();
        let asked = Asked::of(wanted(None), &plain);
        let told = |asked: &Asked, rung| {
            asked.beside(&found(rung).confinement, &no_caps())["asked"].clone()
        };
        assert_eq!(told(&asked, Rung::Group), json!({"rung": "pidns"}));
        assert_eq!(told(&asked, Rung::Cgroup2), Value::Null);
        let by_name = Asked::of(wanted(Some("/c")), &plain);
        assert_eq!(told(&by_name, Rung::Pidns), json!({"rung": "cgroup2"}));
        let mut alone = found(Rung::Pidns).confinement;
        alone.network = NetworkReach::Loopback;
        assert_eq!(
            asked.beside(&alone, &no_caps())["asked"],
            json!({"network": "full"})
        );
        let mut loose = found(Rung::Pidns).confinement;
        loose.filesystem = FilesystemGuard::PrivateMounts;
        let told = asked.beside(&loose, &no_caps())["asked"].clone();
        assert_eq!(told, json!({"filesystem": "workspace"}));
    }

    #[test]
    fn each_word_for_the_network_is_a_reach_of_worker_and_commands() {
        use NetworkReach::{Full, Loopback};
        assert_eq!(reach(NetworkMode::Full), (Full, Full));
        assert_eq!(reach(NetworkMode::Model), (Full, Loopback));
        assert_eq!(reach(NetworkMode::None), (Loopback, Loopback));
    }

    #[test]
    fn words_and_rungs_go_both_ways() {
        for rung in Rung::ALL {
            assert_eq!(rung_of(word_of(rung)), rung);
            assert_eq!(word_of(rung).as_str(), rung.name());
        }
    }
}
