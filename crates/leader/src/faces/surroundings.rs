//! Where a command stands: its workspace, its environment, and what is around its executable.

use std::path::{Path, PathBuf};

use protocol::config::{ConfigFile, Flag, Settings};
use protocol::error::{ErrorCode, ToolError};

use crate::cli::RunArgs;
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

/// The same for `leader run`, which has flags about confinement as well.
pub fn run_flags(args: &RunArgs) -> Vec<Flag> {
    let of = |flag: &str, key: &str, value: &Option<String>| {
        value.as_ref().map(|value| Flag {
            flag: flag.to_owned(),
            key: key.to_owned(),
            value: value.clone(),
        })
    };
    let write = of("--write", "confinement.write", &args.write);
    let network = of("--network", "confinement.network", &args.network);
    let mut all = flags(args.model.as_ref(), args.lang.as_ref());
    all.extend(write.into_iter().chain(network));
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_flag_of_a_run_becomes_the_value_of_its_key() {
        let some = |text: &str| Some(text.to_owned());
        let args = RunArgs {
            model: some("m"),
            lang: some("zh"),
            write: some("scope"),
            network: some("none"),
            ..RunArgs::default()
        };
        let all: Vec<(String, String, String)> = run_flags(&args)
            .into_iter()
            .map(|flag| (flag.flag, flag.key, flag.value))
            .collect();
        let expected = [
            ("--model", "default_model", "m"),
            ("--lang", "language", "zh"),
            ("--write", "confinement.write", "scope"),
            ("--network", "confinement.network", "none"),
        ]
        .map(|(flag, key, value)| (flag.to_owned(), key.to_owned(), value.to_owned()));
        assert_eq!(all, expected);
        assert!(run_flags(&RunArgs::default()).is_empty());
    }

    #[test]
    fn inside_an_agent_nothing_starts() {
        let inside = [(NESTED_VARIABLE.to_owned(), "1".to_owned())];
        let refused = refuse_nested(&inside.into_iter().collect()).unwrap_err();
        assert_eq!(refused.code, ErrorCode::Nested);
        assert_eq!(refuse_nested(&Variables::default()), Ok(()));
    }
}
