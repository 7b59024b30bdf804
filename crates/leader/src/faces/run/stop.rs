//! The way to the end of a run, by a signal or because nobody listens any more.

use std::fmt;
use std::future::Future;
use std::pin::Pin;

use protocol::status::StopReason;

use crate::driver::{Handle, StopMode};
use crate::faces::console::Console;
use crate::faces::interrupt::Interrupt;

/// The way to the end: asked once, the agents stop in order; asked again, they are killed.
pub struct Stop<'a> {
    handle: &'a Handle,
    whom: &'static str,
    first: Option<Interrupt>,
    is_asked: bool,
    stopping: Option<Pin<Box<dyn Future<Output = ()> + 'a>>>,
}

impl<'a> Stop<'a> {
    /// Nothing is asked yet. `whom` is what messages call those who are stopped.
    pub fn new(handle: &'a Handle, whom: &'static str) -> Self {
        Stop {
            handle,
            whom,
            first: None,
            is_asked: false,
            stopping: None,
        }
    }

    /// Takes a signal: the first one stops in order, a further one kills.
    pub fn ask(&mut self, interrupt: Interrupt, console: &mut Console<'_>) {
        let mode = match self.first {
            None => {
                self.first = Some(interrupt);
                console.say(&format!(
                    "{}: stopping {} in order; once more kills\n",
                    interrupt.name(),
                    self.whom
                ));
                StopMode::Graceful
            }
            Some(_) => {
                console.say(&format!("killing {}\n", self.whom));
                StopMode::Force
            }
        };
        self.begin(mode);
    }

    /// Stops in order without a word, unless it is under way.
    pub fn quietly(&mut self) {
        if !self.is_asked {
            self.begin(StopMode::Graceful);
        }
    }

    /// The first signal that asked for the end.
    pub fn first(&self) -> Option<Interrupt> {
        self.first
    }

    /// Whether the end was asked for, by a signal or otherwise.
    pub fn is_asked(&self) -> bool {
        self.is_asked
    }

    fn begin(&mut self, mode: StopMode) {
        let handle = self.handle;
        self.is_asked = true;
        self.stopping = Some(Box::pin(async move {
            handle.stop_all(StopReason::LeaderStopped, mode).await;
        }));
    }

    /// Carries the stop on; it never completes twice, and never when nothing was asked.
    pub async fn progress(&mut self) {
        match &mut self.stopping {
            Some(stopping) => {
                stopping.await;
                self.stopping = None;
                // What is left to wait for is the answer of the create.
                std::future::pending().await
            }
            None => std::future::pending().await,
        }
    }
}

impl fmt::Debug for Stop<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stop")
            .field("first", &self.first)
            .field("is_asked", &self.is_asked)
            .finish_non_exhaustive()
    }
}
