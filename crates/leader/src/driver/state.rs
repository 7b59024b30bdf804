//! The driver's task: takes what happens, asks the supervisor, carries out what it says.

use std::collections::{BTreeSet, VecDeque};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use confine::cgroup::sweep_delegated;
use confine::signal::Signal;
use protocol::ids::{AgentId, TaskId};
use protocol::secret::Mask;
use protocol::status::StopReason;
use tokio::sync::{mpsc, watch};

use crate::core::input::{Caller, StopHow};
use crate::core::record::Durability;
use crate::core::{Effect, Input, Supervisor};
use crate::driver::agents::Agents;
use crate::driver::asked::Asked;
use crate::driver::creating::Creating;
use crate::driver::effects::{EffectQueue, is_urgent};
use crate::driver::event_log::EventLog;
use crate::driver::plan::Ground;
use crate::driver::request::{Reply, Request};
use crate::driver::tickets::Tickets;
use crate::driver::watchdog::Watchdog;
use crate::driver::work::{Work, Workshop};
use crate::os::clock::Clock;
use crate::os::process::ChildMessage;
use crate::os::programs::Programs;

/// Everybody who calls through a handle of this conversation is one caller: whoever it is, its
/// agents' ends have been told when one of its calls was answered with them.
pub(super) const CALLER: Caller = Caller(0);
/// Events of children that wait for the driver.
pub(super) const CHILD_EVENTS_MAX: usize = 1_024;

/// What this leader knows and nobody is to read.
#[derive(Clone)]
pub(super) struct Secrets {
    /// Takes them out of texts.
    pub(super) mask: Mask,
    /// For workers, which mask what they write themselves.
    pub(super) values: Vec<String>,
}

impl std::fmt::Debug for Secrets {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Secrets").field(&self.mask).finish()
    }
}

/// How the end of the conversation stands.
#[derive(Debug, Default)]
pub(super) struct Ending {
    /// Who waits for all agents to end.
    pub(super) waiting: Vec<Reply<()>>,
    /// No agent is left, and none will come.
    pub(super) all_ended: bool,
    /// The driver itself is to end.
    pub(super) close: bool,
}

/// The one owner of a conversation's agents.
#[derive(Debug)]
pub(super) struct State {
    pub(super) ground: Arc<Ground>,
    pub(super) programs: Programs,
    pub(super) asked: Asked,
    pub(super) hidden_variables: Vec<String>,
    /// What is to show as empty to every agent.
    pub(super) secrets: Vec<PathBuf>,
    /// What the user alone decides by, and no agent writes.
    pub(super) own_places: Vec<PathBuf>,
    /// What stands in no text.
    pub(super) known: Secrets,
    pub(super) keep_fd: Option<i32>,
    pub(super) reserved_numbers: BTreeSet<AgentId>,
    pub(super) clock: Clock,
    pub(super) core: Supervisor,
    pub(super) log: EventLog,
    pub(super) agents: Agents,
    pub(super) tickets: Tickets,
    pub(super) creating: Creating,
    pub(super) queue: EffectQueue,
    pub(super) ending: Ending,
    pub(super) workshop: Workshop,
    pub(super) watchdog: Watchdog,
    pub(super) child_events: mpsc::Sender<ChildMessage>,
    /// Inputs that came of carrying out effects.
    pub(super) inputs: VecDeque<Input>,
}

/// Where the driver's events come from.
#[derive(Debug)]
pub(super) struct Sources {
    pub(super) requests: mpsc::Receiver<Request>,
    pub(super) children: mpsc::Receiver<ChildMessage>,
    pub(super) outcomes: mpsc::Receiver<Work>,
}

impl State {
    /// Runs until it is told to close, or every handle is gone.
    pub(super) async fn run(mut self, mut sources: Sources, closed: watch::Sender<bool>) {
        let mut handles_left = true;
        while !self.is_over() {
            let timer = match self.core.next_timer() {
                // While the clock stands still nothing comes due.
                Some(due_ms) if !self.clock.stands_still() => Some(self.clock.instant_of(due_ms)),
                Some(_) | None => None,
            };
            tokio::select! {
                request = sources.requests.recv(), if handles_left => match request {
                    Some(request) => self.request(request),
                    None => {
                        // Nobody is left who could ask for an end.
                        handles_left = false;
                        self.ending.close = true;
                        self.stop_all(StopReason::LeaderStopped, StopHow::Now);
                    }
                },
                Some(message) = sources.children.recv() => self.child(message),
                Some(work) = sources.outcomes.recv() => self.work(work).await,
                () = self.log.progress(), if self.log.is_waiting() => {}
                () = due(timer) => self.inputs.push_back(Input::TimerDue),
            }
            self.settle().await;
            if self.log.has_just_failed() {
                // What happens from here on would be forgotten in a crash, so nothing more is to
                // happen: what the agents have done so far is kept in their own files.
                self.stop_all(StopReason::LeaderStopped, StopHow::Graceful);
                self.settle().await;
            }
        }
        if let Some(delegated) = self.asked.cgroup.clone() {
            // What a jail that was killed could not remove itself. A failed thread leaves it to
            // the next leader's jails.
            drop(tokio::task::spawn_blocking(move || sweep_delegated(&delegated)).await);
        }
        self.log.close().await;
        // Whoever waits for the end looks at the value or finds the sender gone.
        closed.send_replace(true);
    }

    fn is_over(&self) -> bool {
        self.ending.close && self.ending.all_ended && self.queue.is_empty()
    }

    /// Hands inputs to the supervisor and carries effects out until both have come to rest.
    pub(super) async fn settle(&mut self) {
        loop {
            if let Some(input) = self.inputs.pop_front() {
                self.take(input).await;
                continue;
            }
            let batch = self.queue.next_batch();
            match (self.queue.next(self.log.durable()), batch) {
                (Some(effect), Some(batch)) => self.carry_out(effect, batch),
                (Some(_) | None, _) => break,
            }
        }
        if self.ending.all_ended && self.queue.is_empty() {
            for reply in self.ending.waiting.drain(..) {
                // Whoever does not wait any more need not be told.
                reply.send(()).ok();
            }
        }
    }

    /// Gives the supervisor one input. What stops or kills is carried out at once; records go to
    /// the log in their order, and what must wait for them goes into the queue.
    async fn take(&mut self, input: Input) {
        let effects = self.core.handle(self.clock.now_ms(), input);
        let batch = self.queue.new_batch();
        let (urgent, others): (Vec<_>, Vec<_>) = effects.into_iter().partition(is_urgent);
        for effect in urgent {
            self.urgent(effect);
        }
        let mut after = 0;
        for effect in others {
            match effect {
                Effect::Log(record) => {
                    let durability = record.durability();
                    let ordinal = self.log.append(record).await;
                    if durability == Durability::Synced {
                        after = ordinal;
                    }
                }
                effect => self.queue.add(batch, after, effect),
            }
        }
    }

    /// Carries out what stops or kills.
    fn urgent(&mut self, effect: Effect) {
        match effect {
            Effect::SendStop {
                agent,
                reason,
                grace_ms,
            } => self.send_stop(&agent, reason, grace_ms),
            Effect::SendDeadline {
                agent,
                remaining_ms,
                paused,
            } => self.send_deadline(&agent, remaining_ms, paused),
            Effect::Term { agent } => self.term(&agent),
            Effect::PauseTree { agent } => self.signal(&agent, Signal::SIGTSTP),
            Effect::ContinueTree { agent } => self.signal(&agent, Signal::SIGCONT),
            Effect::Kill { agent } => self.kill(&agent),
            Effect::Inspect { agent } => self.inspect(agent),
            Effect::Ignored { agent, what } => {
                tracing::debug!(%agent, ?what, "an event did not fit the agent's state");
            }
            Effect::Log(_)
            | Effect::Spawn { .. }
            | Effect::GoOn { .. }
            | Effect::Conclude { .. }
            | Effect::ReleaseClaim { .. }
            | Effect::Answer { .. }
            | Effect::Notice(_)
            | Effect::DropNotice { .. }
            | Effect::AllEnded => {}
        }
    }

    /// Carries out what has waited its turn.
    fn carry_out(&mut self, effect: Effect, batch: u64) {
        match effect {
            Effect::Spawn { agent } => self.prepare(&agent),
            Effect::Conclude {
                agent,
                status,
                stop_reason,
                summary,
            } => self.conclude(agent, batch, (status, stop_reason, summary)),
            Effect::ReleaseClaim { agent } => self.release(&agent),
            Effect::Answer { ticket, answer } => self.tickets.answer(ticket, answer),
            // Notices are events: whoever subscribes finds the end in the log, for good.
            Effect::Notice(result) => self.inputs.push_back(Input::NoticeTaken {
                agent: result.task_id,
            }),
            Effect::AllEnded => self.ending.all_ended = true,
            // No tool of this version makes an agent wait, and a taken notice can't be dropped.
            Effect::GoOn { .. } | Effect::DropNotice { .. } => {}
            urgent @ (Effect::Log(_)
            | Effect::SendStop { .. }
            | Effect::SendDeadline { .. }
            | Effect::Term { .. }
            | Effect::PauseTree { .. }
            | Effect::ContinueTree { .. }
            | Effect::Kill { .. }
            | Effect::Inspect { .. }
            | Effect::Ignored { .. }) => self.urgent(urgent),
        }
    }

    fn release(&mut self, agent: &TaskId) {
        // A claim is let go of once: at a refusal, or as the last thing of an agent's end.
        drop(self.agents.remove(agent).and_then(|held| held.claim));
    }
}

/// Waits for the moment, or for ever when there is none: every event ends the wait then.
async fn due(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at.into()).await,
        None => std::future::pending().await,
    }
}
