//! `get_sub_agent_status`: where agents stand.

use protocol::tool::leader::{GET_SUB_AGENT_STATUS, GetSubAgentStatusParams};
use protocol::tool::parse_params;

use crate::tools::Tool;

/// The tool.
pub const TOOL: Tool = Tool {
    name: GET_SUB_AGENT_STATUS,
    call: |handle, params, _| {
        Box::pin(async move {
            let agents = parse_params::<GetSubAgentStatusParams>(params)?.targets()?;
            Ok(handle.status(agents).await)
        })
    },
};
