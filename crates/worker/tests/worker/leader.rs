//! A leader in a few lines: it holds the other ends of a worker's stdin and stdout.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::process::{ChildStdin, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};

use protocol::channel::{FINISHED, INITIALIZE, PROGRESS};
use protocol::job::JobSpec;
use serde_json::{Value, json};

use crate::harness::{BUDGET, Place, Running};

pub(crate) struct FakeLeader {
    pub(crate) worker: Running,
    input: Option<ChildStdin>,
    lines: Receiver<Value>,
    /// Everything that the worker said so far.
    pub(crate) heard: Vec<Value>,
}

/// Writes a job into `out/.subagent`, as a leader would, changed as wanted.
pub(crate) fn write_job(place: &Place, change: impl FnOnce(&mut JobSpec)) {
    let output = place.run().arg("--dry-run").output().unwrap();
    let shown: Value = serde_json::from_slice(&output.stdout).unwrap();
    let mut job: JobSpec = serde_json::from_value(shown["job"].clone()).unwrap();
    change(&mut job);
    fs::create_dir_all(place.own_file("")).unwrap();
    fs::write(
        place.own_file("job.json"),
        serde_json::to_vec(&job).unwrap(),
    )
    .unwrap();
    fs::write(place.own_file("task.md"), "Write a greeting").unwrap();
    fs::write(place.own_file("system_prompt.md"), "You are an agent").unwrap();
}

impl FakeLeader {
    /// Starts a worker on the job of `place`, and does not answer it yet.
    pub(crate) fn start(place: &Place) -> Self {
        let mut command = place.worker();
        command
            .args(["--channel=stdio", "--job"])
            .arg(place.own_file("job.json"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        let mut child = command.spawn().unwrap();
        let input = child.stdin.take();
        let output = child.stdout.take().unwrap();
        let (sender, lines) = channel();
        // It ends with the worker's stdout, which nobody else holds.
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines() {
                let line = line.unwrap();
                let frame = serde_json::from_str(&line)
                    .unwrap_or_else(|error| panic!("{error}: not a frame: {line}"));
                if sender.send(frame).is_err() {
                    return;
                }
            }
        });
        FakeLeader {
            worker: Running(child),
            input,
            lines,
            heard: Vec::new(),
        }
    }

    /// Starts a worker, and welcomes it with so much time.
    pub(crate) fn welcome(place: &Place, remaining_ms: u64) -> Self {
        let mut leader = FakeLeader::start(place);
        leader.answer_initialize(place, remaining_ms, &json!([]));
        leader
    }

    pub(crate) fn answer_initialize(&mut self, place: &Place, remaining_ms: u64, tools: &Value) {
        let hello = self.hear(INITIALIZE);
        assert_eq!(hello["params"]["protocol"], "1.0");
        let job: Value =
            serde_json::from_slice(&fs::read(place.own_file("job.json")).unwrap()).unwrap();
        self.send(&json!({"jsonrpc": "2.0", "id": hello["id"], "result": {
            "protocol": "1.3", "tools": tools, "remaining_ms": remaining_ms,
            "model": {"spec": job["model"], "api_key": null}, "later": true}}));
    }

    pub(crate) fn send(&mut self, frame: &Value) {
        self.send_raw(format!("{frame}\n").as_bytes());
    }

    pub(crate) fn notify(&mut self, method: &str, params: Value) {
        self.send(&json!({"jsonrpc": "2.0", "method": method, "params": params}));
    }

    pub(crate) fn send_raw(&mut self, bytes: &[u8]) {
        self.input.as_mut().unwrap().write_all(bytes).unwrap();
    }

    /// Closes the worker's stdin.
    pub(crate) fn leave(&mut self) {
        self.input = None;
    }

    /// Hears on until something fits; what was heard before counts too.
    pub(crate) fn hear_that(&mut self, what: &str, fits: impl Fn(&Value) -> bool) -> Value {
        if let Some(heard) = self.heard.iter().find(|frame| fits(frame)) {
            return heard.clone();
        }
        loop {
            match self.lines.recv_timeout(BUDGET) {
                Ok(frame) => {
                    self.heard.push(frame.clone());
                    if fits(&frame) {
                        return frame;
                    }
                }
                Err(RecvTimeoutError::Timeout) => panic!("waited in vain for {what}"),
                Err(RecvTimeoutError::Disconnected) => {
                    panic!("no {what}; heard: {:#?}", self.heard)
                }
            }
        }
    }

    pub(crate) fn hear(&mut self, method: &str) -> Value {
        self.hear_that(method, |frame| frame["method"] == method)
    }

    /// Hears everything up to the end of stdout; then the exit code.
    pub(crate) fn end(&mut self) -> Option<i32> {
        while let Ok(frame) = self.lines.recv_timeout(BUDGET) {
            self.heard.push(frame);
        }
        self.worker.end().code()
    }

    pub(crate) fn all(&self, method: &str) -> Vec<&Value> {
        self.heard
            .iter()
            .filter(|frame| frame["method"] == method)
            .collect()
    }

    /// The outcome, which is the last word, right behind the last progress.
    pub(crate) fn outcome(&self) -> &Value {
        assert_eq!(self.all(FINISHED).len(), 1, "{:#?}", self.heard);
        let [.., progress, finished] = self.heard.as_slice() else {
            panic!("{:#?}", self.heard);
        };
        assert_eq!(progress["method"], PROGRESS);
        assert_eq!(finished["method"], FINISHED);
        assert_eq!(progress["params"]["stats"], finished["params"]["stats"]);
        &finished["params"]
    }
}
