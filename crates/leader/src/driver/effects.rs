//! The order in which effects are carried out.
//!
//! What tells somebody of a decision waits until the record of it is on the disk, and an answer
//! that tells of an end waits until the agent's conversation has its final form. What stops or
//! kills waits for nothing.

use std::collections::VecDeque;

use protocol::ids::TaskId;

use crate::core::Effect;

/// Whether an effect is carried out at once, whatever waits: a slow disk must not delay a stop.
pub(super) fn is_urgent(effect: &Effect) -> bool {
    match effect {
        Effect::SendStop { .. }
        | Effect::SendDeadline { .. }
        | Effect::Term { .. }
        | Effect::PauseTree { .. }
        | Effect::ContinueTree { .. }
        | Effect::Kill { .. }
        | Effect::Inspect { .. }
        | Effect::Ignored { .. } => true,
        Effect::Log(_)
        | Effect::Spawn { .. }
        | Effect::GoOn { .. }
        | Effect::Conclude { .. }
        | Effect::ReleaseClaim { .. }
        | Effect::Answer { .. }
        | Effect::Notice(_)
        | Effect::DropNotice { .. }
        | Effect::AllEnded => false,
    }
}

/// An effect and what it waits for.
#[derive(Debug)]
struct Waiting {
    /// The input that it came of.
    batch: u64,
    /// Every record up to this one must be on the disk.
    after: u64,
    effect: Effect,
}

/// Effects that wait.
#[derive(Debug, Default)]
pub(super) struct EffectQueue {
    waiting: VecDeque<Waiting>,
    /// What stands behind a conclusion that is under way.
    behind: Vec<(TaskId, VecDeque<Waiting>)>,
    last_batch: u64,
}

impl EffectQueue {
    /// A number for the effects of the next input.
    pub(super) fn new_batch(&mut self) -> u64 {
        self.last_batch += 1;
        self.last_batch
    }

    pub(super) fn add(&mut self, batch: u64, after: u64, effect: Effect) {
        self.waiting.push_back(Waiting {
            batch,
            after,
            effect,
        });
    }

    /// The next effect whose records are on the disk.
    pub(super) fn next(&mut self, durable: u64) -> Option<Effect> {
        let first = self.waiting.front()?;
        if first.after > durable {
            return None;
        }
        self.waiting.pop_front().map(|waiting| waiting.effect)
    }

    /// Holds back what came of the same input as the conclusion that was just taken, until
    /// [`EffectQueue::concluded`].
    pub(super) fn hold(&mut self, agent: TaskId, batch: u64) {
        let (held, rest) = std::mem::take(&mut self.waiting)
            .into_iter()
            .partition(|waiting| waiting.batch == batch);
        self.waiting = rest;
        self.behind.push((agent, held));
    }

    /// The batch of the effect that comes next.
    pub(super) fn next_batch(&self) -> Option<u64> {
        self.waiting.front().map(|waiting| waiting.batch)
    }

    /// A conclusion is done: what it held back is next.
    pub(super) fn concluded(&mut self, agent: &TaskId) {
        let Some(at) = self.behind.iter().position(|(held, _)| held == agent) else {
            return;
        };
        let (_, mut held) = self.behind.remove(at);
        held.append(&mut self.waiting);
        self.waiting = held;
    }

    /// Whether nothing waits, on the disk or on a conclusion.
    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty() && self.behind.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn task(number: u32) -> TaskId {
        TaskId::new(format!("sub_{number:08}")).unwrap()
    }

    fn release(number: u32) -> Effect {
        Effect::ReleaseClaim {
            agent: task(number),
        }
    }

    fn go_on(number: u32) -> Effect {
        Effect::GoOn {
            agent: task(number),
        }
    }

    #[test]
    fn an_effect_waits_for_its_record_and_those_behind_it_too() {
        let mut queue = EffectQueue::default();
        let batch = queue.new_batch();
        queue.add(batch, 3, release(1));
        let batch = queue.new_batch();
        queue.add(batch, 0, release(2));
        assert_eq!(queue.next(2), None);
        assert!(!queue.is_empty());
        assert_eq!(queue.next(3), Some(release(1)));
        assert_eq!(queue.next(3), Some(release(2)));
        assert!(queue.is_empty());
    }

    #[test]
    fn a_conclusion_holds_back_its_own_input_alone() {
        let mut queue = EffectQueue::default();
        let first = queue.new_batch();
        queue.add(first, 0, release(1));
        queue.add(first, 0, go_on(1));
        let second = queue.new_batch();
        queue.add(second, 0, release(2));
        assert_eq!(queue.next_batch(), Some(first));
        queue.hold(task(1), first);
        assert_eq!(queue.next(0), Some(release(2)));
        assert_eq!(queue.next(0), None);
        assert!(!queue.is_empty());
        let third = queue.new_batch();
        queue.add(third, 0, release(3));
        queue.concluded(&task(1));
        let order: Vec<_> = std::iter::from_fn(|| queue.next(0)).collect();
        assert_eq!(order, [release(1), go_on(1), release(3)]);
        assert!(queue.is_empty());
    }
}
