//! Joins the rules of the core: takes each input to the agents it touches and says what is to be
//! done.
//!
//! The order of a list of effects is the order of their meaning: what a crash must not forget
//! stands in the log before what it allows is done.

mod calls;
mod guarded;
mod inputs;
mod life;
mod pause;
#[cfg(test)]
mod race_tests;
#[cfg(test)]
mod random_tests;
#[cfg(test)]
mod tests;
mod using;

use std::collections::BTreeSet;
use std::sync::Arc;

use protocol::config::RequiredRung;
use protocol::error::{ErrorCode, ToolError};
use protocol::ids::{AgentId, ConversationId, RoleId, TaskId};
use protocol::result::AgentStatus;
use protocol::status::{Language, Status, StopReason};
use protocol::tool::leader::AgentRef;

use crate::core::agent::Agent;
use crate::core::effect::Effect;
use crate::core::input::{CreateOrder, DirFacts, Input};
use crate::core::notices::Outbox;
use crate::core::roster::Roster;
use crate::core::rungs::Rungs;
use crate::core::scope::{self, Claims};
use crate::core::slots::{QUEUE_AGENTS_MAX, Slots};
use crate::core::waits::Waits;

/// Names of running agents that one error lists.
const RUNNING_SHOWN_MAX: usize = 10;

/// What happens to a create when all slots are in use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Admission {
    /// It is refused with `too_many_agents`.
    Reject,
    /// It waits its turn.
    Queue,
}

/// Sentences for people and models that depend on an agent's language.
pub trait AgentTexts: std::fmt::Debug + Send + Sync {
    /// One line on where an agent stands or how it ended: `子智能体1 已完成任务`.
    fn result_message(&self, language: Language, status: Status, display_name: &str) -> String;

    /// The warning of a success report that comes with an empty deliverables dir.
    fn empty_deliverables(&self, language: Language, deliverables_dir: &str) -> String;
}

/// What a conversation's supervisor is made with; out-of-range values are the configuration's to
/// refuse.
#[derive(Debug, Clone)]
pub struct SupervisorConfig {
    /// Which conversation.
    pub conversation: ConversationId,
    /// Agents that may use a model at once.
    pub max_concurrent: usize,
    /// Live processes, busy or not.
    pub max_live: usize,
    /// What happens at the cap.
    pub admission: Admission,
    /// From spawn to `initialize`.
    pub start_timeout_ms: u64,
    /// In the queue.
    pub queue_timeout_ms: u64,
    /// Waiting for an answer.
    pub answer_timeout_ms: u64,
    /// The rung that was found at the start; none when nobody could tell.
    pub rung: Option<RequiredRung>,
    /// Who says it in the agent's language.
    pub texts: Arc<dyn AgentTexts>,
}

/// The supervisor of one conversation.
#[derive(Debug)]
pub struct Supervisor {
    config: SupervisorConfig,
    roster: Roster,
    slots: Slots,
    claims: Claims,
    waits: Waits,
    outbox: Outbox,
    rungs: Rungs,
    timers: BTreeSet<(u64, usize)>,
    /// Agents that have not ended.
    active: BTreeSet<usize>,
    closing: Option<Closing>,
    /// Whether all trees stand still with the leader.
    paused: bool,
}

/// How far the end of a conversation is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Closing {
    reason: StopReason,
    ended: bool,
}

impl Supervisor {
    /// A supervisor without agents.
    pub fn new(config: SupervisorConfig) -> Self {
        Supervisor {
            rungs: Rungs::new(config.rung),
            config,
            roster: Roster::default(),
            slots: Slots::default(),
            claims: Claims::default(),
            waits: Waits::default(),
            outbox: Outbox::default(),
            timers: BTreeSet::new(),
            active: BTreeSet::new(),
            closing: None,
            paused: false,
        }
    }

    /// Takes one input at a monotonic time and says what is to be done, in this order.
    pub fn handle(&mut self, now_ms: u64, input: Input) -> Vec<Effect> {
        let mut effects = Vec::new();
        self.take(now_ms, input, &mut effects);
        effects
    }

    /// When [`Input::TimerDue`] is wanted next; none when no timer runs.
    pub fn next_timer(&self) -> Option<u64> {
        let agents = self.timers.first().map(|(due_ms, _)| *due_ms);
        let waits = self.waits.next_due_ms();
        match (agents, waits) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        }
    }

    /// What it was made with.
    pub fn config(&self) -> &SupervisorConfig {
        &self.config
    }

    /// Whom a reference means.
    ///
    /// # Errors
    /// `unknown_agent` or `ambiguous_agent_id`.
    pub fn find(&self, wanted: &AgentRef) -> Result<&Agent, ToolError> {
        self.roster.find(wanted).map(|index| self.roster.get(index))
    }

    /// The agent of a run.
    pub fn agent(&self, task: &TaskId) -> Option<&Agent> {
        self.roster
            .index_of(task)
            .map(|index| self.roster.get(index))
    }

    /// All agents in the order of their creation, ended ones included.
    pub fn agents(&self) -> &[Agent] {
        self.roster.agents()
    }

    /// Agents that have not ended, in the order of their creation.
    pub fn active(&self) -> impl Iterator<Item = &Agent> + '_ {
        self.active.iter().map(|index| self.roster.get(*index))
    }

    /// An agent's line in a status answer.
    pub fn status(&self, now_ms: u64, agent: &Agent) -> AgentStatus {
        let position = self
            .roster
            .index_of(&agent.job.task_id)
            .and_then(|index| self.slots.position(index));
        agent.status(now_ms, position)
    }

    /// Slots in use, of [`SupervisorConfig::max_concurrent`].
    pub fn slots_used(&self) -> usize {
        self.slots.used()
    }

    /// The lowest number of a role, up to `number_max`, that was never taken and whose default
    /// deliverables dir `is_free` accepts. It is taken only by the create that follows.
    ///
    /// # Errors
    /// When no number is left.
    pub fn next_number(
        &self,
        role: Option<&RoleId>,
        number_max: u32,
        is_free: impl FnMut(AgentId) -> bool,
    ) -> Result<AgentId, ToolError> {
        self.roster.next_number(role, number_max, is_free)
    }

    /// Why a create would be refused now; none when it would be accepted. The driver may ask
    /// before it takes a claim; the create itself is checked again.
    pub fn refusal(&self, order: &CreateOrder) -> Option<ToolError> {
        self.check(order).err()
    }

    fn check(&self, order: &CreateOrder) -> Result<(), ToolError> {
        let job = &order.job;
        if self.closing.is_some() {
            return Err(ToolError::new(
                ErrorCode::ShuttingDown,
                "no agent can be created: this conversation is being closed",
            ));
        }
        if self.roster.index_of(&job.task_id).is_some() {
            return Err(ToolError::new(
                ErrorCode::Internal,
                format!("task_id {} exists already", job.task_id),
            ));
        }
        self.roster
            .check_number(job.role_id.as_ref(), job.agent_id)?;
        if let Some(conflict) = self
            .claims
            .conflict(&order.deliverables, &order.write_paths)
        {
            let holder = &self.roster.get(conflict.holder).job.display_name;
            return Err(scope::overlap_error(&conflict, holder, &job.workspace));
        }
        if order.deliverables_facts == DirFacts::NotEmpty {
            return Err(ToolError::new(
                ErrorCode::DeliverablesDirNotEmpty,
                format!(
                    "deliverables_dir `{}` exists and is not empty",
                    job.deliverables_dir.display()
                ),
            )
            .hint(
                "choose another, or add to what is there with `reuse_deliverables_dir: true` (on the \
                 command line `--reuse-deliverables-dir`)",
            ));
        }
        self.check_room()
    }

    fn check_room(&self) -> Result<(), ToolError> {
        let config = &self.config;
        if self.slots.has_room(config.max_concurrent, config.max_live) {
            return Ok(());
        }
        match config.admission {
            Admission::Queue if self.slots.queued() < QUEUE_AGENTS_MAX => Ok(()),
            Admission::Queue => Err(ToolError::new(
                ErrorCode::TooManyAgents,
                format!("the queue is full: {QUEUE_AGENTS_MAX} agents wait for a slot"),
            )),
            Admission::Reject => Err(self.too_many()),
        }
    }

    fn too_many(&self) -> ToolError {
        let config = &self.config;
        let by_slots = self.slots.used() >= config.max_concurrent;
        let counted: Vec<&Agent> = self
            .active()
            .filter(|agent| {
                if by_slots {
                    agent.state.holds_slot()
                } else {
                    agent.state.holds_process()
                }
            })
            .collect();
        let mut names: Vec<String> = counted
            .iter()
            .take(RUNNING_SHOWN_MAX)
            .map(|agent| {
                let job = &agent.job;
                format!("{} ({})", job.display_name, job.summary)
            })
            .collect();
        if counted.len() > names.len() {
            names.push(format!("{} more", counted.len() - names.len()));
        }
        let what = if by_slots {
            format!("at most {} agents run at once", config.max_concurrent)
        } else {
            format!("at most {} agents are live at once", config.max_live)
        };
        ToolError::new(
            ErrorCode::TooManyAgents,
            format!("{what}, and {} do: {}", counted.len(), names.join(", ")),
        )
        .hint("wait for one with wait_sub_agents, or end one with terminate_sub_agent")
    }
}
