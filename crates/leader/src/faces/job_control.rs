//! Ctrl-Z on a leader: its trees and their clocks stand still first, then the live line is taken
//! away, then the leader itself stops; when it goes on, so do they. A leader that is stopped from outside (SIGSTOP) pauses nothing: its
//! workers' own deadlines hold.

use std::time::Duration;

use tokio::task::JoinHandle;

use crate::driver::Handle;
use crate::faces::curtain::{Curtain, Rope};
use crate::os::job_control::{StopWishes, stop_self};
use crate::os::trees::STILL_MS_MAX;

/// How long the driver may take before the leader stops without it, in milliseconds.
const PAUSE_MS_MAX: u64 = 2 * STILL_MS_MAX;

/// Minds the terminal's job control for one conversation, until it is dropped.
#[derive(Debug)]
pub struct JobControl {
    task: Option<JoinHandle<()>>,
    rope: Rope,
}

impl JobControl {
    /// Begins to. Without a handler for the signal Ctrl-Z stops the leader alone, which is worth
    /// a warning and no more.
    pub fn mind(handle: &Handle) -> Self {
        let rope = Rope::default();
        let task = match StopWishes::listen() {
            Ok(None) => None,
            Ok(Some(wishes)) => Some(tokio::spawn(obey(wishes, handle.clone(), rope.clone()))),
            Err(error) => {
                tracing::warn!(%error, "Ctrl-Z will not pause the agents");
                None
            }
        };
        JobControl { task, rope }
    }

    /// For whoever draws on the terminal. Once taken it must be minded, or each stop waits for it.
    pub fn curtain(&self) -> Curtain {
        self.rope.curtain()
    }
}

impl Drop for JobControl {
    fn drop(&mut self) {
        if let Some(task) = self.task.take() {
            task.abort();
        }
    }
}

async fn obey(mut wishes: StopWishes, handle: Handle, rope: Rope) {
    loop {
        wishes.next().await;
        let paused = tokio::time::timeout(Duration::from_millis(PAUSE_MS_MAX), handle.pause());
        if paused.await.is_err() {
            tracing::warn!("the agents are not known to stand still");
        }
        let lowered = rope.lower().await;
        if let Err(error) = stop_self().await {
            tracing::warn!(%error, "the leader could not be stopped");
        }
        drop(lowered);
        handle.go_on().await;
    }
}
