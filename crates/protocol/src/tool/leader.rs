//! Tools that create, watch and end agents; the lead, MCP clients and the socket have them.

use schemars::JsonSchema;
use serde::Deserialize;

use crate::error::{ErrorCode, ToolError};
use crate::ids::{AgentId, RoleId};
use crate::limits;
use crate::status::ThinkingMode;
use crate::tool::{Params, ToolDef, schema_of};

/// Starts an agent.
pub const CREATE_SUB_AGENT: &str = "create_sub_agent";
/// Ends an agent.
pub const TERMINATE_SUB_AGENT: &str = "terminate_sub_agent";
/// Where agents stand.
pub const GET_SUB_AGENT_STATUS: &str = "get_sub_agent_status";
/// Waits for agents to end or speak.
pub const WAIT_SUB_AGENTS: &str = "wait_sub_agents";
/// Agents that run, wait or are idle.
pub const LIST_ACTIVE_SUB_AGENTS: &str = "list_active_sub_agents";

/// Every leader tool of this version, in the order in which models see them.
pub const LEADER_TOOLS: &[ToolDef] = &[
    ToolDef {
        name: CREATE_SUB_AGENT,
        read_only: false,
        schema: schema_of::<CreateSubAgentParams>,
    },
    ToolDef {
        name: TERMINATE_SUB_AGENT,
        read_only: false,
        schema: schema_of::<TerminateSubAgentParams>,
    },
    ToolDef {
        name: GET_SUB_AGENT_STATUS,
        read_only: true,
        schema: schema_of::<GetSubAgentStatusParams>,
    },
    ToolDef {
        name: WAIT_SUB_AGENTS,
        read_only: true,
        schema: schema_of::<WaitSubAgentsParams>,
    },
    ToolDef {
        name: LIST_ACTIVE_SUB_AGENTS,
        read_only: true,
        schema: schema_of::<NoParams>,
    },
];

fn invalid(message: impl Into<String>) -> ToolError {
    ToolError::new(ErrorCode::InvalidParameters, message)
}

/// Reads an agent's number out of a tool parameter.
///
/// # Errors
/// When it is not 1 to [`AgentId::TOOL_MAX`].
pub fn tool_agent_id(number: i64) -> Result<AgentId, ToolError> {
    u32::try_from(number)
        .ok()
        .filter(|number| *number <= AgentId::TOOL_MAX)
        .and_then(|number| AgentId::new(number).ok())
        .ok_or_else(|| {
            invalid(format!(
                "`agent_id` must be 1 to {}, not {number}",
                AgentId::TOOL_MAX
            ))
        })
}

/// Reads an agent's number as a person may name it, in a batch file above all.
///
/// # Errors
/// When it is not 1 to [`limits::PERSON_AGENT_ID_MAX`].
pub fn person_agent_id(number: i64) -> Result<AgentId, ToolError> {
    u32::try_from(number)
        .ok()
        .filter(|number| *number <= limits::PERSON_AGENT_ID_MAX)
        .and_then(|number| AgentId::new(number).ok())
        .ok_or_else(|| {
            invalid(format!(
                "`agent_id` must be 1 to {}, not {number}",
                limits::PERSON_AGENT_ID_MAX
            ))
        })
}

fn check_role(role_id: Option<&String>) -> Result<(), ToolError> {
    match role_id.map(|text| RoleId::new(text.clone())) {
        Some(Err(error)) => Err(invalid(error.to_string())),
        Some(Ok(_)) | None => Ok(()),
    }
}

/// How an agent is addressed: by number (and definition), or by name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AgentRef {
    /// By number, and by definition where the number alone fits several.
    Number {
        /// The number.
        agent_id: AgentId,
        /// The definition.
        role_id: Option<RoleId>,
    },
    /// By display name or task id.
    Name(String),
}

/// Parameters of [`CREATE_SUB_AGENT`]; what a person's command line or batch file says has the
/// same names. Ranges that depend on the configuration are checked by the leader.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, JsonSchema)]
pub struct CreateSubAgentParams {
    /// Number of the new agent, 1 to 99; default the next free one.
    #[serde(default)]
    #[schemars(range(min = 1, max = 99))]
    pub agent_id: Option<i64>,
    /// Agent definition to use.
    #[serde(default)]
    pub role_id: Option<String>,
    /// What the agent is to do, in 10 to 30 characters; required without role_id.
    #[serde(default)]
    pub summary: Option<String>,
    /// Goal, requirements, deliverables and scope.
    pub task: String,
    /// Where results go, relative to the workspace.
    #[serde(default)]
    pub deliverables_dir: Option<String>,
    /// Use a deliverables_dir that is not empty.
    #[serde(default)]
    pub reuse_deliverables_dir: Option<bool>,
    /// What else it may write, relative to the workspace.
    #[serde(default)]
    pub write_paths: Option<Vec<String>>,
    /// Answer at once instead of at its end.
    #[serde(default)]
    pub run_in_background: Option<bool>,
    /// Its deadline, 60 to 3600 seconds; default 600.
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
    /// A configured model.
    #[serde(default)]
    pub model_key: Option<String>,
}

impl Params for CreateSubAgentParams {
    fn check(&self) -> Result<(), ToolError> {
        if let Some(number) = self.agent_id {
            tool_agent_id(number)?;
        }
        self.check_all_but_number()
    }
}

impl CreateSubAgentParams {
    /// Checks everything but the number, whose range depends on who asks.
    ///
    /// # Errors
    /// When a parameter is out of its range.
    pub fn check_all_but_number(&self) -> Result<(), ToolError> {
        check_role(self.role_id.as_ref())?;
        check_texts(&self.task, self.summary.as_deref(), self.role_id.is_some())?;
        if self
            .max_turns
            .is_some_and(|n| n < 1 || u32::try_from(n).is_err())
        {
            return Err(invalid("`max_turns` must be 1 or more"));
        }
        Ok(())
    }
}

/// Checks a task's text and summary by the rules of every face.
///
/// # Errors
/// When the task is empty or too long, or the summary is missing, empty or too long.
pub fn check_texts(task: &str, summary: Option<&str>, has_role: bool) -> Result<(), ToolError> {
    if task.trim().is_empty() {
        return Err(invalid("`task` must not be empty"));
    }
    if task.len() > limits::TASK_BYTES_MAX {
        return Err(ToolError::new(
            ErrorCode::TooLarge,
            format!(
                "`task` has {} bytes; the most is {}",
                task.len(),
                limits::TASK_BYTES_MAX
            ),
        )
        .hint("put long material into files of the workspace and name them in the task"));
    }
    match summary {
        None if !has_role => Err(invalid("missing parameter `summary`")
            .hint("say in 10 to 30 characters what the agent is to do")),
        None => Ok(()),
        Some(text) if text.trim().is_empty() => Err(invalid("`summary` must not be empty")),
        Some(text) if text.chars().count() > limits::SUMMARY_CHARS_MAX => Err(invalid(format!(
            "`summary` must have at most {} characters",
            limits::SUMMARY_CHARS_MAX
        ))),
        Some(_) => Ok(()),
    }
}

/// What is odd about a summary that is accepted all the same.
pub fn summary_warning(summary: &str) -> Option<String> {
    let count = summary.chars().count();
    (!limits::SUMMARY_CHARS_WANTED.contains(&count)).then(|| {
        format!("the summary has {count} characters; 10 to 30 read best in lists and notices")
    })
}

/// Parameters of [`TERMINATE_SUB_AGENT`].
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, JsonSchema)]
pub struct TerminateSubAgentParams {
    /// Number of the agent.
    #[serde(default)]
    #[schemars(range(min = 1))]
    pub agent_id: Option<i64>,
    /// Its definition, where the number fits several agents.
    #[serde(default)]
    pub role_id: Option<String>,
    /// Its name or task_id, instead of a number.
    #[serde(default)]
    pub agent: Option<String>,
}

impl Params for TerminateSubAgentParams {
    fn check(&self) -> Result<(), ToolError> {
        self.target().map(drop)
    }
}

impl TerminateSubAgentParams {
    /// Whom it means.
    ///
    /// # Errors
    /// When neither or both of `agent_id` and `agent` are given, or one is malformed.
    pub fn target(&self) -> Result<AgentRef, ToolError> {
        agent_ref(
            self.agent_id,
            self.role_id.as_deref(),
            self.agent.as_deref(),
        )
    }
}

/// Whom a tool's `agent_id`, `role_id` and `agent` mean together.
///
/// # Errors
/// When neither or both of `agent_id` and `agent` are given, or one is malformed.
pub fn agent_ref(
    agent_id: Option<i64>,
    role_id: Option<&str>,
    agent: Option<&str>,
) -> Result<AgentRef, ToolError> {
    match (agent_id, agent) {
        (Some(_), Some(_)) => Err(invalid("give `agent_id` or `agent`, not both")),
        (None, None) => Err(invalid("missing parameter `agent_id`")),
        (None, Some(name)) => Ok(AgentRef::Name(name.to_owned())),
        (Some(number), None) => {
            let agent_id = u32::try_from(number)
                .ok()
                .and_then(|number| AgentId::new(number).ok())
                .ok_or_else(|| invalid(format!("`agent_id` must be 1 or more, not {number}")))?;
            let role_id = role_id
                .map(RoleId::new)
                .transpose()
                .map_err(|error| invalid(error.to_string()))?;
            Ok(AgentRef::Number { agent_id, role_id })
        }
    }
}

/// Parameters of [`GET_SUB_AGENT_STATUS`].
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, JsonSchema)]
pub struct GetSubAgentStatusParams {
    /// Numbers of the agents.
    #[serde(default)]
    pub agent_ids: Option<Vec<i64>>,
    /// Number of one agent.
    #[serde(default)]
    pub agent_id: Option<i64>,
    /// Its definition, where the number fits several agents.
    #[serde(default)]
    pub role_id: Option<String>,
    /// Its name or task_id, instead of a number.
    #[serde(default)]
    pub agent: Option<String>,
}

impl Params for GetSubAgentStatusParams {
    fn check(&self) -> Result<(), ToolError> {
        self.targets().map(drop)
    }
}

impl GetSubAgentStatusParams {
    /// Whom it means, at least one.
    ///
    /// # Errors
    /// When it names nobody, or names somebody in two ways.
    pub fn targets(&self) -> Result<Vec<AgentRef>, ToolError> {
        match &self.agent_ids {
            Some(list) if self.agent_id.is_none() && self.agent.is_none() => {
                if list.is_empty() {
                    return Err(invalid("`agent_ids` must name at least one agent"));
                }
                list.iter()
                    .map(|number| agent_ref(Some(*number), self.role_id.as_deref(), None))
                    .collect()
            }
            Some(_) => Err(invalid("give `agent_ids` or one agent, not both")),
            None => Ok(vec![agent_ref(
                self.agent_id,
                self.role_id.as_deref(),
                self.agent.as_deref(),
            )?]),
        }
    }
}

/// When a wait ends.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WaitMode {
    /// At the first end.
    #[default]
    Any,
    /// When all have ended.
    All,
}

/// Parameters of [`WAIT_SUB_AGENTS`].
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, JsonSchema)]
pub struct WaitSubAgentsParams {
    /// Numbers of the agents; default all that have not ended.
    #[serde(default)]
    pub agent_ids: Option<Vec<i64>>,
    /// `any` (default): the first end; `all`: every end.
    #[serde(default)]
    #[schemars(with = "Option<String>", extend("enum" = ["any", "all"]))]
    pub mode: Option<WaitMode>,
    /// Longest wait, 1 to 600.
    #[serde(default)]
    #[schemars(range(min = 1, max = 600))]
    pub timeout_seconds: Option<i64>,
}

impl Params for WaitSubAgentsParams {
    fn check(&self) -> Result<(), ToolError> {
        let most = i64::from(limits::WAIT_SECONDS_MAX);
        if self
            .timeout_seconds
            .is_some_and(|n| !(1..=most).contains(&n))
        {
            return Err(invalid(format!("`timeout_seconds` must be 1 to {most}")));
        }
        for number in self.agent_ids.iter().flatten() {
            agent_ref(Some(*number), None, None)?;
        }
        Ok(())
    }
}

/// Parameters of a tool that takes none.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, JsonSchema)]
pub struct NoParams {}

impl Params for NoParams {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tool::{parse_params, parse_text};
    use serde_json::json;

    #[test]
    fn a_summary_is_needed_without_a_role_and_warned_of_when_odd() {
        let create = |value| parse_params::<CreateSubAgentParams>(value);
        assert!(create(json!({"task": "t"})).is_err());
        assert!(create(json!({"task": "t", "role_id": "r"})).is_ok());
        assert!(create(json!({"task": "t", "summary": " "})).is_err());
        assert!(create(json!({"task": "t", "summary": "x".repeat(200)})).is_ok());
        assert!(create(json!({"task": "t", "summary": "x".repeat(201)})).is_err());
        assert_eq!(summary_warning("生成接口文档与示例代码"), None);
        assert!(summary_warning("short").is_some());
    }

    #[test]
    fn a_task_is_taken_up_to_its_limit() {
        let create = |n: usize| {
            parse_params::<CreateSubAgentParams>(json!({"task": "x".repeat(n), "summary": "s"}))
        };
        assert!(create(limits::TASK_BYTES_MAX).is_ok());
        assert_eq!(
            create(limits::TASK_BYTES_MAX + 1).unwrap_err().code,
            ErrorCode::TooLarge
        );
        assert_eq!(create(0).unwrap_err().code, ErrorCode::InvalidParameters);
    }

    #[test]
    fn an_agent_is_addressed_in_one_way() {
        let number = |n| AgentRef::Number {
            agent_id: AgentId::new(n).unwrap(),
            role_id: None,
        };
        assert_eq!(agent_ref(Some(3), None, None), Ok(number(3)));
        assert_eq!(
            agent_ref(None, None, Some("x")),
            Ok(AgentRef::Name("x".into()))
        );
        assert!(agent_ref(None, None, None).is_err());
        assert!(agent_ref(Some(3), None, Some("x")).is_err());
        assert!(agent_ref(Some(0), None, None).is_err());
        let many: GetSubAgentStatusParams = parse_text(r#"{"agent_ids":[1,"2"]}"#).unwrap();
        assert_eq!(many.targets().unwrap(), vec![number(1), number(2)]);
        assert!(parse_text::<GetSubAgentStatusParams>(r#"{"agent_ids":[]}"#).is_err());
        assert!(parse_text::<NoParams>("").is_ok());
    }
}
