//! What a tree has of its own whatever is asked: `/proc`, terminals, shared memory.

use std::path::Path;

use nix::errno::Errno;
use nix::mount::{MsFlags, mount};

use super::View;

/// Parts of `/proc` through which root, even without capabilities, changes the whole machine.
const MACHINE_WIDE: [&str; 5] = [
    "/proc/sys",
    "/proc/sysrq-trigger",
    "/proc/irq",
    "/proc/bus",
    "/proc/fs",
];

/// Nothing on these mounts gives privilege or is a device.
pub(super) const INERT: MsFlags = MsFlags::MS_NOSUID.union(MsFlags::MS_NODEV);

/// Cuts this mount namespace off from the machine's, so that nothing mounted here shows there.
pub(super) fn cut_propagation() -> Result<(), Errno> {
    mount(
        None::<&str>,
        "/",
        None::<&str>,
        MsFlags::MS_REC | MsFlags::MS_PRIVATE,
        None::<&str>,
    )
}

/// Mounts a `/proc` that shows this PID namespace alone.
pub(super) fn private_proc() -> Option<String> {
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
pub(super) fn private_terminals() -> Option<String> {
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NOEXEC;
    // No group for them: the usual one is not mapped in a user namespace.
    let options = Some("newinstance,ptmxmode=0666,mode=0620");
    mount(Some("devpts"), "/dev/pts", Some("devpts"), flags, options)
        .err()
        .map(|errno| format!("no private /dev/pts: {}", errno.desc()))
}

/// Mounts shared memory of the tree's own.
pub(super) fn private_memory(bytes: u64) -> Option<String> {
    tmpfs("/dev/shm".as_ref(), bytes)
        .err()
        .map(|errno| format!("no private /dev/shm: {}", errno.desc()))
}

/// Mounts an empty directory in memory that everybody may write, up to so many bytes.
pub(super) fn tmpfs(path: &Path, bytes: u64) -> Result<(), Errno> {
    let options = format!("mode=1777,size={bytes}");
    mount(
        Some("tmpfs"),
        path,
        Some("tmpfs"),
        INERT,
        Some(options.as_str()),
    )
}
