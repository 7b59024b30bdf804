//! Waiting on several descriptors at once, and the watch on the leader.

use std::os::fd::BorrowedFd;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout};

use crate::report::Step;
use crate::signal::PidFd;
use crate::steps::StepError;

/// A descriptor to wait on, under the name that it is reported by.
#[derive(Debug)]
pub(crate) struct Source<'a, T> {
    /// Its name.
    pub(crate) name: T,
    /// The descriptor.
    pub(crate) fd: BorrowedFd<'a>,
    /// What to wait for.
    pub(crate) events: PollFlags,
}

impl<'a, T> Source<'a, T> {
    /// Waits until there is something to read, or the other side is gone.
    pub(crate) fn readable(name: T, fd: BorrowedFd<'a>) -> Source<'a, T> {
        Source {
            name,
            fd,
            events: PollFlags::POLLIN,
        }
    }

    /// Waits for a change of a kernel table, which polls as an exceptional condition.
    pub(crate) fn changed(name: T, fd: BorrowedFd<'a>) -> Source<'a, T> {
        Source {
            name,
            fd,
            events: PollFlags::POLLPRI,
        }
    }

    /// Waits for a hang-up alone, and never for data, which belongs to the program: poll(2) always
    /// reports POLLHUP, and POLLRDHUP is what a socket gives when the peer closes.
    pub(crate) fn hang_up(name: T, fd: BorrowedFd<'a>) -> Source<'a, T> {
        Source {
            name,
            fd,
            events: PollFlags::from_bits_retain(libc::POLLRDHUP),
        }
    }
}

/// Waits for any of `sources` and returns the names of those that have something.
pub(crate) fn wait<T: Copy>(
    sources: &[Source<'_, T>],
    timeout: PollTimeout,
) -> Result<Vec<T>, Errno> {
    let mut fds: Vec<PollFd<'_>> = sources
        .iter()
        .map(|source| PollFd::new(source.fd, source.events))
        .collect();
    match nix::poll::poll(&mut fds, timeout) {
        Ok(_) => {}
        Err(Errno::EINTR) => return Ok(Vec::new()),
        Err(errno) => return Err(errno),
    }
    Ok(sources
        .iter()
        .zip(&fds)
        .filter(|(_, fd)| fd.any().unwrap_or(true))
        .map(|(source, _)| source.name)
        .collect())
}

/// Opens the watch on the leader, if it is this process's real parent.
///
/// The pidfd is opened before the parent is asked for: were it the other way round, the leader
/// could end in between and its number be given to a stranger.
pub(crate) fn leader(pid: Option<u32>) -> Result<Option<PidFd>, StepError> {
    let Some(pid) = pid else { return Ok(None) };
    let watch = PidFd::for_watching(pid)
        .map_err(|errno| StepError::errno(Step::LeaderWatch, errno, "watch the leader"))?;
    let parent = u32::try_from(nix::unistd::getppid().as_raw()).unwrap_or(0);
    Ok((parent == pid).then_some(watch))
}
