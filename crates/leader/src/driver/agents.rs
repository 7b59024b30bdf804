//! What the driver holds for each agent that has not ended: its plan, its claim, its directories
//! and its child.

use std::collections::HashMap;

use protocol::ids::TaskId;

use crate::core::usage::Space;
use crate::driver::plan::Plan;
use crate::os::process::ChildHandle;
use crate::store::agent_dir::AgentDir;
use crate::store::claims::Claim;

/// How far an agent's worker is on its channel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Talk {
    /// It has not said `initialize`.
    Silent,
    /// It has.
    Speaking,
}

/// One agent's things.
#[derive(Debug)]
pub(super) struct Held {
    /// What it is (to be) started with.
    pub(super) plan: Plan,
    /// Its claim; let go of at its end.
    pub(super) claim: Option<Claim>,
    /// Its directories, once made; lent to whoever reads or writes them.
    pub(super) dir: Option<AgentDir>,
    /// What lay where it writes before it began; none where that is not watched.
    pub(super) space_at_start: Option<Space>,
    /// Its process, once there is one.
    pub(super) child: Option<ChildHandle>,
    /// How far its worker is.
    pub(super) talk: Talk,
    /// The processes that a look at what is left has to look at.
    pub(super) pids: Vec<u32>,
}

/// The things of all agents, by run.
#[derive(Debug, Default)]
pub(super) struct Agents {
    held: HashMap<TaskId, Held>,
}

impl Agents {
    pub(super) fn add(&mut self, plan: Plan, claim: Claim) {
        let held = Held {
            claim: Some(claim),
            dir: None,
            space_at_start: None,
            child: None,
            talk: Talk::Silent,
            pids: Vec::new(),
            plan,
        };
        self.held.insert(held.plan.job.task_id.clone(), held);
    }

    pub(super) fn get(&mut self, agent: &TaskId) -> Option<&mut Held> {
        self.held.get_mut(agent)
    }

    pub(super) fn plan(&self, agent: &TaskId) -> Option<&Plan> {
        self.held.get(agent).map(|held| &held.plan)
    }

    pub(super) fn child(&self, agent: &TaskId) -> Option<&ChildHandle> {
        self.held.get(agent).and_then(|held| held.child.as_ref())
    }

    /// The jails of all live trees, for looks at their state.
    pub(super) fn jail_pids(&self) -> Vec<u32> {
        let children = self.held.values().filter_map(|held| held.child.as_ref());
        children.map(ChildHandle::pid).collect()
    }

    pub(super) fn remove(&mut self, agent: &TaskId) -> Option<Held> {
        self.held.remove(agent)
    }
}
