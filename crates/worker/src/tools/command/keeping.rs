//! What holds the processes of commands together in this worker: the strongest that can be had.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use confine::keeper::Client;
use confine::report::{Confinement, NetworkReach, Rung};
use protocol::channel::CommandsHeld;
use protocol::secret::Mask;
use serde_json::Value;

use super::control::Control;
use super::kept::{Rungs, follow, start_by_jail};
use super::order::Order;
use crate::tools::limits;

/// Names the jail's executable, which else lies beside the worker's own.
pub const JAIL_VARIABLE: &str = "MUSTER_JAIL";
/// Names the highest rung that may be tried, as the configuration does.
pub const HIGHEST_VARIABLE: &str = "MUSTER_CONFINEMENT_HIGHEST";

/// How commands are held, from the strongest way down.
#[derive(Debug)]
pub enum Keeping {
    /// By the keeper of the jail that this worker runs in: each command in a PID namespace of its
    /// own.
    Keeper(Client),
    /// By a jail for each command.
    Jail {
        /// Its executable.
        path: PathBuf,
        /// On which rungs.
        rungs: Rungs,
        /// What it was seen to hold.
        confinement: Confinement,
    },
    /// By the command's process group and nobody but this worker: what calls setsid(2) escapes, and
    /// so does what hears no SIGHUP when the worker is killed.
    Group {
        /// Why nothing better can be had.
        why: String,
    },
}

impl Keeping {
    /// Finds the strongest way that is no higher than `highest`, by doing: without a keeper an
    /// empty command is run in a jail.
    pub async fn find(keeper: Result<Option<Client>, String>, highest: Rung) -> Keeping {
        let why_no_keeper = match keeper {
            Ok(Some(client)) => return Keeping::Keeper(client),
            Ok(None) => None,
            Err(why) => Some(why),
        };
        let own = std::env::current_exe().unwrap_or_default();
        let path = jail_path(std::env::var_os(JAIL_VARIABLE), &own);
        match try_out(&path, highest).await {
            Ok(confinement) => Keeping::Jail {
                path,
                // Later commands are held as well as the first was, or are not started.
                rungs: Rungs {
                    require: confinement.rung,
                    highest: confinement.rung,
                },
                confinement,
            },
            Err(why) => Keeping::Group {
                why: why_no_keeper
                    .into_iter()
                    .chain([why])
                    .collect::<Vec<_>>()
                    .join("; "),
            },
        }
    }

    /// What is missing, in one sentence for people; none where a command can leave nothing behind.
    pub fn gap(&self) -> Option<String> {
        match self {
            Keeping::Keeper(_) => None,
            Keeping::Jail { confinement, .. } if confinement.rung >= Rung::Pidns => None,
            Keeping::Jail { confinement, .. } => Some(format!(
                "commands have no PID namespace of their own, only the rung `{}`: {}",
                confinement.rung,
                confinement.gaps.join("; ")
            )),
            Keeping::Group { why } => Some(format!(
                "a process that leaves its command's process group outlives the command: {why}"
            )),
        }
    }

    /// The same for records: what holds commands, the rung, what they reach of the network of what
    /// they are to, and what is lacking.
    pub fn told(&self, asked: NetworkReach) -> CommandsHeld {
        let (by, rung) = match self {
            // There is a keeper only where its namespaces are.
            Keeping::Keeper(_) => ("keeper", Rung::Pidns),
            Keeping::Jail { confinement, .. } => ("jail", confinement.rung),
            Keeping::Group { .. } => ("process group", Rung::Group),
        };
        let gaps: Vec<String> = match self {
            Keeping::Jail { confinement, .. } => confinement.gaps.clone(),
            Keeping::Keeper(_) | Keeping::Group { .. } => self.gap().into_iter().collect(),
        };
        let network = self.reach(asked);
        CommandsHeld {
            held_by: by.to_owned(),
            rung: rung.name().to_owned(),
            network: network.name().to_owned(),
            asked_network: (network != asked).then(|| asked.name().to_owned()),
            gaps,
        }
    }

    /// What commands reach of the network when they are to reach so much: a loopback of their own
    /// takes a namespace, a filter of calls leaves nothing, and without a jail they reach what their
    /// worker does.
    fn reach(&self, asked: NetworkReach) -> NetworkReach {
        match self {
            Keeping::Keeper(_) => asked,
            Keeping::Jail { confinement, .. } if confinement.rung >= Rung::Pidns => asked,
            Keeping::Jail { .. } if asked < NetworkReach::Full => NetworkReach::Nothing,
            Keeping::Jail { .. } | Keeping::Group { .. } => NetworkReach::Full,
        }
    }
}

/// The highest rung that the environment allows; a word that is none allows all.
pub fn highest_of_environment() -> Rung {
    std::env::var(HIGHEST_VARIABLE)
        .ok()
        .and_then(|word| serde_json::from_value(Value::String(word)).ok())
        .unwrap_or(Rung::Cgroup2)
}

/// Where the jail is: as named, else beside this program.
fn jail_path(named: Option<OsString>, own: &Path) -> PathBuf {
    match named.filter(|named| !named.is_empty()) {
        Some(named) => PathBuf::from(named),
        None => own.with_file_name("jail"),
    }
}

/// Runs an empty command in a jail, and tells what it held, or why it is of no use.
async fn try_out(path: &Path, highest: Rung) -> Result<Confinement, String> {
    if !path.is_file() {
        return Err(format!(
            "there is no `{}` (hint: build `jail` so that it lies beside `worker`, or set \
             {JAIL_VARIABLE})",
            path.display()
        ));
    }
    let unfit = |why: &str| format!("`{}` can't hold commands: {why}", path.display());
    let order = Order {
        command: ":".to_owned(),
        directory: PathBuf::from("/"),
        hidden_env: Vec::new(),
        world: Default::default(),
        mask: Mask::default(),
    };
    let rungs = Rungs {
        require: Rung::Group,
        highest: highest.min(Rung::Pidns),
    };
    let kept = start_by_jail(path, rungs, &order).map_err(|error| unfit(&error.to_string()))?;
    let trial = Duration::from_millis(limits::TRIAL_MS);
    let followed = follow(kept, &order.mask, trial, Control::default())
        .await
        .map_err(|error| unfit(&error.message))?;
    match (followed.told.failed, followed.told.started) {
        (Some(failed), _) => Err(unfit(&failed.message)),
        (None, Some(started)) => Ok(started.confinement),
        (None, None) => Err(unfit(&format!(
            "it told nothing{}",
            said(&followed.output.text)
        ))),
    }
}

fn said(output: &str) -> String {
    match output.lines().next() {
        Some(line) => format!(" but `{line}`"),
        None => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_jail_is_where_it_is_named_or_beside_the_worker() {
        let own = Path::new("/opt/bin/worker");
        assert_eq!(jail_path(None, own), Path::new("/opt/bin/jail"));
        assert_eq!(jail_path(Some("".into()), own), Path::new("/opt/bin/jail"));
        assert_eq!(jail_path(Some("/j".into()), own), Path::new("/j"));
    }

    #[tokio::test]
    async fn what_is_no_jail_is_of_no_use_and_said_to_be() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("jail");
        let why = try_out(&path, Rung::Pidns).await.unwrap_err();
        assert!(why.contains("there is no `/"), "{why}");
        assert!(why.contains(JAIL_VARIABLE), "{why}");
        for (script, words) in [
            ("#!/bin/sh\necho what\n", "it told nothing but `what`"),
            ("#!/bin/sh\nexit 125\n", "it told nothing"),
            ("#!/no/such/thing\n", "No such file or directory"),
        ] {
            // Renamed into place: the file that is executed was never open for writing here.
            let fresh = place.path().join("fresh");
            std::fs::write(&fresh, script).unwrap();
            std::fs::set_permissions(&fresh, PermissionsExt::from_mode(0o755)).unwrap();
            std::fs::rename(&fresh, &path).unwrap();
            let why = try_out(&path, Rung::Pidns).await.unwrap_err();
            assert!(why.contains(words), "{why}");
        }
    }

    #[test]
    fn a_gap_is_told_where_there_is_one() {
        let group = Keeping::Group {
            why: "there is no jail".to_owned(),
        };
        let gap = group.gap().unwrap();
        assert!(gap.ends_with(": there is no jail"), "{gap}");
        assert_eq!(
            json!(group.told(NetworkReach::Full)),
            json!({"held_by": "process group", "rung": "group", "network": "full", "gaps": [gap]})
        );
        let asked = json!(group.told(NetworkReach::Loopback))["asked_network"].clone();
        assert_eq!(asked, json!("loopback"));
        assert!(matches!(
            group.reach(NetworkReach::Loopback),
            NetworkReach::Full
        ));
        assert_eq!(group.told(NetworkReach::Full).asked_network, None,);
    }
}
