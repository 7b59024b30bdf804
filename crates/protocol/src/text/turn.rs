//! What an agent is told in the course of its run, and what its caller is told of what it does.

use super::prompts::Prompts;
use crate::limits;
use crate::status::StopReason;

/// What an agent is doing, for `last_action`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ActionKind {
    /// Its process starts.
    Starting,
    /// It waits for its model.
    Thinking,
    /// A model request failed and is sent again.
    Retrying,
    /// Its conversation is being shortened.
    Compacting,
    /// Reads a file.
    Reading,
    /// Writes a file.
    Writing,
    /// Edits a file.
    Editing,
    /// Searches for text.
    SearchingText,
    /// Searches for names.
    SearchingFiles,
    /// Searches the web.
    SearchingWeb,
    /// Runs a command.
    Running,
    /// Hands in its report.
    Reporting,
    /// Calls any other tool.
    Calling,
}

impl ActionKind {
    /// Every value.
    pub const ALL: &'static [ActionKind] = &[
        ActionKind::Starting,
        ActionKind::Thinking,
        ActionKind::Retrying,
        ActionKind::Compacting,
        ActionKind::Reading,
        ActionKind::Writing,
        ActionKind::Editing,
        ActionKind::SearchingText,
        ActionKind::SearchingFiles,
        ActionKind::SearchingWeb,
        ActionKind::Running,
        ActionKind::Reporting,
        ActionKind::Calling,
    ];

    fn key(self) -> &'static str {
        match self {
            ActionKind::Starting => "action_starting",
            ActionKind::Thinking => "action_thinking",
            ActionKind::Retrying => "action_retrying",
            ActionKind::Compacting => "action_compacting",
            ActionKind::Reading => "action_reading",
            ActionKind::Writing => "action_writing",
            ActionKind::Editing => "action_editing",
            ActionKind::SearchingText => "action_searching_text",
            ActionKind::SearchingFiles => "action_searching_files",
            ActionKind::SearchingWeb => "action_searching_web",
            ActionKind::Running => "action_running",
            ActionKind::Reporting => "action_reporting",
            ActionKind::Calling => "action_calling",
        }
    }
}

impl Prompts {
    /// The user message for a model that stopped without its report.
    pub fn reminder(&self) -> String {
        self.file("reminder.md", &[])
    }

    /// The user message when most of the deadline has passed.
    pub fn time_warning(&self, seconds_left: u64) -> String {
        self.file(
            "time_warning.md",
            &[("seconds_left", &seconds_left.to_string())],
        )
    }

    /// The user message when the leader asks an agent to come to an end.
    pub fn wrap_up(&self, seconds_left: u64) -> String {
        self.phrase("wrap_up", &[("seconds_left", &seconds_left.to_string())])
    }

    /// The user message after the same call with the same result `count` times in a row.
    pub fn loop_warning(&self, tool: &str, count: u32) -> String {
        let count = count.to_string();
        self.phrase(
            "loop_warning",
            &[("tool", &single_line(tool)), ("count", &count)],
        )
    }

    /// The user message after an answer that was cut at the output limit; nothing of it was run.
    pub fn output_cut(&self) -> String {
        self.phrase("output_cut", &[])
    }

    /// The user message after an answer that the server could not read; nothing of it came.
    pub fn output_unreadable(&self) -> String {
        self.phrase("output_unreadable", &[])
    }

    /// The user message when most of an agent's budget of tokens is used.
    pub fn token_warning(&self, tokens_left: u64) -> String {
        self.phrase(
            "token_warning",
            &[("tokens_left", &tokens_left.to_string())],
        )
    }

    /// The user message when an agent's budget of tokens is spent, before its last answer.
    pub fn tokens_spent(&self) -> String {
        self.phrase("tokens_spent", &[])
    }

    /// Stands for an old result that is in a file now.
    pub fn old_result_pointer(&self, path: &str, chars: usize) -> String {
        let chars = chars.to_string();
        self.phrase(
            "old_result_pointer",
            &[("path", &single_line(path)), ("chars", &chars)],
        )
    }

    /// The instructions of a model that is to summarise what an agent has done.
    pub fn summary_instructions(&self) -> String {
        self.phrase("summary_instructions", &[])
    }

    /// The user message that stands in the place of what was summarised: who the agent is, and
    /// what it has done.
    pub fn summary_message(&self, display_name: &str, summary: &str) -> String {
        self.phrase(
            "summary_message",
            &[("display_name", display_name), ("summary", summary)],
        )
    }

    /// The result of a call of a tool that does not exist.
    pub fn unknown_tool(&self, tool: &str, granted: &[String]) -> String {
        self.refused_tool("unknown_tool", tool, granted)
    }

    /// The result of a call of a tool that exists but is not granted to the agent.
    pub fn tool_not_granted(&self, tool: &str, granted: &[String]) -> String {
        self.refused_tool("tool_not_granted", tool, granted)
    }

    fn refused_tool(&self, key: &str, tool: &str, granted: &[String]) -> String {
        let tool = cut_chars(&single_line(tool), limits::LAST_ACTION_CHARS_MAX);
        self.phrase(key, &[("tool", &tool), ("tools", &granted.join(", "))])
    }

    /// The message of the result of a report.
    pub fn finish_message(&self) -> String {
        self.phrase("finish_message", &[])
    }

    /// The result of a second report: the first one counts.
    pub fn finish_ignored(&self) -> String {
        self.phrase("finish_ignored", &[])
    }

    /// The result of a call that comes after the report in the same turn; it was not run.
    pub fn cancelled_after_finish(&self) -> String {
        self.phrase("cancelled_after_finish", &[])
    }

    /// The result of a call that the end of the run cut off, so that every call has one.
    pub fn call_interrupted(&self, reason: StopReason) -> String {
        self.phrase(
            "call_interrupted",
            &[("reason", &self.reason(Some(reason), ""))],
        )
    }

    /// What is odd about the length of a report that is accepted all the same.
    pub fn report_length_warning(&self, report: &str) -> Option<String> {
        let chars = report.chars().count();
        let wanted = limits::REPORT_CHARS_WANTED;
        (!wanted.contains(&chars)).then(|| {
            self.phrase(
                "report_length_warning",
                &[
                    ("chars", &chars.to_string()),
                    ("wanted_min", &wanted.start().to_string()),
                    ("wanted_max", &wanted.end().to_string()),
                ],
            )
        })
    }

    /// The warning of a success report that left no file.
    pub fn deliverables_empty_warning(&self, deliverables_dir: &str) -> String {
        self.phrase(
            "deliverables_empty_warning",
            &[("deliverables_dir", deliverables_dir)],
        )
    }

    /// What stands between head and tail of a result that was too long for the conversation.
    pub fn large_result_pointer(&self, path: &str, chars: usize) -> String {
        self.phrase(
            "large_result_pointer",
            &[("path", path), ("chars", &chars.to_string())],
        )
    }

    /// What is said in the result of a call whose image follows.
    pub fn media_follows(&self) -> String {
        self.phrase("media_follows", &[])
    }

    /// What stands before the images that calls of a turn asked for.
    pub fn media_shown(&self, files: &[&str]) -> String {
        self.phrase("media_shown", &[("files", &files.join(", "))])
    }

    /// What stands for a report that is not there.
    pub fn no_report(&self) -> String {
        self.phrase("no_report", &[])
    }

    /// What an agent is doing, on one line of at most [`limits::LAST_ACTION_CHARS_MAX`]
    /// characters. `subject` is the path, the text sought, the command or the tool's name; kinds
    /// without one ignore it.
    pub fn action(&self, kind: ActionKind, subject: &str) -> String {
        let line = self.phrase(kind.key(), &[("subject", &single_line(subject))]);
        cut_chars(&line, limits::LAST_ACTION_CHARS_MAX)
    }
}

/// A text on one line: runs of blanks, line ends and control characters become one space.
pub(super) fn single_line(text: &str) -> String {
    text.split(|c: char| c.is_whitespace() || c.is_control())
        .filter(|word| !word.is_empty())
        .collect::<Vec<_>>()
        .join(" ")
}

/// At most `limit` characters, the last one an ellipsis when something was cut.
pub(super) fn cut_chars(text: &str, limit: usize) -> String {
    if text.chars().count() <= limit {
        return text.to_owned();
    }
    let head: String = text.chars().take(limit.saturating_sub(1)).collect();
    format!("{head}…")
}
