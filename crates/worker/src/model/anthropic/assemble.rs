//! From the events of a stream, or a whole answer, to an answer.
//!
//! An answer is a list of blocks: text, thoughts, calls, and what servers may add. Each is begun,
//! grows by parts, and is told by its index. Where all of it can be said as a text and calls,
//! only those are kept; thoughts are signed, so blocks that hold any are kept as they came.

use protocol::conversation::ToolCall;
use protocol::limits;
use protocol::stats::TokenUsage;
use serde::de::IgnoredAny;
use serde_json::{Map, Value, json};

use crate::model::call_ids::CallIds;
use crate::model::fault::Refusal;
use crate::model::lenient::mend_surrogates;
use crate::model::reading::{Assembly, Ending, NoAnswer, Taken};
use crate::model::{FinishKind, ModelReply};

/// An answer as far as it has come.
#[derive(Debug, Default)]
pub(super) struct Assembler {
    blocks: Vec<Block>,
    has_begun: bool,
    finish: Option<String>,
    usage: Usage,
    bytes: usize,
}

/// One block as far as it has come.
#[derive(Debug)]
struct Block {
    index: Option<u64>,
    fields: Map<String, Value>,
    /// The text of a call's parameters, which comes in parts.
    input: String,
}

/// What an answer cost, as far as it was told; each number counts from the beginning.
#[derive(Debug, Default)]
struct Usage {
    input: Option<u64>,
    cache_read: Option<u64>,
    cache_written: Option<u64>,
    output: Option<u64>,
}

impl Assembly for Assembler {
    fn refusal(document: &Value) -> Option<Refusal> {
        let kind = document.get("type").and_then(Value::as_str);
        let explicit = document.get("error").is_some_and(|error| !error.is_null());
        Refusal::in_answer(document).filter(|_| explicit || kind.is_none_or(|kind| kind == "error"))
    }

    fn take_part(&mut self, document: &Value) -> Taken {
        let mut taken = Taken::default();
        match document["type"].as_str().unwrap_or_default() {
            "message_start" => {
                self.has_begun = true;
                self.usage.take(&document["message"]["usage"]);
            }
            "content_block_start" => {
                self.has_begun = true;
                if let Value::Object(fields) = &document["content_block"] {
                    taken.text = self.begin(document["index"].as_u64(), fields.clone());
                }
            }
            "content_block_delta" => {
                taken.text = self.grow(document["index"].as_u64(), &document["delta"]);
            }
            "message_delta" => {
                self.end_with(&document["delta"]["stop_reason"]);
                self.usage.take(&document["usage"]);
            }
            "message_stop" => taken.last_word = true,
            // Keep-alives, the ends of blocks, and whatever comes to be added.
            kind => tracing::trace!(kind, "an event that says nothing new"),
        }
        taken
    }

    fn take_whole(&mut self, document: &Value) -> String {
        self.has_begun = document["content"].is_array();
        let mut text = String::new();
        for block in document["content"].as_array().into_iter().flatten() {
            if let Value::Object(fields) = block {
                text.push_str(&self.begin(None, fields.clone()));
            }
        }
        self.end_with(&document["stop_reason"]);
        self.usage.take(&document["usage"]);
        text
    }

    fn has_content(&self) -> bool {
        !self.blocks.is_empty()
    }

    fn is_too_large(&self) -> bool {
        self.bytes > limits::MODEL_REPLY_BYTES_MAX
    }

    fn is_finished(&self) -> bool {
        self.finish.is_some()
    }

    fn end(self, ending: Ending, ids: &mut CallIds) -> Result<ModelReply, NoAnswer> {
        if !self.has_begun {
            return Err(NoAnswer::Nothing);
        }
        let torn = || self.blocks.iter().any(|block| block.is_torn());
        let finish = match self.finish.as_deref() {
            Some(word @ "refusal") => return Err(NoAnswer::Declined(word.to_owned())),
            Some("max_tokens" | "model_context_window_exceeded") => FinishKind::Length,
            // A pause is the server's; calls of ours in it are to be answered first.
            Some("pause_turn") if !self.blocks.iter().any(Block::is_call) => FinishKind::Paused,
            None if ending == Ending::Silent || torn() => return Err(NoAnswer::Torn),
            // `end_turn`, `tool_use`, `stop_sequence`, and whatever comes to be added.
            Some(_) | None => FinishKind::Done,
        };
        let keep = self.blocks.iter().any(Block::says_more_than_text_and_calls);
        let mut reply = ModelReply {
            content: None,
            reasoning_content: None,
            provider_blocks: Vec::new(),
            tool_calls: Vec::new(),
            finish,
            usage: self.usage.total(),
        };
        for block in self.blocks {
            block.settle(&mut reply, keep, ids)?;
        }
        Ok(reply)
    }
}

impl Assembler {
    /// Begins a block and gives the text that it begins with.
    fn begin(&mut self, index: Option<u64>, fields: Map<String, Value>) -> String {
        let block = Block {
            index,
            fields,
            input: String::new(),
        };
        self.bytes += size_of::<Block>() + Value::Object(block.fields.clone()).to_string().len();
        let text = match block.kind() {
            "text" => block.text("text").to_owned(),
            _ => String::new(),
        };
        self.blocks.push(block);
        text
    }

    /// Adds a part to its block and gives the text in it. A part without a block of its own
    /// begins one, for what it says must not be lost.
    fn grow(&mut self, index: Option<u64>, delta: &Value) -> String {
        let found = self.blocks.iter().rposition(|block| block.index == index);
        let at = match found {
            Some(at) => at,
            None => {
                let kind = match delta["type"].as_str() {
                    Some("thinking_delta" | "signature_delta") => "thinking",
                    Some("input_json_delta") => "tool_use",
                    Some(_) | None => "text",
                };
                let fields = json!({"type": kind}).as_object().cloned();
                self.begin(index, fields.unwrap_or_default());
                self.has_begun = true;
                self.blocks.len() - 1
            }
        };
        let block = &mut self.blocks[at];
        self.bytes += size_of::<Block>();
        let mut add = |name: &str| {
            let part = delta[name].as_str().unwrap_or_default();
            self.bytes += part.len();
            match block.fields.get_mut(name) {
                Some(Value::String(whole)) => whole.push_str(part),
                _ => drop(block.fields.insert(name.to_owned(), part.into())),
            }
            part.to_owned()
        };
        match delta["type"].as_str().unwrap_or_default() {
            "text_delta" => return add("text"),
            "thinking_delta" => drop(add("thinking")),
            "signature_delta" => drop(add("signature")),
            "input_json_delta" => {
                let part = delta["partial_json"].as_str().unwrap_or_default();
                self.bytes += part.len();
                block.input.push_str(part);
            }
            "citations_delta" => {
                let citation = delta["citation"].clone();
                self.bytes += citation.to_string().len();
                match block.fields.get_mut("citations") {
                    Some(Value::Array(list)) => list.push(citation),
                    _ => drop(
                        block
                            .fields
                            .insert("citations".to_owned(), json!([citation])),
                    ),
                }
            }
            kind => tracing::debug!(kind, "a part of an unknown kind is skipped"),
        }
        String::new()
    }

    fn end_with(&mut self, reason: &Value) {
        if let Some(reason) = reason.as_str().filter(|word| !word.is_empty()) {
            self.finish = Some(reason.to_owned());
        }
    }
}

impl Block {
    fn kind(&self) -> &str {
        self.text("type")
    }

    fn text(&self, name: &str) -> &str {
        self.fields
            .get(name)
            .and_then(Value::as_str)
            .unwrap_or_default()
    }

    fn is_call(&self) -> bool {
        self.kind() == "tool_use"
    }

    fn says_more_than_text_and_calls(&self) -> bool {
        !matches!(self.kind(), "text" | "tool_use")
    }

    /// Whether its parameters are there in half.
    fn is_torn(&self) -> bool {
        self.is_call()
            && !self.input.trim().is_empty()
            && serde_json::from_str::<IgnoredAny>(&self.input).is_err()
    }

    /// The text of a call's parameters.
    fn arguments(&self) -> String {
        if !self.input.trim().is_empty() {
            return mend_surrogates(&self.input).into_owned();
        }
        // A server may put them into the beginning of the block, or send none at all.
        match self.fields.get("input") {
            None | Some(Value::Null) => "{}".to_owned(),
            Some(Value::String(text)) => text.clone(),
            Some(input) => input.to_string(),
        }
    }

    /// Adds what it says to `reply`; `keep` says whether the blocks themselves are kept.
    fn settle(
        mut self,
        reply: &mut ModelReply,
        keep: bool,
        ids: &mut CallIds,
    ) -> Result<(), NoAnswer> {
        let add = |all: &mut Option<String>, text: &str| {
            if !text.is_empty() {
                all.get_or_insert_default().push_str(text);
            }
        };
        match self.kind() {
            "tool_use" => {
                if reply.finish == FinishKind::Length && (self.is_torn() || self.input.is_empty()) {
                    return Ok(());
                }
                let name = self.text("name").to_owned();
                if name.is_empty() {
                    return Err(NoAnswer::NamelessCall);
                }
                let sent = Some(self.text("id").to_owned());
                let call = ToolCall::new(ids.assign(sent), name, self.arguments());
                // What it says stands among the calls already.
                self.fields = Map::new();
                self.fields.insert("type".to_owned(), "tool_use".into());
                self.fields.insert("id".to_owned(), call.id.clone().into());
                reply.tool_calls.push(call);
            }
            "text" => {
                add(&mut reply.content, self.text("text"));
                // An empty text is refused when it comes back.
                if self.text("text").is_empty() {
                    return Ok(());
                }
            }
            "thinking" => {
                add(&mut reply.reasoning_content, self.text("thinking"));
                // Cut in the middle of a thought it has no signature, and is refused without one.
                if reply.finish == FinishKind::Length && self.text("signature").is_empty() {
                    return Ok(());
                }
            }
            _ => {}
        }
        if keep {
            reply.provider_blocks.push(Value::Object(self.fields));
        }
        Ok(())
    }
}

impl Usage {
    fn take(&mut self, told: &Value) {
        for (name, slot) in [
            ("input_tokens", &mut self.input),
            ("cache_read_input_tokens", &mut self.cache_read),
            ("cache_creation_input_tokens", &mut self.cache_written),
            ("output_tokens", &mut self.output),
        ] {
            *slot = told.get(name).and_then(Value::as_u64).or(*slot);
        }
    }

    /// All that was sent counts as prompt, from a cache or not.
    fn total(&self) -> Option<TokenUsage> {
        self.input.or(self.output)?;
        let cached = self.cache_read.unwrap_or(0);
        let prompt = self
            .input
            .unwrap_or(0)
            .saturating_add(cached)
            .saturating_add(self.cache_written.unwrap_or(0));
        let completion = self.output.unwrap_or(0);
        Some(TokenUsage {
            prompt,
            completion,
            total: prompt.saturating_add(completion),
            cached,
        })
    }
}

#[cfg(test)]
mod tests;
