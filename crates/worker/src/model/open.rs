//! From a model's configuration to something that answers.

use std::path::PathBuf;

use protocol::channel::ModelAccess;
use protocol::ids::AgentId;
use protocol::job::Provider;

use super::{Model, ModelError, ModelErrorKind, OpenAi, Script};

/// What a model may need to know of the run that uses it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunFacts {
    /// The agent's number.
    pub agent_id: AgentId,
    /// Absolute.
    pub workspace: PathBuf,
    /// As the agent is told it, relative to the workspace.
    pub deliverables_dir: PathBuf,
    /// The task's text.
    pub task: String,
}

/// Makes the model that `access` describes. Nothing is sent yet.
///
/// # Errors
/// When the configuration can't work: an address, header or script file that is not valid, or a
/// provider that this version does not speak to.
pub fn open(access: &ModelAccess, run: &RunFacts) -> Result<Box<dyn Model>, ModelError> {
    match access.spec.provider {
        Provider::Openai => Ok(Box::new(OpenAi::new(access)?)),
        Provider::Anthropic => Err(not_available(&access.spec.key, "anthropic")),
        Provider::Script => Ok(Box::new(Script::load(&access.spec, run)?)),
    }
}

fn not_available(key: &str, provider: &str) -> ModelError {
    ModelError {
        kind: ModelErrorKind::Refused,
        message: format!(
            "model `{key}`: provider `{provider}` is not available in this version; use a \
             provider `openai` with the address of a server that speaks chat completions"
        ),
        requests: 0,
    }
}
