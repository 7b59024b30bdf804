//! A workspace and a home of a test's own, so that no test sees another's or the user's files.

use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

use crate::executable;
use crate::script::Turn;

/// Two folders that vanish with the value: `workspace/` and `home/`.
#[derive(Debug)]
pub struct Workspace {
    root: TempDir,
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
        let root = tempfile::Builder::new()
            .prefix("mst")
            .tempdir()
            .expect("a temporary folder");
        for name in ["workspace", "home"] {
            std::fs::create_dir(root.path().join(name)).expect("a fresh folder");
        }
        Workspace { root }
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
        let mut command = Command::new(executable(name));
        command
            .current_dir(self.path())
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("HOME", self.home())
            .env("LANG", "C.UTF-8");
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
