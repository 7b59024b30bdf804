//! What the processes of an agent use, and the stop once that is too much.

use crate::core::effect::Effect;
use crate::core::lifecycle::Event;
use crate::core::record::Record;
use crate::core::supervisor::Supervisor;
use crate::core::supervisor::life::Occasion;
use crate::core::usage::{self, Measure};

impl Supervisor {
    /// Takes what an agent's processes use, and stops it once that is too much.
    pub(super) fn used(
        &mut self,
        now_ms: u64,
        index: usize,
        measure: &Measure,
        effects: &mut Vec<Effect>,
    ) {
        let agent = self.roster.get_mut(index);
        if !agent.state.holds_process() {
            return;
        }
        usage::add(&mut agent.usage, measure);
        let found = usage::excess(&agent.job.limits.caps, measure);
        let Some(excess) = found.filter(|_| agent.excess.is_none()) else {
            return;
        };
        agent.excess = Some(excess);
        let agent = agent.tag();
        let occasion = Occasion::logged(Record::OverLimit { agent, excess });
        let event = Event::LimitPassed(excess.resource);
        self.advance(now_ms, index, event, occasion, effects);
    }
}
