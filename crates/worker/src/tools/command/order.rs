//! What a command is to be, and whether it can be one at all.

use std::ffi::{OsStr, OsString};
use std::path::PathBuf;

use protocol::error::{ErrorCode, ToolError};
use protocol::secret::Mask;

use super::cargo_seed;
use super::environment::for_commands;
use super::world::{CommandWorld, users_cargo_home};
use crate::tools::limits;

/// The shell that runs commands.
pub(super) const SHELL: &str = "/bin/sh";

/// What to start.
#[derive(Debug)]
pub(crate) struct Order {
    /// For the shell.
    pub(crate) command: String,
    /// Where; absolute.
    pub(crate) directory: PathBuf,
    /// Variables that it must not see, beside those that look like keys.
    pub(crate) hidden_env: Vec<String>,
    /// What it finds around it.
    pub(crate) world: CommandWorld,
    /// What stands in no output.
    pub(crate) mask: Mask,
}

impl Order {
    /// Refuses what no command line can hold.
    ///
    /// # Errors
    /// When it is too long, or holds a NUL character.
    pub(super) fn check(&self) -> Result<(), ToolError> {
        if self.command.len() > limits::COMMAND_BYTES_MAX {
            return Err(ToolError::new(
                ErrorCode::TooLarge,
                format!(
                    "the command has {} bytes; the most is {}",
                    self.command.len(),
                    limits::COMMAND_BYTES_MAX
                ),
            )
            .hint("write it into a script with write_file and run that"));
        }
        if self.command.contains('\0') {
            return Err(ToolError::new(
                ErrorCode::InvalidParameters,
                "`command` holds a NUL character, which no command line can hold",
            ));
        }
        Ok(())
    }

    /// The whole command line.
    pub(super) fn argv(&self) -> [OsString; 3] {
        [SHELL.into(), "-c".into(), self.command.clone().into()]
    }

    /// Makes ready what the command will look for in its caches.
    pub(super) fn prepare(&self) {
        let own = |name: &str| std::env::var_os(name);
        if let (Some(ours), Some(users)) = (self.world.cargo_home(), users_cargo_home(own))
            && cargo_seed::is_wanted(&self.command, &self.directory, &ours)
        {
            cargo_seed::seed(&users, &ours);
        }
    }

    /// The whole environment, made from this process's own.
    pub(super) fn environment(&self) -> Vec<(OsString, OsString)> {
        let own = std::env::vars_os().filter(|(name, _)| name != OsStr::new("PWD"));
        let mut all = for_commands(own, &self.hidden_env, &self.world);
        all.push(("PWD".into(), self.directory.clone().into()));
        all
    }
}
