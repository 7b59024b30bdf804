//! Descriptors: which ones cross into the tree, and what the jail keeps for itself.
//!
//! 0 and 1 are moved out of the way first thing and replaced by `/dev/null`, in the jail and by
//! inheritance in init: whoever holds a copy of the channel hides its end of file.

use std::fs::{File, OpenOptions};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, fcntl};
use nix::poll::{PollFd, PollFlags, PollTimeout};

use crate::limits;
use crate::policy::JailKind;
use crate::report::{JailLine, Step};
use crate::steps::StepError;
use crate::sys;

/// Closes every descriptor above 2, except the one that tests keep open everywhere.
pub(crate) fn close_strangers(keep: Option<i32>) -> Result<(), StepError> {
    let failed = |errno| StepError::errno(Step::Descriptors, errno, "close inherited descriptors");
    let Some(keep) = keep.and_then(|fd| u32::try_from(fd).ok()) else {
        return sys::close_range(3, u32::MAX).map_err(failed);
    };
    sys::close_range(3, keep - 1).map_err(failed)?;
    sys::close_range(keep + 1, u32::MAX).map_err(failed)
}

/// Keeps number 3 taken until the program gets the keeper's socket there: nothing else of the start
/// may lie under a number that is replaced later.
#[derive(Debug)]
pub(crate) struct Placeholder(OwnedFd);

impl Placeholder {
    /// Takes the lowest free number, which is 3 after [`close_strangers`].
    pub(crate) fn take() -> Result<Placeholder, StepError> {
        open_null().map(Placeholder)
    }

    /// Puts `socket` in its place, to stay open in the program.
    pub(crate) fn replace(&self, socket: &OwnedFd) -> Result<(), StepError> {
        // SAFETY: both are open; the number is the placeholder's own, which stands for nothing.
        let done = unsafe { libc::dup2(socket.as_raw_fd(), self.0.as_raw_fd()) };
        Errno::result(done).map(drop).map_err(|errno| {
            StepError::errno(Step::Descriptors, errno, "pass the keeper's socket on")
        })
    }
}

/// Where a jail's or keeper's lines go.
#[derive(Debug)]
pub(crate) struct Lines {
    /// Nothing where it can't be written to.
    to: Option<OwnedFd>,
    /// Whether the program writes there too, so that a line must begin on a line of its own.
    shared: bool,
    /// How long a line may wait for room.
    budget_ms: u16,
    /// Where notes go that must not stand between the program's own lines.
    notes: Option<OwnedFd>,
}

impl Lines {
    /// Lines on a socket of their own, written by a process that must not wait.
    pub(crate) fn alone(to: OwnedFd) -> Lines {
        Lines {
            to: writable(to),
            shared: false,
            budget_ms: 0,
            notes: None,
        }
    }

    /// Writes a line before anything of the program can stand there.
    pub(crate) fn first(&self, line: &JailLine) {
        self.write_within_budget(line.to_line().as_bytes());
    }

    /// Writes a line beside the program's, where there is a place for it and room in it.
    pub(crate) fn note(&self, line: &JailLine) {
        if let Some(to) = &self.notes {
            write_while_room(to, line.to_line().as_bytes(), 0);
        }
    }

    /// Writes a line after the program, which may have left half a line of its own.
    pub(crate) fn last(&self, line: &JailLine) {
        let begin = if self.shared { "\n" } else { "" };
        self.write_within_budget(format!("{begin}{}", line.to_line()).as_bytes());
    }

    /// The descriptor, to see it hang up.
    pub(crate) fn as_fd(&self) -> Option<BorrowedFd<'_>> {
        self.to.as_ref().map(AsFd::as_fd)
    }

    /// Writes what fits within the budget. A lost line is no fault of the tree: the verdict is the
    /// wait status, so a full or broken channel must not keep the jail from ending.
    fn write_within_budget(&self, bytes: &[u8]) {
        if let Some(to) = &self.to {
            write_while_room(to, bytes, self.budget_ms);
        }
    }
}

/// Writes as long as there is room, waiting for it for no longer than the budget each time.
fn write_while_room(to: &OwnedFd, mut bytes: &[u8], budget_ms: u16) {
    while !bytes.is_empty() {
        let mut fds = [PollFd::new(to.as_fd(), PollFlags::POLLOUT)];
        match nix::poll::poll(&mut fds, PollTimeout::from(budget_ms)) {
            Ok(0) => return,
            Ok(_) => {}
            Err(Errno::EINTR) => continue,
            Err(_) => return,
        }
        // A pipe that polls writable has room for this much, so the write can't block.
        let chunk = &bytes[..bytes.len().min(limits::PIPE_CHUNK_BYTES)];
        match nix::unistd::write(to, chunk) {
            Ok(written) => bytes = &bytes[written..],
            Err(Errno::EINTR | Errno::EAGAIN) => {}
            Err(_) => return,
        }
    }
}

/// The jail's own hold on descriptors 0 and 1.
#[derive(Debug)]
pub(crate) struct Channel {
    /// What hangs up when the caller is gone.
    watch: OwnedFd,
    lines: Lines,
}

/// What the program gets as its standard descriptors.
#[derive(Debug)]
pub(crate) struct ProgramEnds {
    pub(crate) stdin: OwnedFd,
    pub(crate) stdout: OwnedFd,
    /// Its own, where it does not share the jail's.
    pub(crate) stderr: Option<OwnedFd>,
}

impl Channel {
    /// Moves 0 and 1 away and leaves `/dev/null` in their places.
    pub(crate) fn claim(kind: JailKind) -> Result<(Channel, ProgramEnds), StepError> {
        let null = open_null()?;
        let zero = copy(std::io::stdin().as_fd())?;
        let one = copy(std::io::stdout().as_fd())?;
        over_standard(&null, Standard::Input)?;
        over_standard(&null, Standard::Output)?;
        let (stdin, stdout, to) = match kind {
            JailKind::Worker => (copy(zero.as_fd())?, copy(one.as_fd())?, one),
            JailKind::Command => (null, one, copy(zero.as_fd())?),
        };
        let shared = kind == JailKind::Worker;
        let lines = Lines {
            to: writable(to),
            shared,
            budget_ms: limits::LINE_BUDGET_MS,
            notes: copy(std::io::stderr().as_fd()).ok().and_then(writable),
        };
        Ok((
            Channel { watch: zero, lines },
            ProgramEnds {
                stdin,
                stdout,
                stderr: None,
            },
        ))
    }

    /// The descriptor whose hang-up means that the caller is gone.
    pub(crate) fn watch(&self) -> BorrowedFd<'_> {
        self.watch.as_fd()
    }

    /// Where the jail's lines go.
    pub(crate) fn lines(&self) -> &Lines {
        &self.lines
    }
}

impl ProgramEnds {
    /// Puts them in place in the process that becomes the program.
    pub(crate) fn install(&self) -> Result<(), StepError> {
        over_standard(&self.stdin, Standard::Input)?;
        over_standard(&self.stdout, Standard::Output)?;
        match &self.stderr {
            Some(stderr) => over_standard(stderr, Standard::Error),
            None => Ok(()),
        }
    }
}

/// A command may have `/dev/null` or a pipe's reading end instead of a report socket; a line could
/// only wait for room there that never comes.
fn writable(fd: OwnedFd) -> Option<OwnedFd> {
    let flags = fcntl(fd.as_fd(), FcntlArg::F_GETFL).ok()?;
    (flags & libc::O_ACCMODE != libc::O_RDONLY).then_some(fd)
}

enum Standard {
    Input,
    Output,
    Error,
}

fn over_standard(fd: &impl AsFd, which: Standard) -> Result<(), StepError> {
    let done = match which {
        Standard::Input => nix::unistd::dup2_stdin(fd.as_fd()),
        Standard::Output => nix::unistd::dup2_stdout(fd.as_fd()),
        Standard::Error => nix::unistd::dup2_stderr(fd.as_fd()),
    };
    done.map_err(|errno| {
        StepError::errno(Step::Descriptors, errno, "replace a standard descriptor")
    })
}

fn open_null() -> Result<OwnedFd, StepError> {
    let opened: std::io::Result<File> = OpenOptions::new().read(true).write(true).open("/dev/null");
    opened.map(OwnedFd::from).map_err(|error| {
        let errno = Errno::from_raw(error.raw_os_error().unwrap_or(0));
        StepError::errno(Step::Descriptors, errno, "open").at("/dev/null".as_ref())
    })
}

/// A copy above the standard descriptors that is closed on exec.
fn copy(fd: BorrowedFd<'_>) -> Result<OwnedFd, StepError> {
    fd.try_clone_to_owned().map_err(|error| {
        let errno = Errno::from_raw(error.raw_os_error().unwrap_or(0));
        StepError::errno(Step::Descriptors, errno, "copy a standard descriptor")
    })
}

/// Whether a descriptor is open at all.
pub(crate) fn is_open(fd: i32) -> bool {
    // SAFETY: the number is only asked about; a closed one gives EBADF.
    let fd = unsafe { BorrowedFd::borrow_raw(fd) };
    fcntl(fd.as_fd(), FcntlArg::F_GETFD).is_ok() && fd.as_raw_fd() >= 0
}
