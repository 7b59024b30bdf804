//! The manifest of a batch: one record for each item, true at every moment, also after a kill.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::error::ToolError;
use crate::ids::{AgentId, ConversationId, TaskId};
use crate::stats::Stats;
use crate::status::{Status, StopReason, words};

/// The `format` number of manifests that this version writes.
pub const MANIFEST_FORMAT: u32 = 1;

words!(
    /// How an item of a batch stands.
    ItemStatus {
        /// Nothing has been done for it yet.
        Pending = "pending",
        /// An agent has been created for it, and had not ended when this was written.
        Accepted = "accepted",
        /// Its agent ended with a success report.
        Completed = "completed",
        /// Its agent ended without one.
        Failed = "failed",
        /// Its agent was stopped at its deadline.
        TimedOut = "timed_out",
        /// Its agent was stopped because someone asked for it.
        Terminated = "terminated",
        /// The leader died while its agent ran.
        Interrupted = "interrupted",
        /// Its agent was killed, and processes of it are still there.
        Unkillable = "unkillable",
        /// No agent could be created for it.
        Refused = "refused",
        /// It was not run: what it needs did not succeed, or the batch was stopped before.
        Skipped = "skipped",
    }
);

impl ItemStatus {
    /// The word for how an item's agent ended, or stands when it can't be ended.
    pub fn of_agent(status: Status) -> ItemStatus {
        match status {
            Status::Completed => ItemStatus::Completed,
            Status::Failed => ItemStatus::Failed,
            Status::TimedOut => ItemStatus::TimedOut,
            Status::Terminated => ItemStatus::Terminated,
            Status::Interrupted => ItemStatus::Interrupted,
            Status::Stopping => ItemStatus::Unkillable,
            Status::Created
            | Status::Queued
            | Status::Starting
            | Status::Running
            | Status::Waiting
            | Status::Idle => ItemStatus::Accepted,
        }
    }

    /// Whether nothing more will come of the item in this run.
    pub fn is_settled(self) -> bool {
        match self {
            ItemStatus::Pending | ItemStatus::Accepted => false,
            ItemStatus::Completed
            | ItemStatus::Failed
            | ItemStatus::TimedOut
            | ItemStatus::Terminated
            | ItemStatus::Interrupted
            | ItemStatus::Unkillable
            | ItemStatus::Refused
            | ItemStatus::Skipped => true,
        }
    }
}

words!(
    /// Why an item was not run.
    SkipReason {
        /// An item that it needs did not succeed.
        DependencyFailed = "dependency_failed",
        /// Another item ended badly, and the batch stops at the first bad end.
        FailFast = "fail_fast",
        /// The leader was told to stop.
        LeaderStopped = "leader_stopped",
    }
);

/// A file that an item delivered.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ManifestFile {
    /// Relative to the deliverables dir.
    pub path: String,
    /// Its size; null where it is not known.
    pub bytes: Option<u64>,
    /// SHA-256 of its content at the item's end, in hexadecimal; null where there is none.
    pub sha256: Option<String>,
    /// Why there is none: `link`, `gone`, `unreadable`, `changed`, `too_large`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub skipped: Option<String>,
}

/// What is known of one item.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ManifestItem {
    /// Its id in the batch file.
    pub id: String,
    /// SHA-256 of its line (and of its task file), by which a changed line is told.
    pub line_sha256: String,
    /// What it needs, by id.
    #[serde(default)]
    pub needs: Vec<String>,
    /// Its agent's number, once it has one.
    pub agent_id: Option<AgentId>,
    /// Its last run, once it has one.
    pub task_id: Option<TaskId>,
    /// Runs that were begun for it, the last one included.
    pub attempts: u32,
    /// How it stands.
    pub status: ItemStatus,
    /// Why, when not by a success report: a stop reason, or why it was skipped.
    pub stop_reason: Option<String>,
    /// Whether it delivered what it was asked for, by its agent's own report.
    pub success: bool,
    /// What went wrong, when something did.
    pub error: Option<ToolError>,
    /// What it was to do, in a few words.
    pub summary: String,
    /// Its agent's report, or its last text.
    pub result_summary: String,
    /// Relative to the workspace, once it has one.
    pub deliverables_dir: Option<String>,
    /// What it delivered, at most 1 000 files.
    pub files: Vec<ManifestFile>,
    /// All files, given when some are left out of `files`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub files_count: Option<u64>,
    /// Counts, once it has ended.
    pub stats: Option<Stats>,
    /// What is odd about it.
    #[serde(default)]
    pub warnings: Vec<String>,
    /// When it was settled, RFC 3339, UTC; null before.
    pub ended_at: Option<String>,
}

impl ManifestItem {
    /// An item for which nothing has been done yet.
    pub fn pending(id: &str, line_sha256: &str, needs: Vec<String>, summary: &str) -> Self {
        ManifestItem {
            id: id.to_owned(),
            line_sha256: line_sha256.to_owned(),
            needs,
            agent_id: None,
            task_id: None,
            attempts: 0,
            status: ItemStatus::Pending,
            stop_reason: None,
            success: false,
            error: None,
            summary: summary.to_owned(),
            result_summary: String::new(),
            deliverables_dir: None,
            files: Vec::new(),
            files_count: None,
            stats: None,
            warnings: Vec::new(),
            ended_at: None,
        }
    }

    /// Its stop reason as one of an agent's; none for a reason that only items have.
    pub fn agent_reason(&self) -> Option<StopReason> {
        let word = self.stop_reason.as_deref()?;
        StopReason::ALL
            .iter()
            .copied()
            .find(|reason| reason.as_str() == word)
    }
}

/// A whole manifest.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Manifest {
    /// Version of this shape.
    pub format: u32,
    /// The conversation of the last run of the batch.
    pub conversation: ConversationId,
    /// Those of the runs before it, oldest first.
    #[serde(default)]
    pub earlier_conversations: Vec<ConversationId>,
    /// When the first run began, RFC 3339, UTC.
    pub started_at: String,
    /// When the last run ended; null while it goes on, or when it was cut off.
    pub ended_at: Option<String>,
    /// Whether every item succeeded; null before the end.
    pub success: Option<bool>,
    /// The exit code of the last run; null before its end.
    pub exit_code: Option<u8>,
    /// One record for each item, in the order of the batch file.
    pub items: Vec<ManifestItem>,
    /// Fields of a newer version, kept as they are.
    #[serde(flatten)]
    pub other: Map<String, Value>,
}

impl Manifest {
    /// Every conversation of the batch, oldest first.
    pub fn conversations(&self) -> impl Iterator<Item = &ConversationId> {
        self.earlier_conversations
            .iter()
            .chain(std::iter::once(&self.conversation))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A manifest as the first version wrote it; it must be read for good.
    const OLD: &str = r#"{"format":1,"conversation":"conv_00000002","earlier_conversations":["conv_00000001"],"started_at":"2026-11-30T12:00:00Z","ended_at":"2026-11-30T12:01:00Z","success":false,"exit_code":1,"items":[{"id":"a","line_sha256":"00","needs":[],"agent_id":1,"task_id":"sub_00000001","attempts":2,"status":"completed","stop_reason":null,"success":true,"error":null,"summary":"s","result_summary":"done","deliverables_dir":"sub_agent_results/agent_1","files":[{"path":"a.md","bytes":3,"sha256":"ff"},{"path":"l","bytes":null,"sha256":null,"skipped":"link"}],"stats":{"runtime_seconds":1,"files_read":0,"searches":0,"web_pages":0,"commands":0,"files_written":1,"turns":2,"token_usage":{"prompt":1,"completion":1,"total":2}},"warnings":[],"ended_at":"2026-11-30T12:00:30Z"},{"id":"b","line_sha256":"01","needs":["a"],"agent_id":null,"task_id":null,"attempts":0,"status":"skipped","stop_reason":"dependency_failed","success":false,"error":null,"summary":"t","result_summary":"","deliverables_dir":null,"files":[],"stats":null,"warnings":[],"ended_at":"2026-11-30T12:01:00Z"}],"later":{"field":1}}"#;

    #[test]
    fn an_old_manifest_is_read_and_written_as_it_was() {
        let manifest: Manifest = serde_json::from_str(OLD).unwrap();
        assert_eq!(serde_json::to_string(&manifest).unwrap(), OLD);
        assert_eq!(
            manifest.items[1].agent_reason(),
            Some(StopReason::DependencyFailed)
        );
        let all: Vec<&str> = manifest
            .conversations()
            .map(ConversationId::as_str)
            .collect();
        assert_eq!(all, ["conv_00000001", "conv_00000002"]);
    }

    #[test]
    fn every_end_of_an_agent_is_a_settled_item() {
        for status in Status::ALL {
            let item = ItemStatus::of_agent(*status);
            let settled = status.is_end() || *status == Status::Stopping;
            assert_eq!(item.is_settled(), settled, "{status}");
        }
    }
}
