//! What others see of an agent while it waits for its model or a tool.

use protocol::channel::ProgressParams;
use protocol::conversation::ConversationFile;
use protocol::limits::OUTPUT_TAIL_BYTES_MAX;
use protocol::result::tail;
use protocol::stats::Stats;
use protocol::status::Status;
use protocol::text::{ActionKind, Prompts};

use crate::core::deadline::TimeSpent;
use crate::core::turn::Machine;
use crate::exit::StopCause;
use crate::io::record::Saver;
use crate::model::ModelEvent;
use crate::run::report::Reporter;
use crate::run::watch::Aside;

/// Between two signs of life while nothing else is told, in ticks of a second.
const HEARTBEAT_TICKS: u32 = 5;
/// What the agent does now, as others see it.
#[derive(Debug)]
pub(super) struct Live {
    pub(super) state: Status,
    pub(super) action: String,
    pub(super) tail: String,
}

impl Live {
    pub(super) fn progress(&self, stats: Stats) -> ProgressParams {
        ProgressParams {
            stats,
            last_action: self.action.clone(),
            state: self.state,
            output_tail: self.tail.clone(),
        }
    }

    fn printed(&mut self, text: &str) {
        self.tail.push_str(text);
        self.keep_end();
    }

    pub(super) fn printed_anew(&mut self, text: &str) {
        self.tail = tail(text, OUTPUT_TAIL_BYTES_MAX).to_owned();
    }

    fn keep_end(&mut self) {
        if self.tail.len() > OUTPUT_TAIL_BYTES_MAX {
            self.tail = tail(&self.tail, OUTPUT_TAIL_BYTES_MAX).to_owned();
        }
    }
}

/// What goes on beside a model call or a tool: signs of life, and the conversation's file.
pub(super) struct Beside<'a> {
    pub(super) machine: &'a Machine,
    pub(super) conversation: &'a ConversationFile,
    pub(super) saver: &'a mut Saver,
    pub(super) live: &'a mut Live,
    pub(super) reporter: &'a mut Reporter,
    /// Texts, while a model is waited for.
    pub(super) waiting: Option<&'a Prompts>,
    /// The turn whose text comes, where it is for people.
    pub(super) turn: Option<u64>,
    pub(super) ticks: u32,
}

impl Beside<'_> {
    pub(super) fn happened(
        &mut self,
        aside: Aside,
        time: TimeSpent,
        now_ms: u64,
    ) -> Result<(), StopCause> {
        match aside {
            Aside::Model(ModelEvent::Sent { .. }) => self.live.tail.clear(),
            Aside::Model(ModelEvent::Text(text)) => {
                self.live.printed(&text);
                if let Some(turn) = self.turn {
                    self.reporter.text(&text, turn);
                }
                self.progress(time);
            }
            Aside::Model(ModelEvent::Retry {
                attempt,
                why,
                pause,
            }) => {
                if let Some(prompts) = self.waiting {
                    self.live.action = prompts.action(ActionKind::Retrying, "");
                }
                self.progress(time);
                self.reporter.retry(attempt, &why, pause)?;
            }
            Aside::Tick => {
                self.ticks += 1;
                self.saver
                    .save_if_due(self.conversation, now_ms)
                    .map_err(StopCause::Record)?;
                if self.ticks.is_multiple_of(HEARTBEAT_TICKS) {
                    if let Some(prompts) = self.waiting {
                        // Whoever looks can tell a slow model from an agent that hangs.
                        let thinking = prompts.action(ActionKind::Thinking, "");
                        self.live.action = format!("{thinking} ({} s)", self.ticks);
                    }
                    self.progress(time);
                }
            }
        }
        Ok(())
    }

    fn progress(&mut self, time: TimeSpent) {
        let stats = self.machine.stats(time);
        self.reporter.progress(&self.live.progress(stats));
    }
}
