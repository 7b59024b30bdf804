//! A workspace with a scripted model, and the worker in it.

use std::fs;
use std::io::{ErrorKind, Read};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use protocol::conversation::{ConversationFile, Role};
use serde_json::{Value, json};

/// For anything that a test waits for; only a broken build needs it all.
pub(crate) const BUDGET: Duration = Duration::from_secs(60);

/// Looks until there is something, and fails the test when the budget is spent.
pub(crate) fn wait_for<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(start.elapsed() < BUDGET, "waited in vain for {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// The jail, which lies in the folder above the test's own executable once it is built.
pub(crate) fn jail() -> PathBuf {
    let jail = Path::new(env!("CARGO_BIN_EXE_worker")).with_file_name("jail");
    assert!(
        jail.is_file(),
        "no `jail` at {}: run `cargo test --workspace`, or `cargo build -p confine`",
        jail.display()
    );
    jail
}

/// A child that is killed and reaped when the test is done with it, however it ends.
pub(crate) struct Running(pub(crate) Child);

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended and been reaped; both calls then say so, and that is fine.
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

impl Running {
    pub(crate) fn signal(&self, signal: Signal) {
        let pid = i32::try_from(self.0.id()).unwrap();
        kill(Pid::from_raw(pid), signal).unwrap();
    }

    pub(crate) fn end(&mut self) -> ExitStatus {
        wait_for("the worker's end", || self.0.try_wait().unwrap())
    }
}

/// A temporary place: `ws/` is the workspace, beside it lie the task and the script.
pub(crate) struct Place {
    root: tempfile::TempDir,
}

impl Place {
    /// A place with a task, and a script of these replies.
    pub(crate) fn new(replies: Value) -> Self {
        let place = Place {
            root: tempfile::tempdir().unwrap(),
        };
        fs::create_dir(place.workspace()).unwrap();
        fs::write(place.path("task.md"), "Write a greeting into a.txt").unwrap();
        place.script(replies);
        place
    }

    pub(crate) fn script(&self, replies: Value) {
        fs::write(self.path("script.yaml"), replies.to_string()).unwrap();
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.root.path().canonicalize().unwrap().join(name)
    }

    pub(crate) fn workspace(&self) -> PathBuf {
        self.path("ws")
    }

    /// A file of the run that delivers into `out`.
    pub(crate) fn own_file(&self, name: &str) -> PathBuf {
        self.path("ws/out/.subagent").join(name)
    }

    /// Opens the place to every user.
    pub(crate) fn open_to_all(&self) {
        for path in [self.root.path().to_path_buf(), self.workspace()] {
            fs::set_permissions(path, fs::Permissions::from_mode(0o777)).unwrap();
        }
    }

    /// The executable, with an environment that holds nothing of the machine's own settings.
    pub(crate) fn worker(&self) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_worker"));
        command
            .current_dir(self.root.path())
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap())
            .env("HOME", self.root.path())
            .env("MUSTER_JAIL", jail())
            .stdin(Stdio::null());
        command
    }

    /// The usual run: the script's answers, delivering into `out`.
    pub(crate) fn run(&self) -> Command {
        let mut command = self.worker();
        command.args([
            "--task-file=task.md",
            "--workspace=ws",
            "--deliverables-dir=out",
            "--model=script:script.yaml",
        ]);
        command
    }

    /// Starts a command with pipes on stdout and stderr.
    pub(crate) fn start(command: &mut Command) -> Running {
        let child = command
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        Running(child)
    }

    pub(crate) fn conversation(&self) -> ConversationFile {
        read_conversation(&self.own_file("conversations.json")).unwrap()
    }

    pub(crate) fn journal(&self) -> Vec<u8> {
        fs::read(self.own_file("journal.jsonl")).unwrap()
    }
}

/// A conversation's file; none when it is not there. Anything else than valid JSON fails.
pub(crate) fn read_conversation(path: &Path) -> Option<ConversationFile> {
    match fs::read(path) {
        Ok(bytes) => Some(serde_json::from_slice(&bytes).unwrap_or_else(|error| {
            panic!("{error} in {:?}", String::from_utf8_lossy(&bytes));
        })),
        Err(error) if error.kind() == ErrorKind::NotFound => None,
        Err(error) => panic!("{error}"),
    }
}

/// A reply that only says something.
pub(crate) fn says(text: &str) -> Value {
    json!({"text": text})
}

/// A reply that calls tools.
pub(crate) fn calls(list: &[(&str, Value)]) -> Value {
    let calls: Vec<Value> = list
        .iter()
        .map(|(name, arguments)| json!({"name": name, "arguments": arguments}))
        .collect();
    json!({"tool_calls": calls})
}

pub(crate) fn runs(command: &str) -> Value {
    calls(&[("run_command", json!({"command": command}))])
}

pub(crate) fn finishes(success: bool) -> Value {
    calls(&[(
        "finish_task",
        json!({"success": success, "summary": REPORT}),
    )])
}

/// A report of a length that is wanted.
pub(crate) const REPORT: &str = "The greeting stands in a.txt in the deliverables dir, as asked.";

pub(crate) fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

pub(crate) fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Every call has one answer directly behind its message, in order.
pub(crate) fn assert_paired(conversation: &ConversationFile) {
    let mut open: Vec<&str> = Vec::new();
    for message in &conversation.messages {
        if message.role == Role::Tool {
            assert_eq!(message.tool_call_id.as_deref(), Some(open.remove(0)));
        } else {
            assert_eq!(open, Vec::<&str>::new());
            open.extend(message.tool_calls.iter().map(|call| call.id.as_str()));
        }
    }
    assert_eq!(open, Vec::<&str>::new());
}

/// A named pipe that a command of the agent holds open for writing; its end tells that no
/// process holds it any more.
pub(crate) struct Alive {
    file: fs::File,
}

impl Alive {
    pub(crate) fn new(path: &Path) -> Self {
        nix::unistd::mkfifo(path, nix::sys::stat::Mode::S_IRWXU).unwrap();
        // Whatever this process's mask of modes is.
        fs::set_permissions(path, fs::Permissions::from_mode(0o666)).unwrap();
        let file = fs::OpenOptions::new()
            .read(true)
            .custom_flags(libc::O_NONBLOCK)
            .open(path)
            .unwrap();
        Alive { file }
    }

    fn look(&mut self) -> Result<usize, ErrorKind> {
        let mut byte = [0];
        self.file.read(&mut byte).map_err(|error| error.kind())
    }

    /// Waits until somebody has written into it, and thus holds it.
    pub(crate) fn wait_for_holder(&mut self) {
        wait_for("a holder of the pipe", || {
            (self.look() == Ok(1)).then_some(())
        });
    }

    /// Waits until nobody holds it.
    pub(crate) fn wait_for_nobody(&mut self) {
        wait_for("the end of all holders", || {
            (self.look() == Ok(0)).then_some(())
        });
    }
}
