//! From a model's configuration to something that answers.

use std::path::PathBuf;

use protocol::channel::ModelAccess;
use protocol::ids::AgentId;
use protocol::job::{AGENT_DIR, Provider};

use super::{Anthropic, Model, ModelError, OpenAi, Script};

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
/// When the configuration can't work: an address, header or script file that is not valid.
pub fn open(access: &ModelAccess, run: &RunFacts) -> Result<Box<dyn Model>, ModelError> {
    match access.spec.provider {
        Provider::Openai => {
            let folder = run.workspace.join(&run.deliverables_dir).join(AGENT_DIR);
            Ok(Box::new(OpenAi::new(access)?.with_images(folder)))
        }
        Provider::Anthropic => Ok(Box::new(Anthropic::new(access)?)),
        Provider::Script => Ok(Box::new(Script::load(&access.spec, run)?)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use protocol::job::ModelSpec;

    fn opened(provider: Provider, base_url: &str, model: &str) -> Result<Box<dyn Model>, String> {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("s.yaml"), "[{text: hi}]").unwrap();
        let access = ModelAccess {
            spec: ModelSpec::new("main", provider, base_url, model),
            api_key: None,
        };
        let facts = RunFacts {
            agent_id: AgentId::FIRST,
            workspace: folder.path().to_owned(),
            deliverables_dir: PathBuf::from("out"),
            task: String::new(),
        };
        open(&access, &facts).map_err(|error| error.message)
    }

    #[test]
    fn each_provider_is_opened_or_says_why_not() {
        assert!(opened(Provider::Openai, "http://127.0.0.1:1/v1", "m").is_ok());
        assert!(opened(Provider::Script, "", "s.yaml").is_ok());
        assert!(opened(Provider::Anthropic, "http://127.0.0.1:1", "m").is_ok());
        for provider in [Provider::Openai, Provider::Anthropic] {
            assert_eq!(
                opened(provider, "", "m").unwrap_err(),
                "model `main` can't be used: `base_url` is no address (relative URL without a \
                 base); it looks like https://host/v1"
            );
        }
    }
}
