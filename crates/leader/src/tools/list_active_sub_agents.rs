//! `list_active_sub_agents`: the agents that have not ended.

use protocol::tool::leader::{LIST_ACTIVE_SUB_AGENTS, NoParams};
use protocol::tool::parse_params;

use crate::tools::Tool;

/// The tool.
pub const TOOL: Tool = Tool {
    name: LIST_ACTIVE_SUB_AGENTS,
    call: |handle, params, _| {
        Box::pin(async move {
            parse_params::<NoParams>(params)?;
            Ok(handle.list_active().await)
        })
    },
};
