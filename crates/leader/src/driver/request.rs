//! What the faces ask of the driver: one message per verb, each with the place for its answer.

use protocol::error::ToolError;
use protocol::ids::TaskId;
use protocol::job::{ItemTag, JobSpec};
use protocol::result::{AgentResult, StartedResult};
use protocol::status::StopReason;
use protocol::text::BuildsOn;
use protocol::tool::leader::{AgentRef, CreateSubAgentParams, WaitMode};
use serde_json::Value;
use tokio::sync::oneshot;

use crate::driver::subscription::Subscription;

/// Calls that may wait for the driver at once; more wait for room.
pub const REQUESTS_WAITING_MAX: usize = 256;

/// On whose behalf a call is made, which decides ranges and how much a result may hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// A person's command line or batch file: any deadline up to the maximum, up to 1 000 names.
    Person,
    /// A model's tool call, or a program that stands for one: the tool's ranges, 8 KiB of result.
    Tool,
}

/// A create as a face hands it on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CreateOrderRequest {
    /// What is wanted; `run_in_background` decides which answer comes.
    pub params: CreateSubAgentParams,
    /// Who wants it.
    pub origin: Origin,
    /// The item of a batch that it is for.
    pub item: Option<ItemOrder>,
}

/// What is special about the create of a batch's item.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ItemOrder {
    /// Which item.
    pub tag: ItemTag,
    /// Where the results lie that it builds on.
    pub builds_on: Vec<BuildsOn>,
}

/// An agent of an earlier run that is to go on, as a face hands it on. All of it comes from the
/// event log, never from the agent's own folder.
#[derive(Debug, Clone, PartialEq)]
pub struct ResumeRequest {
    /// What its last worker was started with.
    pub job: JobSpec,
    /// Its task's text.
    pub task: String,
    /// All its runs so far, the last one first.
    pub earlier: Vec<TaskId>,
    /// The new deadline; none takes the old length.
    pub timeout_seconds: Option<u32>,
    /// The model it is to go on with; none takes the configured one of the old key.
    pub model: Option<String>,
    /// Whether it is answered at once, as a create in the background is.
    pub run_in_background: bool,
}

/// What a create comes to.
#[derive(Debug, Clone, PartialEq)]
pub enum CreateAnswer {
    /// A blocking create: how the agent ended.
    Ended(Box<AgentResult>),
    /// A background create: that it has been started or queued.
    Started(Box<StartedResult>),
}

impl CreateAnswer {
    /// The answer as the tool's result.
    pub fn to_value(&self) -> Value {
        let value = match self {
            CreateAnswer::Ended(result) => serde_json::to_value(result),
            CreateAnswer::Started(result) => serde_json::to_value(result),
        };
        value.unwrap_or(Value::Null)
    }
}

/// A wait as a face hands it on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WaitRequest {
    /// Whom it waits for; empty means all that have not ended.
    pub agents: Vec<AgentRef>,
    /// When it is over.
    pub mode: WaitMode,
    /// The longest wait; none waits for ever.
    pub timeout_ms: Option<u64>,
    /// Who waits.
    pub origin: Origin,
}

/// How agents are stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StopMode {
    /// `agent/stop`, the grace, then the kill.
    Graceful,
    /// The kill at once.
    Force,
}

/// Where one agent's files lie, for faces that read its journal or log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentPlace {
    /// Which run.
    pub task_id: TaskId,
    /// Relative to the workspace.
    pub deliverables_dir: std::path::PathBuf,
}

/// Where an answer goes. A caller that went away has dropped the other end.
pub(crate) type Reply<T> = oneshot::Sender<T>;

/// One message to the driver.
#[derive(Debug)]
pub(crate) enum Request {
    /// Start an agent.
    Create {
        order: Box<CreateOrderRequest>,
        reply: Reply<Result<CreateAnswer, ToolError>>,
    },
    /// Let an agent of an earlier run go on.
    Resume {
        order: Box<ResumeRequest>,
        reply: Reply<Result<CreateAnswer, ToolError>>,
    },
    /// End an agent.
    Terminate {
        agent: AgentRef,
        mode: StopMode,
        origin: Origin,
        reply: Reply<Result<Value, ToolError>>,
    },
    /// Where agents stand.
    Status {
        agents: Vec<AgentRef>,
        reply: Reply<Value>,
    },
    /// Wait for ends.
    Wait {
        wait: WaitRequest,
        reply: Reply<Result<Value, ToolError>>,
    },
    /// Agents that run, wait or are idle.
    ListActive { reply: Reply<Value> },
    /// All agents of the conversation.
    Ps { reply: Reply<Value> },
    /// Where an agent's files lie.
    Locate {
        agent: AgentRef,
        reply: Reply<Result<AgentPlace, ToolError>>,
    },
    /// Follow the event log.
    Subscribe {
        after_seq: Option<u64>,
        reply: Reply<Subscription>,
    },
    /// Stop all agents and take no new ones.
    StopAll {
        reason: StopReason,
        mode: StopMode,
        reply: Reply<()>,
    },
    /// Let every tree and its clock stand still; answered when they do.
    Pause { reply: Reply<()> },
    /// Let them go on.
    Continue { reply: Reply<()> },
    /// End the driver, once every agent has ended.
    Close,
}
