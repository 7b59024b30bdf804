//! The tree's own mounts. Each degrades singly: what can't be mounted is a gap, not a failure.

use nix::mount::{MsFlags, mount};

/// Cuts this mount namespace off from the machine's, so that nothing mounted here shows there.
pub(crate) fn cut_propagation() -> Result<(), nix::errno::Errno> {
    mount(
        None::<&str>,
        "/",
        None::<&str>,
        MsFlags::MS_REC | MsFlags::MS_PRIVATE,
        None::<&str>,
    )
}

/// Mounts a `/proc` that shows this PID namespace alone; gives the gap when it can't.
pub(crate) fn private_proc() -> Option<String> {
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC;
    mount(Some("proc"), "/proc", Some("proc"), flags, None::<&str>)
        .err()
        .map(|errno| {
            format!(
                "no private /proc, the machine's processes are listed: {}",
                errno.desc()
            )
        })
}
