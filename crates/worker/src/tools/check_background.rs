//! `check_background`: how the background commands stand, and what they have printed.

use std::time::Duration;

use protocol::result::cut_middle;
use protocol::text::{ActionKind, Prompts};
use protocol::tool::parse_text;
use protocol::tool::worker::{CHECK_BACKGROUND, CheckBackgroundParams};
use serde_json::Value;

use super::background::Seen;
use super::{Tally, Tool, ToolContext, ToolFuture, ToolOutput, ToolResult, limits};

/// The tool.
#[derive(Debug)]
pub(crate) struct CheckBackground;

impl Tool for CheckBackground {
    fn name(&self) -> &'static str {
        CHECK_BACKGROUND
    }

    fn action(&self, _arguments: &str, prompts: &Prompts) -> String {
        prompts.action(ActionKind::Calling, CHECK_BACKGROUND)
    }

    fn call<'a>(
        &'a self,
        context: &'a ToolContext,
        arguments: &'a str,
        _within: Duration,
    ) -> ToolFuture<'a> {
        Box::pin(check(context, arguments))
    }
}

async fn check(context: &ToolContext, arguments: &str) -> ToolResult {
    let params: CheckBackgroundParams = parse_text(arguments)?;
    // Some models fill in every parameter.
    let id = params.command_id.as_deref().filter(|id| !id.is_empty());
    let seen = context.background.look(context, id).await?;
    let told = match (id, seen.as_slice()) {
        (None, []) => "[no background commands]".to_owned(),
        (None, several) => several
            .iter()
            .map(|one| {
                let result = cut_middle(&one.result, limits::BACKGROUND_SHOWN_BYTES_MAX, "");
                line(one, &result)
            })
            .collect::<Vec<_>>()
            .join("\n"),
        (Some(_), seen) => seen.iter().map(|one| line(one, &one.result)).collect(),
    };
    Ok(ToolOutput {
        value: Value::String(told),
        tally: Tally::default(),
    })
}

/// One command as the model is told of it.
pub(super) fn line(seen: &Seen, result: &str) -> String {
    format!(
        "[{} {}: {}]\n{}",
        seen.id,
        seen.state,
        seen.command,
        result.trim_end()
    )
}
