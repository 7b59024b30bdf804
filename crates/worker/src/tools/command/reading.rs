//! A command's output, being read.

use std::future::pending;
use std::io;

use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe::Receiver;
use tokio::time::{Instant, sleep_until};

use crate::tools::limits;
use crate::tools::output::{Capture, Captured};

/// The reading end of a command's output, and what of it is kept.
#[derive(Debug)]
pub(super) struct Output {
    /// None when everybody who could write has gone.
    pipe: Option<Receiver>,
    buffer: Vec<u8>,
    capture: Capture,
}

impl Output {
    pub(super) fn new(pipe: Receiver) -> Self {
        Output {
            pipe: Some(pipe),
            buffer: vec![0; limits::OUTPUT_READ_BYTES],
            capture: Capture::new(),
        }
    }

    /// Takes in output until `event` happens. Hands back false when `time_over` comes first.
    pub(super) async fn until(
        &mut self,
        event: impl Future<Output = io::Result<()>>,
        time_over: impl Future<Output = ()>,
    ) -> io::Result<bool> {
        tokio::pin!(event, time_over);
        loop {
            tokio::select! {
                happened = &mut event => return happened.map(|()| true),
                () = &mut time_over => return Ok(false),
                taken = self.take() => taken?,
            }
        }
    }

    /// Takes in what comes until nobody can write any more. Hands back false when `deadline`
    /// comes first.
    pub(super) async fn drain(&mut self, deadline: Instant) -> io::Result<bool> {
        while self.pipe.is_some() {
            tokio::select! {
                () = sleep_until(deadline) => return Ok(false),
                taken = self.take() => taken?,
            }
        }
        Ok(true)
    }

    /// What was kept.
    pub(super) fn finish(self) -> Captured {
        self.capture.finish()
    }

    /// Takes in one piece; never ready once the pipe has ended, so that a command that closed
    /// its output and lives on costs nothing.
    async fn take(&mut self) -> io::Result<()> {
        let Some(pipe) = &mut self.pipe else {
            return pending().await;
        };
        match pipe.read(&mut self.buffer).await? {
            0 => self.pipe = None,
            count => self.capture.push(&self.buffer[..count]),
        }
        Ok(())
    }
}
