//! Signals that can't reach the wrong process: by pidfd, or to a group whose leader is unreaped.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout};

pub use nix::sys::signal::Signal;

use crate::sys;

/// Why a signal was not sent.
#[derive(Debug, thiserror::Error)]
pub enum SignalError {
    /// Numbers 0 and 1 mean "my own group", "everybody" or the machine's init, never a child.
    #[error("refused to signal process or group {0}: only numbers above 1 name a child")]
    NotAChild(u32),
    /// No pidfd could be opened.
    #[error("could not open a pidfd of process {pid}")]
    Open {
        /// The process.
        pid: u32,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The kernel refused the signal.
    #[error("could not send {signal} to {target} {pid}")]
    Send {
        /// The signal.
        signal: Signal,
        /// `process` or `group`.
        target: &'static str,
        /// The number.
        pid: u32,
        /// Why.
        #[source]
        source: io::Error,
    },
}

/// What became of a signal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Delivery {
    /// It was sent.
    Sent,
    /// The process was gone already.
    Gone,
}

/// A hold on one process that its number's next owner can never be mistaken for.
#[derive(Debug)]
pub struct PidFd {
    pid: u32,
    fd: OwnedFd,
}

impl PidFd {
    /// Opens a hold on `pid`, which must be a child that is not reaped yet: until then its number
    /// can't be given to another process.
    ///
    /// # Errors
    /// When `pid` is 0 or 1, when there is no such process, or no descriptor is left.
    pub fn open(pid: u32) -> Result<PidFd, SignalError> {
        refuse_special(pid)?;
        match sys::pidfd_open(pid) {
            Ok(fd) => Ok(PidFd { pid, fd }),
            Err(errno) => Err(SignalError::Open {
                pid,
                source: errno.into(),
            }),
        }
    }

    /// A hold on a process whose pidfd came with its creation.
    pub(crate) fn from_creation(pid: u32, fd: OwnedFd) -> PidFd {
        PidFd { pid, fd }
    }

    /// A hold that is only watched, so that it may also be on number 1: in a container the leader,
    /// or the jail itself, can be that.
    pub(crate) fn for_watching(pid: u32) -> Result<PidFd, Errno> {
        sys::pidfd_open(pid).map(|fd| PidFd { pid, fd })
    }

    /// The number it was opened for.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Sends `signal`.
    ///
    /// # Errors
    /// When the kernel refuses, as for a process of another user. A process that is gone is no
    /// error.
    pub fn send(&self, signal: Signal) -> Result<Delivery, SignalError> {
        match sys::pidfd_send_signal(self.fd.as_fd(), signal as i32) {
            Ok(()) => Ok(Delivery::Sent),
            Err(Errno::ESRCH) => Ok(Delivery::Gone),
            Err(errno) => Err(SignalError::Send {
                signal,
                target: "process",
                pid: self.pid,
                source: errno.into(),
            }),
        }
    }

    /// Whether the process has ended, reaped or not.
    ///
    /// # Errors
    /// When the kernel can't be asked.
    pub fn has_ended(&self) -> io::Result<bool> {
        loop {
            let mut fds = [PollFd::new(self.fd.as_fd(), PollFlags::POLLIN)];
            match nix::poll::poll(&mut fds, PollTimeout::ZERO) {
                Ok(ready) => return Ok(ready > 0),
                Err(Errno::EINTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
    }
}

impl AsFd for PidFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl AsRawFd for PidFd {
    fn as_raw_fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }
}

/// Kills the process group `pgid` with SIGKILL.
///
/// The caller must hold its leader unreaped, for only then is the number still the group's.
///
/// # Errors
/// As [`signal_group`].
pub fn kill_group(pgid: u32) -> Result<Delivery, SignalError> {
    signal_group(pgid, Signal::SIGKILL)
}

/// Sends `signal` to the process group `pgid`, whose leader the caller holds unreaped.
///
/// # Errors
/// When `pgid` is 0 or 1, or the kernel refuses. A group that is gone is no error.
pub fn signal_group(pgid: u32, signal: Signal) -> Result<Delivery, SignalError> {
    refuse_special(pgid)?;
    let target = nix::unistd::Pid::from_raw(i32::try_from(pgid).unwrap_or(i32::MAX));
    match nix::sys::signal::killpg(target, signal) {
        Ok(()) => Ok(Delivery::Sent),
        Err(Errno::ESRCH) => Ok(Delivery::Gone),
        Err(errno) => Err(SignalError::Send {
            signal,
            target: "group",
            pid: pgid,
            source: errno.into(),
        }),
    }
}

/// Whether this PID namespace, whose init this process must be, has any other process. A zombie
/// counts until its parent, which may be this one, has reaped it.
pub(crate) fn anyone_else_inside() -> bool {
    // Signal 0 is sent to nobody and only asks (kill(2)).
    std::process::id() == 1 && nix::sys::signal::kill(nix::unistd::Pid::from_raw(-1), None).is_ok()
}

/// Sends `signal` to every process of this PID namespace but this one, which must be its init.
///
/// Anywhere else the same call would reach everything of the user, so it is refused.
pub(crate) fn signal_all_inside(signal: Signal) -> Result<(), SignalError> {
    let myself = std::process::id();
    if myself != 1 {
        return Err(SignalError::NotAChild(myself));
    }
    match nix::sys::signal::kill(nix::unistd::Pid::from_raw(-1), signal) {
        Ok(()) | Err(Errno::ESRCH) => Ok(()),
        Err(errno) => Err(SignalError::Send {
            signal,
            target: "namespace of",
            pid: 1,
            source: errno.into(),
        }),
    }
}

fn refuse_special(pid: u32) -> Result<(), SignalError> {
    // Numbers beyond pid_t would wrap to negative ones, which kill(2) reads as groups.
    if pid <= 1 || i32::try_from(pid).is_err() {
        Err(SignalError::NotAChild(pid))
    } else {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::{CommandExt, ExitStatusExt};
    use std::process::Command;

    #[test]
    fn special_numbers_are_refused() {
        for pid in [0, 1, u32::MAX] {
            assert!(matches!(PidFd::open(pid), Err(SignalError::NotAChild(n)) if n == pid));
            assert!(matches!(kill_group(pid), Err(SignalError::NotAChild(n)) if n == pid));
        }
    }

    #[test]
    fn a_hold_kills_its_process_and_never_the_next_owner_of_the_number() {
        let mut child = Command::new("sleep").arg("30").spawn().unwrap();
        let hold = PidFd::open(child.id()).unwrap();
        assert!(!hold.has_ended().unwrap());
        assert_eq!(hold.send(Signal::SIGKILL).unwrap(), Delivery::Sent);
        assert_eq!(child.wait().unwrap().signal(), Some(9));
        assert!(hold.has_ended().unwrap());
        assert_eq!(hold.send(Signal::SIGKILL).unwrap(), Delivery::Gone);
    }

    #[test]
    fn a_group_is_killed_whole() {
        let mut child = Command::new("sh")
            .args(["-c", "sleep 30 & wait"])
            .process_group(0)
            .spawn()
            .unwrap();
        assert_eq!(kill_group(child.id()).unwrap(), Delivery::Sent);
        assert_eq!(child.wait().unwrap().signal(), Some(9));
    }
}
