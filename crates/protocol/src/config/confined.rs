//! What of `[confinement]` holds while the layers are laid over each other.

use super::draft::Draft;
use super::keys::Setting;
use crate::confinement::{GitMode, JobConfinement, NetworkMode, WriteMode};

impl Draft {
    pub(super) fn write(&self) -> WriteMode {
        match self.setting("confinement.write") {
            Some(Setting::Write(write)) => *write,
            _ => JobConfinement::default().write,
        }
    }

    pub(super) fn network(&self) -> NetworkMode {
        match self.setting("confinement.network") {
            Some(Setting::Network(network)) => *network,
            _ => JobConfinement::default().network,
        }
    }

    pub(super) fn git(&self) -> GitMode {
        match self.setting("confinement.git") {
            Some(Setting::Git(git)) => *git,
            _ => JobConfinement::default().git,
        }
    }

    /// What is hidden so far and `more`, each once.
    pub(super) fn with_secrets(&self, more: Vec<String>) -> Vec<String> {
        let mut all = match self.setting("confinement.secret_paths") {
            Some(Setting::SecretPaths(held)) => held.clone(),
            _ => Vec::new(),
        };
        all.extend(more);
        let mut seen = std::collections::BTreeSet::new();
        all.retain(|path| seen.insert(path.clone()));
        all
    }

    pub(super) fn env_allow(&self) -> Vec<String> {
        match self.setting("confinement.env_allow") {
            Some(Setting::EnvAllow(names)) => names.clone(),
            _ => JobConfinement::default().env_allow,
        }
    }
}
