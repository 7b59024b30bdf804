//! The few kernel calls that nix does not have, each wrapped once.

use std::ffi::{CString, c_int};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use nix::errno::Errno;

/// Turns the return value of a raw call into a result.
fn check(value: libc::c_long) -> Result<libc::c_long, Errno> {
    if value < 0 {
        Err(Errno::last())
    } else {
        Ok(value)
    }
}

/// A descriptor that a raw call has just made.
fn owned(value: libc::c_long) -> Result<OwnedFd, Errno> {
    let fd = RawFd::try_from(value).map_err(|_| Errno::EBADF)?;
    // SAFETY: the kernel returned `fd` as a new descriptor, so nothing else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Opens a pidfd (Linux 5.3); it is closed on exec.
pub(crate) fn pidfd_open(pid: u32) -> Result<OwnedFd, Errno> {
    // SAFETY: the call takes two integers and touches no memory of ours.
    let value = unsafe { libc::syscall(libc::SYS_pidfd_open, pid as libc::pid_t, 0) };
    check(value).and_then(owned)
}

/// Sends `signal` to the process behind a pidfd.
pub(crate) fn pidfd_send_signal(pidfd: BorrowedFd<'_>, signal: c_int) -> Result<(), Errno> {
    let no_info: *const libc::siginfo_t = std::ptr::null();
    // SAFETY: a null siginfo is allowed and means the one that kill(2) would make.
    let value = unsafe {
        libc::syscall(
            libc::SYS_pidfd_send_signal,
            pidfd.as_raw_fd(),
            signal,
            no_info,
            0,
        )
    };
    check(value).map(drop)
}

/// Closes every descriptor from `first` to `last`, both included.
pub(crate) fn close_range(first: u32, last: u32) -> Result<(), Errno> {
    // SAFETY: called before this process owns any descriptor in the range, so no owner is left
    // with a closed number; the call touches no memory.
    let value = unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) };
    check(value).map(drop)
}

/// From `linux/fcntl.h`; libc has none of them.
const DN_CREATE: c_int = 0x4;
const DN_RENAME: c_int = 0x10;
const DN_MULTISHOT: c_int = c_int::MIN;

/// Has SIGIO sent to this process whenever a name is made in an open directory, or moved into it or
/// out of it, for as long as the descriptor is open (fcntl(2), F_NOTIFY; EINVAL of a kernel without
/// it, or where the administrator has turned it off).
pub(crate) fn signal_new_names(directory: BorrowedFd<'_>) -> Result<(), Errno> {
    let names = DN_CREATE | DN_RENAME | DN_MULTISHOT;
    // SAFETY: the call takes integers and touches no memory of ours.
    let value = unsafe { libc::fcntl(directory.as_raw_fd(), libc::F_NOTIFY, names) };
    check(libc::c_long::from(value)).map(drop)
}

/// Whether a mount stands on the path itself (statx(2), STATX_ATTR_MOUNT_ROOT of Linux 5.8; ENOSYS
/// or ENOTSUP of an older kernel).
pub(crate) fn is_mount_root(path: &Path) -> Result<bool, Errno> {
    let path = CString::new(path.as_os_str().as_bytes()).map_err(|_| Errno::EINVAL)?;
    let mut found = std::mem::MaybeUninit::<libc::statx>::zeroed();
    let flags = libc::AT_SYMLINK_NOFOLLOW | libc::AT_NO_AUTOMOUNT | libc::AT_STATX_DONT_SYNC;
    // SAFETY: `path` ends with a zero byte, and `found` has the size that the kernel writes at most.
    let value = unsafe { libc::statx(libc::AT_FDCWD, path.as_ptr(), flags, 0, found.as_mut_ptr()) };
    check(libc::c_long::from(value))?;
    // SAFETY: all-zero was a valid value, and the kernel has written over it.
    let found = unsafe { found.assume_init() };
    let mount_root = libc::STATX_ATTR_MOUNT_ROOT as u64;
    match found.stx_attributes_mask & mount_root {
        0 => Err(Errno::ENOTSUP),
        _ => Ok(found.stx_attributes & mount_root != 0),
    }
}

/// Where a clone happened.
#[derive(Debug)]
pub(crate) enum Cloned {
    /// In the caller; the new process and its pidfd.
    Parent(u32, OwnedFd),
    /// In the new process.
    Child,
}

/// Forks with `flags`, such as new namespaces (clone3, Linux 5.3), into `cgroup` if one is given
/// (Linux 5.7).
///
/// The child runs on a copy of this stack as after fork(2). The C library is not told, so this is
/// for a process with one thread only, where no lock can be held and no thread id goes stale.
pub(crate) fn clone_into(flags: c_int, cgroup: Option<BorrowedFd<'_>>) -> Result<Cloned, Errno> {
    let mut pidfd: c_int = -1;
    // SAFETY: all-zero is a valid value of this plain structure and means no option.
    let mut args: libc::clone_args = unsafe { std::mem::zeroed() };
    args.flags = flags as u64 | libc::CLONE_PIDFD as u64;
    args.pidfd = &raw mut pidfd as u64;
    args.exit_signal = libc::SIGCHLD as u64;
    if let Some(directory) = cgroup {
        args.flags |= CLONE_INTO_CGROUP;
        args.cgroup = directory.as_raw_fd() as u64;
    }
    // SAFETY: `args` is initialised and lives through the call, its size is passed, `pidfd` is
    // writable, and without CLONE_VM the child has its own copy of all memory.
    let value = unsafe {
        libc::syscall(
            libc::SYS_clone3,
            &raw mut args,
            std::mem::size_of::<libc::clone_args>(),
        )
    };
    match check(value)? {
        0 => Ok(Cloned::Child),
        pid => {
            let pid = u32::try_from(pid).map_err(|_| Errno::ESRCH)?;
            Ok(Cloned::Parent(pid, owned(libc::c_long::from(pidfd))?))
        }
    }
}

/// Forks without any new namespace, also where a filter forbids clone3.
pub(crate) fn fork_with_pidfd() -> Result<Cloned, Errno> {
    // SAFETY: the caller has one thread, so the child may use everything it inherits.
    match unsafe { nix::unistd::fork() }? {
        nix::unistd::ForkResult::Child => Ok(Cloned::Child),
        nix::unistd::ForkResult::Parent { child } => {
            let pid = u32::try_from(child.as_raw()).map_err(|_| Errno::ESRCH)?;
            Ok(Cloned::Parent(pid, pidfd_open(pid)?))
        }
    }
}

/// From `linux/sched.h`; the C type of libc's flags is too narrow for it.
const CLONE_INTO_CGROUP: u64 = 0x2_0000_0000;

/// Sets the disposition of every signal to its default, real-time signals included.
///
/// By the raw call, for the C library refuses the two signals that it keeps for itself, and a
/// caller's ignored ones of those would pass on as well.
pub(crate) fn reset_dispositions() {
    // The kernel's own structure of a default disposition is all zeros, and no larger than this.
    let default = [0_u64; 4];
    let nowhere: *mut u64 = std::ptr::null_mut();
    for signal in 1..=SIGNAL_MAX {
        // SAFETY: `default` is readable and large enough, no old value is asked for, and the last
        // argument is the size of the kernel's signal mask. KILL and STOP are refused, which
        // leaves them at the only disposition they have.
        unsafe {
            libc::syscall(
                libc::SYS_rt_sigaction,
                signal,
                default.as_ptr(),
                nowhere,
                8_usize,
            );
        }
    }
}

/// The last real-time signal, signal(7).
const SIGNAL_MAX: c_int = 64;

/// Ends this process at once, without running anything that the parent's copy registered.
pub(crate) fn exit_now(code: u8) -> ! {
    // SAFETY: _exit never returns and may be called at any time.
    unsafe { libc::_exit(c_int::from(code)) }
}

/// Sends `signal` to this very process.
pub(crate) fn signal_self(signal: c_int) -> io::Result<()> {
    // SAFETY: the target is this process and the call touches no memory.
    let value = unsafe { libc::kill(libc::getpid(), signal) };
    if value < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}

/// Asks to be killed when the parent ends; the parent must have one thread, for the kernel means
/// the thread that forked.
pub(crate) fn die_with_parent() -> Result<(), Errno> {
    nix::sys::prctl::set_pdeathsig(nix::sys::signal::Signal::SIGKILL)
}

/// Lets a failure go that changes nothing here; each use says why in its place.
pub(crate) fn best_effort<T, E>(_outcome: Result<T, E>) {}

/// From `linux/mount.h`.
const OPEN_TREE_CLONE: u32 = 1;
/// From `linux/mount.h`.
const MOVE_MOUNT_F_EMPTY_PATH: u32 = 4;

/// Clones the mounts at and below `path` into a detached tree (Linux 5.2).
///
/// Recursively, for in a user namespace inherited mounts are locked together.
pub(crate) fn clone_mount(path: &Path) -> Result<OwnedFd, Errno> {
    let path = CString::new(path.as_os_str().as_bytes()).map_err(|_| Errno::EINVAL)?;
    let flags = OPEN_TREE_CLONE | libc::O_CLOEXEC as u32 | libc::AT_RECURSIVE as u32;
    // SAFETY: `path` is a terminated string that outlives the call.
    let value = unsafe { libc::syscall(libc::SYS_open_tree, libc::AT_FDCWD, path.as_ptr(), flags) };
    check(value).and_then(owned)
}

/// Attaches a detached tree of mounts at `path`.
pub(crate) fn attach_mount(tree: &OwnedFd, path: &Path) -> Result<(), Errno> {
    let path = CString::new(path.as_os_str().as_bytes()).map_err(|_| Errno::EINVAL)?;
    // SAFETY: both strings are terminated and outlive the call; `tree` is open.
    let value = unsafe {
        libc::syscall(
            libc::SYS_move_mount,
            tree.as_raw_fd(),
            c"".as_ptr(),
            libc::AT_FDCWD,
            path.as_ptr(),
            MOVE_MOUNT_F_EMPTY_PATH,
        )
    };
    check(value).map(drop)
}

/// Whether a descriptor, also one that only names a path, is a directory.
pub(crate) fn is_directory(fd: &OwnedFd) -> Result<bool, Errno> {
    let kind = nix::sys::stat::fstat(fd)?.st_mode & libc::S_IFMT;
    Ok(kind == libc::S_IFDIR)
}

/// Waits until there is something to read, at most for the pause.
pub(crate) fn wait_readable(fd: BorrowedFd<'_>, pause_ms: u16) {
    let mut fds = [nix::poll::PollFd::new(fd, nix::poll::PollFlags::POLLIN)];
    // Woken early or not at all, the caller looks again.
    best_effort(nix::poll::poll(
        &mut fds,
        nix::poll::PollTimeout::from(pause_ms),
    ));
}

/// From `linux/mount.h`.
const MOUNT_ATTR_RDONLY: u64 = 1;

/// `struct mount_attr` of `linux/mount.h`.
#[repr(C)]
struct MountAttributes {
    set: u64,
    clear: u64,
    propagation: u64,
    user_namespace: u64,
}

/// Makes the mount at `path` and all below it read-only (mount_setattr(2), Linux 5.12).
pub(crate) fn set_read_only_below(path: &Path) -> Result<(), Errno> {
    set_read_only(libc::AT_FDCWD, path, libc::AT_RECURSIVE)
}

/// Makes the one mount at `path` read-only (Linux 5.12).
pub(crate) fn set_read_only_alone(path: &Path) -> Result<(), Errno> {
    set_read_only(libc::AT_FDCWD, path, 0)
}

/// Makes a detached tree of mounts read-only (Linux 5.12).
pub(crate) fn set_read_only_detached(tree: &OwnedFd) -> Result<(), Errno> {
    let flags = libc::AT_RECURSIVE | libc::AT_EMPTY_PATH;
    set_read_only(tree.as_raw_fd(), Path::new(""), flags)
}

fn set_read_only(directory: RawFd, path: &Path, flags: c_int) -> Result<(), Errno> {
    let path = CString::new(path.as_os_str().as_bytes()).map_err(|_| Errno::EINVAL)?;
    let attributes = MountAttributes {
        set: MOUNT_ATTR_RDONLY,
        clear: 0,
        propagation: 0,
        user_namespace: 0,
    };
    // SAFETY: `path` is a terminated string, `attributes` has the kernel's layout and its size is
    // passed; both outlive the call.
    let value = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            directory,
            path.as_ptr(),
            flags,
            &raw const attributes,
            std::mem::size_of::<MountAttributes>(),
        )
    };
    check(value).map(drop)
}
