//! The Messages interface: streams cut anywhere, thoughts that go back as they came, its errors.

use std::time::Duration;

use protocol::conversation::{Message, ToolCall};
use protocol::job::Provider;
use protocol::stats::TokenUsage;
use serde_json::{Value, json};
use worker::model::{Anthropic, FinishKind, ModelErrorKind, ModelEvent, ModelReply};

use crate::server::{LONG, ModelServer, Outcome, Reply, Seen, ask_model};

async fn ask(server: &ModelServer, messages: &[Message]) -> Outcome {
    let mut access = server.access();
    access.spec.provider = Provider::Anthropic;
    let mut model = Anthropic::new(&access).unwrap().with_chance(|| 0.0);
    ask_model(&mut model, messages, LONG).await
}

async fn answered(replies: Vec<Reply>) -> (Outcome, Vec<Seen>) {
    let server = ModelServer::start(replies).await;
    let outcome = ask(&server, &[Message::system("s"), Message::user("go")]).await;
    let seen = server.seen();
    assert_eq!(outcome.requests, seen.len() as u64);
    (outcome, seen)
}

fn events(list: &[Value]) -> String {
    let event = |event: &Value| {
        let kind = event["type"].as_str().unwrap();
        format!("event: {kind}\ndata: {event}\n\n")
    };
    list.iter().map(event).collect()
}

/// As good as they come: a signed thought, a hidden one, text in two parts, two calls, a
/// keep-alive, usage with a cache.
fn good() -> Vec<Value> {
    let start = |index: u64, block: Value| json!({"type": "content_block_start", "index": index, "content_block": block});
    let part = |index: u64, delta: Value| json!({"type": "content_block_delta", "index": index, "delta": delta});
    let end = |index: u64| json!({"type": "content_block_stop", "index": index});
    vec![
        json!({"type": "message_start", "message": {"id": "msg_1", "role": "assistant",
            "content": [], "usage": {"input_tokens": 5, "cache_read_input_tokens": 90,
            "cache_creation_input_tokens": 10, "output_tokens": 1}}}),
        start(
            0,
            json!({"type": "thinking", "thinking": "", "signature": ""}),
        ),
        json!({"type": "ping"}),
        part(0, json!({"type": "thinking_delta", "thinking": "先看"})),
        part(0, json!({"type": "thinking_delta", "thinking": "文件"})),
        part(
            0,
            json!({"type": "signature_delta", "signature": "EqQB+/=="}),
        ),
        end(0),
        start(1, json!({"type": "redacted_thinking", "data": "AAEC"})),
        end(1),
        start(2, json!({"type": "text", "text": ""})),
        part(2, json!({"type": "text_delta", "text": "你"})),
        part(2, json!({"type": "text_delta", "text": "好"})),
        end(2),
        start(
            3,
            json!({"type": "tool_use", "id": "toolu_1", "name": "write_file", "input": {}}),
        ),
        part(3, json!({"type": "input_json_delta", "partial_json": ""})),
        part(
            3,
            json!({"type": "input_json_delta", "partial_json": "{\"path\":"}),
        ),
        part(
            3,
            json!({"type": "input_json_delta", "partial_json": " \"x\"}"}),
        ),
        end(3),
        start(
            4,
            json!({"type": "tool_use", "id": "toolu_1", "name": "list", "input": {}}),
        ),
        end(4),
        json!({"type": "message_delta", "delta": {"stop_reason": "tool_use"},
            "usage": {"output_tokens": 20}}),
        json!({"type": "message_stop"}),
    ]
}

fn good_reply() -> ModelReply {
    ModelReply {
        content: Some("你好".to_owned()),
        reasoning_content: Some("先看文件".to_owned()),
        provider_blocks: vec![
            json!({"type": "thinking", "thinking": "先看文件", "signature": "EqQB+/=="}),
            json!({"type": "redacted_thinking", "data": "AAEC"}),
            json!({"type": "text", "text": "你好"}),
            json!({"type": "tool_use", "id": "toolu_1"}),
            json!({"type": "tool_use", "id": "call00002"}),
        ],
        tool_calls: vec![
            ToolCall::new("toolu_1", "write_file", "{\"path\": \"x\"}"),
            ToolCall::new("call00002", "list", "{}"),
        ],
        finish: FinishKind::Done,
        usage: Some(TokenUsage {
            prompt: 105,
            completion: 20,
            total: 125,
            cached: 90,
        }),
    }
}

#[tokio::test]
async fn a_good_stream_is_read_wherever_its_bytes_are_cut() {
    let text = events(&good());
    for (line_end, size) in [("\n", usize::MAX), ("\n", 7), ("\r\n", 5), ("\r", 11)] {
        let bytes = text.replace('\n', line_end).into_bytes();
        let mut reply = Reply::stream();
        for piece in bytes.chunks(size.min(bytes.len())) {
            reply = reply.bytes(piece);
        }
        let (outcome, seen) = answered(vec![reply]).await;
        assert_eq!(outcome.reply, Ok(good_reply()), "{line_end:?} {size}");
        assert_eq!(
            outcome.events,
            [
                ModelEvent::Sent { attempt: 1 },
                ModelEvent::Text("你".to_owned()),
                ModelEvent::Text("好".to_owned())
            ]
        );
        let head = seen[0].head.to_lowercase();
        assert!(head.starts_with("post /v1/messages http/1.1\r\n"), "{head}");
        for line in ["x-api-key: sk-secret-key", "anthropic-version: 2023-06-01"] {
            assert!(head.lines().any(|found| found == line), "{head}");
        }
        assert!(!head.contains("authorization"), "{head}");
    }
}

#[tokio::test]
async fn an_answer_in_one_piece_is_the_same() {
    let body = json!({"type": "message", "role": "assistant", "content": [
        {"type": "thinking", "thinking": "先看文件", "signature": "EqQB+/=="},
        {"type": "redacted_thinking", "data": "AAEC"},
        {"type": "text", "text": "你好"},
        {"type": "tool_use", "id": "toolu_1", "name": "write_file", "input": {"path": "x"}},
        {"type": "tool_use", "id": "toolu_1", "name": "list"}],
        "stop_reason": "tool_use",
        "usage": {"input_tokens": 5, "cache_read_input_tokens": 90,
            "cache_creation_input_tokens": 10, "output_tokens": 20}});
    let (outcome, _) = answered(vec![Reply::json("200 OK", &[], &body)]).await;
    let mut wanted = good_reply();
    wanted.tool_calls[0].function.arguments = "{\"path\":\"x\"}".to_owned();
    assert_eq!(outcome.reply, Ok(wanted));
}

#[tokio::test]
async fn thoughts_go_back_to_the_byte() {
    // The provider signs its thoughts and refuses a conversation in which one byte is another.
    let server = ModelServer::start(vec![Reply::stream().bytes(events(&good()))]).await;
    let first = ask(&server, &[Message::user("go")]).await.reply.unwrap();
    let mut answer = Message::assistant(first.content, first.tool_calls);
    answer.reasoning_content = first.reasoning_content;
    answer.provider_blocks = first.provider_blocks;
    // As a run that is resumed reads it.
    let answer: Message = serde_json::from_str(&serde_json::to_string(&answer).unwrap()).unwrap();
    let messages = [
        Message::user("go"),
        answer,
        Message::tool("toolu_1", "done"),
        Message::tool("call00002", "a b"),
    ];
    ask(&server, &messages).await.reply.unwrap();
    let body: Value = serde_json::from_str(&server.seen()[1].body).unwrap();
    assert_eq!(
        body["messages"][1]["content"],
        json!([
            {"type": "thinking", "thinking": "先看文件", "signature": "EqQB+/=="},
            {"type": "redacted_thinking", "data": "AAEC"},
            {"type": "text", "text": "你好"},
            {"type": "tool_use", "id": "toolu_1", "name": "write_file", "input": {"path": "x"}},
            {"type": "tool_use", "id": "call00002", "name": "list", "input": {}},
        ])
    );
    let ids: Vec<&Value> = body["messages"][2]["content"]
        .as_array()
        .unwrap()
        .iter()
        .map(|block| &block["tool_use_id"])
        .collect();
    assert_eq!(ids, ["toolu_1", "call00002"]);
}

#[tokio::test]
async fn a_busy_server_is_tried_again_and_a_wish_is_kept() {
    let busy = |kind: &str| json!({"type": "error", "error": {"type": kind, "message": "later"}});
    let good = || Reply::stream().bytes(events(&good()));
    let overloaded = Reply::json("529 Overloaded", &[], &busy("overloaded_error"));
    let limited = Reply::json(
        "429 Too Many Requests",
        &[("retry-after", "0.2")],
        &busy("rate_limit_error"),
    );
    // The same inside a stream that began well.
    let inside = Reply::stream().bytes(events(&[good_start(), busy("overloaded_error")]));
    let began = std::time::Instant::now();
    let (outcome, seen) = answered(vec![overloaded, limited, inside, good()]).await;
    assert_eq!(outcome.reply, Ok(good_reply()));
    assert_eq!(seen.len(), 4);
    assert!(began.elapsed() >= Duration::from_millis(200));
}

fn good_start() -> Value {
    good().remove(0)
}

#[tokio::test]
async fn what_never_helps_is_not_tried_again_and_says_why() {
    for (status, kind, message, wanted, words) in [
        (
            "401 Unauthorized",
            "authentication_error",
            "invalid x-api-key sk-secret-key",
            ModelErrorKind::Auth,
            "invalid x-api-key [hidden]",
        ),
        (
            "400 Bad Request",
            "invalid_request_error",
            "prompt is too long: 210000 tokens > 200000 maximum",
            ModelErrorKind::ContextTooLong,
            "prompt is too long",
        ),
        (
            "413 Payload Too Large",
            "request_too_large",
            "over 32 MB",
            ModelErrorKind::ContextTooLong,
            "over 32 MB",
        ),
        (
            "400 Bad Request",
            "invalid_request_error",
            "max_tokens: too many",
            ModelErrorKind::Refused,
            "max_tokens: too many (invalid_request_error)",
        ),
        (
            "403 Forbidden",
            "permission_error",
            "not yours",
            ModelErrorKind::Auth,
            "not yours",
        ),
    ] {
        let body = json!({"type": "error", "error": {"type": kind, "message": message}});
        let (outcome, seen) = answered(vec![Reply::json(status, &[], &body)]).await;
        let error = outcome.reply.unwrap_err();
        assert_eq!((error.kind, seen.len()), (wanted, 1), "{}", error.message);
        assert!(error.message.contains(words), "{}", error.message);
        assert!(!error.message.contains("sk-secret"), "{}", error.message);
    }
}

#[tokio::test]
async fn a_refusal_of_the_model_is_a_failure_with_its_word() {
    let mut refused = good();
    let at = refused.len() - 2;
    refused[at]["delta"]["stop_reason"] = json!("refusal");
    let (outcome, seen) = answered(vec![Reply::stream().bytes(events(&refused))]).await;
    let error = outcome.reply.unwrap_err();
    assert_eq!((error.kind, seen.len()), (ModelErrorKind::Refused, 1));
    assert!(
        error.message.contains("declined to answer (`refusal`)"),
        "{error}"
    );
}

#[tokio::test]
async fn a_stream_that_breaks_inside_a_call_is_tried_once_more() {
    let cut = || Reply::stream().bytes(events(&good()[..17]));
    let (outcome, seen) = answered(vec![cut()]).await;
    let error = outcome.reply.unwrap_err();
    assert_eq!(
        (error.kind, seen.len()),
        (ModelErrorKind::Cut, 2),
        "{error}"
    );
    let whole = Reply::stream().bytes(events(&good()));
    let (outcome, _) = answered(vec![cut(), whole]).await;
    assert_eq!(outcome.reply, Ok(good_reply()));
}

#[tokio::test]
async fn the_reason_for_the_end_is_enough_without_the_last_word() {
    let reply = Reply::stream().bytes(events(&good()[..21]));
    let (outcome, _) = answered(vec![reply]).await;
    assert_eq!(outcome.reply, Ok(good_reply()));
}
