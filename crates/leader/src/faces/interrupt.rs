//! The signals by which people and systems ask the leader to end.

use std::io;

use protocol::exit;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// A wish that the leader ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Interrupt {
    /// The terminal is closed (SIGHUP).
    Hangup,
    /// Ctrl-C (SIGINT).
    Interrupt,
    /// The system's polite wish (SIGTERM).
    Terminate,
}

impl Interrupt {
    /// The exit code that tells of it.
    pub fn exit_code(self) -> u8 {
        match self {
            Interrupt::Hangup => exit::SIGHUP,
            Interrupt::Interrupt => exit::SIGINT,
            Interrupt::Terminate => exit::SIGTERM,
        }
    }

    /// What people call it.
    pub fn name(self) -> &'static str {
        match self {
            Interrupt::Hangup => "SIGHUP",
            Interrupt::Interrupt => "Ctrl-C",
            Interrupt::Terminate => "SIGTERM",
        }
    }
}

/// The three signals, caught from now on.
#[derive(Debug)]
pub struct Interrupts {
    hangup: Signal,
    interrupt: Signal,
    terminate: Signal,
}

impl Interrupts {
    /// Catches the signals. From here on they no longer end the process by themselves.
    ///
    /// # Errors
    /// When the system refuses a handler.
    pub fn listen() -> io::Result<Self> {
        Ok(Interrupts {
            hangup: signal(SignalKind::hangup())?,
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
        })
    }

    /// The next one. Cancel-safe.
    pub async fn next(&mut self) -> Interrupt {
        tokio::select! {
            _ = self.hangup.recv() => Interrupt::Hangup,
            _ = self.interrupt.recv() => Interrupt::Interrupt,
            _ = self.terminate.recv() => Interrupt::Terminate,
        }
    }
}
