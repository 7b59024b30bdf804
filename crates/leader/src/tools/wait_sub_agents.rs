//! `wait_sub_agents`: waits for agents to end.

use protocol::error::ToolError;
use protocol::limits::WAIT_SECONDS_MAX;
use protocol::tool::leader::{WAIT_SUB_AGENTS, WaitSubAgentsParams, agent_ref};
use protocol::tool::parse_params;

use crate::driver::WaitRequest;
use crate::tools::Tool;

/// The tool.
pub const TOOL: Tool = Tool {
    name: WAIT_SUB_AGENTS,
    call: |handle, params, origin| {
        Box::pin(async move {
            let params = parse_params::<WaitSubAgentsParams>(params)?;
            let agents = params
                .agent_ids
                .iter()
                .flatten()
                .map(|number| agent_ref(Some(*number), None, None))
                .collect::<Result<_, ToolError>>()?;
            let seconds = params
                .timeout_seconds
                .and_then(|seconds| u64::try_from(seconds).ok())
                .unwrap_or(u64::from(WAIT_SECONDS_MAX));
            let wait = WaitRequest {
                agents,
                mode: params.mode.unwrap_or_default(),
                timeout_ms: Some(seconds * 1_000),
                origin,
            };
            Ok(handle.wait(wait).await)
        })
    },
};
