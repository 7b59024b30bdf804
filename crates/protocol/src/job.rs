//! `job.json`: everything a worker is started with, except the key of its model.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::confinement::{JobConfinement, NetworkMode};
use crate::ids::{AgentId, ConversationId, RoleId, TaskId};
use crate::limits;
use crate::mcp::{McpServerSpec, grant_of_all};
use crate::status::{Completion, Language, ThinkingMode};
use crate::tool::worker::Need;
use crate::web::WebSpec;

/// The `format` number of `job.json` that this version writes.
pub const JOB_FORMAT: u32 = 1;
/// The folder inside the deliverables dir that holds a run's own files.
pub const AGENT_DIR: &str = ".subagent";
/// The task's text, inside [`AGENT_DIR`].
pub const TASK_FILE: &str = "task.md";
/// The system prompt, inside [`AGENT_DIR`].
pub const SYSTEM_PROMPT_FILE: &str = "system_prompt.md";
/// The job, inside [`AGENT_DIR`].
pub const JOB_FILE: &str = "job.json";
/// The journal, inside [`AGENT_DIR`].
pub const JOURNAL_FILE: &str = "journal.jsonl";
/// The conversation, inside [`AGENT_DIR`].
pub const CONVERSATION_FILE: &str = "conversations.json";
/// The worker's stderr, inside [`AGENT_DIR`].
pub const LOG_FILE: &str = "worker.log";
/// How the tree ended, inside [`AGENT_DIR`].
pub const EXIT_FILE: &str = "exit.json";
/// Images that its model was shown, inside [`AGENT_DIR`].
pub const MEDIA_DIR: &str = "media";
/// Long tool results, inside [`AGENT_DIR`].
pub const OUTPUTS_DIR: &str = "outputs";

/// A whole spawn spec. `worker --job job.json` reproduces the run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct JobSpec {
    /// Version of this shape.
    pub format: u32,
    /// The leader's conversation; none for a worker alone.
    #[serde(default)]
    pub conversation: Option<ConversationId>,
    /// The agent's own conversation.
    pub sub_conversation_id: ConversationId,
    /// The agent's number.
    pub agent_id: AgentId,
    /// Which run.
    pub task_id: TaskId,
    /// The agent's definition, if any.
    #[serde(default)]
    pub role_id: Option<RoleId>,
    /// `子智能体1`, `Sub-agent 1`, or the definition's name and the number.
    pub display_name: String,
    /// What it is to do, in a few words.
    pub summary: String,
    /// In which language it is spoken to, already decided.
    pub language: Language,
    /// Absolute, links resolved.
    pub workspace: PathBuf,
    /// Relative to the workspace, normal components only.
    pub deliverables_dir: PathBuf,
    /// What else it may write, relative to the workspace.
    #[serde(default)]
    pub write_paths: Vec<PathBuf>,
    /// What ends its turn without a tool call.
    pub completion: Completion,
    /// The tools granted to it, by name.
    pub tools: Vec<String>,
    /// The model, without its key and the values of its headers: [`ModelSpec::for_the_record`].
    pub model: ModelSpec,
    /// Its bounds.
    pub limits: JobLimits,
    /// What of its confinement it must know itself.
    #[serde(default)]
    pub confinement: JobConfinement,
    /// What it may have of the web; none for nothing.
    #[serde(default)]
    pub web: Option<WebSpec>,
    /// The MCP servers that are started for it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub mcp: Vec<McpServerSpec>,
    /// A folder whose texts stand in for the built-in prompts.
    #[serde(default)]
    pub prompts_dir: Option<PathBuf>,
    /// RFC 3339, UTC.
    pub created_at: String,
    /// 1, and one more for each resume.
    pub attempt: u32,
    /// The run that this one takes up.
    #[serde(default)]
    pub resumes: Option<TaskId>,
    /// The item of a batch that it carries out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub item: Option<ItemTag>,
}

/// Which line of which text a batch's agent was made from. It stands in the event log with the
/// agent, so that the log alone tells what became of a batch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ItemTag {
    /// The item's id in its batch.
    pub id: String,
    /// SHA-256 of its line, in hexadecimal.
    pub sha256: String,
}

impl JobSpec {
    /// What it may have of the web; nothing without a network.
    pub fn web_in_reach(&self) -> Option<&WebSpec> {
        let has_network = self.confinement.network != NetworkMode::None;
        self.web.as_ref().filter(|_| has_network)
    }

    /// The granted tools, with those of all servers that are started for it.
    pub fn grants(tools: Vec<String>, servers: &[McpServerSpec]) -> Vec<String> {
        let all = servers.iter().map(|server| grant_of_all(&server.name));
        tools.into_iter().chain(all).collect()
    }

    /// What the job gives its agent that tools may need.
    pub fn has(&self) -> Vec<Need> {
        let web = self.web_in_reach();
        let search = web
            .and_then(|web| web.search.as_ref())
            .map(|_| Need::Search);
        let pages = web.filter(|web| web.pages).map(|_| Need::Pages);
        // A script stands in for any model; of the dialects only this one shows images as yet.
        let shows = matches!(self.model.provider, Provider::Openai | Provider::Script);
        let vision = (self.model.vision && shows).then_some(Need::Vision);
        search.into_iter().chain(pages).chain(vision).collect()
    }
}

/// What all processes of one agent may use together; none is no limit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Caps {
    /// Memory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_bytes: Option<u64>,
    /// Processor time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_seconds: Option<u64>,
    /// What it adds where it writes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disk_bytes: Option<u64>,
}

impl Caps {
    /// Whether nothing is bounded.
    pub fn is_empty(&self) -> bool {
        *self == Caps::default()
    }
}

/// The bounds of one run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobLimits {
    /// The deadline, counted from `initialize`.
    pub timeout_seconds: u32,
    /// Answers of the model.
    pub max_turns: u32,
    /// From `agent/stop` to the kill.
    pub grace_seconds: u32,
    /// Waiting for an answer of another agent.
    pub answer_timeout_seconds: u32,
    /// Tokens of the whole run; none is no limit.
    #[serde(default)]
    pub max_total_tokens: Option<u64>,
    /// What it may use of the machine.
    #[serde(default, skip_serializing_if = "Caps::is_empty")]
    pub caps: Caps,
}

impl Default for JobLimits {
    fn default() -> Self {
        JobLimits {
            timeout_seconds: limits::TIMEOUT_SECONDS_DEFAULT,
            max_turns: limits::MAX_TURNS_DEFAULT,
            grace_seconds: limits::GRACE_SECONDS,
            answer_timeout_seconds: limits::ANSWER_TIMEOUT_SECONDS,
            max_total_tokens: None,
            caps: Caps::default(),
        }
    }
}

/// The dialect that a model is spoken to in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Provider {
    /// Chat completions.
    Openai,
    /// Messages.
    Anthropic,
    /// A file of replies.
    Script,
}

/// One `[models.KEY]`, resolved. It names where the key is, never the key.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModelSpec {
    /// The key in the configuration, or `env` / `flag` where it comes from there.
    pub key: String,
    /// The dialect.
    pub provider: Provider,
    /// Up to and including the version part, such as `https://host/v1`; unused by `script`.
    #[serde(default)]
    pub base_url: String,
    /// The model's name at its provider; for `script` the path of the file of replies.
    pub model: String,
    /// The environment variable that holds the key; none for servers that want none.
    #[serde(default)]
    pub api_key_env: Option<String>,
    /// The most tokens of one answer; none leaves it to the provider.
    #[serde(default)]
    pub max_output_tokens: Option<u32>,
    /// The model's context window, in tokens.
    #[serde(default)]
    pub context_tokens: Option<u32>,
    /// Whether answers are streamed.
    #[serde(default = "yes")]
    pub stream: bool,
    /// Whether `reasoning_content` goes back with an assistant's tool calls.
    #[serde(default = "yes")]
    pub send_reasoning: bool,
    /// Whether it sees images; for chat completions in this version.
    #[serde(default)]
    pub vision: bool,
    /// What stands for the content of an assistant's message that has none: null or "".
    #[serde(default)]
    pub empty_content: EmptyContent,
    /// How hard the model is to think.
    #[serde(default)]
    pub thinking_mode: Option<ThinkingMode>,
    /// Body fields for each thinking mode, by its word.
    #[serde(default)]
    pub thinking: BTreeMap<String, Map<String, Value>>,
    /// Headers beside our own.
    #[serde(default)]
    pub headers: BTreeMap<String, String>,
    /// Body fields beside our own, such as `temperature` and `tool_choice`.
    #[serde(default)]
    pub body: Map<String, Value>,
    /// The four time-outs but the whole turn, which is what is left of the deadline.
    #[serde(default)]
    pub timeouts: ModelTimeouts,
    /// Price of a million prompt tokens, in the user's currency.
    #[serde(default)]
    pub price_prompt: Option<f64>,
    /// Price of a million completion tokens.
    #[serde(default)]
    pub price_completion: Option<f64>,
    /// Price of a million prompt tokens that the provider had in its cache; none is that of others.
    #[serde(default)]
    pub price_cached: Option<f64>,
}

fn yes() -> bool {
    true
}

impl fmt::Debug for ModelSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // A header may carry a secret, so only the names are shown. Taken apart field by field,
        // so that a new one can't be forgotten.
        let ModelSpec {
            key,
            provider,
            base_url,
            model,
            api_key_env,
            max_output_tokens,
            context_tokens,
            stream,
            send_reasoning,
            vision,
            empty_content,
            thinking_mode,
            thinking,
            headers,
            body,
            timeouts,
            price_prompt,
            price_completion,
            price_cached,
        } = self;
        f.debug_struct("ModelSpec")
            .field("key", key)
            .field("provider", provider)
            .field("base_url", base_url)
            .field("model", model)
            .field("api_key_env", api_key_env)
            .field("max_output_tokens", max_output_tokens)
            .field("context_tokens", context_tokens)
            .field("stream", stream)
            .field("send_reasoning", send_reasoning)
            .field("vision", vision)
            .field("empty_content", empty_content)
            .field("thinking_mode", thinking_mode)
            .field("thinking", thinking)
            .field("headers", &headers.keys().collect::<Vec<_>>())
            .field("body", body)
            .field("timeouts", timeouts)
            .field("price_prompt", price_prompt)
            .field("price_completion", price_completion)
            .field("price_cached", price_cached)
            .finish()
    }
}

impl ModelSpec {
    /// A spec with nothing but the necessary; the rest as configured by nobody.
    pub fn new(key: &str, provider: Provider, base_url: &str, model: &str) -> Self {
        ModelSpec {
            key: key.to_owned(),
            provider,
            base_url: base_url.to_owned(),
            model: model.to_owned(),
            api_key_env: None,
            max_output_tokens: None,
            context_tokens: None,
            stream: true,
            send_reasoning: true,
            vision: false,
            empty_content: EmptyContent::default(),
            thinking_mode: None,
            thinking: BTreeMap::new(),
            headers: BTreeMap::new(),
            body: Map::new(),
            timeouts: ModelTimeouts::default(),
            price_prompt: None,
            price_completion: None,
            price_cached: None,
        }
    }
}

/// What a provider wants for content that is not there.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EmptyContent {
    /// `"content": null`.
    #[default]
    Null,
    /// `"content": ""`.
    Empty,
}

/// Three of the four time-outs of a model call, in seconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ModelTimeouts {
    /// To connect.
    pub connect_seconds: u32,
    /// To the first byte of the answer.
    pub first_byte_seconds: u32,
    /// Between two pieces of it.
    pub gap_seconds: u32,
}

impl Default for ModelTimeouts {
    fn default() -> Self {
        ModelTimeouts {
            connect_seconds: limits::MODEL_CONNECT_SECONDS,
            first_byte_seconds: limits::MODEL_FIRST_BYTE_SECONDS,
            gap_seconds: limits::MODEL_GAP_SECONDS,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_model_shows_the_names_of_its_headers_only() {
        let mut spec = ModelSpec::new("main", Provider::Openai, "http://127.0.0.1/v1", "m");
        spec.headers
            .insert("x-extra".to_owned(), "secret".to_owned());
        let shown = format!("{spec:?}");
        assert!(shown.contains("headers: [\"x-extra\"]"), "{shown}");
        assert!(!shown.contains("secret"), "{shown}");
    }
}
