//! Ctrl-Z: what the terminal asks of this process, and how the process stops itself.

use std::fs;
use std::io;

use confine::signal::{PidFd, Signal, SignalError};
use tokio::signal::unix::{SignalKind, signal};

/// The wishes of a terminal to stop this process, caught from now on.
#[derive(Debug)]
pub struct StopWishes(tokio::signal::unix::Signal);

impl StopWishes {
    /// Catches SIGTSTP; none when whoever started this process wants it ignored.
    ///
    /// # Errors
    /// When the system refuses a handler.
    pub fn listen() -> io::Result<Option<Self>> {
        let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
        if is_ignored(&status, Signal::SIGTSTP) {
            return Ok(None);
        }
        signal(SignalKind::from_raw(Signal::SIGTSTP as i32)).map(|wishes| Some(StopWishes(wishes)))
    }

    /// The next one. Cancel-safe.
    pub async fn next(&mut self) {
        if self.0.recv().await.is_none() {
            std::future::pending::<()>().await;
        }
    }
}

/// Stops this process until somebody lets it go on.
///
/// # Errors
/// When it can't be stopped; it has not been then.
pub async fn stop_self() -> io::Result<()> {
    // Listened for before the stop, so that it can't be missed. The stop may take hold a moment
    // after the call, for any thread may be the one that takes the signal.
    let mut goes_on = signal(SignalKind::from_raw(Signal::SIGCONT as i32))?;
    PidFd::open(std::process::id())
        .and_then(|me| me.send(Signal::SIGSTOP))
        .map_err(|error: SignalError| io::Error::other(error.to_string()))?;
    goes_on.recv().await;
    Ok(())
}

/// Whether a signal is ignored, by the text of `/proc/<pid>/status` (proc(5): a mask in
/// hexadecimal, whose lowest bit is signal 1).
fn is_ignored(status: &str, signal: Signal) -> bool {
    let mask = status
        .lines()
        .find_map(|line| line.strip_prefix("SigIgn:"))
        .and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.is_some_and(|mask| mask & (1 << (signal as i32 - 1)) != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ignored_signal_is_found_in_its_mask() {
        let status = "Name:\tx\nSigIgn:\t0000000000080000\nSigCgt:\t0000000000000000\n";
        assert!(is_ignored(status, Signal::SIGTSTP));
        assert!(!is_ignored(status, Signal::SIGTERM));
        assert!(!is_ignored("", Signal::SIGTSTP));
    }
}
