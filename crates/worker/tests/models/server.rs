//! A scripted HTTP server: each request gets the next reply, as exact bytes with pauses and cuts,
//! and the last reply is given for ever.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use protocol::channel::ModelAccess;
use protocol::conversation::Message;
use protocol::job::{ModelSpec, Provider};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, JoinSet};
use worker::model::{Model, ModelError, ModelEvent, ModelReply, ModelRequest, OfferedTool, OpenAi};

/// One step of a reply.
#[derive(Debug, Clone)]
enum Step {
    Send(Vec<u8>),
    /// Is slow.
    Pause(Duration),
    /// Says nothing until the client goes away.
    Hold,
    /// Takes the next request on the same connection.
    KeepOpen,
}

/// What one request gets; the connection is closed behind it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Reply {
    steps: Vec<Step>,
}

impl Reply {
    /// Nothing at all.
    pub(crate) fn nothing() -> Self {
        Reply::default()
    }

    /// A status line and headers, and then whatever is added; the body ends with the connection.
    pub(crate) fn head(status: &str, headers: &[(&str, &str)]) -> Self {
        let mut head = format!("HTTP/1.1 {status}\r\n");
        for (name, value) in headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        head.push_str("\r\n");
        Reply::nothing().bytes(head)
    }

    /// A whole JSON answer.
    pub(crate) fn json(status: &str, headers: &[(&str, &str)], body: &Value) -> Self {
        let body = body.to_string();
        let length = body.len().to_string();
        let mut all = vec![
            ("content-type", "application/json"),
            ("content-length", length.as_str()),
            ("connection", "close"),
        ];
        all.extend(headers);
        Reply::head(status, &all).bytes(body)
    }

    /// The head of an event stream.
    pub(crate) fn stream() -> Self {
        Reply::head(
            "200 OK",
            &[
                ("content-type", "text/event-stream"),
                ("connection", "close"),
            ],
        )
    }

    /// An event stream of these chunks and the last word.
    pub(crate) fn chunks(chunks: &[Value]) -> Self {
        let mut reply = Reply::stream();
        for chunk in chunks {
            reply = reply.bytes(format!("data: {chunk}\n\n"));
        }
        reply.bytes("data: [DONE]\n\n")
    }

    /// Adds bytes, sent as one packet where the kernel lets us.
    pub(crate) fn bytes(mut self, bytes: impl Into<Vec<u8>>) -> Self {
        self.steps.push(Step::Send(bytes.into()));
        self
    }

    /// Lets time pass before what comes next.
    pub(crate) fn pause(mut self, pause: Duration) -> Self {
        self.steps.push(Step::Pause(pause));
        self
    }

    /// Leaves the connection open and says nothing more.
    pub(crate) fn hold(mut self) -> Self {
        self.steps.push(Step::Hold);
        self
    }

    /// Leaves the connection open for the next request.
    pub(crate) fn keep_open(mut self) -> Self {
        self.steps.push(Step::KeepOpen);
        self
    }
}

/// One request as it came.
#[derive(Debug, Clone)]
pub(crate) struct Seen {
    /// Request line and headers.
    pub(crate) head: String,
    /// The body's text.
    pub(crate) body: String,
    /// On which connection, from 0.
    pub(crate) connection: usize,
}

/// The server; it ends with its connections when it is dropped.
#[derive(Debug)]
pub(crate) struct ModelServer {
    address: String,
    task: JoinHandle<()>,
    /// A mutex, because the test reads while the connections write; nothing waits with it held.
    seen: Arc<Mutex<Vec<Seen>>>,
}

impl Drop for ModelServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl ModelServer {
    pub(crate) async fn start(replies: Vec<Reply>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let seen = Arc::new(Mutex::new(Vec::new()));
        let shared = Arc::clone(&seen);
        let task = tokio::spawn(async move {
            let mut connections = JoinSet::new();
            for number in 0.. {
                let Ok((stream, _)) = listener.accept().await else {
                    return;
                };
                let (replies, seen) = (replies.clone(), Arc::clone(&shared));
                connections.spawn(serve(stream, number, replies, seen));
            }
        });
        ModelServer {
            address,
            task,
            seen,
        }
    }

    /// What `base_url` is.
    pub(crate) fn base_url(&self) -> String {
        format!("http://{}/v1", self.address)
    }

    /// All requests so far.
    pub(crate) fn seen(&self) -> Vec<Seen> {
        self.seen.lock().unwrap().clone()
    }

    /// A configuration that leads here, with short time-outs.
    pub(crate) fn access(&self) -> ModelAccess {
        let mut spec = ModelSpec::new("main", Provider::Openai, &self.base_url(), "some-model");
        spec.timeouts.connect_seconds = 5;
        spec.timeouts.first_byte_seconds = 5;
        spec.timeouts.gap_seconds = 5;
        ModelAccess {
            spec,
            api_key: Some("sk-secret-key".to_owned()),
        }
    }
}

async fn serve(
    mut stream: TcpStream,
    connection: usize,
    replies: Vec<Reply>,
    seen: Arc<Mutex<Vec<Seen>>>,
) {
    'requests: loop {
        let Some((head, body)) = read_request(&mut stream).await else {
            return;
        };
        let at = {
            let mut seen = seen.lock().unwrap();
            seen.push(Seen {
                head,
                body,
                connection,
            });
            seen.len() - 1
        };
        let reply = replies[at.min(replies.len() - 1)].clone();
        for step in reply.steps {
            match step {
                Step::Send(bytes) => {
                    if stream.write_all(&bytes).await.is_err() || stream.flush().await.is_err() {
                        return;
                    }
                    // Lets the client read before the next bytes come.
                    tokio::task::yield_now().await;
                }
                Step::Pause(pause) => tokio::time::sleep(pause).await,
                Step::Hold => {
                    let mut rest = [0; 64];
                    while matches!(stream.read(&mut rest).await, Ok(count) if count > 0) {}
                    return;
                }
                Step::KeepOpen => continue 'requests,
            }
        }
        return;
    }
}

async fn read_request(stream: &mut TcpStream) -> Option<(String, String)> {
    let mut bytes = Vec::new();
    let mut piece = [0; 8192];
    loop {
        if let Some(end) = bytes.windows(4).position(|window| window == b"\r\n\r\n") {
            let head = String::from_utf8(bytes[..end].to_vec()).unwrap();
            let length: usize = head
                .lines()
                .find_map(|line| line.strip_prefix("content-length: "))
                .map_or(0, |length| length.parse().unwrap());
            if bytes.len() >= end + 4 + length {
                let body = String::from_utf8(bytes[end + 4..].to_vec()).unwrap();
                return Some((head, body));
            }
        }
        match stream.read(&mut piece).await {
            Ok(0) | Err(_) => return None,
            Ok(count) => bytes.extend_from_slice(&piece[..count]),
        }
    }
}

/// What one question came to.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) reply: Result<ModelReply, ModelError>,
    pub(crate) events: Vec<ModelEvent>,
    /// By the model's own count, which is compared with the server's in each question.
    pub(crate) requests: u64,
}

impl Outcome {
    /// The texts of the answer as they came, the ones that were thrown away included.
    pub(crate) fn texts(&self) -> Vec<&str> {
        self.events
            .iter()
            .filter_map(|event| match event {
                ModelEvent::Text(text) => Some(text.as_str()),
                ModelEvent::Sent { .. } | ModelEvent::Retry { .. } => None,
            })
            .collect()
    }

    /// Name and arguments of each call.
    pub(crate) fn calls(&self) -> Vec<(&str, &str)> {
        let reply = self.reply.as_ref().unwrap();
        let calls = reply.tool_calls.iter();
        calls
            .map(|call| {
                (
                    call.function.name.as_str(),
                    call.function.arguments.as_str(),
                )
            })
            .collect()
    }
}

/// Asks a model that has no pauses but those that the server asks for.
pub(crate) async fn ask_with(
    access: &ModelAccess,
    messages: &[Message],
    within: Duration,
) -> Outcome {
    let mut model = OpenAi::new(access).unwrap().with_chance(|| 0.0);
    ask_model(&mut model, messages, within).await
}

/// Asks a given model.
pub(crate) async fn ask_model(
    model: &mut dyn Model,
    messages: &[Message],
    within: Duration,
) -> Outcome {
    let tools = [OfferedTool {
        name: "write_file".to_owned(),
        description: "写文件".to_owned(),
        parameters: json!({"type": "object"}),
    }];
    let before = model.requests();
    let mut events = Vec::new();
    let request = ModelRequest {
        messages,
        tools: &tools,
        within,
    };
    let mut sink = |event| events.push(event);
    let reply = model.complete(request, &mut sink).await;
    Outcome {
        reply,
        events,
        requests: model.requests() - before,
    }
}

/// Long enough for anything that is not to run into the deadline.
pub(crate) const LONG: Duration = Duration::from_secs(60);

/// Asks the server once with the usual configuration, and compares the counts of requests.
pub(crate) async fn ask(server: &ModelServer) -> Outcome {
    let outcome = ask_with(&server.access(), &[Message::user("go")], LONG).await;
    assert_eq!(outcome.requests, server.seen().len() as u64);
    outcome
}

/// Starts a server with these replies and asks it once.
pub(crate) async fn answered(replies: Vec<Reply>) -> (Outcome, Vec<Seen>) {
    let server = ModelServer::start(replies).await;
    let outcome = ask(&server).await;
    let seen = server.seen();
    (outcome, seen)
}

/// A chunk of a stream with this delta.
pub(crate) fn delta(delta: Value) -> Value {
    json!({"choices": [{"index": 0, "delta": delta, "finish_reason": null}]})
}

/// A chunk with this reason for the end.
pub(crate) fn finish(reason: Value) -> Value {
    json!({"choices": [{"index": 0, "delta": {}, "finish_reason": reason}]})
}

/// A whole answer with this message.
pub(crate) fn whole(message: Value, reason: Value) -> Value {
    json!({"choices": [{"index": 0, "message": message, "finish_reason": reason}]})
}
