//! `leader resume N`: lets an agent go on whose run has ended or whose leader died.

use protocol::error::{ErrorCode, ToolError};

use crate::cli::ResumeArgs;
use crate::core::again::runs_to_take_up;
use crate::core::fold::{FoldedAgent, FoldedRun};
use crate::driver::ResumeRequest;
use crate::faces::console::Console;
use crate::faces::look::overview::{dirs_around, meant};
use crate::faces::run::command::{Opening, see_through};
use crate::faces::run::output::Output;
use crate::faces::surroundings::{Surroundings, flags};
use crate::render::width::plain;
use crate::store::log::read;

/// Starts a new worker on the agent's journal and prints what it delivered.
///
/// # Errors
/// When no agent or several are meant, it still runs, it has completed, another run has taken it
/// up, or the machine is not fit.
pub async fn resume(
    args: &ResumeArgs,
    surroundings: &Surroundings,
    console: &mut Console<'_>,
) -> Result<u8, ToolError> {
    let meant = meant(&surroundings.workspace, &args.agent).await?;
    if meant.is_live {
        let name = plain(&meant.agent.display_name);
        return Err(ToolError::new(
            ErrorCode::AlreadyEnded,
            format!(
                "{name} belongs to a run that goes on: it is {}",
                meant.agent.status
            ),
        )
        .hint(
            "wait for the end of that run (`leader wait`), or end the agent with `leader kill`",
        ));
    }
    let runs = all_runs(surroundings)?;
    let agents: Vec<&FoldedAgent> = runs.iter().flat_map(|run| &run.agents).collect();
    let earlier = runs_to_take_up(&agents, &meant.agent.task_id)?;
    let order = agents
        .iter()
        .find(|agent| agent.tag.task_id == meant.agent.task_id)
        .map(|agent| ResumeRequest {
            job: agent.job.clone(),
            task: agent.task.clone(),
            earlier,
            timeout_seconds: args.timeout_seconds,
            model: args.model.clone(),
            run_in_background: false,
        })
        .filter(|order| !order.task.is_empty());
    let order = order.ok_or_else(|| {
        ToolError::new(
            ErrorCode::NotFound,
            format!(
                "the log of {} does not hold the task of {}",
                meant.run.conversation, meant.agent.task_id
            ),
        )
        .hint("run the task again: `leader run --task-file FILE`")
    })?;
    let settings = surroundings.settings(flags(None, None), console)?;
    let opening = Opening {
        surroundings,
        settings,
        worker_bin: args.worker_bin.clone(),
        output: Output::of(args.json, args.stream_json),
    };
    see_through(opening, console, move |handle| async move {
        handle.resume(order).await
    })
    .await
}

/// Every run of the workspace as its log tells it, newest first. A log that can't be read tells
/// nothing; `leader ps` says so.
///
/// # Errors
/// When the folder of the runs can't be read.
pub fn all_runs(surroundings: &Surroundings) -> Result<Vec<FoldedRun>, ToolError> {
    let dirs = dirs_around(&surroundings.workspace)?;
    let logs = dirs.iter().filter_map(|dir| read(&dir.path).ok());
    Ok(logs.map(|log| log.run).collect())
}
