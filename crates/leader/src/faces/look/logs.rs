//! `leader logs N`: the steps of an agent, from its journal; with `-f` as they are made.

use std::path::Path;
use std::time::Duration;

use protocol::error::{ErrorCode, ToolError};
use protocol::exit;
use protocol::result::AgentStatus;
use protocol::socket::STEPS_DEFAULT;
use protocol::status::Status;
use protocol::tool::leader::GET_SUB_AGENT_STATUS;
use serde_json::json;

use crate::cli::LogsArgs;
use crate::faces::client::Client;
use crate::faces::console::Console;
use crate::faces::look::overview::{Meant, meant};
use crate::faces::steps::{Step, Steps, open_journal, read_steps};
use crate::faces::surroundings::Surroundings;
use crate::render::steps::step_text;

/// Between two looks at a journal that grows. A person reads it; nothing waits for it.
const FOLLOW_MS: u64 = 250;

/// Prints them.
///
/// # Errors
/// When no agent or several are meant, its journal can't be read, or stdout can't be written.
pub async fn logs(
    args: &LogsArgs,
    surroundings: &Surroundings,
    console: &mut Console<'_>,
) -> Result<u8, ToolError> {
    let meant = meant(&surroundings.workspace, &args.agent).await?;
    let mut follower = match args.follow && meant.is_live {
        true => Client::connect(&meant.run.path).ok(),
        false => None,
    };
    let mut next = 0;
    let mut printed = 0;
    loop {
        // Asked before the journal is read: an agent that has ended by now writes no more.
        let goes_on = match &mut follower {
            Some(client) => is_alive(client, &meant.agent).await,
            None => false,
        };
        loop {
            let steps = read(&meant, next)?;
            next = steps.next;
            printed += steps.steps.len();
            for step in &steps.steps {
                print(step, args.json, console)?;
            }
            if !steps.more || console.out_is_closed() {
                break;
            }
        }
        if !goes_on || console.out_is_closed() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(FOLLOW_MS)).await;
    }
    if printed == 0 && !args.json {
        console.say("no steps in its journal (yet, or a later run has replaced it)\n");
    }
    Ok(exit::SUCCESS)
}

fn read(meant: &Meant, after: u64) -> Result<Steps, ToolError> {
    let limit = STEPS_DEFAULT as usize;
    let place = Path::new(&meant.agent.deliverables_dir);
    let read = match open_journal(&meant.workspace, place) {
        Ok(Some(mut journal)) => read_steps(&mut journal, &meant.agent.task_id, after, limit),
        Ok(None) => Ok(Steps {
            next: after,
            ..Steps::default()
        }),
        Err(error) => Err(error),
    };
    read.map_err(|error| {
        ToolError::new(
            ErrorCode::Io,
            format!(
                "the journal in `{}` could not be read: {error}",
                meant.agent.deliverables_dir
            ),
        )
    })
}

fn print(step: &Step, as_json: bool, console: &mut Console<'_>) -> Result<(), ToolError> {
    let text = match as_json {
        true => match serde_json::to_string(step) {
            Ok(line) => format!("{line}\n"),
            Err(error) => return Err(ToolError::new(ErrorCode::Internal, error.to_string())),
        },
        false => step_text(step, console.look().out),
    };
    console.print(&text)
}

/// Whether the agent may still write. A leader that does not answer has ended, and its agents
/// with it.
async fn is_alive(client: &mut Client, agent: &AgentStatus) -> bool {
    let params = json!({"agent": agent.task_id});
    let Ok(answer) = client.call(GET_SUB_AGENT_STATUS, params).await else {
        return false;
    };
    serde_json::from_value::<Status>(answer["agents"][0]["status"].clone())
        .is_ok_and(|status| !status.is_end())
}
