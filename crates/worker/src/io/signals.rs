//! The signals that end a worker in order, and the one that must not end it at all.

use std::io;

use protocol::exit;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// A signal that asks the worker to save and leave.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StopSignal {
    /// The terminal is gone.
    Hangup,
    /// Ctrl-C.
    Interrupt,
    /// Somebody asks it to end.
    Terminate,
}

impl StopSignal {
    /// The exit code after it.
    pub fn exit_code(self) -> u8 {
        match self {
            StopSignal::Hangup => exit::SIGHUP,
            StopSignal::Interrupt => exit::SIGINT,
            StopSignal::Terminate => exit::SIGTERM,
        }
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            StopSignal::Hangup => "SIGHUP",
            StopSignal::Interrupt => "SIGINT",
            StopSignal::Terminate => "SIGTERM",
        }
    }
}

/// The installed handlers.
#[derive(Debug)]
pub struct Signals {
    hangup: Signal,
    interrupt: Signal,
    terminate: Signal,
    _file_size: Signal,
}

impl Signals {
    /// Installs the handlers. From then on the signals wait to be taken.
    ///
    /// SIGXFSZ gets a handler that does nothing: at a file-size limit a write must fail with an
    /// error that can be told, instead of killing the worker in the middle of its record. A
    /// handler is used and not "ignore", because commands would inherit that (signal(7)).
    ///
    /// # Errors
    /// When the system refuses a handler.
    pub fn install() -> io::Result<Self> {
        Ok(Signals {
            hangup: signal(SignalKind::hangup())?,
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            _file_size: signal(SignalKind::from_raw(libc::SIGXFSZ))?,
        })
    }

    /// Waits for the next one. Nothing is lost when it is dropped while it waits.
    pub async fn next(&mut self) -> StopSignal {
        tokio::select! {
            biased;
            Some(()) = self.terminate.recv() => StopSignal::Terminate,
            Some(()) = self.interrupt.recv() => StopSignal::Interrupt,
            Some(()) = self.hangup.recv() => StopSignal::Hangup,
            // The streams end only with the runtime; until then there is nothing to wait for.
            else => std::future::pending().await,
        }
    }
}
