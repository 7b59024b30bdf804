//! The files of a workspace that a search looks at.
//!
//! Ignore rules are heeded as git does, links are never followed, and what belongs to the
//! supervisor is left out. The agent's own deliverables are always looked at, although results
//! are usually kept out of the repository by a rule.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use ignore::{DirEntry, WalkBuilder};
use protocol::job::AGENT_DIR;

use super::meter::Meter;
use crate::tools::{ToolContext, limits};

/// Folders at the top of a workspace that hold the supervisor's own files.
const OWN_FOLDERS: &[&str] = &[".muster", ".team", ".tasks", ".worktrees"];

/// What a name in the workspace is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EntryKind {
    /// A regular file.
    File,
    /// A link, wherever it leads.
    Link,
}

/// Visits every file and link, directories in order of their names; pipes, sockets and devices
/// are passed over. Hands back how many names could not be looked at.
pub(crate) fn walk(
    context: &ToolContext,
    meter: &mut Meter,
    mut visit: impl FnMut(&Path, EntryKind, &mut Meter),
) -> u64 {
    let workspace = context.workspace.as_path();
    let own = context.deliverables_dir.as_path();
    let mut unreadable = 0;
    // The own deliverables are walked by themselves, so that no ignore rule hides them.
    let roots = [Some(workspace), own.starts_with(workspace).then_some(own)];
    for root in roots.into_iter().flatten() {
        if root != workspace && !own_directory(workspace, root) {
            continue;
        }
        // The rules of every directory above hold as well.
        if !root.ancestors().all(has_plain_rules) {
            unreadable += 1;
            continue;
        }
        for entry in walker(workspace, root, own) {
            if !meter.visit() {
                return unreadable;
            }
            match entry {
                Ok(entry) => {
                    let relative = entry.path().strip_prefix(workspace).ok();
                    if let (Some(relative), Some(kind)) = (relative, kind(&entry)) {
                        visit(relative, kind, meter);
                    }
                }
                Err(_) => unreadable += 1,
            }
        }
    }
    unreadable
}

fn walker(workspace: &Path, root: &Path, own: &Path) -> ignore::Walk {
    let (workspace, own): (PathBuf, PathBuf) = (workspace.to_owned(), own.to_owned());
    WalkBuilder::new(root)
        .hidden(false)
        .follow_links(false)
        .require_git(false)
        .git_global(false)
        .sort_by_file_name(OsStr::cmp)
        .filter_entry(move |entry| {
            let is_directory = entry.file_type().is_some_and(|kind| kind.is_dir());
            let relative = entry
                .path()
                .strip_prefix(&workspace)
                .unwrap_or(entry.path());
            entry.path() != own
                && !is_left_out(relative)
                && (!is_directory || has_plain_rules(entry.path()))
        })
        .build()
}

fn kind(entry: &DirEntry) -> Option<EntryKind> {
    let kind = entry.file_type()?;
    if kind.is_file() {
        Some(EntryKind::File)
    } else if kind.is_symlink() {
        Some(EntryKind::Link)
    } else {
        None
    }
}

fn is_left_out(relative: &Path) -> bool {
    let name = relative.file_name();
    name == Some(OsStr::new(".git"))
        || name == Some(OsStr::new(AGENT_DIR))
        || OWN_FOLDERS.iter().any(|own| relative == Path::new(own))
}

/// Whether every part of the way to the agent's directory is a directory and no link.
fn own_directory(workspace: &Path, own: &Path) -> bool {
    own.ancestors()
        .take_while(|part| *part != workspace)
        .all(|part| part.symlink_metadata().is_ok_and(|meta| meta.is_dir()))
}

/// Whether the files of ignore rules in a directory can be read by a reader that does not expect
/// a pipe in their place, which it would wait at for ever, or an endless one.
fn has_plain_rules(directory: &Path) -> bool {
    [".gitignore", ".ignore", ".git/info/exclude"]
        .iter()
        .all(|name| match directory.join(name).metadata() {
            Ok(meta) => meta.is_file() && meta.len() <= limits::IGNORE_FILE_BYTES_MAX,
            // Nothing there, or nothing that can be opened.
            Err(_) => true,
        })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tools::testing::Ground;
    use nix::sys::stat::Mode;
    use std::os::unix::fs::symlink;
    use std::sync::Arc;
    use std::time::Duration;

    fn visited(ground: &Ground) -> (Vec<String>, u64) {
        let mut meter = Meter::new(
            crate::io::clock::after(Duration::from_secs(60)),
            Arc::default(),
        );
        let mut seen = Vec::new();
        let unreadable = walk(&ground.context, &mut meter, |path, _, _| {
            seen.push(path.display().to_string());
        });
        (seen, unreadable)
    }

    #[test]
    fn rules_are_heeded_and_own_files_left_out() {
        let ground = Ground::new();
        for name in [
            "a.rs",
            "target/x.o",
            "keep/y.log",
            ".github/ci.yml",
            ".git/config",
            ".muster/x",
            ".tasks/task_1.json",
            ".team/config.json",
            ".worktrees/w/f",
            "src/.muster",
            "sub_agent_results/agent_1/r.md",
            "sub_agent_results/agent_1/.subagent/job.json",
            "sub_agent_results/agent_2/r.md",
        ] {
            ground.file(name, b"x");
        }
        ground.file(".gitignore", b"target/\n*.log\nsub_agent_results/\n");
        assert_eq!(
            visited(&ground),
            (
                [
                    ".github/ci.yml",
                    ".gitignore",
                    "a.rs",
                    "src/.muster",
                    "sub_agent_results/agent_1/r.md",
                ]
                .map(str::to_owned)
                .to_vec(),
                0
            )
        );
    }

    #[test]
    fn links_lead_nowhere_and_pipes_are_passed_over() {
        let ground = Ground::new();
        std::fs::write(ground.outside.join("secret"), "x").unwrap();
        symlink(&ground.outside, ground.path("box")).unwrap();
        symlink(".", ground.path("loop")).unwrap();
        nix::unistd::mkfifo(&ground.path("p"), Mode::S_IRWXU).unwrap();
        assert_eq!(
            visited(&ground),
            (vec!["box".to_owned(), "loop".to_owned()], 0)
        );
    }

    #[test]
    fn a_pipe_in_the_place_of_rules_stops_nothing() {
        let ground = Ground::new();
        ground.file("a/x", b"x");
        ground.file("b/x", b"x");
        nix::unistd::mkfifo(&ground.path("a/.gitignore"), Mode::S_IRWXU).unwrap();
        assert_eq!(visited(&ground).0, ["b/x"]);
        nix::unistd::mkfifo(&ground.path(".gitignore"), Mode::S_IRWXU).unwrap();
        assert_eq!(visited(&ground), (Vec::new(), 2));
    }

    #[test]
    fn deliverables_behind_a_link_are_not_walked() {
        let ground = Ground::new();
        std::fs::write(ground.outside.join("secret"), "x").unwrap();
        std::fs::remove_dir_all(&ground.context.deliverables_dir).unwrap();
        symlink(&ground.outside, &ground.context.deliverables_dir).unwrap();
        assert_eq!(visited(&ground), (Vec::new(), 0));
    }
}
