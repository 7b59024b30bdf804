//! The outbox of ends: each end is told exactly once to whoever created the agent, by the answer
//! of a call or by a notice.

use std::collections::BTreeMap;

/// How the telling of one end stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Telling {
    /// A notice is on its way.
    Sent,
    /// It was told for good.
    Done,
}

/// What an answer that tells of an end means for the notice of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Told {
    /// There will be none.
    First,
    /// One is on its way, and is to be dropped if it has not arrived.
    Overtakes,
    /// Nothing: the end was told before.
    Again,
}

/// Ends that were, or are being, told; an agent is known by its index.
#[derive(Debug, Default)]
pub struct Outbox {
    ends: BTreeMap<usize, Telling>,
}

impl Outbox {
    /// An agent has ended, and a call of its owner answers with that end.
    pub fn told(&mut self, agent: usize) -> Told {
        match self.ends.insert(agent, Telling::Done) {
            None => Told::First,
            Some(Telling::Sent) => Told::Overtakes,
            Some(Telling::Done) => Told::Again,
        }
    }

    /// An agent has ended; true when a notice is to be sent, false when its end was told already.
    pub fn must_send(&mut self, agent: usize) -> bool {
        if self.ends.contains_key(&agent) {
            return false;
        }
        self.ends.insert(agent, Telling::Sent);
        true
    }

    /// A notice is with its addressee for good; true the first time.
    pub fn taken(&mut self, agent: usize) -> bool {
        match self.ends.get_mut(&agent) {
            Some(telling @ Telling::Sent) => {
                *telling = Telling::Done;
                true
            }
            Some(Telling::Done) | None => false,
        }
    }

    /// Whose notice was sent and not yet taken.
    pub fn pending(&self) -> impl Iterator<Item = usize> + '_ {
        self.ends
            .iter()
            .filter(|(_, telling)| **telling == Telling::Sent)
            .map(|(agent, _)| *agent)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_end_is_told_once() {
        let mut outbox = Outbox::default();
        assert_eq!(outbox.told(1), Told::First);
        assert_eq!(outbox.told(1), Told::Again);
        assert!(!outbox.must_send(1));
        assert!(outbox.must_send(2));
        assert!(!outbox.must_send(2));
        assert_eq!(outbox.pending().collect::<Vec<_>>(), [2]);
        assert!(!outbox.taken(1));
        assert!(!outbox.taken(3));
        assert!(outbox.taken(2));
        assert!(!outbox.taken(2));
        assert_eq!(outbox.pending().count(), 0);
        assert!(outbox.must_send(4));
        assert_eq!(outbox.told(4), Told::Overtakes);
        assert!(!outbox.taken(4));
    }
}
