//! A conversation whose workers are small shell scripts, in a workspace of its own.

use std::collections::BTreeMap;
use std::fs;
use std::future::Future;
use std::io::Read;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use leader::driver::{
    CreateAnswer, CreateOrderRequest, Driver, DriverConfig, Environment, Handle, Origin,
    StartError, StopMode,
};
use protocol::config::{ConfigFile, Layers, resolve};
use protocol::error::ToolError;
use protocol::ids::AgentId;
use protocol::result::{AgentResult, StartedResult};
use protocol::status::StopReason;
use protocol::tool::leader::{AgentRef, CreateSubAgentParams};
use serde_json::Value;
use tokio::task::JoinHandle;

/// What every script can use: where its files are, which run it is, and how to speak.
pub(crate) const PRELUDE: &str = r#"#!/bin/sh
job=$2
own=${job%/*}
out=${own%/*}
task=$(sed -n 's/^ *"task_id": "\(sub_[^"]*\)".*/\1/p' "$job" | head -n 1)
say() { printf '%s\n' "$1"; }
hello() {
    say '{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocol":"1.0","worker_version":"test"}}'
    read -r answer
}
finished() {
    say "{\"jsonrpc\":\"2.0\",\"method\":\"agent/finished\",\"params\":{\"success\":$1,\"summary\":\"$2\",\"stop_reason\":null,\"stats\":{\"turns\":4}}}"
}
conversation() {
    printf '{"format":1,"agent_id":1,"task_id":"%s","role_id":null,"summary":"s","status":"%s","created_at":"2026-03-10T12:00:00Z","completed_at":%s,"messages":[],"stats":{"turns":4},"result":%s}' \
        "$task" "$1" "$2" "$3" >"$own/next.json"
    mv "$own/next.json" "$own/conversations.json"
}
journal() {
    printf '{"kind":"start","format":1,"agent_id":1,"task_id":"%s","role_id":null,"summary":"s","created_at":"2026-03-10T12:00:00Z"}\n' "$task" >"$own/journal.jsonl"
    printf '{"kind":"message","message":{"role":"assistant","content":"half way"},"stats":{"turns":1}}\n' >>"$own/journal.jsonl"
}
# The pipe lies in the workspace, where a worker is started.
alive() { exec 9>alive; }
"#;

/// Long enough for anything on a busy machine; never waited out when all is well.
pub(crate) const BUDGET: Duration = Duration::from_secs(60);

/// A running conversation.
pub(crate) struct Bench {
    pub(crate) place: tempfile::TempDir,
    pub(crate) handle: Handle,
    alive: fs::File,
    task: Option<JoinHandle<()>>,
}

/// Waits for a future, and fails the test when it takes longer than [`BUDGET`].
pub(crate) async fn within<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(BUDGET, future)
        .await
        .expect("it took longer than any machine is slow")
}

/// Waits until a condition holds, and says how long that took.
pub(crate) async fn until(mut holds: impl FnMut() -> bool) -> Duration {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < BUDGET, "the condition never came to hold");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    start.elapsed()
}

/// The jail lies in the folder above the test's own executable, once the workspace is built.
pub(crate) fn jail() -> PathBuf {
    let own = std::env::current_exe().unwrap();
    let jail = own.parent().unwrap().parent().unwrap().join("jail");
    assert!(
        jail.is_file(),
        "no `jail` at {}: run `cargo test --workspace`, or `cargo build -p confine`",
        jail.display()
    );
    jail
}

pub(crate) fn write_script(path: &Path, text: &str) {
    // Written beside and renamed: a file that is open for writing can't be executed, and another
    // test's child could have inherited the descriptor in the moment of its start.
    let beside = path.with_extension("new");
    fs::write(&beside, text).unwrap();
    fs::set_permissions(&beside, fs::Permissions::from_mode(0o755)).unwrap();
    fs::rename(&beside, path).unwrap();
}

pub(crate) fn config(place: &Path, user: &str) -> DriverConfig {
    let text = format!("{user}\n[models.m]\nprovider = \"script\"\nmodel = \"replies.jsonl\"\n");
    let layers = Layers {
        user: Some(ConfigFile {
            name: "muster.toml".into(),
            text,
        }),
        ..Layers::default()
    };
    DriverConfig {
        environment: Environment::of(BTreeMap::new()),
        jail_bin: Some(jail()),
        worker_bin: Some(place.join("worker.sh")),
        ..DriverConfig::new(place, resolve(&layers).unwrap())
    }
}

/// A named pipe in a workspace whose writers are the processes that called `alive`.
pub(crate) fn alive_pipe(place: &Path) -> fs::File {
    let pipe = place.join("alive");
    nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).unwrap();
    fs::OpenOptions::new()
        .read(true)
        .custom_flags(nix::libc::O_NONBLOCK)
        .open(&pipe)
        .unwrap()
}

impl Bench {
    /// A conversation whose workers run `body`.
    pub(crate) async fn new(body: &str) -> Bench {
        Bench::with_settings(body, "").await
    }

    /// The same with a configuration of its own.
    pub(crate) async fn with_settings(body: &str, user: &str) -> Bench {
        let place = tempfile::tempdir().unwrap();
        write_script(
            &place.path().join("worker.sh"),
            &format!("{PRELUDE}{body}\n"),
        );
        let config = config(place.path(), user);
        Bench::start(place, config).await.unwrap()
    }

    pub(crate) async fn start(
        place: tempfile::TempDir,
        config: DriverConfig,
    ) -> Result<Bench, StartError> {
        let alive = alive_pipe(place.path());
        let (handle, task) = Driver::start(config).await?;
        Ok(Bench {
            place,
            handle,
            alive,
            task: Some(task),
        })
    }

    /// The path of a file of the workspace.
    pub(crate) fn at(&self, name: &str) -> PathBuf {
        self.place.path().join(name)
    }

    /// A blocking create in the directory `d{number}`.
    pub(crate) async fn run(&self, params: CreateSubAgentParams) -> AgentResult {
        match within(self.create(params)).await {
            Ok(CreateAnswer::Ended(result)) => *result,
            other => panic!("no result: {other:?}"),
        }
    }

    pub(crate) async fn start_agent(&self, params: CreateSubAgentParams) -> StartedResult {
        let params = CreateSubAgentParams {
            run_in_background: Some(true),
            ..params
        };
        match within(self.create(params)).await {
            Ok(CreateAnswer::Started(started)) => *started,
            other => panic!("not started: {other:?}"),
        }
    }

    pub(crate) async fn create(
        &self,
        params: CreateSubAgentParams,
    ) -> Result<CreateAnswer, ToolError> {
        let order = CreateOrderRequest {
            params,
            origin: Origin::Person,
            item: None,
        };
        self.handle.create(order).await
    }

    /// The status word of an agent, as a status call gives it.
    pub(crate) async fn status(&self, number: u32) -> Value {
        within(self.handle.status(vec![number_ref(number)])).await["agents"][0].clone()
    }

    /// Waits until a status call says what is wanted.
    pub(crate) async fn until_status(&self, number: u32, word: &str) {
        let start = Instant::now();
        loop {
            let status = self.status(number).await;
            if status["status"] == word {
                return;
            }
            assert!(start.elapsed() < BUDGET, "{word} never came: {status}");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// Waits until no process of any script that called `alive` is left.
    pub(crate) async fn until_nobody_is_alive(&mut self) -> Duration {
        let mut alive = self.alive.try_clone().unwrap();
        // Without a writer a read gives the end of file at once, with one it would block.
        until(move || matches!(alive.read(&mut [0; 64]), Ok(0))).await
    }

    /// The conversation file of the agent in directory `dir`.
    pub(crate) fn conversation(&self, dir: &str) -> Value {
        let path = self.at(dir).join(".subagent/conversations.json");
        serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
    }

    /// The names of the events so far, in order.
    pub(crate) fn events(&self) -> Vec<String> {
        let text = fs::read_to_string(self.handle.run_dir().join("events.jsonl")).unwrap();
        // A last line without its newline is still being written.
        let whole = text.rfind('\n').map_or("", |end| &text[..end]);
        whole
            .lines()
            .map(|line| serde_json::from_str::<Value>(line).unwrap())
            .map(|line| line["event"].as_str().unwrap().to_owned())
            .collect()
    }

    /// Ends the driver's task in the middle of its work.
    pub(crate) async fn abort_driver(&mut self) {
        let task = self.task.take().unwrap();
        task.abort();
        assert!(within(task).await.unwrap_err().is_cancelled());
    }

    /// Drops the last handle and sees that the conversation ends by itself.
    pub(crate) async fn drop_handle_and_wait(self) {
        let Bench {
            place,
            handle,
            mut alive,
            task,
        } = self;
        drop(handle);
        within(task.unwrap()).await.unwrap();
        until(|| matches!(alive.read(&mut [0; 64]), Ok(0))).await;
        drop(place);
    }

    /// Ends the conversation and sees that nothing of it is left.
    pub(crate) async fn end(mut self) {
        within(
            self.handle
                .close(StopReason::LeaderStopped, StopMode::Force),
        )
        .await;
        if let Some(task) = self.task.take() {
            within(task).await.unwrap();
        }
        self.until_nobody_is_alive().await;
        let claims = fs::read_dir(self.at(".muster/claims")).map_or(0, |entries| {
            entries
                .filter(|entry| {
                    let name = entry.as_ref().unwrap().file_name();
                    name.to_string_lossy().ends_with(".json")
                })
                .count()
        });
        assert_eq!(claims, 0, "a claim is left");
    }
}

/// The parameters of an agent that works in `dir`.
pub(crate) fn agent(dir: &str) -> CreateSubAgentParams {
    CreateSubAgentParams {
        summary: Some("write a short file".into()),
        task: "Write the file a.md.".into(),
        deliverables_dir: Some(dir.into()),
        ..CreateSubAgentParams::default()
    }
}

pub(crate) fn number_ref(number: u32) -> AgentRef {
    AgentRef::Number {
        agent_id: AgentId::new(number).unwrap(),
        role_id: None,
    }
}
