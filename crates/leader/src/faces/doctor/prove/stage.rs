//! A leader to be thrown away, in a workspace to be thrown away, with real workers whose models
//! are scripts.

use std::fmt::Write as _;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use confine::report::Rung;
use confine::signal::{PidFd, Signal};
use protocol::error::{ErrorCode, ToolError};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};
use tokio::process::{Child, ChildStdin, Command};

use crate::faces::client::Client;
use crate::faces::console::code_of;
use crate::faces::doctor::prove::trees::{self, LIFE_SECONDS};
use crate::faces::doctor::prove::{attempts, secrets};
use crate::os::clock;
use crate::os::programs::{JAIL_VARIABLE, Programs, WORKER_VARIABLE};
use crate::os::rung::Wanted;
use crate::settings::{CONFIG_VARIABLE, Variables};

/// How long the leader may take until its socket is open.
const START_MS_MAX: u64 = 10_000;
/// How long it may take to end once it is no longer needed; it is killed then.
const END_MS_MAX: u64 = 2_000;
/// How long its workspace may take to be removed.
const REMOVE_MS_MAX: u64 = 2_000;
/// Between two tries to remove it.
const REMOVE_PAUSE_MS: u64 = 5;
/// The most that is read of its first line.
const FIRST_LINE_BYTES_MAX: u64 = 64 * 1024;
/// The folder in its workspace that holds scripts and pipes.
pub const FOLDER: &str = "escape";
/// What its model says.
const SCRIPT: &str = "replies.jsonl";

/// What a stage is set up with.
#[derive(Debug)]
pub struct StageOrder<'a> {
    /// The executables.
    pub programs: &'a Programs,
    /// This process's environment, of which only our own variables are left out.
    pub variables: &'a Variables,
    /// What the configuration wants of the machine.
    pub wanted: &'a Wanted,
    /// The highest rung that is tried.
    pub highest: Rung,
    /// Agents that run at once.
    pub agents: usize,
    /// What the model of each agent says, reply by reply.
    pub replies: Vec<Value>,
    /// Further lines of the table `[confinement]`.
    pub confinement: String,
    /// Whether there is something to be kept from being written.
    pub guarded: bool,
}

/// A running leader.
#[derive(Debug)]
pub struct Stage {
    // Dropped in this order: the leader has to be gone before its place is.
    child: Child,
    /// Its end is the end of the leader, also when this process is killed.
    stdin: Option<ChildStdin>,
    hold: PidFd,
    client: Client,
    place: TempDir,
    key: String,
}

impl Stage {
    /// Makes the workspace and starts the leader in it.
    ///
    /// # Errors
    /// When there is no room for a workspace, or the leader does not start.
    pub async fn open(order: &StageOrder<'_>) -> Result<Stage, ToolError> {
        let place = tempfile::Builder::new()
            .prefix("muster-prove-")
            .tempdir()
            .map_err(|error| no_place(&error))?;
        let workspace = prepare(place.path(), order).map_err(|error| no_place(&error))?;
        let key = secrets::new_key();
        let mut child = start(&workspace, place.path(), &key, order)?;
        let stdin = child.stdin.take();
        let socket = socket_of(&mut child).await?;
        // The child is not reaped, for only this value waits for it.
        let hold = PidFd::open(child.id().unwrap_or(0))
            .map_err(|error| failed(format!("the leader can't be held: {error}")))?;
        let run_dir = socket.parent().unwrap_or(&workspace);
        let client = Client::connect(run_dir)
            .map_err(|error| failed(format!("its socket can't be reached: {error}")))?;
        Ok(Stage {
            child,
            stdin,
            hold,
            client,
            place,
            key,
        })
    }

    /// The folder that holds everything of it.
    pub fn place(&self) -> &Path {
        self.place.path()
    }

    /// The key of its agents' model.
    pub fn key(&self) -> &str {
        &self.key
    }

    /// The leader's workspace.
    pub fn workspace(&self) -> PathBuf {
        self.place.path().join("w")
    }

    /// Where the scripts lie and the pipes go.
    pub fn folder(&self) -> PathBuf {
        self.workspace().join(FOLDER)
    }

    /// Starts an agent whose trees try to escape.
    ///
    /// # Errors
    /// When the leader refuses it.
    pub async fn create(&mut self, agent: u32) -> Result<(), ToolError> {
        let order = json!({
            "agent_id": agent,
            "summary": "Start processes that escape",
            "task": "Start processes that escape.",
            "run_in_background": true,
            "timeout_seconds": LIFE_SECONDS,
        });
        self.call("create_sub_agent", order).await.map(drop)
    }

    /// Runs an agent to its end, and gives its result.
    ///
    /// # Errors
    /// When the leader refuses it, or it did not succeed.
    pub async fn run(&mut self, agent: u32) -> Result<Value, ToolError> {
        let order = json!({
            "agent_id": agent,
            "summary": "Try to write and to connect",
            "task": "Try to write and to connect.",
            "timeout_seconds": LIFE_SECONDS,
        });
        self.call("create_sub_agent", order).await
    }

    /// What is enforced on an agent.
    ///
    /// # Errors
    /// When the leader does not tell.
    pub async fn confinement(&mut self, agent: u32) -> Result<Value, ToolError> {
        let asked = json!({"agent_id": agent});
        let mut answer = self.call("get_sub_agent_status", asked).await?;
        Ok(answer["agents"][0]["confinement"].take())
    }

    /// Terminates an agent; the answer comes when its tree is gone.
    ///
    /// # Errors
    /// When the leader refuses.
    pub async fn terminate(&mut self, agent: u32) -> Result<(), ToolError> {
        let asked = json!({"agent_id": agent});
        self.call("terminate_sub_agent", asked).await.map(drop)
    }

    async fn call(&mut self, method: &str, params: Value) -> Result<Value, ToolError> {
        let answer = self.client.call(method, params).await;
        let answer = answer.map_err(|error| failed(format!("{method}: {error}")))?;
        match answer["success"].as_bool() {
            Some(true) => Ok(answer),
            Some(false) | None => Err(refusal(&answer)),
        }
    }

    /// Kills the leader as a crash would.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn kill(&self) -> Result<(), ToolError> {
        let sent = self.hold.send(Signal::SIGKILL);
        sent.map(drop)
            .map_err(|error| failed(format!("it could not be killed: {error}")))
    }

    /// Ends the leader, if it still runs, and removes the workspace.
    ///
    /// # Errors
    /// When the workspace can't be removed.
    pub async fn end(mut self) -> Result<(), ToolError> {
        drop(self.stdin.take());
        let limit = Duration::from_millis(END_MS_MAX);
        if tokio::time::timeout(limit, self.child.wait())
            .await
            .is_err()
        {
            // Its death ends its agents as far as their rung reaches. An error means that it is
            // gone already.
            self.child.kill().await.ok();
        }
        remove(self.place.path()).await.map_err(|error| {
            let path = self.place.path().display();
            let text = format!("`{path}` could not be removed: {error}");
            ToolError::new(code_of(&error), text)
        })
    }
}

/// Removes a folder into which the jails of a dead leader may still write how their trees ended:
/// what comes in between is removed by the next try.
async fn remove(folder: &Path) -> std::io::Result<()> {
    let begin = clock::now();
    loop {
        match std::fs::remove_dir_all(folder) {
            Ok(()) => return Ok(()),
            Err(error) if error.kind() == ErrorKind::NotFound && !folder.exists() => return Ok(()),
            Err(error) if begin.elapsed() > Duration::from_millis(REMOVE_MS_MAX) => {
                return Err(error);
            }
            Err(_) => tokio::time::sleep(Duration::from_millis(REMOVE_PAUSE_MS)).await,
        }
    }
}

fn failed(text: String) -> ToolError {
    ToolError::new(
        ErrorCode::Internal,
        format!("the leader that is to be killed does not work: {text}"),
    )
    .hint("`leader doctor` without --prove tells whether agents can run here")
}

fn no_place(error: &std::io::Error) -> ToolError {
    ToolError::new(
        code_of(error),
        format!("a temporary workspace could not be made: {error}"),
    )
    .hint("TMPDIR names the directory for it")
}

/// A refusal as the leader gave it.
fn refusal(answer: &Value) -> ToolError {
    serde_json::from_value(answer["error"].clone())
        .unwrap_or_else(|_| failed(format!("it answered {answer}")))
}

/// Writes all that the leader reads, and gives its workspace.
fn prepare(place: &Path, order: &StageOrder<'_>) -> std::io::Result<PathBuf> {
    let workspace = place.canonicalize()?.join("w");
    let folder = workspace.join(FOLDER);
    std::fs::create_dir_all(&folder)?;
    trees::write_scripts(&folder)?;
    secrets::write_script(&folder)?;
    if order.guarded {
        attempts::set_up(&workspace, &folder)?;
    }
    let script = folder.join(SCRIPT);
    let replies = order.replies.iter().map(|reply| format!("{reply}\n"));
    std::fs::write(&script, replies.collect::<String>())?;
    std::fs::write(config_file(place), config_text(&script, order))?;
    Ok(workspace)
}

fn config_file(place: &Path) -> PathBuf {
    place.join("muster.toml")
}

/// The configuration of the leader: no grace, so that a terminate kills at once.
fn config_text(script: &Path, order: &StageOrder<'_>) -> String {
    let mut text = format!(
        "language = \"en\"\ndefault_model = \"proof\"\n\
         [limits]\nmax_concurrent = {}\ngrace_seconds = 0\ntimeout_seconds_min = 1\n\
         [models.proof]\nprovider = \"script\"\nmodel = {}\napi_key_env = \"{}\"\n\
         [confinement]\nhighest = \"{}\"\n",
        order.agents,
        quoted(&script.to_string_lossy()),
        secrets::VARIABLE,
        order.highest,
    );
    if let Some(cgroup) = &order.wanted.cgroup {
        // Writing to a text can't fail.
        writeln!(text, "cgroup = {}", quoted(&cgroup.to_string_lossy())).ok();
    }
    text + &order.confinement
}

/// A text as TOML has it: its basic strings know every escape that JSON writes.
fn quoted(text: &str) -> String {
    Value::from(text).to_string()
}

#[expect(
    clippy::disallowed_methods,
    reason = "the proof starts a leader of its own, to kill it"
)]
fn start(
    workspace: &Path,
    place: &Path,
    key: &str,
    order: &StageOrder<'_>,
) -> Result<Child, ToolError> {
    let own = std::env::current_exe().map_err(|error| failed(error.to_string()))?;
    let mut command = Command::new(own);
    command
        .arg("-C")
        .arg(workspace)
        .args(["serve", "--json", "--while-stdin"])
        // What it would log is of no use to anybody.
        .env("RUST_LOG", "off")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        // Ctrl-C is for this process, which then ends the other in order.
        .process_group(0)
        .kill_on_drop(true);
    for (name, _) in order.variables.pairs() {
        if name.starts_with("MUSTER_") {
            command.env_remove(name);
        }
    }
    command
        .env(CONFIG_VARIABLE, config_file(place))
        .env(secrets::VARIABLE, key)
        .env(WORKER_VARIABLE, &order.programs.worker)
        .env(JAIL_VARIABLE, &order.programs.jail)
        .spawn()
        .map_err(|error| failed(error.to_string()))
}

/// Waits for the line that says where the socket is.
async fn socket_of(child: &mut Child) -> Result<PathBuf, ToolError> {
    let Some(stdout) = child.stdout.take() else {
        return Err(failed("it has no stdout".to_owned()));
    };
    let mut line = String::new();
    let mut stdout = BufReader::new(stdout.take(FIRST_LINE_BYTES_MAX));
    let limit = Duration::from_millis(START_MS_MAX);
    match tokio::time::timeout(limit, stdout.read_line(&mut line)).await {
        Ok(Ok(_)) => {}
        Ok(Err(error)) => return Err(failed(error.to_string())),
        Err(_) => {
            let seconds = START_MS_MAX / 1_000;
            return Err(failed(format!("it did not start within {seconds} s")));
        }
    }
    let told: Value = serde_json::from_str(&line).unwrap_or_default();
    match (told["success"].as_bool(), told["socket"].as_str()) {
        (Some(true), Some(socket)) => Ok(PathBuf::from(socket)),
        (Some(false), _) => Err(refusal(&told)),
        (_, _) => Err(failed(format!("it said: {}", line.trim()))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use protocol::config::{ConfigFile, Layers, RequiredRung, resolve};
    use protocol::confinement::WriteMode;

    #[test]
    fn the_leader_reads_what_is_written_for_it_whatever_the_paths() {
        let place = tempfile::tempdir().unwrap();
        let wanted = Wanted {
            require: Rung::Group,
            highest: Rung::Cgroup2,
            cgroup: Some(PathBuf::from("/sys/fs/cgroup/\"odd\\ name\"\u{1}")),
        };
        let order = StageOrder {
            programs: &Programs {
                worker: "/w".into(),
                jail: "/j".into(),
            },
            variables: &Variables::default(),
            wanted: &wanted,
            highest: Rung::Pidns,
            agents: 4,
            replies: vec![json!({"text": "a"}), json!({"text": "b"})],
            confinement: "write = \"scope\"\n".to_owned(),
            guarded: true,
        };
        let workspace = prepare(place.path(), &order).unwrap();
        let settings = resolve(&Layers {
            user: Some(ConfigFile {
                name: "muster.toml".to_owned(),
                text: std::fs::read_to_string(config_file(place.path())).unwrap(),
            }),
            ..Layers::default()
        })
        .unwrap();
        assert_eq!(settings.limits.max_concurrent, 4);
        assert_eq!(settings.limits.grace_seconds, 0);
        assert_eq!(settings.highest, RequiredRung::Pidns);
        assert_eq!(settings.cgroup, wanted.cgroup);
        let script = workspace.join(FOLDER).join(SCRIPT);
        assert_eq!(settings.default_model.as_deref(), Some("proof"));
        let model = &settings.models["proof"];
        assert_eq!(model.model, script.display().to_string());
        assert_eq!(model.api_key_env.as_deref(), Some(secrets::VARIABLE));
        assert_eq!(
            std::fs::read_to_string(script).unwrap(),
            "{\"text\":\"a\"}\n{\"text\":\"b\"}\n"
        );
        assert_eq!(settings.job_confinement().write, WriteMode::Scope);
        assert!(workspace.join("escape/write.sh").is_file());
    }

    #[test]
    fn a_refusal_keeps_its_code_and_anything_else_is_told_as_it_is() {
        let error = ToolError::new(ErrorCode::ConfinementRefused, "no pidns").hint("h");
        assert_eq!(refusal(&error.to_result()), error);
        let odd = refusal(&json!({"x": 1}));
        assert!(odd.message.ends_with("it answered {\"x\":1}"), "{odd}");
    }

    /// A jail that wrote its last record while the folder was being removed once left it there.
    #[tokio::test]
    async fn a_folder_into_which_somebody_still_writes_is_removed_once_that_is_over() {
        let place = tempfile::tempdir().unwrap();
        let folder = place.path().join("w");
        std::fs::create_dir(&folder).unwrap();
        let writing = folder.clone();
        let writer = std::thread::spawn(move || {
            (0..2_000)
                .take_while(|n| std::fs::write(writing.join(n.to_string()), "x").is_ok())
                .count()
        });
        remove(&folder).await.unwrap();
        writer.join().unwrap();
        assert!(!folder.exists());
        remove(&folder).await.unwrap();
    }
}
