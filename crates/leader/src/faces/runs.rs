//! Which runs a workspace has.

use std::io;
use std::path::{Path, PathBuf};

use protocol::ids::ConversationId;

use crate::driver::start::RUNS_DIR;

/// The folder of one run.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct RunDir {
    /// Whose it is; ids made later sort later.
    pub conversation: ConversationId,
    /// Where it lies.
    pub path: PathBuf,
}

impl RunDir {
    /// The folder of a conversation's run.
    pub fn of(workspace: &Path, conversation: &ConversationId) -> Self {
        RunDir {
            conversation: conversation.clone(),
            path: workspace.join(RUNS_DIR).join(conversation.as_str()),
        }
    }
}

/// The workspace that a command which only looks is about: where it stands, or the nearest
/// directory above that has runs, so that a look from a subfolder finds them.
pub fn workspace_of(start: &Path) -> PathBuf {
    start
        .ancestors()
        .find(|directory| directory.join(RUNS_DIR).is_dir())
        .unwrap_or(start)
        .to_path_buf()
}

/// All runs of a workspace, newest first. What bears no conversation's name is none.
///
/// # Errors
/// When the folder of the runs is there and can't be read.
pub fn run_dirs(workspace: &Path) -> io::Result<Vec<RunDir>> {
    let entries = match std::fs::read_dir(workspace.join(RUNS_DIR)) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let mut runs = Vec::new();
    for entry in entries {
        let entry = entry?;
        let name = entry.file_name();
        let Some(conversation) = name.to_str().and_then(|name| name.parse().ok()) else {
            continue;
        };
        if entry.file_type()?.is_dir() {
            runs.push(RunDir::of(workspace, &conversation));
        }
    }
    runs.sort_by(|a, b| b.cmp(a));
    Ok(runs)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_come_newest_first_and_strangers_are_passed_over() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(run_dirs(dir.path()).unwrap(), Vec::new());
        let runs = dir.path().join(RUNS_DIR);
        for name in ["conv_0190a6e0-0001", "conv_0190a6e0-0002", "notes"] {
            std::fs::create_dir_all(runs.join(name)).unwrap();
        }
        std::fs::write(runs.join("conv_0190a6e0-0003"), "").unwrap();
        let found = run_dirs(dir.path()).unwrap();
        let names: Vec<_> = found.iter().map(|run| run.conversation.as_str()).collect();
        assert_eq!(names, ["conv_0190a6e0-0002", "conv_0190a6e0-0001"]);
        assert_eq!(found[0].path, runs.join("conv_0190a6e0-0002"));
    }

    #[test]
    fn a_subfolder_belongs_to_the_workspace_above_it() {
        let dir = tempfile::tempdir().unwrap();
        let deep = dir.path().join("a/b");
        std::fs::create_dir_all(&deep).unwrap();
        assert_eq!(workspace_of(&deep), deep);
        std::fs::create_dir_all(dir.path().join(RUNS_DIR)).unwrap();
        assert_eq!(workspace_of(&deep), dir.path());
    }
}
