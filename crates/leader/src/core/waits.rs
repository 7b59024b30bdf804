//! Calls that wait for their answer: creates and terminates for one agent's end, waits for any or
//! all of several.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use protocol::tool::leader::WaitMode;

use crate::core::input::{Caller, Ticket};

/// What a waiting call waits for; an agent is known by its index.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Call {
    /// A blocking create.
    Create {
        /// Whose end.
        agent: usize,
    },
    /// A terminate.
    Terminate {
        /// Whose end.
        agent: usize,
    },
    /// A wait.
    Wait {
        /// Whose ends, in the order in which they were named.
        agents: Arc<[usize]>,
        /// Any or all of them.
        mode: WaitMode,
        /// When it is over anyway.
        due_ms: Option<u64>,
    },
}

impl Call {
    fn agents(&self) -> &[usize] {
        match self {
            Call::Create { agent } | Call::Terminate { agent } => std::slice::from_ref(agent),
            Call::Wait { agents, .. } => agents,
        }
    }
}

/// The waiting calls, each answered once.
#[derive(Debug, Default)]
pub struct Waits {
    calls: BTreeMap<Ticket, (Caller, Call)>,
    by_agent: HashMap<usize, BTreeSet<Ticket>>,
    due: BTreeSet<(u64, Ticket)>,
}

impl Waits {
    /// Keeps a call until it is taken out.
    pub fn keep(&mut self, ticket: Ticket, caller: Caller, call: Call) {
        for agent in call.agents() {
            self.by_agent.entry(*agent).or_default().insert(ticket);
        }
        if let Call::Wait {
            due_ms: Some(due_ms),
            ..
        } = &call
        {
            self.due.insert((*due_ms, ticket));
        }
        self.calls.insert(ticket, (caller, call));
    }

    /// Takes a call out, to answer it or because its caller has gone.
    pub fn take(&mut self, ticket: Ticket) -> Option<(Caller, Call)> {
        let (caller, call) = self.calls.remove(&ticket)?;
        for agent in call.agents() {
            if let Some(tickets) = self.by_agent.get_mut(agent) {
                tickets.remove(&ticket);
                if tickets.is_empty() {
                    self.by_agent.remove(agent);
                }
            }
        }
        if let Call::Wait {
            due_ms: Some(due_ms),
            ..
        } = &call
        {
            self.due.remove(&(*due_ms, ticket));
        }
        Some((caller, call))
    }

    /// The calls that wait for this agent, and perhaps for others, oldest ticket first.
    pub fn of_agent(&self, agent: usize) -> Vec<(Ticket, Caller, Call)> {
        self.by_agent
            .get(&agent)
            .into_iter()
            .flatten()
            .filter_map(|ticket| {
                let (caller, call) = self.calls.get(ticket)?;
                Some((*ticket, *caller, call.clone()))
            })
            .collect()
    }

    /// When the next wait is over.
    pub fn next_due_ms(&self) -> Option<u64> {
        self.due.first().map(|(due_ms, _)| *due_ms)
    }

    /// A wait that is over at `now_ms`, if there is one.
    pub fn overdue(&self, now_ms: u64) -> Option<Ticket> {
        let (due_ms, ticket) = self.due.first()?;
        (*due_ms <= now_ms).then_some(*ticket)
    }

    /// Calls that wait.
    pub fn len(&self) -> usize {
        self.calls.len()
    }

    /// Whether no call waits.
    pub fn is_empty(&self) -> bool {
        self.calls.is_empty()
    }
}

/// Whether a wait is over, given which of its agents are settled.
pub fn is_over(mode: WaitMode, mut settled: impl ExactSizeIterator<Item = bool>) -> bool {
    match mode {
        WaitMode::Any => settled.len() == 0 || settled.any(|settled| settled),
        WaitMode::All => settled.all(|settled| settled),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wait(agents: &[usize], due_ms: Option<u64>) -> Call {
        Call::Wait {
            agents: agents.into(),
            mode: WaitMode::Any,
            due_ms,
        }
    }

    #[test]
    fn a_call_is_found_by_each_of_its_agents_until_it_is_taken() {
        let mut waits = Waits::default();
        let (one, two) = (Ticket(1), Ticket(2));
        waits.keep(one, Caller(0), wait(&[3, 4], Some(50)));
        waits.keep(two, Caller(0), Call::Create { agent: 4 });
        let tickets = |waits: &Waits, agent| {
            let found = waits.of_agent(agent);
            found
                .into_iter()
                .map(|(ticket, ..)| ticket)
                .collect::<Vec<_>>()
        };
        assert_eq!(tickets(&waits, 3), [one]);
        assert_eq!(tickets(&waits, 4), [one, two]);
        assert_eq!((waits.overdue(49), waits.overdue(50)), (None, Some(one)));
        assert_eq!(waits.take(one), Some((Caller(0), wait(&[3, 4], Some(50)))));
        assert_eq!(waits.take(one), None);
        assert_eq!(tickets(&waits, 4), [two]);
        assert_eq!(waits.next_due_ms(), None);
        assert!(waits.take(two).is_some());
        assert!(waits.is_empty());
    }

    #[test]
    fn any_needs_one_and_all_needs_every_one() {
        let over = |mode, settled: &[bool]| is_over(mode, settled.iter().copied());
        assert!(over(WaitMode::Any, &[]));
        assert!(over(WaitMode::All, &[]));
        assert!(over(WaitMode::Any, &[false, true]));
        assert!(!over(WaitMode::Any, &[false, false]));
        assert!(!over(WaitMode::All, &[false, true]));
        assert!(over(WaitMode::All, &[true, true]));
    }
}
