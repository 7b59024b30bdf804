//! `create_sub_agent`: starts an agent.

use protocol::tool::leader::{CREATE_SUB_AGENT, CreateSubAgentParams};
use protocol::tool::parse_params;

use crate::driver::{CreateOrderRequest, Origin};
use crate::tools::Tool;

/// The tool.
pub const TOOL: Tool = Tool {
    name: CREATE_SUB_AGENT,
    call: |handle, params, origin: Origin| {
        Box::pin(async move {
            let params = parse_params::<CreateSubAgentParams>(params)?;
            let answer = handle
                .create(CreateOrderRequest {
                    params,
                    origin,
                    item: None,
                })
                .await?;
            Ok(answer.to_value())
        })
    },
};
