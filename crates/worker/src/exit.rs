//! What the process ends with: codes, and the errors that end it before its run.

use protocol::conversation::Outcome;
use protocol::exit;
use protocol::stats::Stats;
use protocol::status::StopReason;

use crate::io::files::FileError;
use crate::io::signals::StopSignal;

/// A run that can't begin: what is wrong, and what to try.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct StartError {
    /// What failed, where and why.
    pub message: String,
    /// What to try; empty where there is nothing to say.
    pub hint: String,
}

impl StartError {
    /// An error without a hint.
    pub fn new(message: impl Into<String>) -> Self {
        StartError {
            message: message.into(),
            hint: String::new(),
        }
    }

    /// Adds what to try.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = hint.into();
        self
    }

    /// The lines that a person gets.
    pub fn lines(&self) -> String {
        if self.hint.is_empty() {
            return format!("error: {}\n", self.message);
        }
        format!("error: {}\nhint: {}\n", self.message, self.hint)
    }
}

/// What ended a run from outside the conversation.
#[derive(Debug)]
pub enum StopCause {
    /// A signal.
    Signal(StopSignal),
    /// The agent's own copy of its deadline.
    Deadline,
    /// The leader wants it.
    Leader(StopReason),
    /// The leader is gone.
    LeaderGone,
    /// Nobody reads what it prints any more.
    OutputClosed,
    /// Its record can't be kept.
    Record(FileError),
}

impl StopCause {
    /// The reason that the outcome carries.
    pub fn reason(&self) -> StopReason {
        match self {
            StopCause::Signal(_) | StopCause::OutputClosed => StopReason::Terminated,
            StopCause::Deadline => StopReason::Deadline,
            StopCause::Leader(reason) => *reason,
            StopCause::LeaderGone => StopReason::LeaderDied,
            StopCause::Record(error) => error.stop_reason(),
        }
    }
}

/// How a run ended.
#[derive(Debug)]
pub struct Ended {
    /// What it came to.
    pub outcome: Outcome,
    /// What stopped it, when it did not end by itself.
    pub cause: Option<StopCause>,
    /// Counts at the end.
    pub stats: Stats,
}

impl Ended {
    /// The worker's exit code. A report that was made before a signal came still counts.
    pub fn exit_code(&self) -> u8 {
        match &self.cause {
            Some(StopCause::Signal(signal)) => signal.exit_code(),
            _ => exit::of_worker(self.outcome.success, self.outcome.stop_reason),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use protocol::status::Status;

    fn ended(outcome: Outcome, cause: Option<StopCause>) -> Ended {
        Ended {
            outcome,
            cause,
            stats: Stats::default(),
        }
    }

    fn failed(reason: StopReason) -> Outcome {
        Outcome {
            success: false,
            summary: String::new(),
            stop_reason: Some(reason),
        }
    }

    #[test]
    fn codes_follow_what_ended_the_run() {
        let signals = [
            (StopSignal::Hangup, 129),
            (StopSignal::Interrupt, 130),
            (StopSignal::Terminate, 143),
        ];
        for (signal, code) in signals {
            let cause = StopCause::Signal(signal);
            let end = ended(failed(cause.reason()), Some(cause));
            assert_eq!(end.exit_code(), code);
            assert_eq!(end.outcome.status(), Status::Terminated);
        }
        let causes = [
            (StopCause::Deadline, 124, Status::TimedOut),
            (
                StopCause::Leader(StopReason::Deadline),
                124,
                Status::TimedOut,
            ),
            (
                StopCause::Leader(StopReason::Terminated),
                1,
                Status::Terminated,
            ),
            (StopCause::LeaderGone, 1, Status::Interrupted),
            (StopCause::OutputClosed, 1, Status::Terminated),
        ];
        for (cause, code, status) in causes {
            let end = ended(failed(cause.reason()), Some(cause));
            assert_eq!((end.exit_code(), end.outcome.status()), (code, status));
        }
    }

    #[test]
    fn a_success_is_completed() {
        let outcome = Outcome {
            success: true,
            summary: "done".into(),
            stop_reason: None,
        };
        assert_eq!(outcome.status(), Status::Completed);
        assert_eq!(ended(outcome, None).exit_code(), 0);
    }

    #[test]
    fn an_error_has_its_hint_on_a_line_of_its_own() {
        let error = StartError::new("no task").hint("pass --task-file");
        assert_eq!(error.lines(), "error: no task\nhint: pass --task-file\n");
        assert_eq!(StartError::new("no task").lines(), "error: no task\n");
    }
}
