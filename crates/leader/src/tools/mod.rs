//! The leader tools: one file each, from parameters to a call of the handle. The control socket, a
//! lead and MCP clients share them.

pub mod create_sub_agent;
pub mod dispatch;
pub mod get_sub_agent_status;
pub mod list_active_sub_agents;
pub mod terminate_sub_agent;
pub mod wait_sub_agents;

pub use dispatch::{TOOLS, Tool, call_tool};
