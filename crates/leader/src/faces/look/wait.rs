//! `leader wait [N…]`: waits for ends, from any terminal.

use std::collections::BTreeMap;
use std::future::Future;
use std::path::Path;
use std::time::Duration;

use protocol::error::{ErrorCode, ToolError};
use protocol::exit as codes;
use protocol::ids::ConversationId;
use protocol::result::{AgentStatus, WaitResult};
use protocol::socket::WAIT;
use protocol::status::{Status, StopReason};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::cli::WaitArgs;
use crate::exit;
use crate::faces::client::{ANSWER_MS_MAX, CallError, Client};
use crate::faces::console::Console;
use crate::faces::look::ended::ended_view;
use crate::faces::look::overview::{Depth, live_view, meant, overview};
use crate::faces::runs::{RunDir, workspace_of};
use crate::faces::surroundings::Surroundings;
use crate::os::detached::wait_for_output;
use crate::render::agents::{RunState, RunView};
use crate::render::width::plain;
use crate::store::log::RunLock;

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
    let mut is_over = false;
    if !is_enough(args.any, &groups) {
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

/// Whether what is known without waiting answers the wait. A live run that is waited for as a whole
/// may have more agents than it has told of by now.
fn is_enough(any: bool, groups: &[Group]) -> bool {
    let mut agents = groups.iter().flat_map(|group| &group.agents);
    let may_grow = groups
        .iter()
        .any(|group| group.is_live && group.scope == Scope::Run);
    match any {
        true if agents.clone().next().is_none() => !may_grow,
        true => agents.any(|agent| agent.status.is_end()),
        false => !may_grow && agents.all(|agent| agent.status.is_end()),
    }
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
    console.show(&text, args.json)?;
    if timed_out {
        return Ok(codes::DEADLINE);
    }
    // One that is still there when the wait is over all the same can't be ended, or its leader says
    // nothing of it any more; neither is success.
    let counted = if args.any {
        ended
    } else {
        agents.iter().collect()
    };
    let ends: Vec<_> = counted
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
    scope: Scope,
    agents: Vec<Watched>,
}

/// What of a run is waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Scope {
    /// The agents that are named.
    Agents,
    /// All that it has and will have, and its leader.
    Run,
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
                    scope: Scope::Agents,
                    agents: live.map(Watched::of).collect(),
                });
            }
        }
        groups.retain(|group| !group.agents.is_empty());
        return Ok(groups);
    }
    for word in &args.agents {
        if let Some(view) = run_named(start, word).await? {
            groups.push(Group {
                run: RunDir::of(&workspace_of(start), &view.conversation),
                is_live: view.state == RunState::Live,
                scope: Scope::Run,
                agents: view.agents.iter().map(Watched::of).collect(),
            });
            continue;
        }
        let meant = meant(start, word).await?;
        let agent = Watched::of(&meant.agent);
        let same = |group: &&mut Group| group.run == meant.run && group.scope == Scope::Agents;
        match groups.iter_mut().find(same) {
            Some(group) => group.agents.push(agent),
            None => groups.push(Group {
                run: meant.run,
                is_live: meant.is_live,
                scope: Scope::Agents,
                agents: vec![agent],
            }),
        }
    }
    Ok(groups)
}

/// The run that a whole conversation's id names; none when the word names an agent.
async fn run_named(start: &Path, word: &str) -> Result<Option<RunView>, ToolError> {
    let Ok(conversation) = word.trim().parse::<ConversationId>() else {
        return Ok(None);
    };
    let mut views = overview(start, Depth::All).await?;
    let at = views
        .iter()
        .position(|view| view.conversation == conversation);
    match at {
        Some(at) => Ok(Some(views.swap_remove(at))),
        None => Err(ToolError::new(
            ErrorCode::UnknownAgent,
            format!("no run `{conversation}` in this workspace"),
        )
        .hint("`leader ps --all` lists the runs there are; `-C DIR` looks elsewhere")),
    }
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
    let answer = match (Client::connect(&group.run.path), group.scope) {
        (Ok(client), Scope::Run) => {
            let limit = timeout_seconds.map(|seconds| Duration::from_secs(seconds.into()));
            match within(limit, client.closed()).await {
                Some(()) => Err(CallError::Ended),
                None => return Ok(still_there(group).await),
            }
        }
        (Ok(mut client), Scope::Agents) => {
            let names: Vec<&str> = group.agents.iter().map(|agent| &*agent.task_id).collect();
            let mut params = json!({"agents": names, "mode": if any { "any" } else { "all" }});
            if let Some(seconds) = timeout_seconds {
                params["timeout_seconds"] = json!(seconds);
            }
            client.call_patiently(WAIT, params).await
        }
        (Err(error), _) => Err(CallError::Broken(error)),
    };
    match answer {
        Ok(answer) => read_answer(answer),
        // A leader that has ended has ended its agents; its log tells how.
        Err(CallError::Ended | CallError::Broken(_)) => of_log(group).await,
        Err(error) => Err(error.to_tool_error()),
    }
}

/// The outcome within a time, if one is given; none when it is over.
async fn within<T>(limit: Option<Duration>, work: impl Future<Output = T>) -> Option<T> {
    match limit {
        Some(limit) => tokio::time::timeout(limit, work).await.ok(),
        None => Some(work.await),
    }
}

/// A run that goes on when the time is over: where its agents stand now.
async fn still_there(group: Group) -> Waited {
    let agents = match live_view(&group.run).await {
        Some(view) => view.agents.iter().map(Watched::of).collect(),
        None => group.agents,
    };
    Waited {
        timed_out: true,
        agents,
    }
}

/// How the agents of a run ended whose leader is gone. The kernel closes the connection of a
/// leader that was killed a moment before it lets go of its lock, so that the lock is what is
/// waited for; a leader that hangs between the two is told as one that can't be asked.
async fn of_log(group: Group) -> Result<Waited, ToolError> {
    let dir = group.run.path.clone();
    let freed = tokio::task::spawn_blocking(move || RunLock::wait_until_free(&dir));
    let limit = Duration::from_millis(ANSWER_MS_MAX);
    if tokio::time::timeout(limit, freed).await.is_err() {
        return Err(CallError::Late.to_tool_error());
    }
    if group.scope == Scope::Run {
        // Who waits for a run reads what it has printed next.
        let dir = group.run.path.clone();
        let printed = tokio::task::spawn_blocking(move || wait_for_output(&dir));
        drop(tokio::time::timeout(limit, printed).await);
    }
    let wanted = |agent: &Watched| match group.scope {
        Scope::Run => true,
        Scope::Agents => group
            .agents
            .iter()
            .any(|named| named.task_id == agent.task_id),
    };
    Ok(Waited {
        timed_out: false,
        agents: ended_view(&group.run)
            .iter()
            .flat_map(|view| &view.agents)
            .map(Watched::of)
            .filter(wanted)
            .collect(),
    })
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

    // Accident: who waited for a run at a moment when its first agent had ended and its second was
    // not yet there was told that all had ended well.
    #[test]
    fn a_live_run_is_waited_for_though_all_its_agents_so_far_have_ended() {
        let enough = |any, is_live, scope, agents: &[Watched]| {
            let run = RunDir::of(
                Path::new("/w"),
                &"conv_0199d3c2-5a10-7000-8000-000000000001".parse().unwrap(),
            );
            let group = Group {
                run,
                is_live,
                scope,
                agents: agents.to_vec(),
            };
            is_enough(any, &[group])
        };
        let done = [agent(1, Status::Completed, None)];
        let both = [done[0].clone(), agent(2, Status::Running, None)];
        for (any, is_live, scope, agents, wanted) in [
            (false, true, Scope::Run, &done[..], false),
            (false, false, Scope::Run, &done, true),
            (false, true, Scope::Agents, &done, true),
            (false, true, Scope::Agents, &both, false),
            (false, true, Scope::Run, &[], false),
            (true, true, Scope::Run, &[], false),
            (true, true, Scope::Run, &both, true),
            (true, true, Scope::Agents, &both[1..], false),
        ] {
            let told = enough(any, is_live, scope, agents);
            assert_eq!(told, wanted, "{any} {is_live} {scope:?} {agents:?}");
        }
        assert!(is_enough(true, &[]) && is_enough(false, &[]));
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
