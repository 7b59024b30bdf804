//! Moves one agent along its life: applies an event, and turns what the machine wants into
//! effects, timers and slots.

use protocol::channel::FinishedParams;

use crate::core::deadline::{Ladder, LadderStep};
use crate::core::effect::Effect;
use crate::core::ends::EndFacts;
use crate::core::lifecycle::{Action, Activity, End, Event, State, StopCause, apply};
use crate::core::record::{LadderSignal, Record};
use crate::core::result;
use crate::core::slots::Next;
use crate::core::supervisor::Supervisor;
use crate::core::supervisor::inputs::log;

/// What comes with an event.
#[derive(Debug, Default)]
pub(super) struct Occasion {
    /// Logged before anything else, if the event fits.
    pub(super) record: Option<Record>,
    /// For the result, if the event is the end.
    pub(super) facts: EndFacts,
}

impl Occasion {
    /// An event that is logged as this.
    pub(super) fn logged(record: Record) -> Self {
        Occasion {
            record: Some(record),
            facts: EndFacts::default(),
        }
    }
}

impl Supervisor {
    /// Applies an event to an agent; true when it fitted.
    pub(super) fn advance(
        &mut self,
        now_ms: u64,
        index: usize,
        event: Event,
        occasion: Occasion,
        effects: &mut Vec<Effect>,
    ) -> bool {
        let agent = self.roster.get_mut(index);
        let before = agent.state;
        let (after, actions) = match apply(before, event) {
            Ok(applied) => applied,
            Err(what) => {
                let agent = agent.job.task_id.clone();
                effects.push(Effect::Ignored { agent, what });
                return false;
            }
        };
        agent.state = after;
        if before != after {
            agent.since_ms = now_ms;
        }
        let in_line = matches!(after, State::Live(Activity::Waiting | Activity::Idle));
        if agent.returning && !in_line {
            agent.returning = false;
            self.slots.leave(index);
        }
        self.slots
            .change_live(before.holds_process(), after.holds_process());
        effects.extend(occasion.record.map(log));
        let mut facts = occasion.facts;
        for action in actions {
            self.carry_out(now_ms, index, action, &mut facts, effects);
        }
        self.set_timer(index);
        if let State::Stopping(stopping) = after
            && stopping.cause != StopCause::Finished
            && !stopping.killed
            && self.roster.get(index).grace_ms() == 0
        {
            self.advance(
                now_ms,
                index,
                Event::GraceExpired,
                Occasion::default(),
                effects,
            );
        }
        true
    }

    fn carry_out(
        &mut self,
        now_ms: u64,
        index: usize,
        action: Action,
        facts: &mut EndFacts,
        effects: &mut Vec<Effect>,
    ) {
        let agent = self.roster.get_mut(index);
        let task = agent.job.task_id.clone();
        match action {
            Action::TakeSlot => self.slots.change_used(false, true),
            Action::ReleaseSlot => self.slots.change_used(true, false),
            Action::Spawn => {
                let agent = agent.tag();
                effects.push(log(Record::Starting { agent }));
                effects.push(Effect::Spawn { agent: task });
            }
            Action::PauseClock => {
                agent.clock.pause(now_ms);
                effects.push(Effect::SendDeadline {
                    agent: task,
                    remaining_ms: agent.clock.remaining_ms(now_ms),
                    paused: true,
                });
            }
            Action::ResumeClock => {
                if agent.initialized {
                    agent.clock.run(now_ms);
                }
                let remaining_ms = agent.clock.remaining_ms(now_ms);
                let tag = agent.tag();
                effects.push(log(Record::Resumed { agent: tag }));
                effects.push(Effect::SendDeadline {
                    agent: task.clone(),
                    remaining_ms,
                    paused: false,
                });
                effects.push(Effect::GoOn { agent: task });
            }
            Action::Linger => {
                agent.ladder = Some(Ladder::linger(now_ms, agent.grace_ms()));
            }
            Action::BeginStop(cause) => self.begin_stop(now_ms, index, cause, effects),
            Action::Kill => self.kill(now_ms, index, effects),
            Action::Conclude(end) => {
                self.conclude(now_ms, index, end, std::mem::take(facts), effects);
            }
        }
    }

    fn begin_stop(
        &mut self,
        now_ms: u64,
        index: usize,
        cause: StopCause,
        effects: &mut Vec<Effect>,
    ) {
        let agent = self.roster.get_mut(index);
        let killed = matches!(agent.state, State::Stopping(stopping) if stopping.killed);
        let grace_ms = if killed { 0 } else { agent.grace_ms() };
        agent.ladder = Some(Ladder::stop(now_ms, grace_ms));
        effects.push(log(Record::Stopping {
            agent: agent.tag(),
            cause,
            grace_ms,
        }));
        if let Some(reason) = cause.reason() {
            effects.push(Effect::SendStop {
                agent: agent.job.task_id.clone(),
                reason,
                grace_ms,
            });
        }
    }

    fn kill(&mut self, now_ms: u64, index: usize, effects: &mut Vec<Effect>) {
        let agent = self.roster.get_mut(index);
        let again = matches!(agent.state, State::Stopping(stopping) if stopping.unkillable);
        if let Some(ladder) = &mut agent.ladder {
            if again {
                ladder.killed_again(now_ms);
            } else {
                ladder.killed(now_ms);
            }
        }
        let task = agent.job.task_id.clone();
        if !again {
            effects.push(log(Record::Signalled {
                agent: agent.tag(),
                signal: LadderSignal::Kill,
            }));
        }
        effects.push(Effect::Kill {
            agent: task.clone(),
        });
        if again {
            effects.push(Effect::Inspect { agent: task });
        }
    }

    fn conclude(
        &mut self,
        now_ms: u64,
        index: usize,
        end: End,
        facts: EndFacts,
        effects: &mut Vec<Effect>,
    ) {
        let texts = self.config.texts.as_ref();
        let agent = self.roster.get_mut(index);
        let mut result = result::ended(agent, end, facts, now_ms, texts);
        result
            .warnings
            .extend(late_report(agent.report.as_ref(), end));
        agent.clock.pause(now_ms);
        agent.ladder = None;
        let never_ran = agent.process.is_none();
        agent.result = Some(Box::new(result.clone()));
        let (tag, task) = (agent.tag(), agent.job.task_id.clone());
        self.claims
            .release(index, &agent.deliverables, &agent.write_paths);
        if never_ran {
            self.slots.leave(index);
        }
        self.active.remove(&index);
        // The decision first: whatever a crash leaves undone after it can be done again from it.
        effects.push(log(Record::Ended {
            agent: tag,
            result: Box::new(result::for_model(result.clone())),
        }));
        effects.push(Effect::Conclude {
            agent: task.clone(),
            status: result.status,
            stop_reason: result.stop_reason,
            summary: result.result_summary.clone(),
        });
        effects.push(Effect::ReleaseClaim { agent: task });
        self.answer_settled(now_ms, index, effects);
        if self.outbox.must_send(index) {
            effects.push(Effect::Notice(Box::new(result)));
        }
    }

    /// Gives free slots to those who wait for one.
    pub(super) fn fill_slots(&mut self, now_ms: u64, effects: &mut Vec<Effect>) {
        let (max_concurrent, max_live) = (self.config.max_concurrent, self.config.max_live);
        while let Some(next) = self.slots.next(max_concurrent, max_live) {
            let (index, event) = match next {
                Next::Returns(index, event) => (index, event),
                Next::Starts(index) => (index, Event::SlotGranted),
            };
            self.roster.get_mut(index).returning = false;
            self.advance(now_ms, index, event, Occasion::default(), effects);
        }
    }

    /// Puts an agent's next timer into the list, in place of the one that was there.
    pub(super) fn set_timer(&mut self, index: usize) {
        let agent = self.roster.get(index);
        let due_ms = match agent.state {
            State::Queued => Some(agent.since_ms.saturating_add(self.config.queue_timeout_ms)),
            State::Live(Activity::Busy) if !agent.initialized => {
                Some(agent.since_ms.saturating_add(self.config.start_timeout_ms))
            }
            State::Live(Activity::Busy) => agent.clock.due_ms(),
            // Its answer is there; the wait is for a slot.
            State::Live(Activity::Waiting) if agent.returning => None,
            State::Live(Activity::Waiting) => {
                Some(agent.since_ms.saturating_add(self.config.answer_timeout_ms))
            }
            State::Stopping(_) => agent.ladder.map(|ladder| ladder.due_ms()),
            State::Created
            | State::Starting { .. }
            | State::Live(Activity::Idle)
            | State::Ended(_) => None,
        };
        let agent = self.roster.get_mut(index);
        if agent.timer_ms != due_ms {
            if let Some(old_ms) = agent.timer_ms {
                self.timers.remove(&(old_ms, index));
            }
            if let Some(due_ms) = due_ms {
                self.timers.insert((due_ms, index));
            }
            agent.timer_ms = due_ms;
        }
    }

    /// Does everything that is due. Each step moves its agent's timer on, so this ends.
    pub(super) fn timer_due(&mut self, now_ms: u64, effects: &mut Vec<Effect>) {
        while let Some((due_ms, index)) = self.timers.first().copied()
            && due_ms <= now_ms
        {
            self.timers.pop_first();
            self.roster.get_mut(index).timer_ms = None;
            self.fire(now_ms, index, effects);
            self.set_timer(index);
        }
        while let Some(ticket) = self.waits.overdue(now_ms) {
            if let Some((caller, crate::core::waits::Call::Wait { agents, .. })) =
                self.waits.take(ticket)
            {
                self.answer_wait(now_ms, ticket, caller, &agents, true, effects);
            }
        }
    }

    fn fire(&mut self, now_ms: u64, index: usize, effects: &mut Vec<Effect>) {
        let agent = self.roster.get_mut(index);
        let event = match agent.state {
            State::Queued => Event::QueueTimeout,
            State::Live(Activity::Busy) if !agent.initialized => Event::StartTimeout,
            State::Live(Activity::Busy) => Event::DeadlinePassed,
            State::Live(Activity::Waiting) => {
                // The error is the answer, and going on with it needs a slot like any other.
                agent.returning = true;
                self.slots.enqueue_returning(index, Event::AnswerTimeout);
                return;
            }
            State::Stopping(_) => {
                self.fire_ladder(now_ms, index, effects);
                return;
            }
            State::Created
            | State::Starting { .. }
            | State::Live(Activity::Idle)
            | State::Ended(_) => return,
        };
        self.advance(now_ms, index, event, Occasion::default(), effects);
    }

    fn fire_ladder(&mut self, now_ms: u64, index: usize, effects: &mut Vec<Effect>) {
        let agent = self.roster.get_mut(index);
        let Some(ladder) = &mut agent.ladder else {
            return;
        };
        match ladder.next() {
            LadderStep::Term => {
                ladder.termed();
                let task = agent.job.task_id.clone();
                effects.push(log(Record::Signalled {
                    agent: agent.tag(),
                    signal: LadderSignal::Term,
                }));
                effects.push(Effect::Term { agent: task });
            }
            LadderStep::Kill => {
                self.advance(
                    now_ms,
                    index,
                    Event::GraceExpired,
                    Occasion::default(),
                    effects,
                );
            }
            LadderStep::Verify => {
                let first =
                    matches!(agent.state, State::Stopping(stopping) if !stopping.unkillable);
                let occasion = if first {
                    Occasion::logged(Record::Unkillable {
                        agent: agent.tag(),
                        survivors: None,
                    })
                } else {
                    Occasion::default()
                };
                // Whoever waits is answered once it is known who is left.
                self.advance(now_ms, index, Event::Unkillable, occasion, effects);
            }
        }
    }
}

/// What is odd about an end that a report of success came too late to change. A worker that is
/// being stopped reports just that, which is as it should be.
fn late_report(report: Option<&FinishedParams>, end: End) -> Option<String> {
    let too_late = report.is_some_and(|report| report.success)
        && matches!(end, End::TimedOut | End::Terminated(_));
    too_late
        .then(|| "its report came after its stop had begun and did not change its end".to_owned())
}
