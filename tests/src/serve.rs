//! A leader that serves, and a client of its control socket.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};

use crate::ground::{self, User};
use crate::waiting::until;
use crate::workspace::Workspace;

/// How long any answer of the socket may take in a test.
const ANSWER_BUDGET: Duration = Duration::from_secs(60);

/// A running `leader serve`. It is shut down, and killed if need be, when dropped.
#[derive(Debug)]
pub struct Serve {
    child: Child,
    user: User,
    /// Where its control socket is.
    pub socket: PathBuf,
    /// Its conversation.
    pub conversation: String,
}

impl Serve {
    /// Starts it in the workspace.
    ///
    /// # Panics
    /// When it does not say where its socket is.
    pub fn start(workspace: &Workspace) -> Self {
        Serve::start_as(workspace, |_| {})
    }

    /// Starts it with changes to its command.
    ///
    /// # Panics
    /// When it does not say where its socket is.
    pub fn start_as(workspace: &Workspace, change: impl FnOnce(&mut Command)) -> Self {
        let mut command = workspace.command("leader");
        command.args(["serve", "--json"]);
        change(&mut command);
        let log = std::fs::File::create(workspace.home().join("serve.log")).expect("a log of ours");
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(log)
            .spawn()
            .expect("the leader starts");
        let stdout = child.stdout.take().expect("stdout is piped");
        let mut line = String::new();
        BufReader::new(stdout)
            .read_line(&mut line)
            .expect("a line of the leader");
        let told: Value = serde_json::from_str(&line).unwrap_or_else(|error| {
            let log = std::fs::read_to_string(workspace.home().join("serve.log"));
            panic!("no JSON of `leader serve` ({error}): {line}\n{log:?}")
        });
        let text = |key: &str| told[key].as_str().expect("a text").to_owned();
        Serve {
            child,
            user: workspace.ground().user,
            socket: text("socket").into(),
            conversation: text("conversation"),
        }
    }

    /// The leader's process id.
    pub fn pid(&self) -> i32 {
        i32::try_from(self.child.id()).expect("a pid fits")
    }

    /// A new connection.
    ///
    /// # Panics
    /// When the socket refuses.
    pub fn connect(&self) -> Client {
        Client::connect(self.user, &self.socket)
    }

    /// One call on a connection of its own.
    pub fn call(&self, method: &str, params: Value) -> Value {
        self.connect().call(method, params)
    }

    /// Kills the leader as a crash would, and reaps it.
    pub fn kill(&mut self) {
        self.child.kill().expect("a child of ours");
        self.child.wait().expect("a child of ours");
    }

    /// Waits for the leader to end by itself.
    pub fn wait(&mut self, budget: Duration) -> Option<std::process::ExitStatus> {
        until(budget, || self.child.try_wait().expect("a child of ours"))
    }
}

impl Drop for Serve {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(Some(_))) {
            return;
        }
        if let Ok(stream) = ground::connect(self.user, &self.socket) {
            Client::new(stream).send("shutdown", json!({}));
        }
        if self.wait(Duration::from_secs(15)).is_none() {
            self.kill();
        }
    }
}

/// A connection to a control socket. Answers may come in any order.
#[derive(Debug)]
pub struct Client {
    stream: UnixStream,
    lines: Receiver<Value>,
    answers: HashMap<u64, Value>,
    events: Vec<Value>,
    next: u64,
}

impl Client {
    /// Connects to the socket of a leader of `user`.
    ///
    /// # Panics
    /// When it refuses.
    pub fn connect(user: User, socket: &Path) -> Self {
        Client::new(ground::connect(user, socket).expect("the socket of a live leader"))
    }

    fn new(stream: UnixStream) -> Self {
        let reader = stream.try_clone().expect("a descriptor more");
        let (sender, lines) = channel();
        thread::spawn(move || {
            for line in BufReader::new(reader).lines().map_while(Result::ok) {
                let Ok(value) = serde_json::from_str(&line) else {
                    continue;
                };
                if sender.send(value).is_err() {
                    return;
                }
            }
        });
        Client {
            stream,
            lines,
            answers: HashMap::new(),
            events: Vec::new(),
            next: 0,
        }
    }

    /// Sends a call and gives its id; the first is 0.
    pub fn send(&mut self, method: &str, params: Value) -> u64 {
        let id = self.next;
        self.next += 1;
        let frame = json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params});
        self.send_line(&frame.to_string());
        id
    }

    /// Sends one line as it is.
    pub fn send_line(&mut self, line: &str) {
        // A leader that has gone is seen at the missing answer.
        self.stream.write_all(format!("{line}\n").as_bytes()).ok();
    }

    /// The answer to a call: its result, or `{"rpc_error": …}`.
    ///
    /// # Panics
    /// When there is none in time.
    pub fn answer(&mut self, id: u64) -> Value {
        loop {
            if let Some(answer) = self.answers.remove(&id) {
                return answer;
            }
            let line = self
                .lines
                .recv_timeout(ANSWER_BUDGET)
                .unwrap_or_else(|error| panic!("no answer to call {id}: {error}"));
            self.take(line);
        }
    }

    /// The next line that answers no call of ours: an event, or an error without an id.
    ///
    /// # Panics
    /// When there is none in time.
    pub fn event(&mut self) -> Value {
        loop {
            if !self.events.is_empty() {
                return self.events.remove(0);
            }
            let line = self
                .lines
                .recv_timeout(ANSWER_BUDGET)
                .expect("an event in time");
            self.take(line);
        }
    }

    fn take(&mut self, line: Value) {
        match line["id"].as_u64() {
            Some(id) if line.get("error").is_some() => {
                self.answers.insert(id, json!({"rpc_error": line["error"]}));
            }
            Some(id) => {
                self.answers.insert(id, line["result"].clone());
            }
            None => self.events.push(line),
        }
    }

    /// A call and its answer.
    pub fn call(&mut self, method: &str, params: Value) -> Value {
        let id = self.send(method, params);
        self.answer(id)
    }
}
