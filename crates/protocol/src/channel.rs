//! What goes over a worker's stdin and stdout under a leader, method by method.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::job::ModelSpec;
use crate::mcp::McpEnv;
use crate::stats::Stats;
use crate::status::{Status, StopReason};

/// The version of the channel, `MAJOR.MINOR`; a worker and a leader must share the major.
pub const PROTOCOL: &str = "1.0";

/// Worker to leader, request: the first thing it says.
pub const INITIALIZE: &str = "initialize";
/// Worker to leader, request: a tool that the leader serves.
pub const TOOLS_CALL: &str = "tools/call";
/// Worker to leader: how far it is, at most 5 a second.
pub const PROGRESS: &str = "agent/progress";
/// Worker to leader: a text of its model.
pub const OUTPUT: &str = "agent/output";
/// Worker to leader: a piece of a text as it comes, only when asked for.
pub const DELTA: &str = "agent/delta";
/// Worker to leader: delivered messages are in its journal.
pub const ACK: &str = "agent/ack";
/// Worker to leader: its outcome.
pub const FINISHED: &str = "agent/finished";
/// Leader to worker: messages for the next turn boundary.
pub const DELIVER: &str = "agent/deliver";
/// Leader to worker: save and leave.
pub const STOP: &str = "agent/stop";
/// Leader to worker: come to an end soon.
pub const WRAP_UP: &str = "agent/wrap_up";
/// Leader to worker: its deadline changed.
pub const DEADLINE: &str = "agent/deadline";
/// Leader to worker, request: are you there.
pub const PING: &str = "agent/ping";

/// Whether two versions of the channel can talk: they share the part before the dot.
pub fn same_major(ours: &str, theirs: &str) -> bool {
    let major = |version: &str| version.split('.').next().unwrap_or("").to_owned();
    !major(ours).is_empty() && major(ours) == major(theirs)
}

/// Params of [`INITIALIZE`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct InitializeParams {
    /// [`PROTOCOL`] of the worker.
    pub protocol: String,
    /// The worker's own version.
    pub worker_version: String,
    /// How its commands are held, if it has looked. What the leader itself enforces on the worker's
    /// tree holds for them too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commands: Option<CommandsHeld>,
}

/// How a worker holds the commands of its model: records and results carry it below
/// `confinement.commands`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CommandsHeld {
    /// `keeper`, `jail` or `process group`.
    pub held_by: String,
    /// The rung of each command's own tree.
    pub rung: String,
    /// What they reach of the network: `full`, `loopback` or `nothing`.
    pub network: String,
    /// What was asked for of it, where that is something else.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub asked_network: Option<String>,
    /// What does not hold, for people.
    pub gaps: Vec<String>,
}

impl CommandsHeld {
    /// Cuts what a broken worker could make too long for every record that carries it.
    #[must_use]
    pub fn bounded(mut self) -> Self {
        let words = [&mut self.held_by, &mut self.rung, &mut self.network];
        let asked = self.asked_network.iter_mut();
        for word in words.into_iter().chain(asked) {
            cut(word, COMMANDS_WORD_BYTES_MAX);
        }
        self.gaps.truncate(COMMANDS_GAPS_MAX);
        for gap in &mut self.gaps {
            cut(gap, COMMANDS_GAP_BYTES_MAX);
        }
        self
    }
}

/// Bytes of a word of [`CommandsHeld`].
const COMMANDS_WORD_BYTES_MAX: usize = 32;
/// Gaps of [`CommandsHeld`].
const COMMANDS_GAPS_MAX: usize = 16;
/// Bytes of each of them.
const COMMANDS_GAP_BYTES_MAX: usize = 1_000;

fn cut(text: &mut String, bytes_max: usize) {
    text.truncate(text.floor_char_boundary(bytes_max));
}

/// Result of [`INITIALIZE`].
#[derive(Clone, PartialEq, Serialize, Deserialize)]
pub struct InitializeResult {
    /// [`PROTOCOL`] of the leader.
    pub protocol: String,
    /// The tools that the leader serves to this agent, as `{"name", "description", "parameters"}`.
    pub tools: Vec<Value>,
    /// The model with its key.
    pub model: ModelAccess,
    /// The key of the search engine; none where it wants none. Like the model's it travels only
    /// here.
    #[serde(default)]
    pub web_key: Option<WebKey>,
    /// Values of the variables that MCP servers get. They too travel only here.
    #[serde(default, skip_serializing_if = "no_values")]
    pub mcp_env: McpEnv,
    /// Milliseconds until the deadline, counted from now.
    pub remaining_ms: u64,
    /// Values that the worker must neither write nor tell, beside the model's key: secrets of the
    /// leader's surroundings, which its commands do not get and yet may find in a file.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub secrets: Vec<String>,
}

fn no_values(env: &McpEnv) -> bool {
    env.0.is_empty()
}

impl std::fmt::Debug for InitializeResult {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("InitializeResult")
            .field("protocol", &self.protocol)
            .field("tools", &self.tools)
            .field("model", &self.model)
            .field("remaining_ms", &self.remaining_ms)
            .field("web_key", &self.web_key)
            .field("mcp_env", &self.mcp_env)
            .field("secrets", &self.secrets.len())
            .finish()
    }
}

/// The key of a search engine, which is shown to nobody.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct WebKey(pub String);

impl std::fmt::Debug for WebKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("WebKey(set)")
    }
}

/// A model and the key for it. The only place where a model's key and the values of its headers
/// travel.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
pub struct ModelAccess {
    /// The model, whole.
    pub spec: ModelSpec,
    /// The key; none for servers that want none.
    #[serde(default)]
    pub api_key: Option<String>,
}

impl std::fmt::Debug for ModelAccess {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let key = if self.api_key.is_some() {
            "set"
        } else {
            "none"
        };
        f.debug_struct("ModelAccess")
            .field("spec", &self.spec)
            .field("api_key", &key)
            .finish()
    }
}

/// Params of [`TOOLS_CALL`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ToolsCallParams {
    /// The tool.
    pub name: String,
    /// Its parameters, an object.
    pub arguments: Value,
}

/// Params of [`PROGRESS`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ProgressParams {
    /// Counts so far.
    pub stats: Stats,
    /// What it does now, in its language, at most
    /// [`crate::limits::LAST_ACTION_CHARS_MAX`] characters.
    pub last_action: String,
    /// `running`, `waiting` or `idle`.
    pub state: Status,
    /// The end of what its model or command printed last, at most
    /// [`crate::limits::OUTPUT_TAIL_BYTES_MAX`] bytes.
    #[serde(default)]
    pub output_tail: String,
}

/// Params of [`OUTPUT`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutputParams {
    /// The text.
    pub text: String,
    /// Whether the turn ended with it.
    #[serde(rename = "final")]
    pub is_final: bool,
}

/// Params of [`DELTA`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeltaParams {
    /// The piece.
    pub text: String,
}

/// Params of [`ACK`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AckParams {
    /// The ids of [`DeliveredMessage`]s that are in the journal.
    pub message_ids: Vec<String>,
}

/// Params of [`FINISHED`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FinishedParams {
    /// Whether it reported success.
    pub success: bool,
    /// The report, or the last text.
    pub summary: String,
    /// Why it ended, when not by a success report.
    #[serde(default)]
    pub stop_reason: Option<StopReason>,
    /// Counts at the end.
    #[serde(default)]
    pub stats: Stats,
}

/// Params of [`DELIVER`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeliverParams {
    /// In order.
    pub messages: Vec<DeliveredMessage>,
}

/// One message for an agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeliveredMessage {
    /// Acknowledged by it.
    pub id: String,
    /// `task`, `message`, `ask`, `answer`, `notice`.
    pub kind: String,
    /// The sender's display name.
    pub from: String,
    /// The text.
    pub content: String,
}

/// Params of [`STOP`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StopParams {
    /// Why: `deadline`, `terminated`, `leader_stopped`, …
    pub reason: StopReason,
    /// Until the kill.
    pub grace_ms: u64,
}

/// Params of [`WRAP_UP`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WrapUpParams {
    /// Until the stop.
    pub seconds_left: u64,
}

/// Params of [`DEADLINE`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeadlineParams {
    /// Until the stop.
    pub remaining_ms: u64,
    /// Whether the clock stands still.
    pub paused: bool,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::Provider;

    #[test]
    fn versions_must_share_their_major() {
        assert!(same_major("1.0", "1.7"));
        assert!(!same_major("1.0", "2.0"));
        assert!(!same_major("1.0", ""));
    }

    #[test]
    fn a_key_is_not_in_the_debug_text() {
        let access = ModelAccess {
            spec: ModelSpec::new("m", Provider::Openai, "http://127.0.0.1/v1", "x"),
            api_key: Some("tok123456789".into()),
        };
        assert!(!format!("{access:?}").contains("tok123456789"));
        let result = InitializeResult {
            protocol: PROTOCOL.to_owned(),
            tools: Vec::new(),
            model: access,
            remaining_ms: 1,
            web_key: Some(WebKey("tok123456789".to_owned())),
            mcp_env: McpEnv([("A_TOKEN".to_owned(), "tok123456789".to_owned())].into()),
            secrets: vec!["tok123456789".to_owned()],
        };
        assert!(!format!("{result:?}").contains("tok123456789"));
    }
}
