//! `leader wait [N…]`: waits for ends, from any terminal.

use std::collections::BTreeMap;

use protocol::error::{ErrorCode, ToolError};
use protocol::exit as codes;
use protocol::result::{AgentStatus, WaitResult};
use protocol::socket::WAIT;
use protocol::status::{Status, StopReason};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::cli::WaitArgs;
use crate::exit;
use crate::faces::client::{CallError, Client};
use crate::faces::console::Console;
use crate::faces::look::ended::ended_view;
use crate::faces::look::overview::{Depth, meant, overview};
use crate::faces::runs::{RunDir, workspace_of};
use crate::faces::surroundings::Surroundings;
use crate::render::agents::RunState;
use crate::render::width::plain;

/// One agent and what is known of its end.
#[derive(Debug, Clone, PartialEq)]
struct Watched {
    task_id: String,
    display_name: String,
    status: Status,
    stop_reason: Option<StopReason>,
}

impl Watched {
    fn of(agent: &AgentStatus) -> Self {
        Watched {
            task_id: agent.task_id.to_string(),
            display_name: agent.display_name.clone(),
            status: agent.status,
            stop_reason: agent.stop_reason,
        }
    }
}

/// Waits, says how they ended, and answers with their exit code.
///
/// # Errors
/// When a reference fits no agent or several, or a leader can't be asked.
pub async fn wait(
    args: &WaitArgs,
    surroundings: &Surroundings,
    console: &mut Console<'_>,
) -> Result<u8, ToolError> {
    let groups = groups(args, surroundings).await?;
    let mut known: BTreeMap<String, Watched> = groups
        .iter()
        .flat_map(|group| &group.agents)
        .map(|agent| (agent.task_id.clone(), agent.clone()))
        .collect();
    let already = known.values().filter(|agent| agent.status.is_end()).count();
    let enough = match args.any {
        true => already > 0 || known.is_empty(),
        false => already == known.len(),
    };
    let mut is_over = false;
    if !enough {
        let mut waits = JoinSet::new();
        for group in groups.into_iter().filter(|group| group.is_live) {
            waits.spawn(wait_for(group, args.any, args.timeout_seconds));
        }
        while let Some(waited) = waits.join_next().await {
            let waited = waited
                .map_err(|error| ToolError::new(ErrorCode::Internal, error.to_string()))??;
            is_over |= waited.timed_out;
            for agent in waited.agents {
                known.insert(agent.task_id.clone(), agent);
            }
            if args.any && known.values().any(|agent| agent.status.is_end()) {
                break;
            }
        }
    }
    report(args, known.into_values().collect(), is_over, console)
}

fn report(
    args: &WaitArgs,
    agents: Vec<Watched>,
    is_over: bool,
    console: &mut Console<'_>,
) -> Result<u8, ToolError> {
    let (ended, running): (Vec<_>, Vec<_>) = agents.iter().partition(|agent| agent.status.is_end());
    let timed_out = is_over && !(running.is_empty() || args.any && !ended.is_empty());
    let text = match args.json {
        true => {
            let value = json!({
                "success": true,
                "timed_out": timed_out,
                "agents": ended.iter().map(|agent| value_of(agent)).collect::<Vec<_>>(),
                "running": running.iter().map(|agent| value_of(agent)).collect::<Vec<_>>(),
            });
            format!("{value}\n")
        }
        false => text_of(&agents),
    };
    console.print(&text)?;
    if timed_out {
        return Ok(codes::DEADLINE);
    }
    let ends: Vec<_> = ended
        .iter()
        .map(|agent| (agent.status, agent.stop_reason))
        .collect();
    Ok(exit::of_run(&ends, None))
}

fn value_of(agent: &Watched) -> Value {
    json!({
        "task_id": agent.task_id,
        "display_name": agent.display_name,
        "status": agent.status,
        "stop_reason": agent.stop_reason,
    })
}

fn text_of(agents: &[Watched]) -> String {
    if agents.is_empty() {
        return "no live agents\n".to_owned();
    }
    agents
        .iter()
        .map(|agent| {
            let reason = agent
                .stop_reason
                .map_or(String::new(), |reason| format!(" ({reason})"));
            format!("{} {}{reason}\n", agent.status, plain(&agent.display_name))
        })
        .collect()
}

/// Agents of one run that are waited for.
struct Group {
    run: RunDir,
    is_live: bool,
    agents: Vec<Watched>,
}

/// Whom the arguments mean, by run.
async fn groups(args: &WaitArgs, surroundings: &Surroundings) -> Result<Vec<Group>, ToolError> {
    let start = &surroundings.workspace;
    let mut groups: Vec<Group> = Vec::new();
    if args.agents.is_empty() {
        let workspace = workspace_of(start);
        for view in overview(start, Depth::Recent).await? {
            if view.state == RunState::Live {
                let live = view.agents.iter().filter(|agent| !agent.status.is_end());
                groups.push(Group {
                    run: RunDir::of(&workspace, &view.conversation),
                    is_live: true,
                    agents: live.map(Watched::of).collect(),
                });
            }
        }
        groups.retain(|group| !group.agents.is_empty());
        return Ok(groups);
    }
    for word in &args.agents {
        let meant = meant(start, word).await?;
        let agent = Watched::of(&meant.agent);
        match groups.iter_mut().find(|group| group.run == meant.run) {
            Some(group) => group.agents.push(agent),
            None => groups.push(Group {
                run: meant.run,
                is_live: meant.is_live,
                agents: vec![agent],
            }),
        }
    }
    Ok(groups)
}

/// What a wait at one leader came to.
struct Waited {
    timed_out: bool,
    agents: Vec<Watched>,
}

async fn wait_for(
    group: Group,
    any: bool,
    timeout_seconds: Option<u32>,
) -> Result<Waited, ToolError> {
    let names: Vec<&str> = group
        .agents
        .iter()
        .map(|agent| agent.task_id.as_str())
        .collect();
    let mut params = json!({"agents": names, "mode": if any { "any" } else { "all" }});
    if let Some(seconds) = timeout_seconds {
        params["timeout_seconds"] = json!(seconds);
    }
    let answer = match Client::connect(&group.run.path) {
        Ok(mut client) => client.call_patiently(WAIT, params).await,
        Err(error) => Err(CallError::Broken(error)),
    };
    match answer {
        Ok(answer) => read_answer(answer),
        // A leader that has ended has ended its agents; its log tells how.
        Err(CallError::Ended | CallError::Broken(_)) => Ok(Waited {
            timed_out: false,
            agents: ended_view(&group.run)
                .iter()
                .flat_map(|view| &view.agents)
                .map(Watched::of)
                .filter(|agent| names.contains(&agent.task_id.as_str()))
                .collect(),
        }),
        Err(error) => Err(error.to_tool_error()),
    }
}

fn read_answer(answer: Value) -> Result<Waited, ToolError> {
    if answer["success"] != true
        && let Ok(error) = serde_json::from_value::<ToolError>(answer["error"].clone())
    {
        return Err(error);
    }
    let result: WaitResult = serde_json::from_value(answer).map_err(|error| {
        ToolError::new(
            ErrorCode::NoLeader,
            format!("the leader's answer can't be read; is it of another version? {error}"),
        )
    })?;
    Ok(Waited {
        timed_out: result.timed_out,
        agents: result
            .agents
            .into_iter()
            .map(|agent| Watched {
                task_id: agent.task_id.to_string(),
                display_name: agent.display_name,
                status: agent.status,
                stop_reason: agent.stop_reason,
            })
            .collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::faces::console::Look;

    fn agent(number: u32, status: Status, stop_reason: Option<StopReason>) -> Watched {
        Watched {
            task_id: format!("sub_{number}"),
            display_name: format!("Sub-agent {number}"),
            status,
            stop_reason,
        }
    }

    fn reported(any: bool, agents: Vec<Watched>, is_over: bool) -> (u8, String) {
        let args = WaitArgs {
            any,
            ..WaitArgs::default()
        };
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let mut console = Console::new(&mut out, &mut err, Look::default());
        let code = report(&args, agents, is_over, &mut console).unwrap();
        (code, String::from_utf8(out).unwrap())
    }

    #[test]
    fn the_code_is_that_of_the_ends_or_of_the_clock() {
        let done = || agent(1, Status::Completed, None);
        let dead = || agent(2, Status::Failed, Some(StopReason::NoFinish));
        let busy = || agent(3, Status::Running, None);
        assert_eq!(
            reported(false, vec![], false),
            (0, "no live agents\n".into())
        );
        assert_eq!(
            reported(false, vec![done(), dead()], false),
            (
                1,
                "completed Sub-agent 1\nfailed Sub-agent 2 (no_finish)\n".into()
            )
        );
        assert_eq!(reported(false, vec![done(), busy()], true).0, 124);
        // Another run's clock ran out while this one's agent had ended.
        assert_eq!(reported(true, vec![done(), busy()], true).0, 0);
        assert_eq!(reported(true, vec![busy()], true).0, 124);
    }
}
