//! What a commit in a linked worktree of a repository writes outside the worktree
//! (gitrepository-layout(5)).

use std::fs::File;
use std::io::Read;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// The link file of a worktree holds one path.
const LINK_BYTES_MAX: u64 = 8 * 1024;

/// The places in the workspace's repository that a commit in `tree` writes, if `tree` is a linked
/// worktree of it: objects, branches and their logs, and the worktree's own folder. Hooks and
/// configuration are not among them.
///
/// An agent could have written the link, so it counts only where the repository points back.
pub fn commit_places(workspace: &Path, tree: &Path) -> Vec<PathBuf> {
    let repository = workspace.join(".git");
    own_folder(&repository, tree).map_or_else(Vec::new, |own| {
        let shared = ["objects", "refs/heads", "logs/refs/heads"];
        let mut places: Vec<PathBuf> = shared.iter().map(|it| repository.join(it)).collect();
        places.push(own);
        places
    })
}

/// The worktree's own folder in the repository.
fn own_folder(repository: &Path, tree: &Path) -> Option<PathBuf> {
    let link = tree.join(".git");
    let text = read_small(&link)?;
    let named = PathBuf::from(text.strip_prefix("gitdir:")?.trim());
    let own = named.canonicalize().ok()?;
    let back = PathBuf::from(read_small(&own.join("gitdir"))?.trim());
    let is_ours = own.parent() == Some(&*repository.join("worktrees"));
    (is_ours && back.canonicalize().ok()? == link.canonicalize().ok()?).then_some(own)
}

/// The text of a small regular file that is no link; it never waits.
fn read_small(path: &Path) -> Option<String> {
    let flags = nix::libc::O_NOFOLLOW | nix::libc::O_NONBLOCK;
    let file = File::options()
        .read(true)
        .custom_flags(flags)
        .open(path)
        .ok()?;
    if !file.metadata().ok()?.is_file() {
        return None;
    }
    let mut text = String::new();
    file.take(LINK_BYTES_MAX).read_to_string(&mut text).ok()?;
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn a_worktree_counts_only_where_the_repository_points_back() {
        let place = tempfile::tempdir().unwrap();
        let workspace = place.path().canonicalize().unwrap();
        let own = workspace.join(".git/worktrees/a");
        fs::create_dir_all(&own).unwrap();
        let tree = |name: &str| {
            let tree = workspace.join(name);
            fs::create_dir_all(&tree).unwrap();
            fs::write(tree.join(".git"), format!("gitdir: {}\n", own.display())).unwrap();
            tree
        };
        let (real, forged) = (tree("real"), tree("forged"));
        let back = format!("{}\n", real.join(".git").display());
        fs::write(own.join("gitdir"), back).unwrap();
        let git = workspace.join(".git");
        let expected = [
            git.join("objects"),
            git.join("refs/heads"),
            git.join("logs/refs/heads"),
            own.clone(),
        ];
        assert_eq!(commit_places(&workspace, &real), expected);
        assert_eq!(commit_places(&workspace, &forged), Vec::<PathBuf>::new());
        assert_eq!(commit_places(&workspace, &workspace), Vec::<PathBuf>::new());
        // A folder of another repository is none of this workspace's business.
        let other = place.path().join("other/.git/worktrees/a");
        fs::create_dir_all(&other).unwrap();
        fs::write(real.join(".git"), format!("gitdir: {}\n", other.display())).unwrap();
        assert_eq!(commit_places(&workspace, &real), Vec::<PathBuf>::new());
    }
}
