//! What an agent has used and done so far.

use serde::{Deserialize, Serialize};

/// Tokens as the provider counts them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TokenUsage {
    /// Tokens sent.
    pub prompt: u64,
    /// Tokens received.
    pub completion: u64,
    /// Both, as the provider adds them up.
    pub total: u64,
    /// Those of the sent ones that the provider had in its cache.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub cached: u64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands a reference")]
fn is_zero(count: &u64) -> bool {
    *count == 0
}

impl TokenUsage {
    /// Adds one answer's usage, without overflow.
    pub fn add(&mut self, other: TokenUsage) {
        self.prompt = self.prompt.saturating_add(other.prompt);
        self.completion = self.completion.saturating_add(other.completion);
        self.total = self.total.saturating_add(other.total);
        self.cached = self.cached.saturating_add(other.cached);
    }
}

/// Counts of one agent's work.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Stats {
    /// Whole seconds of monotonic time since the agent's clock started.
    pub runtime_seconds: u64,
    /// Successful calls of `read_file`.
    pub files_read: u64,
    /// Calls of `search_workspace` and `web_search`.
    pub searches: u64,
    /// Calls of `extract_webpage`.
    pub web_pages: u64,
    /// Calls of `run_command` that started a process.
    pub commands: u64,
    /// Successful calls of `write_file` and `edit_file`.
    pub files_written: u64,
    /// Answers of the model.
    pub turns: u64,
    /// Tokens of all answers.
    pub token_usage: TokenUsage,
    /// What they cost by the model's configured prices, in millionths of the currency unit.
    #[serde(skip_serializing_if = "is_zero")]
    pub cost_micros: u64,
}

/// What all processes of an agent have used of the machine, as its leader measured it; none where
/// nobody looked, for it had no cap.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    /// The most memory that was seen at once, what they share counted once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_peak_bytes: Option<u64>,
    /// Processor time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_ms: Option<u64>,
    /// The most that it had added where it writes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disk_peak_bytes: Option<u64>,
}

impl Usage {
    /// Whether nobody looked.
    pub fn is_empty(&self) -> bool {
        *self == Usage::default()
    }
}
