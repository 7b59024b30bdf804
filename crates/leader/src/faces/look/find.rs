//! Which agent a person means, among all runs of a workspace.

use protocol::error::{ErrorCode, ToolError};
use protocol::ids::ConversationId;
use protocol::result::AgentStatus;
use protocol::tool::leader::AgentRef;

use crate::faces::target::Target;
use crate::render::agents::{RunState, RunView};

/// Agents that an answer lists when a reference fits several.
const LISTED_MAX: usize = 10;

/// An agent and the run that it belongs to.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Found<'a> {
    /// The run.
    pub run: &'a RunView,
    /// The agent.
    pub agent: &'a AgentStatus,
}

/// Finds the agent that is meant: a live one that fits, else one of the newest run in which one
/// fits. Runs are given newest first.
///
/// # Errors
/// `unknown_agent` when none fits, `ambiguous_agent_id` with a list when several do.
pub fn find<'a>(runs: &'a [RunView], target: &Target) -> Result<Found<'a>, ToolError> {
    let live = fitting(runs, target, |run| run.state == RunState::Live);
    if !live.is_empty() {
        return only(&live, target);
    }
    for run in runs {
        let here = fitting(std::slice::from_ref(run), target, |_| true);
        if !here.is_empty() {
            return only(&here, target);
        }
    }
    Err(unknown(runs, target))
}

fn fitting<'a>(
    runs: &'a [RunView],
    target: &Target,
    wanted: impl Fn(&RunView) -> bool,
) -> Vec<Found<'a>> {
    runs.iter()
        .filter(|run| wanted(run) && target.fits(&run.conversation))
        .flat_map(|run| run.agents.iter().map(move |agent| Found { run, agent }))
        .filter(|found| is_meant(found.agent, &target.agent_ref()))
        .collect()
}

fn is_meant(agent: &AgentStatus, wanted: &AgentRef) -> bool {
    match wanted {
        AgentRef::Number { agent_id, .. } => agent.agent_id == *agent_id,
        AgentRef::Name(name) => agent.display_name == *name || agent.task_id.as_str() == name,
    }
}

fn only<'a>(found: &[Found<'a>], target: &Target) -> Result<Found<'a>, ToolError> {
    if let [one] = found {
        return Ok(*one);
    }
    let list: Vec<String> = found
        .iter()
        .take(LISTED_MAX)
        .map(|found| {
            format!(
                "{} ({}, {})",
                found.agent.task_id, found.agent.display_name, found.run.conversation
            )
        })
        .collect();
    let more = match found.len().saturating_sub(LISTED_MAX) {
        0 => String::new(),
        more => format!(", and {more} more"),
    };
    Err(ToolError::new(
        ErrorCode::AmbiguousAgentId,
        format!(
            "`{}` fits {} agents: {}{more}",
            spelled(target),
            found.len(),
            list.join(", ")
        ),
    )
    .hint("name it by its task_id, or as CONVERSATION/number"))
}

fn unknown(runs: &[RunView], target: &Target) -> ToolError {
    let known: Vec<&ConversationId> = runs.iter().map(|run| &run.conversation).collect();
    let error = ToolError::new(
        ErrorCode::UnknownAgent,
        format!("no agent `{}` in this workspace", spelled(target)),
    );
    if known.is_empty() {
        error.hint("no agent has run here yet; `-C DIR` looks elsewhere")
    } else {
        error.hint("`leader ps` lists the agents there are; `leader ps --all` older ones too")
    }
}

fn spelled(target: &Target) -> String {
    match &target.conversation {
        Some(conversation) => format!("{conversation}/{}", target.agent),
        None => target.agent.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::render::line::sample_status;
    use protocol::ids::{AgentId, TaskId};

    fn agent(number: u32, run: u32, name: &str) -> AgentStatus {
        AgentStatus {
            agent_id: AgentId::new(number).unwrap(),
            task_id: TaskId::new(format!("sub_0190a6e0-{run}{number}")).unwrap(),
            display_name: name.to_owned(),
            ..sample_status()
        }
    }

    fn run(number: u32, state: RunState, agents: Vec<AgentStatus>) -> RunView {
        RunView {
            conversation: ConversationId::new(format!("conv_0190a6e0-{number}")).unwrap(),
            state,
            agents,
        }
    }

    fn found(runs: &[RunView], text: &str) -> Result<String, ErrorCode> {
        find(runs, &Target::parse(text))
            .map(|found| found.agent.task_id.to_string())
            .map_err(|error| error.code)
    }

    #[test]
    fn a_live_agent_goes_before_ended_ones_and_newer_runs_before_older() {
        let runs = [
            run(5, RunState::Ended, vec![agent(1, 5, "Sub-agent 1")]),
            run(4, RunState::Live, vec![agent(2, 4, "Sub-agent 2")]),
            run(
                3,
                RunState::Ended,
                vec![agent(1, 3, "Sub-agent 1"), agent(2, 3, "x")],
            ),
        ];
        assert_eq!(found(&runs, "1"), Ok("sub_0190a6e0-51".into()));
        assert_eq!(found(&runs, "2"), Ok("sub_0190a6e0-42".into()));
        assert_eq!(found(&runs, "0-3/2"), Ok("sub_0190a6e0-32".into()));
        assert_eq!(found(&runs, "x"), Ok("sub_0190a6e0-32".into()));
        assert_eq!(
            found(&runs, "sub_0190a6e0-31"),
            Ok("sub_0190a6e0-31".into())
        );
        assert_eq!(found(&runs, "7"), Err(ErrorCode::UnknownAgent));
        assert_eq!(found(&[], "1"), Err(ErrorCode::UnknownAgent));
    }

    #[test]
    fn two_live_agents_of_one_number_are_listed() {
        let runs = [
            run(5, RunState::Live, vec![agent(1, 5, "a")]),
            run(4, RunState::Live, vec![agent(1, 4, "b")]),
        ];
        let error = find(&runs, &Target::parse("1")).unwrap_err();
        assert_eq!(error.code, ErrorCode::AmbiguousAgentId);
        assert_eq!(
            error.message,
            "`1` fits 2 agents: sub_0190a6e0-51 (a, conv_0190a6e0-5), \
             sub_0190a6e0-41 (b, conv_0190a6e0-4)"
        );
        assert_eq!(found(&runs, "0-4/1"), Ok("sub_0190a6e0-41".into()));
    }
}
