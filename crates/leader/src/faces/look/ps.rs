//! `leader ps`: all agents of live and recent runs.

use protocol::error::ToolError;
use protocol::exit;
use serde_json::{Value, json};

use crate::cli::PsArgs;
use crate::faces::console::Console;
use crate::faces::look::overview::{Depth, overview};
use crate::faces::surroundings::Surroundings;
use crate::render::agents::{RunView, runs_text};

/// Lists them.
///
/// # Errors
/// When the runs can't be read or stdout can't be written.
pub async fn ps(
    args: &PsArgs,
    surroundings: &Surroundings,
    console: &mut Console<'_>,
) -> Result<u8, ToolError> {
    let depth = match args.all {
        true => Depth::All,
        false => Depth::Recent,
    };
    let runs = overview(&surroundings.workspace, depth).await?;
    let text = match args.json {
        true => format!("{}\n", runs_value(&runs)),
        false => runs_text(&runs, console.look().out),
    };
    console.print(&text)?;
    Ok(exit::SUCCESS)
}

fn runs_value(runs: &[RunView]) -> Value {
    let runs: Vec<Value> = runs
        .iter()
        .map(|run| {
            json!({
                "conversation": run.conversation,
                "state": run.state.word(),
                "detail": run.state.detail(),
                "agents": run.agents,
            })
        })
        .collect();
    json!({"success": true, "runs": runs})
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::render::agents::RunState;
    use crate::render::line::sample_status;
    use protocol::ids::ConversationId;

    #[test]
    fn a_program_gets_every_field() {
        let run = RunView {
            conversation: ConversationId::new("conv_0190a6e0-0001").unwrap(),
            state: RunState::Silent("late".to_owned()),
            agents: vec![sample_status()],
        };
        assert_eq!(
            runs_value(&[run]),
            json!({"success": true, "runs": [{
                "conversation": "conv_0190a6e0-0001",
                "state": "silent",
                "detail": "late",
                "agents": [serde_json::to_value(sample_status()).unwrap()],
            }]})
        );
    }
}
