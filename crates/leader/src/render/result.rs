//! How one agent ended, for people.

use protocol::error::ToolError;
use protocol::job::{AGENT_DIR, CONVERSATION_FILE, LOG_FILE};
use protocol::result::AgentResult;
use protocol::status::Status;

use crate::render::line::{counted, duration};
use crate::render::style::{Style, Tone};
use crate::render::width::{plain, plain_lines};

/// Names of delivered files that are shown; the rest is counted.
const FILES_SHOWN_MAX: usize = 20;

/// A refusal or failure on stderr: what, and what to try.
pub fn error_text(error: &ToolError, style: Style) -> String {
    let mut text = format!(
        "{} {}\n",
        style.paint(Tone::Bad, "error:"),
        plain_lines(&error.message)
    );
    if !error.hint.is_empty() {
        text.push_str(&format!("hint: {}\n", plain_lines(&error.hint)));
    }
    text
}

/// The end of a run: status, report, files, and where to look.
pub fn result_text(result: &AgentResult, style: Style) -> String {
    let mut text = head(result, style);
    if let Some(reason) = result.stop_reason {
        text.push_str(&format!("reason: {reason}\n"));
    }
    if let Some(error) = &result.error {
        text.push_str(&error_text(error, style));
    }
    let report = plain_lines(result.result_summary.trim());
    if !report.is_empty() {
        text.push('\n');
        for line in report.lines() {
            text.push_str(&format!("  {line}\n"));
        }
        text.push('\n');
    }
    text.push_str(&files(result));
    for warning in &result.warnings {
        text.push_str(&format!(
            "{} {}\n",
            style.paint(Tone::Odd, "warning:"),
            plain_lines(warning)
        ));
    }
    text.push_str(&pointers(result));
    text
}

fn head(result: &AgentResult, style: Style) -> String {
    let mut used = vec![
        duration(result.stats.runtime_seconds),
        counted(result.stats.turns, "turn"),
    ];
    if result.stats.token_usage.total > 0 {
        used.push(format!("{} tokens", result.stats.token_usage.total));
    }
    format!(
        "{} {}: {} ({})\n",
        style.paint(Tone::of(result.status), result.status.as_str()),
        plain(&result.display_name),
        plain(&result.summary),
        used.join(", ")
    )
}

fn files(result: &AgentResult) -> String {
    let count = result
        .deliverables_count
        .unwrap_or(result.deliverables_files.len() as u64);
    let dir = plain(&result.deliverables_dir);
    let partial = if result.partial_results {
        "partial "
    } else {
        ""
    };
    if count == 0 && result.deliverables_skipped.is_empty() {
        return format!("no {partial}files in {dir}\n");
    }
    let mut text = format!("{partial}files in {dir}:\n");
    for name in result.deliverables_files.iter().take(FILES_SHOWN_MAX) {
        text.push_str(&format!("  {}\n", plain(name)));
    }
    let shown = result.deliverables_files.len().min(FILES_SHOWN_MAX) as u64;
    if count > shown {
        text.push_str(&format!("  … and {} more\n", count - shown));
    }
    for skipped in result.deliverables_skipped.iter().take(FILES_SHOWN_MAX) {
        text.push_str(&format!(
            "  {} (skipped: {})\n",
            plain(&skipped.name),
            plain(&skipped.why)
        ));
    }
    text
}

fn pointers(result: &AgentResult) -> String {
    let dir = plain(&result.deliverables_dir);
    let mut text = format!("conversation: {dir}/{AGENT_DIR}/{CONVERSATION_FILE}\n");
    if result.status != Status::Completed {
        text.push_str(&format!("worker's log: {dir}/{AGENT_DIR}/{LOG_FILE}\n"));
    }
    text
}

#[cfg(test)]
pub(crate) fn sample_result() -> AgentResult {
    use protocol::ids::{AgentId, ConversationId, TaskId};
    use protocol::stats::{Stats, TokenUsage, Usage};

    AgentResult {
        success: true,
        agent_id: AgentId::FIRST,
        task_id: TaskId::new("sub_0190a6e0-0000-7000-8000-000000000001").unwrap(),
        role_id: None,
        display_name: "Sub-agent 1".to_owned(),
        status: Status::Completed,
        stop_reason: None,
        error: None,
        summary: "Write the API docs".to_owned(),
        message: "Sub-agent 1 has completed its task".to_owned(),
        deliverables_dir: "docs/api".to_owned(),
        deliverables_files: vec!["api.md".to_owned(), "endpoints.json".to_owned()],
        deliverables_skipped: Vec::new(),
        deliverables_truncated: false,
        deliverables_count: None,
        result_summary: "Documented 12 endpoints.\nNo gaps.".to_owned(),
        sub_conversation_id: ConversationId::new("conv_0190a6e0-0000-7000-8000-000000000002")
            .unwrap(),
        stats: Stats {
            runtime_seconds: 120,
            turns: 9,
            token_usage: TokenUsage {
                prompt: 1000,
                completion: 500,
                total: 1500,
                cached: 0,
            },
            ..Stats::default()
        },
        usage: Usage::default(),
        partial_results: false,
        warnings: Vec::new(),
        confinement: serde_json::json!({"rung": "pidns"}),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use protocol::error::ErrorCode;
    use protocol::result::SkippedFile;
    use protocol::status::StopReason;

    #[test]
    fn a_success_shows_report_files_and_where_to_look() {
        assert_eq!(
            result_text(&sample_result(), Style::Plain),
            "completed Sub-agent 1: Write the API docs (2m00s, 9 turns, 1500 tokens)\n\
             \n  Documented 12 endpoints.\n  No gaps.\n\n\
             files in docs/api:\n  api.md\n  endpoints.json\n\
             conversation: docs/api/.subagent/conversations.json\n"
        );
    }

    #[test]
    fn a_failure_shows_reason_hint_and_partial_files() {
        let result = AgentResult {
            success: false,
            status: Status::Failed,
            stop_reason: Some(StopReason::WorkerCrashed),
            error: Some(
                ToolError::new(ErrorCode::Internal, "the worker died of signal 9")
                    .hint("see its log"),
            ),
            deliverables_files: vec!["\x1b]0;x\x07.txt".to_owned()],
            deliverables_skipped: vec![SkippedFile {
                name: "p".to_owned(),
                why: "fifo".to_owned(),
            }],
            deliverables_count: Some(1_200),
            result_summary: String::new(),
            partial_results: true,
            warnings: vec!["odd".to_owned()],
            ..sample_result()
        };
        assert_eq!(
            result_text(&result, Style::Plain),
            "failed Sub-agent 1: Write the API docs (2m00s, 9 turns, 1500 tokens)\n\
             reason: worker_crashed\n\
             error: the worker died of signal 9\nhint: see its log\n\
             partial files in docs/api:\n  \u{FFFD}]0;x\u{FFFD}.txt\n  … and 1199 more\n  \
             p (skipped: fifo)\n\
             warning: odd\n\
             conversation: docs/api/.subagent/conversations.json\n\
             worker's log: docs/api/.subagent/worker.log\n"
        );
    }

    #[test]
    fn a_long_list_of_files_is_cut_and_counted() {
        let mut result = sample_result();
        result.deliverables_files = (0..FILES_SHOWN_MAX + 1)
            .map(|n| format!("f{n:02}"))
            .collect();
        let text = result_text(&result, Style::Plain);
        assert!(text.contains("  f19\n  … and 1 more\n"), "{text}");
        result.deliverables_files.clear();
        let text = result_text(&result, Style::Plain);
        assert!(text.contains("no files in docs/api\n"), "{text}");
    }
}
