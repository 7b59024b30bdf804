//! Ctrl-Z on a leader: its trees and their clocks stand still first, then the leader itself; when
//! it goes on, so do they. A leader that is stopped from outside (SIGSTOP) pauses nothing: its
//! workers' own deadlines hold.

use std::time::Duration;

use tokio::task::JoinHandle;

use crate::driver::Handle;
use crate::os::job_control::{StopWishes, stop_self};
use crate::os::trees::STILL_MS_MAX;

/// How long the driver may take before the leader stops without it, in milliseconds.
const PAUSE_MS_MAX: u64 = 2 * STILL_MS_MAX;

/// Minds the terminal's job control for one conversation, until it is dropped.
#[derive(Debug)]
pub struct JobControl(Option<JoinHandle<()>>);

impl JobControl {
    /// Begins to. Without a handler for the signal Ctrl-Z stops the leader alone, which is worth
    /// a warning and no more.
    pub fn mind(handle: &Handle) -> Self {
        match StopWishes::listen() {
            Ok(None) => JobControl(None),
            Ok(Some(wishes)) => JobControl(Some(tokio::spawn(obey(wishes, handle.clone())))),
            Err(error) => {
                tracing::warn!(%error, "Ctrl-Z will not pause the agents");
                JobControl(None)
            }
        }
    }
}

impl Drop for JobControl {
    fn drop(&mut self) {
        if let Some(task) = self.0.take() {
            task.abort();
        }
    }
}

async fn obey(mut wishes: StopWishes, handle: Handle) {
    loop {
        wishes.next().await;
        let paused = tokio::time::timeout(Duration::from_millis(PAUSE_MS_MAX), handle.pause());
        if paused.await.is_err() {
            tracing::warn!("the agents are not known to stand still");
        }
        if let Err(error) = stop_self().await {
            tracing::warn!(%error, "the leader could not be stopped");
        }
        handle.go_on().await;
    }
}
