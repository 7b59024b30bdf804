//! What becomes of the names that an agent's jail guards.

use crate::core::effect::Effect;
use crate::core::record::Record;
use crate::core::supervisor::Supervisor;
use crate::core::supervisor::inputs::log;

impl Supervisor {
    /// Tells that a name which an agent's jail guards was replaced from outside.
    pub(super) fn name_replaced(
        &mut self,
        index: usize,
        path: String,
        again: bool,
        effects: &mut Vec<Effect>,
    ) {
        let agent = self.roster.get_mut(index);
        if agent.is_active() {
            let agent = agent.tag();
            effects.push(log(Record::NameReplaced { agent, path, again }));
        }
    }
}
