//! One background command: what is known of it while it runs and after its end.

use std::time::Duration;

use protocol::error::ToolError;
use protocol::text::BackgroundState;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::tools::command::{Ended, Remote, state, tell};
use crate::tools::{ToolContext, large};

/// What a command came to.
pub(super) type End = Result<Ended, ToolError>;

/// A command by the id that the model knows it by.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) id: String,
    pub(super) command: String,
    pub(super) began_ms: u64,
    pub(super) timeout: Duration,
    pub(super) stand: Stand,
}

/// How it stands.
#[derive(Debug)]
pub(super) enum Stand {
    Running {
        remote: Remote,
        ended: oneshot::Receiver<End>,
        /// Dropping it with the entry ends the command.
        _task: OwnedTask,
    },
    Ended {
        state: BackgroundState,
        /// As the model is told it; short enough for a conversation.
        result: String,
        /// Whether it has been.
        told: bool,
    },
}

/// A task that ends with its owner.
#[derive(Debug)]
pub(super) struct OwnedTask(pub(super) JoinHandle<()>);

impl Drop for OwnedTask {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// How one command stands, for the model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) id: String,
    pub(crate) command: String,
    pub(crate) state: BackgroundState,
    /// How it ended and its output; while it runs, for how long it does and its output so far.
    pub(crate) result: String,
}

impl Entry {
    /// Whether it runs.
    pub(super) fn runs(&self) -> bool {
        matches!(self.stand, Stand::Running { .. })
    }

    /// Whether it runs, or the model knows of its end.
    pub(super) fn runs_or_told(&self) -> bool {
        match &self.stand {
            Stand::Running { .. } => true,
            Stand::Ended { told, .. } => *told,
        }
    }

    /// Whether it runs on; an end that came is thrown away, for the run is over.
    pub(super) fn has_no_end(&mut self) -> bool {
        match &mut self.stand {
            Stand::Running { ended, .. } => {
                matches!(ended.try_recv(), Err(oneshot::error::TryRecvError::Empty))
            }
            Stand::Ended { .. } => false,
        }
    }

    /// Writes down its end, if it has come.
    pub(super) fn settle(&mut self, context: &ToolContext) {
        let Stand::Running { ended, .. } = &mut self.stand else {
            return;
        };
        let (state, result) = match ended.try_recv() {
            Err(oneshot::error::TryRecvError::Empty) => return,
            // A task that is gone without a word has panicked.
            Err(oneshot::error::TryRecvError::Closed) => (
                BackgroundState::Error,
                "[failed: what watched it is gone, by a fault of ours]".to_owned(),
            ),
            Ok(Ok(ended)) => (state(ended.how), tell(&ended)),
            Ok(Err(error)) => (BackgroundState::Error, format!("[failed: {error}]")),
        };
        self.stand = Stand::Ended {
            state,
            result: large::shorten(context, result),
            told: false,
        };
    }

    /// What the model sees of it; an end counts as told.
    pub(super) fn seen(&mut self, now_ms: u64) -> Seen {
        let (state, result) = match &mut self.stand {
            Stand::Running { .. } => {
                let ran = now_ms.saturating_sub(self.began_ms) / 1_000;
                let result = format!("running for {ran} of at most {} s", self.timeout.as_secs());
                (BackgroundState::Running, result)
            }
            Stand::Ended {
                state,
                result,
                told,
            } => {
                *told = true;
                (*state, result.clone())
            }
        };
        Seen {
            id: self.id.clone(),
            command: self.command.clone(),
            state,
            result,
        }
    }
}
