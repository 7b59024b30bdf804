//! A workspace, a home and a worker of a test's own, and the executable run in them.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};

/// Long enough for anything on a busy machine; never waited out when all is well.
pub(crate) const BUDGET: Duration = Duration::from_secs(60);

/// What every worker script begins with: where its files are, and how it speaks.
const PRELUDE: &str = r#"#!/bin/sh
job=$2
own=${job%/*}
out=${own%/*}
task=$(sed -n 's/^ *"task_id": "\(sub_[^"]*\)".*/\1/p' "$job" | head -n 1)
say() { printf '%s\n' "$1"; }
hello() {
    say '{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocol":"1.0","worker_version":"test"}}'
    read -r answer
}
progress() {
    say "{\"jsonrpc\":\"2.0\",\"method\":\"agent/progress\",\"params\":{\"stats\":{\"turns\":1,\"files_read\":2},\"last_action\":\"$1\",\"state\":\"running\",\"output_tail\":\"\"}}"
}
finished() {
    say "{\"jsonrpc\":\"2.0\",\"method\":\"agent/finished\",\"params\":{\"success\":$1,\"summary\":\"$2\",\"stop_reason\":null,\"stats\":{\"turns\":4}}}"
}
journal() {
    printf '{"kind":"start","format":1,"agent_id":1,"task_id":"%s","role_id":null,"summary":"s","created_at":"2026-03-10T12:00:00Z"}\n' "$task" >"$own/journal.jsonl"
    printf '{"kind":"message","message":{"role":"assistant","content":"half way"},"stats":{"turns":1}}\n' >>"$own/journal.jsonl"
}
"#;

/// A worker that delivers a file and reports success.
pub(crate) const DELIVERS: &str = "hello\njournal\nprintf '%s' \"$*\" >\"$out/args\"\n\
    echo done >\"$out/a.txt\"\nfinished true 'wrote a.txt'";
/// A worker that works until it is told to stop, and then obeys.
pub(crate) const WORKS: &str = "hello\njournal\nprogress 'thinking hard'\n\
    echo half >\"$out/half.txt\"\nwhile read -r line; do case $line in *agent/stop*) exit 143;; esac; done";
/// A worker that works on, whatever it is told.
pub(crate) const STUBBORN: &str = "trap '' TERM INT HUP\nhello\njournal\n\
    while :; do sleep 1; done";

/// Folders that vanish with the value: a workspace, a home and a worker.
pub(crate) struct Place {
    dir: tempfile::TempDir,
    workspace: PathBuf,
}

impl Place {
    /// A place whose workers run `body`, with a model that is configured.
    pub(crate) fn new(body: &str) -> Place {
        Place::at(body, "w")
    }

    /// The same with the workspace at another relative path.
    pub(crate) fn at(body: &str, workspace: &str) -> Place {
        let dir = tempfile::tempdir().unwrap();
        let workspace = dir.path().join(workspace);
        fs::create_dir_all(&workspace).unwrap();
        let place = Place { dir, workspace };
        place.configure("");
        place.write_worker("worker.sh", body, 0o755);
        place
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub(crate) fn workspace(&self) -> &Path {
        &self.workspace
    }

    /// Writes the user's file: `more` before a script model.
    pub(crate) fn configure(&self, more: &str) {
        let folder = self.path("home/.config/muster");
        fs::create_dir_all(&folder).unwrap();
        let model = "[models.m]\nprovider = \"script\"\nmodel = \"replies.jsonl\"\n";
        fs::write(folder.join("muster.toml"), format!("{more}\n{model}")).unwrap();
    }

    /// Takes the user's file away: no model is configured then.
    pub(crate) fn unconfigure(&self) {
        fs::remove_file(self.path("home/.config/muster/muster.toml")).unwrap();
    }

    fn write_worker(&self, name: &str, body: &str, mode: u32) {
        // Written beside and renamed: a file that is open for writing can't be executed, and
        // another test's child could have inherited the descriptor in the moment of its start.
        let beside = self.path("worker.new");
        fs::write(&beside, format!("{PRELUDE}{body}\n")).unwrap();
        fs::set_permissions(&beside, fs::Permissions::from_mode(mode)).unwrap();
        fs::rename(&beside, self.path(name)).unwrap();
    }

    /// The executable, in the workspace, with nothing of this process's environment but `PATH`.
    pub(crate) fn leader(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_leader"));
        command
            .args(arguments)
            .current_dir(&self.workspace)
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("HOME", self.path("home"))
            .env("MUSTER_WORKER", self.path("worker.sh"))
            // Nobody's Ollama is asked: nothing listens on port 1.
            .env("OLLAMA_HOST", "127.0.0.1:1")
            .stdin(Stdio::null());
        command
    }

    /// Runs it to its end.
    pub(crate) fn run(&self, arguments: &[&str]) -> Ended {
        Running::start(self.leader(arguments)).end()
    }

    /// Starts it and leaves it running.
    pub(crate) fn start(&self, arguments: &[&str]) -> Running {
        Running::start(self.leader(arguments))
    }

    /// The folder of the only run there is.
    pub(crate) fn run_dir(&self) -> PathBuf {
        let runs = fs::read_dir(self.workspace.join(".muster/runs")).unwrap();
        let runs: Vec<PathBuf> = runs.map(|entry| entry.unwrap().path()).collect();
        assert_eq!(runs.len(), 1, "{runs:?}");
        runs[0].clone()
    }
}

/// What a run came to.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) status: ExitStatus,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Ended {
    pub(crate) fn code(&self) -> Option<i32> {
        self.status.code()
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }
}

/// A started executable, killed when it is dropped before its end.
pub(crate) struct Running {
    pub(crate) child: Child,
    stdout: Option<JoinHandle<String>>,
    stderr: Option<JoinHandle<String>>,
}

impl Running {
    pub(crate) fn start(mut command: Command) -> Running {
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let stdout = child.stdout.take().map(read_all);
        let stderr = child.stderr.take().map(read_all);
        Running {
            child,
            stdout,
            stderr,
        }
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.child.id().cast_signed()), signal).unwrap();
    }

    /// Waits for its end by itself.
    pub(crate) fn end(mut self) -> Ended {
        let status = until("the end of the leader", || self.child.try_wait().unwrap());
        let text = |reader: Option<JoinHandle<String>>| reader.unwrap().join().unwrap();
        Ended {
            status,
            stdout: text(self.stdout.take()),
            stderr: text(self.stderr.take()),
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if self.child.try_wait().unwrap().is_none() {
            self.child.kill().unwrap();
            self.child.wait().unwrap();
        }
    }
}

fn read_all(mut pipe: impl Read + Send + 'static) -> JoinHandle<String> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        pipe.read_to_end(&mut bytes).unwrap();
        String::from_utf8_lossy(&bytes).into_owned()
    })
}

/// Asks until there is an answer.
pub(crate) fn until<T>(what: &str, mut ask: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(answer) = ask() {
            return answer;
        }
        assert!(start.elapsed() < BUDGET, "{what} never came");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// A `leader serve`.
pub(crate) struct Serve {
    child: Child,
    stdout: BufReader<std::process::ChildStdout>,
    pub(crate) told: Value,
}

impl Serve {
    pub(crate) fn start(place: &Place) -> Serve {
        let mut command = place.leader(&["serve", "--json"]);
        let mut child = command
            .stdout(Stdio::piped())
            .stderr(fs::File::create(place.path("serve.log")).unwrap())
            .spawn()
            .unwrap();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        stdout.read_line(&mut line).unwrap();
        let log = fs::read_to_string(place.path("serve.log")).unwrap();
        let told = serde_json::from_str(&line).unwrap_or_else(|_| panic!("{line}: {log}"));
        Serve {
            child,
            stdout,
            told,
        }
    }

    pub(crate) fn connect(&self) -> Caller {
        let stream = UnixStream::connect(self.told["socket"].as_str().unwrap()).unwrap();
        Caller::new(stream)
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.child.id().cast_signed()), signal).unwrap();
    }

    /// Waits for its end, and gives its code and what else it printed on stdout.
    pub(crate) fn end(&mut self) -> (Option<i32>, String) {
        let status = until("the end of the leader", || self.child.try_wait().unwrap());
        let mut rest = String::new();
        self.stdout.read_to_string(&mut rest).unwrap();
        (status.code(), rest)
    }
}

impl Drop for Serve {
    fn drop(&mut self) {
        if self.child.try_wait().unwrap().is_none() {
            self.child.kill().unwrap();
            self.child.wait().unwrap();
        }
    }
}

/// A caller of a control socket.
pub(crate) struct Caller {
    stream: UnixStream,
    lines: BufReader<UnixStream>,
    next: u64,
    kept: Vec<Value>,
}

impl Caller {
    pub(crate) fn new(stream: UnixStream) -> Caller {
        stream.set_read_timeout(Some(BUDGET)).unwrap();
        Caller {
            lines: BufReader::new(stream.try_clone().unwrap()),
            stream,
            next: 0,
            kept: Vec::new(),
        }
    }

    pub(crate) fn send_line(&mut self, line: &str) {
        self.stream
            .write_all(format!("{line}\n").as_bytes())
            .unwrap();
    }

    /// Sends a call and gives its id; the first is 0.
    pub(crate) fn send(&mut self, method: &str, params: Value) -> u64 {
        let id = self.next;
        self.next += 1;
        self.send_line(&json!({"id": id, "method": method, "params": params}).to_string());
        id
    }

    /// The next line, whatever it is.
    pub(crate) fn line(&mut self) -> Value {
        let mut line = String::new();
        self.lines.read_line(&mut line).unwrap();
        assert!(!line.is_empty(), "the leader hung up");
        serde_json::from_str(&line).unwrap()
    }

    /// The answer to a call.
    pub(crate) fn answer(&mut self, id: u64) -> Value {
        let is_mine = |line: &Value| line["id"] == id;
        if let Some(at) = self.kept.iter().position(is_mine) {
            return self.kept.remove(at);
        }
        loop {
            let line = self.line();
            if is_mine(&line) {
                return line;
            }
            self.kept.push(line);
        }
    }

    /// A call and its result.
    pub(crate) fn call(&mut self, method: &str, params: Value) -> Value {
        let id = self.send(method, params);
        let answer = self.answer(id);
        assert!(answer.get("error").is_none(), "{answer}");
        answer["result"].clone()
    }
}

/// The parameters of a create.
pub(crate) fn order(number: u32, in_background: bool) -> Value {
    json!({
        "agent_id": number,
        "summary": format!("write a file, number {number}"),
        "task": "Write a file.",
        "run_in_background": in_background,
    })
}
