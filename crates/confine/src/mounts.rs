//! The tree's own mounts. Each degrades singly: what can't be mounted is a gap, not a failure.

use std::fs::{DirBuilder, File};
use std::os::fd::OwnedFd;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Component, Path, PathBuf};

use nix::errno::Errno;
use nix::mount::{MsFlags, mount};

use crate::policy::{JailKind, JailPolicy};
use crate::program::ProgramCall;
use crate::sys::{self, best_effort};

/// Parts of `/proc` through which root, even without capabilities, changes the whole machine.
const MACHINE_WIDE: [&str; 5] = [
    "/proc/sys",
    "/proc/sysrq-trigger",
    "/proc/irq",
    "/proc/bus",
    "/proc/fs",
];

/// Nothing on these mounts gives privilege or is a device.
const INERT: MsFlags = MsFlags::MS_NOSUID.union(MsFlags::MS_NODEV);

/// Whether the mounts of this namespace are its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum View {
    /// They are: a mount here shows nowhere else.
    Own,
    /// They are not: a mount here would show on the machine, so none may be made.
    Shared,
}

/// Makes everything a tree has of its own, and lists what could not be made.
///
/// What `call` names stays reachable wherever it lies.
pub(crate) fn build(policy: &JailPolicy, call: &ProgramCall) -> (View, Vec<String>) {
    let mut gaps = Vec::new();
    // It fails where the root is no mount point, as in a chroot.
    if let Err(errno) = cut_propagation() {
        return (
            View::Shared,
            vec![format!("no mounts of its own: {}", errno.desc())],
        );
    }
    match policy.kind {
        JailKind::Worker => {
            gaps.extend(private_tmp(policy, call));
            gaps.extend(private_memory(policy.tmp_bytes));
        }
        // What one command leaves in the shared ones is there for the next.
        JailKind::Command => {}
    }
    gaps.extend(private_proc());
    gaps.extend(private_terminals());
    (View::Own, gaps)
}

/// Makes what a command has of its own inside a tree.
pub(crate) fn build_for_command(view: View) -> Vec<String> {
    match view {
        View::Own => private_proc().into_iter().collect(),
        View::Shared => vec!["no private /proc: the tree has no mounts of its own".to_owned()],
    }
}

/// Cuts this mount namespace off from the machine's, so that nothing mounted here shows there.
fn cut_propagation() -> Result<(), Errno> {
    mount(
        None::<&str>,
        "/",
        None::<&str>,
        MsFlags::MS_REC | MsFlags::MS_PRIVATE,
        None::<&str>,
    )
}

/// Mounts a `/proc` that shows this PID namespace alone.
fn private_proc() -> Option<String> {
    let flags = INERT | MsFlags::MS_NOEXEC;
    mount(Some("proc"), "/proc", Some("proc"), flags, None::<&str>)
        .err()
        .map(|errno| {
            format!(
                "no private /proc, the machine's processes are listed: {}",
                errno.desc()
            )
        })
}

/// Makes the machine-wide parts of `/proc` read-only; to be done after the last write to them.
pub(crate) fn seal_proc(view: View) -> Vec<String> {
    if view == View::Shared {
        return vec!["settings of the machine in /proc are writable for root".to_owned()];
    }
    MACHINE_WIDE
        .into_iter()
        .filter(|path| Path::new(path).exists())
        .filter_map(|path| {
            read_only(path)
                .err()
                .map(|errno| format!("{path} is writable: {}", errno.desc()))
        })
        .collect()
}

/// A mount can be made read-only only by itself, so the path is bound onto itself first.
fn read_only(path: &str) -> Result<(), Errno> {
    let bind = MsFlags::MS_BIND | MsFlags::MS_REC;
    mount(Some(path), path, None::<&str>, bind, None::<&str>)?;
    // The flags of the mount below stay, for in a user namespace they are locked.
    let flags =
        MsFlags::MS_REMOUNT | MsFlags::MS_BIND | MsFlags::MS_RDONLY | MsFlags::MS_NOEXEC | INERT;
    mount(None::<&str>, path, None::<&str>, flags, None::<&str>)
}

/// Mounts terminals of the tree's own: through the machine's, root could write to the leader's.
fn private_terminals() -> Option<String> {
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NOEXEC;
    // No group for them: the usual one is not mapped in a user namespace.
    let options = Some("newinstance,ptmxmode=0666,mode=0620");
    mount(Some("devpts"), "/dev/pts", Some("devpts"), flags, options)
        .err()
        .map(|errno| format!("no private /dev/pts: {}", errno.desc()))
}

fn private_memory(bytes: u64) -> Option<String> {
    tmpfs("/dev/shm".as_ref(), bytes)
        .err()
        .map(|errno| format!("no private /dev/shm: {}", errno.desc()))
}

fn tmpfs(path: &Path, bytes: u64) -> Result<(), Errno> {
    let options = format!("mode=1777,size={bytes}");
    mount(
        Some("tmpfs"),
        path,
        Some("tmpfs"),
        INERT,
        Some(options.as_str()),
    )
}

/// Mounts an empty `/tmp`, and puts back into it what the tree needs from the one it covers.
fn private_tmp(policy: &JailPolicy, call: &ProgramCall) -> Vec<String> {
    let Ok(tmp) = Path::new("/tmp").canonicalize() else {
        return vec!["no private /tmp: there is no /tmp".to_owned()];
    };
    let needed = needed_under(&tmp, policy, call);
    if needed.contains(&tmp) {
        return vec!["no private /tmp: the workspace is /tmp itself".to_owned()];
    }
    let mut gaps = Vec::new();
    let mut saved = Vec::new();
    for path in needed {
        match sys::clone_mount(&path) {
            Ok(clone) => saved.push((path, clone)),
            // Without it the tree could not work, so the shared /tmp is the lesser evil.
            Err(errno) => {
                let path = path.display();
                return vec![format!(
                    "no private /tmp: can't keep {path}: {}",
                    errno.desc()
                )];
            }
        }
    }
    if let Err(errno) = tmpfs(&tmp, policy.tmp_bytes) {
        return vec![format!("no private /tmp: {}", errno.desc())];
    }
    if let Some(directory) = std::env::var_os("TMPDIR").map(PathBuf::from)
        && directory.starts_with(&tmp)
    {
        // Where it can't be made, what wants it says so by its name.
        best_effort(
            DirBuilder::new()
                .recursive(true)
                .mode(0o700)
                .create(directory),
        );
    }
    for (path, clone) in saved {
        if let Err(errno) = put_back(&path, &clone) {
            gaps.push(format!(
                "{} is not visible: {}",
                path.display(),
                errno.desc()
            ));
        }
    }
    gaps
}

/// What lies under `tmp` of that which the policy and the call name, without what another of them
/// holds already.
///
/// The arguments count too: a program that is a script stands there, after its interpreter.
fn needed_under(tmp: &Path, policy: &JailPolicy, call: &ProgramCall) -> Vec<PathBuf> {
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
        .filter(|path| path.as_path() != tmp);
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
            .filter(|path| path.starts_with(tmp))
            .collect(),
    )
}

/// Leaves only the paths that no other one contains.
fn outermost(mut paths: Vec<PathBuf>) -> Vec<PathBuf> {
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

fn put_back(path: &Path, clone: &OwnedFd) -> Result<(), Errno> {
    let to_errno = |error: std::io::Error| Errno::from_raw(error.raw_os_error().unwrap_or(0));
    if sys::is_directory(clone)? {
        DirBuilder::new()
            .recursive(true)
            .mode(0o755)
            .create(path)
            .map_err(to_errno)?;
    } else {
        if let Some(parent) = path.parent() {
            DirBuilder::new()
                .recursive(true)
                .mode(0o755)
                .create(parent)
                .map_err(to_errno)?;
        }
        File::create(path).map_err(to_errno)?;
    }
    sys::attach_mount(clone, path)
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
