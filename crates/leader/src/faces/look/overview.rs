//! All runs of a workspace, live ones asked over their sockets, ended ones read from their logs.

use std::path::{Path, PathBuf};

use protocol::error::{ErrorCode, ToolError};
use protocol::result::AgentStatus;
use protocol::socket::{PS, SOCKET_FILE};
use serde_json::json;

use crate::faces::client::Client;
use crate::faces::look::ended::ended_view;
use crate::faces::look::find::find;
use crate::faces::runs::{RunDir, run_dirs, workspace_of};
use crate::faces::target::Target;
use crate::render::agents::{RunState, RunView};
use crate::store::recover::{recover_all, recover_dying};

/// Ended runs that are shown unless all are wanted.
pub const RECENT_RUNS_MAX: usize = 10;

/// How far back a look goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Depth {
    /// Live runs and the [`RECENT_RUNS_MAX`] newest of the others.
    Recent,
    /// Every run that is kept.
    All,
}

/// The agent that a person means.
#[derive(Debug, Clone, PartialEq)]
pub struct Meant {
    /// The workspace of its run.
    pub workspace: PathBuf,
    /// The folder of its run.
    pub run: RunDir,
    /// Whether its leader runs.
    pub is_live: bool,
    /// The agent.
    pub agent: AgentStatus,
}

/// The runs of the workspace around `start`, newest first.
///
/// # Errors
/// When the folder of the runs can't be read.
pub async fn overview(start: &Path, depth: Depth) -> Result<Vec<RunView>, ToolError> {
    close_dead_runs(start).await;
    let dirs = dirs_around(start)?;
    let mut views = Vec::new();
    let mut ended = 0;
    for dir in &dirs {
        if let Some(view) = live_view(dir).await {
            views.push(view);
        } else if depth == Depth::All || ended < RECENT_RUNS_MAX {
            close_dying_run(start, dir).await;
            if let Some(view) = ended_view(dir) {
                ended += 1;
                views.push(view);
            }
        }
    }
    Ok(views)
}

/// Gives the agents of leaders that died their ends, so that what is shown is also what is
/// written down.
pub async fn close_dead_runs(start: &Path) {
    let workspace = workspace_of(start);
    let closing = tokio::task::spawn_blocking(move || recover_all(&workspace));
    if let Err(error) = closing.await {
        tracing::error!(%error, "runs of leaders that died could not be closed");
    }
}

/// Closes a run whose leader had the lock when the dead ones were closed, and does not answer now.
/// One without a socket has yet to make it, and is left alone.
async fn close_dying_run(start: &Path, dir: &RunDir) {
    if !dir.path.join(SOCKET_FILE).exists() {
        return;
    }
    let (workspace, conversation) = (workspace_of(start), dir.conversation.clone());
    let closing = tokio::task::spawn_blocking(move || recover_dying(&workspace, &conversation));
    match closing.await {
        Ok(Ok(_)) => {}
        Ok(Err(error)) => tracing::warn!(%error, "a run of a dying leader could not be closed"),
        Err(error) => tracing::error!(%error, "a run of a dying leader could not be closed"),
    }
}

/// The agent that `text` means, looked for in recent runs first.
///
/// # Errors
/// When none fits, several do, or runs can't be read.
pub async fn meant(start: &Path, text: &str) -> Result<Meant, ToolError> {
    let target = Target::parse(text);
    let recent = overview(start, Depth::Recent).await?;
    let views = match find(&recent, &target) {
        Err(error) if error.code == ErrorCode::UnknownAgent => overview(start, Depth::All).await?,
        Ok(_) | Err(_) => recent,
    };
    let found = find(&views, &target)?;
    let workspace = workspace_of(start);
    Ok(Meant {
        run: RunDir::of(&workspace, &found.run.conversation),
        workspace,
        is_live: found.run.state == RunState::Live,
        agent: found.agent.clone(),
    })
}

/// The folders of the runs around `start`, newest first.
///
/// # Errors
/// When the folder that holds them can't be read.
pub fn dirs_around(start: &Path) -> Result<Vec<RunDir>, ToolError> {
    let workspace = workspace_of(start);
    run_dirs(&workspace).map_err(|error| {
        ToolError::new(
            ErrorCode::PermissionDenied,
            format!(
                "the runs of `{}` could not be read: {error}",
                workspace.display()
            ),
        )
    })
}

/// What the leader of a run says of it; none when nobody listens.
pub async fn live_view(dir: &RunDir) -> Option<RunView> {
    let view = |state, agents| {
        Some(RunView {
            conversation: dir.conversation.clone(),
            state,
            agents,
        })
    };
    let mut client = Client::connect(&dir.path).ok()?;
    let answer = match client.call(PS, json!({})).await {
        Ok(answer) => answer,
        // It ended between the two: its log tells the rest.
        Err(
            crate::faces::client::CallError::Ended | crate::faces::client::CallError::Broken(_),
        ) => {
            return None;
        }
        Err(error) => return view(RunState::Silent(error.to_string()), Vec::new()),
    };
    match serde_json::from_value(answer["agents"].clone()) {
        Ok(agents) => view(RunState::Live, agents),
        Err(error) => view(
            RunState::Silent(format!("its leader is of another version: {error}")),
            Vec::new(),
        ),
    }
}
