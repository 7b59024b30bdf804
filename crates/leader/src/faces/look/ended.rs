//! What the log of a run tells, when no leader answers for it.

use protocol::result::{AgentResult, AgentStatus};
use protocol::stats::Stats;
use protocol::status::StopReason;
use serde_json::Value;

use crate::core::fold::FoldedAgent;
use crate::faces::runs::RunDir;
use crate::render::agents::{RunState, RunView};
use crate::store::log::{RunLock, read};

/// A run as its files tell it; none when they tell of no agent, as of one that is just beginning
/// or whose only task was refused.
pub fn ended_view(dir: &RunDir) -> Option<RunView> {
    let view = |state, agents| {
        Some(RunView {
            conversation: dir.conversation.clone(),
            state,
            agents,
        })
    };
    match RunLock::is_held(&dir.path) {
        Ok(true) => {
            let why = "its leader runs, but no control socket of it can be reached";
            return view(RunState::Silent(why.to_owned()), Vec::new());
        }
        Ok(false) => {}
        Err(error) => return view(RunState::Unreadable(error.to_string()), Vec::new()),
    }
    match read(&dir.path) {
        Ok(log) if log.run.agents.is_empty() => None,
        Ok(log) => {
            let agents = log.run.agents.iter().map(status_of).collect();
            view(RunState::Ended, agents)
        }
        Err(error) => view(RunState::Unreadable(error.to_string()), Vec::new()),
    }
}

/// How an agent stands in a run that has no leader any more.
fn status_of(agent: &FoldedAgent) -> AgentStatus {
    let end = agent.end();
    let result = agent.result.as_deref();
    let stats = result.map_or_else(Stats::default, |result| result.stats);
    let stats = match (&agent.report, result) {
        (Some(report), None) => report.stats,
        (_, _) => stats,
    };
    AgentStatus {
        agent_id: agent.tag.agent_id,
        role_id: agent.tag.role_id.clone(),
        task_id: agent.tag.task_id.clone(),
        display_name: agent.tag.display_name.clone(),
        summary: agent.job.summary.clone(),
        status: result.map_or(end.status(), |result| result.status),
        runtime_seconds: stats.runtime_seconds,
        files_read: stats.files_read,
        searches: stats.searches,
        web_pages: stats.web_pages,
        commands: stats.commands,
        last_action: String::new(),
        last_output: last_words(agent, result),
        token_usage: stats.token_usage,
        deadline_in_seconds: None,
        queue_position: None,
        deliverables_dir: agent.job.deliverables_dir.display().to_string(),
        stop_reason: stop_reason(agent, result),
        rung: rung(&agent.confinement),
        confinement: agent.confinement.clone(),
        unkillable: None,
    }
}

fn stop_reason(agent: &FoldedAgent, result: Option<&AgentResult>) -> Option<StopReason> {
    match result {
        Some(result) => result.stop_reason,
        None => agent.end().reason(),
    }
}

fn last_words(agent: &FoldedAgent, result: Option<&AgentResult>) -> String {
    match (result, &agent.report) {
        (Some(result), _) => result.result_summary.clone(),
        (None, Some(report)) => report.summary.clone(),
        (None, None) => String::new(),
    }
}

fn rung(confinement: &Value) -> Option<String> {
    confinement["rung"].as_str().map(str::to_owned)
}
