//! What a caller is told of where an agent stands and how it ended.

use super::prompts::Prompts;
use crate::limits;
use crate::result::cut_middle;
use crate::stats::Stats;
use crate::status::{Status, StopReason};

/// What stands in the notice of an agent's end.
#[derive(Debug, Clone, Copy)]
pub struct Notice<'a> {
    /// How it ended.
    pub status: Status,
    /// Its name.
    pub display_name: &'a str,
    /// What it was to do, in a few words.
    pub summary: &'a str,
    /// Its counts.
    pub stats: &'a Stats,
    /// Relative to the workspace.
    pub deliverables_dir: &'a str,
    /// Its report, or its last text; may be empty.
    pub result_summary: &'a str,
    /// Why it ended, when not by a success report.
    pub stop_reason: Option<StopReason>,
    /// More about the reason, such as an exit code; empty where there is nothing to say.
    pub detail: &'a str,
    /// Names of the files it left, relative to its deliverables dir.
    pub files: &'a [String],
    /// How many files it left in all; `files` may be cut.
    pub files_count: u64,
}

impl Prompts {
    /// The notice for a caller that is working: a system message after a tool's result.
    pub fn notice_system(&self, notice: &Notice<'_>) -> String {
        self.notice(
            notice,
            "notices/system_completed.md",
            "notices/system_ended.md",
        )
    }

    /// The notice for a caller that is idle: a user message that starts its next turn.
    pub fn notice_user(&self, notice: &Notice<'_>) -> String {
        self.notice(notice, "notices/user_completed.md", "notices/user_ended.md")
    }

    fn notice(&self, notice: &Notice<'_>, completed: &str, ended: &str) -> String {
        let file = match notice.status {
            Status::Completed => completed,
            Status::Created
            | Status::Queued
            | Status::Starting
            | Status::Running
            | Status::Waiting
            | Status::Idle
            | Status::Stopping
            | Status::Failed
            | Status::TimedOut
            | Status::Terminated
            | Status::Interrupted => ended,
        };
        let stats = notice.stats;
        let report = if notice.result_summary.trim().is_empty() {
            self.no_report()
        } else {
            cut_middle(notice.result_summary, limits::NOTICE_REPORT_BYTES_MAX, "")
        };
        self.file(
            file,
            &[
                ("display_name", notice.display_name),
                ("summary", notice.summary),
                ("outcome", &self.outcome(notice.status)),
                ("runtime_seconds", &stats.runtime_seconds.to_string()),
                ("files_read", &stats.files_read.to_string()),
                ("searches", &stats.searches.to_string()),
                ("web_pages", &stats.web_pages.to_string()),
                ("commands", &stats.commands.to_string()),
                ("reason", &self.reason(notice.stop_reason, notice.detail)),
                ("deliverables_dir", notice.deliverables_dir),
                ("files", &self.file_names(notice.files, notice.files_count)),
                ("result_summary", &report),
            ],
        )
    }

    /// The `message` of a result: `子智能体1 已完成任务`, `… 已启动，正在后台运行`,
    /// `… 已被终止`, and the like for every status.
    pub fn result_message(&self, status: Status, display_name: &str) -> String {
        self.phrase(
            "result_message",
            &[
                ("display_name", display_name),
                ("outcome", &self.outcome(status)),
            ],
        )
    }

    /// Why an agent ended, in a few words, with the detail where there is one.
    pub fn reason(&self, stop_reason: Option<StopReason>, detail: &str) -> String {
        let reason = match stop_reason {
            Some(reason) => self.phrase(&format!("reason_{reason}"), &[]),
            None => self.phrase("reason_unknown", &[]),
        };
        if detail.is_empty() {
            return reason;
        }
        self.phrase(
            "reason_with_detail",
            &[("reason", &reason), ("detail", detail)],
        )
    }

    fn outcome(&self, status: Status) -> String {
        self.phrase(&format!("outcome_{status}"), &[])
    }

    /// Names up to [`limits::RESULT_NAMES_BYTES_MAX`], then the count of all.
    fn file_names(&self, files: &[String], count: u64) -> String {
        if files.is_empty() && count == 0 {
            return self.phrase("no_files", &[]);
        }
        let mut listed: Vec<&str> = Vec::new();
        let mut bytes = 0;
        for name in files {
            bytes += name.len() + 2;
            if bytes > limits::RESULT_NAMES_BYTES_MAX {
                break;
            }
            listed.push(name);
        }
        let more = (listed.len() as u64) < count || listed.len() < files.len();
        let all = count.max(files.len() as u64).to_string();
        let rest = more.then(|| self.phrase("more_files", &[("count", &all)]));
        listed
            .into_iter()
            .map(str::to_owned)
            .chain(rest)
            .collect::<Vec<_>>()
            .join(", ")
    }
}
