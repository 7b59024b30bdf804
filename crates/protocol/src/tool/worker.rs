//! Tools that an agent has for its own work.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::error::{ErrorCode, ToolError};
use crate::limits;
use crate::tool::{Params, ToolDef, schema_of};

pub use super::need::{Need, need_of, useful_tools};
pub use super::web::{ExtractWebpageParams, PagePart, WebSearchParams};

/// Every tool of this version, in the order in which models see them.
pub const WORKER_TOOLS: &[ToolDef] = &[
    ToolDef {
        name: READ_FILE,
        read_only: true,
        schema: schema_of::<ReadFileParams>,
    },
    ToolDef {
        name: WRITE_FILE,
        read_only: false,
        schema: schema_of::<WriteFileParams>,
    },
    ToolDef {
        name: EDIT_FILE,
        read_only: false,
        schema: schema_of::<EditFileParams>,
    },
    ToolDef {
        name: SEARCH_WORKSPACE,
        read_only: true,
        schema: schema_of::<SearchWorkspaceParams>,
    },
    ToolDef {
        name: RUN_COMMAND,
        read_only: false,
        schema: schema_of::<RunCommandParams>,
    },
    ToolDef {
        name: CHECK_BACKGROUND,
        read_only: true,
        schema: schema_of::<CheckBackgroundParams>,
    },
    ToolDef {
        name: STOP_BACKGROUND,
        read_only: false,
        schema: schema_of::<StopBackgroundParams>,
    },
    ToolDef {
        name: READ_MEDIAFILE,
        read_only: true,
        schema: schema_of::<ReadMediafileParams>,
    },
    ToolDef {
        name: WEB_SEARCH,
        read_only: true,
        schema: schema_of::<WebSearchParams>,
    },
    ToolDef {
        name: EXTRACT_WEBPAGE,
        read_only: true,
        schema: schema_of::<ExtractWebpageParams>,
    },
    ToolDef {
        name: READ_SKILL,
        read_only: true,
        schema: schema_of::<ReadSkillParams>,
    },
    ToolDef {
        name: FINISH_TASK,
        read_only: false,
        schema: schema_of::<FinishTaskParams>,
    },
];

/// Reads a file with line numbers.
pub const READ_FILE: &str = "read_file";
/// Writes or appends to a file.
pub const WRITE_FILE: &str = "write_file";
/// Replaces texts in a file, all or nothing.
pub const EDIT_FILE: &str = "edit_file";
/// Finds text in files, or files by name.
pub const SEARCH_WORKSPACE: &str = "search_workspace";
/// Runs a shell command.
pub const RUN_COMMAND: &str = "run_command";
/// Looks at background commands.
pub const CHECK_BACKGROUND: &str = "check_background";
/// Ends a background command.
pub const STOP_BACKGROUND: &str = "stop_background";
/// Shows an image.
pub const READ_MEDIAFILE: &str = "read_mediafile";
/// Searches the web.
pub const WEB_SEARCH: &str = "web_search";
/// Reads a page of the web.
pub const EXTRACT_WEBPAGE: &str = "extract_webpage";
/// Reads a skill.
pub const READ_SKILL: &str = "read_skill";
/// Reports the end of the task.
pub const FINISH_TASK: &str = "finish_task";

pub(super) fn out_of_range(name: &str, rule: &str) -> ToolError {
    ToolError::new(
        ErrorCode::InvalidParameters,
        format!("`{name}` must be {rule}"),
    )
}

/// Parameters of [`READ_FILE`].
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
pub struct ReadFileParams {
    /// File to read, relative to the workspace.
    pub path: String,
    /// First line to show, from 1.
    #[serde(default)]
    #[schemars(range(min = 1))]
    pub start_line: Option<i64>,
    /// Last line to show.
    #[serde(default)]
    #[schemars(range(min = 1))]
    pub end_line: Option<i64>,
    /// Most characters to show.
    #[serde(default)]
    #[schemars(range(min = 1))]
    pub max_chars: Option<i64>,
}

impl Params for ReadFileParams {
    fn check(&self) -> Result<(), ToolError> {
        for (name, value) in [
            ("start_line", self.start_line),
            ("end_line", self.end_line),
            ("max_chars", self.max_chars),
        ] {
            if value.is_some_and(|value| value < 1) {
                return Err(out_of_range(name, "1 or more"));
            }
        }
        match (self.start_line, self.end_line) {
            (Some(start), Some(end)) if end < start => {
                Err(out_of_range("end_line", "`start_line` or more"))
            }
            _ => Ok(()),
        }
    }
}

/// Parameters of [`WRITE_FILE`].
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
pub struct WriteFileParams {
    /// File to write.
    pub file_path: String,
    /// The whole new content, or what to append.
    pub content: String,
    /// Append instead of replacing.
    #[serde(default)]
    pub append: Option<bool>,
}

impl Params for WriteFileParams {}

/// Parameters of [`EDIT_FILE`].
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
pub struct EditFileParams {
    /// File to change.
    pub file_path: String,
    /// Made in order, all or none.
    pub replacements: Vec<Replacement>,
}

/// One replacement of [`EditFileParams`].
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
pub struct Replacement {
    /// Text to find, exactly as in the file; must occur once.
    pub old_string: String,
    /// Text to put there.
    pub new_string: String,
    /// Replace every occurrence.
    #[serde(default)]
    pub replace_all: Option<bool>,
}

impl Params for EditFileParams {
    fn check(&self) -> Result<(), ToolError> {
        if self.replacements.is_empty() {
            return Err(out_of_range(
                "replacements",
                "a list of at least one replacement",
            ));
        }
        for replacement in &self.replacements {
            if replacement.old_string.is_empty() {
                return Err(out_of_range(
                    "old_string",
                    "a text of at least one character",
                ));
            }
            if replacement.old_string == replacement.new_string {
                return Err(out_of_range("new_string", "different from `old_string`"));
            }
        }
        Ok(())
    }
}

/// What [`SEARCH_WORKSPACE`] looks at.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub enum SearchKind {
    /// Lines of files.
    #[default]
    Content,
    /// Names of files.
    Files,
}

/// Parameters of [`SEARCH_WORKSPACE`].
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
pub struct SearchWorkspaceParams {
    /// Text to find; in names for kind `files`.
    pub query: String,
    /// `content` (default) or `files`.
    #[serde(default)]
    #[schemars(with = "Option<String>", extend("enum" = ["content", "files"]))]
    pub kind: Option<SearchKind>,
    /// Only files that match, such as `src/**/*.rs`.
    #[serde(default)]
    pub glob: Option<String>,
    /// Take the query as a regular expression.
    #[serde(default)]
    pub regex: Option<bool>,
    /// Most matches to show.
    #[serde(default)]
    #[schemars(range(min = 1, max = 1000))]
    pub max_results: Option<i64>,
}

impl Params for SearchWorkspaceParams {
    fn check(&self) -> Result<(), ToolError> {
        if self.query.is_empty() {
            return Err(out_of_range("query", "a text of at least one character"));
        }
        match self.max_results {
            Some(n) if !(1..=1000).contains(&n) => Err(out_of_range("max_results", "1 to 1000")),
            _ => Ok(()),
        }
    }
}

/// Parameters of [`RUN_COMMAND`].
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
pub struct RunCommandParams {
    /// Command for the shell.
    pub command: String,
    /// Seconds until it is killed, default 120.
    #[serde(default)]
    #[schemars(range(min = 1, max = 600))]
    pub timeout_seconds: Option<i64>,
    /// Where to run it, relative to the workspace.
    #[serde(default)]
    pub working_dir: Option<String>,
    /// Return at once.
    #[serde(default)]
    pub run_in_background: Option<bool>,
}

impl Params for RunCommandParams {
    fn check(&self) -> Result<(), ToolError> {
        if self.command.trim().is_empty() {
            return Err(out_of_range("command", "a command"));
        }
        let most = i64::from(limits::COMMAND_SECONDS_MAX);
        match self.timeout_seconds {
            Some(n) if !(1..=most).contains(&n) => {
                Err(out_of_range("timeout_seconds", &format!("1 to {most}")))
            }
            _ => Ok(()),
        }
    }
}

/// Parameters of [`CHECK_BACKGROUND`].
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
pub struct CheckBackgroundParams {
    /// Default: all.
    #[serde(default)]
    pub command_id: Option<String>,
}

impl Params for CheckBackgroundParams {}

/// Parameters of [`STOP_BACKGROUND`].
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
pub struct StopBackgroundParams {
    /// Which one.
    pub command_id: String,
}

impl Params for StopBackgroundParams {}

/// Parameters of [`READ_MEDIAFILE`].
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
pub struct ReadMediafileParams {
    /// Image to see.
    pub path: String,
}

impl Params for ReadMediafileParams {}

/// Parameters of [`READ_SKILL`].
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
pub struct ReadSkillParams {
    /// The skill's name.
    pub name: String,
    /// A file of its folder; its SKILL.md if left out.
    #[serde(default)]
    pub file: Option<String>,
}

impl Params for ReadSkillParams {}

/// Parameters of [`FINISH_TASK`].
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
pub struct FinishTaskParams {
    /// Whether the task is done.
    pub success: bool,
    /// What was done and delivered, 50 to 200 characters.
    pub summary: String,
}

impl Params for FinishTaskParams {
    fn check(&self) -> Result<(), ToolError> {
        let most = limits::REPORT_CHARS_MAX;
        if self.summary.chars().count() > most {
            return Err(out_of_range(
                "summary",
                &format!("at most {most} characters"),
            ));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tool::parse_params;
    use serde_json::json;

    #[test]
    fn ranges_hold_at_the_limit_and_not_past_it() {
        let run = |n: i64| {
            parse_params::<RunCommandParams>(json!({"command": "true", "timeout_seconds": n}))
        };
        assert!(run(1).is_ok() && run(600).is_ok());
        assert!(run(0).is_err() && run(601).is_err());
        let finish = |n: usize| {
            parse_params::<FinishTaskParams>(json!({"success": true, "summary": "好".repeat(n)}))
        };
        assert!(finish(4000).is_ok());
        assert!(finish(4001).is_err());
    }

    #[test]
    fn a_model_is_told_the_default_that_is_in_force() {
        let schema = serde_json::to_value(schemars::schema_for!(RunCommandParams)).unwrap();
        let told = &schema["properties"]["timeout_seconds"];
        let default = limits::COMMAND_SECONDS_DEFAULT;
        assert_eq!(
            told["description"],
            format!("Seconds until it is killed, default {default}.")
        );
        assert_eq!(told["maximum"], limits::COMMAND_SECONDS_MAX);
    }

    #[test]
    fn an_edit_that_can_change_nothing_is_refused() {
        let edit = |old: &str, new: &str| {
            parse_params::<EditFileParams>(
                json!({"file_path": "f", "replacements": [{"old_string": old, "new_string": new}]}),
            )
        };
        assert!(edit("a", "b").is_ok());
        assert!(edit("", "b").is_err());
        assert!(edit("a", "a").is_err());
        assert!(
            parse_params::<EditFileParams>(json!({"file_path": "f", "replacements": []})).is_err()
        );
    }
}
