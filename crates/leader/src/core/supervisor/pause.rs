//! Job control: the trees stand still with their leader, and go on with it.
//!
//! No clock is touched here. The times that come with the inputs are of one clock, which the
//! driver lets stand still for as long, so that no deadline, grace or time-out counts the pause.

use crate::core::effect::Effect;
use crate::core::record::Record;
use crate::core::supervisor::Supervisor;
use crate::core::supervisor::inputs::log;

impl Supervisor {
    pub(super) fn pause(&mut self, now_ms: u64, effects: &mut Vec<Effect>) {
        if self.paused {
            return;
        }
        self.paused = true;
        effects.push(log(Record::RunPaused {}));
        for agent in self.active().filter(|agent| agent.process.is_some()) {
            let task = agent.job.task_id.clone();
            // Said first, but the tree may stand still before it is read: the worker then finds
            // it together with the word that it goes on.
            if agent.initialized {
                effects.push(Effect::SendDeadline {
                    agent: task.clone(),
                    remaining_ms: agent.clock.remaining_ms(now_ms),
                    paused: true,
                });
            }
            effects.push(Effect::PauseTree { agent: task });
        }
    }

    pub(super) fn go_on(&mut self, now_ms: u64, effects: &mut Vec<Effect>) {
        if !self.paused {
            return;
        }
        self.paused = false;
        effects.push(log(Record::RunContinued {}));
        for agent in self.active().filter(|agent| agent.process.is_some()) {
            let task = agent.job.task_id.clone();
            // The worker's own clock went on meanwhile: it must hear before it looks at it.
            if agent.initialized {
                effects.push(Effect::SendDeadline {
                    agent: task.clone(),
                    remaining_ms: agent.clock.remaining_ms(now_ms),
                    paused: !agent.clock.is_running(),
                });
            }
            effects.push(Effect::ContinueTree { agent: task });
        }
    }

    /// A process that came to be while all others were being stopped stands still like them.
    pub(super) fn pause_newcomer(&self, index: usize, effects: &mut Vec<Effect>) {
        let agent = self.roster.get(index);
        if self.paused && agent.is_active() && agent.process.is_some() {
            effects.push(Effect::PauseTree {
                agent: agent.job.task_id.clone(),
            });
        }
    }
}
