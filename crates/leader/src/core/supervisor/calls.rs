//! The calls that create, end and wait for agents, and how they are answered.

use std::collections::BTreeMap;
use std::sync::Arc;

use protocol::error::{ErrorCode, ToolError};
use protocol::result::WaitResult;
use protocol::tool::leader::{AgentRef, WaitMode};

use crate::core::agent::Agent;
use crate::core::effect::{Answer, Effect};
use crate::core::ends;
use crate::core::input::{Caller, CreateOrder, Mode, StopHow, Ticket};
use crate::core::lifecycle::{Event, PendingStop, State, StopCause};
use crate::core::notices::Told;
use crate::core::record::Record;
use crate::core::result;
use crate::core::supervisor::Supervisor;
use crate::core::supervisor::inputs::log;
use crate::core::supervisor::life::Occasion;
use crate::core::waits::{Call, is_over};

impl Supervisor {
    pub(super) fn create(
        &mut self,
        now_ms: u64,
        ticket: Ticket,
        caller: Caller,
        mut order: CreateOrder,
        effects: &mut Vec<Effect>,
    ) {
        if let Err(error) = self.check(&order) {
            let agent = order.job.task_id;
            effects.push(Effect::ReleaseClaim { agent });
            effects.push(answer(ticket, Answer::Refused(error)));
            return;
        }
        let mode = order.mode;
        let text = std::mem::take(&mut order.task);
        let index = self.roster.add(Agent::new(order, caller, now_ms));
        let agent = self.roster.get(index);
        self.claims
            .take(index, &agent.deliverables, &agent.write_paths);
        self.active.insert(index);
        effects.push(log(Record::Created {
            agent: agent.tag(),
            job: Box::new(agent.job.clone()),
            task: text,
            deliverables: agent.deliverables.clone(),
            write_paths: agent.write_paths.clone(),
        }));
        if mode == Mode::Blocking {
            self.waits
                .keep(ticket, caller, Call::Create { agent: index });
        }
        self.slots.enqueue(index);
        self.advance(now_ms, index, Event::Enqueued, Occasion::default(), effects);
        self.fill_slots(now_ms, effects);
        let position = self.slots.position(index);
        let agent = self.roster.get(index);
        if let Some(position) = position {
            let agent = agent.tag();
            effects.push(log(Record::Queued { agent, position }));
        }
        if mode == Mode::Background {
            let agent = self.roster.get(index);
            let started = result::started(agent, position, self.config.texts.as_ref());
            effects.push(answer(ticket, Answer::Started(Box::new(started))));
        }
    }

    pub(super) fn terminate(
        &mut self,
        now_ms: u64,
        ticket: Ticket,
        caller: Caller,
        wanted: &AgentRef,
        how: StopHow,
        effects: &mut Vec<Effect>,
    ) {
        let index = match self.roster.find(wanted) {
            Ok(index) => index,
            Err(error) => {
                effects.push(answer(ticket, Answer::Refused(error)));
                return;
            }
        };
        let agent = self.roster.get_mut(index);
        match agent.state {
            State::Ended(end) => {
                let message = format!(
                    "{} has ended already: {}",
                    agent.job.display_name,
                    end.status()
                );
                let error = ToolError::new(ErrorCode::AlreadyEnded, message)
                    .hint("its result stands in get_sub_agent_status and in its deliverables dir");
                effects.push(answer(ticket, Answer::Refused(error)));
                return;
            }
            State::Stopping(stopping) if stopping.unkillable => {
                let name = &agent.job.display_name;
                let error = ends::unkillable_error(name, agent.survivors.as_ref());
                effects.push(answer(ticket, Answer::Refused(error)));
                return;
            }
            State::Created
            | State::Queued
            | State::Starting { .. }
            | State::Live(_)
            | State::Stopping(_) => {}
        }
        let now = how == StopHow::Now || agent.asked_to_end;
        agent.asked_to_end = true;
        self.waits
            .keep(ticket, caller, Call::Terminate { agent: index });
        let event = Event::StopRequested(PendingStop {
            cause: StopCause::Terminated,
            now,
        });
        self.advance(now_ms, index, event, Occasion::default(), effects);
    }

    pub(super) fn wait(
        &mut self,
        now_ms: u64,
        (ticket, caller): (Ticket, Caller),
        wanted: &[AgentRef],
        mode: WaitMode,
        due_ms: Option<u64>,
        effects: &mut Vec<Effect>,
    ) {
        let found: Result<Vec<usize>, ToolError> = if wanted.is_empty() {
            Ok(self.active.iter().copied().collect())
        } else {
            wanted
                .iter()
                .map(|wanted| self.roster.find(wanted))
                .collect()
        };
        let mut agents = match found {
            Ok(agents) => agents,
            Err(error) => {
                effects.push(answer(ticket, Answer::Refused(error)));
                return;
            }
        };
        // One named twice is waited for, and told, once.
        let mut seen = std::collections::BTreeSet::new();
        agents.retain(|index| seen.insert(*index));
        let agents: Arc<[usize]> = agents.into();
        let over = self.wait_is_over(mode, &agents, due_ms);
        if over || due_ms.is_some_and(|due_ms| due_ms <= now_ms) {
            self.answer_wait(now_ms, ticket, caller, &agents, !over, effects);
            return;
        }
        let call = Call::Wait {
            agents,
            mode,
            due_ms,
        };
        self.waits.keep(ticket, caller, call);
    }

    /// A wait with no time of its own would last for ever with an end that can't be brought about.
    fn wait_is_over(&self, mode: WaitMode, agents: &[usize], due_ms: Option<u64>) -> bool {
        is_over(
            mode,
            agents.iter().map(|index| {
                let agent = self.roster.get(*index);
                agent.is_settled() || due_ms.is_none() && agent.is_unkillable()
            }),
        )
    }

    pub(super) fn answer_wait(
        &mut self,
        now_ms: u64,
        ticket: Ticket,
        caller: Caller,
        agents: &[usize],
        timed_out: bool,
        effects: &mut Vec<Effect>,
    ) {
        let texts = self.config.texts.as_ref();
        let mut wait = WaitResult {
            success: true,
            timed_out,
            agents: Vec::new(),
            also_ended: BTreeMap::new(),
            running: Vec::new(),
            more_running: 0,
        };
        let mut told = Vec::new();
        for index in agents {
            let agent = self.roster.get(*index);
            match &agent.result {
                Some(result) => {
                    wait.agents.push(result.as_ref().clone());
                    told.push(*index);
                }
                None if agent.is_settled() => {
                    let status = agent.state.status();
                    wait.agents
                        .push(result::standing(agent, status, now_ms, texts));
                }
                None if agent.is_unkillable() => {
                    wait.agents.push(result::unkillable(agent, now_ms, texts));
                }
                None => wait.running.push(result::still_running(agent)),
            }
        }
        effects.push(answer(ticket, Answer::Waited(Box::new(wait))));
        for index in told {
            self.tell(index, caller, effects);
        }
    }

    /// Answers every call for which this agent, which has ended or become idle, was the last one
    /// missing.
    pub(super) fn answer_settled(&mut self, now_ms: u64, index: usize, effects: &mut Vec<Effect>) {
        for (ticket, caller, call) in self.waits.of_agent(index) {
            match call {
                Call::Create { .. } => {
                    let agent = self.roster.get(index);
                    let result = agent.result.clone().unwrap_or_else(|| {
                        let status = agent.state.status();
                        let texts = self.config.texts.as_ref();
                        Box::new(result::standing(agent, status, now_ms, texts))
                    });
                    self.waits.take(ticket);
                    effects.push(answer(ticket, Answer::Created(result)));
                    self.tell(index, caller, effects);
                }
                Call::Terminate { .. } => {
                    // An idle agent goes on; only an end answers a terminate.
                    let Some(result) = &self.roster.get(index).result else {
                        continue;
                    };
                    let terminated = Box::new(result::terminated(result));
                    self.waits.take(ticket);
                    effects.push(answer(ticket, Answer::Terminated(terminated)));
                    self.tell(index, caller, effects);
                }
                Call::Wait {
                    agents,
                    mode,
                    due_ms,
                } => {
                    if self.wait_is_over(mode, &agents, due_ms) {
                        self.waits.take(ticket);
                        self.answer_wait(now_ms, ticket, caller, &agents, false, effects);
                    }
                }
            }
        }
    }

    /// Answers the calls that would wait for an end that can't be brought about.
    pub(super) fn answer_unkillable(
        &mut self,
        now_ms: u64,
        index: usize,
        effects: &mut Vec<Effect>,
    ) {
        for (ticket, caller, call) in self.waits.of_agent(index) {
            let agent = self.roster.get(index);
            let survivors = agent.survivors.as_ref();
            let told = match call {
                Call::Create { .. } => {
                    let texts = self.config.texts.as_ref();
                    Answer::Created(Box::new(result::unkillable(agent, now_ms, texts)))
                }
                Call::Terminate { .. } => {
                    Answer::Refused(ends::unkillable_error(&agent.job.display_name, survivors))
                }
                Call::Wait {
                    agents,
                    mode,
                    due_ms,
                } => {
                    if self.wait_is_over(mode, &agents, due_ms) {
                        self.waits.take(ticket);
                        self.answer_wait(now_ms, ticket, caller, &agents, false, effects);
                    }
                    continue;
                }
            };
            self.waits.take(ticket);
            effects.push(answer(ticket, told));
        }
    }

    /// An answer has told of this agent's end, if it has ended: its owner needs no notice then.
    fn tell(&mut self, index: usize, caller: Caller, effects: &mut Vec<Effect>) {
        let agent = self.roster.get(index);
        if agent.owner != caller || agent.result.is_none() {
            return;
        }
        match self.outbox.told(index) {
            Told::First => {}
            Told::Overtakes => effects.push(Effect::DropNotice {
                agent: agent.job.task_id.clone(),
            }),
            Told::Again => return,
        }
        let agent = agent.tag();
        effects.push(log(Record::NoticeDone { agent }));
    }
}

pub(super) fn answer(ticket: Ticket, answer: Answer) -> Effect {
    Effect::Answer { ticket, answer }
}
