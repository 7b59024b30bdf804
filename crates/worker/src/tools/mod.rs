//! What a tool is to the loop, and the list of them all.

mod access;
pub mod background;
mod blocking;
mod check_background;
pub mod command;
pub(crate) mod edit;
mod edit_file;
mod excerpt;
mod extract_webpage;
mod failure;
mod filetype;
mod finish_task;
pub mod large;
mod limits;
pub mod list;
pub mod mcp;
mod names;
mod nearest;
mod output;
mod paths;
pub mod project;
mod read_file;
mod read_mediafile;
mod read_skill;
mod run_command;
mod save;
mod search;
mod search_workspace;
pub mod skill;
mod stop_background;
mod subject;
#[cfg(test)]
mod testing;
mod text;
pub mod web;
mod web_search;
mod write_file;

use std::future::Future;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use protocol::error::ToolError;
use protocol::secret::Mask;
use protocol::text::Prompts;
use serde_json::Value;

pub use crate::core::tally::Tally;

use self::background::Background;
use self::command::{CommandWorld, Keeping};
use self::skill::Skill;
use self::web::Web;

/// What a tool may know of the agent it works for. One per run; it is never changed.
#[derive(Debug, Clone)]
pub struct ToolContext {
    /// Absolute, links resolved.
    pub workspace: PathBuf,
    /// Absolute.
    pub deliverables_dir: PathBuf,
    /// Absolute: `.subagent/` in the deliverables dir, where long outputs go.
    pub agent_dir: PathBuf,
    /// What it may write, absolute; empty means the whole workspace.
    pub write_scope: Vec<PathBuf>,
    /// The texts of the language that it is spoken to in; shared, since nothing changes them.
    pub prompts: Arc<Prompts>,
    /// Environment variables that commands must not see (names).
    pub hidden_env: Vec<String>,
    /// What commands find around them.
    pub commands: CommandWorld,
    /// What stands in no result.
    pub mask: Mask,
    /// What holds the processes of commands together; shared, since nothing changes it.
    pub keeping: Arc<Keeping>,
    /// The commands that run in the background.
    pub background: Arc<Background>,
    /// Whether its model is shown images.
    pub vision: bool,
    /// What it may have of the web; shared, since nothing changes it.
    pub web: Arc<Web>,
    /// The skills that may be read.
    pub skills: Arc<[Skill]>,
}

/// What a call came to.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolOutput {
    /// What the model gets: a text, or an object that is written as JSON.
    pub value: Value,
    /// What it counts as.
    pub tally: Tally,
}

/// What a failed call leaves: the failure, and what it counts as all the same.
pub type ToolResult = Result<ToolOutput, ToolError>;

/// A boxed future, so that tools can stand in one list.
pub type ToolFuture<'a> = Pin<Box<dyn Future<Output = ToolResult> + Send + 'a>>;

/// One tool. A call may be dropped at any await point (deadline, stop); what it started must
/// then be ended by its own drop guards.
pub trait Tool: Send + Sync + std::fmt::Debug {
    /// Its name, as in [`protocol::tool::worker::WORKER_TOOLS`] or as an MCP server's tool is
    /// called.
    fn name(&self) -> &str;

    /// What an agent that runs this call is doing, for `last_action`, in its language.
    fn action(&self, arguments: &str, prompts: &Prompts) -> String;

    /// Runs one call. `arguments` is the JSON text as the model wrote it; `within` is what is
    /// left of the agent's deadline.
    fn call<'a>(
        &'a self,
        context: &'a ToolContext,
        arguments: &'a str,
        within: Duration,
    ) -> ToolFuture<'a>;
}
