//! Where a worker alone works, and where it delivers.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use protocol::ids::AgentId;
use protocol::job::AGENT_DIR;
use protocol::place::{default_deliverables_dir, relative_path};

use crate::exit::StartError;

/// Numbers that are tried for a free default folder.
const NUMBERS_TRIED_MAX: u32 = 10_000;

/// What to do with a deliverables dir that holds something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reuse {
    /// Refuse it.
    Refuse,
    /// Use it.
    Allow,
}

/// The workspace, absolute and with its links resolved.
///
/// # Errors
/// When it does not exist or is no directory.
pub fn workspace(path: &Path) -> Result<PathBuf, StartError> {
    let shown = path.display();
    let resolved = path.canonicalize().map_err(|error| {
        let why = match error.kind() {
            ErrorKind::NotFound => "does not exist".to_owned(),
            _ => format!("cannot be used: {error}"),
        };
        StartError::new(format!("workspace `{shown}` {why}"))
            .hint("pass an existing directory with --workspace")
    })?;
    if !resolved.is_dir() {
        return Err(StartError::new(format!(
            "workspace `{shown}` is no directory"
        )));
    }
    Ok(resolved)
}

/// The first number whose default folder is free.
///
/// # Errors
/// When very many are taken.
pub fn free_number(workspace: &Path) -> Result<AgentId, StartError> {
    let mut number = AgentId::FIRST;
    for _ in 0..NUMBERS_TRIED_MAX {
        if is_free(&workspace.join(default_deliverables_dir(number, None))) {
            return Ok(number);
        }
        match number.next() {
            Some(next) => number = next,
            None => break,
        }
    }
    Err(StartError::new(format!(
        "all of `sub_agent_results/agent_1` to `agent_{NUMBERS_TRIED_MAX}` hold something"
    ))
    .hint("name a folder with --deliverables-dir, or remove old results"))
}

fn is_free(dir: &Path) -> bool {
    match fs::read_dir(dir) {
        Ok(mut entries) => entries.next().is_none(),
        Err(error) => error.kind() == ErrorKind::NotFound,
    }
}

/// Checks a deliverables dir without making it; gives it relative to the workspace.
///
/// # Errors
/// When it is not a plain path below the workspace, leads out of it through a link, is something
/// else than a directory, or holds something.
pub fn check_deliverables(
    workspace: &Path,
    wanted: &Path,
    reuse: Reuse,
) -> Result<PathBuf, StartError> {
    let relative = plain(wanted)?;
    let dir = workspace.join(&relative);
    stays_inside(workspace, &dir).map_err(|why| refused(wanted, why))?;
    match fs::metadata(&dir) {
        Ok(found) if !found.is_dir() => Err(refused(wanted, "it is no directory")),
        Ok(_) if reuse == Reuse::Refuse && !is_free(&dir) => {
            Err(refused(wanted, "it holds something already")
                .hint("name an empty one, or pass --reuse-deliverables-dir"))
        }
        Ok(_) | Err(_) => Ok(relative),
    }
}

/// Makes a checked deliverables dir with the run's own folder; gives that folder, absolute.
///
/// # Errors
/// When it can't be made, or leads out of the workspace after all.
pub fn make_deliverables(workspace: &Path, relative: &Path) -> Result<PathBuf, StartError> {
    let dir = workspace.join(relative);
    let agent_dir = dir.join(AGENT_DIR);
    fs::create_dir_all(&agent_dir).map_err(|error| {
        StartError::new(format!("cannot make `{}`: {error}", agent_dir.display()))
            .hint("the worker keeps its record there: the workspace must be writable and not full")
    })?;
    // Once more, now that it exists: a link may have come into the way meanwhile.
    stays_inside(workspace, &dir).map_err(|why| refused(relative, why))?;
    Ok(agent_dir)
}

fn refused(wanted: &Path, why: &str) -> StartError {
    StartError::new(format!(
        "deliverables dir `{}` cannot be used: {why}",
        wanted.display()
    ))
    .hint("give a path below the workspace, such as docs/api")
}

/// The plain form of a path as it was written.
fn plain(wanted: &Path) -> Result<PathBuf, StartError> {
    let text = wanted
        .to_str()
        .ok_or_else(|| refused(wanted, "it is no UTF-8 text"))?;
    relative_path("--deliverables-dir", text)
        .map_err(|error| StartError::new(error.message).hint(error.hint))
}

/// Resolves as much of a path as exists, and wants it below the workspace.
fn stays_inside(workspace: &Path, dir: &Path) -> Result<(), &'static str> {
    for ancestor in dir.ancestors() {
        if let Ok(resolved) = ancestor.canonicalize() {
            let inside =
                resolved.starts_with(workspace) && (ancestor != dir || resolved != workspace);
            return match inside {
                true => Ok(()),
                false => Err("a link leads it out of the workspace"),
            };
        }
        if fs::symlink_metadata(ancestor).is_ok_and(|found| found.is_symlink()) {
            return Err("a link on the way leads nowhere");
        }
    }
    Err("nothing on the way to it exists")
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn make(root: &Path, wanted: &str) -> Result<PathBuf, String> {
        check_deliverables(root, Path::new(wanted), Reuse::Refuse)
            .and_then(|relative| make_deliverables(root, &relative).map(|_| relative))
            .map_err(|error| error.message)
    }

    #[test]
    fn only_plain_paths_below_the_workspace_will_do() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path().canonicalize().unwrap();
        let outside = tempfile::tempdir().unwrap();
        symlink(outside.path(), root.join("out")).unwrap();
        symlink("nowhere", root.join("dangling")).unwrap();
        symlink(".", root.join("same")).unwrap();
        fs::write(root.join("file"), "x").unwrap();
        for (wanted, why) in [
            ("/tmp/x", "relative"),
            ("../x", "`..`"),
            ("a/../../x", "`..`"),
            ("", "empty"),
            (".", "workspace itself"),
            ("~/x", "`~`"),
            (".git/x", "version control"),
            ("a/.GIT", "version control"),
            (".muster/x", "muster"),
            ("a/.subagent", "muster"),
            ("out", "out of the workspace"),
            ("out/x", "out of the workspace"),
            ("dangling", "leads nowhere"),
            ("dangling/x", "leads nowhere"),
            ("same", "out of the workspace"),
            ("file", "no directory"),
            ("file/x", "cannot make"),
        ] {
            let error = make(&root, wanted).unwrap_err();
            assert!(error.contains(why), "{wanted}: {error}");
        }
        assert_eq!(fs::read_dir(outside.path()).unwrap().count(), 0);
        assert_eq!(make(&root, "./docs//api/"), Ok("docs/api".into()));
        assert!(root.join("docs/api").join(AGENT_DIR).is_dir());
    }

    #[test]
    fn a_folder_that_holds_something_is_used_only_when_told() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path().canonicalize().unwrap();
        assert_eq!(free_number(&root).unwrap(), AgentId::FIRST);
        let first = default_deliverables_dir(AgentId::FIRST, None);
        make(&root, first.to_str().unwrap()).unwrap();
        let error = check_deliverables(&root, &first, Reuse::Refuse).unwrap_err();
        assert!(error.hint.contains("--reuse-deliverables-dir"), "{error}");
        check_deliverables(&root, &first, Reuse::Allow).unwrap();
        assert_eq!(free_number(&root).unwrap().get(), 2);
    }

    #[test]
    fn a_workspace_must_be_a_directory() {
        let root = tempfile::tempdir().unwrap();
        let file = root.path().join("file");
        fs::write(&file, "x").unwrap();
        assert!(
            workspace(&file)
                .unwrap_err()
                .message
                .contains("no directory")
        );
        let nowhere = workspace(&root.path().join("nowhere")).unwrap_err();
        assert!(nowhere.message.contains("does not exist"));
        assert!(workspace(root.path()).is_ok());
    }
}
