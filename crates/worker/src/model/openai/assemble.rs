//! From pieces to a whole answer. Servers number and name the parts of calls in many ways; here
//! stands what is done about each.

use protocol::conversation::ToolCall;
use protocol::limits;
use protocol::stats::TokenUsage;
use serde::de::IgnoredAny;
use serde_json::Value;

use super::piece::{CallPiece, Piece, piece};
use crate::model::call_ids::CallIds;
use crate::model::fault::Refusal;
use crate::model::lenient::mend_surrogates;
use crate::model::reading::{Assembly, Ending, NoAnswer, Taken};
use crate::model::{FinishKind, ModelReply};

/// An answer as far as it has come.
#[derive(Debug, Default)]
pub(super) struct Assembler {
    content: String,
    reasoning: String,
    calls: Vec<PartialCall>,
    finish: Option<String>,
    usage: Option<TokenUsage>,
    has_choice: bool,
    bytes: usize,
}

/// A call as far as it has come.
#[derive(Debug, Default, PartialEq, Eq)]
struct PartialCall {
    index: Option<u64>,
    id: Option<String>,
    name: String,
    arguments: String,
}

impl Assembler {
    /// Adds a chunk of a stream.
    fn add(&mut self, piece: Piece) {
        self.add_all_but_calls(&piece);
        let mut named_here = Vec::new();
        for part in piece.calls {
            let at = match self.goes_on(&part, &named_here) {
                Some(at) => at,
                None => {
                    self.calls.push(PartialCall::default());
                    self.calls.len() - 1
                }
            };
            if !part.name.is_empty() {
                named_here.push(at);
            }
            self.calls[at].extend(part);
        }
    }

    /// Adds a whole answer: each of its calls stands for itself.
    fn add_whole(&mut self, piece: Piece) {
        self.add_all_but_calls(&piece);
        for part in piece.calls {
            let mut call = PartialCall::default();
            call.extend(part);
            self.calls.push(call);
        }
    }

    fn add_all_but_calls(&mut self, piece: &Piece) {
        self.has_choice |= piece.has_choice;
        let calls = piece.calls.iter().map(CallPiece::bytes).sum::<usize>();
        self.bytes += piece.content.len() + piece.reasoning.len() + calls;
        self.content.push_str(&piece.content);
        self.reasoning.push_str(&piece.reasoning);
        if piece.finish.is_some() {
            self.finish.clone_from(&piece.finish);
        }
        // Usage may come in each chunk, each time for all so far.
        self.usage = piece.usage.or(self.usage);
    }

    /// The call that a part goes on, or none when it begins one. `named_here` are the calls that
    /// this same chunk has named already: a second name in one chunk is a second call.
    fn goes_on(&self, part: &CallPiece, named_here: &[usize]) -> Option<usize> {
        let last = self.calls.len().checked_sub(1);
        let found = if part.index.is_some() {
            self.calls.iter().rposition(|call| call.index == part.index)
        } else if part.id.is_some() {
            let same_id = self.calls.iter().rposition(|call| call.id == part.id);
            // The id may come late, or be another one in each chunk.
            same_id.or(last.filter(|at| self.calls[*at].id.is_none() || part.name.is_empty()))
        } else {
            last
        };
        found.filter(|at| {
            let second_name = !part.name.is_empty() && named_here.contains(at);
            !second_name && !self.calls[*at].is_followed_by(part)
        })
    }
}

impl Assembly for Assembler {
    /// Beside choices only an explicit error object counts.
    fn refusal(document: &Value) -> Option<Refusal> {
        let explicit = document.get("error").is_some_and(|error| !error.is_null());
        let choices = document.get("choices").is_some();
        Refusal::in_answer(document).filter(|_| explicit || !choices)
    }

    fn take_part(&mut self, document: &Value) -> Taken {
        let said = piece(document);
        let text = said.content.clone();
        self.add(said);
        Taken {
            text,
            last_word: false,
        }
    }

    fn take_whole(&mut self, document: &Value) -> String {
        let said = piece(document);
        let text = said.content.clone();
        self.add_whole(said);
        text
    }

    fn has_content(&self) -> bool {
        !(self.content.is_empty() && self.reasoning.is_empty() && self.calls.is_empty())
    }

    fn is_too_large(&self) -> bool {
        self.bytes > limits::MODEL_REPLY_BYTES_MAX
    }

    fn is_finished(&self) -> bool {
        self.finish.is_some()
    }

    fn end(self, ending: Ending, ids: &mut CallIds) -> Result<ModelReply, NoAnswer> {
        if !self.has_choice {
            return Err(NoAnswer::Nothing);
        }
        let finish = self.finish.as_deref();
        if let Some(word @ ("error" | "insufficient_system_resource")) = finish {
            return Err(NoAnswer::BrokenOff(word.to_owned()));
        }
        // Some servers never say why they ended, only that they have. Then a call with half its
        // arguments is the sign of a break; with a reason it is the model's own mistake.
        let torn = || {
            self.calls
                .iter()
                .any(|call| call.state() == Arguments::Torn)
        };
        if finish.is_none() && (ending == Ending::Silent || torn()) {
            return Err(NoAnswer::Torn);
        }
        let finish = if finish == Some("length") {
            FinishKind::Length
        } else {
            FinishKind::Done
        };
        let mut tool_calls = Vec::new();
        for call in self.calls {
            let left_out = match finish {
                FinishKind::Length => call.state() != Arguments::Whole,
                FinishKind::Done | FinishKind::Paused => call.is_phantom(),
            };
            if left_out {
                continue;
            }
            if call.name.is_empty() {
                return Err(NoAnswer::NamelessCall);
            }
            let arguments = mend_surrogates(&call.arguments).into_owned();
            tool_calls.push(ToolCall::new(ids.assign(call.id), call.name, arguments));
        }
        let said = |text: String| Some(text).filter(|text| !text.is_empty());
        Ok(ModelReply {
            content: said(self.content),
            reasoning_content: said(self.reasoning),
            provider_blocks: Vec::new(),
            tool_calls,
            finish,
            usage: self.usage,
        })
    }
}

/// How far the text of a call's arguments has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Arguments {
    /// Nothing: either a call without arguments, or one whose arguments are still to come.
    None,
    /// No JSON, or not yet.
    Torn,
    /// JSON.
    Whole,
}

impl PartialCall {
    fn extend(&mut self, part: CallPiece) {
        self.index = self.index.or(part.index);
        if self.id.is_none() {
            self.id = part.id;
        }
        // A name comes once, again in each chunk, or (not seen, but harmless) grown or in parts.
        if part.name.starts_with(&self.name) {
            self.name = part.name;
        } else {
            self.name.push_str(&part.name);
        }
        self.arguments.push_str(&part.arguments);
    }

    /// Whether a part that would fit by its number is the beginning of a further call.
    fn is_followed_by(&self, part: &CallPiece) -> bool {
        if part.name.is_empty() || self.name.is_empty() {
            return false;
        }
        let other_id = matches!((&self.id, &part.id), (Some(ours), Some(theirs)) if ours != theirs);
        // Servers that number every call alike, or not at all: a call that is whole already and
        // is named again, with arguments, is another call.
        let says_more = !part.arguments.is_empty() || part.name != self.name;
        other_id || (says_more && self.state() == Arguments::Whole)
    }

    fn state(&self) -> Arguments {
        if self.arguments.trim().is_empty() {
            Arguments::None
        } else if serde_json::from_str::<IgnoredAny>(&self.arguments).is_ok() {
            Arguments::Whole
        } else {
            Arguments::Torn
        }
    }

    /// A place that was counted but never filled.
    fn is_phantom(&self) -> bool {
        self.name.is_empty() && self.arguments.trim().is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;
    use std::collections::HashSet;

    /// Any value that a server might put into a field, the right type more often than not.
    fn odd(right: BoxedStrategy<Value>) -> BoxedStrategy<Value> {
        let wrong = prop::sample::select(vec![
            json!(null),
            json!(""),
            json!(-1),
            json!([{"text": "t"}, 5]),
            json!({"a": 1}),
            json!("\\ud83d"),
        ]);
        prop_oneof![4 => right, 1 => wrong].boxed()
    }

    fn words(words: &'static [&'static str]) -> BoxedStrategy<Value> {
        odd(prop::sample::select(words).prop_map(Value::from).boxed())
    }

    fn chunk() -> impl Strategy<Value = Value> {
        let call = (
            odd((0_u64..3).prop_map(Value::from).boxed()),
            words(&["c1", "c2", "old"]),
            words(&["write_file", "read_file", "write_"]),
            words(&["{", "{}", "\"a\":1}", "x", "{\"path\":\"a\"}"]),
        )
            .prop_map(|(index, id, name, arguments)| {
                json!({"index": index, "id": id, "function": {"name": name, "arguments": arguments}})
            });
        (
            words(&["hi"]),
            odd(prop::collection::vec(call, 0..3)
                .prop_map(Value::from)
                .boxed()),
            words(&["stop", "length", "tool_calls"]),
            any::<bool>(),
        )
            .prop_map(|(content, calls, finish, ends)| {
                let finish = if ends { finish } else { Value::Null };
                json!({"choices": [{"delta": {"content": content, "tool_calls": calls},
                    "finish_reason": finish}]})
            })
    }

    proptest! {
        #[test]
        fn whatever_comes_the_calls_have_names_and_ids_of_their_own(
            chunks in prop::collection::vec(chunk(), 0..12),
            declared in any::<bool>(),
        ) {
            let earlier = [protocol::conversation::Message::assistant(
                None,
                vec![ToolCall::new("old", "x", "{}")],
            )];
            let mut assembler = Assembler::default();
            for chunk in &chunks {
                assembler.add(piece(chunk));
            }
            let ending = if declared { Ending::Declared } else { Ending::Silent };
            let Ok(reply) = assembler.end(ending, &mut CallIds::of(&earlier)) else {
                return Ok(());
            };
            let mut ids = HashSet::from(["old".to_owned()]);
            for call in reply.tool_calls {
                prop_assert!(!call.function.name.is_empty());
                prop_assert!(ids.insert(call.id));
                if reply.finish == FinishKind::Length {
                    prop_assert!(serde_json::from_str::<Value>(&call.function.arguments).is_ok());
                }
            }
        }

        #[test]
        fn however_arguments_are_cut_they_come_together(
            text in any::<String>(),
            cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..6),
            numbered in any::<bool>(),
        ) {
            let arguments = json!({"content": text}).to_string();
            let mut at: Vec<usize> = cuts
                .iter()
                .map(|cut| arguments.floor_char_boundary(cut.index(arguments.len() + 1)))
                .collect();
            at.push(0);
            at.push(arguments.len());
            at.sort_unstable();
            let mut assembler = Assembler::default();
            for (place, ends) in at.windows(2).enumerate() {
                let mut call = json!({"function": {"arguments": arguments[ends[0]..ends[1]]}});
                if place == 0 {
                    call["id"] = json!("c");
                    call["function"]["name"] = json!("write_file");
                }
                if numbered {
                    call["index"] = json!(1);
                }
                assembler.add(piece(&json!({"choices": [{"delta": {"tool_calls": [call]}}]})));
            }
            let reply = assembler.end(Ending::Declared, &mut CallIds::of(&[])).unwrap();
            prop_assert_eq!(reply.tool_calls, vec![ToolCall::new("c", "write_file", arguments)]);
        }
    }
}
