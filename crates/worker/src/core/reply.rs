//! What a model's answer, or its failure, is to the conversation, whatever dialect it came in.

use protocol::conversation::ToolCall;
use protocol::stats::TokenUsage;
use serde::Deserialize;
use serde_json::Value;

/// Why an answer ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FinishKind {
    /// The model was done, with text, calls, or both.
    Done,
    /// It was cut at its output limit. A call that was torn by it is left out; those before it
    /// are whole.
    Length,
    /// The provider paused a long turn of its own; it goes on when the conversation so far is sent
    /// again.
    Paused,
}

/// One whole answer. Call ids are already unique within the conversation.
#[derive(Debug, Clone, PartialEq)]
pub struct ModelReply {
    /// Its text, if any.
    pub content: Option<String>,
    /// Its thoughts, where the provider sends them.
    pub reasoning_content: Option<String>,
    /// Its parts as they must go back, see [`protocol::conversation::Message::provider_blocks`].
    pub provider_blocks: Vec<Value>,
    /// Its calls, in order.
    pub tool_calls: Vec<ToolCall>,
    /// Why it ended.
    pub finish: FinishKind,
    /// What it cost, where the provider says so.
    pub usage: Option<TokenUsage>,
}

/// What kind of failure it is that retries could not mend.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ModelErrorKind {
    /// Could not connect.
    Connect,
    /// Wrong key, or no right to this model (401, 403).
    Auth,
    /// The request is refused and will be again (400, 404, 422 …).
    Refused,
    /// The server could not read what its own model wrote, after all retries.
    UnreadableOutput,
    /// The conversation is longer than the model's context.
    ContextTooLong,
    /// Too many requests, or the server failed, after all retries.
    Server,
    /// No first byte, or no further byte, in time, after all retries.
    Stalled,
    /// The stream broke, after all retries.
    Cut,
    /// An answer that is none (HTML, empty choices …), after all retries.
    BadReply,
    /// The agent's deadline came first.
    Deadline,
    /// The script has no further reply, or can't be read.
    Script,
}

/// A model call that failed for good.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ModelError {
    /// The kind.
    pub kind: ModelErrorKind,
    /// Status, provider's words (at most 200 characters), what to check; never the key.
    pub message: String,
    /// Requests made for this call.
    pub requests: u32,
}
