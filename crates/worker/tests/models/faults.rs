//! What goes wrong between us and a server, and what is made of it.

use std::time::{Duration, Instant};

use protocol::conversation::Message;
use protocol::limits;
use serde_json::{Value, json};
use worker::model::{Model, ModelErrorKind, ModelEvent, ModelRequest, OpenAi};

use crate::server::{
    LONG, ModelServer, Outcome, Reply, answered, ask, ask_model, ask_with, delta, finish,
};

fn good() -> Reply {
    Reply::chunks(&[delta(json!({"content": "hi"})), finish(json!("stop"))])
}

fn error(status: &str, body: &Value) -> Reply {
    Reply::json(status, &[], body)
}

fn is_good(outcome: &Outcome) -> bool {
    outcome
        .reply
        .as_ref()
        .is_ok_and(|reply| reply.content.as_deref() == Some("hi"))
}

/// Kind, requests and text of a failure.
fn failure(outcome: Outcome) -> (ModelErrorKind, u32, String) {
    let error = outcome.reply.unwrap_err();
    assert_eq!(u64::from(error.requests), outcome.requests);
    (error.kind, error.requests, error.message)
}

#[tokio::test]
async fn what_never_helps_is_not_tried_again_and_the_key_is_not_shown() {
    for (status, words, kind, hint) in [
        (
            "401 Unauthorized",
            "Incorrect API key provided: sk-secret-key",
            ModelErrorKind::Auth,
            "check the key in the environment variable `SOME_KEY` (`api_key_env` of model `main`)",
        ),
        (
            "403 Forbidden",
            "no access",
            ModelErrorKind::Auth,
            "check the key in the environment variable `SOME_KEY` (`api_key_env` of model `main`)",
        ),
        (
            "404 Not Found",
            "no such model",
            ModelErrorKind::Refused,
            "check `model` (`some-model`) and `base_url` of model `main`",
        ),
        (
            "400 Bad Request",
            "reasoning_content is missing",
            ModelErrorKind::Refused,
            "check `model` (`some-model`) and `body` of model `main`",
        ),
    ] {
        let reply = error(status, &json!({"error": {"message": words, "code": null}}));
        let server = ModelServer::start(vec![reply]).await;
        let mut access = server.access();
        access.spec.api_key_env = Some("SOME_KEY".to_owned());
        let failed = failure(ask_with(&access, &[], LONG).await);
        let message = format!(
            "{}/chat/completions answered {status} (application/json): {}; {hint}",
            server.base_url(),
            words.replace("sk-secret-key", "[hidden]"),
        );
        assert_eq!(failed, (kind, 1, message));
    }
}

#[tokio::test]
async fn a_context_that_is_too_long_is_told_apart() {
    // Overflow, another try, overflow: once 408 silent tries.
    let body = json!({"error": {"code": "context_length_exceeded", "message": "too long"}});
    let (outcome, seen) = answered(vec![error("400 Bad Request", &body)]).await;
    let (kind, _, message) = failure(outcome);
    assert_eq!((kind, seen.len()), (ModelErrorKind::ContextTooLong, 1));
    assert!(
        message.contains("too long (context_length_exceeded); "),
        "{message}"
    );
}

#[tokio::test]
async fn an_error_inside_a_stream_keeps_its_code_and_voids_the_text_before_it() {
    // The error came as a data line of a good stream; its code was lost, its text an answer.
    let inside = |error: Value| {
        Reply::stream()
            .bytes(format!("data: {}\n\n", delta(json!({"content": "Wor"}))))
            .bytes(format!("data: {error}\n\n"))
    };
    let too_long = json!({"error": {"message": "Context length exceeded",
        "code": "CONTEXT_LENGTH_EXCEEDED"}});
    let (outcome, seen) = answered(vec![inside(too_long)]).await;
    let (kind, _, message) = failure(outcome);
    assert_eq!((kind, seen.len()), (ModelErrorKind::ContextTooLong, 1));
    assert!(
        message.contains("an error (CONTEXT_LENGTH_EXCEEDED): Context length exceeded; "),
        "{message}"
    );
    // One that may pass is tried once more, as any break after the first content.
    let busy = json!({"error": {"message": "overloaded", "code": 502}});
    let (outcome, seen) = answered(vec![inside(busy.clone()), good()]).await;
    assert!(is_good(&outcome));
    assert_eq!((outcome.texts(), seen.len()), (vec!["Wor", "hi"], 2));
    let (outcome, seen) = answered(vec![inside(busy)]).await;
    assert_eq!(
        (failure(outcome).0, seen.len()),
        (ModelErrorKind::Server, 2)
    );
}

#[tokio::test]
async fn an_error_where_a_stream_was_promised_is_understood() {
    for body in [
        "data: {\"object\":\"error\",\"message\":\"prompt is too long\",\"code\":400}\n\n",
        "{\"error\": {\"message\": \"prompt is too long\"}}",
        "event: error\ndata: prompt is too long\n\n",
    ] {
        let (outcome, seen) = answered(vec![Reply::stream().bytes(body)]).await;
        let (kind, _, message) = failure(outcome);
        assert_eq!(
            (kind, seen.len()),
            (ModelErrorKind::ContextTooLong, 1),
            "{message}"
        );
    }
}

/// A stream that breaks inside the arguments of a call.
fn cut_in_a_call() -> Vec<Vec<u8>> {
    let call = json!({"tool_calls": [{"index": 0, "id": "c", "function": {"name": "write_file",
        "arguments": "{\"path\":\"a.txt\",\"content\":\"hel"}}]});
    vec![format!("data: {}\n\n", delta(call)).into_bytes()]
}

#[tokio::test]
async fn a_stream_that_ends_inside_a_call_hands_nothing_out() {
    // The provider closed cleanly in the middle of a call; the client took it as the end, and
    // ran the tool without arguments, or left it out, and no one was told.
    let chunked = |pieces: &[Vec<u8>], end: &str| {
        let head = [
            ("content-type", "text/event-stream"),
            ("transfer-encoding", "chunked"),
        ];
        let mut reply = Reply::head("200 OK", &head);
        for piece in pieces {
            let mut chunk = format!("{:x}\r\n", piece.len()).into_bytes();
            chunk.extend_from_slice(piece);
            reply = reply.bytes(chunk).bytes("\r\n");
        }
        reply.bytes(end)
    };
    let clean = chunked(&cut_in_a_call(), "0\r\n\r\n");
    let broken = chunked(&cut_in_a_call(), "");
    let done_all_the_same = chunked(
        &[cut_in_a_call(), vec![b"data: [DONE]\n\n".to_vec()]].concat(),
        "0\r\n\r\n",
    );
    for cut in [clean, broken, done_all_the_same] {
        let (outcome, seen) = answered(vec![cut.clone(), good()]).await;
        assert!(is_good(&outcome), "{outcome:?}");
        assert_eq!(seen.len(), 2);
        let (outcome, seen) = answered(vec![cut]).await;
        let (kind, _, message) = failure(outcome);
        assert_eq!((kind, seen.len()), (ModelErrorKind::Cut, 2), "{message}");
        assert!(message.contains("given up after 2 tries"), "{message}");
    }
}

#[tokio::test]
async fn a_break_before_the_first_content_is_tried_five_times_more() {
    let empty = Reply::stream().bytes(": hello\n\ndata: {\"choices\":[{\"delta\":{}}]}\n\n");
    for nothing in [Reply::nothing(), empty] {
        let mut replies = vec![nothing.clone(); 5];
        replies.push(good());
        let (outcome, seen) = answered(replies).await;
        assert!(is_good(&outcome), "{outcome:?}");
        assert_eq!(seen.len(), 6);
        let (outcome, seen) = answered(vec![nothing]).await;
        assert_eq!((failure(outcome).0, seen.len()), (ModelErrorKind::Cut, 6));
    }
}

#[tokio::test]
async fn a_damaged_chunk_is_a_break_and_no_chunk_to_skip() {
    // To go on behind it would hand out a text with a hole.
    let damaged = Reply::stream()
        .bytes(format!("data: {}\n\n", delta(json!({"content": "one "}))))
        .bytes("data: {\"choices\":[{\"delta\":{\"content\":\"tw\n\n")
        .bytes(format!("data: {}\n\n", delta(json!({"content": " three"}))))
        .bytes(format!(
            "data: {}\n\ndata: [DONE]\n\n",
            finish(json!("stop"))
        ));
    let (outcome, seen) = answered(vec![damaged, good()]).await;
    assert!(is_good(&outcome), "{outcome:?}");
    assert_eq!(seen.len(), 2);
}

#[tokio::test]
async fn a_provider_that_breaks_off_is_no_answer() {
    for word in ["error", "insufficient_system_resource"] {
        let broken = Reply::chunks(&[delta(json!({"content": "Wor"})), finish(json!(word))]);
        let (outcome, seen) = answered(vec![broken, good()]).await;
        assert!(is_good(&outcome), "{outcome:?}");
        assert_eq!(seen.len(), 2);
    }
}

#[tokio::test]
async fn a_page_for_people_in_the_place_of_an_answer_is_shown_in_part() {
    // A proxy answered with a page, and the agent crashed, or took it as an empty answer.
    let page = format!(
        "<html><body>Bad\n gateway {}</body></html>",
        "x".repeat(5_000)
    );
    let html = |status: &str| {
        let head = [("content-type", "text/html"), ("connection", "close")];
        Reply::head(status, &head).bytes(page.clone())
    };
    let bad = html("502 Bad Gateway");
    let (outcome, seen) = answered(vec![bad.clone(), bad.clone(), bad, good()]).await;
    assert!(is_good(&outcome));
    assert_eq!(seen.len(), 4);
    let server = ModelServer::start(vec![html("200 OK")]).await;
    let failed = failure(ask(&server).await);
    let shown = format!("<html><body>Bad gateway {}…", "x".repeat(200 - 24));
    let message = format!(
        "{}/chat/completions: 200 OK (text/html), but it is no JSON object: {shown}; check \
         `base_url` of model `main`: as a rule it ends in a version such as `/v1` (given up after \
         3 tries)",
        server.base_url()
    );
    assert_eq!(failed, (ModelErrorKind::BadReply, 3, message));
}

#[tokio::test]
async fn a_failing_server_is_tried_six_times_in_all() {
    for status in [
        "500 Internal Server Error",
        "408 Request Timeout",
        "409 Conflict",
    ] {
        let bad = error(status, &json!({"error": "no luck"}));
        let (outcome, seen) = answered(vec![bad]).await;
        let (kind, requests, message) = failure(outcome);
        assert_eq!((kind, requests, seen.len()), (ModelErrorKind::Server, 6, 6));
        assert!(message.contains("no luck"), "{message}");
    }
    // A server that says that another try is of no use is believed.
    let never = [("x-should-retry", "false")];
    let bad = Reply::json("500 Internal Server Error", &never, &json!({}));
    let (outcome, seen) = answered(vec![bad]).await;
    assert_eq!(
        (failure(outcome).0, seen.len()),
        (ModelErrorKind::Server, 1)
    );
}

#[tokio::test]
async fn a_pause_that_the_server_asks_for_is_kept() {
    let busy = |header| {
        let body = json!({"error": {"message": "slow down"}});
        Reply::json("429 Too Many Requests", &[header], &body)
    };
    for (header, pause_ms) in [
        (("Retry-After", "1"), 1_000),
        (("retry-after-ms", "150"), 150),
    ] {
        let began = Instant::now();
        let (outcome, seen) = answered(vec![busy(header), good()]).await;
        assert!(is_good(&outcome));
        assert_eq!(seen.len(), 2);
        let pause = Duration::from_millis(pause_ms);
        assert!(began.elapsed() >= pause);
        let paused = outcome.events.iter().find_map(|event| match event {
            ModelEvent::Retry { pause, .. } => Some(*pause),
            ModelEvent::Sent { .. } | ModelEvent::Text(_) => None,
        });
        assert_eq!(paused, Some(pause));
    }
    // One that ends behind the deadline is not waited for.
    let began = Instant::now();
    let (outcome, seen) = answered(vec![busy(("Retry-After", "3600"))]).await;
    let (kind, _, message) = failure(outcome);
    assert_eq!((kind, seen.len()), (ModelErrorKind::Server, 1));
    assert!(message.contains("slow down"), "{message}");
    assert!(
        message.contains("not tried again: the next try would be in 3600.0 s"),
        "{message}"
    );
    assert!(began.elapsed() < Duration::from_secs(30));
}

#[tokio::test]
async fn a_server_that_is_not_there_is_named() {
    let server = ModelServer::start(vec![good()]).await;
    let mut access = server.access();
    // A port that was free a moment ago and is held, but not listened to.
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let address = socket.local_addr().unwrap();
    access.spec.base_url = format!("http://{address}/v1");
    let outcome = ask_with(&access, &[], LONG).await;
    let tries = outcome
        .events
        .iter()
        .filter(|event| matches!(event, ModelEvent::Sent { .. }));
    assert_eq!(tries.count(), 6);
    let (kind, requests, message) = failure(outcome);
    assert_eq!(
        (kind, requests),
        (ModelErrorKind::Connect, 0),
        "none of them reached a server"
    );
    let wanted = format!(
        "http://{address}/v1/chat/completions: no connection: Connection refused (os error 111); \
         check that the server runs, and `base_url` of model `main` (given up after 6 tries)"
    );
    assert_eq!(message, wanted);
}

/// Asks a server that falls silent after some bytes, for ever or but once.
async fn silence(silent: Reply) {
    let server = ModelServer::start(vec![silent.clone()]).await;
    let mut access = server.access();
    access.spec.timeouts.first_byte_seconds = 1;
    access.spec.timeouts.gap_seconds = 1;
    let began = Instant::now();
    let (kind, requests, message) = failure(ask_with(&access, &[], LONG).await);
    assert_eq!((kind, requests), (ModelErrorKind::Stalled, 3), "{silent:?}");
    let wanted = format!(
        "{}/chat/completions: the model was silent for 1 s; check the server, or raise \
         `first_byte_seconds` or `gap_seconds` in `timeouts` of model `main` (given up after 3 \
         tries)",
        server.base_url()
    );
    assert_eq!(message, wanted);
    assert!(began.elapsed() < Duration::from_secs(30), "{silent:?}");
    let server = ModelServer::start(vec![silent.clone(), good()]).await;
    access.spec.base_url = server.base_url();
    let outcome = ask_with(&access, &[], LONG).await;
    assert!(is_good(&outcome), "{silent:?}");
    assert_eq!(server.seen().len(), 2);
}

#[tokio::test]
async fn silence_ends_in_its_own_time_out() {
    // A provider stopped sending without closing, and an agent waited for hours.
    let content = format!("data: {}\n\n", delta(json!({"content": "Wor"})));
    tokio::join!(
        silence(Reply::nothing().hold()),
        silence(Reply::stream().hold()),
        silence(Reply::stream().bytes(content).hold()),
    );
}

#[tokio::test]
async fn a_server_that_is_slow_but_not_silent_is_waited_for() {
    // The pieces together take longer than the gap, but no single gap does.
    let mut slow = Reply::stream();
    for text in ["a", "b", "c", "d", "e"] {
        slow = slow
            .pause(Duration::from_millis(600))
            .bytes(format!("data: {}\n\n", delta(json!({"content": text}))));
    }
    let slow = slow.bytes(format!(
        "data: {}\n\ndata: [DONE]\n\n",
        finish(json!("stop"))
    ));
    let server = ModelServer::start(vec![slow]).await;
    let mut access = server.access();
    access.spec.timeouts.first_byte_seconds = 2;
    access.spec.timeouts.gap_seconds = 2;
    let outcome = ask_with(&access, &[], LONG).await;
    assert_eq!(outcome.reply.unwrap().content.as_deref(), Some("abcde"));
    assert_eq!(outcome.requests, 1);
}

#[tokio::test]
async fn the_deadline_ends_a_call_wherever_it_is() {
    let content = format!("data: {}\n\n", delta(json!({"content": "Wor"})));
    for silent in [
        Reply::nothing().hold(),
        Reply::stream().bytes(content).hold(),
    ] {
        let server = ModelServer::start(vec![silent]).await;
        let within = Duration::from_millis(300);
        let began = Instant::now();
        let failed = failure(ask_with(&server.access(), &[], within).await);
        let message = format!(
            "{}/chat/completions: no answer within the 0.3 s that the agent had left",
            server.base_url()
        );
        assert_eq!(failed, (ModelErrorKind::Deadline, 1, message));
        assert!(began.elapsed() >= within);
        assert!(
            began.elapsed() < Duration::from_secs(4),
            "the other time-outs are 5 s"
        );
    }
}

#[tokio::test]
async fn a_call_that_was_dropped_leaves_the_model_usable_and_counted() {
    let server = ModelServer::start(vec![Reply::stream().hold(), good()]).await;
    let mut model = OpenAi::new(&server.access()).unwrap();
    {
        let messages = [Message::user("go")];
        let request = ModelRequest {
            messages: &messages,
            tools: &[],
            within: LONG,
        };
        let mut sink = |_| {};
        let call = model.complete(request, &mut sink);
        let seen = async {
            while server.seen().is_empty() {
                tokio::task::yield_now().await;
            }
        };
        tokio::select! {
            reply = call => panic!("a silent server answered: {reply:?}"),
            () = seen => {}
        }
    }
    assert_eq!(model.requests(), 1);
    assert!(is_good(&ask_model(&mut model, &[], LONG).await));
    assert_eq!((model.requests(), server.seen().len()), (2, 2));
}

#[tokio::test]
async fn an_answer_without_end_is_given_up_at_its_bound() {
    let head = [
        ("content-type", "application/json"),
        ("connection", "close"),
    ];
    let mut endless = Reply::head("200 OK", &head).bytes("{");
    let piece = vec![b' '; 1024 * 1024];
    for _ in 0..=limits::MODEL_REPLY_BYTES_MAX / piece.len() {
        endless = endless.bytes(piece.clone());
    }
    let (outcome, seen) = answered(vec![endless]).await;
    let (kind, _, message) = failure(outcome);
    assert_eq!((kind, seen.len()), (ModelErrorKind::BadReply, 1));
    assert!(message.contains("larger than allowed"), "{message}");
    // The same for a stream of many good chunks, and for a single event.
    let content = "x".repeat(1024 * 1024);
    let chunk = format!("data: {}\n\n", delta(json!({"content": content})));
    let mut endless = Reply::stream();
    for _ in 0..=limits::MODEL_REPLY_BYTES_MAX / content.len() {
        endless = endless.bytes(chunk.clone());
    }
    let (outcome, seen) = answered(vec![endless]).await;
    let (kind, _, message) = failure(outcome);
    assert_eq!(
        (kind, seen.len()),
        (ModelErrorKind::BadReply, 1),
        "{message}"
    );
    let event = vec![b'x'; limits::MODEL_EVENT_BYTES_MAX];
    let (outcome, seen) = answered(vec![Reply::stream().bytes("data: ").bytes(event)]).await;
    let (kind, _, message) = failure(outcome);
    assert_eq!(
        (kind, seen.len()),
        (ModelErrorKind::BadReply, 1),
        "{message}"
    );
}

#[tokio::test]
async fn what_stands_around_the_answer_does_not_count_as_answer() {
    // A long answer in small chunks has some hundred bytes around each token.
    let comment = format!(": {}\n\n", "x".repeat(1024 * 1024));
    let mut padded = Reply::stream();
    for _ in 0..=limits::MODEL_REPLY_BYTES_MAX / comment.len() {
        padded = padded.bytes(comment.clone());
    }
    let end = format!(
        "data: {}\n\ndata: {}\n\n",
        delta(json!({"content": "hi"})),
        finish(json!("stop"))
    );
    let (outcome, seen) = answered(vec![padded.bytes(end)]).await;
    assert!(is_good(&outcome), "{outcome:?}");
    assert_eq!(seen.len(), 1);
}

#[tokio::test]
async fn a_server_without_tls_under_a_secure_address_is_not_tried_again() {
    // The scripted server waits for a whole request, which does not come; this one answers at
    // once.
    let mut access = ModelServer::start(vec![good()]).await.access();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    access.spec.base_url = format!("https://{}/v1", listener.local_addr().unwrap());
    let plain = async {
        use tokio::io::AsyncWriteExt;
        let (mut stream, _) = listener.accept().await.unwrap();
        stream
            .write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n")
            .await
            .unwrap();
        stream
    };
    let (outcome, _stream) = tokio::join!(ask_with(&access, &[], LONG), plain);
    let tries = outcome.events.len();
    let (kind, requests, message) = failure(outcome);
    assert_eq!(
        (kind, requests, tries),
        (ModelErrorKind::Connect, 0, 1),
        "{message}"
    );
}

#[tokio::test]
async fn a_redirect_is_not_followed() {
    // A key must not follow one to another host.
    let elsewhere = ModelServer::start(vec![good()]).await;
    let location = format!("{}/chat/completions", elsewhere.base_url());
    let head = [("location", location.as_str()), ("connection", "close")];
    let (outcome, _) = answered(vec![Reply::head("307 Temporary Redirect", &head)]).await;
    let (kind, requests, message) = failure(outcome);
    assert_eq!((kind, requests), (ModelErrorKind::Refused, 1));
    assert!(
        message.contains("redirects are not followed: check `base_url`"),
        "{message}"
    );
    assert_eq!(elsewhere.seen().len(), 0);
}

#[tokio::test]
async fn neither_a_model_nor_its_failure_shows_the_key() {
    let body = json!({"error": {"message": "key sk-secret-key is not known, nor extra-secret"}});
    let server = ModelServer::start(vec![error("401 Unauthorized", &body)]).await;
    let mut access = server.access();
    access
        .spec
        .headers
        .insert("x-extra".to_owned(), "extra-secret".to_owned());
    let mut model = OpenAi::new(&access).unwrap();
    let debug = format!("{model:?}");
    assert!(!debug.contains("secret"), "{debug}");
    let outcome = ask_model(&mut model, &[], LONG).await;
    let shown = format!("{outcome:?}");
    assert!(
        shown.contains("key [hidden] is not known, nor [hidden]"),
        "{shown}"
    );
    assert!(!shown.contains("secret"), "{shown}");
    let head = &server.seen()[0].head;
    assert!(head.contains("x-extra: extra-secret"), "{head}");
}

#[tokio::test]
async fn words_that_a_server_can_not_read_are_asked_for_with_another_seed() {
    // A local server answered 500 to a call of a tool that its model had made up; asked again
    // with the same seed it did so for ever.
    let unreadable = || {
        let words = "The model output does not match the expected peg-native format";
        error(
            "500 Internal Server Error",
            &json!({"error": {"code": 500, "message": words, "type": "server_error"}}),
        )
    };
    let seeds = |seen: &[crate::server::Seen]| -> Vec<Value> {
        let body = |body: &str| serde_json::from_str::<Value>(body).unwrap();
        seen.iter()
            .map(|seen| body(&seen.body)["seed"].clone())
            .collect()
    };
    let (outcome, seen) = answered(vec![unreadable(), unreadable(), good()]).await;
    assert!(is_good(&outcome), "{:?}", outcome.reply);
    assert_eq!(seeds(&seen), [json!(null), json!(1), json!(2)]);
    let (outcome, seen) = answered(vec![unreadable()]).await;
    let (kind, requests, message) = failure(outcome);
    assert_eq!(
        (kind, requests, seen.len()),
        (ModelErrorKind::UnreadableOutput, 3, 3)
    );
    assert!(message.contains("peg-native"), "{message}");
}
