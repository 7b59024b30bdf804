//! Everything that the supervisor wants done, as plain data. Effects are carried out in order.

use protocol::error::ToolError;
use protocol::ids::TaskId;
use protocol::result::{AgentResult, StartedResult, TerminatedResult, WaitResult};
use protocol::status::{Status, StopReason};

use crate::core::input::Ticket;
use crate::core::lifecycle::Illegal;
use crate::core::record::Record;

/// One thing to do.
#[derive(Debug, Clone, PartialEq)]
pub enum Effect {
    /// Append to the event log. What follows in the same list waits for the disk when
    /// [`Record::durability`] says so.
    Log(Box<Record>),
    /// Start the agent's process with the job of its order; answer with `Spawned` or
    /// `SpawnFailed`.
    Spawn {
        /// Whose.
        agent: TaskId,
    },
    /// Send `agent/stop`.
    SendStop {
        /// To whom.
        agent: TaskId,
        /// Why.
        reason: StopReason,
        /// Until the kill.
        grace_ms: u64,
    },
    /// Send `agent/deadline`.
    SendDeadline {
        /// To whom.
        agent: TaskId,
        /// Until the stop.
        remaining_ms: u64,
        /// Whether the clock stands still.
        paused: bool,
    },
    /// SIGTERM and then SIGCONT through the jail to the worker.
    Term {
        /// To whom.
        agent: TaskId,
    },
    /// Stop every process of the tree where it is.
    PauseTree {
        /// Whose.
        agent: TaskId,
    },
    /// Let every process of the tree go on.
    ContinueTree {
        /// Whose.
        agent: TaskId,
    },
    /// Kill the whole tree; answer with `Exited` once it is empty.
    Kill {
        /// Whose.
        agent: TaskId,
    },
    /// Look at what is left of a killed tree; answer with `Survivors`.
    Inspect {
        /// Whose.
        agent: TaskId,
    },
    /// The agent has its slot again: hand it what it waited for.
    GoOn {
        /// To whom.
        agent: TaskId,
    },
    /// The agent has ended like this: bring its `conversations.json` to its final form, and let go
    /// of everything that is kept for it but its claim.
    Conclude {
        /// Whose.
        agent: TaskId,
        /// How it ended.
        status: Status,
        /// Why, when not by a success report.
        stop_reason: Option<StopReason>,
        /// The report, or the last text.
        summary: String,
    },
    /// Let go of the claim on the agent's directories.
    ReleaseClaim {
        /// Whose.
        agent: TaskId,
    },
    /// Answer a call.
    Answer {
        /// Which.
        ticket: Ticket,
        /// With what.
        answer: Answer,
    },
    /// Tell whoever created the agent of its end; answer with `NoticeTaken` once it is told for
    /// good.
    Notice(Box<AgentResult>),
    /// An answer has told the owner of this agent of its end: a notice of it that has not reached
    /// its addressee yet is to be dropped.
    DropNotice {
        /// Whose end.
        agent: TaskId,
    },
    /// After `StopAll`: no agent is left.
    AllEnded,
    /// An input did not fit the agent's state and changed nothing. For the diagnostic log.
    Ignored {
        /// Whose.
        agent: TaskId,
        /// What did not fit.
        what: Illegal,
    },
}

/// What a call comes to. Results are whole: see [`crate::core::result`] for cutting them to what
/// a model or a person gets.
#[derive(Debug, Clone, PartialEq)]
pub enum Answer {
    /// Any call: it was refused.
    Refused(ToolError),
    /// A blocking create: how the agent ended (or that it is idle, or can't be killed).
    Created(Box<AgentResult>),
    /// A background create: that it is started or queued.
    Started(Box<StartedResult>),
    /// A terminate: the tree is gone.
    Terminated(Box<TerminatedResult>),
    /// A wait: who has ended and who has not.
    Waited(Box<WaitResult>),
}
