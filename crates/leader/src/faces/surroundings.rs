//! Where a command stands: its workspace, its environment, and what is around its executable.

use std::path::{Path, PathBuf};

use protocol::config::{ConfigFile, Flag, Settings};
use protocol::error::{ErrorCode, ToolError};

use crate::faces::console::{Console, code_of};
use crate::os::spawn::NESTED_VARIABLE;
use crate::settings::{self, Variables, WorkspaceFile};

/// What a command knows of the machine before it does anything.
#[derive(Debug, Clone)]
pub struct Surroundings {
    /// The present directory, absolute, links resolved.
    pub workspace: PathBuf,
    /// The environment.
    pub variables: Variables,
}

impl Surroundings {
    /// Goes to `directory`, if one is named, and looks around there.
    ///
    /// # Errors
    /// When there is no such directory, or the leader was started by an agent.
    pub fn enter(directory: Option<&Path>, variables: Variables) -> Result<Self, ToolError> {
        refuse_nested(&variables)?;
        if let Some(directory) = directory {
            std::env::set_current_dir(directory).map_err(|error| {
                let code = match code_of(&error) {
                    ErrorCode::PermissionDenied => ErrorCode::PermissionDenied,
                    _ => ErrorCode::NotFound,
                };
                ToolError::new(code, format!("-C {}: {error}", directory.display()))
                    .hint("name an existing directory")
            })?;
        }
        let workspace = std::env::current_dir()
            .and_then(|path| path.canonicalize())
            .map_err(|error| {
                ToolError::new(
                    ErrorCode::NotFound,
                    format!("the present directory can't be used: {error}"),
                )
                .hint("it may have been removed; go to another, or pass `-C DIR`")
            })?;
        Ok(Surroundings {
            workspace,
            variables,
        })
    }

    /// The resolved configuration; what was ignored in it is said on stderr.
    ///
    /// # Errors
    /// When a file can't be read or holds what it must not.
    pub fn settings(
        &self,
        flags: Vec<Flag>,
        console: &mut Console<'_>,
    ) -> Result<Settings, ToolError> {
        let settings = settings::load(&self.workspace, &self.variables, flags)?;
        for warning in &settings.warnings {
            console.warn(warning);
        }
        Ok(settings)
    }

    /// The workspace's own file, how far it is trusted, and what it wants.
    ///
    /// # Errors
    /// When a file can't be read or holds what it must not.
    pub fn workspace_file(&self) -> Result<WorkspaceFile, ToolError> {
        settings::look_at_workspace(&self.workspace, &self.variables)
    }

    /// Whether the configuration could be used if this content of the workspace's file were
    /// accepted.
    ///
    /// # Errors
    /// When it could not.
    pub fn check_accepted(&self, file: &ConfigFile) -> Result<(), ToolError> {
        settings::check_accepted(&self.variables, file)
    }
}

/// Agents start no agents: a leader inside one would escape the cap, the deadline and the limits
/// of its own.
fn refuse_nested(variables: &Variables) -> Result<(), ToolError> {
    if !variables.has(NESTED_VARIABLE) {
        return Ok(());
    }
    Err(ToolError::new(
        ErrorCode::Nested,
        "this `leader` was started by an agent, and agents start no agents (nested)",
    )
    .hint(format!(
        "do the work yourself; a person who sees this unsets {NESTED_VARIABLE}"
    )))
}

/// The flags of a command line as a layer of the configuration.
pub fn flags(model: Option<&String>, lang: Option<&String>) -> Vec<Flag> {
    let flag = |flag: &str, key: &str, value: &String| Flag {
        flag: flag.to_owned(),
        key: key.to_owned(),
        value: value.clone(),
    };
    let model = model.map(|value| flag("--model", "default_model", value));
    let lang = lang.map(|value| flag("--lang", "language", value));
    model.into_iter().chain(lang).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inside_an_agent_nothing_starts() {
        let inside = [(NESTED_VARIABLE.to_owned(), "1".to_owned())];
        let refused = refuse_nested(&inside.into_iter().collect()).unwrap_err();
        assert_eq!(refused.code, ErrorCode::Nested);
        assert_eq!(refuse_nested(&Variables::default()), Ok(()));
    }
}
