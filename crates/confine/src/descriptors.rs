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

/// The jail's own hold on descriptors 0 and 1.
#[derive(Debug)]
pub(crate) struct Channel {
    /// What hangs up when the caller is gone.
    watch: OwnedFd,
    /// Where the jail's lines go.
    lines: OwnedFd,
    kind: JailKind,
}

/// What the program gets as its descriptors 0 and 1.
#[derive(Debug)]
pub(crate) struct ProgramEnds {
    stdin: OwnedFd,
    stdout: OwnedFd,
}

impl Channel {
    /// Moves 0 and 1 away and leaves `/dev/null` in their places.
    pub(crate) fn claim(kind: JailKind) -> Result<(Channel, ProgramEnds), StepError> {
        let null = open_null()?;
        let zero = copy(std::io::stdin().as_fd())?;
        let one = copy(std::io::stdout().as_fd())?;
        over_standard(&null, Standard::Input)?;
        over_standard(&null, Standard::Output)?;
        match kind {
            JailKind::Worker => {
                let ends = ProgramEnds {
                    stdin: copy(zero.as_fd())?,
                    stdout: copy(one.as_fd())?,
                };
                Ok((
                    Channel {
                        watch: zero,
                        lines: one,
                        kind,
                    },
                    ends,
                ))
            }
            JailKind::Command => {
                let ends = ProgramEnds {
                    stdin: null,
                    stdout: one,
                };
                let lines = copy(zero.as_fd())?;
                Ok((
                    Channel {
                        watch: zero,
                        lines,
                        kind,
                    },
                    ends,
                ))
            }
        }
    }

    /// The descriptor whose hang-up means that the caller is gone.
    pub(crate) fn watch(&self) -> BorrowedFd<'_> {
        self.watch.as_fd()
    }

    /// Writes a line before anything of the program can stand on the channel.
    pub(crate) fn first_line(&self, line: &JailLine) {
        self.write_within_budget(line.to_line().as_bytes());
    }

    /// Writes a line after the program, which may have left half a line of its own.
    pub(crate) fn last_line(&self, line: &JailLine) {
        let text = match self.kind {
            JailKind::Worker => format!("\n{}", line.to_line()),
            JailKind::Command => line.to_line(),
        };
        self.write_within_budget(text.as_bytes());
    }

    /// Writes what fits within the budget. A lost line is no fault of the tree: the verdict is the
    /// wait status, so a full or broken channel must not keep the jail from ending.
    fn write_within_budget(&self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let mut fds = [PollFd::new(self.lines.as_fd(), PollFlags::POLLOUT)];
            match nix::poll::poll(&mut fds, PollTimeout::from(limits::LINE_BUDGET_MS)) {
                Ok(0) => return,
                Ok(_) => {}
                Err(Errno::EINTR) => continue,
                Err(_) => return,
            }
            // A pipe that polls writable has room for this much, so the write can't block.
            let chunk = &bytes[..bytes.len().min(limits::PIPE_CHUNK_BYTES)];
            match nix::unistd::write(&self.lines, chunk) {
                Ok(written) => bytes = &bytes[written..],
                Err(Errno::EINTR | Errno::EAGAIN) => {}
                Err(_) => return,
            }
        }
    }
}

impl ProgramEnds {
    /// Puts them at 0 and 1 of the process that becomes the program.
    pub(crate) fn install(&self) -> Result<(), StepError> {
        over_standard(&self.stdin, Standard::Input)?;
        over_standard(&self.stdout, Standard::Output)
    }
}

enum Standard {
    Input,
    Output,
}

fn over_standard(fd: &impl AsFd, which: Standard) -> Result<(), StepError> {
    let done = match which {
        Standard::Input => nix::unistd::dup2_stdin(fd.as_fd()),
        Standard::Output => nix::unistd::dup2_stdout(fd.as_fd()),
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
