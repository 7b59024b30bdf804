//! What is asked about files, as part of a policy.

use serde::{Deserialize, Serialize};
use std::path::PathBuf;

use crate::path_text;

/// How far an agent may write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WriteMode {
    /// In its workspace, but for what is protected there.
    Workspace,
    /// In the places that it was given alone.
    Scope,
}

/// Where a tree may write and what it may not see. All paths are absolute with their links
/// resolved; the deepest entry that holds a path decides about it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FilePolicy {
    /// What the lists below come to, for the report.
    pub mode: WriteMode,
    /// Directories and files that may be written, with all that lies in them.
    #[serde(with = "path_text::list")]
    pub writable: Vec<PathBuf>,
    /// What in them may not.
    #[serde(with = "path_text::list")]
    pub read_only: Vec<PathBuf>,
    /// What in them may be written by the program itself and not by its commands.
    #[serde(with = "path_text::list")]
    pub command_read_only: Vec<PathBuf>,
    /// Directories and files that show as empty.
    #[serde(with = "path_text::list")]
    pub masked: Vec<PathBuf>,
    /// What does not hold by the nature of what is asked, in words.
    pub gaps: Vec<String>,
}

impl FilePolicy {
    /// Nothing may be written but the tree's own `/tmp`, and nothing is hidden.
    pub fn closed(mode: WriteMode) -> FilePolicy {
        FilePolicy {
            mode,
            writable: Vec::new(),
            read_only: Vec::new(),
            command_read_only: Vec::new(),
            masked: Vec::new(),
            gaps: Vec::new(),
        }
    }

    /// Every path, with the name of the list that it stands in.
    pub(crate) fn paths(&self) -> impl Iterator<Item = (&'static str, &PathBuf)> {
        let lists = [
            ("files.writable", &self.writable),
            ("files.read_only", &self.read_only),
            ("files.command_read_only", &self.command_read_only),
            ("files.masked", &self.masked),
        ];
        lists
            .into_iter()
            .flat_map(|(name, list)| list.iter().map(move |path| (name, path)))
    }
}
