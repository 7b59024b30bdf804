//! The methods of a conversation's control socket beside the leader tools, and their parameters.

use schemars::JsonSchema;
use serde::Deserialize;

use crate::error::{ErrorCode, ToolError};
use crate::tool::Params;
use crate::tool::leader::WaitMode;

/// All agents of the conversation, ended ones included.
pub const PS: &str = "ps";
/// Steps of one agent.
pub const LOGS: &str = "logs";
/// Waits for ends, without the bound that the tool has.
pub const WAIT: &str = "wait";
/// The event log as it grows.
pub const SUBSCRIBE: &str = "subscribe";
/// The resolved configuration.
pub const CONFIG: &str = "config";
/// Stops all agents and ends the conversation.
pub const SHUTDOWN: &str = "shutdown";

/// Every method that is no tool.
pub const METHODS: &[&str] = &[PS, LOGS, WAIT, SUBSCRIBE, CONFIG, SHUTDOWN];

/// Leader to caller, notification: one line of the event log, or a gap in it.
pub const EVENT: &str = "event";
/// The `event` of a notification that stands for lines which the subscriber was too slow for.
pub const GAP: &str = "gap";

/// The name of the socket in the folder of its run.
pub const SOCKET_FILE: &str = "leader.sock";

/// Steps in one answer when the caller names no limit.
pub const STEPS_DEFAULT: u32 = 200;
/// The most steps in one answer.
pub const STEPS_MAX: u32 = 1_000;

fn invalid(message: impl Into<String>) -> ToolError {
    ToolError::new(ErrorCode::InvalidParameters, message)
}

/// Parameters of [`LOGS`].
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, JsonSchema)]
pub struct LogsParams {
    /// Number, name or task_id of the agent.
    pub agent: String,
    /// Where to go on: `next` of the answer before; default the start.
    #[serde(default)]
    pub after: Option<u64>,
    /// Most steps of the answer, 1 to 1000; default 200.
    #[serde(default)]
    #[schemars(range(min = 1, max = 1000))]
    pub limit: Option<i64>,
}

impl LogsParams {
    /// The limit that holds.
    pub fn limit_steps(&self) -> usize {
        self.limit
            .and_then(|limit| usize::try_from(limit).ok())
            .unwrap_or(STEPS_DEFAULT as usize)
    }
}

impl Params for LogsParams {
    fn check(&self) -> Result<(), ToolError> {
        if self.agent.trim().is_empty() {
            return Err(invalid("`agent` must name an agent"));
        }
        if self
            .limit
            .is_some_and(|limit| !(1..=i64::from(STEPS_MAX)).contains(&limit))
        {
            return Err(invalid(format!("`limit` must be 1 to {STEPS_MAX}")));
        }
        Ok(())
    }
}

/// Parameters of [`WAIT`].
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, JsonSchema)]
pub struct WaitParams {
    /// Numbers of the agents; default all that have not ended.
    #[serde(default)]
    pub agent_ids: Option<Vec<i64>>,
    /// Numbers, names or task_ids of more agents.
    #[serde(default)]
    pub agents: Option<Vec<String>>,
    /// `any` (default): the first end; `all`: every end.
    #[serde(default)]
    #[schemars(with = "Option<String>", extend("enum" = ["any", "all"]))]
    pub mode: Option<WaitMode>,
    /// Longest wait; default without end.
    #[serde(default)]
    #[schemars(range(min = 0))]
    pub timeout_seconds: Option<i64>,
}

impl WaitParams {
    /// The longest wait in milliseconds, if there is one.
    pub fn timeout_ms(&self) -> Option<u64> {
        self.timeout_seconds
            .and_then(|seconds| u64::try_from(seconds).ok())
            .map(|seconds| seconds.saturating_mul(1_000))
    }
}

impl Params for WaitParams {
    fn check(&self) -> Result<(), ToolError> {
        if self.timeout_seconds.is_some_and(|seconds| seconds < 0) {
            return Err(invalid("`timeout_seconds` must be 0 or more"));
        }
        Ok(())
    }
}

/// Parameters of [`SUBSCRIBE`].
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, JsonSchema)]
pub struct SubscribeParams {
    /// Begin with the event after this one; default with what happens from now on.
    #[serde(default)]
    pub after_seq: Option<u64>,
}

impl Params for SubscribeParams {}

/// Parameters of [`SHUTDOWN`].
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, JsonSchema)]
pub struct ShutdownParams {
    /// Kill at once instead of stopping in order.
    #[serde(default)]
    pub force: Option<bool>,
}

impl Params for ShutdownParams {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tool::parse_params;
    use serde_json::json;

    #[test]
    fn limits_hold_at_their_ends() {
        let logs = |value| parse_params::<LogsParams>(value);
        assert_eq!(logs(json!({"agent": "1"})).unwrap().limit_steps(), 200);
        let most = logs(json!({"agent": "1", "limit": 1000, "after": 7})).unwrap();
        assert_eq!((most.limit_steps(), most.after), (1000, Some(7)));
        for bad in [
            json!({"agent": "1", "limit": 1001}),
            json!({"agent": "1", "limit": 0}),
            json!({"agent": " "}),
            json!({"agent": "1", "after": -1}),
            json!({}),
        ] {
            assert!(logs(bad.clone()).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_wait_is_endless_unless_it_says_otherwise() {
        let wait = |value| parse_params::<WaitParams>(value);
        assert_eq!(wait(json!({})).unwrap().timeout_ms(), None);
        let short = wait(json!({"timeout_seconds": 2, "mode": "all"})).unwrap();
        assert_eq!(
            (short.timeout_ms(), short.mode),
            (Some(2_000), Some(WaitMode::All))
        );
        assert!(wait(json!({"timeout_seconds": -1})).is_err());
        let unknown = parse_params::<SubscribeParams>(json!({"after": 1})).unwrap_err();
        assert!(unknown.hint.contains("after_seq"), "{}", unknown.hint);
    }
}
