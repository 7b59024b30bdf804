//! A workspace and a home of a test's own, so that no test sees another's or the user's files.

use std::ffi::OsString;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

use crate::delegated::Delegated;
use crate::executable;
use crate::fifo::Liveness;
use crate::ground::{self, Ground, ORDINARY, Rung, User};
use crate::script::Turn;

/// The executables that another user needs a copy of, for a build folder may be private.
const PUBLIC_EXECUTABLES: [&str; 5] = ["leader", "worker", "jail", "fake_worker", "refusing"];

/// Two folders that vanish with the value: `workspace/` and `home/`.
#[derive(Debug)]
pub struct Workspace {
    root: TempDir,
    ground: Ground,
    delegated: Option<Delegated>,
}

impl Default for Workspace {
    fn default() -> Self {
        Workspace::new()
    }
}

impl Workspace {
    /// A fresh one, with no model configured.
    ///
    /// # Panics
    /// When the system refuses a temporary folder.
    pub fn new() -> Self {
        Workspace::on(Ground::PLAIN)
    }

    /// A fresh one that belongs to the ground's user, whose commands run on that ground.
    ///
    /// # Panics
    /// When the system refuses a temporary folder.
    pub fn on(ground: Ground) -> Self {
        let root = tempfile::Builder::new()
            .prefix("mst")
            .tempdir()
            .expect("a temporary folder");
        for name in ["workspace", "home"] {
            std::fs::create_dir(root.path().join(name)).expect("a fresh folder");
        }
        let delegated = (ground.rung == Rung::Cgroup2).then(|| {
            Delegated::make(ground.user).expect("`grounds` gives this rung only where it is had")
        });
        let workspace = Workspace {
            root,
            ground,
            delegated,
        };
        if ground.user == User::Ordinary {
            workspace.hand_over();
        }
        workspace
    }

    /// Gives the folders to the ordinary user, with executables that it can reach.
    fn hand_over(&self) {
        let root = self.root.path();
        std::fs::set_permissions(root, PermissionsExt::from_mode(0o755)).expect("a folder of ours");
        for folder in [self.path(), self.home()] {
            chown(folder, Some(ORDINARY), Some(ORDINARY)).expect("only root has another user");
        }
        let bin = root.join("bin");
        std::fs::create_dir(&bin).expect("a fresh folder");
        let copy = |more: &[&str]| {
            // A program of its own does it: no thread of ours holds the copy open for writing
            // while another one forks, which would make it busy.
            Command::new("cp")
                .args(more)
                .args(PUBLIC_EXECUTABLES.map(executable))
                .arg(&bin)
                .output()
                .is_ok_and(|output| output.status.success())
        };
        // A link costs nothing; across file systems there is none.
        assert!(
            copy(&["--link"]) || copy(&["--force"]),
            "no copies in {bin:?}"
        );
    }

    /// The ground that its commands run on.
    pub fn ground(&self) -> Ground {
        self.ground
    }

    /// The cgroup directory of a ground that has one.
    pub fn delegated(&self) -> Option<&Delegated> {
        self.delegated.as_ref()
    }

    /// One of our executables, where the ground's user can reach it.
    pub fn executable(&self, name: &str) -> PathBuf {
        match self.ground.user {
            User::Myself => executable(name),
            User::Ordinary => self.root.path().join("bin").join(name),
        }
    }

    /// A liveness pipe in the workspace that the ground's user may write to.
    pub fn liveness(&self, name: &str) -> Liveness {
        let pipe = Liveness::new(&self.path(), name);
        // The umask has taken the others' rights away.
        std::fs::set_permissions(self.join(name), PermissionsExt::from_mode(0o666))
            .expect("a pipe of ours");
        pipe
    }

    /// A fresh one whose default model replays these turns.
    pub fn scripted(turns: &[Turn]) -> Self {
        let workspace = Workspace::new();
        workspace.script("default", turns);
        workspace.configure("");
        workspace
    }

    /// The workspace's folder.
    pub fn path(&self) -> PathBuf {
        self.root.path().join("workspace")
    }

    /// The folder that stands for the user's home.
    pub fn home(&self) -> PathBuf {
        self.root.path().join("home")
    }

    /// A path inside the workspace.
    pub fn join(&self, name: impl AsRef<Path>) -> PathBuf {
        self.path().join(name)
    }

    /// Writes a file of the workspace, with its folders.
    ///
    /// # Panics
    /// When the system refuses.
    pub fn write(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.join(name);
        std::fs::create_dir_all(path.parent().expect("a file lies in a folder")).expect("folders");
        std::fs::write(&path, content).expect("a file of ours");
        path
    }

    /// Reads a file of the workspace.
    ///
    /// # Panics
    /// When it is not there.
    pub fn read(&self, name: &str) -> String {
        let path = self.join(name);
        let bytes =
            std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// Writes the script of a model called `key`.
    ///
    /// # Panics
    /// When the system refuses.
    pub fn script(&self, key: &str, turns: &[Turn]) -> PathBuf {
        let path = self.home().join(format!("{key}.jsonl"));
        let lines: String = turns
            .iter()
            .map(|turn| format!("{}\n", turn.to_json()))
            .collect();
        std::fs::write(&path, lines).expect("a file of ours");
        path
    }

    /// Writes the user's configuration: each script of the home is a model of its name, `default`
    /// is the default, and `more` follows.
    ///
    /// # Panics
    /// When the system refuses.
    pub fn configure(&self, more: &str) {
        let mut models = String::new();
        let mut default = "";
        let mut names: Vec<String> = std::fs::read_dir(self.home())
            .expect("the home is there")
            .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
            .filter_map(|name| name.strip_suffix(".jsonl").map(str::to_owned))
            .collect();
        names.sort();
        for name in &names {
            let path = self.home().join(format!("{name}.jsonl"));
            models.push_str(&format!(
                "[models.{name}]\nprovider = \"script\"\nmodel = \"{}\"\n",
                path.display()
            ));
            if name == "default" {
                default = "default_model = \"default\"\n";
            }
        }
        let folder = self.home().join(".config/muster");
        std::fs::create_dir_all(&folder).expect("a folder of ours");
        std::fs::write(
            folder.join("muster.toml"),
            format!("{default}{more}\n{models}"),
        )
        .expect("a file of ours");
    }

    /// One of our executables, to be run in the workspace with this home and nothing else of the
    /// environment but `PATH`.
    pub fn command(&self, name: &str) -> Command {
        self.command_under(&[], name)
    }

    /// The same, with the executable as the last word of another command, which runs as the
    /// ground's user.
    pub fn command_under(&self, wrapper: &[OsString], name: &str) -> Command {
        let delegated = self.delegated();
        let program = self.executable(name);
        let mut command = ground::command(self.ground, delegated, wrapper, &program);
        command
            .current_dir(self.path())
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("HOME", self.home())
            .env("LANG", "C.UTF-8")
            .envs(ground::variables(self.ground, delegated));
        command
    }

    /// The conversations.json of a deliverables dir, read as any JSON.
    ///
    /// # Panics
    /// When it is missing or no valid JSON.
    pub fn conversation(&self, deliverables_dir: &str) -> serde_json::Value {
        let text = self.read(&format!("{deliverables_dir}/.subagent/conversations.json"));
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"))
    }
}

/// The contents of all tool messages of a conversation, in order.
pub fn tool_texts(conversation: &serde_json::Value) -> Vec<String> {
    conversation["messages"]
        .as_array()
        .map(Vec::as_slice)
        .unwrap_or_default()
        .iter()
        .filter(|message| message["role"] == "tool")
        .map(|message| message["content"].as_str().unwrap_or_default().to_owned())
        .collect()
}
