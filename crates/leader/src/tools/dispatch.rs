//! Finds the tool of a name and calls it.

use std::fmt;
use std::future::Future;
use std::pin::Pin;

use protocol::error::{ErrorCode, ToolError, closest};
use serde_json::Value;

use crate::driver::{Handle, Origin};
use crate::tools;

/// What a tool is doing until it has its result.
pub type Running<'a> = Pin<Box<dyn Future<Output = Result<Value, ToolError>> + Send + 'a>>;

/// One leader tool.
pub struct Tool {
    /// Its name, as models call it.
    pub name: &'static str,
    /// Runs it.
    pub call: for<'a> fn(&'a Handle, Value, Origin) -> Running<'a>,
}

impl fmt::Debug for Tool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Tool").field(&self.name).finish()
    }
}

/// Every leader tool, in the order in which models see them.
pub const TOOLS: &[Tool] = &[
    tools::create_sub_agent::TOOL,
    tools::terminate_sub_agent::TOOL,
    tools::get_sub_agent_status::TOOL,
    tools::wait_sub_agents::TOOL,
    tools::list_active_sub_agents::TOOL,
];

/// Calls a leader tool. A failure is a result too: `{"success": false, "error": {…}}`. Dropping
/// the future gives up the answer and nothing else.
pub async fn call_tool(handle: &Handle, name: &str, params: Value, origin: Origin) -> Value {
    let outcome = match TOOLS.iter().find(|tool| tool.name == name) {
        Some(tool) => (tool.call)(handle, params, origin).await,
        None => Err(unknown(name)),
    };
    outcome.unwrap_or_else(|error| error.to_result())
}

fn unknown(name: &str) -> ToolError {
    let known = || TOOLS.iter().map(|tool| tool.name);
    let error = ToolError::new(ErrorCode::UnknownTool, format!("there is no tool `{name}`"));
    let list = known().collect::<Vec<_>>().join("`, `");
    match closest(name, known()) {
        Some(near) => error.hint(format!("did you mean `{near}`? Known: `{list}`")),
        None => error.hint(format!("known: `{list}`")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use protocol::tool::leader::LEADER_TOOLS;

    #[test]
    fn every_tool_that_models_see_is_served() {
        let served: Vec<&str> = TOOLS.iter().map(|tool| tool.name).collect();
        let seen: Vec<&str> = LEADER_TOOLS.iter().map(|tool| tool.name).collect();
        assert_eq!(served, seen);
        assert!(unknown("create_subagent").hint.contains("create_sub_agent"));
    }
}
