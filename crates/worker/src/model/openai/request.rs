//! The body of a request.

use protocol::conversation::{Message, Role, ToolCall};
use protocol::job::{EmptyContent, ModelSpec};
use serde_json::{Map, Value, json};

use crate::model::schema::{Dialect, plain};
use crate::model::{ModelRequest, OfferedTool};

/// Makes the body. What `thinking` says for the thinking mode, and then what `body` says, stands
/// over our own fields; a null there takes a field away, for servers that refuse it.
pub(super) fn body(spec: &ModelSpec, request: &ModelRequest<'_>) -> Map<String, Value> {
    let mut body = Map::new();
    let messages = request.messages.iter().map(|m| message(spec, m)).collect();
    body.insert("model".to_owned(), spec.model.clone().into());
    body.insert("messages".to_owned(), Value::Array(messages));
    if !request.tools.is_empty() {
        body.insert("tools".to_owned(), request.tools.iter().map(tool).collect());
    }
    body.insert("stream".to_owned(), spec.stream.into());
    if spec.stream {
        let options = json!({"include_usage": true});
        body.insert("stream_options".to_owned(), options);
    }
    if let Some(tokens) = spec.max_output_tokens {
        body.insert("max_tokens".to_owned(), tokens.into());
    }
    let mode = spec.thinking_mode.map(|mode| mode.as_str());
    let thinking = mode.and_then(|mode| spec.thinking.get(mode));
    for (name, value) in thinking.into_iter().flatten().chain(&spec.body) {
        if value.is_null() {
            body.shift_remove(name);
        } else {
            body.insert(name.clone(), value.clone());
        }
    }
    if request.tools.is_empty() {
        // Both are refused where there is no tool to choose.
        body.shift_remove("tool_choice");
        body.shift_remove("parallel_tool_calls");
    }
    body
}

/// The same question, asked so that another answer can come of it: a local server with the same
/// seed, or with no chance at all, writes the same unusable words again.
pub(super) fn varied(body: &Map<String, Value>, variation: u32) -> Map<String, Value> {
    let mut varied = body.clone();
    let seed = body.get("seed").and_then(Value::as_i64).unwrap_or(0);
    varied.insert("seed".to_owned(), (seed + i64::from(variation)).into());
    let temperature = body.get("temperature").and_then(Value::as_f64);
    if temperature.is_some_and(|temperature| temperature < VARIED_TEMPERATURE_MIN) {
        varied.insert("temperature".to_owned(), VARIED_TEMPERATURE_MIN.into());
    }
    varied
}

/// Below it a seed makes little difference.
const VARIED_TEMPERATURE_MIN: f64 = 0.4;

fn tool(tool: &OfferedTool) -> Value {
    json!({"type": "function", "function": {
        "name": tool.name, "description": tool.description,
        "parameters": plain(&tool.parameters, Dialect::Chat)}})
}

fn message(spec: &ModelSpec, message: &Message) -> Value {
    let content = message.content.as_deref();
    match message.role {
        Role::System => json!({"role": "system", "content": content.unwrap_or("")}),
        Role::User => json!({"role": "user", "content": content.unwrap_or("")}),
        Role::Tool => json!({
            "role": "tool",
            "tool_call_id": message.tool_call_id.as_deref().unwrap_or(""),
            "content": content.unwrap_or(""),
        }),
        Role::Assistant => assistant(spec, message),
    }
}

fn assistant(spec: &ModelSpec, message: &Message) -> Value {
    let text = message.content.as_deref().filter(|text| !text.is_empty());
    let mut fields = Map::new();
    fields.insert("role".to_owned(), "assistant".into());
    // The key is always there: one provider refuses a message without it, one refuses null, one
    // refuses an empty text. An answer with neither text nor call can only be an empty text.
    let content = match (text, spec.empty_content) {
        (Some(text), _) => text.into(),
        (None, EmptyContent::Null) if !message.tool_calls.is_empty() => Value::Null,
        (None, EmptyContent::Null | EmptyContent::Empty) => "".into(),
    };
    fields.insert("content".to_owned(), content);
    if !message.tool_calls.is_empty() {
        // A thinking model wants its thoughts back with its calls, and some refuse them
        // elsewhere.
        if let Some(thoughts) = message.reasoning_content.as_deref()
            && spec.send_reasoning
        {
            fields.insert("reasoning_content".to_owned(), thoughts.into());
        }
        let calls = message.tool_calls.iter().map(call).collect();
        fields.insert("tool_calls".to_owned(), Value::Array(calls));
    }
    Value::Object(fields)
}

fn call(call: &ToolCall) -> Value {
    json!({"id": call.id, "type": "function", "function": {
        "name": call.function.name, "arguments": arguments_sent_back(&call.function.arguments)}})
}

/// A call's arguments as they go back: always the text of an object. Servers that feed them to a
/// chat template parse them first, and one call that is no object would make them refuse the
/// conversation from then on.
fn arguments_sent_back(arguments: &str) -> String {
    if arguments.trim().is_empty() {
        return "{}".to_owned();
    }
    match serde_json::from_str(arguments) {
        Ok(Value::Object(_)) => arguments.to_owned(),
        Ok(Value::String(inner))
            if matches!(serde_json::from_str(&inner), Ok(Value::Object(_))) =>
        {
            inner
        }
        Ok(_) | Err(_) => json!({"not_an_object": arguments}).to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use protocol::job::Provider;
    use protocol::status::ThinkingMode;
    use std::time::Duration;

    fn spec() -> ModelSpec {
        ModelSpec::new("main", Provider::Openai, "http://127.0.0.1/v1", "m")
    }

    fn made(spec: &ModelSpec, messages: &[Message], tools: &[OfferedTool]) -> Value {
        let within = Duration::from_secs(1);
        let request = ModelRequest {
            messages,
            tools,
            within,
        };
        Value::Object(body(spec, &request))
    }

    fn read_file() -> OfferedTool {
        OfferedTool {
            name: "read_file".to_owned(),
            description: "读取文件".to_owned(),
            parameters: json!({"type": "object"}),
        }
    }

    #[test]
    fn a_conversation_is_sent_in_the_chat_shape() {
        let mut answer = Message::assistant(
            None,
            vec![ToolCall::new("c1", "read_file", "{\"path\":\"a\"}")],
        );
        answer.reasoning_content = Some("think".to_owned());
        let mut thought_only = Message::assistant(Some("hi".to_owned()), Vec::new());
        thought_only.reasoning_content = Some("think".to_owned());
        let messages = [
            Message::system("s"),
            Message::user("u"),
            answer,
            Message::tool("c1", "r"),
            thought_only,
            Message::assistant(None, Vec::new()),
        ];
        let mut spec = spec();
        spec.max_output_tokens = Some(100);
        assert_eq!(
            made(&spec, &messages, &[read_file()]),
            json!({
                "model": "m",
                "messages": [
                    {"role": "system", "content": "s"},
                    {"role": "user", "content": "u"},
                    {"role": "assistant", "content": null, "reasoning_content": "think",
                     "tool_calls": [{"id": "c1", "type": "function", "function":
                        {"name": "read_file", "arguments": "{\"path\":\"a\"}"}}]},
                    {"role": "tool", "tool_call_id": "c1", "content": "r"},
                    {"role": "assistant", "content": "hi"},
                    {"role": "assistant", "content": ""},
                ],
                "tools": [{"type": "function", "function": {"name": "read_file",
                    "description": "读取文件",
                    "parameters": {"type": "object", "properties": {}}}}],
                "stream": true,
                "stream_options": {"include_usage": true},
                "max_tokens": 100,
            })
        );
        spec.send_reasoning = false;
        spec.empty_content = EmptyContent::Empty;
        let sent = made(&spec, &messages[2..3], &[]);
        assert_eq!(
            sent["messages"][0],
            json!({"role": "assistant", "content": "", "tool_calls": [{"id": "c1",
                "type": "function",
                "function": {"name": "read_file", "arguments": "{\"path\":\"a\"}"}}]})
        );
    }

    #[test]
    fn extra_fields_come_last_and_null_takes_a_field_away() {
        let fields = |value: Value| value.as_object().cloned().unwrap();
        let mut spec = spec();
        spec.thinking_mode = Some(ThinkingMode::Fast);
        spec.thinking.insert(
            "fast".to_owned(),
            fields(json!({"enable_thinking": false, "temperature": 0.5})),
        );
        spec.thinking
            .insert("thinking".to_owned(), fields(json!({"other": 1})));
        spec.body = fields(json!({"temperature": 0, "stream_options": null,
            "tool_choice": "required", "parallel_tool_calls": false}));
        assert_eq!(
            made(&spec, &[], &[]),
            json!({"model": "m", "messages": [], "stream": true, "enable_thinking": false,
                "temperature": 0})
        );
        let with_tool = made(&spec, &[], &[read_file()]);
        assert_eq!(with_tool["tool_choice"], json!("required"));
        assert_eq!(with_tool["parallel_tool_calls"], json!(false));
        spec.stream = false;
        spec.body.clear();
        spec.thinking_mode = None;
        assert_eq!(
            made(&spec, &[], &[]),
            json!({"model": "m", "messages": [], "stream": false})
        );
    }

    #[test]
    fn a_long_conversation_is_made_in_linear_time() {
        // The shortest of some rounds is the cost without what else the machine does.
        let cost = |turns: usize| {
            let mut messages = vec![Message::system("s"), Message::user("u")];
            for turn in 0..turns {
                let id = format!("c{turn}");
                let call = ToolCall::new(id.clone(), "read_file", "{\"path\":\"a\"}");
                messages.push(Message::assistant(None, vec![call]));
                messages.push(Message::tool(id, "x".repeat(100)));
            }
            let round = || {
                let began = std::time::Instant::now();
                assert_eq!(
                    made(&spec(), &messages, &[])["messages"]
                        .as_array()
                        .map(Vec::len),
                    Some(messages.len())
                );
                began.elapsed()
            };
            (0..8).map(|_| round()).min().unwrap()
        };
        let (short, long) = (cost(1_000), cost(8_000));
        // Eight times the messages; a quadratic cost would be 64 times as much.
        assert!(
            long < short * 24,
            "{short:?} for 2000 messages, {long:?} for 16000"
        );
    }

    #[test]
    fn a_varied_question_has_another_seed_and_some_chance() {
        let fields = |value: Value| value.as_object().cloned().unwrap();
        for (body, variation, wanted) in [
            (json!({"model": "m"}), 1, json!({"model": "m", "seed": 1})),
            (
                json!({"seed": 7, "temperature": 0}),
                2,
                json!({"seed": 9, "temperature": 0.4}),
            ),
            (
                json!({"temperature": 0.8}),
                1,
                json!({"temperature": 0.8, "seed": 1}),
            ),
        ] {
            assert_eq!(varied(&fields(body), variation), fields(wanted));
        }
    }

    #[test]
    fn arguments_go_back_as_the_text_of_an_object() {
        for (arguments, wanted) in [
            (r#"{"a": 1 }"#, r#"{"a": 1 }"#),
            ("", "{}"),
            (" ", "{}"),
            (r#""{\"a\":1}""#, r#"{"a":1}"#),
            ("null", r#"{"not_an_object":"null"}"#),
            ("[]", r#"{"not_an_object":"[]"}"#),
            (r#""a.txt""#, r#"{"not_an_object":"\"a.txt\""}"#),
            (r#"{"a": "cu"#, r#"{"not_an_object":"{\"a\": \"cu"}"#),
        ] {
            assert_eq!(arguments_sent_back(arguments), wanted);
        }
    }
}
