//! What earlier runs of a batch have left, gathered from its manifest and the event logs.

use std::collections::BTreeSet;
use std::path::Path;

use protocol::error::{ErrorCode, ToolError};
use protocol::ids::ConversationId;
use protocol::manifest::{Manifest, ManifestItem};

use crate::cli::RunArgs;
use crate::core::again::runs_to_take_up;
use crate::core::batch::earlier::Known;
use crate::core::batch::{Begin, Beginning, Item, beginnings};
use crate::core::fold::{FoldedAgent, FoldedRun};
use crate::driver::ResumeRequest;
use crate::faces::batch::input::Batch;
use crate::faces::batch::records;
use crate::faces::runs::run_dirs;
use crate::os::clock;
use crate::store::digests::{listing, of_files};
use crate::store::log::{RunLock, read};
use crate::store::manifest::ManifestFile;

/// How each item of this run begins.
#[derive(Debug)]
pub struct Outset {
    /// The rule's answer for each.
    pub beginnings: Vec<Beginning>,
    /// The record of each, as this run finds it.
    pub records: Vec<ManifestItem>,
    /// The order of each that goes on.
    pub again: Vec<Option<ResumeRequest>>,
    /// The manifest of the earlier runs, if this one goes on with one.
    pub manifest: Option<Manifest>,
}

impl Outset {
    /// Every item is new.
    pub fn fresh(batch: &Batch) -> Outset {
        let beginning = Beginning {
            begin: Begin::Anew { reuse: None },
            attempts: 0,
            changed: false,
        };
        Outset {
            records: batch
                .items
                .iter()
                .map(|item| records::pending(item, &beginning))
                .collect(),
            beginnings: vec![beginning; batch.items.len()],
            again: batch.items.iter().map(|_| None).collect(),
            manifest: None,
        }
    }
}

/// Refuses to begin anew over the manifest of a batch that was broken off.
///
/// # Errors
/// When there is such a manifest, or something that is none.
pub fn refuse_unfinished(file: &ManifestFile) -> Result<(), ToolError> {
    match file.read()? {
        Some(manifest) if manifest.ended_at.is_none() => Err(ToolError::new(
            ErrorCode::InvalidParameters,
            format!(
                "the manifest `{}` is of a batch that was broken off",
                file.shown()
            ),
        )
        .hint("go on with it: `--resume`; or remove it to begin from the beginning")),
        Some(_) | None => Ok(()),
    }
}

/// Decides how each item goes on. Runs whose leader died are closed before, so that every agent
/// has its end. Blocks for as long as the reading of logs and files takes.
///
/// # Errors
/// When there is no manifest, its batch runs at this moment, or the file has changed in a way that
/// can't be gone on with.
pub fn look_back(
    batch: &Batch,
    file: &ManifestFile,
    workspace: &Path,
    args: &RunArgs,
) -> Result<Outset, ToolError> {
    let manifest = file.read()?.ok_or_else(|| {
        ToolError::new(
            ErrorCode::NotFound,
            format!("there is no manifest `{}` to go on with", file.shown()),
        )
        .hint("check the path; leave `--resume` out for the first run of a batch")
    })?;
    let (runs, live) = all_runs(workspace)?;
    let agents: Vec<&FoldedAgent> = runs.iter().flat_map(|run| &run.agents).collect();
    let known = Known {
        manifest: &manifest,
        agents: &agents,
        live: &live,
    };
    let mut beginnings = beginnings(&batch.items, known, args.retry_failed)?;
    let mut records = Vec::with_capacity(beginnings.len());
    let mut again = Vec::with_capacity(beginnings.len());
    for (item, beginning) in batch.items.iter().zip(&mut beginnings) {
        let mut order = None;
        if let Begin::Again(task_id) = &beginning.begin {
            let agent = agents.iter().find(|agent| agent.tag.task_id == *task_id);
            order = agent.and_then(|agent| go_on(item, agent, &agents, args));
            if order.is_none() {
                // A log without the task's text is of an older version: the line has it.
                let dir = agent.map(|agent| agent.job.deliverables_dir.display().to_string());
                beginning.begin = Begin::Anew { reuse: dir };
            }
        }
        records.push(record_of(item, beginning, &manifest, &agents, workspace));
        again.push(order);
    }
    Ok(Outset {
        beginnings,
        records,
        again,
        manifest: Some(manifest),
    })
}

/// Every run as its log tells it, oldest first, and those whose leader lives.
fn all_runs(workspace: &Path) -> Result<(Vec<FoldedRun>, BTreeSet<ConversationId>), ToolError> {
    let mut dirs = run_dirs(workspace).map_err(|error| {
        ToolError::new(
            ErrorCode::PermissionDenied,
            format!("the runs of the workspace could not be read: {error}"),
        )
    })?;
    dirs.reverse();
    let live = dirs
        .iter()
        .filter(|dir| RunLock::is_held(&dir.path).unwrap_or(true))
        .map(|dir| dir.conversation.clone())
        .collect();
    let logs = dirs.iter().filter_map(|dir| read(&dir.path).ok());
    Ok((logs.map(|log| log.run).collect(), live))
}

fn go_on(
    item: &Item,
    agent: &FoldedAgent,
    agents: &[&FoldedAgent],
    args: &RunArgs,
) -> Option<ResumeRequest> {
    let earlier = runs_to_take_up(agents, &agent.tag.task_id).ok()?;
    (!agent.task.is_empty()).then(|| ResumeRequest {
        job: agent.job.clone(),
        task: agent.task.clone(),
        earlier,
        timeout_seconds: None,
        model: item.create.model_key.clone().or_else(|| args.model.clone()),
        run_in_background: true,
    })
}

fn record_of(
    item: &Item,
    beginning: &Beginning,
    manifest: &Manifest,
    agents: &[&FoldedAgent],
    workspace: &Path,
) -> ManifestItem {
    let pending = records::pending(item, beginning);
    match &beginning.begin {
        Begin::KeepRecord => {
            let kept = manifest.items.iter().find(|record| record.id == item.id);
            kept.cloned().unwrap_or(pending)
        }
        Begin::KeepEnd(task_id) => {
            let mut record = pending;
            let agent = agents.iter().find(|agent| agent.tag.task_id == *task_id);
            if let Some(result) = agent.and_then(|agent| agent.result.as_deref()) {
                // The log holds the result as a model would get it, with few names.
                let dir = Path::new(&result.deliverables_dir);
                let found = listing(workspace, dir);
                let files = of_files(workspace, dir, &found.files);
                records::end(&mut record, result, files, clock::timestamp());
                record.files_count = found.truncated.then_some(found.count);
            }
            record
        }
        Begin::Again(_) | Begin::Anew { .. } => pending,
    }
}
