//! A worker as the leader starts it, started by the bench.
//!
//! What it is started with is not made up here: one agent of a real leader is looked at, its job
//! file and the arguments of its jail, and the same are used again.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use protocol::channel::{INITIALIZE, PROTOCOL};
use protocol::job::{AGENT_DIR, JOB_FILE, SYSTEM_PROMPT_FILE, TASK_FILE};
use serde_json::{Value, json};

use crate::error::BenchError;
use crate::ground::{BUDGET, Ground};
use crate::model::Script;
use crate::process::descendants;
use crate::serve::Serve;

/// How long a worker of the bench may work; it is killed long before.
const REMAINING_MS: u64 = 600_000;
/// Where the results of the sample lie in the workspace.
const FOLDER: &str = "sub_agent_results/agent_1";
/// No file has this path, so that a worker without a keeper looks for no jail.
const NO_JAIL: &str = "/nonexistent/jail";

/// How a worker is started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Through {
    /// By the bench, with nothing around it.
    Nothing,
    /// Through the jail, as the leader does.
    Jail,
}

/// What a leader started one worker with.
#[derive(Debug)]
pub struct Sample {
    /// The workspace that the other texts name.
    workspace: String,
    /// The policy of its jail.
    policy: String,
    /// The worker's own arguments.
    arguments: Vec<String>,
    agent_dir: String,
    files: Vec<(&'static str, String)>,
    model: Value,
}

impl Sample {
    /// Lets a leader start an agent, looks at it, and ends both.
    ///
    /// # Errors
    /// When there is no such agent, or its jail is started otherwise than this one knows.
    pub fn take(ground: &Ground) -> Result<Sample, BenchError> {
        ground.next()?;
        ground.configure("")?;
        ground.model.begin(Script::Hold);
        let serve = Serve::start(ground)?;
        Serve::create(&mut serve.connect()?, FOLDER)?;
        ground.model.arrival(1, BUDGET)?;
        let jail = descendants(serve.pid())?
            .into_iter()
            .find(|seen| seen.parent == serve.pid())
            .ok_or_else(|| BenchError::Failed("the leader has no child".to_owned()))?;
        let path = format!("/proc/{}/cmdline", jail.pid);
        let line = fs::read(&path).map_err(BenchError::io(format!("read {path}")))?;
        let words: Vec<String> = line
            .split(|byte| *byte == 0)
            .map(|word| String::from_utf8_lossy(word).into_owned())
            .collect();
        let unknown =
            || BenchError::Failed(format!("the jail was started by other words: {words:?}"));
        let [_, flag, policy, dashes, _, rest @ .., _] = words.as_slice() else {
            return Err(unknown());
        };
        if flag != "--policy" || dashes != "--" {
            return Err(unknown());
        }
        let job = rest.iter().find(|word| word.ends_with(JOB_FILE));
        let agent_dir = Path::new(job.ok_or_else(unknown)?).with_file_name("");
        let read = |name| {
            let path = agent_dir.join(name);
            let failed = BenchError::io(format!("read {}", path.display()));
            Ok::<_, BenchError>((name, fs::read_to_string(&path).map_err(failed)?))
        };
        let files = vec![read(JOB_FILE)?, read(TASK_FILE)?, read(SYSTEM_PROMPT_FILE)?];
        let job: Value = serde_json::from_str(&files[0].1).map_err(|_| unknown())?;
        Ok(Sample {
            workspace: ground.workspace().to_string_lossy().into_owned(),
            policy: policy.clone(),
            arguments: rest.to_vec(),
            files,
            model: job["model"].clone(),
            agent_dir: agent_dir.to_string_lossy().into_owned(),
        })
    }

    /// A text of the sample, as it would be in the present workspace.
    fn moved(&self, ground: &Ground, text: &str) -> String {
        let workspace = ground.workspace().to_string_lossy().into_owned();
        text.replace(&self.workspace, &workspace)
    }

    /// Lays the job out in an empty workspace, as the leader has before it starts a worker.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn lay_out(&self, ground: &Ground) -> Result<(), BenchError> {
        ground.next()?;
        let agent_dir = PathBuf::from(self.moved(ground, &self.agent_dir));
        fs::create_dir_all(&agent_dir).map_err(BenchError::io(format!("make a {AGENT_DIR}")))?;
        for (name, text) in &self.files {
            fs::write(agent_dir.join(name), self.moved(ground, text))
                .map_err(BenchError::io(format!("write {name}")))?;
        }
        Ok(())
    }

    /// The jail around this program, with the policy of the sample and the bench as its leader.
    ///
    /// # Errors
    /// When the policy is no JSON.
    pub fn jail(&self, ground: &Ground, program: &Path) -> Result<Command, BenchError> {
        let mut policy: Value = serde_json::from_str(&self.moved(ground, &self.policy))
            .map_err(|error| BenchError::Failed(format!("the policy is no JSON: {error}")))?;
        policy["leader_pid"] = json!(std::process::id());
        let mut command = ground.ours("jail");
        command
            .args(["--policy", &policy.to_string(), "--"])
            .arg(program);
        Ok(command)
    }

    /// Starts the worker in a workspace that is laid out.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn start(&self, ground: &Ground, through: Through) -> Result<RunningWorker, BenchError> {
        let mut command = match through {
            Through::Nothing => {
                let mut command = ground.ours("worker");
                command.env("MUSTER_JAIL", NO_JAIL);
                command
            }
            Through::Jail => self.jail(ground, &ground.programs.path("worker"))?,
        };
        command
            .args(self.arguments.iter().map(|word| self.moved(ground, word)))
            .env("MUSTER_NESTED", "1")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let begun = Instant::now();
        let child = command.spawn().map_err(BenchError::io("start a worker"))?;
        Ok(RunningWorker { child, begun })
    }

    /// What a leader answers to the worker's `initialize`.
    fn welcome(&self, id: &Value) -> String {
        let result = json!({"protocol": PROTOCOL, "tools": [], "remaining_ms": REMAINING_MS,
                            "model": {"spec": self.model, "api_key": null}});
        format!(
            "{}\n",
            json!({"jsonrpc": "2.0", "id": id, "result": result})
        )
    }
}

/// A worker that the bench is the leader of; killed when dropped.
#[derive(Debug)]
pub struct RunningWorker {
    child: Child,
    /// Just before its start.
    pub begun: Instant,
}

impl RunningWorker {
    /// Answers the worker's `initialize`.
    ///
    /// # Errors
    /// When it never says that.
    pub fn welcome(&mut self, sample: &Sample) -> Result<(), BenchError> {
        let (Some(stdin), Some(stdout)) = (&mut self.child.stdin, &mut self.child.stdout) else {
            return Err(BenchError::Failed("a worker without a channel".to_owned()));
        };
        let mut said = String::new();
        for line in BufReader::new(stdout).lines() {
            let line = line.map_err(BenchError::io("read the worker's channel"))?;
            let frame: Value = serde_json::from_str(&line).unwrap_or(Value::Null);
            if frame["method"] == json!(INITIALIZE) {
                let welcome = sample.welcome(&frame["id"]);
                return stdin
                    .write_all(welcome.as_bytes())
                    .map_err(BenchError::io("answer the worker"));
            }
            said.push_str(&line);
        }
        Err(BenchError::Failed(format!(
            "the worker ended without a word of `{INITIALIZE}`: {said}"
        )))
    }
}

impl Drop for RunningWorker {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}
