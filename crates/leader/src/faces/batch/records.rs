//! The records of a batch's items, and how each thing that happens changes them.

use protocol::error::{ErrorCode, ToolError};
use protocol::manifest::{ItemStatus, ManifestFile, ManifestItem, SkipReason};
use protocol::result::{AgentResult, StartedResult};

use crate::core::batch::{Beginning, Item, Skipped};

/// The record of an item for which nothing has happened in this run.
pub fn pending(item: &Item, beginning: &Beginning) -> ManifestItem {
    let summary = item.create.summary.as_deref().unwrap_or_default();
    ManifestItem {
        attempts: beginning.attempts,
        ..ManifestItem::pending(&item.id, &item.sha256, item.needs.clone(), summary)
    }
}

/// An agent has been created for it.
pub fn accept(record: &mut ManifestItem, started: &StartedResult) {
    record.agent_id = Some(started.agent_id);
    record.task_id = Some(started.task_id.clone());
    record.attempts += 1;
    record.status = ItemStatus::Accepted;
    record.deliverables_dir = Some(started.deliverables_dir.clone());
    record.warnings.clone_from(&started.warnings);
}

/// Its agent has ended.
pub fn end(record: &mut ManifestItem, result: &AgentResult, files: Vec<ManifestFile>, at: String) {
    record.agent_id = Some(result.agent_id);
    record.task_id = Some(result.task_id.clone());
    record.status = ItemStatus::of_agent(result.status);
    record.stop_reason = result.stop_reason.map(|reason| reason.as_str().to_owned());
    record.success = result.success;
    record.error.clone_from(&result.error);
    record.result_summary.clone_from(&result.result_summary);
    record.deliverables_dir = Some(result.deliverables_dir.clone());
    record.files = files;
    record.files_count = result.deliverables_count;
    record.stats = Some(result.stats);
    record.warnings.clone_from(&result.warnings);
    record.ended_at = Some(at);
}

/// No agent could be created for it.
pub fn refuse(record: &mut ManifestItem, error: ToolError, at: String) {
    record.status = ItemStatus::Refused;
    record.stop_reason = None;
    record.error = Some(error);
    record.ended_at = Some(at);
}

/// Nothing is known of its agent's end: the driver has broken.
pub fn lose(record: &mut ManifestItem, error: ToolError, at: String) {
    record.status = ItemStatus::Failed;
    record.error = Some(error);
    record.ended_at = Some(at);
}

/// It will not run.
pub fn skip(records: &mut [ManifestItem], skipped: Skipped, at: String) {
    let why = match (skipped.reason, skipped.cause.map(|cause| &records[cause])) {
        (SkipReason::DependencyFailed, Some(cause)) => {
            format!("it needs `{}`, which {}", cause.id, how(cause))
        }
        (SkipReason::FailFast, Some(cause)) => {
            format!(
                "`{}` {}, and the batch stops at the first bad end",
                cause.id,
                how(cause)
            )
        }
        (SkipReason::DependencyFailed | SkipReason::FailFast, None) => {
            "another item did not succeed".to_owned()
        }
        (SkipReason::LeaderStopped, _) => "the batch was stopped before".to_owned(),
    };
    let record = &mut records[skipped.item];
    record.status = ItemStatus::Skipped;
    record.stop_reason = Some(skipped.reason.as_str().to_owned());
    record.error = Some(ToolError::new(
        ErrorCode::Cancelled,
        format!("not run: {why}"),
    ));
    record.ended_at = Some(at);
}

fn how(record: &ManifestItem) -> String {
    let word = match record.status {
        ItemStatus::Pending | ItemStatus::Accepted => "has not ended",
        ItemStatus::Completed => "was completed",
        ItemStatus::Failed => "failed",
        ItemStatus::TimedOut => "timed out",
        ItemStatus::Terminated => "was terminated",
        ItemStatus::Interrupted => "was interrupted",
        ItemStatus::Unkillable => "could not be ended",
        ItemStatus::Refused => "was refused",
        ItemStatus::Skipped => "was skipped",
    };
    match &record.stop_reason {
        Some(reason) => format!("{word} ({reason})"),
        None => word.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::render::result::sample_result;

    #[test]
    fn a_skipped_item_says_why_it_was_not_run() {
        let record = |id: &str| ManifestItem::pending(id, "", Vec::new(), "s");
        let mut records = vec![record("a"), record("b"), record("c"), record("d")];
        end(
            &mut records[0],
            &AgentResult {
                success: false,
                status: protocol::status::Status::Failed,
                stop_reason: Some(protocol::status::StopReason::NoFinish),
                ..sample_result()
            },
            Vec::new(),
            "t".to_owned(),
        );
        let skipped = |item, reason, cause| Skipped {
            item,
            reason,
            cause,
        };
        for (at, reason, cause, words) in [
            (
                1,
                SkipReason::DependencyFailed,
                Some(0),
                "not run: it needs `a`, which failed (no_finish)",
            ),
            (
                2,
                SkipReason::DependencyFailed,
                Some(1),
                "not run: it needs `b`, which was skipped (dependency_failed)",
            ),
            (
                3,
                SkipReason::FailFast,
                Some(0),
                "not run: `a` failed (no_finish), and the batch stops at the first bad end",
            ),
        ] {
            skip(&mut records, skipped(at, reason, cause), "t".to_owned());
            let record = &records[at];
            assert_eq!(record.status, ItemStatus::Skipped);
            assert_eq!(record.stop_reason.as_deref(), Some(reason.as_str()));
            assert_eq!(record.error.as_ref().unwrap().message, words);
        }
    }
}
