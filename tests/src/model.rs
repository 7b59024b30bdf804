//! A model server for faults and records: it answers chat completions by script, or misbehaves.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};

use crate::script::Turn;

/// What the server does with every request.
#[derive(Debug, Clone)]
pub enum Behaviour {
    /// Replies with the turn whose number is the count of assistant messages so far; the last one
    /// is repeated. Stateless, so that any number of agents can share it.
    Turns(Vec<Turn>),
    /// As [`Behaviour::Turns`], for requests of at most so many bytes; a larger one is refused as
    /// too long for the model's context.
    Limited(usize, Vec<Turn>),
    /// Takes the request and says nothing more.
    Silent,
    /// Answers with this status, content type and body.
    Fixed(u16, &'static str, String),
    /// Gives the requests these replies in order, the last one for ever, and closes the connection
    /// behind each.
    Exact(Vec<Reply>),
}

/// A reply down to its bytes: head, body, and the places where it is slow.
#[derive(Debug, Clone, Default)]
pub struct Reply(Vec<Step>);

#[derive(Debug, Clone)]
enum Step {
    /// One packet, where the kernel lets us.
    Send(Vec<u8>),
    /// Lets the packet before it arrive alone.
    Pause(Duration),
    /// Says nothing more, and leaves the connection open.
    Hold,
}

impl Reply {
    /// A status line with the type of what follows; the body ends with the connection.
    pub fn head(status: u16, kind: &str, more: &str) -> Self {
        Reply::default().bytes(format!(
            "HTTP/1.1 {status} X\r\ncontent-type: {kind}\r\nconnection: close\r\n{more}\r\n"
        ))
    }

    /// The head of an event stream.
    pub fn stream() -> Self {
        Reply::head(200, "text/event-stream", "")
    }

    /// A stream of these chunks and its last word.
    pub fn chunks(chunks: &[Value]) -> Self {
        Reply::stream()
            .some_chunks(chunks)
            .bytes("data: [DONE]\n\n")
    }

    /// A whole answer of JSON.
    pub fn json(status: u16, body: &Value) -> Self {
        Reply::head(status, "application/json", "").bytes(body.to_string())
    }

    /// Adds chunks of a stream.
    #[must_use]
    pub fn some_chunks(self, chunks: &[Value]) -> Self {
        let text: String = chunks
            .iter()
            .map(|chunk| format!("data: {chunk}\n\n"))
            .collect();
        self.bytes(text)
    }

    /// Adds bytes.
    #[must_use]
    pub fn bytes(mut self, bytes: impl Into<Vec<u8>>) -> Self {
        self.0.push(Step::Send(bytes.into()));
        self
    }

    /// Lets a moment pass, so that what follows comes in a packet of its own.
    #[must_use]
    pub fn pause(mut self, milliseconds: u64) -> Self {
        self.0
            .push(Step::Pause(Duration::from_millis(milliseconds)));
        self
    }

    /// Says nothing more.
    #[must_use]
    pub fn hold(mut self) -> Self {
        self.0.push(Step::Hold);
        self
    }

    fn send(&self, writer: &mut TcpStream, stop: &AtomicBool) -> Option<()> {
        for step in &self.0 {
            match step {
                Step::Send(bytes) => writer.write_all(bytes).ok()?,
                Step::Pause(pause) => thread::sleep(*pause),
                Step::Hold => until_stopped(stop),
            }
        }
        Some(())
    }
}

/// A running server; it stops when dropped.
#[derive(Debug)]
pub struct ModelServer {
    address: SocketAddr,
    log: Arc<Log>,
    stop: Arc<AtomicBool>,
}

/// What came so far. Shared with the connection threads, which only append; a message queue would
/// need a thread of its own to be asked.
#[derive(Debug, Default)]
struct Log {
    heads: Mutex<Vec<String>>,
    bodies: Mutex<Vec<Value>>,
}

impl ModelServer {
    /// Starts one on a free port of the loopback interface.
    ///
    /// # Panics
    /// When there is none.
    pub fn start(behaviour: Behaviour) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener
            .local_addr()
            .expect("a bound socket has an address");
        let (requests, stop) = (Arc::new(Log::default()), Arc::new(AtomicBool::new(false)));
        let (log, flag) = (Arc::clone(&requests), Arc::clone(&stop));
        thread::spawn(move || {
            for stream in listener.incoming() {
                if flag.load(Ordering::SeqCst) {
                    return;
                }
                let Ok(stream) = stream else { continue };
                let (behaviour, log, flag) =
                    (behaviour.clone(), Arc::clone(&log), Arc::clone(&flag));
                thread::spawn(move || converse(stream, &behaviour, &log, &flag));
            }
        });
        ModelServer {
            address,
            log: requests,
            stop,
        }
    }

    /// What goes into `base_url`.
    pub fn base_url(&self) -> String {
        format!("http://{}/v1", self.address)
    }

    /// The bodies of all requests so far.
    pub fn requests(&self) -> Vec<Value> {
        self.log
            .bodies
            .lock()
            .expect("appending does not panic")
            .clone()
    }

    /// The request lines and headers of all requests so far, a line each, as they came.
    pub fn heads(&self) -> Vec<String> {
        self.log
            .heads
            .lock()
            .expect("appending does not panic")
            .clone()
    }
}

impl Drop for ModelServer {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        // One more connection wakes the accepting thread so that it sees the flag.
        TcpStream::connect(self.address).ok();
    }
}

fn converse(stream: TcpStream, behaviour: &Behaviour, log: &Log, stop: &AtomicBool) -> Option<()> {
    let mut writer = stream.try_clone().ok()?;
    let mut reader = BufReader::new(stream);
    loop {
        let (mut length, mut head) = (0, String::new());
        loop {
            let mut line = String::new();
            if reader.read_line(&mut line).ok()? == 0 {
                return None;
            }
            let line = line.trim();
            if line.is_empty() {
                break;
            }
            head.push_str(line);
            head.push('\n');
            if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                length = value.trim().parse().ok()?;
            }
        }
        let mut body = vec![0; length];
        reader.read_exact(&mut body).ok()?;
        let size = body.len();
        let body: Value = serde_json::from_slice(&body).unwrap_or(Value::Null);
        let unbroken = "appending does not panic";
        log.heads.lock().expect(unbroken).push(head);
        let at = {
            let mut bodies = log.bodies.lock().expect(unbroken);
            bodies.push(body.clone());
            bodies.len() - 1
        };
        match behaviour {
            Behaviour::Silent => {
                until_stopped(stop);
                return None;
            }
            Behaviour::Exact(replies) => {
                let reply = replies.get(at).or(replies.last())?;
                reply.send(&mut writer, stop)?;
                return None;
            }
            Behaviour::Fixed(status, kind, text) => respond(&mut writer, *status, kind, text)?,
            Behaviour::Limited(most, _) if size > *most => {
                let words = format!("maximum context is {most} bytes, the request has {size}");
                let error = json!({"error": {"code": "context_length_exceeded", "message": words}});
                respond(&mut writer, 400, "application/json", &error.to_string())?;
            }
            Behaviour::Turns(turns) | Behaviour::Limited(_, turns) => {
                let turn = turn_for(&body, turns);
                let (kind, text) = encode(&turn, &body);
                respond(&mut writer, 200, kind, &text)?;
            }
        }
    }
}

fn until_stopped(stop: &AtomicBool) {
    while !stop.load(Ordering::SeqCst) {
        thread::sleep(Duration::from_millis(20));
    }
}

fn respond(writer: &mut TcpStream, status: u16, kind: &str, text: &str) -> Option<()> {
    let head = format!(
        "HTTP/1.1 {status} X\r\ncontent-type: {kind}\r\ncontent-length: {}\r\n\r\n",
        text.len()
    );
    writer.write_all(head.as_bytes()).ok()?;
    writer.write_all(text.as_bytes()).ok()
}

fn turn_for(body: &Value, turns: &[Turn]) -> Turn {
    let messages = body["messages"]
        .as_array()
        .map(Vec::as_slice)
        .unwrap_or_default();
    let done = messages
        .iter()
        .filter(|message| message["role"] == "assistant")
        .count();
    let mut turn = turns
        .get(done)
        .or(turns.last())
        .cloned()
        .unwrap_or(Turn::text("nothing"));
    while let Turn::Late(delay_ms, inner) = turn {
        thread::sleep(Duration::from_millis(delay_ms));
        turn = *inner;
    }
    turn
}

/// The turn as a chat completion, streamed when the request asks for it.
fn encode(turn: &Turn, body: &Value) -> (&'static str, String) {
    let (content, calls) = match turn {
        Turn::Text(text) => (json!(text), None),
        Turn::Calls(calls) => {
            let turn_number = body["messages"].as_array().map_or(0, Vec::len);
            let calls = calls
                .iter()
                .enumerate()
                .map(|(index, (name, arguments))| {
                    json!({"index": index, "id": format!("c{turn_number}_{index}"),
                           "type": "function",
                           "function": {"name": name, "arguments": arguments.to_string()}})
                })
                .collect::<Vec<_>>();
            (Value::Null, Some(calls))
        }
        Turn::Late(_, inner) => return encode(inner, body),
    };
    let finish = if calls.is_some() {
        "tool_calls"
    } else {
        "stop"
    };
    let mut message = json!({"role": "assistant", "content": content});
    if let Some(calls) = calls {
        message["tool_calls"] = json!(calls);
    }
    let usage = json!({"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15});
    if body["stream"] != json!(true) {
        let choice = json!({"index": 0, "message": message, "finish_reason": finish});
        return (
            "application/json",
            json!({"choices": [choice], "usage": usage}).to_string(),
        );
    }
    let chunk = |choices: Value| json!({"object": "chat.completion.chunk", "choices": choices});
    let first = chunk(json!([{"index": 0, "delta": message, "finish_reason": null}]));
    let last = chunk(json!([{"index": 0, "delta": {}, "finish_reason": finish}]));
    let mut counted = chunk(json!([]));
    counted["usage"] = usage;
    let text: String = [first, last, counted]
        .iter()
        .map(|event| format!("data: {event}\n\n"))
        .collect();
    ("text/event-stream", text + "data: [DONE]\n\n")
}
