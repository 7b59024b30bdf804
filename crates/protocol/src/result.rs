//! What a caller gets back of an agent: the result of create, terminate, status and wait.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::error::ToolError;
use crate::ids::{AgentId, ConversationId, RoleId, TaskId};
use crate::stats::{Stats, TokenUsage, Usage};
use crate::status::{Status, StopReason};

/// A file of the deliverables dir that is listed but not taken, and why.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SkippedFile {
    /// Relative to the deliverables dir.
    pub name: String,
    /// `fifo`, `socket`, `device`, `unreadable`, `half_written`.
    pub why: String,
}

/// What lies in a deliverables dir, as a result lists it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Deliverables {
    /// Relative names, sorted, without the run's own folder; links are listed, not followed.
    pub files: Vec<String>,
    /// What is no file or link.
    pub skipped: Vec<SkippedFile>,
    /// Whether names were left out.
    pub truncated: bool,
    /// All files and links, listed or not.
    pub count: u64,
}

/// The result of a blocking create, of `run --json`, and of a manifest's record. All fields are
/// always present, but `usage` and the `deliverables_*` that have nothing to say.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AgentResult {
    /// Whether it delivered what it was asked for, by its own report.
    pub success: bool,
    /// The agent's number.
    pub agent_id: AgentId,
    /// Which run.
    pub task_id: TaskId,
    /// Its definition, if any.
    pub role_id: Option<RoleId>,
    /// Its name.
    pub display_name: String,
    /// How it ended, or where it stands.
    pub status: Status,
    /// Why it ended, when not by a success report.
    pub stop_reason: Option<StopReason>,
    /// What went wrong, when something did.
    pub error: Option<ToolError>,
    /// What it was to do, in a few words.
    pub summary: String,
    /// One line for the caller, in the agent's language.
    pub message: String,
    /// Relative to the workspace.
    pub deliverables_dir: String,
    /// See [`Deliverables::files`].
    pub deliverables_files: Vec<String>,
    /// See [`Deliverables::skipped`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub deliverables_skipped: Vec<SkippedFile>,
    /// Whether names were left out.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub deliverables_truncated: bool,
    /// All files, given when names were left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deliverables_count: Option<u64>,
    /// The agent's report, or its last text.
    pub result_summary: String,
    /// Its own conversation.
    pub sub_conversation_id: ConversationId,
    /// Counts.
    pub stats: Stats,
    /// What it used of the machine, where that was capped.
    #[serde(default, skip_serializing_if = "Usage::is_empty")]
    pub usage: Usage,
    /// Whether it left files although it did not succeed.
    pub partial_results: bool,
    /// What is odd about it.
    pub warnings: Vec<String>,
    /// What was enforced: rung, kill and gaps.
    pub confinement: Value,
}

/// The result of a background create.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StartedResult {
    /// Always true.
    pub success: bool,
    /// The agent's number.
    pub agent_id: AgentId,
    /// Which run.
    pub task_id: TaskId,
    /// Its definition, if any.
    pub role_id: Option<RoleId>,
    /// Its name.
    pub display_name: String,
    /// `running`, or `queued`.
    pub status: Status,
    /// What it is to do, in a few words.
    pub summary: String,
    /// One line for the caller, in the agent's language.
    pub message: String,
    /// Relative to the workspace.
    pub deliverables_dir: String,
    /// Its own conversation.
    pub sub_conversation_id: ConversationId,
    /// Always true.
    pub background: bool,
    /// From 1, when it is queued.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue_position: Option<usize>,
    /// What is odd about the call.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}

/// The result of a terminate.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TerminatedResult {
    /// Always true: the tree is gone.
    pub success: bool,
    /// The agent's number.
    pub agent_id: AgentId,
    /// Which run.
    pub task_id: TaskId,
    /// Its definition, if any.
    pub role_id: Option<RoleId>,
    /// Its name.
    pub display_name: String,
    /// `terminated`, or how it ended when its own end came first.
    pub status: Status,
    /// Why it ended, when not by a success report.
    pub stop_reason: Option<StopReason>,
    /// One line for the caller, in the agent's language.
    pub message: String,
    /// Whether it left files although it did not succeed.
    pub partial_results: bool,
    /// Relative to the workspace.
    pub deliverables_dir: String,
    /// See [`Deliverables::files`].
    pub deliverables_files: Vec<String>,
    /// Whether names were left out.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub deliverables_truncated: bool,
    /// All files, given when names were left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deliverables_count: Option<u64>,
}

/// An agent that a wait did not see end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StillRunning {
    /// The agent's number.
    pub agent_id: AgentId,
    /// Its definition, if any.
    pub role_id: Option<RoleId>,
    /// Its name.
    pub display_name: String,
    /// Where it stands.
    pub status: Status,
}

/// The result of a wait.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct WaitResult {
    /// Always true: nothing has failed, whatever the ends are.
    pub success: bool,
    /// Whether the time was over before the wait was.
    pub timed_out: bool,
    /// Who has ended (or is idle), in the order in which the call named them.
    pub agents: Vec<AgentResult>,
    /// Who has ended too, by how, where there were too many to tell all of each.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub also_ended: BTreeMap<Status, Vec<String>>,
    /// Who has not.
    pub running: Vec<StillRunning>,
    /// How many more have not, where there were too many to name.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub more_running: u64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands a reference")]
fn is_zero(count: &u64) -> bool {
    *count == 0
}

/// One entry of a status answer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AgentStatus {
    /// The agent's number.
    pub agent_id: AgentId,
    /// Its definition, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role_id: Option<RoleId>,
    /// Which run.
    pub task_id: TaskId,
    /// Its name.
    pub display_name: String,
    /// What it is to do, in a few words.
    pub summary: String,
    /// Where it stands.
    pub status: Status,
    /// Seconds on its clock.
    pub runtime_seconds: u64,
    /// Files read.
    pub files_read: u64,
    /// Searches.
    pub searches: u64,
    /// Web pages.
    pub web_pages: u64,
    /// Commands.
    pub commands: u64,
    /// What it does now.
    pub last_action: String,
    /// The end of what it printed last.
    pub last_output: String,
    /// Tokens.
    pub token_usage: TokenUsage,
    /// Seconds until its deadline; null when no clock runs.
    pub deadline_in_seconds: Option<u64>,
    /// From 1, when it is queued.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue_position: Option<usize>,
    /// Relative to the workspace.
    pub deliverables_dir: String,
    /// Why it ended, when not by a success report.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stop_reason: Option<StopReason>,
    /// The enforced rung, once its process runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rung: Option<String>,
    /// All that is enforced; null before its jail has said so.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub confinement: Value,
    /// Processes that can't be killed: pids and what they wait on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unkillable: Option<Value>,
}

/// Cuts a text in the middle so that it has at most `limit` bytes, at character borders, with a
/// mark that says how many bytes are gone (and where the rest is, when `pointer` says so).
pub fn cut_middle(text: &str, limit: usize, pointer: &str) -> String {
    if text.len() <= limit {
        return text.to_owned();
    }
    let mark = |gone: usize| format!("\n… {gone} bytes left out{pointer} …\n");
    let room = limit.saturating_sub(mark(text.len()).len());
    let head = floor_border(text, room.div_ceil(2));
    let tail = ceil_border(text, text.len() - room / 2);
    if room == 0 || head >= tail {
        return text[..floor_border(text, limit)].to_owned();
    }
    format!("{}{}{}", &text[..head], mark(tail - head), &text[tail..])
}

/// The last character border at or before `at`.
pub fn floor_border(text: &str, at: usize) -> usize {
    let mut at = at.min(text.len());
    while !text.is_char_boundary(at) {
        at -= 1;
    }
    at
}

/// The first character border at or after `at`.
pub fn ceil_border(text: &str, at: usize) -> usize {
    let mut at = at.min(text.len());
    while !text.is_char_boundary(at) {
        at += 1;
    }
    at
}

/// The end of a text, at most `limit` bytes, at a character border.
pub fn tail(text: &str, limit: usize) -> &str {
    &text[ceil_border(text, text.len().saturating_sub(limit))..]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cutting_never_splits_a_character_and_never_grows() {
        // A slice at a byte count inside a Chinese character or an emoji once cost a whole tool
        // result, so every offset of the cut is tried.
        for ahead in 0..8 {
            let text = "a".repeat(ahead) + &"固".repeat(400) + &"🌍".repeat(400);
            for limit in [0, 1, 5, 40, 100, 101, 102, 103, 1000] {
                let cut = cut_middle(&text, limit, "");
                assert!(cut.len() <= limit, "{} > {limit}", cut.len());
            }
            assert!(tail(&text, 7).len() <= 7);
        }
        assert_eq!(cut_middle("short", 5, ""), "short");
    }
}
