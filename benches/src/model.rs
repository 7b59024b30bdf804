//! A scripted model server that notes to the nanosecond when each request has come in.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::error::BenchError;

/// The stack of a connection's thread, in bytes: hundreds of them wait at once.
const STACK_BYTES: usize = 256 * 1024;

/// What the model does.
#[derive(Debug, Clone, PartialEq)]
pub enum Script {
    /// Takes a request and never answers, so that the agent waits.
    Hold,
    /// Calls these tools, one with each answer; after them it reports success.
    Calls(Vec<(&'static str, Value)>),
}

/// What the server's threads and its owner share. A message would not do: the owner waits for the
/// next arrival of any of hundreds of connections, and changes the script of all at once.
#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    arrived: Condvar,
    is_over: AtomicBool,
}

#[derive(Debug)]
struct State {
    script: Script,
    arrivals: Vec<Instant>,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        // Nothing panics while it holds the lock, and a list of moments is never half written.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A running server; it ends when dropped.
#[derive(Debug)]
pub struct ModelServer {
    port: u16,
    shared: Arc<Shared>,
}

impl ModelServer {
    /// Starts one on a free port of the loopback interface.
    ///
    /// # Errors
    /// When there is none.
    pub fn start() -> Result<ModelServer, BenchError> {
        let failed = "open a port on the loopback interface";
        let listener = TcpListener::bind("127.0.0.1:0").map_err(BenchError::io(failed))?;
        let port = listener
            .local_addr()
            .map_err(BenchError::io(failed))?
            .port();
        let shared = Arc::new(Shared {
            state: Mutex::new(State {
                script: Script::Hold,
                arrivals: Vec::new(),
            }),
            arrived: Condvar::new(),
            is_over: AtomicBool::new(false),
        });
        let of_thread = Arc::clone(&shared);
        thread::spawn(move || accept(&listener, &of_thread));
        Ok(ModelServer { port, shared })
    }

    /// Its port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// What goes into a configuration.
    pub fn base_url(&self) -> String {
        format!("http://127.0.0.1:{}/v1", self.port)
    }

    /// Forgets what has come in and follows another script from now on.
    pub fn begin(&self, script: Script) {
        let mut state = self.shared.state();
        state.script = script;
        state.arrivals.clear();
    }

    /// Waits until so many requests have come in since [`ModelServer::begin`], and gives the
    /// moment of the last of them.
    ///
    /// # Errors
    /// When they have not within the budget.
    pub fn arrival(&self, count: usize, budget: Duration) -> Result<Instant, BenchError> {
        let (state, _) = self
            .shared
            .arrived
            .wait_timeout_while(self.shared.state(), budget, |state| {
                state.arrivals.len() < count
            })
            .unwrap_or_else(PoisonError::into_inner);
        let moment = count.checked_sub(1).and_then(|at| state.arrivals.get(at));
        moment.copied().ok_or_else(|| BenchError::TooSlow {
            what: format!("request {count} of {}", state.arrivals.len()),
            seconds: budget.as_secs(),
        })
    }
}

impl Drop for ModelServer {
    fn drop(&mut self) {
        self.shared.is_over.store(true, Ordering::SeqCst);
        // One more connection wakes the accepting thread so that it sees the flag.
        drop(TcpStream::connect(("127.0.0.1", self.port)));
    }
}

fn accept(listener: &TcpListener, shared: &Arc<Shared>) {
    for stream in listener.incoming() {
        if shared.is_over.load(Ordering::SeqCst) {
            return;
        }
        let Ok(stream) = stream else { continue };
        let shared = Arc::clone(shared);
        let spawned = thread::Builder::new()
            .stack_size(STACK_BYTES)
            .spawn(move || converse(&stream, &shared));
        // Without a thread the connection closes, and the missing request is told.
        drop(spawned);
    }
}

/// Serves one connection until the other side closes it.
fn converse(stream: &TcpStream, shared: &Shared) -> Option<()> {
    stream.set_nodelay(true).ok()?;
    let (mut reader, mut writer) = (BufReader::new(stream), stream);
    loop {
        let body = request(&mut reader)?;
        let moment = Instant::now();
        let script = {
            let mut state = shared.state();
            state.arrivals.push(moment);
            state.script.clone()
        };
        shared.arrived.notify_all();
        match script {
            Script::Hold => {
                // Nothing more comes until it hangs up.
                drop(reader.read(&mut [0]));
                return None;
            }
            Script::Calls(calls) => {
                let body: Value = serde_json::from_slice(&body).ok()?;
                respond(&mut writer, &answer(&body, &calls))?;
            }
        }
    }
}

/// The body of the next request.
fn request(reader: &mut impl BufRead) -> Option<Vec<u8>> {
    let mut length = 0;
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line).ok()? == 0 {
            return None;
        }
        let line = line.trim().to_ascii_lowercase();
        if line.is_empty() {
            break;
        }
        if let Some(value) = line.strip_prefix("content-length:") {
            length = value.trim().parse().ok()?;
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    Some(body)
}

fn respond(writer: &mut impl Write, (kind, text): &(&str, String)) -> Option<()> {
    let head = format!(
        "HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\ncontent-length: {}\r\n\r\n{text}",
        text.len()
    );
    writer.write_all(head.as_bytes()).ok()
}

/// The answer to a request, by how often the model has spoken before; streamed where that is asked
/// for.
fn answer(body: &Value, calls: &[(&'static str, Value)]) -> (&'static str, String) {
    let messages = body["messages"].as_array().map_or(&[][..], Vec::as_slice);
    let spoken = messages
        .iter()
        .filter(|message| message["role"] == "assistant")
        .count();
    let report = || {
        let summary = "The file was written as asked.";
        ("finish_task", json!({"success": true, "summary": summary}))
    };
    let (name, arguments) = calls.get(spoken).cloned().unwrap_or_else(report);
    let call = json!({"index": 0, "id": format!("c{spoken}"), "type": "function",
                      "function": {"name": name, "arguments": arguments.to_string()}});
    let message = json!({"role": "assistant", "content": null, "tool_calls": [call]});
    let usage = json!({"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15});
    if body["stream"] != json!(true) {
        let choice = json!({"index": 0, "message": message, "finish_reason": "tool_calls"});
        let whole = json!({"choices": [choice], "usage": usage});
        return ("application/json", whole.to_string());
    }
    let chunk = |delta: &Value, finish: Value, usage: &Value| {
        json!({"object": "chat.completion.chunk", "usage": usage,
               "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]})
    };
    let first = chunk(&message, Value::Null, &Value::Null);
    let last = chunk(&json!({}), json!("tool_calls"), &usage);
    let text = format!("data: {first}\n\ndata: {last}\n\ndata: [DONE]\n\n");
    ("text/event-stream", text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call_of(body: &Value, calls: &[(&'static str, Value)]) -> Value {
        let (_, text) = answer(body, calls);
        let whole: Value = serde_json::from_str(&text).unwrap();
        whole["choices"][0]["message"]["tool_calls"][0]["function"].clone()
    }

    #[test]
    fn each_answer_calls_the_next_tool_and_the_last_one_reports() {
        let calls = [("write_file", json!({"file_path": "a"}))];
        let first = call_of(&json!({"messages": [{"role": "user"}]}), &calls);
        assert_eq!(
            first,
            json!({"name": "write_file", "arguments": r#"{"file_path":"a"}"#})
        );
        let messages = json!([{"role": "user"}, {"role": "assistant"}, {"role": "tool"}]);
        let last = call_of(&json!({"messages": messages}), &calls);
        assert_eq!(last["name"], "finish_task");
    }

    #[test]
    fn a_request_is_noted_and_held_until_the_budget_is_over() {
        let server = ModelServer::start().unwrap();
        let budget = Duration::from_secs(10);
        let before = Instant::now();
        let mut stream = TcpStream::connect(("127.0.0.1", server.port())).unwrap();
        let text = "POST / HTTP/1.1\r\nContent-Length: 2\r\n\r\n{}";
        stream.write_all(text.as_bytes()).unwrap();
        assert!(server.arrival(1, budget).unwrap() >= before);
        let error = server.arrival(2, Duration::from_millis(1)).unwrap_err();
        assert_eq!(
            error.to_string(),
            "request 2 of 1 did not happen within 0 s"
        );
    }
}
