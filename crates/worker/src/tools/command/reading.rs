//! A command's output, being read, and looked at by others meanwhile.

use std::future::pending;
use std::io;

use protocol::secret::{Mask, MaskStream};
use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe::Receiver;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, sleep_until};

use crate::tools::limits;
use crate::tools::output::{Capture, Captured};

/// The wish to see what a command has written so far.
pub(super) type Peek = oneshot::Sender<Captured>;

/// The reading end of a command's output, and what of it is kept.
#[derive(Debug)]
pub(super) struct Output {
    /// None when everybody who could write has gone.
    pipe: Option<Receiver>,
    buffer: Vec<u8>,
    /// Secrets are taken out before anything is cut, for half a secret is found nowhere.
    mask: MaskStream,
    plain: Vec<u8>,
    capture: Capture,
    written_bytes: u64,
    /// None for a command that nobody looks at before its end.
    peeks: Option<mpsc::Receiver<Peek>>,
}

impl Output {
    pub(super) fn new(pipe: Receiver, mask: &Mask, peeks: Option<mpsc::Receiver<Peek>>) -> Self {
        Output {
            pipe: Some(pipe),
            buffer: vec![0; limits::OUTPUT_READ_BYTES],
            mask: mask.stream(),
            plain: Vec::new(),
            capture: Capture::new(),
            written_bytes: 0,
            peeks,
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
    pub(super) fn finish(mut self) -> Captured {
        self.plain.clear();
        self.mask.finish(&mut self.plain);
        self.capture.push(&self.plain);
        Captured {
            raw_bytes: self.written_bytes,
            ..self.capture.finish()
        }
    }

    /// Keeps the first `count` bytes of the buffer.
    fn keep(&mut self, count: usize) {
        self.written_bytes = self.written_bytes.saturating_add(count as u64);
        self.plain.clear();
        self.mask.push(&self.buffer[..count], &mut self.plain);
        self.capture.push(&self.plain);
    }

    /// Takes in one piece, or shows what there is to somebody who asks; never ready once the pipe
    /// has ended and nobody can ask, so that a command that closed its output and lives on costs
    /// nothing.
    async fn take(&mut self) -> io::Result<()> {
        let Output {
            pipe,
            buffer,
            peeks,
            ..
        } = self;
        let read = async {
            match pipe {
                Some(pipe) => pipe.read(buffer).await,
                None => pending().await,
            }
        };
        let asked = async {
            match peeks {
                Some(peeks) => peeks.recv().await,
                None => pending().await,
            }
        };
        // Both may be dropped at their await point without a loss: tokio's documentation says so
        // of `AsyncReadExt::read` and of `mpsc::Receiver::recv`.
        tokio::select! {
            count = read => match count? {
                0 => self.pipe = None,
                count => self.keep(count),
            },
            peek = asked => match peek {
                Some(peek) => self.show(peek),
                None => self.peeks = None,
            },
        }
        Ok(())
    }

    /// Shows what came so far but for what may be the beginning of a secret, with what lies in the pipe at this moment; of a flood one buffer.
    fn show(&mut self, peek: Peek) {
        // An end or a failure is met again by the next read.
        if let Some(Ok(count)) = self
            .pipe
            .as_ref()
            .map(|pipe| pipe.try_read(&mut self.buffer))
        {
            self.keep(count);
        }
        // Whoever asked may have stopped waiting.
        let seen = Captured {
            raw_bytes: self.written_bytes,
            ..self.capture.clone().finish()
        };
        drop(peek.send(seen));
    }
}
