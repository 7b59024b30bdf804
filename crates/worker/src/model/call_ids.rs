//! Ids of calls, unique within a conversation whatever the provider sends.

use std::collections::HashSet;

use protocol::conversation::Message;

/// The ids that a conversation has used.
#[derive(Debug)]
pub(crate) struct CallIds {
    taken: HashSet<String>,
}

impl CallIds {
    /// Those of the calls in `messages`.
    pub(crate) fn of(messages: &[Message]) -> Self {
        let calls = messages.iter().flat_map(|message| &message.tool_calls);
        CallIds {
            taken: calls.map(|call| call.id.clone()).collect(),
        }
    }

    /// Takes the id that the provider sent, or a new one where it sent none, or one that was
    /// there before: a result is paired with its call by the id alone, and providers refuse a
    /// conversation in which one stands twice.
    pub(crate) fn assign(&mut self, sent: Option<String>) -> String {
        let wanted = sent.filter(|id| !id.is_empty() && !self.taken.contains(id));
        let id = wanted.unwrap_or_else(|| self.fresh());
        self.taken.insert(id.clone());
        id
    }

    /// Nine letters and digits: there are providers that take exactly this and nothing else.
    fn fresh(&self) -> String {
        let mut number = self.taken.len() + 1;
        loop {
            let id = format!("call{number:05}");
            if !self.taken.contains(&id) {
                return id;
            }
            number += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use protocol::conversation::ToolCall;

    #[test]
    fn an_id_that_was_used_before_gets_a_new_one() {
        // Two calls that shared an id once lost one of their results, and the next request was
        // refused; the same happens when an id of an earlier turn comes again.
        let earlier = [Message::assistant(
            None,
            vec![
                ToolCall::new("call_1", "a", "{}"),
                ToolCall::new("call00003", "b", "{}"),
            ],
        )];
        let mut ids = CallIds::of(&earlier);
        let sent = [Some("call_1"), Some("x"), Some("x"), None, Some("")];
        let got: Vec<String> = sent
            .into_iter()
            .map(|id| ids.assign(id.map(str::to_owned)))
            .collect();
        assert_eq!(
            got,
            ["call00004", "x", "call00005", "call00006", "call00007"]
        );
    }
}
