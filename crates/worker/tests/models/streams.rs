//! Streams, and the ways in which servers cut calls to pieces.

use std::time::{Duration, Instant};

use protocol::conversation::{Message, ToolCall};
use protocol::stats::TokenUsage;
use serde_json::{Value, json};
use worker::model::{FinishKind, ModelEvent, ModelReply};

use crate::server::{LONG, ModelServer, Reply, answered, ask, ask_with, delta, finish};

fn text_reply(text: &str) -> ModelReply {
    ModelReply {
        content: Some(text.to_owned()),
        reasoning_content: None,
        provider_blocks: Vec::new(),
        tool_calls: Vec::new(),
        finish: FinishKind::Done,
        usage: None,
    }
}

fn call(index: Value, id: Value, name: Value, arguments: Value) -> Value {
    json!({"index": index, "id": id, "type": "function",
        "function": {"name": name, "arguments": arguments}})
}

fn calls(calls: &[Value]) -> Value {
    delta(json!({"tool_calls": calls}))
}

/// A stream as good as they come: text in two parts, thoughts, two calls, usage.
fn good_stream() -> Vec<Value> {
    vec![
        delta(json!({"role": "assistant", "content": ""})),
        delta(json!({"reasoning_content": "hm"})),
        delta(json!({"content": "你"})),
        delta(json!({"content": "好"})),
        calls(&[call(json!(0), json!("a"), json!("write_file"), json!(""))]),
        calls(&[json!({"index": 0, "function": {"arguments": "{\"path\":"}})]),
        calls(&[json!({"index": 0, "function": {"arguments": "\"x\"}"}})]),
        calls(&[call(json!(1), json!("b"), json!("read_file"), json!("{}"))]),
        finish(json!("tool_calls")),
        json!({"choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": 3,
            "total_tokens": 10}}),
    ]
}

fn good_reply() -> ModelReply {
    ModelReply {
        reasoning_content: Some("hm".to_owned()),
        tool_calls: vec![
            ToolCall::new("a", "write_file", r#"{"path":"x"}"#),
            ToolCall::new("b", "read_file", "{}"),
        ],
        usage: Some(TokenUsage {
            prompt: 7,
            completion: 3,
            total: 10,
            cached: 0,
        }),
        ..text_reply("你好")
    }
}

#[tokio::test]
async fn a_good_stream_is_read_and_the_request_is_in_order() {
    let (outcome, seen) = answered(vec![Reply::chunks(&good_stream())]).await;
    assert_eq!(outcome.reply, Ok(good_reply()));
    assert_eq!(
        outcome.events,
        [
            ModelEvent::Sent { attempt: 1 },
            ModelEvent::Text("你".to_owned()),
            ModelEvent::Text("好".to_owned())
        ]
    );
    let head = seen[0].head.to_lowercase();
    assert!(
        head.starts_with("post /v1/chat/completions http/1.1\r\n"),
        "{head}"
    );
    for line in [
        "authorization: bearer sk-secret-key",
        "content-type: application/json",
        concat!("user-agent: muster-worker/", env!("CARGO_PKG_VERSION")),
    ] {
        assert_eq!(
            head.lines().filter(|found| *found == line).count(),
            1,
            "{head}"
        );
    }
    // Sent raw: an escape of each character would cost twice the bytes.
    assert!(seen[0].body.contains("写文件"), "{}", seen[0].body);
    assert!(!seen[0].body.contains("sk-secret-key"));
}

#[tokio::test]
async fn every_line_end_and_every_cut_gives_the_same_answer() {
    // A parser that split at two LF only got not a single event out of a stream with CRLF.
    let text: String = good_stream()
        .iter()
        .map(|chunk| format!("data: {chunk}\n\n"))
        .chain(["data: [DONE]\n\n".to_owned()])
        .collect();
    for line_end in ["\r\n", "\r", "\n"] {
        let bytes = text.replace('\n', line_end).into_bytes();
        let mut reply = Reply::stream();
        for piece in bytes.chunks(7) {
            reply = reply.bytes(piece);
        }
        let (outcome, _) = answered(vec![reply]).await;
        assert_eq!(outcome.reply, Ok(good_reply()), "{line_end:?}");
    }
    // CR and LF in two packets.
    let (before, after) = text.split_once("\n\n").unwrap();
    let reply = Reply::stream()
        .bytes(format!("{before}\r"))
        .bytes(format!("\n\r\n{after}"));
    let (outcome, _) = answered(vec![reply]).await;
    assert_eq!(outcome.reply, Ok(good_reply()));
}

#[tokio::test]
async fn keep_alives_and_unknown_events_are_skipped() {
    // A comment line once ended the stream, or went into the JSON parser.
    let keep_alive = ": OPENROUTER PROCESSING\n\nevent: ping\ndata: {}\n\ndata: : ping\n\n";
    let mut reply = Reply::stream().bytes(keep_alive);
    for chunk in good_stream() {
        reply = reply.bytes(format!("data: {chunk}\n\n{keep_alive}"));
    }
    let (outcome, _) = answered(vec![reply.bytes("data: [DONE]\n\n")]).await;
    assert_eq!(outcome.reply, Ok(good_reply()));
}

#[tokio::test]
async fn usage_beside_an_empty_list_of_choices_is_counted() {
    // The first of no choices was looked at, and the client crashed.
    let usage = json!({"choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": 3,
        "total_tokens": 10}});
    let said = [delta(json!({"content": "hi"})), finish(json!("stop"))];
    let wanted = ModelReply {
        usage: Some(TokenUsage {
            prompt: 7,
            completion: 3,
            total: 10,
            cached: 0,
        }),
        ..text_reply("hi")
    };
    let last = [said.as_slice(), std::slice::from_ref(&usage)].concat();
    let first = [std::slice::from_ref(&usage), said.as_slice()].concat();
    for chunks in [last, first] {
        let (outcome, _) = answered(vec![Reply::chunks(&chunks)]).await;
        assert_eq!(outcome.reply, Ok(wanted.clone()));
    }
}

/// What is odd, the chunks, and the calls that they come to.
type Row = (&'static str, Vec<Value>, Vec<(&'static str, &'static str)>);

#[tokio::test]
async fn calls_are_put_together_whatever_their_numbers_and_names() {
    let a = r#"{"path":"a"}"#;
    let b = r#"{"path":"b"}"#;
    let (a1, a2) = a.split_at(6);
    let none = Value::Null;
    let w = || json!("write_file");
    let bare =
        |index: Value, arguments: &str| call(index, Value::Null, Value::Null, json!(arguments));
    let one = vec![("write_file", a)];
    let two = vec![("write_file", a), ("write_file", b)];
    let table: Vec<Row> = vec![
        // The chat hung because a call without a number was dropped.
        (
            "no number",
            vec![
                calls(&[json!({"id": "c1", "function": {"name": "write_file", "arguments": a1}})]),
                calls(&[json!({"function": {"arguments": a2}})]),
            ],
            one.clone(),
        ),
        // Lists with holes gave an empty call, or an index error.
        (
            "number 1",
            vec![
                calls(&[call(json!(1), json!("c1"), w(), json!(a1))]),
                calls(&[bare(json!(1), a2)]),
            ],
            one.clone(),
        ),
        (
            "numbers 3 and 7, in turns",
            vec![
                calls(&[call(json!(3), json!("c1"), w(), json!(a1))]),
                calls(&[call(json!(7), json!("c2"), w(), json!(b))]),
                calls(&[bare(json!(3), a2)]),
            ],
            two.clone(),
        ),
        (
            "two whole calls, both number 0",
            vec![
                calls(&[call(json!(0), json!("c1"), w(), json!(a))]),
                calls(&[call(json!(0), json!("c2"), w(), json!(b))]),
            ],
            two.clone(),
        ),
        (
            "two calls in one chunk, no number and no id",
            vec![calls(&[
                call(none.clone(), none.clone(), w(), json!(a)),
                call(none.clone(), none.clone(), w(), json!(b)),
            ])],
            two.clone(),
        ),
        (
            "two calls in two chunks, number 0, no id",
            vec![
                calls(&[call(json!(0), none.clone(), w(), json!(a))]),
                calls(&[call(json!(0), none.clone(), w(), json!(b))]),
            ],
            two.clone(),
        ),
        (
            "two calls without arguments in one chunk, both number 0",
            vec![calls(&[
                call(json!(0), json!("c1"), json!("list"), json!("")),
                call(json!(0), json!("c2"), json!("list"), json!("")),
            ])],
            vec![("list", ""), ("list", "")],
        ),
        // The name became write_filewrite_file.
        (
            "id and name in each chunk",
            vec![
                calls(&[call(json!(0), json!("c1"), w(), json!(a1))]),
                calls(&[call(json!(0), json!("c1"), w(), json!(a2))]),
                calls(&[call(json!(0), json!("c1"), w(), json!(""))]),
            ],
            one.clone(),
        ),
        (
            "name in each chunk, no number, no id",
            vec![
                calls(&[call(none.clone(), none.clone(), w(), json!(a1))]),
                calls(&[call(none.clone(), none.clone(), w(), json!(a2))]),
            ],
            one.clone(),
        ),
        (
            "another id in each chunk",
            vec![
                calls(&[call(json!(0), json!("c1"), w(), json!(a1))]),
                calls(&[call(json!(0), json!("c2"), none.clone(), json!(a2))]),
            ],
            one.clone(),
        ),
        // A server that sends arguments before the name.
        (
            "arguments, then id and name, then arguments",
            vec![
                calls(&[bare(json!(0), a1)]),
                calls(&[call(json!(0), json!("c1"), w(), none.clone())]),
                calls(&[bare(json!(0), a2)]),
            ],
            one.clone(),
        ),
        (
            "the same without numbers",
            vec![
                calls(&[bare(none.clone(), a1)]),
                calls(&[call(none.clone(), json!("c1"), w(), none.clone())]),
                calls(&[bare(none.clone(), a2)]),
            ],
            one.clone(),
        ),
        (
            "a place that is never filled",
            vec![
                calls(&[call(json!(0), none.clone(), json!(""), json!(""))]),
                calls(&[call(json!(1), json!("c1"), w(), json!(a))]),
            ],
            one.clone(),
        ),
        (
            "arguments as an object",
            vec![calls(&[call(
                json!(0),
                json!("c1"),
                w(),
                json!({"path": "a"}),
            )])],
            one.clone(),
        ),
        (
            "arguments missing, empty, or JSON in JSON, which is the tool's business",
            vec![
                calls(&[json!({"index": 0, "id": "c1", "function": {"name": "list"}})]),
                calls(&[call(json!(1), json!("c2"), json!("list"), json!(" "))]),
                calls(&[call(
                    json!(2),
                    json!("c3"),
                    w(),
                    json!("\"{\\\"path\\\":1}\""),
                )]),
            ],
            vec![
                ("list", ""),
                ("list", " "),
                ("write_file", "\"{\\\"path\\\":1}\""),
            ],
        ),
    ];
    for (what, mut chunks, wanted) in table {
        chunks.push(finish(json!("tool_calls")));
        let (outcome, _) = answered(vec![Reply::chunks(&chunks)]).await;
        assert_eq!(outcome.calls(), wanted, "{what}");
    }
}

#[tokio::test]
async fn calls_that_share_an_id_get_ids_of_their_own() {
    // Only the last of two calls with one id was run, or the next request was refused.
    let reply = Reply::chunks(&[
        calls(&[
            call(json!(0), json!("call_1"), json!("write_file"), json!("{}")),
            call(json!(1), json!("call_1"), json!("write_file"), json!("{}")),
            call(json!(2), json!("old"), json!("write_file"), json!("{}")),
            call(json!(3), json!(null), json!("write_file"), json!("{}")),
        ]),
        finish(json!("tool_calls")),
    ]);
    let server = ModelServer::start(vec![reply]).await;
    let messages = [
        Message::user("go"),
        Message::assistant(None, vec![ToolCall::new("old", "write_file", "{}")]),
        Message::tool("old", "done"),
    ];
    let outcome = ask_with(&server.access(), &messages, LONG).await;
    let reply = outcome.reply.unwrap();
    let ids: Vec<&str> = reply
        .tool_calls
        .iter()
        .map(|call| call.id.as_str())
        .collect();
    assert_eq!(ids, ["call_1", "call00003", "call00004", "call00005"]);
}

#[tokio::test]
async fn a_call_counts_whatever_the_reason_for_the_end() {
    // A loop that looked at the reason only threw three calls away and called the run complete.
    for reason in [
        json!("stop"),
        json!(null),
        json!(""),
        json!("function_call"),
        json!("tool_calls"),
    ] {
        let (outcome, _) = answered(vec![Reply::chunks(&[
            calls(&[call(json!(0), json!("c"), json!("write_file"), json!("{}"))]),
            finish(reason.clone()),
        ])])
        .await;
        assert_eq!(outcome.calls(), [("write_file", "{}")], "{reason}");
        let reply = outcome.reply.unwrap();
        assert_eq!(reply.finish, FinishKind::Done);
    }
    // The other way round: an end for calls, and none there. It is an empty answer, no failure.
    let (outcome, _) = answered(vec![Reply::chunks(&[
        delta(json!({"content": "", "tool_calls": []})),
        finish(json!("tool_calls")),
    ])])
    .await;
    let empty = ModelReply {
        content: None,
        ..text_reply("")
    };
    assert_eq!((outcome.reply, outcome.requests), (Ok(empty), 1));
}

#[tokio::test]
async fn a_reason_for_the_end_is_enough_without_the_last_word() {
    let good = [delta(json!({"content": "hi"})), finish(json!("stop"))];
    let body: String = good
        .iter()
        .map(|chunk| format!("data: {chunk}\n\n"))
        .collect();
    let (outcome, _) = answered(vec![Reply::stream().bytes(body.clone())]).await;
    assert_eq!((outcome.reply, outcome.requests), (Ok(text_reply("hi")), 1));
    // Without even the empty line, and with the connection kept open for ever.
    let reply = Reply::stream().bytes(body.trim_end()).bytes("\n\n").hold();
    let server = ModelServer::start(vec![reply]).await;
    let mut access = server.access();
    access.spec.timeouts.gap_seconds = 1;
    let began = Instant::now();
    let outcome = ask_with(&access, &[], LONG).await;
    assert_eq!((outcome.reply, outcome.requests), (Ok(text_reply("hi")), 1));
    assert!(began.elapsed() < Duration::from_secs(5));
}

#[tokio::test]
async fn a_call_that_the_output_limit_tore_is_left_out() {
    // Half a call was run with half its arguments.
    let (outcome, seen) = answered(vec![Reply::chunks(&[
        delta(json!({"content": "writing"})),
        calls(&[call(
            json!(0),
            json!("a"),
            json!("write_file"),
            json!(r#"{"path":"a"}"#),
        )]),
        calls(&[call(
            json!(1),
            json!("b"),
            json!("write_file"),
            json!(r#"{"path":"b","c"#),
        )]),
        finish(json!("length")),
    ])])
    .await;
    assert_eq!(outcome.calls(), [("write_file", r#"{"path":"a"}"#)]);
    let reply = outcome.reply.unwrap();
    assert_eq!(reply.finish, FinishKind::Length);
    assert_eq!(reply.content.as_deref(), Some("writing"));
    assert_eq!(seen.len(), 1, "another try is paid for and is cut as well");
    let (outcome, _) = answered(vec![Reply::chunks(&[
        calls(&[call(json!(0), json!("a"), json!("write_file"), json!(""))]),
        finish(json!("length")),
    ])])
    .await;
    assert_eq!(outcome.calls(), []);
}

#[tokio::test]
async fn half_an_emoji_costs_one_character() {
    // A provider cut an emoji in two, and the JSON reader refused the whole answer.
    let body = concat!(
        r#"data: {"choices":[{"delta":{"content":"a\ud83d"}}]}"#,
        "\n\n",
        r#"data: {"choices":[{"delta":{"tool_calls":[{"index":0,"id":"c","function":{"name":"#,
        r#""write_file","arguments":"{\"content\":\"\\udc00 \\\\ud83d \\ud83d"}}]}}]}"#,
        "\n\n",
        r#"data: {"choices":[{"delta":{"tool_calls":[{"index":0,"function":{"arguments":"#,
        r#""\\ude00\"}"}}]},"finish_reason":"tool_calls"}]}"#,
        "\n\ndata: [DONE]\n\n",
    );
    let (outcome, _) = answered(vec![Reply::stream().bytes(body)]).await;
    let wanted = r#"{"content":"\ufffd \\ud83d \ud83d\ude00"}"#;
    assert_eq!(outcome.calls(), [("write_file", wanted)]);
    assert_eq!(outcome.texts(), ["a\u{fffd}"]);
}

#[tokio::test]
async fn arguments_are_kept_to_the_byte() {
    // A repair put a comma between two braces before the first parse, inside a file's contents.
    let arguments = json!({"path": "x", "content": "a}{b </tool_call> ```json {\"x\":1,}   "});
    let arguments = arguments.to_string();
    let (first, second) = arguments.split_at(30);
    let (outcome, _) = answered(vec![Reply::chunks(&[
        calls(&[call(
            json!(0),
            json!("c"),
            json!("write_file"),
            json!(first),
        )]),
        calls(&[json!({"index": 0, "function": {"arguments": second}})]),
        finish(json!("tool_calls")),
    ])])
    .await;
    assert_eq!(outcome.calls(), [("write_file", arguments.as_str())]);
}

#[tokio::test]
async fn a_connection_is_used_again_for_the_next_turn() {
    let body: String = [delta(json!({"content": "hi"})), finish(json!("stop"))]
        .iter()
        .map(|chunk| format!("data: {chunk}\n\n"))
        .chain(["data: [DONE]\n\n".to_owned()])
        .collect();
    let chunked = format!("{:x}\r\n{body}\r\n", body.len());
    let head = [
        ("content-type", "text/event-stream; charset=utf-8"),
        ("transfer-encoding", "chunked"),
    ];
    // The end of the body comes in a packet of its own, as it often does.
    let reply = Reply::head("200 OK", &head)
        .bytes(chunked)
        .bytes("0\r\n\r\n")
        .keep_open();
    let server = ModelServer::start(vec![reply]).await;
    let mut model = worker::model::OpenAi::new(&server.access()).unwrap();
    for _ in 0..3 {
        let outcome = crate::server::ask_model(&mut model, &[], LONG).await;
        assert_eq!(outcome.reply, Ok(text_reply("hi")));
    }
    let connections: Vec<usize> = server.seen().iter().map(|seen| seen.connection).collect();
    assert_eq!(connections, [0, 0, 0]);
}

#[tokio::test]
async fn a_stream_under_another_content_type_is_read_all_the_same() {
    let body: String = good_stream()
        .iter()
        .map(|chunk| format!("data: {chunk}\n\n"))
        .chain(["data: [DONE]\n\n".to_owned()])
        .collect();
    for content_type in ["text/plain", "application/json"] {
        let head = [("content-type", content_type), ("connection", "close")];
        let server =
            ModelServer::start(vec![Reply::head("200 OK", &head).bytes(body.clone())]).await;
        assert_eq!(ask(&server).await.reply, Ok(good_reply()), "{content_type}");
    }
}
