//! `leader status N`: one agent, whole.

use protocol::error::ToolError;
use protocol::exit;
use serde_json::json;

use crate::cli::StatusArgs;
use crate::faces::console::Console;
use crate::faces::look::overview::meant;
use crate::faces::surroundings::Surroundings;
use crate::render::agents::status_text;

/// Shows it.
///
/// # Errors
/// When no agent or several are meant, or stdout can't be written.
pub async fn status(
    args: &StatusArgs,
    surroundings: &Surroundings,
    console: &mut Console<'_>,
) -> Result<u8, ToolError> {
    let meant = meant(&surroundings.workspace, &args.agent).await?;
    let conversation = &meant.run.conversation;
    let text = match args.json {
        true => {
            let value = json!({
                "success": true,
                "conversation": conversation,
                "live": meant.is_live,
                "agent": meant.agent,
            });
            format!("{value}\n")
        }
        false => status_text(conversation, &meant.agent, console.look().out),
    };
    console.show(&text, args.json)?;
    Ok(exit::SUCCESS)
}
