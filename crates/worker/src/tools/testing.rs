//! A workspace for the tests of the tools.

use std::fs::{self, File, OpenOptions};
use std::io::Read;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use nix::fcntl::OFlag;
use nix::sys::stat::Mode;
use protocol::status::Language;
use protocol::text::Prompts;

use super::ToolContext;
use super::command::Keeping;

/// A workspace with an agent's folder in it, a folder outside, and the context of a run.
#[derive(Debug)]
pub(crate) struct Ground {
    _keep: tempfile::TempDir,
    pub(crate) outside: PathBuf,
    pub(crate) context: ToolContext,
}

impl Ground {
    pub(crate) fn new() -> Self {
        let keep = tempfile::tempdir().unwrap();
        let base = fs::canonicalize(keep.path()).unwrap();
        let (workspace, outside) = (base.join("w"), base.join("outside"));
        let deliverables_dir = workspace.join("sub_agent_results/agent_1");
        let agent_dir = deliverables_dir.join(".subagent");
        fs::create_dir_all(&agent_dir).unwrap();
        fs::create_dir(&outside).unwrap();
        Ground {
            _keep: keep,
            outside,
            context: ToolContext {
                workspace,
                deliverables_dir,
                agent_dir,
                write_scope: Vec::new(),
                prompts: Arc::new(Prompts::builtin(Language::En)),
                hidden_env: Vec::new(),
                commands: Default::default(),
                mask: protocol::secret::Mask::default(),
                keeping: Arc::new(Keeping::Group {
                    why: "a test wants it so".to_owned(),
                }),
                background: Arc::new(crate::tools::background::Background::new()),
                web: Default::default(),
                vision: false,
                skills: [].into(),
            },
        }
    }

    pub(crate) fn path(&self, name: impl AsRef<Path>) -> PathBuf {
        self.context.workspace.join(name)
    }

    pub(crate) fn file(&self, name: impl AsRef<Path>, content: &[u8]) {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }

    pub(crate) fn file_with_mode(&self, name: &str, content: &[u8], mode: u32) {
        self.file(name, content);
        fs::set_permissions(self.path(name), fs::Permissions::from_mode(mode)).unwrap();
    }

    pub(crate) fn mode(&self, name: &str) -> u32 {
        fs::metadata(self.path(name)).unwrap().permissions().mode() & 0o7777
    }

    pub(crate) fn read(&self, name: &str) -> Vec<u8> {
        fs::read(self.path(name)).unwrap()
    }

    pub(crate) fn names(&self, directory: &str) -> Vec<String> {
        let mut names: Vec<String> = fs::read_dir(self.path(directory))
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }
}

/// A pipe that commands of a test hold open as descriptor 9.
#[derive(Debug)]
pub(crate) struct Liveness {
    pipe: File,
}

impl Liveness {
    pub(crate) fn new(ground: &Ground) -> Self {
        let path = ground.path("alive");
        nix::unistd::mkfifo(&path, Mode::S_IRWXU).unwrap();
        let pipe = OpenOptions::new()
            .read(true)
            .custom_flags(OFlag::O_NONBLOCK.bits())
            .open(&path)
            .unwrap();
        Liveness { pipe }
    }

    /// A command that first shows itself in the pipe and keeps it open.
    pub(crate) fn holding(command: &str) -> String {
        format!("exec 9>alive; echo up >&9; {command}")
    }

    /// Waits until somebody has shown itself.
    pub(crate) fn wait_for_life(&mut self) {
        self.wait_for(
            "no process came to life",
            |read| matches!(read, Ok(n) if *n > 0),
        );
    }

    /// Waits until nobody holds the pipe any more.
    pub(crate) fn wait_for_death(&mut self) {
        self.wait_for("a process lives on", |read| matches!(read, Ok(0)));
    }

    fn wait_for(&mut self, complaint: &str, wanted: impl Fn(&std::io::Result<usize>) -> bool) {
        let deadline = Instant::now() + Duration::from_secs(20);
        let mut buffer = [0; 256];
        loop {
            let read = self.pipe.read(&mut buffer);
            if wanted(&read) {
                return;
            }
            assert!(Instant::now() < deadline, "{complaint}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}
