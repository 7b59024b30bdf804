//! Keeps our folders out of the user's git status, by the repository's own `info/exclude`, which
//! is never committed. The user's `.gitignore` is never touched, and git is never run.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::os::files::Dir;

/// What is excluded, wherever in the repository it lies.
const PATTERNS: &[&str] = &[
    ".muster/",
    ".team/",
    ".tasks/",
    ".worktrees/",
    ".subagent/",
    "sub_agent_results/",
];
/// An exclude file larger than this is left alone, in bytes.
const EXCLUDE_BYTES_MAX: u64 = 1024 * 1024;
/// Larger pointer files are none, in bytes.
const POINTER_BYTES_MAX: u64 = 8 * 1024;

/// Adds our folders to the `info/exclude` of the repository that holds `workspace`, if one does.
///
/// # Errors
/// When the file can't be read or written; the run goes on without it.
pub fn exclude(workspace: &Path) -> io::Result<()> {
    let Some(common) = common_git_dir(workspace) else {
        return Ok(());
    };
    let info = Dir::open(&common)?.make_dir(Path::new("info"))?;
    let name = Path::new("exclude");
    let old = match info.open_file(name) {
        Ok((_, size)) if size > EXCLUDE_BYTES_MAX => {
            return Err(io::Error::other(format!("it has {size} bytes")));
        }
        Ok((file, _)) => io::read_to_string(file)?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
        Err(error) => return Err(error),
    };
    match with_patterns(&old) {
        Some(new) => info.replace_file(name, new.as_bytes()),
        None => Ok(()),
    }
}

/// The text with the patterns that it lacks; none when it has them all.
fn with_patterns(old: &str) -> Option<String> {
    let has = |pattern: &&&str| !old.lines().any(|line| line.trim() == **pattern);
    let missing: Vec<&str> = PATTERNS.iter().filter(has).copied().collect();
    if missing.is_empty() {
        return None;
    }
    let mut new = old.to_owned();
    if !new.is_empty() && !new.ends_with('\n') {
        new.push('\n');
    }
    new.push_str("# muster: runtime folders\n");
    for pattern in missing {
        new.push_str(pattern);
        new.push('\n');
    }
    Some(new)
}

/// The git directory that all worktrees of the repository share.
fn common_git_dir(workspace: &Path) -> Option<PathBuf> {
    let marker = workspace
        .ancestors()
        .map(|folder| folder.join(".git"))
        .find(|path| path.exists())?;
    if marker.is_dir() {
        return marker.join("HEAD").is_file().then_some(marker);
    }
    // A linked worktree. A pointer that does not point back was put there by something else than
    // git, and would have us write into a repository of its choice.
    let git_dir = read_pointer(&marker)?;
    let git_dir = git_dir.strip_prefix("gitdir:")?.trim();
    let git_dir = marker.parent()?.join(git_dir);
    let back = git_dir.join(read_pointer(&git_dir.join("gitdir"))?);
    if fs::canonicalize(back).ok()? != fs::canonicalize(&marker).ok()? {
        return None;
    }
    let common = read_pointer(&git_dir.join("commondir"))?;
    Some(git_dir.join(common))
}

fn read_pointer(path: &Path) -> Option<String> {
    let meta = fs::metadata(path).ok()?;
    if !meta.is_file() || meta.len() > POINTER_BYTES_MAX {
        return None;
    }
    Some(fs::read_to_string(path).ok()?.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn repository(at: &Path) {
        fs::create_dir_all(at.join(".git")).unwrap();
        fs::write(at.join(".git/HEAD"), "ref: refs/heads/main\n").unwrap();
    }

    #[test]
    fn folders_are_excluded_once_and_the_users_lines_stay() {
        let place = tempfile::tempdir().unwrap();
        repository(place.path());
        fs::create_dir_all(place.path().join(".git/info")).unwrap();
        fs::create_dir_all(place.path().join("sub/dir")).unwrap();
        let file = place.path().join(".git/info/exclude");
        fs::write(&file, "*.o").unwrap();
        exclude(&place.path().join("sub/dir")).unwrap();
        let expected = "*.o\n# muster: runtime folders\n.muster/\n.team/\n.tasks/\n.worktrees/\n\
                        .subagent/\nsub_agent_results/\n";
        assert_eq!(fs::read_to_string(&file).unwrap(), expected);
        exclude(place.path()).unwrap();
        assert_eq!(fs::read_to_string(&file).unwrap(), expected);
    }

    #[test]
    fn a_worktree_shares_the_file_and_a_false_pointer_is_not_followed() {
        let place = tempfile::tempdir().unwrap();
        let (main, tree) = (place.path().join("main"), place.path().join("tree"));
        repository(&main);
        fs::create_dir_all(main.join(".git/worktrees/tree")).unwrap();
        fs::create_dir(&tree).unwrap();
        let git_dir = main.join(".git/worktrees/tree");
        fs::write(
            tree.join(".git"),
            format!("gitdir: {}\n", git_dir.display()),
        )
        .unwrap();
        fs::write(git_dir.join("commondir"), "../..\n").unwrap();
        let back = git_dir.join("gitdir");
        fs::write(&back, "/elsewhere/.git\n").unwrap();
        exclude(&tree).unwrap();
        assert!(!main.join(".git/info").exists());
        fs::write(&back, format!("{}\n", tree.join(".git").display())).unwrap();
        exclude(&tree).unwrap();
        assert!(main.join(".git/info/exclude").exists());
    }

    #[test]
    fn without_a_repository_nothing_is_made() {
        let place = tempfile::tempdir().unwrap();
        exclude(place.path()).unwrap();
        assert_eq!(fs::read_dir(place.path()).unwrap().count(), 0);
    }
}
