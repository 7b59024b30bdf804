//! What the layers come to.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::confinement::{GitMode, JobConfinement, NetworkMode, WriteMode};
use crate::job::{Caps, ModelSpec};
use crate::limits;
use crate::mcp::McpServerSpec;
use crate::status::{Language, words};
use crate::web::WebSpec;

words!(
    /// What happens to a new agent when as many run as may.
    Admission {
        /// It is refused.
        Reject = "reject",
        /// It waits for a slot.
        Queue = "queue",
    }
);

words!(
    /// The least confinement that will do, weakest first.
    RequiredRung {
        /// Whatever the machine offers.
        None = "none",
        /// A process group.
        Group = "group",
        /// A subreaper that walks the tree.
        Subreaper = "subreaper",
        /// A PID namespace.
        Pidns = "pidns",
        /// A control group and a PID namespace.
        Cgroup2 = "cgroup2",
    }
);

/// In which language agents are spoken to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum LanguageChoice {
    /// In the language of their task.
    #[serde(rename = "auto")]
    Auto,
    /// Always in Chinese.
    #[serde(rename = "zh")]
    Zh,
    /// Always in English.
    #[serde(rename = "en")]
    En,
}

impl LanguageChoice {
    /// The language for one agent: Chinese when its summary or task has a Han character, unless
    /// the choice is fixed.
    pub fn for_agent(self, summary: &str, task: &str) -> Language {
        match self {
            LanguageChoice::Zh => Language::Zh,
            LanguageChoice::En => Language::En,
            LanguageChoice::Auto => match Language::of_text(summary) {
                Language::Zh => Language::Zh,
                Language::En => Language::of_text(task),
            },
        }
    }

    /// The word in the configuration.
    pub fn as_str(self) -> &'static str {
        match self {
            LanguageChoice::Auto => "auto",
            LanguageChoice::Zh => "zh",
            LanguageChoice::En => "en",
        }
    }
}

/// The section `[limits]`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LimitSettings {
    /// Agents that may use a model at once.
    pub max_concurrent: u32,
    /// Live processes, busy or not.
    pub max_live: u32,
    /// The least deadline that a model may ask for.
    pub timeout_seconds_min: u32,
    /// The greatest deadline.
    pub timeout_seconds_max: u32,
    /// From spawn to `initialize`.
    pub start_timeout_seconds: u32,
    /// Agents that one conversation may create; none is no limit.
    pub max_total_per_run: Option<u32>,
    /// Tokens of one agent's whole run; none is no limit.
    pub max_total_tokens: Option<u64>,
    /// What happens at the cap.
    pub admission: Admission,
    /// The longest wait in the queue.
    pub queue_timeout_seconds: u32,
    /// From `agent/stop` to the kill; 0 kills at once.
    pub grace_seconds: u32,
    /// How long a teammate may be idle.
    pub idle_timeout_seconds: u32,
    /// How long an agent waits for an answer.
    pub answer_timeout_seconds: u32,
    /// A result as the caller's model sees it, in bytes.
    pub result_bytes: u32,
}

impl LimitSettings {
    /// The deadline of an agent for which nobody says one.
    pub fn timeout_seconds_default(&self) -> u32 {
        limits::TIMEOUT_SECONDS_DEFAULT.min(self.timeout_seconds_max)
    }
}

/// The section `[retention]`: a run is removed some time after its end when it is older, or when
/// there are more. What agents delivered is never removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct RetentionSettings {
    /// How long ended runs are kept, in days.
    pub days: u32,
    /// How many ended runs of a workspace are kept.
    pub runs: u32,
}

/// The default of `max_live` for a cap.
pub(super) fn max_live_default(max_concurrent: u64) -> u64 {
    (4 * max_concurrent).clamp(
        u64::from(limits::MAX_LIVE_DEFAULT_MIN),
        u64::from(limits::MAX_LIVE_MAX),
    )
}

impl Settings {
    /// What each agent may use.
    pub fn caps(&self) -> Caps {
        Caps {
            memory_bytes: self.memory,
            cpu_seconds: self.cpu_seconds,
            disk_bytes: self.disk,
        }
    }
}

/// The resolved configuration. It holds no secret.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Settings {
    /// `language`.
    pub language: LanguageChoice,
    /// `default_model`: a key of `[models]`, `URL#NAME`, `PROVIDER/NAME` or `script:FILE`.
    pub default_model: Option<String>,
    /// `prompts_dir`, as it is written; it holds `zh/` and `en/`.
    pub prompts_dir: Option<PathBuf>,
    /// `[limits]`.
    pub limits: LimitSettings,
    /// `[models]` by key.
    pub models: BTreeMap<String, ModelSpec>,
    /// `[web]`; none where there is no such section.
    pub web: Option<WebSpec>,
    /// `[mcp.servers]` in the order of their names.
    pub mcp: Vec<McpServerSpec>,
    /// `[confinement] require`.
    pub require: RequiredRung,
    /// `[confinement] highest`: what is above it is not even tried.
    pub highest: RequiredRung,
    /// `[confinement] cgroup`: a delegated cgroup v2 directory, absolute.
    pub cgroup: Option<PathBuf>,
    /// `[retention]`.
    pub retention: RetentionSettings,
    /// `[confinement] write`: how far agents may write.
    pub write: WriteMode,
    /// `[confinement] network`: what agents may reach of it.
    pub network: NetworkMode,
    /// `[confinement] git`: what agents may do to the workspace's repository.
    pub git: GitMode,
    /// `[confinement] secret_paths`: what shows as empty beside the built-in list; absolute, or
    /// below the home directory with `~/` before it.
    pub secret_paths: Vec<String>,
    /// `[confinement] memory`: bytes that all processes of one agent may use; none is no limit.
    pub memory: Option<u64>,
    /// `[confinement] cpu_seconds`: processor time of all processes of one agent; none is no limit.
    pub cpu_seconds: Option<u64>,
    /// `[confinement] disk`: bytes that one agent may add where it writes; none is no limit.
    pub disk: Option<u64>,
    /// `[confinement] env_allow`: variables that commands get although they are called like
    /// secrets.
    pub env_allow: Vec<String>,
    /// What was ignored, for stderr.
    pub warnings: Vec<String>,
    /// Where each value is from, by its key such as `limits.max_concurrent`: `built-in`,
    /// `FILE:LINE`, a variable or a flag. A workspace's file that a person accepted has
    /// ` (trusted)` behind its line.
    pub sources: BTreeMap<String, String>,
}

impl Settings {
    /// What of the confinement goes into each job.
    pub fn job_confinement(&self) -> JobConfinement {
        JobConfinement {
            write: self.write,
            network: self.network,
            git: self.git,
            env_allow: self.env_allow.clone(),
        }
    }
}
