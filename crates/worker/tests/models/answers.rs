//! Answers that come as one document.

use protocol::conversation::{Message, ToolCall};
use protocol::stats::TokenUsage;
use serde_json::{Value, json};
use worker::model::{FinishKind, ModelErrorKind, ModelEvent, ModelReply};

use crate::server::{LONG, ModelServer, Outcome, Reply, ask_with, whole};

/// Asks a server that never streams, and says so in its configuration.
async fn asked(replies: Vec<Reply>) -> (Outcome, usize) {
    let server = ModelServer::start(replies).await;
    let mut access = server.access();
    access.spec.stream = false;
    let outcome = ask_with(&access, &[Message::user("go")], LONG).await;
    let seen = server.seen();
    assert!(
        seen[0].body.contains("\"stream\":false"),
        "{}",
        seen[0].body
    );
    assert_eq!(outcome.requests, seen.len() as u64);
    (outcome, seen.len())
}

fn ok(body: &Value) -> Vec<Reply> {
    vec![Reply::json("200 OK", &[], body)]
}

#[tokio::test]
async fn a_whole_answer_is_read() {
    let mut body = whole(
        json!({"role": "assistant", "content": "hi", "reasoning_content": "hm", "tool_calls": [
            {"id": "a", "type": "function", "function": {"name": "w", "arguments": {"path": "x"}}},
            {"id": "a", "type": "function", "function": {"name": "w", "arguments": ""}},
            {"type": "function", "function": {"name": "w", "arguments": "{\"cut\": "}}]}),
        json!("stop"),
    );
    body["usage"] = json!({"prompt_tokens": 7, "completion_tokens": 3});
    let (outcome, _) = asked(ok(&body)).await;
    let wanted = ModelReply {
        content: Some("hi".to_owned()),
        reasoning_content: Some("hm".to_owned()),
        provider_blocks: Vec::new(),
        tool_calls: vec![
            ToolCall::new("a", "w", r#"{"path":"x"}"#),
            ToolCall::new("call00002", "w", ""),
            ToolCall::new("call00003", "w", "{\"cut\": "),
        ],
        finish: FinishKind::Done,
        usage: Some(TokenUsage {
            prompt: 7,
            completion: 3,
            total: 10,
            cached: 0,
        }),
    };
    assert_eq!(outcome.reply, Ok(wanted));
    let sent = ModelEvent::Sent { attempt: 1 };
    assert_eq!(outcome.events, [sent, ModelEvent::Text("hi".to_owned())]);
}

#[tokio::test]
async fn null_and_missing_fields_are_read() {
    // Strict types refused null where they expected a text or a list.
    for (message, content) in [
        (json!({"content": null, "tool_calls": null}), None),
        (json!({"content": "hi", "tool_calls": null}), Some("hi")),
        (json!({"role": "assistant"}), None),
    ] {
        let (outcome, _) = asked(ok(&whole(message.clone(), json!(null)))).await;
        let reply = outcome.reply.unwrap();
        assert_eq!(
            (reply.content.as_deref(), reply.tool_calls),
            (content, vec![]),
            "{message}"
        );
    }
}

#[tokio::test]
async fn an_answer_without_a_choice_is_tried_again_within_bounds() {
    let empty = Reply::json("200 OK", &[], &json!({"choices": []}));
    let good = Reply::json(
        "200 OK",
        &[],
        &whole(json!({"content": "hi"}), json!("stop")),
    );
    let (outcome, requests) = asked(vec![empty.clone(), good]).await;
    assert_eq!(outcome.reply.unwrap().content.as_deref(), Some("hi"));
    assert_eq!(requests, 2);
    let (outcome, requests) = asked(vec![empty]).await;
    let error = outcome.reply.unwrap_err();
    assert_eq!(
        (error.kind, error.requests, requests),
        (ModelErrorKind::BadReply, 3, 3)
    );
    let message = error.message;
    assert!(
        message
            .contains("200 OK (application/json), but there is no choice in it: {\"choices\":[]}"),
        "{message}"
    );
}

#[tokio::test]
async fn a_call_that_the_output_limit_tore_is_left_out() {
    let body = whole(
        json!({"tool_calls": [{"id": "a", "function": {"name": "w", "arguments": "{\"cut\": "}}]}),
        json!("length"),
    );
    let (outcome, requests) = asked(ok(&body)).await;
    let reply = outcome.reply.unwrap();
    assert_eq!(
        (reply.finish, reply.tool_calls),
        (FinishKind::Length, vec![])
    );
    assert_eq!(requests, 1);
}

#[tokio::test]
async fn a_server_that_streams_unasked_is_understood() {
    let stream = Reply::chunks(&[json!({"choices": [{"delta": {"content": "hi"},
        "finish_reason": "stop"}]})]);
    let (outcome, _) = asked(vec![stream]).await;
    assert_eq!(outcome.reply.unwrap().content.as_deref(), Some("hi"));
}

#[tokio::test]
async fn half_an_emoji_in_a_whole_answer_costs_one_character() {
    let body = r#"{"choices":[{"message":{"content":"a\ud83d"},"finish_reason":"stop"}]}"#;
    let head = [
        ("content-type", "application/json"),
        ("connection", "close"),
    ];
    let (outcome, _) = asked(vec![Reply::head("200 OK", &head).bytes(body)]).await;
    assert_eq!(outcome.reply.unwrap().content.as_deref(), Some("a\u{fffd}"));
}
