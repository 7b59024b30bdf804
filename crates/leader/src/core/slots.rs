//! The cap: who may run now, who comes back first, and who waits in which place.

use std::collections::VecDeque;

use crate::core::lifecycle::Event;

/// Agents that may wait for a slot at once; a create beyond is refused.
pub const QUEUE_AGENTS_MAX: usize = 100_000;

/// Slots in use and the two lines in front of them. An agent is known by its index.
#[derive(Debug, Default)]
pub struct Slots {
    used: usize,
    live: usize,
    returning: VecDeque<(usize, Event)>,
    queue: VecDeque<usize>,
}

/// Who gets the next free slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// An agent that gave up its slot to wait, with what it waited for.
    Returns(usize, Event),
    /// A new one.
    Starts(usize),
}

impl Slots {
    /// Slots in use.
    pub fn used(&self) -> usize {
        self.used
    }

    /// Agents with a process.
    pub fn live(&self) -> usize {
        self.live
    }

    /// One slot more or less is in use.
    pub fn change_used(&mut self, before: bool, after: bool) {
        change(&mut self.used, before, after);
    }

    /// One process more or less exists.
    pub fn change_live(&mut self, before: bool, after: bool) {
        change(&mut self.live, before, after);
    }

    /// Whether a new agent could start at once.
    pub fn has_room(&self, max_concurrent: usize, max_live: usize) -> bool {
        self.used < max_concurrent
            && self.live < max_live
            && self.returning.is_empty()
            && self.queue.is_empty()
    }

    /// A new agent joins the end of the queue.
    pub fn enqueue(&mut self, agent: usize) {
        self.queue.push_back(agent);
    }

    /// An agent that waited wants its slot again.
    pub fn enqueue_returning(&mut self, agent: usize, event: Event) {
        self.returning.push_back((agent, event));
    }

    /// An agent wants no slot any more.
    pub fn leave(&mut self, agent: usize) {
        self.queue.retain(|queued| *queued != agent);
        self.returning.retain(|(queued, _)| *queued != agent);
    }

    /// Place in the queue, from 1.
    pub fn position(&self, agent: usize) -> Option<usize> {
        let index = self.queue.iter().position(|queued| *queued == agent)?;
        Some(index + 1)
    }

    /// Agents in the queue.
    pub fn queued(&self) -> usize {
        self.queue.len()
    }

    /// Takes who is next out of the lines, if a slot is free: who returns comes before who starts.
    pub fn next(&mut self, max_concurrent: usize, max_live: usize) -> Option<Next> {
        if self.used >= max_concurrent {
            return None;
        }
        if let Some((agent, event)) = self.returning.pop_front() {
            return Some(Next::Returns(agent, event));
        }
        if self.live >= max_live {
            return None;
        }
        self.queue.pop_front().map(Next::Starts)
    }
}

fn change(count: &mut usize, before: bool, after: bool) {
    match (before, after) {
        (false, true) => *count += 1,
        (true, false) => *count -= 1,
        (true, true) | (false, false) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_returns_comes_before_who_starts_and_both_in_order() {
        let mut slots = Slots::default();
        for agent in [1, 2, 3] {
            slots.enqueue(agent);
        }
        slots.enqueue_returning(9, Event::Answered);
        slots.enqueue_returning(8, Event::Woken);
        slots.leave(2);
        assert_eq!(
            (slots.position(1), slots.position(3), slots.position(2)),
            (Some(1), Some(2), None)
        );
        let mut order = Vec::new();
        while let Some(next) = slots.next(1, 1) {
            order.push(next);
        }
        let expected = [
            Next::Returns(9, Event::Answered),
            Next::Returns(8, Event::Woken),
            Next::Starts(1),
            Next::Starts(3),
        ];
        assert_eq!(order, expected);
    }

    #[test]
    fn the_two_caps_hold_apart() {
        let mut slots = Slots::default();
        slots.enqueue(1);
        slots.change_live(false, true);
        assert_eq!(slots.next(1, 1), None);
        assert!(!slots.has_room(5, 5), "someone is in the queue");
        slots.enqueue_returning(9, Event::Woken);
        assert_eq!(slots.next(1, 1), Some(Next::Returns(9, Event::Woken)));
        slots.change_used(false, true);
        assert_eq!(slots.next(1, 2), None);
        slots.change_used(true, false);
        slots.change_live(true, false);
        assert_eq!(slots.next(1, 1), Some(Next::Starts(1)));
        assert!(slots.has_room(1, 1));
        assert_eq!((slots.used(), slots.live(), slots.queued()), (0, 0, 0));
    }
}
