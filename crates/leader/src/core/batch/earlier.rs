//! What earlier runs of a batch left to do. The event logs are the truth; the manifest stands in
//! where a log is gone, and for what no log holds.

use std::collections::{BTreeSet, HashMap};

use protocol::error::{ErrorCode, ToolError};
use protocol::ids::{ConversationId, TaskId};
use protocol::manifest::{ItemStatus, Manifest, ManifestItem};
use protocol::status::{Status, StopReason};

use crate::core::again::successor;
use crate::core::batch::file::Item;
use crate::core::fold::FoldedAgent;
use crate::core::lifecycle::End;

/// Ids that one refusal names.
const IDS_SHOWN_MAX: usize = 10;

/// Where the record of a settled item comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Begin {
    /// It is settled, and the manifest has its record.
    KeepRecord,
    /// It is settled, and only the log tells of it: the leader died before it wrote the record.
    KeepEnd(TaskId),
    /// It goes on where this run was cut off.
    Again(TaskId),
    /// It begins from the beginning; in its own directory, where it has one already.
    Anew {
        /// The directory.
        reuse: Option<String>,
    },
}

/// How one item begins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Beginning {
    /// How.
    pub begin: Begin,
    /// Runs of it so far.
    pub attempts: u32,
    /// Whether its line is another than the one that it ran with.
    pub changed: bool,
}

/// What is known of earlier runs.
#[derive(Debug, Clone, Copy)]
pub struct Known<'a> {
    /// The manifest.
    pub manifest: &'a Manifest,
    /// All agents of the workspace, those of older runs first.
    pub agents: &'a [&'a FoldedAgent],
    /// Conversations whose leader lives.
    pub live: &'a BTreeSet<ConversationId>,
}

/// Decides for each item.
///
/// The rule: an item that was completed is never run again. One that was cut off by the end of its
/// leader goes on in its own directory. One that came to an end of its own otherwise keeps it,
/// unless `retry_failed`, which lets it go on too. One for which nothing ran is new, as is one whose
/// line has changed since it ran without success; that one uses its own directory again.
///
/// # Errors
/// When a completed item's line has changed, an item that has run is not in the file any more, or
/// an agent of it runs at this moment.
pub fn beginnings(
    items: &[Item],
    known: Known<'_>,
    retry_failed: bool,
) -> Result<Vec<Beginning>, ToolError> {
    let of_batch: BTreeSet<&ConversationId> = known.manifest.conversations().collect();
    let mut runs: HashMap<&str, Vec<&FoldedAgent>> = HashMap::new();
    for agent in known.agents {
        let ours = agent.job.conversation.as_ref();
        if let Some(tag) = &agent.job.item
            && ours.is_some_and(|conversation| of_batch.contains(conversation))
        {
            runs.entry(&tag.id).or_default().push(agent);
        }
    }
    let records: HashMap<&str, &ManifestItem> = known
        .manifest
        .items
        .iter()
        .map(|record| (record.id.as_str(), record))
        .collect();
    refuse_removed(items, &records, &runs)?;
    let mut changed = Vec::new();
    let mut begun = Vec::with_capacity(items.len());
    for item in items {
        let agents = runs.get(item.id.as_str()).map_or(&[][..], Vec::as_slice);
        let record = records.get(item.id.as_str()).copied();
        let last = agents.last().map(|last| last_of(known.agents, last));
        if let Some(agent) = last {
            refuse_live(agent, known.live)?;
        }
        let beginning = match last {
            Some(agent) => of_agent(item, agent, record, agents.len(), retry_failed),
            None => of_record(item, record, retry_failed),
        };
        if beginning.changed && is_done(last, record) {
            changed.push(item.id.as_str());
        }
        begun.push(beginning);
    }
    match changed.is_empty() {
        true => Ok(begun),
        false => Err(ToolError::new(
            ErrorCode::InvalidParameters,
            format!(
                "lines of items that have been completed have changed: {}",
                listed(&changed)
            ),
        )
        .hint(
            "put the lines back as they were, or give the changed ones a new `id`: what is \
             completed is not run again",
        )),
    }
}

/// The agent or whoever took it up, in this batch or by hand.
fn last_of<'a>(agents: &[&'a FoldedAgent], agent: &'a FoldedAgent) -> &'a FoldedAgent {
    let mut at = agent;
    // Each step leads to a later run, so that it ends; a log that was tampered with must end too.
    for _ in 0..agents.len() {
        match successor(agents, &at.tag.task_id) {
            Some(next) => at = next,
            None => break,
        }
    }
    at
}

fn is_done(last: Option<&FoldedAgent>, record: Option<&ManifestItem>) -> bool {
    match last {
        Some(agent) => agent.end() == End::Completed,
        None => record.is_some_and(|record| record.status == ItemStatus::Completed),
    }
}

fn of_agent(
    item: &Item,
    agent: &FoldedAgent,
    record: Option<&ManifestItem>,
    runs: usize,
    retry_failed: bool,
) -> Beginning {
    let task_id = &agent.tag.task_id;
    let ran_with = agent.job.item.as_ref().map(|tag| tag.sha256.as_str());
    let changed = ran_with.is_some_and(|sha256| sha256 != item.sha256);
    let end = agent.end();
    let settled = match end {
        End::Completed => true,
        _ => !(was_cut_off(end.status(), end.reason()) || retry_failed),
    };
    let begin = if changed && end != End::Completed {
        Begin::Anew {
            reuse: Some(agent.job.deliverables_dir.display().to_string()),
        }
    } else if !settled {
        Begin::Again(task_id.clone())
    } else if record.is_some_and(|record| {
        record.status.is_settled() && record.task_id.as_ref() == Some(task_id)
    }) {
        Begin::KeepRecord
    } else {
        Begin::KeepEnd(task_id.clone())
    };
    Beginning {
        begin,
        attempts: u32::try_from(runs).unwrap_or(u32::MAX),
        changed,
    }
}

/// An item of which no log tells: it was never run, or its log is kept no more.
fn of_record(item: &Item, record: Option<&ManifestItem>, retry_failed: bool) -> Beginning {
    let Some(record) = record.filter(|record| record.attempts > 0) else {
        return Beginning {
            begin: Begin::Anew { reuse: None },
            attempts: 0,
            changed: false,
        };
    };
    let changed = record.line_sha256 != item.sha256;
    let keeps = match record.status {
        ItemStatus::Completed => true,
        ItemStatus::Failed
        | ItemStatus::TimedOut
        | ItemStatus::Terminated
        | ItemStatus::Unkillable => {
            let status = match record.status {
                ItemStatus::Terminated => Status::Terminated,
                _ => Status::Failed,
            };
            !(changed || retry_failed || was_cut_off(status, record.agent_reason()))
        }
        ItemStatus::Pending
        | ItemStatus::Accepted
        | ItemStatus::Interrupted
        | ItemStatus::Refused
        | ItemStatus::Skipped => false,
    };
    Beginning {
        begin: match keeps {
            true => Begin::KeepRecord,
            false => Begin::Anew {
                reuse: record.deliverables_dir.clone(),
            },
        },
        attempts: record.attempts,
        changed,
    }
}

/// Whether an end was the leader's rather than the agent's own.
fn was_cut_off(status: Status, reason: Option<StopReason>) -> bool {
    match (status, reason) {
        (Status::Interrupted, _) => true,
        (
            Status::Terminated,
            Some(
                StopReason::LeaderStopped | StopReason::ConversationClosed | StopReason::LeaderDied,
            ),
        ) => true,
        (_, Some(StopReason::LeaderDied)) => true,
        (_, _) => false,
    }
}

fn refuse_live(agent: &FoldedAgent, live: &BTreeSet<ConversationId>) -> Result<(), ToolError> {
    let Some(conversation) = agent
        .job
        .conversation
        .as_ref()
        .filter(|id| live.contains(*id))
    else {
        return Ok(());
    };
    Err(ToolError::new(
        ErrorCode::AlreadyEnded,
        format!(
            "{} works in `{conversation}`, whose leader runs",
            agent.tag.display_name
        ),
    )
    .hint(format!("wait for its end: `leader wait {conversation}`")))
}

fn refuse_removed(
    items: &[Item],
    records: &HashMap<&str, &ManifestItem>,
    runs: &HashMap<&str, Vec<&FoldedAgent>>,
) -> Result<(), ToolError> {
    let there: BTreeSet<&str> = items.iter().map(|item| item.id.as_str()).collect();
    let ran = records
        .values()
        .filter(|record| record.attempts > 0)
        .map(|record| record.id.as_str())
        .chain(runs.keys().copied());
    let gone: Vec<&str> = ran
        .filter(|id| !there.contains(id))
        .collect::<BTreeSet<_>>()
        .into_iter()
        .collect();
    if gone.is_empty() {
        return Ok(());
    }
    Err(ToolError::new(
        ErrorCode::InvalidParameters,
        format!(
            "items that have run are not in the batch file any more: {}",
            listed(&gone)
        ),
    )
    .hint("put their lines back, or begin a new batch with another manifest"))
}

fn listed(ids: &[&str]) -> String {
    let mut text = ids
        .iter()
        .take(IDS_SHOWN_MAX)
        .map(|id| format!("`{id}`"))
        .collect::<Vec<_>>()
        .join(", ");
    if ids.len() > IDS_SHOWN_MAX {
        text.push_str(&format!(" and {} more", ids.len() - IDS_SHOWN_MAX));
    }
    text
}

#[cfg(test)]
#[path = "earlier_tests.rs"]
mod tests;
