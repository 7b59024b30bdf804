//! What the configuration asks about files and network, as a job carries it to its worker.

use serde::{Deserialize, Serialize};

use crate::status::words;

words!(
    /// How far an agent may write, widest first.
    WriteMode {
        /// In the workspace, but for what is protected there.
        Workspace = "workspace",
        /// In its deliverables dir and its `write_paths` alone.
        Scope = "scope",
    }
);

words!(
    /// What an agent may reach of the network, widest first.
    NetworkMode {
        /// Everything.
        Full = "full",
        /// Its model and web tools; its commands have a loopback of their own.
        Model = "model",
        /// Nothing: for scripted models.
        None = "none",
    }
);

words!(
    /// What an agent may do to the repository of its workspace, widest first.
    GitMode {
        /// Write it, hooks and configuration included.
        Writable = "writable",
        /// Read it.
        Read = "read",
    }
);

/// The part of the confinement that a worker itself must know of, beside what its jail holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct JobConfinement {
    /// How far it may write.
    pub write: WriteMode,
    /// What it may reach of the network.
    pub network: NetworkMode,
    /// What it may do to the repository.
    pub git: GitMode,
    /// Names of variables that commands see although they look like keys.
    pub env_allow: Vec<String>,
}

impl Default for JobConfinement {
    fn default() -> Self {
        JobConfinement {
            write: WriteMode::Workspace,
            network: NetworkMode::Full,
            git: GitMode::Read,
            env_allow: Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_of_an_older_version_has_the_defaults() {
        let read: JobConfinement = serde_json::from_str("{}").unwrap();
        assert_eq!(read, JobConfinement::default());
        let text = serde_json::to_value(read).unwrap();
        assert_eq!(
            text,
            serde_json::json!({
                "write": "workspace", "network": "full", "git": "read", "env_allow": []
            })
        );
    }

    #[test]
    fn tighter_words_are_greater() {
        assert!(WriteMode::Scope > WriteMode::Workspace);
        assert!(NetworkMode::None > NetworkMode::Model && NetworkMode::Model > NetworkMode::Full);
        assert!(GitMode::Read > GitMode::Writable);
    }
}
