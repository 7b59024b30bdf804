//! The tools of one agent: its own, and those that its leader serves.

use std::pin::Pin;
use std::time::Duration;

use protocol::channel::{TOOLS_CALL, ToolsCallParams};
use protocol::conversation::ToolCall;
use protocol::error::{ErrorCode, ToolError};
use protocol::limits::LAST_ACTION_CHARS_MAX;
use protocol::status::Language;
use protocol::text::{ActionKind, Prompts};
use protocol::tool::worker::Need;
use serde_json::Value;

use crate::core::loop_guard::fingerprint;
use crate::core::turn::CallResult;
use crate::io::channel::Leader;
use crate::model::OfferedTool;
use crate::run::caught::{all, caught};
use crate::tools::mcp::Servers;
use crate::tools::{Tally, Tool, ToolContext, ToolOutput, large, list};

/// Everything that an agent may call.
#[derive(Debug)]
pub struct Toolbox {
    /// The worker's own tools, granted or not; what may run is decided before.
    pub own: Vec<Box<dyn Tool>>,
    /// The leader, for the tools that it serves.
    pub leader: Option<Leader>,
    /// What the tools may know.
    pub context: ToolContext,
    /// The MCP servers, which end with the run.
    pub servers: Servers,
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
        finish_result(&self.context, call, result)
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

fn finish_result(
    context: &ToolContext,
    call: &ToolCall,
    result: Result<ToolOutput, ToolError>,
) -> CallResult {
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
    let content = context.mask.text(&content).into_owned();
    let print = fingerprint(&call.function.name, &call.function.arguments, &content);
    CallResult {
        content: large::shorten(context, content),
        succeeded,
        tally,
        print,
    }
}

/// The worker's own tools as a model is offered them: those that were granted and are of use to an
/// agent that has these things, then those that the leader serves.
pub fn offered(
    prompts: &Prompts,
    granted: &[String],
    has: &[Need],
    served: &[Value],
) -> Vec<OfferedTool> {
    let mut offered = list::offered(prompts, granted, has);
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

#[cfg(test)]
mod tests {
    use protocol::limits::TOOL_RESULT_CHARS_MAX;

    use super::*;
    use crate::tools::{ToolFuture, ToolResult};

    /// A tool that does what its name says.
    #[derive(Debug)]
    struct Fake(&'static str);

    impl Tool for Fake {
        fn name(&self) -> &'static str {
            self.0
        }

        fn action(&self, arguments: &str, _prompts: &Prompts) -> String {
            format!("{} {arguments}", self.0)
        }

        fn call<'a>(
            &'a self,
            _context: &'a ToolContext,
            arguments: &'a str,
            _within: Duration,
        ) -> ToolFuture<'a> {
            Box::pin(async move {
                let result: ToolResult = match self.0 {
                    "panics" => panic!("at the disco"),
                    "fails" => Err(ToolError::new(ErrorCode::NotFound, "no such thing")),
                    "long" => Ok(output(Value::String("x".repeat(TOOL_RESULT_CHARS_MAX + 1)))),
                    "sleeps" => {
                        tokio::time::sleep(Duration::from_millis(arguments.parse().unwrap())).await;
                        Ok(output(serde_json::json!({"slept": arguments})))
                    }
                    other => unreachable!("{other}"),
                };
                result
            })
        }
    }

    fn output(value: Value) -> ToolOutput {
        let tally = Tally {
            searches: 1,
            ..Tally::default()
        };
        ToolOutput { value, tally }
    }

    fn toolbox(dir: &std::path::Path) -> Toolbox {
        let own: Vec<Box<dyn Tool>> = ["panics", "fails", "long", "sleeps"]
            .into_iter()
            .map(|name| Box::new(Fake(name)) as Box<dyn Tool>)
            .collect();
        Toolbox {
            own,
            leader: None,
            servers: Servers::default(),
            context: ToolContext {
                workspace: dir.to_owned(),
                deliverables_dir: dir.join("out"),
                agent_dir: dir.join("out/.subagent"),
                write_scope: Vec::new(),
                prompts: std::sync::Arc::new(Prompts::builtin(Language::En)),
                hidden_env: Vec::new(),
                commands: Default::default(),
                mask: protocol::secret::Mask::default(),
                keeping: std::sync::Arc::new(crate::tools::command::Keeping::Group {
                    why: "a test wants it so".to_owned(),
                }),
                background: std::sync::Arc::new(crate::tools::background::Background::new()),
                web: Default::default(),
                vision: false,
                skills: [].into(),
            },
        }
    }

    async fn run(toolbox: &Toolbox, calls: &[(&str, &str)]) -> Vec<CallResult> {
        let calls: Vec<ToolCall> = calls
            .iter()
            .map(|(name, arguments)| ToolCall::new("id", *name, *arguments))
            .collect();
        toolbox.run(&calls, Duration::from_secs(60)).await
    }

    #[tokio::test(start_paused = true)]
    async fn results_keep_the_order_of_the_calls_and_no_panic_goes_further() {
        let root = tempfile::tempdir().unwrap();
        let toolbox = toolbox(root.path());
        let calls = [
            ("sleeps", "300"),
            ("panics", ""),
            ("fails", ""),
            ("served", ""),
            ("sleeps", "100"),
        ];
        let results = run(&toolbox, &calls).await;
        let succeeded: Vec<bool> = results.iter().map(|result| result.succeeded).collect();
        assert_eq!(succeeded, [true, false, false, false, true]);
        assert_eq!(results[0].content, r#"{"slept":"300"}"#);
        assert_eq!(results[0].tally.searches, 1);
        assert_eq!(results[4].content, r#"{"slept":"100"}"#);
        let codes = ["internal", "not_found", "no_leader"];
        for (result, code) in results[1..4].iter().zip(codes) {
            let content: Value = serde_json::from_str(&result.content).unwrap();
            assert_eq!(content["error"]["code"], code);
            assert_eq!(result.tally, Tally::default());
        }
        assert!(!results[1].content.contains("disco"), "no internals");
    }

    #[tokio::test]
    async fn a_long_result_goes_to_a_file_and_counts_as_the_same_when_it_comes_again() {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(root.path().join("out/.subagent")).unwrap();
        let toolbox = toolbox(root.path());
        let results = run(&toolbox, &[("long", ""), ("long", "")]).await;
        for (at, result) in results.iter().enumerate() {
            let file = root
                .path()
                .join(format!("out/.subagent/outputs/{}.txt", at + 1));
            let whole = std::fs::read_to_string(file).unwrap();
            assert_eq!(whole.len(), TOOL_RESULT_CHARS_MAX + 1);
            assert!(result.content.len() < whole.len());
        }
        assert_ne!(results[0].content, results[1].content);
        assert_eq!(results[0].print, results[1].print);
    }

    #[test]
    fn what_an_agent_does_is_told_in_few_words() {
        let root = tempfile::tempdir().unwrap();
        let toolbox = toolbox(root.path());
        let calls = [
            ToolCall::new("1", "sleeps", "5"),
            ToolCall::new("2", "served", "{}"),
        ];
        assert_eq!(toolbox.action(&calls), "sleeps 5; calling served");
        let long = [ToolCall::new("1", "sleeps", "文".repeat(1_000))];
        assert_eq!(toolbox.action(&long).chars().count(), LAST_ACTION_CHARS_MAX);
    }

    #[test]
    fn served_tools_are_offered_behind_the_own_ones_and_hide_none() {
        let prompts = Prompts::builtin(Language::En);
        let served = [
            serde_json::json!({"name": "finish_task", "description": "another"}),
            serde_json::json!({"name": "ask_master", "description": "asks", "parameters": {}}),
            serde_json::json!({"no": "name"}),
        ];
        let offered = offered(&prompts, &["finish_task".to_owned()], &[], &served);
        let told: Vec<(&str, &str)> = offered
            .iter()
            .map(|tool| (tool.name.as_str(), tool.description.as_str()))
            .collect();
        let own = prompts.tool_description("finish_task");
        assert_eq!(
            told,
            [("finish_task", own.as_str()), ("ask_master", "asks")]
        );
    }
}
