//! Who there is in a conversation: numbers that were ever taken, and how agents are found.

use std::collections::{BTreeSet, HashMap};

use protocol::error::{ErrorCode, ToolError};
use protocol::ids::{AgentId, RoleId, TaskId};
use protocol::tool::leader::AgentRef;

use crate::core::agent::Agent;

/// The numbers of one role that were ever given.
#[derive(Debug, Clone, Default)]
struct Numbers {
    taken: BTreeSet<AgentId>,
    /// Every number up to this one is taken.
    full_up_to: u32,
}

impl Numbers {
    fn take(&mut self, number: AgentId) {
        self.taken.insert(number);
        while AgentId::new(self.full_up_to.saturating_add(1))
            .is_ok_and(|next| self.taken.contains(&next))
        {
            self.full_up_to += 1;
        }
    }
}

/// All agents of a conversation in the order of their creation, ended ones included.
#[derive(Debug, Default)]
pub struct Roster {
    agents: Vec<Agent>,
    numbers: HashMap<Option<RoleId>, Numbers>,
    by_task: HashMap<TaskId, usize>,
    by_number: HashMap<AgentId, Vec<usize>>,
    by_name: HashMap<String, Vec<usize>>,
}

impl Roster {
    /// Adds an agent and gives its index.
    pub fn add(&mut self, agent: Agent) -> usize {
        let index = self.agents.len();
        let job = &agent.job;
        self.numbers
            .entry(job.role_id.clone())
            .or_default()
            .take(job.agent_id);
        self.by_task.insert(job.task_id.clone(), index);
        self.by_number.entry(job.agent_id).or_default().push(index);
        self.by_name
            .entry(job.display_name.clone())
            .or_default()
            .push(index);
        self.agents.push(agent);
        index
    }

    /// All agents, in the order of their creation.
    pub fn agents(&self) -> &[Agent] {
        &self.agents
    }

    /// The agent of an index that [`Roster::add`] or a search gave.
    pub fn get(&self, index: usize) -> &Agent {
        &self.agents[index]
    }

    /// The same, to change it.
    pub fn get_mut(&mut self, index: usize) -> &mut Agent {
        &mut self.agents[index]
    }

    /// The index of a run.
    pub fn index_of(&self, task: &TaskId) -> Option<usize> {
        self.by_task.get(task).copied()
    }

    /// The lowest number of a role that was never taken and that `is_free` accepts.
    ///
    /// # Errors
    /// When no number up to `number_max` is left.
    pub fn next_number(
        &self,
        role: Option<&RoleId>,
        number_max: u32,
        mut is_free: impl FnMut(AgentId) -> bool,
    ) -> Result<AgentId, ToolError> {
        let none = Numbers::default();
        let numbers = self.numbers.get(&role.cloned()).unwrap_or(&none);
        (numbers.full_up_to.saturating_add(1)..=number_max)
            .filter_map(|number| AgentId::new(number).ok())
            .find(|number| !numbers.taken.contains(number) && is_free(*number))
            .ok_or_else(|| spent(number_max))
    }

    /// Refuses a number that was ever taken in this conversation and role.
    ///
    /// # Errors
    /// When it was.
    pub fn check_number(&self, role: Option<&RoleId>, number: AgentId) -> Result<(), ToolError> {
        let taken = self
            .numbers
            .get(&role.cloned())
            .is_some_and(|numbers| numbers.taken.contains(&number));
        if !taken {
            return Ok(());
        }
        let of_role = role.map_or(String::new(), |role| format!(" of role `{role}`"));
        let holder = self
            .by_number
            .get(&number)
            .into_iter()
            .flatten()
            .map(|index| self.get(*index))
            .find(|agent| agent.job.role_id.as_ref() == role);
        let who = holder.map_or(String::new(), |agent| {
            format!(
                ": it is {}, {}",
                agent.job.display_name,
                agent.state.status()
            )
        });
        Err(ToolError::new(
            ErrorCode::AgentIdTaken,
            format!("agent_id {number}{of_role} was used before in this conversation{who}"),
        )
        .hint("leave `agent_id` out to get the next free number; a number is never used again"))
    }

    /// Whom a reference means.
    ///
    /// # Errors
    /// `unknown_agent` when it fits nobody, `ambiguous_agent_id` naming all that it fits.
    pub fn find(&self, wanted: &AgentRef) -> Result<usize, ToolError> {
        let found: Vec<usize> = match wanted {
            AgentRef::Number { agent_id, role_id } => self
                .by_number
                .get(agent_id)
                .into_iter()
                .flatten()
                .copied()
                .filter(|index| role_id.is_none() || self.get(*index).job.role_id == *role_id)
                .collect(),
            AgentRef::Name(name) => match TaskId::new(name.as_str()) {
                Ok(task) => self.index_of(&task).into_iter().collect(),
                Err(_) => self.by_name.get(name).cloned().unwrap_or_default(),
            },
        };
        match found.as_slice() {
            [index] => Ok(*index),
            [] => Err(self.unknown(wanted)),
            several => Err(self.ambiguous(wanted, several)),
        }
    }

    fn unknown(&self, wanted: &AgentRef) -> ToolError {
        let known: Vec<&str> = self
            .agents
            .iter()
            .rev()
            .take(NAMES_SHOWN_MAX)
            .map(|agent| agent.job.display_name.as_str())
            .collect();
        let hint = if known.is_empty() {
            "no agent has been created in this conversation yet".to_owned()
        } else {
            format!("the latest of this conversation: {}", known.join(", "))
        };
        ToolError::new(
            ErrorCode::UnknownAgent,
            format!("no agent {}", show(wanted)),
        )
        .hint(hint)
    }

    fn ambiguous(&self, wanted: &AgentRef, found: &[usize]) -> ToolError {
        let names: Vec<String> = found
            .iter()
            .take(NAMES_SHOWN_MAX)
            .map(|index| {
                let job = &self.get(*index).job;
                let role = job.role_id.as_ref().map_or("none", RoleId::as_str);
                format!(
                    "{} (role_id {role}, task_id {})",
                    job.display_name, job.task_id
                )
            })
            .collect();
        ToolError::new(
            ErrorCode::AmbiguousAgentId,
            format!(
                "agent {} fits {} agents: {}",
                show(wanted),
                found.len(),
                names.join(", ")
            ),
        )
        .hint("say `role_id` too, or name one by its task_id in `agent`")
    }
}

/// Names of agents that one error lists.
const NAMES_SHOWN_MAX: usize = 10;

fn show(wanted: &AgentRef) -> String {
    match wanted {
        AgentRef::Number {
            agent_id,
            role_id: Some(role),
        } => format!("{agent_id} of role `{role}`"),
        AgentRef::Number {
            agent_id,
            role_id: None,
        } => agent_id.to_string(),
        AgentRef::Name(name) => {
            format!("`{}`", &name[..protocol::result::floor_border(name, 100)])
        }
    }
}

fn spent(number_max: u32) -> ToolError {
    ToolError::new(
        ErrorCode::AgentIdsSpent,
        format!(
            "no agent number from 1 to {number_max} is left: each was used in this conversation, \
             or its default deliverables dir holds something"
        ),
    )
    .hint(
        "start a new conversation with `/new`; where old results are in the way, move \
         `sub_agent_results` aside or pass `deliverables_dir`",
    )
}
