//! Where the figures are taken: a home and a workspace of their own, and the model's server.

use std::cell::Cell;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use tempfile::TempDir;

use crate::error::BenchError;
use crate::model::ModelServer;
use crate::programs::Programs;

/// Longer than anything takes that is worth a figure.
pub const BUDGET: Duration = Duration::from_secs(60);

/// How much is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Extent {
    /// As many rounds as a figure needs.
    Full,
    /// A few, to see that everything runs.
    Quick,
}

impl Extent {
    /// `full` rounds, or a few.
    pub fn rounds(self, full: usize) -> usize {
        match self {
            Extent::Full => full,
            Extent::Quick => full.min(3),
        }
    }
}

/// A home, a workspace and a model server.
#[derive(Debug)]
pub struct Ground {
    root: TempDir,
    /// Which workspace is the present one.
    number: Cell<u32>,
    /// The executables.
    pub programs: Programs,
    /// The model.
    pub model: ModelServer,
    /// How much is done.
    pub extent: Extent,
}

impl Ground {
    /// Makes one below `folder`, which should lie on a disk that a user would work on.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn new(folder: &Path, programs: Programs, extent: Extent) -> Result<Ground, BenchError> {
        let root = tempfile::Builder::new()
            .prefix("muster-benches-")
            .tempdir_in(folder)
            .map_err(BenchError::io(format!(
                "make a folder in {}",
                folder.display()
            )))?;
        let ground = Ground {
            root,
            number: Cell::new(0),
            programs,
            model: ModelServer::start()?,
            extent,
        };
        fs::create_dir(ground.home()).map_err(BenchError::io("make a home"))?;
        ground.next()?;
        Ok(ground)
    }

    /// The home.
    pub fn home(&self) -> PathBuf {
        self.root.path().join("home")
    }

    /// The present workspace.
    pub fn workspace(&self) -> PathBuf {
        self.root
            .path()
            .join(format!("workspace-{}", self.number.get()))
    }

    /// A path beside both.
    pub fn beside(&self, name: &str) -> PathBuf {
        self.root.path().join(name)
    }

    /// Goes on in an empty workspace, as at a first start.
    ///
    /// The one before stays until all is over: some file systems look at every file that was
    /// deleted in the last seconds before they make a new one (ext4 without a journal,
    /// recently_deleted() in fs/ext4/ialloc.c), which would count for ours and for the floors.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn next(&self) -> Result<(), BenchError> {
        self.number.set(self.number.get() + 1);
        fs::create_dir(self.workspace()).map_err(BenchError::io("make a workspace"))
    }

    /// Writes the configuration: the model's server, and these limits.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn configure(&self, limits: &str) -> Result<(), BenchError> {
        let folder = self.home().join(".config/muster");
        let text = format!(
            "default_model = \"bench\"\n[limits]\n{limits}\n[models.bench]\nprovider = \
             \"openai\"\nbase_url = \"{}\"\nmodel = \"bench\"\n",
            self.model.base_url()
        );
        fs::create_dir_all(&folder)
            .and_then(|()| fs::write(folder.join("muster.toml"), text))
            .map_err(BenchError::io("write a configuration"))
    }

    /// A command with this home in this workspace, and nothing else of the environment but `PATH`.
    pub fn command(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        command
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("HOME", self.home())
            .current_dir(self.workspace())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        command
    }

    /// One of our executables as a command.
    pub fn ours(&self, name: &str) -> Command {
        self.command(&self.programs.path(name))
    }

    /// The floor's agent, or its leader, with its arguments.
    pub fn floor(&self, name: &str) -> Command {
        let mut command = self.ours(name);
        command
            .arg(self.model.port().to_string())
            .arg(self.workspace().join("out.txt"));
        command
    }
}
