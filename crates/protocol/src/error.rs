//! Failures as a model, a person or a program gets them from a tool.

use serde::{Deserialize, Serialize};

use crate::status::words;

words!(
    /// What kind of failure it is; a closed set.
    ErrorCode {
        /// A parameter is missing, unknown, of the wrong type or out of range.
        InvalidParameters = "invalid_parameters",
        /// No such tool, or not granted to the caller.
        UnknownTool = "unknown_tool",
        /// The tool exists but the caller may not use it.
        ToolNotGranted = "tool_not_granted",
        /// The number was used before in this conversation and role.
        AgentIdTaken = "agent_id_taken",
        /// All numbers of the conversation are used.
        AgentIdsSpent = "agent_ids_spent",
        /// The number fits several agents.
        AmbiguousAgentId = "ambiguous_agent_id",
        /// No agent of that number or name.
        UnknownAgent = "unknown_agent",
        /// No definition of that name.
        UnknownRole = "unknown_role",
        /// No model of that key.
        UnknownModel = "unknown_model",
        /// No model is configured.
        NoModel = "no_model",
        /// The path lies outside the workspace.
        OutsideWorkspace = "outside_workspace",
        /// The path lies outside what the agent may write.
        OutsideWriteScope = "outside_write_scope",
        /// The deliverables dir is not allowed.
        DeliverablesDirRefused = "deliverables_dir_refused",
        /// The deliverables dir exists and holds something.
        DeliverablesDirNotEmpty = "deliverables_dir_not_empty",
        /// The deliverables dir is, holds or lies in a live agent's.
        DeliverablesOverlap = "deliverables_overlap",
        /// A write path is, holds or lies in a live agent's.
        ScopeOverlap = "scope_overlap",
        /// The cap is reached and admission is `reject`.
        TooManyAgents = "too_many_agents",
        /// The agent has ended already.
        AlreadyEnded = "already_ended",
        /// The agent has ended; the call needs a live one.
        AgentEnded = "agent_ended",
        /// It ended without success; its stop reason says why.
        AgentFailed = "agent_failed",
        /// The process could not be started.
        SpawnFailed = "spawn_failed",
        /// The confinement that is required can't be had.
        ConfinementRefused = "confinement_refused",
        /// A leader was started inside an agent.
        Nested = "nested",
        /// The tool needs a leader and there is none.
        NoLeader = "no_leader",
        /// The leader is shutting down.
        ShuttingDown = "shutting_down",
        /// Not built into this version.
        NotAvailable = "not_available",
        /// No such file or directory.
        NotFound = "not_found",
        /// Not a regular file.
        NotAFile = "not_a_file",
        /// Bytes that are no text.
        BinaryFile = "binary_file",
        /// The system refused.
        PermissionDenied = "permission_denied",
        /// The text to replace does not occur.
        NoMatch = "no_match",
        /// The text to replace occurs more than once.
        SeveralMatches = "several_matches",
        /// Larger than allowed.
        TooLarge = "too_large",
        /// As many of it as may be are there already.
        TooMany = "too_many",
        /// No search engine is configured.
        WebSearchUnavailable = "web_search_unavailable",
        /// The address is none that may be fetched from.
        AddressRefused = "address_refused",
        /// A server of the web can't be reached, or answers with a failure.
        WebFailed = "web_failed",
        /// An MCP server answers with a failure, or is gone.
        McpFailed = "mcp_failed",
        /// It took too long.
        TimedOut = "timed_out",
        /// Not run, because an earlier call of the same turn ended the run.
        Cancelled = "cancelled",
        /// The disk is full.
        DiskFull = "disk_full",
        /// Any other failure of the system.
        Io = "io",
        /// A fault of ours.
        Internal = "internal",
    }
);

/// One failure: what kind, what to tell the model, and what to try.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{message}")]
pub struct ToolError {
    /// The kind.
    pub code: ErrorCode,
    /// What, where and why, without internals.
    pub message: String,
    /// What to try next; empty where there is nothing to say.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub hint: String,
}

impl ToolError {
    /// A failure without a hint.
    pub fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        ToolError {
            code,
            message: message.into(),
            hint: String::new(),
        }
    }

    /// Adds what to try next.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = hint.into();
        self
    }

    /// The failure as the whole result of a tool:
    /// `{"success": false, "error": {"code", "message", "hint"}}`.
    pub fn to_result(&self) -> serde_json::Value {
        serde_json::json!({"success": false, "error": self})
    }
}

/// The closest known name, for "did you mean"; none when nothing is near.
pub fn closest<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    known
        .into_iter()
        .map(|candidate| {
            (
                strsim::jaro_winkler(&name.to_lowercase(), candidate),
                candidate,
            )
        })
        .filter(|(score, _)| *score >= 0.7)
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, candidate)| candidate)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_has_one_shape() {
        let error = ToolError::new(ErrorCode::NotFound, "no file `a`").hint("list the directory");
        assert_eq!(
            error.to_result(),
            serde_json::json!({"success": false, "error": {
                "code": "not_found", "message": "no file `a`", "hint": "list the directory"}})
        );
    }

    #[test]
    fn the_closest_name_is_offered_only_when_near() {
        assert_eq!(
            closest("timeout", ["timeout_seconds", "task"]),
            Some("timeout_seconds")
        );
        assert_eq!(closest("Path", ["path"]), Some("path"));
        assert_eq!(closest("zzz", ["path"]), None);
    }
}
