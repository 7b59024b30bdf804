//! The signals by which a person or the system asks the leader to stop.

use std::io;

use protocol::exit;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// A signal that asks for an end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StopSignal {
    /// SIGINT: Ctrl-C.
    Interrupt,
    /// SIGTERM.
    Terminate,
    /// SIGHUP: the terminal is gone.
    HangUp,
}

impl StopSignal {
    /// The exit code of a leader that ended because of it.
    pub fn exit_code(self) -> u8 {
        match self {
            StopSignal::Interrupt => exit::SIGINT,
            StopSignal::Terminate => exit::SIGTERM,
            StopSignal::HangUp => exit::SIGHUP,
        }
    }
}

/// The three signals as a stream. While it exists they do not end the process by themselves.
#[derive(Debug)]
pub struct StopSignals {
    interrupt: Signal,
    terminate: Signal,
    hang_up: Signal,
}

impl StopSignals {
    /// Begins to listen. Needs a running tokio runtime.
    ///
    /// # Errors
    /// When a handler can't be set.
    pub fn listen() -> io::Result<StopSignals> {
        Ok(StopSignals {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            hang_up: signal(SignalKind::hangup())?,
        })
    }

    /// The next of them. Cancel-safe.
    pub async fn next(&mut self) -> StopSignal {
        loop {
            tokio::select! {
                Some(()) = self.interrupt.recv() => return StopSignal::Interrupt,
                Some(()) = self.terminate.recv() => return StopSignal::Terminate,
                Some(()) = self.hang_up.recv() => return StopSignal::HangUp,
            }
        }
    }
}
