//! `terminate_sub_agent`: ends an agent.

use protocol::tool::leader::{TERMINATE_SUB_AGENT, TerminateSubAgentParams};
use protocol::tool::parse_params;

use crate::driver::StopMode;
use crate::tools::Tool;

/// The tool.
pub const TOOL: Tool = Tool {
    name: TERMINATE_SUB_AGENT,
    call: |handle, params, origin| {
        Box::pin(async move {
            let agent = parse_params::<TerminateSubAgentParams>(params)?.target()?;
            handle.terminate(agent, StopMode::Graceful, origin).await
        })
    },
};
