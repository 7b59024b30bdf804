//! Which run of an agent can go on, by what the logs of a workspace tell.

use protocol::error::{ErrorCode, ToolError};
use protocol::ids::TaskId;
use protocol::status::Status;

use crate::core::fold::FoldedAgent;

/// Runs of one agent that are followed back.
pub const EARLIER_RUNS_MAX: usize = 1_000;

/// All runs of the agent up to `task`, that one first, if it can go on.
///
/// # Errors
/// When there is no such run, it has completed, or another one has taken it up already.
pub fn runs_to_take_up(agents: &[&FoldedAgent], task: &TaskId) -> Result<Vec<TaskId>, ToolError> {
    let of = |wanted: &TaskId| agents.iter().find(|agent| agent.tag.task_id == *wanted);
    let agent = of(task).ok_or_else(|| {
        ToolError::new(
            ErrorCode::UnknownAgent,
            format!("no log of this workspace tells of {task}"),
        )
    })?;
    let name = &agent.tag.display_name;
    if let Some(next) = successor(agents, task) {
        return Err(ToolError::new(
            ErrorCode::AlreadyEnded,
            format!("{name} went on from there as {}", next.tag.task_id),
        )
        .hint(format!(
            "`leader status {}` shows it; once it has ended, that is the one to resume",
            next.tag.task_id
        )));
    }
    if agent.end().status() == Status::Completed {
        return Err(ToolError::new(
            ErrorCode::AlreadyEnded,
            format!("{name} has completed its task: there is nothing to go on with"),
        )
        .hint("give a further task to a new agent: `leader run TASK`"));
    }
    let mut runs = vec![task.clone()];
    let mut at = agent.job.resumes.as_ref();
    while let Some(before) = at
        && runs.len() < EARLIER_RUNS_MAX
        && !runs.contains(before)
    {
        runs.push(before.clone());
        at = of(before).and_then(|agent| agent.job.resumes.as_ref());
    }
    Ok(runs)
}

/// The run that took up another one.
pub fn successor<'a>(agents: &[&'a FoldedAgent], task: &TaskId) -> Option<&'a FoldedAgent> {
    agents
        .iter()
        .find(|agent| agent.job.resumes.as_ref() == Some(task))
        .copied()
}

/// Agents whose end nobody has been told, since their leader died, and which no run has taken up.
pub fn waiting_to_go_on<'a>(agents: &[&'a FoldedAgent]) -> Vec<&'a FoldedAgent> {
    agents
        .iter()
        .filter(|agent| {
            agent.end().status() == Status::Interrupted
                && !agent.told
                && agent.result.is_some()
                && successor(agents, &agent.tag.task_id).is_none()
        })
        .copied()
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::lifecycle::{End, State};
    use crate::core::record::AgentTag;
    use crate::core::test_kit::{job, task};
    use protocol::job::JobSpec;
    use protocol::status::StopReason;

    fn ended(number: u32, resumes: Option<u32>, end: End) -> FoldedAgent {
        let job = JobSpec {
            resumes: resumes.map(task),
            ..job(number)
        };
        FoldedAgent {
            tag: AgentTag::of(&job),
            task: "t".to_owned(),
            deliverables: "/w/out".into(),
            write_paths: Vec::new(),
            state: State::Ended(end),
            process: None,
            confinement: serde_json::Value::Null,
            report: None,
            result: None,
            told: false,
            job,
        }
    }

    #[test]
    fn only_the_last_run_of_an_agent_goes_on_unless_it_is_done() {
        let first = ended(1, None, End::Interrupted);
        let second = ended(2, Some(1), End::Interrupted);
        let done = ended(3, None, End::Completed);
        let failed = ended(4, None, End::Failed(StopReason::WorkerCrashed));
        let lost = ended(5, Some(77), End::TimedOut);
        let circle = ended(6, Some(6), End::Interrupted);
        let all = [&first, &second, &done, &failed, &lost, &circle];
        let runs = |number| runs_to_take_up(&all, &task(number)).map_err(|error| error.code);
        assert_eq!(runs(1), Err(ErrorCode::AlreadyEnded));
        assert_eq!(runs(2), Ok(vec![task(2), task(1)]));
        assert_eq!(runs(3), Err(ErrorCode::AlreadyEnded));
        assert_eq!(runs(4), Ok(vec![task(4)]));
        assert_eq!(runs(5), Ok(vec![task(5), task(77)]));
        assert_eq!(runs(6), Err(ErrorCode::AlreadyEnded));
        assert_eq!(runs(9), Err(ErrorCode::UnknownAgent));
    }
}
