//! Carries one item out: its create, its end, and the digests of what it left.

use std::path::{Path, PathBuf};

use protocol::error::{ErrorCode, ToolError};
use protocol::manifest::ManifestFile;
use protocol::result::{AgentResult, StartedResult, WaitResult};
use protocol::tool::leader::{AgentRef, WaitMode};
use tokio::sync::mpsc;

use crate::driver::{CreateAnswer, CreateOrderRequest, Handle, Origin, ResumeRequest, WaitRequest};
use crate::store::digests::of_files;

/// What happens to an item, as the batch hears of it.
#[derive(Debug)]
pub enum News {
    /// Its agent was created; it runs or is queued.
    Accepted(Box<StartedResult>),
    /// No agent was created.
    Refused(ToolError),
    /// Its agent has ended, and its files have been read.
    Ended(Box<AgentResult>, Vec<ManifestFile>),
    /// The driver has broken; nothing is known of the end.
    Lost(ToolError),
}

/// How an item begins.
#[derive(Debug)]
pub enum Order {
    /// With a new agent.
    Anew(Box<CreateOrderRequest>),
    /// With the agent of an earlier run.
    Again(Box<ResumeRequest>),
}

/// Carries item number `item` out and tells of it. It ends with the item.
pub async fn carry(handle: Handle, item: usize, order: Order, news: mpsc::Sender<(usize, News)>) {
    let answer = match order {
        Order::Anew(order) => handle.create(*order).await,
        Order::Again(order) => handle.resume(*order).await,
    };
    // A batch that hears no more has ended.
    let tell = async |what: News| news.send((item, what)).await.ok();
    let result = match answer {
        Err(error) => {
            tell(News::Refused(error)).await;
            return;
        }
        Ok(CreateAnswer::Ended(result)) => Ok(result),
        Ok(CreateAnswer::Started(started)) => {
            let task_id = started.task_id.to_string();
            tell(News::Accepted(started)).await;
            end_of(&handle, task_id).await
        }
    };
    match result {
        Ok(result) => {
            let files = digests(handle.workspace(), &result).await;
            tell(News::Ended(result, files)).await;
        }
        Err(error) => {
            tell(News::Lost(error)).await;
        }
    }
}

/// How an agent ended, once it has.
///
/// # Errors
/// When the driver has broken.
pub async fn end_of(handle: &Handle, task_id: String) -> Result<Box<AgentResult>, ToolError> {
    let answer = handle
        .wait(WaitRequest {
            agents: vec![AgentRef::Name(task_id.clone())],
            mode: WaitMode::All,
            timeout_ms: None,
            origin: Origin::Person,
        })
        .await;
    if let Ok(error) = serde_json::from_value::<ToolError>(answer["error"].clone()) {
        return Err(error);
    }
    let internal = |why: String| ToolError::new(ErrorCode::Internal, why);
    let waited: WaitResult =
        serde_json::from_value(answer).map_err(|error| internal(error.to_string()))?;
    let ended = waited.agents.into_iter().next();
    ended
        .map(Box::new)
        .ok_or_else(|| internal(format!("a wait for {task_id} came back without it")))
}

/// Read beside the loop, for there may be much of it, and before anything that needs the item
/// begins, so that nobody has written there since.
async fn digests(workspace: &Path, result: &AgentResult) -> Vec<ManifestFile> {
    let workspace = workspace.to_path_buf();
    let dir = PathBuf::from(&result.deliverables_dir);
    let names = result.deliverables_files.clone();
    tokio::task::spawn_blocking(move || of_files(&workspace, &dir, &names))
        .await
        .unwrap_or_default()
}
