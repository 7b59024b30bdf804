//! What a conversation is started with, and why it may not start.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use protocol::config::Settings;
use protocol::error::{ErrorCode, ToolError};
use protocol::exit;
use protocol::ids::{AgentId, ConversationId};

use crate::os::programs::SpawnProblem;
use crate::os::rung::Shortfall;

/// Variables of the environment, so that tests need not change their own.
#[derive(Clone)]
pub struct Environment(Arc<BTreeMap<String, String>>);

impl Environment {
    /// The variables of this process; one that is no UTF-8 counts as not set.
    pub fn of_process() -> Self {
        let variables = std::env::vars_os();
        let texts = variables.filter_map(|(name, value)| {
            Some((name.into_string().ok()?, value.into_string().ok()?))
        });
        Environment(Arc::new(texts.collect()))
    }

    /// Exactly these variables.
    pub fn of(variables: BTreeMap<String, String>) -> Self {
        Environment(Arc::new(variables))
    }

    /// One variable.
    pub fn get(&self, name: &str) -> Option<String> {
        self.0.get(name).cloned()
    }

    /// All of them.
    pub fn pairs(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (&**name, &**value))
    }
}

impl fmt::Debug for Environment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Its values may be keys.
        f.write_str("Environment")
    }
}

/// What a conversation is started with.
#[derive(Debug, Clone)]
pub struct DriverConfig {
    /// Where agents work; made absolute, its links resolved.
    pub workspace: PathBuf,
    /// The conversation; none makes a new one.
    pub conversation: Option<ConversationId>,
    /// The resolved configuration.
    pub settings: Settings,
    /// Where models and their keys are looked for.
    pub environment: Environment,
    /// The worker's executable, where a flag names one.
    pub worker_bin: Option<PathBuf>,
    /// Numbers that no agent gets by itself, for a later create will name them.
    pub reserved_numbers: BTreeSet<AgentId>,
    /// The jail's executable, where a test names one.
    pub jail_bin: Option<PathBuf>,
    /// For tests alone: a descriptor that every process of a tree keeps open, so that its end of
    /// file proves the tree empty.
    pub keep_fd: Option<i32>,
}

impl DriverConfig {
    /// A new conversation of this process's environment.
    pub fn new(workspace: impl Into<PathBuf>, settings: Settings) -> Self {
        DriverConfig {
            workspace: workspace.into(),
            conversation: None,
            settings,
            environment: Environment::of_process(),
            worker_bin: None,
            reserved_numbers: BTreeSet::new(),
            jail_bin: None,
            keep_fd: None,
        }
    }
}

/// Why a conversation did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The workspace can't be used.
    #[error("the workspace `{}` can't be used: {source}", .path.display())]
    Workspace {
        /// As it was given.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// The run's own folder can't be made.
    #[error("the run's folder `{}` can't be made: {source}", .path.display())]
    RunDir {
        /// Where.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// The event log can't be opened, or another leader holds it.
    #[error("the event log in `{}` can't be used: {why}", .path.display())]
    Log {
        /// The run's folder.
        path: PathBuf,
        /// Why.
        why: String,
    },
    /// An executable is not fit.
    #[error(transparent)]
    Program(#[from] SpawnProblem),
    /// The machine can't be asked what it holds.
    #[error("the confinement of this machine could not be tried out: {0}")]
    Probe(#[from] confine::probe::ProbeError),
    /// The confinement that the configuration requires can't be had.
    #[error("{}", shortfall_text(.0))]
    Confinement(Box<Shortfall>),
    /// A text that stands in for a built-in one is not fit.
    #[error("the prompts in `{}` can't be used: {why}", .path.display())]
    Prompts {
        /// The folder.
        path: PathBuf,
        /// Why.
        why: String,
    },
}

impl StartError {
    /// What to try.
    pub fn hint(&self) -> String {
        match self {
            StartError::Workspace { .. } => {
                "name an existing directory that you may write, as with `-C DIR`".to_owned()
            }
            StartError::RunDir { .. } => {
                "make the workspace's `.muster` folder writable, or remove what is in its way"
                    .to_owned()
            }
            StartError::Log { .. } => {
                "if another leader runs this conversation, talk to that one (`leader ps`)"
                    .to_owned()
            }
            StartError::Program(problem) => problem.hint(),
            StartError::Probe(_) => "run `jail --probe` to see what it says".to_owned(),
            StartError::Confinement(short) => shortfall_hint(short),
            StartError::Prompts { .. } => "mend the file, or unset `prompts_dir`".to_owned(),
        }
    }

    /// The leader's exit code for it.
    pub fn exit_code(&self) -> u8 {
        match self {
            StartError::Confinement(_) => exit::CONFINEMENT_REFUSED,
            StartError::Prompts { .. } => exit::USAGE,
            StartError::Workspace { .. }
            | StartError::RunDir { .. }
            | StartError::Log { .. }
            | StartError::Program(_)
            | StartError::Probe(_) => exit::LEADER_ENVIRONMENT,
        }
    }

    /// The error as faces tell it.
    pub fn to_tool_error(&self) -> ToolError {
        let code = match self {
            StartError::Workspace { .. } | StartError::RunDir { .. } => ErrorCode::PermissionDenied,
            StartError::Log { .. } => ErrorCode::Io,
            StartError::Program(_) => ErrorCode::SpawnFailed,
            StartError::Probe(_) | StartError::Confinement(_) => ErrorCode::ConfinementRefused,
            StartError::Prompts { .. } => ErrorCode::InvalidParameters,
        };
        ToolError::new(code, self.to_string()).hint(self.hint())
    }
}

/// The rung that is required, the one in force, and what is missing.
fn shortfall_text(short: &Shortfall) -> String {
    let missing: Vec<&str> = match short.obstacles.is_empty() {
        true => short.gaps.iter().map(String::as_str).collect(),
        false => short
            .obstacles
            .iter()
            .map(|obstacle| obstacle.reason.as_str())
            .collect(),
    };
    let missing = match missing.is_empty() {
        true => String::new(),
        false => format!(": {}", missing.join("; ")),
    };
    format!(
        "`confinement.require` is `{}`, and this machine holds only `{}`{missing}",
        short.required, short.found
    )
}

/// The lines that bring the required rung, each on its own.
fn shortfall_hint(short: &Shortfall) -> String {
    let mut lines: Vec<String> = short
        .obstacles
        .iter()
        .map(|obstacle| format!("for `{}`: {}", obstacle.rung, obstacle.remedy))
        .collect();
    lines.push(
        "or lower `confinement.require`; `leader doctor` shows all that stands and does not"
            .to_owned(),
    );
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::os::rung::{shortfall, test_kit::found};
    use confine::report::Rung;

    #[test]
    fn a_refusal_says_what_is_asked_what_there_is_and_the_line_that_brings_it() {
        let short = shortfall(Rung::Pidns, &found(Rung::Group)).unwrap();
        let error = StartError::Confinement(Box::new(short));
        assert_eq!(
            error.to_string(),
            "`confinement.require` is `pidns`, and this machine holds only `group`: \
             no subreaper; no pidns"
        );
        assert_eq!(
            error.hint(),
            "for `subreaper`: allow subreaper\nfor `pidns`: allow pidns\n\
             or lower `confinement.require`; `leader doctor` shows all that stands and does not"
        );
        assert_eq!(error.exit_code(), exit::CONFINEMENT_REFUSED);
        assert_eq!(error.to_tool_error().code, ErrorCode::ConfinementRefused);
    }

    #[test]
    fn without_a_known_obstacle_the_gaps_are_told() {
        let mut machine = found(Rung::Pidns);
        machine.obstacles.clear();
        machine.confinement.kill = confine::report::KillReach::Group;
        let short = shortfall(Rung::Pidns, &machine).unwrap();
        assert_eq!(
            StartError::Confinement(Box::new(short)).to_string(),
            "`confinement.require` is `pidns`, and this machine holds only `group`: a gap of pidns"
        );
    }
}
