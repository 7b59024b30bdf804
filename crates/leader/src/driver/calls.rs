//! What a request through the handle becomes.

use std::sync::Arc;

use protocol::error::{ErrorCode, ToolError};
use protocol::ids::AgentId;
use protocol::limits;
use protocol::result::AgentStatus;
use protocol::status::StopReason;
use protocol::tool::leader::{AgentRef, person_agent_id, tool_agent_id};
use serde_json::{Value, json};

use crate::core::agent::Agent;
use crate::core::input::StopHow;
use crate::core::{Answer, Input, Ticket};
use crate::driver::creating::{Wanted, default_is_free, look_into_again, look_into_one_of};
use crate::driver::plan;
use crate::driver::request::{AgentPlace, CreateOrderRequest, Origin, Request, StopMode};
use crate::driver::state::{CALLER, State};
use crate::driver::tickets::Call;
use crate::driver::work::{Planned, Work};
use crate::os::trees;

/// Numbers that one create tries when other leaders of the workspace take their directories away.
const NUMBERS_TRIED_MAX: usize = 16;

impl State {
    pub(super) fn request(&mut self, request: Request) {
        match request {
            Request::Create { order, reply } => {
                let ticket = self.tickets.issue();
                let answer = self.workshop.watch(ticket, reply);
                let origin = order.origin;
                self.tickets.keep(ticket, Call::Create { origin, answer });
                self.creating.add(ticket, Wanted::New(order));
                self.look_into_next();
            }
            Request::Resume { order, reply } => {
                let ticket = self.tickets.issue();
                let answer = self.workshop.watch(ticket, reply);
                let origin = Origin::Person;
                self.tickets.keep(ticket, Call::Create { origin, answer });
                self.creating.add(ticket, Wanted::Again(order));
                self.look_into_next();
            }
            Request::Terminate {
                agent,
                mode,
                origin,
                reply,
            } => {
                let ticket = self.tickets.issue();
                let answer = self.workshop.watch(ticket, reply);
                self.tickets.keep(ticket, Call::Other { origin, answer });
                self.inputs.push_back(Input::Terminate {
                    ticket,
                    caller: CALLER,
                    agent,
                    how: how(mode),
                });
            }
            Request::Wait { wait, reply } => {
                let ticket = self.tickets.issue();
                let answer = self.workshop.watch(ticket, reply);
                let origin = wait.origin;
                self.tickets.keep(ticket, Call::Other { origin, answer });
                self.inputs.push_back(Input::Wait {
                    ticket,
                    caller: CALLER,
                    agents: wait.agents,
                    mode: wait.mode,
                    timeout_ms: wait.timeout_ms,
                });
            }
            Request::Status { agents, reply } => drop(reply.send(self.statuses(&agents))),
            Request::ListActive { reply } => drop(reply.send(self.list_active())),
            Request::Ps { reply } => drop(reply.send(self.ps())),
            Request::Locate { agent, reply } => drop(reply.send(self.locate(&agent))),
            Request::Subscribe { after_seq, reply } => {
                drop(reply.send(self.log.subscribe(after_seq)));
            }
            Request::StopAll {
                reason,
                mode,
                reply,
            } => {
                self.ending.waiting.push(reply);
                self.stop_all(reason, how(mode));
            }
            Request::Pause { reply } => {
                self.clock.stand_still();
                self.inputs.push_back(Input::Pause);
                let jails = self.agents.jail_pids();
                tokio::spawn(async move {
                    trees::until_still(&jails).await;
                    // Whoever does not wait any more need not be told.
                    reply.send(()).ok();
                });
            }
            Request::Continue { reply } => {
                self.clock.go_on();
                self.inputs.push_back(Input::Continue);
                reply.send(()).ok();
            }
            Request::Close => self.ending.close = true,
        }
    }

    pub(super) fn stop_all(&mut self, reason: StopReason, how: StopHow) {
        self.inputs.push_back(Input::StopAll { reason, how });
    }

    /// Takes up the next create, unless one is being looked into.
    pub(super) fn look_into_next(&mut self) {
        while let Some((ticket, wanted)) = self.creating.next() {
            let looked = match wanted {
                Wanted::New(order) => self.look_into_new(ticket, order),
                Wanted::Again(order) => self.log_is_whole().map(|()| {
                    let ground = Arc::clone(&self.ground);
                    self.look_beside(ticket, move || look_into_again(&ground, &order));
                }),
            };
            match looked {
                Ok(()) => return,
                Err(error) => {
                    self.creating.done();
                    self.refuse(ticket, error);
                }
            }
        }
    }

    fn look_into_new(
        &self,
        ticket: Ticket,
        order: Box<CreateOrderRequest>,
    ) -> Result<(), ToolError> {
        let numbers = self.numbers(&order)?;
        let ground = Arc::clone(&self.ground);
        self.look_beside(ticket, move || look_into_one_of(&ground, &order, &numbers));
        Ok(())
    }

    /// Looks where it may block; the outcome comes back as work.
    fn look_beside(
        &self,
        ticket: Ticket,
        look: impl FnOnce() -> Result<Planned, ToolError> + Send + 'static,
    ) {
        let planned = move |outcome| Work::Planned { ticket, outcome };
        self.workshop.start(
            move |error| planned(Err(error)),
            move || planned(look().map(Box::new)),
        );
    }

    /// Whether what becomes of a new agent could be written down.
    fn log_is_whole(&self) -> Result<(), ToolError> {
        match self.log.failure() {
            None => Ok(()),
            Some(why) => Err(ToolError::new(
                ErrorCode::Io,
                format!("no agent can be created: the event log can't be written: {why}"),
            )
            .hint("make room on the disk and start the leader again")),
        }
    }

    pub(super) fn refuse(&mut self, ticket: Ticket, error: ToolError) {
        self.tickets.answer(ticket, Answer::Refused(error));
    }

    /// Checks what needs no look at the disk, and finds the agent's number: the one that is wanted,
    /// or the first free ones, for another leader of the workspace may be about to use the default
    /// deliverables dir of the first.
    fn numbers(&self, order: &CreateOrderRequest) -> Result<Vec<AgentId>, ToolError> {
        self.log_is_whole()?;
        plan::check(order, &self.ground.settings, &self.ground.environment)?;
        let most = self.ground.settings.limits.max_total_per_run;
        if let Some(most) = most
            && self.core.agents().len() >= most as usize
        {
            return Err(ToolError::new(
                ErrorCode::TooManyAgents,
                format!("this conversation has created its {most} agents (max_total_per_run)"),
            )
            .hint("raise limits.max_total_per_run, or begin a new conversation"));
        }
        if let Some(number) = order.params.agent_id {
            return Ok(vec![match order.origin {
                Origin::Person => person_agent_id(number)?,
                Origin::Tool => tool_agent_id(number)?,
            }]);
        }
        let number_max = match order.origin {
            Origin::Person => limits::PERSON_AGENT_ID_MAX,
            Origin::Tool => AgentId::TOOL_MAX,
        };
        let is_unreserved = |agent_id| !self.reserved_numbers.contains(&agent_id);
        if order.params.deliverables_dir.is_some() {
            return Ok(vec![self.core.next_number(
                None,
                number_max,
                is_unreserved,
            )?]);
        }
        let workspace = &self.ground.workspace;
        let free_after = |after: Option<AgentId>| {
            self.core.next_number(None, number_max, |agent_id| {
                Some(agent_id) > after
                    && is_unreserved(agent_id)
                    && default_is_free(workspace, agent_id)
            })
        };
        let mut numbers = vec![free_after(None)?];
        while numbers.len() < NUMBERS_TRIED_MAX
            && let Ok(next) = free_after(numbers.last().copied())
        {
            numbers.push(next);
        }
        Ok(numbers)
    }

    fn statuses(&self, agents: &[AgentRef]) -> Value {
        let entries: Vec<Value> = agents
            .iter()
            .map(|agent| self.status_entry(agent))
            .collect();
        json!({"success": true, "agents": entries})
    }

    fn status_entry(&self, wanted: &AgentRef) -> Value {
        match self.core.find(wanted) {
            Ok(agent) => json!(self.status_of(agent)),
            Err(error) => {
                let mut entry = match wanted {
                    AgentRef::Number { agent_id, role_id } => {
                        json!({"agent_id": agent_id, "role_id": role_id})
                    }
                    AgentRef::Name(name) => json!({"agent": name}),
                };
                entry["found"] = json!(false);
                entry["error"] = json!(error);
                entry
            }
        }
    }

    fn status_of(&self, agent: &Agent) -> AgentStatus {
        self.core.status(self.clock.now_ms(), agent)
    }

    fn list_active(&self) -> Value {
        let agents: Vec<Value> = self
            .core
            .active()
            .map(|agent| {
                json!({
                    "agent_id": agent.job.agent_id,
                    "role_id": agent.job.role_id,
                    "display_name": agent.job.display_name,
                    "status": agent.state.status(),
                    "summary": agent.job.summary,
                })
            })
            .collect();
        json!({"success": true, "agents": agents})
    }

    fn ps(&self) -> Value {
        let agents: Vec<AgentStatus> = self
            .core
            .agents()
            .iter()
            .map(|agent| self.status_of(agent))
            .collect();
        json!({
            "success": true,
            "conversation": self.ground.conversation,
            "agents": agents,
        })
    }

    fn locate(&self, agent: &AgentRef) -> Result<AgentPlace, ToolError> {
        self.core.find(agent).map(|agent| AgentPlace {
            task_id: agent.job.task_id.clone(),
            deliverables_dir: agent.job.deliverables_dir.clone(),
        })
    }
}

fn how(mode: StopMode) -> StopHow {
    match mode {
        StopMode::Graceful => StopHow::Graceful,
        StopMode::Force => StopHow::Now,
    }
}
