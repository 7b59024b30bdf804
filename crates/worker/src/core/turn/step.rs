//! The words of the conversation machine: what happens to it, and what it says to do.

use protocol::channel::DeliveredMessage;
use protocol::conversation::{Message, Outcome, ToolCall};
use protocol::stats::TokenUsage;
use protocol::status::{Completion, StopReason};
use protocol::text::BackgroundResult;

use crate::core::compaction::Step;
use crate::core::reply::{ModelError, ModelReply};
use crate::core::tally::{Prices, Tally};

/// The bounds of a run that count turns and tokens; time is the deadline's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rules {
    /// What a turn without a call means.
    pub completion: Completion,
    /// Answers of the model.
    pub max_turns: u32,
    /// Tokens; none is no limit.
    pub max_total_tokens: Option<u64>,
    /// The model's context window, where it is known.
    pub context_tokens: Option<u32>,
    /// What tokens cost.
    pub prices: Prices,
}

/// What a step of shortening came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Compacted {
    /// The conversation is shorter now.
    Shorter {
        /// What it cost, where a model was asked.
        usage: Option<TokenUsage>,
    },
    /// There was nothing that this step could take away.
    Nothing,
    /// The model that was to summarise failed.
    Failed(ModelError),
}

/// What one call came to.
#[derive(Debug, Clone, PartialEq)]
pub struct CallResult {
    /// What the model gets.
    pub content: String,
    /// Whether the tool succeeded.
    pub succeeded: bool,
    /// What it counts as.
    pub tally: Tally,
    /// See [`crate::core::loop_guard::fingerprint`]; made of the whole result, before any of it went to a file.
    pub print: u64,
}

/// What happened.
#[derive(Debug, Clone, PartialEq)]
pub enum Input {
    /// The run begins with these messages.
    Begin(Vec<Message>),
    /// The model answered.
    Reply(ModelReply),
    /// The model failed for good.
    ModelFailed(ModelError),
    /// The last [`Action::Compact`] came to this.
    Compacted(Compacted),
    /// The calls of the last [`Action::Run`] have ended; one result for each, in its order.
    Results(Vec<CallResult>),
    /// Messages of others came.
    Delivered(Vec<DeliveredMessage>),
    /// Background commands have ended, each told here once.
    Background(Vec<BackgroundResult>),
    /// The leader wants the run to come to its end.
    WrapUp {
        /// Until the stop.
        seconds_left: u64,
    },
    /// The run is stopped.
    Stop(StopReason),
}

/// What to do.
#[derive(Debug, Clone, PartialEq)]
pub enum Action {
    /// Put a message at the end of the conversation, and on the disk.
    Append {
        /// The message.
        message: Message,
        /// The delivered messages that it carries.
        message_ids: Vec<String>,
    },
    /// Say again that these are in the journal: they were delivered once more.
    Acknowledge(Vec<String>),
    /// Ask the model; its answer is the next input.
    Ask,
    /// Shorten the conversation; what that came to is the next input.
    Compact(Step),
    /// Run these calls side by side; their results are the next input.
    Run(Vec<ToolCall>),
    /// Wait for a message.
    Rest {
        /// What the model said last.
        text: String,
    },
    /// The run is over.
    End(Outcome),
}
