//! `leader ps`: all agents of live and recent runs.

use protocol::error::ToolError;
use protocol::exit;
use serde_json::{Value, json};

use crate::cli::PsArgs;
use crate::core::again::waiting_to_go_on;
use crate::core::fold::FoldedAgent;
use crate::faces::console::Console;
use crate::faces::look::overview::{Depth, overview};
use crate::faces::resume::all_runs;
use crate::faces::surroundings::Surroundings;
use crate::render::agents::{RunView, runs_text};
use crate::render::width::plain;

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
    let logs = all_runs(surroundings)?;
    let agents: Vec<&FoldedAgent> = logs.iter().flat_map(|run| &run.agents).collect();
    let notices = waiting_to_go_on(&agents);
    let text = match args.json {
        true => {
            let mut value = runs_value(&runs);
            value["notices"] = notices.iter().map(|agent| notice_value(agent)).collect();
            format!("{value}\n")
        }
        false => {
            let notices: String = notices.iter().map(|agent| notice_line(agent)).collect();
            let look = console.look();
            let tables = runs_text(&runs, look.out, look.out_columns);
            tables + &notices
        }
    };
    console.show(&text, args.json)?;
    Ok(exit::SUCCESS)
}

/// The notice of an agent that was cut off, as long as nobody has let it go on.
fn notice_line(agent: &FoldedAgent) -> String {
    format!(
        "{} ({}) was interrupted when its leader died; `leader resume {}` lets it go on\n",
        plain(&agent.tag.display_name),
        plain(&agent.job.summary),
        agent.tag.task_id
    )
}

fn notice_value(agent: &FoldedAgent) -> Value {
    json!({
        "conversation": agent.job.conversation,
        "agent_id": agent.tag.agent_id,
        "role_id": agent.tag.role_id,
        "task_id": agent.tag.task_id,
        "display_name": agent.tag.display_name,
        "status": agent.end().status(),
    })
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
