//! How `jail` itself ends: exactly as its program ended.

use std::process::ExitCode;

use nix::sys::resource::{Resource, setrlimit};
use nix::sys::signal::SigSet;
use serde::{Deserialize, Serialize};

use crate::report::{EndReason, Ended};
use crate::sys;
use crate::sys::best_effort;

/// The end of a program, as its parent saw it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Verdict {
    /// It exited with this code.
    Exited(u8),
    /// It died of this signal, which may be a real-time one.
    Signalled(i32),
}

impl Verdict {
    /// Reads a raw wait status; nix's own type has no room for real-time signals.
    pub(crate) fn from_raw(status: i32) -> Option<Verdict> {
        if libc::WIFEXITED(status) {
            Some(Verdict::Exited(
                u8::try_from(libc::WEXITSTATUS(status)).unwrap_or(u8::MAX),
            ))
        } else if libc::WIFSIGNALED(status) {
            Some(Verdict::Signalled(libc::WTERMSIG(status)))
        } else {
            None
        }
    }

    /// The same as a report.
    pub(crate) fn ended(self, reason: EndReason, left_behind: bool) -> Ended {
        match self {
            Verdict::Exited(code) => Ended {
                exit_code: Some(code.into()),
                signal: None,
                reason,
                left_behind,
            },
            Verdict::Signalled(signal) => Ended {
                exit_code: None,
                signal: Some(signal),
                reason,
                left_behind,
            },
        }
    }

    /// Ends this process in the same way: returns the code to exit with, or dies here.
    pub(crate) fn enact(self) -> ExitCode {
        match self {
            Verdict::Exited(code) => ExitCode::from(code),
            Verdict::Signalled(signal) => {
                die_of(signal);
                // Only a signal that kills by default can have killed the program, so this is
                // reached when something blocks it for good; the shells' code still tells.
                ExitCode::from(128_u8.saturating_add(u8::try_from(signal).unwrap_or(u8::MAX)))
            }
        }
    }
}

fn die_of(signal: i32) {
    // The core would be the jail's, of no use to anyone. Failing to forbid it does no harm.
    best_effort(setrlimit(Resource::RLIMIT_CORE, 0, 0));
    best_effort(nix::sys::prctl::set_dumpable(false));
    sys::reset_dispositions();
    best_effort(SigSet::empty().thread_set_mask());
    best_effort(sys::signal_self(signal));
}

/// Waits for any child without blocking; `None` when none has ended.
///
/// # Errors
/// `ECHILD` when there is no child at all.
pub(crate) fn reap(pid: i32, flags: i32) -> Result<Option<(u32, Verdict)>, nix::errno::Errno> {
    loop {
        let mut status = 0;
        // SAFETY: `status` is a writable integer; the other arguments are numbers.
        let found = unsafe { libc::waitpid(pid, &raw mut status, flags | libc::__WALL) };
        match found {
            0 => return Ok(None),
            -1 => match nix::errno::Errno::last() {
                nix::errno::Errno::EINTR => {}
                errno => return Err(errno),
            },
            found => {
                if let (Ok(pid), Some(verdict)) = (u32::try_from(found), Verdict::from_raw(status))
                {
                    return Ok(Some((pid, verdict)));
                }
            }
        }
    }
}
