//! Answers of model servers as they were seen in the field, to the byte, and what a worker that
//! runs alone makes of each.

use std::time::Duration;

use serde_json::{Value, json};
use system_tests::leader::Ended;
use system_tests::model::{Behaviour, ModelServer, Reply};
use system_tests::{Workspace, run, tool_texts};

const SUMMARY: &str = "came to the end of the task in spite of what its server had sent before";
const KEY: &str = "tok-4711-do-not-show";

/// A run of the worker against a server with these replies.
struct Outcome {
    workspace: Workspace,
    ended: Ended,
    requests: Vec<Value>,
}

impl Outcome {
    fn of(replies: Vec<Reply>) -> Self {
        Outcome::configured(replies, "")
    }

    /// With more keys of the model's configuration.
    fn configured(replies: Vec<Reply>, more: &str) -> Self {
        let server = ModelServer::start(Behaviour::Exact(replies));
        let workspace = Workspace::new();
        workspace.configure(&format!(
            "[models.m]\nprovider = \"openai\"\nmodel = \"x\"\nbase_url = \"{}\"\n\
             api_key_env = \"SOME_KEY\"\n{more}\n",
            server.base_url()
        ));
        workspace.write("task.md", "carry this out");
        let mut worker = workspace.command("worker");
        worker
            .args(["--task-file", "task.md", "--agent-id", "1"])
            .args(["--output-format", "json", "--timeout-seconds", "120"])
            .env("SOME_KEY", KEY);
        let ended = run(&mut worker, Duration::from_secs(150));
        let said = format!("{}{}", ended.stdout, ended.stderr);
        assert!(!said.contains("panicked"), "{said}");
        assert!(!said.contains(KEY), "{said}");
        let requests = server.requests();
        for request in &requests {
            every_call_has_one_answer_behind_it(request);
        }
        Outcome {
            workspace,
            ended,
            requests,
        }
    }

    fn completed(self) -> Self {
        assert_eq!(self.ended.code(), 0, "{:?}", self.ended);
        assert_eq!(self.conversation()["status"], "completed");
        self
    }

    /// It failed for this reason after so many requests; gives the words of the result.
    fn failed(&self, reason: &str, requests: usize) -> String {
        let code = match reason {
            "model_error" => 4,
            "output_limit" => 3,
            _ => 1,
        };
        assert_eq!(self.ended.code(), code, "{:?}", self.ended);
        let result = self.ended.json();
        assert_eq!(result["status"], "failed", "{result}");
        assert_eq!(result["stop_reason"], reason, "{result}");
        assert_eq!(result["deliverables_files"], json!([]), "{result}");
        assert_eq!(self.requests.len(), requests, "{result}");
        result.to_string()
    }

    fn conversation(&self) -> Value {
        self.workspace.conversation("sub_agent_results/agent_1")
    }

    fn tool_texts(&self) -> Vec<String> {
        tool_texts(&self.conversation())
    }
}

/// The rule of strict servers: calls have ids of their own in the whole conversation, and the
/// answers to those of a message stand right behind it, one each.
fn every_call_has_one_answer_behind_it(request: &Value) {
    let messages = request["messages"].as_array().unwrap();
    let mut seen = std::collections::BTreeSet::new();
    let mut open: Vec<String> = Vec::new();
    for message in messages {
        if message["role"] == "tool" {
            let id = message["tool_call_id"].as_str().unwrap().to_owned();
            let at = open.iter().position(|open| *open == id);
            open.remove(at.unwrap_or_else(|| panic!("nobody asked for {id}: {request}")));
            continue;
        }
        assert!(open.is_empty(), "{open:?} without an answer: {request}");
        for call in message["tool_calls"].as_array().into_iter().flatten() {
            let id = call["id"].as_str().unwrap().to_owned();
            assert!(seen.insert(id.clone()), "{id} twice: {request}");
            let arguments = call["function"]["arguments"].as_str();
            let arguments = arguments.unwrap_or_else(|| panic!("no text: {request}"));
            assert!(
                matches!(serde_json::from_str(arguments), Ok(Value::Object(_))),
                "no object: {arguments}"
            );
            open.push(id);
        }
    }
    assert!(open.is_empty(), "{open:?} without an answer: {request}");
}

fn chunk(delta: &Value) -> Value {
    json!({"choices": [{"index": 0, "delta": delta, "finish_reason": null}]})
}

fn end(reason: &str) -> Value {
    json!({"choices": [{"index": 0, "delta": {}, "finish_reason": reason}]})
}

fn calls(calls: &Value) -> Value {
    chunk(&json!({"tool_calls": calls}))
}

fn write(id: &str, path: &str) -> Value {
    let arguments = json!({"file_path": path, "content": "x"}).to_string();
    json!({"id": id, "type": "function",
        "function": {"name": "write_file", "arguments": arguments}})
}

/// The answer in one piece.
fn whole(message: &Value, reason: &Value) -> Reply {
    let choice = json!({"index": 0, "message": message, "finish_reason": reason});
    Reply::json(200, &json!({"choices": [choice]}))
}

fn finish() -> Reply {
    let report = json!({"success": true, "summary": SUMMARY}).to_string();
    Reply::chunks(&[
        calls(&json!([{"index": 0, "id": "end", "type": "function",
            "function": {"name": "finish_task", "arguments": report}}])),
        end("tool_calls"),
    ])
}

/// One call whose arguments are this value, in the place of a text.
fn call_with(name: &str, arguments: Option<Value>) -> Reply {
    let mut function = json!({"name": name});
    if let Some(arguments) = arguments {
        function["arguments"] = arguments;
    }
    let call = json!({"index": 0, "id": "c1", "type": "function", "function": function});
    Reply::chunks(&[calls(&json!([call])), end("tool_calls")])
}

#[test]
fn arguments_that_are_no_text_of_an_object_are_told_or_understood() {
    // For tools without parameters servers send an empty text, or nothing; a parser failed and its
    // model went round in a loop. A list or a number parsed well and blew up inside the tool.
    for nothing in [Some(json!("")), Some(json!(" ")), None] {
        let outcome = Outcome::of(vec![
            call_with("check_background", nothing.clone()),
            call_with("read_file", nothing),
            finish(),
        ])
        .completed();
        let texts = outcome.tool_texts();
        assert!(!texts[0].contains("\"error\""), "{texts:?}");
        assert!(
            texts[1].contains("\"error\"") && texts[1].contains("path"),
            "{texts:?}"
        );
    }
    let odd = ["null", "5", "[]", "\"a.txt\""];
    let mut replies: Vec<Reply> = odd
        .iter()
        .map(|text| call_with("write_file", Some(json!(text))))
        .collect();
    replies.push(finish());
    let outcome = Outcome::of(replies).completed();
    let texts = outcome.tool_texts();
    for text in &texts[..odd.len()] {
        assert!(text.contains("object"), "{texts:?}");
    }
    assert!(!outcome.workspace.join("a.txt").exists());
}

#[test]
fn arguments_that_are_an_object_are_taken_and_go_back_as_a_text() {
    // A client failed on the whole answer.
    let arguments = json!({"file_path": "a.txt", "content": "hi"});
    let message = json!({"role": "assistant", "content": null, "tool_calls": [
        {"id": "c1", "type": "function",
         "function": {"name": "write_file", "arguments": arguments}}]});
    for first in [
        call_with("write_file", Some(arguments.clone())),
        whole(&message, &json!("tool_calls")),
    ] {
        let outcome = Outcome::of(vec![first, finish()]).completed();
        assert_eq!(outcome.workspace.read("a.txt"), "hi");
        let sent = &outcome.requests[1]["messages"][2]["tool_calls"][0]["function"]["arguments"];
        let sent: Value = serde_json::from_str(sent.as_str().unwrap()).unwrap();
        assert_eq!(sent, arguments);
    }
}

#[test]
fn calls_are_put_together_whatever_numbers_and_order_their_pieces_have() {
    // Without a number the call was lost; with another first number there was an empty one before
    // it; a name in each piece was joined to one that no tool has.
    let piece = |index: Option<u32>, more: Value| {
        let mut piece = more;
        if let Some(index) = index {
            piece["index"] = json!(index);
        }
        calls(&json!([piece]))
    };
    let numbered = |index: u32, id: &str, path: &str| {
        let mut call = write(id, path);
        call["index"] = json!(index);
        calls(&json!([call]))
    };
    let name = json!("write_file");
    let cases: Vec<(&str, Vec<Value>, &[&str])> = vec![
        (
            "no number",
            vec![
                piece(
                    None,
                    json!({"id": "c1", "type": "function",
                    "function": {"name": name, "arguments": "{\"file_path\":\"a\","}}),
                ),
                piece(
                    None,
                    json!({"function": {"arguments": "\"content\":\"x\"}"}}),
                ),
            ],
            &["a"],
        ),
        ("from one", vec![numbered(1, "c1", "a")], &["a"]),
        (
            "with gaps",
            vec![numbered(3, "c1", "a"), numbered(7, "c2", "b")],
            &["a", "b"],
        ),
        (
            "the same number",
            vec![numbered(0, "c1", "a"), numbered(0, "c2", "b")],
            &["a", "b"],
        ),
        (
            "arguments first",
            vec![
                piece(
                    Some(0),
                    json!({"function": {"arguments": "{\"file_path\":\"a\","}}),
                ),
                piece(Some(0), json!({"id": "c1", "function": {"name": name}})),
                piece(
                    Some(0),
                    json!({"function": {"arguments": "\"content\":\"x\"}"}}),
                ),
            ],
            &["a"],
        ),
        (
            "the name again and again",
            ["{\"file_path\":\"a\",", "\"content\":", "\"x\"}"]
                .iter()
                .map(|part| {
                    piece(
                        Some(0),
                        json!({"id": "c1", "function": {"name": name, "arguments": part}}),
                    )
                })
                .collect(),
            &["a"],
        ),
    ];
    for (what, mut chunks, files) in cases {
        chunks.push(end("tool_calls"));
        let outcome = Outcome::of(vec![Reply::chunks(&chunks), finish()]).completed();
        let calls = &outcome.requests[1]["messages"][2]["tool_calls"];
        let names: Vec<&Value> = calls
            .as_array()
            .unwrap()
            .iter()
            .map(|call| &call["function"]["name"])
            .collect();
        assert_eq!(names, vec!["write_file"; files.len()], "{what}");
        for file in files {
            assert_eq!(outcome.workspace.read(file), "x", "{what}");
        }
    }
}

#[test]
fn calls_that_share_an_id_are_all_run_and_told_apart() {
    // Of two calls with one id only the last was run, or the next request was refused. That no id
    // comes twice in a request is looked at in every test here.
    let both = |first: &str, second: &str| {
        let message = json!({"role": "assistant", "content": null, "tool_calls": [
            write("call_1", first), write("call_1", second)]});
        whole(&message, &json!("tool_calls"))
    };
    let outcome = Outcome::configured(vec![both("a", "b"), both("c", "d"), finish()], "");
    let outcome = outcome.completed();
    for name in ["a", "b", "c", "d"] {
        assert_eq!(outcome.workspace.read(name), "x");
    }
}

#[test]
fn a_call_counts_whatever_the_reason_for_the_end_says() {
    // A loop that looked at the reason alone threw three calls away and called the run complete.
    for reason in [
        json!("stop"),
        Value::Null,
        json!(""),
        json!("function_call"),
    ] {
        let message =
            json!({"role": "assistant", "content": null, "tool_calls": [write("c1", "a")]});
        let outcome = Outcome::of(vec![whole(&message, &reason), finish()]).completed();
        assert_eq!(outcome.workspace.read("a"), "x", "{reason}");
    }
    // The other way round it was taken for "go on": the same request was sent for ever.
    let nothing = json!({"role": "assistant", "content": "", "tool_calls": []});
    let outcome = Outcome::of(vec![whole(&nothing, &json!("tool_calls"))]);
    outcome.failed("no_finish", 4);
}

#[test]
fn what_is_null_or_missing_is_nothing() {
    // Clients refused null where they expected a text or a list.
    let outcome = Outcome::of(vec![
        whole(
            &json!({"role": "assistant", "content": null, "tool_calls": [write("c1", "a")]}),
            &json!("tool_calls"),
        ),
        whole(
            &json!({"role": "assistant", "content": "hi", "tool_calls": null}),
            &json!("stop"),
        ),
        whole(&json!({"role": "assistant"}), &json!("stop")),
        finish(),
    ])
    .completed();
    assert_eq!(outcome.workspace.read("a"), "x");
    let messages = outcome.conversation()["messages"].clone();
    assert_eq!(messages[4]["content"], "hi", "{messages}");
}

#[test]
fn usage_beside_an_empty_list_of_choices_is_counted_first_and_last() {
    // The first of no choices was looked at, and the client crashed.
    let usage = json!({"choices": [],
        "usage": {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10}});
    let text = [chunk(&json!({"content": "hi"})), end("stop")];
    let last = [&text[..], std::slice::from_ref(&usage)].concat();
    let first = [std::slice::from_ref(&usage), &text[..]].concat();
    for chunks in [last, first] {
        let outcome = Outcome::of(vec![Reply::chunks(&chunks), finish()]).completed();
        let used = &outcome.ended.json()["stats"]["token_usage"];
        assert_eq!(
            (&used["prompt"], &used["completion"], &used["total"]),
            (&json!(7), &json!(3), &json!(10)),
            "{used}"
        );
    }
    let none = Reply::json(200, &json!({"choices": []}));
    let outcome = Outcome::configured(vec![none], "stream = false");
    let words = outcome.failed("model_error", 3);
    assert!(words.contains("choices"), "{words}");
}

#[test]
fn an_error_inside_a_good_stream_keeps_its_code_and_is_no_answer() {
    // The error came as a data line; its code was lost, and the text before it was an answer.
    let error = json!({"error": {"message": "Context length exceeded",
        "code": "CONTEXT_LENGTH_EXCEEDED"}});
    let reply = Reply::stream().some_chunks(&[chunk(&json!({"content": "Wor"})), error]);
    let outcome = Outcome::of(vec![reply]);
    assert!(outcome.requests.len() <= 3, "{}", outcome.requests.len());
    let words = outcome.failed("model_error", outcome.requests.len());
    assert!(words.contains("Context length exceeded"), "{words}");
    assert!(words.contains("CONTEXT_LENGTH_EXCEEDED"), "{words}");
    let conversation = outcome.conversation().to_string();
    assert!(!conversation.contains("\"Wor\""), "{conversation}");
}

#[test]
fn every_line_end_and_every_keep_alive_is_read() {
    // A parser that split at two LF alone got nothing out of CRLF. A comment ended the stream, or
    // went into the JSON parser.
    let mut call = write("c1", "a");
    call["index"] = json!(0);
    let chunks = [calls(&json!([call])), end("tool_calls")];
    let plain: String = chunks
        .iter()
        .map(|chunk| format!("data: {chunk}\n\n"))
        .chain(["data: [DONE]\n\n".to_owned()])
        .collect();
    let crlf = plain.replace('\n', "\r\n");
    let cut = crlf.find("\r\n").unwrap() + 1;
    let between = Reply::stream()
        .bytes(&crlf.as_bytes()[..cut])
        .pause(50)
        .bytes(&crlf.as_bytes()[cut..]);
    let noisy = Reply::stream()
        .bytes(": OPENROUTER PROCESSING\n\nevent: ping\ndata: {}\n\n")
        .some_chunks(&chunks[..1])
        .bytes(": OPENROUTER PROCESSING\n\ndata: {}\n\n")
        .some_chunks(&chunks[1..])
        .bytes("data: [DONE]\n\n");
    for reply in [
        Reply::stream().bytes(crlf.clone()),
        Reply::stream().bytes(plain.replace('\n', "\r")),
        between,
        noisy,
    ] {
        let outcome = Outcome::of(vec![reply, finish()]).completed();
        assert_eq!(outcome.workspace.read("a"), "x");
        assert_eq!(outcome.requests.len(), 2);
    }
}

#[test]
fn a_stream_that_ends_inside_a_call_runs_nothing() {
    // A provider closed cleanly in the middle of a call; the client took it for the end and ran
    // the tool with nothing, or lost it: no file, no error.
    let half = calls(
        &json!([{"index": 0, "id": "c1", "type": "function", "function":
        {"name": "write_file", "arguments": "{\"file_path\":\"a.txt\",\"content\":\"hel"}}]),
    );
    let outcome = Outcome::of(vec![
        Reply::stream().some_chunks(std::slice::from_ref(&half)),
    ]);
    let words = outcome.failed("model_error", 2);
    assert!(words.contains("ended"), "{words}");
    assert!(!outcome.workspace.join("a.txt").exists());
    // Half a call behind an output limit was run, or cost one more paid request each time.
    let reply = Reply::chunks(&[half, end("length")]);
    let outcome = Outcome::of(vec![reply]);
    outcome.failed("output_limit", 4);
    assert!(!outcome.workspace.join("a.txt").exists());
    let told = outcome.requests[1]["messages"].as_array().unwrap().last();
    assert_eq!(told.unwrap()["role"], "user", "{told:?}");
}

#[test]
fn arguments_reach_the_file_to_the_byte_and_half_an_emoji_costs_one_character() {
    // A repair put a comma between two braces before the first parse, inside a file's contents.
    let content = "a}{b </tool_call> ```json {\"x\":1,}   ";
    let arguments = json!({"file_path": "a.txt", "content": content}).to_string();
    let outcome = Outcome::of(vec![
        call_with("write_file", Some(json!(arguments))),
        finish(),
    ])
    .completed();
    assert_eq!(outcome.workspace.read("a.txt"), content);
    // Servers cut an emoji in two, and JSON readers refused the whole answer.
    let text = r#"{"choices":[{"delta":{"content":"half \ud83d here"},"finish_reason":null}]}"#;
    let call = r#"{"choices":[{"delta":{"tool_calls":[{"index":0,"id":"c1","function":{"name":"write_file","arguments":"{\"file_path\":\"b.txt\",\"content\":\"<\\udc00>\"}"}}]},"finish_reason":"tool_calls"}]}"#;
    let reply = Reply::stream().bytes(format!("data: {text}\n\ndata: {call}\n\ndata: [DONE]\n\n"));
    let outcome = Outcome::of(vec![reply, finish()]).completed();
    assert_eq!(outcome.workspace.read("b.txt"), "<\u{fffd}>");
    let said = &outcome.conversation()["messages"][2]["content"];
    assert_eq!(said, "half \u{fffd} here");
}

#[test]
fn thoughts_and_empty_contents_go_back_as_each_server_wants_them() {
    // A thinking model refuses the second request without its thoughts, another one with them; one
    // refuses a call without `content`, one an empty text, one null.
    let message = json!({"role": "assistant", "content": null, "reasoning_content": "think",
        "tool_calls": [write("c1", "a")]});
    let sent = |more: &str| {
        let replies = vec![whole(&message, &json!("tool_calls")), finish()];
        let outcome = Outcome::configured(replies, more).completed();
        outcome.requests[1]["messages"][2].clone()
    };
    let plain = sent("");
    assert_eq!(plain["reasoning_content"], "think");
    assert_eq!(plain.get("content"), Some(&Value::Null));
    let other = sent("send_reasoning = false\nempty_content = \"empty\"");
    assert_eq!(other.get("reasoning_content"), None);
    assert_eq!(other["content"], "");
    // Whatever it refuses, its words reach whoever looks.
    let refusal = json!({"error": {"message": "reasoning_content is not wanted here"}});
    let outcome = Outcome::of(vec![
        whole(&message, &json!("tool_calls")),
        Reply::json(400, &refusal),
    ]);
    let words = outcome.failed("model_error", 2);
    assert!(words.contains("reasoning_content is not wanted"), "{words}");
    assert_eq!(outcome.workspace.read("a"), "x");
}

#[test]
fn a_page_of_a_proxy_is_waited_out_and_one_for_ever_is_named() {
    // A proxy answered with a page, and the agent crashed.
    let soon = "retry-after-ms: 1\r\n";
    let page = |status: u16| {
        let body = format!("<html><body>a page {}</body></html>", "x".repeat(5_000));
        Reply::head(status, "text/html", soon).bytes(body)
    };
    let outcome = Outcome::of(vec![page(502), page(502), page(502), finish()]).completed();
    assert_eq!(outcome.requests.len(), 4);
    let outcome = Outcome::of(vec![page(200)]);
    let words = outcome.failed("model_error", 3);
    assert!(
        words.contains("text/html") && words.contains("200"),
        "{words}"
    );
    assert!(!words.contains(&"x".repeat(201)), "{words}");
    // A child whose provider failed came back as a successful empty run.
    let failing = Reply::head(500, "application/json", soon)
        .bytes(json!({"error": {"message": "the engine is on fire"}}).to_string());
    let outcome = Outcome::of(vec![failing]);
    let words = outcome.failed("model_error", 6);
    assert!(words.contains("the engine is on fire"), "{words}");
}

#[test]
fn a_stream_that_falls_silent_is_tried_again_and_given_up() {
    // A provider stopped sending without closing, and its agent waited for hours.
    let reply = Reply::stream()
        .some_chunks(&[chunk(&json!({"content": "I will"}))])
        .hold();
    let outcome = Outcome::configured(vec![reply.clone()], "timeouts.gap_seconds = 1");
    let words = outcome.failed("model_error", outcome.requests.len());
    assert!(words.contains("silent for 1 s"), "{words}");
    assert!((2..=3).contains(&outcome.requests.len()), "{words}");
    let outcome = Outcome::configured(vec![reply, finish()], "timeouts.gap_seconds = 1");
    assert_eq!(outcome.completed().requests.len(), 2);
}

#[test]
fn a_call_written_into_a_code_fence_is_no_call() {
    // A model printed its call as a text, and the loop took it for the answer.
    let call = "<tool_call>{\"name\":\"finish_task\",\"arguments\":{\"success\":true,\"summary\":\"x\"}}</tool_call>";
    for text in [call.to_owned(), format!("```xml\n{call}\n```")] {
        let reply = Reply::chunks(&[chunk(&json!({"content": text})), end("stop")]);
        Outcome::of(vec![reply]).failed("no_finish", 4);
    }
}

#[test]
fn what_never_helps_is_asked_once_and_names_the_setting() {
    // To try a wrong key again never helps.
    for (status, setting) in [(401, "SOME_KEY"), (403, "SOME_KEY"), (404, "base_url")] {
        let error = json!({"error": {"message": format!("refused, your key was {KEY}")}});
        let outcome = Outcome::of(vec![Reply::json(status, &error)]);
        outcome.failed("model_error", 1);
        let said = format!("{}{}", outcome.ended.stdout, outcome.ended.stderr);
        assert!(said.contains(&status.to_string()), "{said}");
        assert!(said.contains(setting), "{status}: {said}");
    }
}
