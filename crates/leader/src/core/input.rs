//! Everything that can happen to the supervisor, as plain data.
//!
//! The driver gathers facts (paths, files, wait statuses) and hands them in here; what they mean
//! is decided by [`crate::core::supervisor::Supervisor`] alone.

use std::path::PathBuf;

use protocol::channel::{CommandsHeld, FinishedParams, ProgressParams};
use protocol::error::ToolError;
use protocol::ids::TaskId;
use protocol::job::JobSpec;
use protocol::result::Deliverables;
use protocol::stats::Stats;
use protocol::status::StopReason;
use protocol::tool::leader::{AgentRef, WaitMode};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::core::usage::Measure;

/// One call that waits for its answer. The driver makes them; each is answered exactly once,
/// unless it is given up with [`Input::GiveUp`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub u64);

/// Who calls. An end that an answer has told to the caller who created the agent needs no notice;
/// told to somebody else, it still does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Caller(pub u64);

/// Whether a create is answered at once or at the agent's end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// At its end (or when it becomes idle).
    Blocking,
    /// As soon as it is accepted.
    Background,
}

/// How an agent is stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StopHow {
    /// `agent/stop`, SIGTERM, and the kill at the end of the grace. Asked for a second time, it
    /// becomes [`StopHow::Now`].
    Graceful,
    /// The kill at once.
    Now,
}

/// What the driver found at the place where the deliverables are to go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DirFacts {
    /// Nothing, or an empty directory.
    Free,
    /// A directory that holds something.
    NotEmpty,
    /// A directory that holds something, which the caller wants used all the same.
    NotEmptyReused,
}

/// A create whose parameters are checked and whose facts are gathered. The agent's number, names,
/// languages and limits are those of `job`.
#[derive(Debug, Clone, PartialEq)]
pub struct CreateOrder {
    /// What the worker will be started with. Its `agent_id` is the wanted number or one that
    /// [`crate::core::supervisor::Supervisor::next_number`] gave.
    pub job: JobSpec,
    /// The task's text, for the log: the agent could change what lies in its own folder.
    pub task: String,
    /// The deliverables dir: absolute, every link on the way resolved.
    pub deliverables: PathBuf,
    /// What lies there.
    pub deliverables_facts: DirFacts,
    /// What else it may write, each absolute with every link on the way resolved.
    pub write_paths: Vec<PathBuf>,
    /// When the create is answered.
    pub mode: Mode,
    /// What is odd about the call; comes back in every result of this agent.
    pub warnings: Vec<String>,
}

/// A process as the system tells it from every other, also after its pid is used again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessIdentity {
    /// Of the jail, in the leader's PID namespace.
    pub pid: u32,
    /// Field 22 of `/proc/<pid>/stat`.
    pub start_ticks: u64,
    /// `/proc/sys/kernel/random/boot_id`.
    pub boot_id: String,
}

/// How the process tree ended, by the jail's own wait status, which a worker can't forge.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// It exited with this code.
    Exited(u8),
    /// It died of this signal.
    Signalled(i32),
}

/// What the agent's own files say once its tree has ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Evidence {
    /// `conversations.json` (or the journal) holds an outcome of this very run.
    Report(FinishedParams),
    /// The conversation is readable and of this run, but has no outcome.
    Unfinished {
        /// The last text of its model; may be empty.
        last_text: String,
        /// Counts as far as they were written.
        stats: Stats,
    },
    /// The file is missing, torn, foreign or no regular file.
    Bad {
        /// What is wrong with it, for the error's text.
        why: String,
    },
}

/// All that is known of an end, gathered when the tree is proven empty.
#[derive(Debug, Clone, PartialEq)]
pub struct ExitFacts {
    /// How the tree ended.
    pub verdict: Verdict,
    /// What its files say.
    pub evidence: Evidence,
    /// What it left.
    pub deliverables: Deliverables,
    /// The last lines of its stderr, or the jail's own account of a failed start; may be empty.
    pub last_lines: String,
    /// What the driver found odd while it collected.
    pub warnings: Vec<String>,
    /// Whether the kernel ended it because it had no memory left within its own bounds.
    pub out_of_memory: bool,
}

/// One thing that happened.
#[derive(Debug, Clone, PartialEq)]
pub enum Input {
    /// Someone wants an agent. The driver holds the claim on its directories already; exactly one
    /// [`crate::core::effect::Effect::ReleaseClaim`] answers each create, at a refusal or the end.
    Create {
        /// To be answered.
        ticket: Ticket,
        /// Who wants it, and gets its notice.
        caller: Caller,
        /// What is wanted.
        order: Box<CreateOrder>,
    },
    /// Someone wants an agent ended; answered when its tree is gone.
    Terminate {
        /// To be answered.
        ticket: Ticket,
        /// Who wants it.
        caller: Caller,
        /// Whom.
        agent: AgentRef,
        /// How.
        how: StopHow,
    },
    /// Someone waits for ends.
    Wait {
        /// To be answered.
        ticket: Ticket,
        /// Who waits.
        caller: Caller,
        /// For whom; empty means all that have not ended.
        agents: Vec<AgentRef>,
        /// For one or all of them.
        mode: WaitMode,
        /// The longest wait; none waits for ever.
        timeout_ms: Option<u64>,
    },
    /// The caller of this ticket has gone: no answer is wanted any more. Ends nothing else.
    GiveUp {
        /// The ticket.
        ticket: Ticket,
    },
    /// The process of an agent exists.
    Spawned {
        /// Whose.
        agent: TaskId,
        /// Which.
        process: ProcessIdentity,
    },
    /// No process came to be.
    SpawnFailed {
        /// Whose.
        agent: TaskId,
        /// Why; the code tells a refused confinement from everything else.
        error: ToolError,
    },
    /// The jail said what it enforces.
    Confined {
        /// Whose.
        agent: TaskId,
        /// Rung, kill and gaps, as results carry them.
        confinement: Value,
    },
    /// The jail noted that somebody outside replaced a name that it guards.
    NameReplaced {
        /// Whose.
        agent: TaskId,
        /// The name.
        path: String,
        /// Whether it is protected again.
        again: bool,
    },
    /// The worker said `initialize`: its clock starts.
    Initialized {
        /// Whose.
        agent: TaskId,
        /// How it holds its commands, if it said so.
        commands: Option<CommandsHeld>,
    },
    /// Somebody looked at what its processes use.
    Used {
        /// Whose.
        agent: TaskId,
        /// What was seen.
        measure: Measure,
    },
    /// The worker said how far it is.
    Progress {
        /// Whose.
        agent: TaskId,
        /// How far.
        progress: ProgressParams,
    },
    /// The worker reported its outcome.
    Reported {
        /// Whose.
        agent: TaskId,
        /// The outcome.
        report: FinishedParams,
    },
    /// An agent whose completion is `idle` has ended a round.
    WentIdle {
        /// Whose.
        agent: TaskId,
        /// The last text of its model.
        text: String,
    },
    /// The agent waits for an answer or an approval.
    Asked {
        /// Whose.
        agent: TaskId,
    },
    /// What a waiting or idle agent waits for is there; it goes on when it has a slot, see
    /// [`crate::core::effect::Effect::GoOn`].
    Resume {
        /// Whose.
        agent: TaskId,
    },
    /// The worker broke a rule of the channel that its call depended on, or does not read what it
    /// is sent: it is stopped.
    Broke {
        /// Whose.
        agent: TaskId,
        /// What it did, for the error's text.
        detail: String,
    },
    /// The process tree has ended and was proven empty.
    Exited {
        /// Whose.
        agent: TaskId,
        /// What is known.
        facts: Box<ExitFacts>,
    },
    /// Answers [`crate::core::effect::Effect::Inspect`]: what a kill did not end.
    Survivors {
        /// Whose.
        agent: TaskId,
        /// Who is left, and what they wait on.
        survivors: Survivors,
    },
    /// The notice of this agent's end is with its addressee for good.
    NoticeTaken {
        /// Whose end it told.
        agent: TaskId,
    },
    /// The time that [`crate::core::supervisor::Supervisor::next_timer`] named has come.
    TimerDue,
    /// The leader is about to be stopped by its terminal: every tree stands still from now on. The
    /// driver's clock, whose times come with the inputs, does so too.
    Pause,
    /// The leader goes on, and its trees with it.
    Continue,
    /// No agent may be created any more, and all are stopped.
    StopAll {
        /// `leader_stopped` or `conversation_closed`.
        reason: StopReason,
        /// How.
        how: StopHow,
    },
}

/// Processes that outlived a kill.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Survivors {
    /// In the leader's PID namespace.
    pub pids: Vec<u32>,
    /// What they wait on, as the kernel names it.
    pub why: String,
}
