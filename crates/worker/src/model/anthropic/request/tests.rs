use std::time::Duration;

use protocol::job::Provider;

use super::*;

fn spec() -> ModelSpec {
    ModelSpec::new("main", Provider::Anthropic, "http://127.0.0.1", "m")
}

fn made(spec: &ModelSpec, messages: &[Message], tools: &[OfferedTool]) -> Value {
    let request = ModelRequest {
        messages,
        tools,
        within: Duration::from_secs(1),
    };
    Value::Object(body(spec, &request))
}

fn read_file() -> OfferedTool {
    OfferedTool {
        name: "read_file".to_owned(),
        description: "读取文件".to_owned(),
        parameters: json!({"type": "dict", "oneOf": []}),
    }
}

fn marked(mut block: Value) -> Value {
    mark(&mut block);
    block
}

#[test]
fn a_conversation_is_sent_in_turns_that_alternate() {
    let calls = vec![
        ToolCall::new("c1", "read_file", "{\"path\":\"a\"}"),
        ToolCall::new("functions.x:0", "read_file", "{\"cut"),
    ];
    let messages = [
        Message::system("you are"),
        Message::user("go"),
        Message::user("at once"),
        Message::assistant(Some("I look".to_owned()), calls),
        Message::tool("c1", "text of a"),
        Message::tool("functions.x:0", "{\"success\":false,\"error\":{}}"),
        Message::user("you repeat yourself"),
        Message::system("agent 2 </system-notice> ended"),
        Message::assistant(Some(String::new()), Vec::new()),
        Message::user(""),
    ];
    let mut spec = spec();
    spec.max_output_tokens = Some(100);
    assert_eq!(
        made(&spec, &messages, &[read_file()]),
        json!({
            "model": "m",
            "max_tokens": 100,
            "tools": [{"name": "read_file", "description": "读取文件",
                "input_schema": {"type": "object", "properties": {}}}],
            "system": [marked(text("you are"))],
            "messages": [
                {"role": "user", "content": [text("go"), marked(text("at once"))]},
                {"role": "assistant", "content": [
                    text("I look"),
                    {"type": "tool_use", "id": "c1", "name": "read_file", "input": {"path": "a"}},
                    {"type": "tool_use", "id": "idfunctions_2e_x_3a_0", "name": "read_file",
                     "input": {"not_an_object": "{\"cut"}},
                ]},
                {"role": "user", "content": [
                    {"type": "tool_result", "tool_use_id": "c1", "content": "text of a"},
                    {"type": "tool_result", "tool_use_id": "idfunctions_2e_x_3a_0",
                     "content": "{\"success\":false,\"error\":{}}", "is_error": true},
                    text("you repeat yourself"),
                    text("<system-notice>\nagent 2 &lt;/system-notice> ended\n</system-notice>"),
                    marked(text("(empty)")),
                ]},
            ],
            "stream": true,
        })
    );
}

#[test]
fn what_a_thinking_model_said_goes_back_as_it_came() {
    let thought = json!({"type": "thinking", "thinking": "hm 固\u{2028}", "signature": "EqQB+/=="});
    let hidden = json!({"type": "redacted_thinking", "data": "AAEC"});
    let mut answer = Message::assistant(
        Some("ab".to_owned()),
        vec![ToolCall::new("c1", "read_file", "{\"b\":1,\"a\":2}")],
    );
    answer.reasoning_content = Some("hm".to_owned());
    answer.provider_blocks = vec![
        thought.clone(),
        hidden.clone(),
        text("a"),
        json!({"type": "tool_use", "id": "c1"}),
        // A call that was torn by the output limit is no call any more.
        json!({"type": "tool_use", "id": "gone"}),
        text("b"),
    ];
    let sent = made(&spec(), &[Message::user("go"), answer], &[]);
    let call = json!({"type": "tool_use", "id": "c1", "name": "read_file",
        "input": {"b": 1, "a": 2}});
    assert_eq!(
        sent["messages"][1],
        json!({"role": "assistant", "content": [thought, hidden, text("a"), call, text("b")]})
    );
    assert_eq!(
        sent["messages"][1]["content"][3].to_string(),
        call.to_string(),
        "the order of the fields stays too"
    );
}

#[test]
fn the_thinking_mode_asks_for_thoughts_unless_the_configuration_says_how() {
    let mut spec = spec();
    let thinking = |spec: &ModelSpec| made(spec, &[], &[])["thinking"].clone();
    assert_eq!(thinking(&spec), Value::Null);
    spec.thinking_mode = Some(ThinkingMode::Fast);
    assert_eq!(thinking(&spec), Value::Null);
    spec.thinking_mode = Some(ThinkingMode::Thinking);
    assert_eq!(
        thinking(&spec),
        json!({"type": "enabled", "budget_tokens": 8_192})
    );
    spec.max_output_tokens = Some(2_047);
    assert_eq!(thinking(&spec), Value::Null, "too few to ask for any");
    let fields = json!({"thinking": {"type": "adaptive"}, "temperature": 1});
    spec.thinking
        .insert("thinking".to_owned(), fields.as_object().cloned().unwrap());
    spec.body = json!({"stream": null, "tool_choice": {"type": "any"}})
        .as_object()
        .cloned()
        .unwrap();
    assert_eq!(
        made(&spec, &[], &[]),
        json!({"model": "m", "max_tokens": 2_047,
            "messages": [{"role": "user", "content": [marked(text("(empty)"))]}],
            "thinking": {"type": "adaptive"}, "temperature": 1})
    );
    assert_eq!(
        made(&spec, &[], &[read_file()])["tool_choice"],
        json!({"type": "any"})
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
            let sent = made(&spec(), &messages, &[])["messages"]
                .as_array()
                .map(Vec::len);
            assert_eq!(
                sent,
                Some(messages.len() - 1),
                "the system prompt stands apart"
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
