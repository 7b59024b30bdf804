//! Signals that the jail and init receive, as bytes and packets to poll for.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use signal_hook::SigId;

use crate::report::Step;
use crate::steps::StepError;
use crate::sys;

/// What is passed on to the program's group; SIGTSTP and SIGCONT pause the tree and let it go on.
const FORWARDED: [Signal; 9] = [
    Signal::SIGHUP,
    Signal::SIGINT,
    Signal::SIGQUIT,
    Signal::SIGTERM,
    Signal::SIGTSTP,
    Signal::SIGCONT,
    Signal::SIGUSR1,
    Signal::SIGUSR2,
    Signal::SIGWINCH,
];

/// The jail's inbox: handlers that write each signal's number into a pipe.
#[derive(Debug)]
pub(crate) struct SignalPipe {
    read: OwnedFd,
    // Held for the handlers, which know it by number.
    _write: OwnedFd,
    handlers: Vec<SigId>,
}

impl SignalPipe {
    /// Clears what the caller left behind (a blocked mask, ignored signals) and starts to listen.
    pub(crate) fn open() -> Result<SignalPipe, StepError> {
        let failed = |errno| StepError::errno(Step::Signals, errno, "listen to signals");
        block_all().map_err(failed)?;
        sys::reset_dispositions();
        ignore_pipe().map_err(failed)?;
        let (read, write) =
            nix::unistd::pipe2(OFlag::O_CLOEXEC | OFlag::O_NONBLOCK).map_err(failed)?;
        let mut handlers = Vec::new();
        for signal in FORWARDED.into_iter().chain([Signal::SIGCHLD]) {
            let fd = write.as_raw_fd();
            let number = [signal as u8];
            let action = move || {
                // SAFETY: write(2) is async-signal-safe, the buffer is one byte owned by the
                // closure, and `fd` stays open for as long as the handler is registered.
                unsafe { libc::write(fd, number.as_ptr().cast(), 1) };
            };
            // SAFETY: the action does nothing but write(2), which a handler may. errno is
            // preserved around actions by the signal-hook registry.
            let registered = unsafe { signal_hook::low_level::register(signal as i32, action) };
            let id = registered.map_err(|error| {
                failed(Errno::from_raw(
                    error.raw_os_error().unwrap_or(libc::EINVAL),
                ))
            })?;
            handlers.push(id);
        }
        unblock_all().map_err(failed)?;
        Ok(SignalPipe {
            read,
            _write: write,
            handlers,
        })
    }

    /// The descriptor to poll.
    pub(crate) fn as_fd(&self) -> BorrowedFd<'_> {
        self.read.as_fd()
    }

    /// Waits for a signal, at most for the pause.
    pub(crate) fn pause(&self, pause_ms: u16) {
        sys::wait_readable(self.read.as_fd(), pause_ms);
    }

    /// The signals that came since the last call.
    pub(crate) fn take(&self) -> Vec<Signal> {
        let mut bytes = [0; 64];
        let mut signals = Vec::new();
        loop {
            match nix::unistd::read(&self.read, &mut bytes) {
                Ok(0) => return signals,
                Ok(count) => signals.extend(
                    bytes[..count]
                        .iter()
                        .filter_map(|&number| Signal::try_from(i32::from(number)).ok()),
                ),
                Err(Errno::EINTR) => {}
                Err(_) => return signals,
            }
        }
    }
}

impl Drop for SignalPipe {
    fn drop(&mut self) {
        for id in self.handlers.drain(..) {
            signal_hook::low_level::unregister(id);
        }
    }
}

/// Init's inbox. The kernel drops a signal that pid 1 neither handles nor blocks, so init blocks
/// them all and reads them; it must not run the jail's handlers, whose pipe it shares.
#[derive(Debug)]
pub(crate) struct SignalQueue(SignalFd);

impl SignalQueue {
    /// Starts to listen, with SIGCHLD, and SIGIO of watched directories; every signal must be blocked
    /// already.
    pub(crate) fn open() -> Result<SignalQueue, StepError> {
        let mut wanted = SigSet::empty();
        wanted.add(Signal::SIGCHLD);
        wanted.add(Signal::SIGIO);
        for signal in FORWARDED {
            wanted.add(signal);
        }
        SignalFd::with_flags(&wanted, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)
            .map(SignalQueue)
            .map_err(|errno| StepError::errno(Step::Signals, errno, "listen to signals"))
    }

    /// The descriptor to poll.
    pub(crate) fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }

    /// The next signal that is there already, if any.
    pub(crate) fn next(&self) -> Option<Signal> {
        let info = self.0.read_signal().ok().flatten()?;
        i32::try_from(info.ssi_signo)
            .ok()
            .and_then(|number| Signal::try_from(number).ok())
    }
}

/// Blocks every signal, as must be while a fork is under way: the child would run the parent's
/// handlers.
pub(crate) fn block_all() -> Result<(), Errno> {
    SigSet::all().thread_set_mask()
}

/// Lets every signal through.
pub(crate) fn unblock_all() -> Result<(), Errno> {
    SigSet::empty().thread_set_mask()
}

/// A closed channel must be an error of the write, not the end of the jail.
fn ignore_pipe() -> Result<(), Errno> {
    // SAFETY: SIG_IGN installs no handler.
    let ignored =
        unsafe { nix::sys::signal::signal(Signal::SIGPIPE, nix::sys::signal::SigHandler::SigIgn) };
    ignored.map(drop)
}
