//! Covering a directory of the machine with an empty one, and putting back what the tree needs.

use std::os::fd::OwnedFd;
use std::path::{Component, Path, PathBuf};

use crate::policy::JailPolicy;
use crate::program::ProgramCall;
use crate::sys;

/// What of `/run` stays in sight: how names are resolved, and where some distributions keep their
/// programs. Everything else there is sockets of the machine's services and of other users.
pub(super) const RUN_KEPT: &[&str] = &[
    "/run/systemd/resolve",
    "/run/resolvconf",
    "/run/NetworkManager/resolv.conf",
    "/run/connman/resolv.conf",
    "/run/nscd",
    "/run/current-system",
    "/run/booted-system",
    "/run/opengl-driver",
];

/// A mount that was taken aside before its place is covered or closed.
#[derive(Debug)]
pub(super) struct Saved {
    pub(super) path: PathBuf,
    pub(super) clone: OwnedFd,
}

/// Takes aside what lies under `covered` and must stay in sight; an error, in words, where that
/// can't be: then it must not be covered.
pub(super) fn save(covered: &Path, needed: &[PathBuf]) -> Result<Vec<Saved>, String> {
    if needed.iter().any(|path| path == covered) {
        return Err(format!("the workspace is {} itself", covered.display()));
    }
    let save_one = |path: &PathBuf| match sys::clone_mount(path) {
        Ok(clone) => Ok(Saved {
            path: path.clone(),
            clone,
        }),
        // Without it the tree could not work, so the shared directory is the lesser evil.
        Err(errno) => Err(format!("can't keep {}: {}", path.display(), errno.desc())),
    };
    needed.iter().map(save_one).collect()
}

/// What lies under `covered` of that which the policy and the call name, without what another of
/// them holds already.
///
/// The arguments count too: a program that is a script stands there, after its interpreter.
pub(super) fn needed_under(
    covered: &Path,
    policy: &JailPolicy,
    call: &ProgramCall,
) -> Vec<PathBuf> {
    let named = policy
        .workspace
        .iter()
        .chain(&policy.cwd)
        .chain(&policy.visible)
        .cloned();
    let arguments = call
        .args
        .iter()
        .map(PathBuf::from)
        .filter(|path| path.is_absolute());
    let called = arguments
        .chain([call.file()])
        .filter(|path| path.as_path() != covered);
    // A path that does not exist fails later under its own name. One that leads through a link is
    // put back under both names, for the link itself is covered too; one with `..` in it can't be
    // made again as it was and is put back under its real name alone.
    let existing = named
        .chain(called)
        .filter_map(|path| Some((path.canonicalize().ok()?, path)));
    let both = existing.flat_map(|(real, named)| [real, named]);
    let plain = |path: &PathBuf| !path.components().any(|part| part == Component::ParentDir);
    outermost(
        both.filter(plain)
            .filter(|path| path.starts_with(covered))
            .collect(),
    )
}

/// Leaves only the paths that no other one contains.
pub(super) fn outermost(mut paths: Vec<PathBuf>) -> Vec<PathBuf> {
    // Sorted, a directory stands before everything in it.
    paths.sort();
    let mut kept: Vec<PathBuf> = Vec::new();
    for path in paths {
        if !kept.iter().any(|outer| path.starts_with(outer)) {
            kept.push(path);
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_nested_paths_only_the_outermost_is_put_back() {
        let paths = [
            "/tmp/b/c",
            "/tmp/a",
            "/tmp/ab",
            "/tmp/a/x",
            "/tmp/b/c",
            "/tmp/b/c/d",
        ];
        let kept = outermost(paths.iter().map(PathBuf::from).collect());
        assert_eq!(kept, ["/tmp/a", "/tmp/ab", "/tmp/b/c"].map(PathBuf::from));
    }
}
