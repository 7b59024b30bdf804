//! `leader kill N`: ends one agent of a live run.

use protocol::error::{ErrorCode, ToolError};
use protocol::exit as codes;
use protocol::tool::leader::TERMINATE_SUB_AGENT;
use serde_json::{Value, json};

use crate::cli::KillArgs;
use crate::exit;
use crate::faces::client::Client;
use crate::faces::console::Console;
use crate::faces::look::overview::meant;
use crate::faces::surroundings::Surroundings;
use crate::render::width::plain;

/// Ends it and says what it left.
///
/// # Errors
/// When no agent or several are meant, it has ended, or its leader does not answer.
pub async fn kill(
    args: &KillArgs,
    surroundings: &Surroundings,
    console: &mut Console<'_>,
) -> Result<u8, ToolError> {
    let meant = meant(&surroundings.workspace, &args.agent).await?;
    let name = plain(&meant.agent.display_name);
    if !meant.is_live {
        return Err(ToolError::new(
            ErrorCode::AlreadyEnded,
            format!("{name} has ended: {}", meant.agent.status),
        ));
    }
    let mut client = Client::connect(&meant.run.path).map_err(|error| {
        ToolError::new(
            ErrorCode::NoLeader,
            format!(
                "the leader of {} can't be reached: {error}",
                meant.run.conversation
            ),
        )
    })?;
    let answer = client
        .call_patiently(TERMINATE_SUB_AGENT, json!({"agent": meant.agent.task_id}))
        .await
        .map_err(|error| error.to_tool_error())?;
    if answer["success"] != true
        && let Ok(error) = serde_json::from_value::<ToolError>(answer["error"].clone())
    {
        if args.json {
            console.print(&format!("{answer}\n"))?;
        }
        console.fail(&error);
        return Ok(exit::of_error(error.code));
    }
    let text = match args.json {
        true => format!("{answer}\n"),
        false => killed_text(&answer),
    };
    console.print(&text)?;
    Ok(codes::SUCCESS)
}

fn killed_text(answer: &Value) -> String {
    let text = |key: &str| plain(answer[key].as_str().unwrap_or_default());
    let files: Vec<String> = answer["deliverables_files"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|name| name.as_str().map(plain))
        .collect();
    let left = match files.is_empty() {
        true => format!("no files in {}", text("deliverables_dir")),
        false => format!(
            "files in {}: {}",
            text("deliverables_dir"),
            files.join(", ")
        ),
    };
    format!("{}\n{left}\n", text("message"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_is_named() {
        let mut answer = json!({"success": true, "message": "Sub-agent 1 was terminated",
            "deliverables_dir": "d", "deliverables_files": ["a", "b"]});
        assert_eq!(
            killed_text(&answer),
            "Sub-agent 1 was terminated\nfiles in d: a, b\n"
        );
        answer["deliverables_files"] = json!([]);
        assert_eq!(
            killed_text(&answer),
            "Sub-agent 1 was terminated\nno files in d\n"
        );
    }
}
