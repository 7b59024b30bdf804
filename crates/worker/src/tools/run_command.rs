//! `run_command`: a shell command with a time-out, its output and how it ended; or its id, when it
//! is to run in the background.

use std::path::PathBuf;
use std::time::Duration;

use protocol::error::{ErrorCode, ToolError};
use protocol::limits;
use protocol::text::{ActionKind, Prompts};
use protocol::tool::parse_text;
use protocol::tool::worker::{RUN_COMMAND, RunCommandParams};
use serde_json::Value;

use super::command::{self, Order, tell};
use super::failure::Doing;
use super::paths::{Kind, resolve};
use super::{Tally, Tool, ToolContext, ToolFuture, ToolOutput, ToolResult, subject};

/// The tool.
#[derive(Debug)]
pub(crate) struct RunCommand;

impl Tool for RunCommand {
    fn name(&self) -> &'static str {
        RUN_COMMAND
    }

    fn action(&self, arguments: &str, prompts: &Prompts) -> String {
        prompts.action(ActionKind::Running, &subject::of(arguments, "command"))
    }

    fn call<'a>(
        &'a self,
        context: &'a ToolContext,
        arguments: &'a str,
        within: Duration,
    ) -> ToolFuture<'a> {
        Box::pin(run(context, arguments, within))
    }
}

async fn run(context: &ToolContext, arguments: &str, within: Duration) -> ToolResult {
    let params: RunCommandParams = parse_text(arguments)?;
    let order = Order {
        command: params.command,
        directory: directory(context, params.working_dir.as_deref())?,
        hidden_env: context.hidden_env.clone(),
        world: context.commands.clone(),
        mask: context.mask.clone(),
    };
    let asked = params
        .timeout_seconds
        .and_then(|seconds| u64::try_from(seconds).ok())
        .unwrap_or(u64::from(limits::COMMAND_SECONDS_DEFAULT));
    let timeout = Duration::from_secs(asked).min(within);
    if params.run_in_background == Some(true) {
        return in_background(context, &order, timeout);
    }
    let ended = command::run(&context.keeping, &order, timeout).await?;
    Ok(ToolOutput {
        value: Value::String(tell(&ended)),
        tally: Tally {
            commands: 1,
            ..Tally::default()
        },
    })
}

/// Starts a command that the agent's next turns go on beside.
fn in_background(context: &ToolContext, order: &Order, timeout: Duration) -> ToolResult {
    let begin = || command::begin(&context.keeping, order, timeout);
    let id = context
        .background
        .start(context, &order.command, timeout, begin)?;
    let told = context.prompts.background_started(&id, timeout.as_secs());
    Ok(ToolOutput {
        value: Value::String(told),
        tally: Tally {
            commands: 1,
            ..Tally::default()
        },
    })
}

/// Where the command runs.
fn directory(context: &ToolContext, asked: Option<&str>) -> Result<PathBuf, ToolError> {
    let Some(asked) = asked.filter(|asked| !asked.is_empty()) else {
        return Ok(context.workspace.clone());
    };
    let place = resolve(&context.workspace, asked, Doing::Read)?;
    match place.kind {
        Some(Kind::Directory) => Ok(context.workspace.join(&place.relative)),
        Some(Kind::File | Kind::Other(_)) => Err(ToolError::new(
            ErrorCode::InvalidParameters,
            format!("`working_dir` `{}` is not a directory", place.shown()),
        )
        .hint("leave it out to run in the workspace")),
        None => Err(ToolError::new(
            ErrorCode::NotFound,
            format!("`working_dir` `{}` does not exist", place.shown()),
        )
        .hint("leave it out to run in the workspace")),
    }
}

#[cfg(test)]
#[path = "run_command_tests.rs"]
mod tests;
