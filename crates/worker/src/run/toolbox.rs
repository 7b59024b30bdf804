//! The tools of one agent: its own, and those that its leader serves.

use std::pin::Pin;
use std::time::Duration;

use protocol::channel::{TOOLS_CALL, ToolsCallParams};
use protocol::conversation::ToolCall;
use protocol::error::{ErrorCode, ToolError};
use protocol::limits::LAST_ACTION_CHARS_MAX;
use protocol::status::Language;
use protocol::text::{ActionKind, Prompts};
use serde_json::Value;

use crate::core::loop_guard::fingerprint;
use crate::core::turn::CallResult;
use crate::io::channel::Leader;
use crate::model::OfferedTool;
use crate::run::caught::{all, caught};
use crate::tools::{Tally, Tool, ToolContext, ToolOutput, list};

/// Everything that an agent may call.
#[derive(Debug)]
pub struct Toolbox {
    /// The worker's own tools, granted or not; what may run is decided before.
    pub own: Vec<Box<dyn Tool>>,
    /// The leader, for the tools that it serves.
    pub leader: Option<Leader>,
    /// What the tools may know.
    pub context: ToolContext,
}

impl Toolbox {
    /// What an agent is doing that runs these calls.
    pub fn action(&self, calls: &[ToolCall]) -> String {
        let prompts = &self.context.prompts;
        let actions: Vec<String> = calls
            .iter()
            .map(|call| match self.find(&call.function.name) {
                Some(tool) => tool.action(&call.function.arguments, prompts),
                None => prompts.action(ActionKind::Calling, &call.function.name),
            })
            .collect();
        let separator = match prompts.language() {
            Language::Zh => "；",
            Language::En => "; ",
        };
        actions
            .join(separator)
            .chars()
            .take(LAST_ACTION_CHARS_MAX)
            .collect()
    }

    /// Runs calls side by side; one result for each, in their order. Whatever is not done when
    /// this is dropped is ended by the tools' own guards.
    pub async fn run(&self, calls: &[ToolCall], within: Duration) -> Vec<CallResult> {
        let running = calls
            .iter()
            .map(|call| {
                Box::pin(self.run_one(call, within))
                    as Pin<Box<dyn Future<Output = CallResult> + '_>>
            })
            .collect();
        all(running).await
    }

    async fn run_one(&self, call: &ToolCall, within: Duration) -> CallResult {
        let name = &call.function.name;
        let arguments = &call.function.arguments;
        let result = match self.find(name) {
            Some(tool) => match caught(tool.call(&self.context, arguments, within)).await {
                Ok(result) => result,
                Err(words) => {
                    tracing::error!(tool = name, panic = words, "a tool panicked");
                    Err(ToolError::new(
                        ErrorCode::Internal,
                        format!("the tool {name} failed by a fault of its own"),
                    )
                    .hint("try another way; its details are in the log"))
                }
            },
            None => self.ask_leader(name, arguments).await,
        };
        finish_result(call, result)
    }

    /// A tool that the leader serves: who calls is known by the channel, never by an argument.
    async fn ask_leader(&self, name: &str, arguments: &str) -> Result<ToolOutput, ToolError> {
        let Some(leader) = &self.leader else {
            return Err(ToolError::new(
                ErrorCode::NoLeader,
                format!("the tool {name} needs a leader, and this agent runs without one"),
            ));
        };
        let arguments = if arguments.trim().is_empty() {
            Value::Object(serde_json::Map::new())
        } else {
            serde_json::from_str(arguments).map_err(|error| {
                ToolError::new(
                    ErrorCode::InvalidParameters,
                    format!("the arguments are no valid JSON: {error}"),
                )
            })?
        };
        let params = ToolsCallParams {
            name: name.to_owned(),
            arguments,
        };
        match leader.call(TOOLS_CALL, params).await {
            Ok(value) => Ok(ToolOutput {
                value,
                tally: Tally::default(),
            }),
            Err(error) => Err(ToolError::new(ErrorCode::Internal, error.to_string())),
        }
    }

    fn find(&self, name: &str) -> Option<&dyn Tool> {
        self.own
            .iter()
            .map(AsRef::as_ref)
            .find(|tool| tool.name() == name)
    }
}

fn finish_result(call: &ToolCall, result: Result<ToolOutput, ToolError>) -> CallResult {
    let (content, succeeded, tally) = match result {
        Ok(output) => {
            let succeeded = output.value.get("success") != Some(&Value::Bool(false));
            let content = match output.value {
                Value::String(text) => text,
                other => other.to_string(),
            };
            (content, succeeded, output.tally)
        }
        Err(error) => (error.to_result().to_string(), false, Tally::default()),
    };
    let print = fingerprint(&call.function.name, &call.function.arguments, &content);
    CallResult {
        content,
        succeeded,
        tally,
        print,
    }
}

/// The worker's own tools as a model is offered them: those that were granted, then those that
/// the leader serves.
pub fn offered(prompts: &Prompts, granted: &[String], served: &[Value]) -> Vec<OfferedTool> {
    let mut offered = list::offered(prompts, granted);
    for tool in served {
        let Some(name) = tool["name"].as_str() else {
            continue;
        };
        if offered.iter().all(|known| known.name != name) {
            offered.push(OfferedTool {
                name: name.to_owned(),
                description: tool["description"].as_str().unwrap_or_default().to_owned(),
                parameters: tool["parameters"].clone(),
            });
        }
    }
    offered
}
