//! `stop_background`: ends a background command with everything that it started.

use std::time::Duration;

use protocol::text::{ActionKind, Prompts};
use protocol::tool::parse_text;
use protocol::tool::worker::{STOP_BACKGROUND, StopBackgroundParams};
use serde_json::Value;

use super::check_background::line;
use super::{Tally, Tool, ToolContext, ToolFuture, ToolOutput, ToolResult};

/// The tool.
#[derive(Debug)]
pub(crate) struct StopBackground;

impl Tool for StopBackground {
    fn name(&self) -> &'static str {
        STOP_BACKGROUND
    }

    fn action(&self, _arguments: &str, prompts: &Prompts) -> String {
        prompts.action(ActionKind::Calling, STOP_BACKGROUND)
    }

    fn call<'a>(
        &'a self,
        context: &'a ToolContext,
        arguments: &'a str,
        _within: Duration,
    ) -> ToolFuture<'a> {
        Box::pin(stop(context, arguments))
    }
}

async fn stop(context: &ToolContext, arguments: &str) -> ToolResult {
    let params: StopBackgroundParams = parse_text(arguments)?;
    let seen = context.background.stop(context, &params.command_id).await?;
    Ok(ToolOutput {
        value: Value::String(line(&seen, &seen.result)),
        tally: Tally::default(),
    })
}
