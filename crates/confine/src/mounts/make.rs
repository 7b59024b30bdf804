//! The single mounts of a layout.

use std::fs::{DirBuilder, OpenOptions};
use std::os::fd::OwnedFd;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;

use nix::errno::Errno;
use nix::mount::{MsFlags, mount};

use super::private::INERT;
use crate::files::{Kind, Step, kind_of};
use crate::sys::{self, best_effort};

/// Makes the mount of a step that needs no saved mount.
///
/// # Errors
/// What the kernel says.
pub(super) fn guard(step: &Step) -> Result<(), Errno> {
    match step {
        // A saved mount is attached by `attach`; without one it can only be noticed as missing.
        Step::Open(_) => Err(Errno::ENODATA),
        Step::Close(path) => bind_onto_itself(path).and_then(|()| sys::set_read_only_below(path)),
        Step::Pin(path) => bind_onto_itself(path),
        Step::Hide(path, Kind::Directory) => hide_directory(path),
        Step::Hide(path, _) => {
            let bind = MsFlags::MS_BIND;
            mount(Some("/dev/null"), path, None::<&str>, bind, None::<&str>)
        }
    }
}

/// With all that is mounted below, for in a user namespace those mounts are locked together.
fn bind_onto_itself(path: &Path) -> Result<(), Errno> {
    let bind = MsFlags::MS_BIND | MsFlags::MS_REC;
    mount(Some(path), path, None::<&str>, bind, None::<&str>)
}

fn hide_directory(path: &Path) -> Result<(), Errno> {
    let flags = INERT | MsFlags::MS_NOEXEC | MsFlags::MS_RDONLY;
    // One page and one inode: there is nothing to hold.
    let options = Some("mode=0555,size=4096,nr_inodes=1");
    mount(Some("tmpfs"), path, Some("tmpfs"), flags, options)
}

/// Attaches a saved mount where it was; what leads to it is made where it is covered.
///
/// # Errors
/// What the kernel says.
pub(super) fn attach(path: &Path, clone: &OwnedFd) -> Result<(), Errno> {
    if kind_of(path) == Kind::Missing {
        make_mount_point(path, sys::is_directory(clone)?)?;
    }
    sys::attach_mount(clone, path)
}

fn make_mount_point(path: &Path, directory: bool) -> Result<(), Errno> {
    let to_errno = |error: std::io::Error| Errno::from_raw(error.raw_os_error().unwrap_or(0));
    let parent = if directory { Some(path) } else { path.parent() };
    if let Some(parent) = parent {
        make_directories(parent).map_err(to_errno)?;
    }
    if directory {
        return Ok(());
    }
    let created = OpenOptions::new().write(true).create_new(true).open(path);
    created.map(drop).map_err(to_errno)
}

/// Makes a directory and all that lead to it, each pinned: they lie in what everybody may write,
/// and whoever renamed one could put something else where the tree looks for its own.
pub(super) fn make_directories(path: &Path) -> std::io::Result<()> {
    let missing: Vec<&Path> = path
        .ancestors()
        .take_while(|parent| kind_of(parent) == Kind::Missing)
        .collect();
    for directory in missing.into_iter().rev() {
        DirBuilder::new().mode(0o755).create(directory)?;
        best_effort(bind_onto_itself(directory));
    }
    Ok(())
}
