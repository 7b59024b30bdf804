//! What a log says of a run: its records, folded from the first to the last one that is there.

use std::collections::HashMap;
use std::path::PathBuf;

use crate::core::rungs::hold_commands;
use protocol::channel::FinishedParams;
use protocol::ids::{ConversationId, TaskId};
use protocol::job::JobSpec;
use protocol::result::AgentResult;
use protocol::status::{Status, StopReason};
use serde_json::Value;

use crate::core::input::ProcessIdentity;
use crate::core::lifecycle::{
    End, Event, PendingStop, Report, State, StopCause, after_leader_death, apply,
};
use crate::core::record::{AgentTag, LadderSignal, Record};

/// One agent as its log tells it.
#[derive(Debug, Clone, PartialEq)]
pub struct FoldedAgent {
    /// Whom.
    pub tag: AgentTag,
    /// What its worker was to be started with.
    pub job: JobSpec,
    /// Its task's text; empty in logs that do not hold it.
    pub task: String,
    /// Its deliverables dir, absolute.
    pub deliverables: PathBuf,
    /// What else it could write, absolute.
    pub write_paths: Vec<PathBuf>,
    /// Where it stood at the last record.
    pub state: State,
    /// Its process, if it came so far.
    pub process: Option<ProcessIdentity>,
    /// What its jail enforced; null when it did not say.
    pub confinement: Value,
    /// What it reported on the channel.
    pub report: Option<FinishedParams>,
    /// Its result, if its end is in the log.
    pub result: Option<Box<AgentResult>>,
    /// Whether its end was told to whoever created it.
    pub told: bool,
}

impl FoldedAgent {
    /// How it ended; for one that had not, what the death of its leader made of it.
    pub fn end(&self) -> End {
        after_leader_death(self.state)
    }
}

/// A run as its log tells it.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct FoldedRun {
    /// Which conversation; none when the log's beginning is gone.
    pub conversation: Option<ConversationId>,
    /// Its workspace, absolute.
    pub workspace: Option<PathBuf>,
    /// Why all agents were being stopped, if they were.
    pub stopping: Option<StopReason>,
    /// Whether the run has ended in order, or was closed after its leader's death.
    pub ended: bool,
    /// All agents, in the order of their creation.
    pub agents: Vec<FoldedAgent>,
    /// Records that did not fit what was there before them; they changed nothing.
    pub misfits: usize,
    by_task: HashMap<TaskId, usize>,
}

impl FoldedRun {
    /// Folds all of them.
    pub fn of(records: impl IntoIterator<Item = Record>) -> Self {
        let mut run = FoldedRun::default();
        for record in records {
            run.take(record);
        }
        run
    }

    /// Folds the next one.
    pub fn take(&mut self, record: Record) {
        let fits = match record {
            Record::RunStarted {
                conversation,
                workspace,
                ..
            } => {
                self.conversation = Some(conversation);
                self.workspace = Some(workspace);
                true
            }
            Record::RunStopping { reason } => {
                self.stopping = Some(reason);
                true
            }
            // What stood still had not ended: where agents stand is the same.
            Record::RunPaused {} | Record::RunContinued {} => true,
            Record::RunEnded {} => {
                self.ended = true;
                true
            }
            Record::Created {
                agent,
                job,
                task,
                deliverables,
                write_paths,
            } => self.add(FoldedAgent {
                tag: agent,
                job: *job,
                task,
                deliverables,
                write_paths,
                state: State::Created,
                process: None,
                confinement: Value::Null,
                report: None,
                result: None,
                told: false,
            }),
            of_agent => self.take_of_agent(of_agent),
        };
        self.misfits += usize::from(!fits);
    }

    /// The agent of a run.
    pub fn agent(&self, task: &TaskId) -> Option<&FoldedAgent> {
        self.by_task.get(task).map(|index| &self.agents[*index])
    }

    /// Agents whose end is not in the log: their leader died before them.
    pub fn cut_off(&self) -> impl Iterator<Item = &FoldedAgent> + '_ {
        self.agents.iter().filter(|agent| agent.result.is_none())
    }

    fn add(&mut self, agent: FoldedAgent) -> bool {
        let task = agent.tag.task_id.clone();
        if self.by_task.contains_key(&task) {
            return false;
        }
        self.by_task.insert(task, self.agents.len());
        self.agents.push(agent);
        true
    }

    fn take_of_agent(&mut self, record: Record) -> bool {
        let index = record
            .agent()
            .and_then(|tag| self.by_task.get(&tag.task_id));
        match index {
            Some(index) => take_record(&mut self.agents[*index], record),
            None => false,
        }
    }
}

/// Takes a record to the agent that it is about; false when it does not fit.
fn take_record(agent: &mut FoldedAgent, record: Record) -> bool {
    let event = match record {
        Record::Queued { .. } => Event::Enqueued,
        Record::Starting { .. } => {
            // One that found a slot at once was never logged as queued.
            if agent.state == State::Created {
                step(agent, Event::Enqueued);
            }
            Event::SlotGranted
        }
        Record::Running { process, .. } => {
            agent.process = Some(process);
            Event::Spawned
        }
        Record::Confined { confinement, .. } => {
            agent.confinement = confinement;
            return true;
        }
        // Of the past alone: it changes nothing about the agent.
        Record::NameReplaced { .. } => return true,
        // The warning of it stands in the result; what is enforced, in the record before.
        Record::RungLost { .. } => return true,
        // So does what it used; the stop for it comes as a record of its own.
        Record::OverLimit { .. } => return true,
        Record::Waiting { .. } => Event::Asked,
        Record::Idle { .. } => Event::WentIdle,
        Record::Resumed { .. } => match agent.state.status() {
            Status::Waiting => Event::Answered,
            _ => Event::Woken,
        },
        Record::Reported { report, .. } => {
            let event = Event::Reported(Report {
                success: report.success,
                reason: report.stop_reason,
            });
            agent.report.get_or_insert(report);
            event
        }
        Record::Stopping { cause, .. } => stop_event(cause),
        Record::Signalled {
            signal: LadderSignal::Kill,
            ..
        } => Event::GraceExpired,
        Record::Signalled {
            signal: LadderSignal::Term,
            ..
        } => return agent.result.is_none(),
        Record::Initialized { commands, .. } => {
            hold_commands(&mut agent.confinement, commands);
            return agent.result.is_none();
        }
        Record::Unkillable { .. } => Event::Unkillable,
        Record::Ended { result, .. } => return take_end(agent, result),
        Record::NoticeDone { .. } => {
            agent.told = true;
            return agent.result.is_some();
        }
        Record::RunStarted { .. }
        | Record::RunStopping { .. }
        | Record::RunPaused {}
        | Record::RunContinued {}
        | Record::RunEnded {}
        | Record::Created { .. } => return false,
    };
    step(agent, event)
}

fn step(agent: &mut FoldedAgent, event: Event) -> bool {
    match apply(agent.state, event) {
        Ok((state, _)) => {
            agent.state = state;
            true
        }
        Err(_) => false,
    }
}

/// The event that began a stop of this cause.
fn stop_event(cause: StopCause) -> Event {
    match cause {
        StopCause::StartTimeout => Event::StartTimeout,
        StopCause::ProtocolError => Event::ProtocolBroken,
        StopCause::Deadline => Event::DeadlinePassed,
        StopCause::IdleTimeout => Event::IdleTimeout,
        StopCause::Finished
        | StopCause::ShutdownApproved
        | StopCause::OutOfMemory
        | StopCause::CpuLimit
        | StopCause::DiskLimit
        | StopCause::Terminated
        | StopCause::LeaderStopped
        | StopCause::ConversationClosed => Event::StopRequested(PendingStop { cause, now: false }),
    }
}

/// An end is taken as it was decided, whatever came before it: it is the last word.
fn take_end(agent: &mut FoldedAgent, result: Box<AgentResult>) -> bool {
    let reason = result.stop_reason;
    let end = match (result.status, reason) {
        (Status::Completed, _) => End::Completed,
        (Status::TimedOut, _) => End::TimedOut,
        (Status::Interrupted, _) => End::Interrupted,
        (Status::Failed, reason) => End::Failed(reason.unwrap_or(StopReason::WorkerCrashed)),
        (Status::Terminated, reason) => End::Terminated(reason.unwrap_or(StopReason::Terminated)),
        (
            Status::Created
            | Status::Queued
            | Status::Starting
            | Status::Running
            | Status::Waiting
            | Status::Idle
            | Status::Stopping,
            _,
        ) => return false,
    };
    if agent.result.is_some() {
        return false;
    }
    agent.state = State::Ended(end);
    agent.result = Some(result);
    true
}

#[cfg(test)]
#[path = "fold_tests.rs"]
mod tests;
