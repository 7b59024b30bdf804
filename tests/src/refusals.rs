//! System calls that the kernel refuses while a test wants it to: what a full table of processes,
//! a lack of descriptors, a broken disk or an older kernel look like to a program.
//!
//! The program is started by the executable `refusing`, whose filter asks this side before each of
//! the calls (`SECCOMP_RET_USER_NOTIF`, Linux 5.5).

use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{ControlMessageOwned, MsgFlags, recvmsg};

use crate::workspace::Workspace;

/// Whose calls are refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Whose {
    /// The program's own, not those of what it starts.
    Its,
    /// Those of everybody whom it starts as well.
    Everybodys,
}

/// The number of a system call on this machine, of those that tests refuse.
pub fn call_number(name: &str) -> Option<u32> {
    let number = match name {
        "clone" => libc::SYS_clone,
        "clone3" => libc::SYS_clone3,
        "unshare" => libc::SYS_unshare,
        "pidfd_open" => libc::SYS_pidfd_open,
        "pipe2" => libc::SYS_pipe2,
        "socketpair" => libc::SYS_socketpair,
        "fsync" => libc::SYS_fsync,
        "fdatasync" => libc::SYS_fdatasync,
        "landlock_create_ruleset" => libc::SYS_landlock_create_ruleset,
        "mount" => libc::SYS_mount,
        _ => return None,
    };
    u32::try_from(number).ok()
}

/// Calls of one program that can be refused.
#[derive(Debug)]
pub struct Refusals {
    wrapper: Vec<OsString>,
    told: Arc<Told>,
    answering: Option<JoinHandle<io::Result<()>>>,
    socket: PathBuf,
}

#[derive(Debug)]
struct Told {
    whose: Whose,
    /// What is said of a call; 0 lets it through.
    errno: AtomicI32,
    refused: AtomicUsize,
}

impl Refusals {
    /// Makes ready for a program of the workspace.
    ///
    /// # Panics
    /// When the system gives no socket.
    pub fn of(workspace: &Workspace, whose: Whose, calls: &[&str]) -> Refusals {
        let socket = workspace.home().join("refusals");
        let listener = UnixListener::bind(&socket).expect("a fresh name in a folder of ours");
        std::fs::set_permissions(&socket, PermissionsExt::from_mode(0o666)).expect("ours");
        let told = Arc::new(Told {
            whose,
            errno: AtomicI32::new(0),
            refused: AtomicUsize::new(0),
        });
        let shared = Arc::clone(&told);
        let answering = thread::spawn(move || {
            let (stream, _) = listener.accept()?;
            let (program, calls) = receive(stream.as_raw_fd())?;
            shared.answer(program, &calls)
        });
        Refusals {
            wrapper: vec![
                workspace.executable("refusing").into(),
                socket.clone().into(),
                calls.join(",").into(),
            ],
            told,
            answering: Some(answering),
            socket,
        }
    }

    /// One of our executables as [`Workspace::command`] gives it, its calls held by this value.
    pub fn command(&self, workspace: &Workspace, name: &str) -> Command {
        workspace.command_under(&self.wrapper, name)
    }

    /// Refuses the calls from now on.
    pub fn begin(&self, errno: i32) {
        self.told.errno.store(errno, Ordering::SeqCst);
    }

    /// Lets them through from now on.
    pub fn end(&self) {
        self.begin(0);
    }

    /// How many were refused.
    pub fn count(&self) -> usize {
        self.told.refused.load(Ordering::SeqCst)
    }
}

impl Drop for Refusals {
    fn drop(&mut self) {
        self.end();
        // Whoever waits for a program that never came is let go.
        drop(std::os::unix::net::UnixStream::connect(&self.socket));
        let ended = self.answering.take().map(JoinHandle::join);
        if let (Some(Ok(Err(error))), false) = (ended, thread::panicking()) {
            panic!("the calls were not answered to the end: {error}");
        }
    }
}

/// The number of the program and the listener of its filter.
fn receive(stream: i32) -> io::Result<(i32, OwnedFd)> {
    let mut pid = [0; 4];
    let mut space = nix::cmsg_space!(i32);
    let mut parts = [io::IoSliceMut::new(&mut pid)];
    let message = recvmsg::<()>(
        stream,
        &mut parts,
        Some(&mut space),
        MsgFlags::MSG_CMSG_CLOEXEC,
    )?;
    let fds: Vec<i32> = message
        .cmsgs()?
        .filter_map(|part| match part {
            ControlMessageOwned::ScmRights(fds) => Some(fds),
            _ => None,
        })
        .flatten()
        .collect();
    let [fd] = fds.as_slice() else {
        return Err(io::Error::other("the program did not come"));
    };
    // SAFETY: the kernel made this descriptor for us with the message.
    let listener = unsafe { OwnedFd::from_raw_fd(*fd) };
    Ok((i32::from_le_bytes(pid), listener))
}

impl Told {
    /// Answers until nobody is left whose calls could come.
    fn answer(&self, program: i32, calls: &OwnedFd) -> io::Result<()> {
        loop {
            let mut fds = [PollFd::new(calls.as_fd(), PollFlags::POLLIN)];
            poll(&mut fds, PollTimeout::NONE)?;
            let events = fds[0].revents().unwrap_or(PollFlags::empty());
            if !events.contains(PollFlags::POLLIN) {
                return Ok(());
            }
            // SAFETY: all-zero is a valid value of this plain structure, and the one that the
            // kernel wants to be given.
            let mut call: libc::seccomp_notif = unsafe { std::mem::zeroed() };
            // SAFETY: the structure is writable and of the type that this request wants.
            let got = unsafe {
                libc::ioctl(
                    calls.as_raw_fd(),
                    libc::SECCOMP_IOCTL_NOTIF_RECV,
                    &raw mut call,
                )
            };
            match got {
                0 => {}
                // The caller was killed meanwhile.
                _ if is_gone(&io::Error::last_os_error()) => continue,
                _ => return Err(io::Error::last_os_error()),
            }
            let errno = match self.whose {
                Whose::Its if process_of(call.pid) != Some(program) => 0,
                Whose::Its | Whose::Everybodys => self.errno.load(Ordering::SeqCst),
            };
            let through = libc::SECCOMP_USER_NOTIF_FLAG_CONTINUE as u32;
            let mut answer = libc::seccomp_notif_resp {
                id: call.id,
                val: 0,
                error: -errno,
                flags: if errno == 0 { through } else { 0 },
            };
            if errno != 0 {
                self.refused.fetch_add(1, Ordering::SeqCst);
            }
            // SAFETY: the structure is readable and of the type that this request wants.
            let sent = unsafe {
                libc::ioctl(
                    calls.as_raw_fd(),
                    libc::SECCOMP_IOCTL_NOTIF_SEND,
                    &raw mut answer,
                )
            };
            if sent != 0 && !is_gone(&io::Error::last_os_error()) {
                return Err(io::Error::last_os_error());
            }
        }
    }
}

fn is_gone(error: &io::Error) -> bool {
    error.raw_os_error() == Some(libc::ENOENT)
}

/// The process that a thread belongs to; none when it is gone.
fn process_of(thread: u32) -> Option<i32> {
    let status = std::fs::read_to_string(format!("/proc/{thread}/status")).ok()?;
    let group = status.lines().find_map(|line| line.strip_prefix("Tgid:"))?;
    group.trim().parse().ok()
}
