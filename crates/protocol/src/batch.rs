//! One line of a batch file: what `leader run` takes as flags, under the names of the tool's
//! parameters, with an id and what the item needs.

use schemars::JsonSchema;
use serde::Deserialize;

use crate::error::{ErrorCode, ToolError};
use crate::limits;
use crate::status::ThinkingMode;
use crate::tool::Params;
use crate::tool::leader::{CreateSubAgentParams, person_agent_id};

/// A line of a batch file.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, JsonSchema)]
pub struct BatchLine {
    /// What the item is called; unique in the file, 1 to 64 characters.
    pub id: String,
    /// Ids of the items whose success it waits for.
    #[serde(default)]
    pub needs: Option<Vec<String>>,
    /// Goal, requirements, deliverables and scope; or else task_file.
    #[serde(default)]
    pub task: Option<String>,
    /// A file that holds the task, relative to the workspace.
    #[serde(default)]
    pub task_file: Option<String>,
    /// Number of the agent; default the next free one.
    #[serde(default)]
    #[schemars(range(min = 1))]
    pub agent_id: Option<i64>,
    /// Agent definition to use.
    #[serde(default)]
    pub role_id: Option<String>,
    /// What the agent is to do, in 10 to 30 characters; default the start of the task.
    #[serde(default)]
    pub summary: Option<String>,
    /// Where results go, relative to the workspace.
    #[serde(default)]
    pub deliverables_dir: Option<String>,
    /// Use a deliverables_dir that is not empty.
    #[serde(default)]
    pub reuse_deliverables_dir: Option<bool>,
    /// What else it may write, relative to the workspace.
    #[serde(default)]
    pub write_paths: Option<Vec<String>>,
    /// Its deadline in seconds.
    #[serde(default)]
    pub timeout_seconds: Option<i64>,
    /// Most answers of its model.
    #[serde(default)]
    #[schemars(range(min = 1))]
    pub max_turns: Option<i64>,
    /// `fast` or `thinking`.
    #[serde(default)]
    #[schemars(with = "Option<String>", extend("enum" = ["fast", "thinking"]))]
    pub thinking_mode: Option<ThinkingMode>,
    /// A configured model, URL#NAME or script:FILE.
    #[serde(default)]
    pub model_key: Option<String>,
    /// The same as model_key, as the flag is called.
    #[serde(default)]
    pub model: Option<String>,
}

fn invalid(message: impl Into<String>) -> ToolError {
    ToolError::new(ErrorCode::InvalidParameters, message)
}

impl Params for BatchLine {
    fn check(&self) -> Result<(), ToolError> {
        check_id(&self.id)?;
        let needs = self.needs.as_deref().unwrap_or_default();
        if needs.len() > limits::BATCH_NEEDS_MAX {
            return Err(invalid(format!(
                "`needs` has {} ids; the most is {}",
                needs.len(),
                limits::BATCH_NEEDS_MAX
            )));
        }
        match (&self.task, &self.task_file) {
            (Some(_), Some(_)) => return Err(invalid("`task` and `task_file` are both given")),
            (None, None) => return Err(invalid("missing parameter `task` (or `task_file`)")),
            (Some(_), None) | (None, Some(_)) => {}
        }
        if self.model.is_some() && self.model_key.is_some() {
            return Err(invalid("`model` and `model_key` are both given"));
        }
        self.agent_id.map(person_agent_id).transpose().map(drop)
    }
}

/// An id stands in lists and in messages, so it is one line of visible characters.
fn check_id(id: &str) -> Result<(), ToolError> {
    let count = id.chars().count();
    if !(1..=limits::BATCH_ID_CHARS_MAX).contains(&count) {
        return Err(invalid(format!(
            "`id` must have 1 to {} characters, not {count}",
            limits::BATCH_ID_CHARS_MAX
        )));
    }
    if id.chars().any(char::is_control) || id.trim() != id {
        return Err(invalid(
            "`id` must hold no control character and no space at its ends",
        ));
    }
    Ok(())
}

impl BatchLine {
    /// The create that the line stands for, with the text of its task. `summary` stands in where
    /// the line has none.
    ///
    /// # Errors
    /// When a parameter is out of its range.
    pub fn to_create(
        &self,
        task: String,
        summary: impl FnOnce(&str) -> String,
    ) -> Result<CreateSubAgentParams, ToolError> {
        let params = CreateSubAgentParams {
            agent_id: self.agent_id,
            role_id: self.role_id.clone(),
            summary: Some(self.summary.clone().unwrap_or_else(|| summary(&task))),
            task,
            deliverables_dir: self.deliverables_dir.clone(),
            reuse_deliverables_dir: self.reuse_deliverables_dir,
            write_paths: self.write_paths.clone(),
            run_in_background: Some(true),
            timeout_seconds: self.timeout_seconds,
            max_turns: self.max_turns,
            thinking_mode: self.thinking_mode,
            model_key: self.model_key.clone().or_else(|| self.model.clone()),
        };
        params.check_all_but_number()?;
        Ok(params)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tool::parse_params;
    use serde_json::json;

    #[test]
    fn a_line_has_an_id_one_task_and_fields_that_are_known() {
        for (line, wanted) in [
            (json!({"task": "t"}), "missing parameter `id`"),
            (
                json!({"id": "a"}),
                "missing parameter `task` (or `task_file`)",
            ),
            (
                json!({"id": "a", "task": "t", "task_file": "f"}),
                "`task` and `task_file` are both given",
            ),
            (
                json!({"id": "", "task": "t"}),
                "`id` must have 1 to 64 characters, not 0",
            ),
            (
                json!({"id": "a\nb", "task": "t"}),
                "`id` must hold no control character and no space at its ends",
            ),
            (
                json!({"id": "a", "task": "t", "agent_id": 0}),
                "`agent_id` must be 1 to 100000, not 0",
            ),
            (
                json!({"id": "a", "task": "t", "need": []}),
                "unknown parameter `need`",
            ),
            (
                json!({"id": "a", "task": "t", "model": "x", "model_key": "y"}),
                "`model` and `model_key` are both given",
            ),
            (
                json!({"id": "a", "task": "t", "needs": vec!["x"; 101]}),
                "`needs` has 101 ids; the most is 100",
            ),
        ] {
            let error = parse_params::<BatchLine>(line.clone()).unwrap_err();
            assert_eq!(error.message, wanted, "{line}");
        }
        let line: BatchLine = parse_params(
            json!({"id": "a", "task": "t", "agent_id": "150", "timeout_seconds": 5, "model": "m"}),
        )
        .unwrap();
        let create = line.to_create("t".to_owned(), str::to_owned).unwrap();
        assert_eq!(
            create,
            CreateSubAgentParams {
                agent_id: Some(150),
                summary: Some("t".to_owned()),
                task: "t".to_owned(),
                timeout_seconds: Some(5),
                model_key: Some("m".to_owned()),
                run_in_background: Some(true),
                ..CreateSubAgentParams::default()
            }
        );
        let empty = BatchLine::default().to_create(" ".to_owned(), str::to_owned);
        assert_eq!(empty.unwrap_err().message, "`task` must not be empty");
    }
}
