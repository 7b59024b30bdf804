//! A conversation that has grown too long, and a model that could not be asked.

use protocol::conversation::{Message, Outcome};
use protocol::limits::UNREADABLE_OUTPUT_NUDGES_MAX;
use protocol::result::cut_middle;
use protocol::status::StopReason;

use super::{Action, Compacted, Machine, Phase, TEXT_AS_REPORT_BYTES_MAX, append};
use crate::core::compaction::Step;
use crate::core::deadline::TimeSpent;
use crate::core::reply::{ModelError, ModelErrorKind};

impl Machine {
    /// Asks the model, after shortening the conversation where it must be.
    pub(super) fn ask(&mut self, actions: &mut Vec<Action>) {
        match self.room.due() {
            Some(step) => self.compact(step, actions),
            None => {
                self.phase = Phase::Asking;
                actions.push(Action::Ask);
            }
        }
    }

    fn compact(&mut self, step: Step, actions: &mut Vec<Action>) {
        self.room.take(step);
        self.phase = Phase::Compacting(step);
        actions.push(Action::Compact(step));
    }

    /// A step is done, or could not be.
    pub(super) fn compacted(&mut self, result: Compacted, actions: &mut Vec<Action>) {
        let Phase::Compacting(step) = self.phase else {
            return;
        };
        match result {
            Compacted::Shorter { usage } => {
                self.counts.beside(usage);
                self.phase = Phase::Asking;
                actions.push(Action::Ask);
            }
            Compacted::Nothing if step != Step::Summary => self.compact(Step::Summary, actions),
            // As long as the model has not refused it, it may do as it is.
            Compacted::Nothing | Compacted::Failed(_) if self.refused.is_none() => {
                self.phase = Phase::Asking;
                actions.push(Action::Ask);
            }
            Compacted::Nothing => {
                if let Some(error) = self.refused.take() {
                    self.fail(&error, actions);
                }
            }
            Compacted::Failed(error) => self.fail(&error, actions),
        }
    }

    pub(super) fn model_failed(
        &mut self,
        error: &ModelError,
        time: TimeSpent,
        actions: &mut Vec<Action>,
    ) {
        if !matches!(self.phase, Phase::Asking) {
            return;
        }
        match error.kind {
            ModelErrorKind::Deadline => self.end_without_report(StopReason::Deadline, actions),
            ModelErrorKind::ContextTooLong => match self.room.refused() {
                Some(step) => {
                    self.refused = Some(error.clone());
                    self.compact(step, actions);
                }
                None => self.fail(error, actions),
            },
            ModelErrorKind::UnreadableOutput if self.nudges < UNREADABLE_OUTPUT_NUDGES_MAX => {
                self.nudges += 1;
                append(Message::user(self.prompts.output_unreadable()), actions);
                self.boundary(time, actions);
            }
            ModelErrorKind::UnreadableOutput
            | ModelErrorKind::Connect
            | ModelErrorKind::Auth
            | ModelErrorKind::Refused
            | ModelErrorKind::Server
            | ModelErrorKind::Stalled
            | ModelErrorKind::Cut
            | ModelErrorKind::BadReply
            | ModelErrorKind::Script => self.fail(error, actions),
        }
    }

    /// Ends the run with the provider's words: they are what helps, and the last text alone would
    /// read like a result.
    fn fail(&mut self, error: &ModelError, actions: &mut Vec<Action>) {
        let summary = match self.last_text.is_some() {
            true => format!("{}\n\n{}", error.message, self.text_as_report()),
            false => error.message.clone(),
        };
        let outcome = Outcome {
            success: false,
            summary: cut_middle(&summary, TEXT_AS_REPORT_BYTES_MAX, ""),
            stop_reason: Some(StopReason::ModelError),
        };
        self.end(outcome, actions);
    }

    /// Checks the budget of tokens; false when the run is over. At four fifths the model is told;
    /// when it is spent there is one more answer, to hand in what there is.
    pub(super) fn tokens_allow(&mut self, actions: &mut Vec<Action>) -> bool {
        let Some(tokens_max) = self.rules.max_total_tokens else {
            return true;
        };
        let left = tokens_max.saturating_sub(self.counts.tokens());
        if left == 0 {
            if self.tokens_spent_told {
                self.end_without_report(StopReason::TokenLimit, actions);
                return false;
            }
            (self.tokens_spent_told, self.tokens_warned) = (true, true);
            append(Message::user(self.prompts.tokens_spent()), actions);
        } else if !self.tokens_warned && is_warning_share(left, tokens_max) {
            self.tokens_warned = true;
            append(Message::user(self.prompts.token_warning(left)), actions);
        }
        true
    }
}

/// Whether so little of the whole is left that the model is to be warned.
fn is_warning_share(left: u64, whole: u64) -> bool {
    let used = u128::from(whole - left);
    let share = u128::from(protocol::limits::TOKEN_WARNING_PERCENT);
    used * 100 >= u128::from(whole) * share
}
