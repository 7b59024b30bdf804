//! What each input means: which call or which agent it touches.

use protocol::channel::{CommandsHeld, FinishedParams};
use protocol::error::{ErrorCode, ToolError};
use protocol::ids::TaskId;
use protocol::status::StopReason;
use serde_json::Value;

use crate::core::effect::Effect;
use crate::core::ends;
use crate::core::input::{ExitFacts, Input, ProcessIdentity, StopHow, Survivors};
use crate::core::lifecycle::{Activity, Event, PendingStop, Report, State, StopCause};
use crate::core::record::Record;
use crate::core::rungs::{Loss, hold_commands};
use crate::core::supervisor::life::Occasion;
use crate::core::supervisor::{Closing, Supervisor};

impl Supervisor {
    pub(super) fn take(&mut self, now_ms: u64, input: Input, effects: &mut Vec<Effect>) {
        match input {
            Input::Create {
                ticket,
                caller,
                order,
            } => self.create(now_ms, ticket, caller, *order, effects),
            Input::Terminate {
                ticket,
                caller,
                agent,
                how,
            } => self.terminate(now_ms, ticket, caller, &agent, how, effects),
            Input::Wait {
                ticket,
                caller,
                agents,
                mode,
                timeout_ms,
            } => {
                let due_ms = timeout_ms.map(|timeout_ms| now_ms.saturating_add(timeout_ms));
                self.wait(now_ms, (ticket, caller), &agents, mode, due_ms, effects);
            }
            Input::GiveUp { ticket } => drop(self.waits.take(ticket)),
            Input::TimerDue => self.timer_due(now_ms, effects),
            Input::Pause => self.pause(now_ms, effects),
            Input::Continue => self.go_on(now_ms, effects),
            Input::StopAll { reason, how } => self.stop_all(now_ms, reason, how, effects),
            of_agent => self.take_of_agent(now_ms, of_agent, effects),
        }
        self.fill_slots(now_ms, effects);
        self.finish_closing(effects);
    }

    /// Takes what an agent's jail enforces, and tells when that is less than before.
    fn confined(&mut self, index: usize, confinement: Value, effects: &mut Vec<Effect>) {
        let agent = self.roster.get_mut(index);
        if !agent.is_active() {
            return;
        }
        agent.confinement = confinement.clone();
        let loss = self.rungs.see(&confinement);
        agent.warnings.extend(loss.map(Loss::warning));
        let tag = agent.tag();
        effects.push(log(Record::Confined {
            agent: tag.clone(),
            confinement,
        }));
        effects.extend(loss.map(|Loss { had, has }| {
            log(Record::RungLost {
                agent: tag,
                had,
                has,
            })
        }));
    }

    /// The inputs that an agent's process causes. One about a run that is not of this
    /// conversation changes nothing.
    fn take_of_agent(&mut self, now_ms: u64, input: Input, effects: &mut Vec<Effect>) {
        match input {
            Input::Spawned { agent, process } => {
                self.with(&agent, |it, index| {
                    it.spawned(now_ms, index, process, effects)
                });
            }
            Input::SpawnFailed { agent, error } => {
                self.with(&agent, |it, index| {
                    it.spawn_failed(now_ms, index, error, effects)
                });
            }
            Input::Confined { agent, confinement } => {
                self.with(&agent, |it, index| it.confined(index, confinement, effects));
            }
            Input::NameReplaced { agent, path, again } => {
                self.with(&agent, |it, index| {
                    it.name_replaced(index, path, again, effects)
                });
            }
            Input::Initialized { agent, commands } => {
                self.with(&agent, |it, index| {
                    it.initialized(now_ms, index, commands, effects);
                });
            }
            Input::Used { agent, measure } => {
                self.with(&agent, |it, index| {
                    it.used(now_ms, index, &measure, effects)
                });
            }
            Input::Progress { agent, progress } => self.with(&agent, |it, index| {
                let agent = it.roster.get_mut(index);
                if agent.is_active() {
                    agent.take_progress(progress);
                }
            }),
            Input::Reported { agent, report } => {
                self.with(&agent, |it, index| {
                    it.reported(now_ms, index, report, effects)
                });
            }
            Input::WentIdle { agent, text } => {
                self.with(&agent, |it, index| {
                    it.went_idle(now_ms, index, text, effects)
                });
            }
            Input::Asked { agent } => {
                self.with(&agent, |it, index| it.asked(now_ms, index, effects))
            }
            Input::Resume { agent } => self.with(&agent, |it, index| it.resume(index, effects)),
            Input::Broke { agent, detail } => {
                self.with(&agent, |it, index| it.broke(now_ms, index, detail, effects));
            }
            Input::Exited { agent, facts } => {
                self.with(&agent, |it, index| {
                    it.exited(now_ms, index, *facts, effects)
                });
            }
            Input::Survivors { agent, survivors } => {
                self.with(&agent, |it, index| {
                    it.survived(now_ms, index, survivors, effects);
                });
            }
            Input::NoticeTaken { agent } => self.with(&agent, |it, index| {
                if it.outbox.taken(index) {
                    let agent = it.roster.get(index).tag();
                    effects.push(log(Record::NoticeDone { agent }));
                }
            }),
            Input::Create { .. }
            | Input::Terminate { .. }
            | Input::Wait { .. }
            | Input::GiveUp { .. }
            | Input::TimerDue
            | Input::Pause
            | Input::Continue
            | Input::StopAll { .. } => {}
        }
    }

    fn with(&mut self, task: &TaskId, act: impl FnOnce(&mut Self, usize)) {
        if let Some(index) = self.roster.index_of(task) {
            act(self, index);
        }
    }

    fn spawned(
        &mut self,
        now_ms: u64,
        index: usize,
        process: ProcessIdentity,
        effects: &mut Vec<Effect>,
    ) {
        let agent = self.roster.get_mut(index);
        let record = Record::Running {
            agent: agent.tag(),
            process: process.clone(),
        };
        if matches!(agent.state, State::Starting { .. }) {
            agent.process = Some(process);
        }
        self.advance(
            now_ms,
            index,
            Event::Spawned,
            Occasion::logged(record),
            effects,
        );
        self.pause_newcomer(index, effects);
    }

    fn spawn_failed(
        &mut self,
        now_ms: u64,
        index: usize,
        error: ToolError,
        effects: &mut Vec<Effect>,
    ) {
        let reason = match error.code {
            ErrorCode::ConfinementRefused => StopReason::ConfinementRefused,
            _ => StopReason::SpawnFailed,
        };
        let agent = self.roster.get_mut(index);
        if matches!(agent.state, State::Starting { .. }) {
            agent.fault = Some(error);
        }
        let event = Event::SpawnFailed(reason);
        self.advance(now_ms, index, event, Occasion::default(), effects);
    }

    fn initialized(
        &mut self,
        now_ms: u64,
        index: usize,
        commands: Option<CommandsHeld>,
        effects: &mut Vec<Effect>,
    ) {
        let agent = self.roster.get_mut(index);
        let State::Live(activity) = agent.state else {
            return;
        };
        if agent.initialized {
            return;
        }
        agent.initialized = true;
        hold_commands(&mut agent.confinement, commands.clone());
        if activity == Activity::Busy {
            agent.clock.run(now_ms);
        }
        let agent = agent.tag();
        effects.push(log(Record::Initialized { agent, commands }));
        self.set_timer(index);
    }

    fn reported(
        &mut self,
        now_ms: u64,
        index: usize,
        report: FinishedParams,
        effects: &mut Vec<Effect>,
    ) {
        let agent = self.roster.get_mut(index);
        if agent.report.is_some() {
            // The first report counts; a worker that says it twice changes nothing.
            return;
        }
        let event = Event::Reported(Report {
            success: report.success,
            reason: report.stop_reason,
        });
        if matches!(agent.state, State::Live(_) | State::Stopping(_)) {
            agent.report = Some(report.clone());
        }
        let agent = agent.tag();
        let occasion = Occasion::logged(Record::Reported { agent, report });
        self.advance(now_ms, index, event, occasion, effects);
    }

    fn went_idle(&mut self, now_ms: u64, index: usize, text: String, effects: &mut Vec<Effect>) {
        let agent = self.roster.get_mut(index);
        let busy = agent.state == State::Live(Activity::Busy);
        let occasion = if busy {
            agent.last_output = text;
            Occasion::logged(Record::Idle { agent: agent.tag() })
        } else {
            Occasion::default()
        };
        self.advance(now_ms, index, Event::WentIdle, occasion, effects);
        if busy {
            self.answer_settled(now_ms, index, effects);
        }
    }

    fn asked(&mut self, now_ms: u64, index: usize, effects: &mut Vec<Effect>) {
        let agent = self.roster.get(index);
        let occasion = if agent.state == State::Live(Activity::Busy) {
            Occasion::logged(Record::Waiting { agent: agent.tag() })
        } else {
            Occasion::default()
        };
        self.advance(now_ms, index, Event::Asked, occasion, effects);
    }

    /// What a waiting or idle agent waits for is there; it goes on when it has a slot.
    fn resume(&mut self, index: usize, effects: &mut Vec<Effect>) {
        let agent = self.roster.get_mut(index);
        let event = match agent.state {
            State::Live(Activity::Waiting) => Event::Answered,
            _ => Event::Woken,
        };
        if agent.state == State::Live(Activity::Busy) || agent.state.end().is_some() {
            let what = crate::core::lifecycle::Illegal {
                state: agent.state,
                event,
            };
            let agent = agent.job.task_id.clone();
            effects.push(Effect::Ignored { agent, what });
            return;
        }
        let waits = matches!(agent.state, State::Live(Activity::Waiting | Activity::Idle));
        if waits && !agent.returning {
            agent.returning = true;
            self.slots.enqueue_returning(index, event);
            self.set_timer(index);
        }
    }

    fn broke(&mut self, now_ms: u64, index: usize, detail: String, effects: &mut Vec<Effect>) {
        let agent = self.roster.get_mut(index);
        if matches!(agent.state, State::Live(_)) {
            agent.fault = Some(ToolError::new(ErrorCode::AgentFailed, detail));
        }
        let event = Event::ProtocolBroken;
        self.advance(now_ms, index, event, Occasion::default(), effects);
    }

    fn exited(&mut self, now_ms: u64, index: usize, facts: ExitFacts, effects: &mut Vec<Effect>) {
        let agent = self.roster.get(index);
        let exit = ends::exit_event(&facts, agent.initialized);
        let odd = ends::odd_exit(agent.state, facts.verdict, exit.found);
        let mut facts = ends::end_facts(facts);
        facts.warnings.extend(odd);
        let occasion = Occasion {
            record: None,
            facts,
        };
        self.advance(now_ms, index, Event::Exited(exit), occasion, effects);
    }

    fn survived(
        &mut self,
        now_ms: u64,
        index: usize,
        survivors: Survivors,
        effects: &mut Vec<Effect>,
    ) {
        let agent = self.roster.get_mut(index);
        let stuck = matches!(agent.state, State::Stopping(stopping) if stopping.unkillable);
        // Looked at again each second; only what is new is told.
        if stuck && agent.survivors.as_ref() != Some(&survivors) {
            agent.survivors = Some(survivors.clone());
            effects.push(log(Record::Unkillable {
                agent: agent.tag(),
                survivors: Some(survivors),
            }));
            self.answer_unkillable(now_ms, index, effects);
        }
    }

    fn stop_all(
        &mut self,
        now_ms: u64,
        reason: StopReason,
        how: StopHow,
        effects: &mut Vec<Effect>,
    ) {
        let again = self.closing.is_some();
        if !again {
            self.closing = Some(Closing {
                reason,
                ended: false,
            });
            effects.push(log(Record::RunStopping { reason }));
        }
        // The first reason wins, as with a single agent.
        let cause = match self.closing.map_or(reason, |closing| closing.reason) {
            StopReason::ConversationClosed => StopCause::ConversationClosed,
            _ => StopCause::LeaderStopped,
        };
        let now = how == StopHow::Now;
        let event = Event::StopRequested(PendingStop { cause, now });
        for index in self.active.clone() {
            self.advance(now_ms, index, event, Occasion::default(), effects);
        }
        if let Some(closing) = &mut self.closing
            && closing.ended
        {
            // Nobody is left since an earlier call; this one gets its own word of it.
            effects.push(Effect::AllEnded);
        }
    }

    fn finish_closing(&mut self, effects: &mut Vec<Effect>) {
        if let Some(closing) = &mut self.closing
            && !closing.ended
            && self.active.is_empty()
        {
            closing.ended = true;
            effects.push(log(Record::RunEnded {}));
            effects.push(Effect::AllEnded);
        }
    }
}

/// A record as an effect.
pub(super) fn log(record: Record) -> Effect {
    Effect::Log(Box::new(record))
}
