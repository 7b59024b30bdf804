//! What goes into the event log: every input that changed something and every transition.
//!
//! A record is one line of `events.jsonl` without its `seq` and `ts`. Names and fields are a file
//! format: they may be added to, never changed.

use std::path::PathBuf;

use protocol::channel::{CommandsHeld, FinishedParams};
use protocol::config::RequiredRung;
use protocol::event::{EVENT_LOG_FORMAT, EventLine};
use protocol::ids::{AgentId, ConversationId, RoleId, TaskId};
use protocol::job::JobSpec;
use protocol::result::AgentResult;
use protocol::status::StopReason;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::core::input::{ProcessIdentity, Survivors};
use crate::core::lifecycle::StopCause;
use crate::core::usage::Excess;

/// Whether what follows a record waits until it is on the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Durability {
    /// It waits: a crash after the effect must find the record.
    Synced,
    /// It does not; the record reaches the disk with the next that is synced.
    Lazy,
}

/// Whom a record is about.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentTag {
    /// Which run.
    pub task_id: TaskId,
    /// Its number.
    pub agent_id: AgentId,
    /// Its definition, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role_id: Option<RoleId>,
    /// Its name.
    pub display_name: String,
}

impl AgentTag {
    /// The tag of the agent that a job describes.
    pub fn of(job: &JobSpec) -> Self {
        AgentTag {
            task_id: job.task_id.clone(),
            agent_id: job.agent_id,
            role_id: job.role_id.clone(),
            display_name: job.display_name.clone(),
        }
    }
}

/// A signal of the kill ladder.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum LadderSignal {
    /// SIGTERM to the worker.
    #[serde(rename = "term")]
    Term,
    /// SIGKILL to the whole tree.
    #[serde(rename = "kill")]
    Kill,
}

/// One line of the event log.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event")]
pub enum Record {
    /// First line: whose log it is. Written by the driver.
    #[serde(rename = "run.started")]
    RunStarted {
        /// Version of the log's shape.
        format: u32,
        /// The conversation.
        conversation: ConversationId,
        /// The leader's own version.
        version: String,
        /// Absolute, links resolved.
        workspace: PathBuf,
    },
    /// All agents are being stopped, and none is created any more.
    #[serde(rename = "run.stopping")]
    RunStopping {
        /// Why.
        reason: StopReason,
    },
    /// Its leader is stopped by its terminal, and all trees and clocks with it.
    #[serde(rename = "run.paused")]
    RunPaused {},
    /// It goes on, and all trees and clocks with it.
    #[serde(rename = "run.continued")]
    RunContinued {},
    /// No agent is left, or the log of a dead leader was folded.
    #[serde(rename = "run.ended")]
    RunEnded {},
    /// An agent was accepted.
    #[serde(rename = "agent.created")]
    Created {
        /// Whom.
        agent: AgentTag,
        /// What its worker is started with.
        job: Box<JobSpec>,
        /// The task's text.
        #[serde(default)]
        task: String,
        /// Absolute, links resolved.
        deliverables: PathBuf,
        /// Absolute, links resolved.
        write_paths: Vec<PathBuf>,
    },
    /// It waits for a slot.
    #[serde(rename = "agent.queued")]
    Queued {
        /// Whom.
        agent: AgentTag,
        /// From 1.
        position: usize,
    },
    /// It has a slot; its process is about to be started.
    #[serde(rename = "agent.starting")]
    Starting {
        /// Whom.
        agent: AgentTag,
    },
    /// Its process runs.
    #[serde(rename = "agent.running")]
    Running {
        /// Whom.
        agent: AgentTag,
        /// Which process.
        process: ProcessIdentity,
    },
    /// What its jail enforces.
    #[serde(rename = "agent.confined")]
    Confined {
        /// Whom.
        agent: AgentTag,
        /// Rung, kill and gaps.
        confinement: Value,
    },
    /// It is held by less than this run was before.
    #[serde(rename = "agent.rung_lost")]
    RungLost {
        /// Whom.
        agent: AgentTag,
        /// The best rung that stood before.
        had: RequiredRung,
        /// The rung that stands now.
        has: RequiredRung,
    },
    /// Somebody outside replaced a name that its tree was kept from, or could write.
    #[serde(rename = "agent.name_replaced")]
    NameReplaced {
        /// Whom.
        agent: AgentTag,
        /// The name, absolute; bytes that are no UTF-8 are replaced.
        path: String,
        /// Whether it is protected again.
        again: bool,
    },
    /// Its worker spoke; its clock runs.
    #[serde(rename = "agent.initialized")]
    Initialized {
        /// Whom.
        agent: AgentTag,
        /// How it holds its commands, if it said so.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        commands: Option<CommandsHeld>,
    },
    /// It waits for an answer.
    #[serde(rename = "agent.waiting")]
    Waiting {
        /// Whom.
        agent: AgentTag,
    },
    /// It has ended a round.
    #[serde(rename = "agent.idle")]
    Idle {
        /// Whom.
        agent: AgentTag,
    },
    /// It has a slot again and goes on.
    #[serde(rename = "agent.resumed")]
    Resumed {
        /// Whom.
        agent: AgentTag,
    },
    /// It reported its outcome.
    #[serde(rename = "agent.reported")]
    Reported {
        /// Whom.
        agent: AgentTag,
        /// The outcome.
        report: FinishedParams,
    },
    /// Its processes use more than they may.
    #[serde(rename = "agent.over_limit")]
    OverLimit {
        /// Whom.
        agent: AgentTag,
        /// Of what, how much.
        excess: Excess,
    },
    /// It is being stopped.
    #[serde(rename = "agent.stopping")]
    Stopping {
        /// Whom.
        agent: AgentTag,
        /// Why; the first cause, which wins.
        cause: StopCause,
        /// Until the kill.
        grace_ms: u64,
    },
    /// The kill ladder took a step.
    #[serde(rename = "agent.signalled")]
    Signalled {
        /// Whom.
        agent: AgentTag,
        /// Which step.
        signal: LadderSignal,
    },
    /// A kill did not end its tree.
    #[serde(rename = "agent.unkillable")]
    Unkillable {
        /// Whom.
        agent: AgentTag,
        /// Who is left; none before anybody looked.
        #[serde(default)]
        survivors: Option<Survivors>,
    },
    /// It has ended.
    #[serde(rename = "agent.ended")]
    Ended {
        /// Whom.
        agent: AgentTag,
        /// The result as a model would get it.
        result: Box<AgentResult>,
    },
    /// Its end was told: by an answer, or by a notice that was taken.
    #[serde(rename = "notice.done")]
    NoticeDone {
        /// Whose end.
        agent: AgentTag,
    },
}

impl Record {
    /// The first line of a log of this version.
    pub fn run_started(conversation: ConversationId, version: &str, workspace: PathBuf) -> Self {
        Record::RunStarted {
            format: EVENT_LOG_FORMAT,
            conversation,
            version: version.to_owned(),
            workspace,
        }
    }

    /// Whether what follows waits for the disk: a spawn, a report, an end, a notice and a run's
    /// start and end must not be forgotten; everything else is told again or does not matter.
    pub fn durability(&self) -> Durability {
        match self {
            Record::RunStarted { .. }
            | Record::RunEnded {}
            | Record::Starting { .. }
            | Record::Running { .. }
            | Record::Reported { .. }
            | Record::Ended { .. }
            | Record::NoticeDone { .. } => Durability::Synced,
            Record::RunStopping { .. }
            | Record::RunPaused {}
            | Record::RunContinued {}
            | Record::Created { .. }
            | Record::Queued { .. }
            | Record::Confined { .. }
            | Record::RungLost { .. }
            | Record::NameReplaced { .. }
            | Record::Initialized { .. }
            | Record::Waiting { .. }
            | Record::Idle { .. }
            | Record::Resumed { .. }
            | Record::OverLimit { .. }
            | Record::Stopping { .. }
            | Record::Signalled { .. }
            | Record::Unkillable { .. } => Durability::Lazy,
        }
    }

    /// Whom it is about; none for the run's own records.
    pub fn agent(&self) -> Option<&AgentTag> {
        match self {
            Record::RunStarted { .. }
            | Record::RunStopping { .. }
            | Record::RunPaused {}
            | Record::RunContinued {}
            | Record::RunEnded {} => None,
            Record::Created { agent, .. }
            | Record::Queued { agent, .. }
            | Record::Starting { agent }
            | Record::Running { agent, .. }
            | Record::Confined { agent, .. }
            | Record::RungLost { agent, .. }
            | Record::NameReplaced { agent, .. }
            | Record::Initialized { agent, .. }
            | Record::Waiting { agent }
            | Record::Idle { agent }
            | Record::Resumed { agent }
            | Record::Reported { agent, .. }
            | Record::OverLimit { agent, .. }
            | Record::Stopping { agent, .. }
            | Record::Signalled { agent, .. }
            | Record::Unkillable { agent, .. }
            | Record::Ended { agent, .. }
            | Record::NoticeDone { agent } => Some(agent),
        }
    }

    /// The record as a line of the log.
    pub fn to_line(&self, seq: u64, ts: String) -> EventLine {
        let value = serde_json::to_value(self).unwrap_or_default();
        let mut fields = match value {
            Value::Object(fields) => fields,
            // A struct variant with an internal tag is always an object.
            _ => Map::new(),
        };
        let event = match fields.shift_remove("event") {
            Some(Value::String(name)) => name,
            _ => String::new(),
        };
        EventLine {
            seq,
            ts,
            event,
            fields,
        }
    }

    /// The record of a line; none when the event is of a newer version, or its fields don't fit.
    pub fn of_line(line: &EventLine) -> Option<Record> {
        let mut fields = line.fields.clone();
        fields.insert("event".to_owned(), Value::String(line.event.clone()));
        serde_json::from_value(Value::Object(fields)).ok()
    }
}
