//! The body of a request to the Messages interface.
//!
//! Turns of user and assistant alternate there: what stands side by side is merged. Results of
//! tools are parts of the user's turn, instructions stand apart, and what was kept of a thinking
//! model's answer goes back as it came.

use std::borrow::Cow;
use std::fmt::Write;

use protocol::conversation::{Message, Role, ToolCall};
use protocol::job::ModelSpec;
use protocol::limits;
use protocol::status::ThinkingMode;
use serde_json::{Map, Value, json};

use crate::model::schema::{Dialect, plain};
use crate::model::{ModelRequest, OfferedTool};

/// Stands for a text that is empty, which is refused.
const EMPTY_TEXT: &str = "(empty)";
/// Turns of the user, counted from the last, whose end is remembered by the server: the newest for
/// the next request, and the one before it, where this request finds what the last one stored.
const TURNS_CACHED: usize = 2;

/// Makes the body. What `thinking` says for the thinking mode, and then what `body` says, stands
/// over our own fields; a null there takes a field away.
pub(super) fn body(spec: &ModelSpec, request: &ModelRequest<'_>) -> Map<String, Value> {
    let output_tokens = spec
        .max_output_tokens
        .unwrap_or(limits::MODEL_OUTPUT_TOKENS_DEFAULT);
    let instructions = request
        .messages
        .iter()
        .take_while(|message| message.role == Role::System)
        .count();
    let (head, rest) = request.messages.split_at(instructions);
    let mut body = Map::new();
    body.insert("model".to_owned(), spec.model.clone().into());
    body.insert("max_tokens".to_owned(), output_tokens.into());
    if !request.tools.is_empty() {
        body.insert("tools".to_owned(), request.tools.iter().map(tool).collect());
    }
    if let Some(system) = system(head) {
        body.insert("system".to_owned(), system);
    }
    body.insert("messages".to_owned(), conversation(rest));
    body.insert("stream".to_owned(), spec.stream.into());
    if let Some(thinking) = thinking(spec, output_tokens) {
        body.insert("thinking".to_owned(), thinking);
    }
    let mode = spec.thinking_mode.map(ThinkingMode::as_str);
    let configured = mode.and_then(|mode| spec.thinking.get(mode));
    for (name, value) in configured.into_iter().flatten().chain(&spec.body) {
        if value.is_null() {
            body.shift_remove(name);
        } else {
            body.insert(name.clone(), value.clone());
        }
    }
    if request.tools.is_empty() {
        body.shift_remove("tool_choice");
    }
    body
}

/// The thoughts that are asked for where the configuration does not say how: half of the answer.
fn thinking(spec: &ModelSpec, output_tokens: u32) -> Option<Value> {
    let budget = output_tokens / 2;
    let wanted = spec.thinking_mode == Some(ThinkingMode::Thinking)
        && budget >= limits::MODEL_THINKING_TOKENS_MIN;
    wanted.then(|| json!({"type": "enabled", "budget_tokens": budget}))
}

fn tool(tool: &OfferedTool) -> Value {
    json!({"name": tool.name, "description": tool.description,
        "input_schema": plain(&tool.parameters, Dialect::Messages)})
}

/// The instructions; the tools stand before them for the server, so that its mark behind them is
/// for both.
fn system(messages: &[Message]) -> Option<Value> {
    let mut blocks: Vec<Value> = messages
        .iter()
        .filter_map(|message| message.content.as_deref())
        .filter(|text| !text.is_empty())
        .map(text)
        .collect();
    mark(blocks.last_mut()?);
    Some(Value::Array(blocks))
}

/// One turn as it is sent.
struct Turn {
    role: &'static str,
    blocks: Vec<Value>,
}

fn conversation(messages: &[Message]) -> Value {
    let mut turns: Vec<Turn> = Vec::new();
    for message in messages {
        let (role, blocks) = match message.role {
            Role::Assistant => ("assistant", assistant(message)),
            Role::User => ("user", vec![text(said(message))]),
            Role::System => ("user", vec![text(&notice(said(message)))]),
            Role::Tool => ("user", vec![result(message)]),
        };
        match turns.last_mut().filter(|last| last.role == role) {
            Some(last) => last.blocks.extend(blocks),
            // An answer that said nothing at all is left out: no block may be empty.
            None if blocks.is_empty() => {}
            None => turns.push(Turn { role, blocks }),
        }
    }
    if turns.first().is_none_or(|first| first.role != "user") {
        let blocks = vec![text(EMPTY_TEXT)];
        turns.insert(
            0,
            Turn {
                role: "user",
                blocks,
            },
        );
    }
    let users = turns.iter_mut().rev().filter(|turn| turn.role == "user");
    for last in users
        .take(TURNS_CACHED)
        .filter_map(|turn| turn.blocks.last_mut())
    {
        mark(last);
    }
    let turns = turns.into_iter();
    turns
        .map(|turn| json!({"role": turn.role, "content": turn.blocks}))
        .collect()
}

/// Says that the server is to remember everything up to here.
fn mark(block: &mut Value) {
    block["cache_control"] = json!({"type": "ephemeral"});
}

fn said(message: &Message) -> &str {
    message
        .content
        .as_deref()
        .filter(|text| !text.trim().is_empty())
        .unwrap_or(EMPTY_TEXT)
}

fn text(text: &str) -> Value {
    json!({"type": "text", "text": text})
}

/// Instructions in the middle of a conversation, which only a user's turn can carry there. The
/// mark tells them from what a user says, and nothing inside them can close it.
fn notice(text: &str) -> String {
    let text = text.replace("</system-notice", "&lt;/system-notice");
    format!("<system-notice>\n{text}\n</system-notice>")
}

fn result(message: &Message) -> Value {
    let content = said(message);
    let id = message.tool_call_id.as_deref().unwrap_or_default();
    let mut block = json!({"type": "tool_result", "tool_use_id": id_sent(id), "content": content});
    if content.starts_with("{\"success\":false") {
        block["is_error"] = true.into();
    }
    block
}

fn assistant(message: &Message) -> Vec<Value> {
    let calls = &message.tool_calls;
    if message.provider_blocks.is_empty() {
        let words = message.content.as_deref().filter(|t| !t.trim().is_empty());
        let words = words.map(text).into_iter();
        return words.chain(calls.iter().map(call)).collect();
    }
    let is_call = |block: &Value| block["type"] == "tool_use";
    let named = |id: &str| calls.iter().find(|call| call.id == id);
    // A call that was kept but is none any more (its answer was cut) has no result to come.
    let kept = message.provider_blocks.iter().filter_map(|block| {
        if is_call(block) {
            named(block["id"].as_str()?).map(call)
        } else {
            Some(block.clone())
        }
    });
    kept.collect()
}

fn call(call: &ToolCall) -> Value {
    json!({"type": "tool_use", "id": id_sent(&call.id), "name": call.function.name,
        "input": input(&call.function.arguments)})
}

/// A call's parameters as they go back: always an object, for nothing else is taken.
fn input(arguments: &str) -> Value {
    if arguments.trim().is_empty() {
        return json!({});
    }
    match serde_json::from_str(arguments) {
        Ok(object @ Value::Object(_)) => object,
        Ok(Value::String(inner)) => match serde_json::from_str(&inner) {
            Ok(object @ Value::Object(_)) => object,
            Ok(_) | Err(_) => json!({"not_an_object": arguments}),
        },
        Ok(_) | Err(_) => json!({"not_an_object": arguments}),
    }
}

/// An id as this interface takes it: letters, digits, `_` and `-`. Ids of a conversation that was
/// begun with another provider may hold more.
fn id_sent(id: &str) -> Cow<'_, str> {
    let fits = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    if !id.is_empty() && id.chars().all(fits) {
        return Cow::Borrowed(id);
    }
    let mut sent = String::from("id");
    for c in id.chars() {
        if fits(c) {
            sent.push(c);
        } else {
            // Writing to a text can't fail.
            write!(sent, "_{:x}_", u32::from(c)).ok();
        }
    }
    Cow::Owned(sent)
}

#[cfg(test)]
mod tests;
