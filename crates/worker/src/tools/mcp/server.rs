//! One server: how it is started, asked, started again once, and ended.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use protocol::error::{ErrorCode, ToolError};
use protocol::mcp::{McpEnv, McpServerSpec, is_granted};
use serde_json::{Value, json};
use tokio::net::unix::pipe::{Receiver, Sender};
use tokio::sync::Mutex;
use tokio::time::timeout;

use super::offer::{self, Found};
use super::session::{Fault, Session};
use super::stderr::Stderr;
use super::tool::ServerTool;
use crate::model::OfferedTool;
use crate::tools::command::{Held, Keeping, Lasting, Recipe, Secrets, start_lasting};
use crate::tools::{Tool, ToolContext, limits};

/// The revision of the protocol that is asked for.
const REVISION: &str = "2025-11-25";
/// The revisions that are understood: for these methods they are the same.
const UNDERSTOOD: [&str; 4] = [REVISION, "2025-06-18", "2025-03-26", "2024-11-05"];

/// Which servers an agent is to have, and the values of their variables.
#[derive(Debug, Clone, Default)]
pub struct Wanted {
    /// The servers.
    pub servers: Vec<McpServerSpec>,
    /// The tools that were granted, by name.
    pub granted: Vec<String>,
    /// The values of their variables.
    pub env: McpEnv,
}

/// The servers of one agent. The default has none, and costs nothing.
#[derive(Debug, Default)]
pub struct Servers {
    servers: Vec<Arc<Server>>,
    /// What models are told of their tools.
    pub offered: Vec<OfferedTool>,
    /// What could not be had, for people.
    pub warnings: Vec<String>,
    tools: Vec<ServerTool>,
}

impl Servers {
    /// Starts all servers of which something was granted, side by side. One that can't be had is
    /// told of, and the others go on. Dropping the future ends those that were started.
    pub async fn start(wanted: &Wanted, context: &ToolContext) -> Servers {
        let starting: Vec<_> = wanted
            .servers
            .iter()
            .filter(|spec| is_of_use(spec, &wanted.granted))
            .map(|spec| {
                let server = Server::new(spec, &wanted.env, context);
                tokio::spawn(async move {
                    let found = server.open().await;
                    (server, found)
                })
            })
            .collect();
        let mut starting = Aborting(starting);
        let mut all = Servers::default();
        for task in &mut starting.0 {
            // A panic of the task is a fault of ours, which must not take the agent along.
            let Ok((server, found)) = task.await else {
                all.warnings
                    .push("an MCP server could not be started by a fault of its client".to_owned());
                continue;
            };
            match found {
                Ok(found) => all.take(server, found, &wanted.granted),
                Err(why) => all.warnings.push(format!(
                    "the MCP server `{}` is not there, and its tools are left out: {why}",
                    server.name
                )),
            }
        }
        all
    }

    fn take(&mut self, server: Server, found: Vec<Found>, granted: &[String]) {
        let server = Arc::new(server);
        for tool in found {
            if is_granted(granted, &server.name, &tool.offered.name) {
                let called = tool.offered.name.clone();
                self.tools
                    .push(ServerTool::new(called, tool.name, Arc::clone(&server)));
                self.offered.push(tool.offered);
            }
        }
        self.servers.push(server);
    }

    /// Their tools, for the list of all tools.
    pub fn take_tools(&mut self) -> Vec<Box<dyn Tool>> {
        let tools = std::mem::take(&mut self.tools).into_iter();
        tools.map(|tool| Box::new(tool) as Box<dyn Tool>).collect()
    }

    /// Ends all servers, and waits until they are gone.
    pub async fn end_all(&self) {
        for server in &self.servers {
            server.end().await;
        }
    }
}

/// Tasks that end with whoever waits for them.
struct Aborting<T>(Vec<tokio::task::JoinHandle<T>>);

impl<T> Drop for Aborting<T> {
    fn drop(&mut self) {
        for task in &self.0 {
            task.abort();
        }
    }
}

/// Whether any grant may be for a tool of this server.
fn is_of_use(spec: &McpServerSpec, granted: &[String]) -> bool {
    let begin = format!("mcp__{}__", spec.name);
    granted.iter().any(|name| name.starts_with(&begin))
}

/// A server that runs.
#[derive(Debug)]
struct Live {
    session: Session<Receiver, Sender>,
    held: Held,
    stderr: Stderr,
}

#[derive(Debug)]
struct Life {
    live: Option<Live>,
    /// How often it may be started.
    starts_left: u32,
    /// Why it does not run.
    why: String,
}

/// One server. Its calls take turns; a message to a task of its own would have to be taken back
/// when a call is dropped, so a lock is what is wanted here.
#[derive(Debug)]
pub(super) struct Server {
    name: String,
    recipe: Recipe,
    keeping: Arc<Keeping>,
    log: PathBuf,
    call_limit: Duration,
    life: Mutex<Life>,
}

impl Server {
    fn new(spec: &McpServerSpec, env: &McpEnv, context: &ToolContext) -> Server {
        let words = [&spec.command].into_iter().chain(&spec.args);
        let own = spec.env.iter();
        Server {
            name: spec.name.clone(),
            recipe: Recipe {
                argv: words.map(Into::into).collect(),
                directory: context.workspace.clone(),
                hidden_env: context.hidden_env.clone(),
                world: context.commands.clone(),
                own_env: Secrets(
                    own.filter_map(|name| Some((name.clone(), env.0.get(name)?.clone())))
                        .collect(),
                ),
                mask: context.mask.clone(),
            },
            keeping: Arc::clone(&context.keeping),
            log: log_file(&context.agent_dir, &spec.name),
            call_limit: Duration::from_secs(u64::from(spec.timeout_seconds)),
            life: Mutex::new(Life {
                live: None,
                starts_left: limits::MCP_STARTS_MAX,
                why: String::new(),
            }),
        }
    }

    /// Starts it for the first time, and tells what it offers.
    async fn open(&self) -> Result<Vec<Found>, String> {
        let mut life = self.life.lock().await;
        self.start(&mut life).await
    }

    async fn start(&self, life: &mut Life) -> Result<Vec<Found>, String> {
        life.starts_left = life.starts_left.saturating_sub(1);
        let Lasting {
            stdin,
            stdout,
            stderr,
            held,
        } = start_lasting(&self.keeping, &self.recipe)?;
        let mut live = Live {
            session: Session::new(stdout, stdin),
            held,
            stderr: Stderr::follow(stderr, &self.log, &self.recipe.mask),
        };
        let limit = Duration::from_secs(limits::MCP_START_SECONDS);
        let greeted = match timeout(limit, greet(&mut live.session, &self.name)).await {
            Ok(greeted) => greeted.map_err(|fault| fault.to_string()),
            Err(_) => Err(format!("it did not answer within {limit:?}")),
        };
        match greeted {
            Ok(found) => {
                life.live = Some(live);
                Ok(found)
            }
            Err(why) => Err(epitaph(live, &why).await),
        }
    }

    /// Calls a tool by its name at the server, within a time.
    ///
    /// # Errors
    /// When the server says so, does not answer in time, or is gone.
    pub(super) async fn call(
        &self,
        tool: &str,
        arguments: Value,
        within: Duration,
    ) -> Result<Value, ToolError> {
        let limit = self.call_limit.min(within);
        let mut life = self.life.lock().await;
        if life.live.is_none() {
            self.start_again(&mut life).await?;
        }
        let Some(live) = life.live.as_mut() else {
            return Err(self.failed(&life.why));
        };
        let params = json!({"name": tool, "arguments": arguments});
        let asked = timeout(limit, live.session.request("tools/call", params)).await;
        match asked {
            Ok(Ok(result)) => Ok(result),
            Ok(Err(fault)) if !fault.is_final() => Err(self.failed(&fault.to_string())),
            Ok(Err(fault)) => Err(self.bury(&mut life, &fault.to_string()).await),
            Err(_) => {
                live.session.cancel_last("it took too long");
                let wait = Duration::from_millis(limits::MCP_CANCEL_MS);
                // One that does not even read is not spoken to again.
                if !matches!(timeout(wait, live.session.flush()).await, Ok(Ok(()))) {
                    return Err(self.bury(&mut life, "it does not read any more").await);
                }
                Err(ToolError::new(
                    ErrorCode::TimedOut,
                    format!(
                        "the MCP server `{}` did not answer within {limit:?}",
                        self.name
                    ),
                )
                .hint("what it was asked to do may have been done all the same"))
            }
        }
    }

    async fn start_again(&self, life: &mut Life) -> Result<(), ToolError> {
        if life.starts_left == 0 {
            return Err(self
                .failed(&life.why)
                .hint("it is not started again: go on without its tools"));
        }
        match self.start(life).await {
            Ok(_) => Ok(()),
            Err(why) => {
                life.why = why;
                Err(self.failed(&life.why))
            }
        }
    }

    /// Takes a server away that is of no use any more.
    async fn bury(&self, life: &mut Life, why: &str) -> ToolError {
        if let Some(live) = life.live.take() {
            life.why = epitaph(live, why).await;
        }
        tracing::warn!(server = self.name, why = life.why, "an MCP server is gone");
        let hint = match life.starts_left {
            0 => "it is not started again: go on without its tools",
            _ => "what it was asked to do may have been done; the next call starts it once more",
        };
        self.failed(&life.why).hint(hint)
    }

    fn failed(&self, why: &str) -> ToolError {
        let message = format!("the MCP server `{}` failed: {why}", self.name);
        ToolError::new(ErrorCode::McpFailed, message)
    }

    async fn end(&self) {
        let mut life = self.life.lock().await;
        life.starts_left = 0;
        life.why = "its agent is at its end".to_owned();
        if let Some(live) = life.live.take() {
            live.held.end().await;
        }
    }
}

fn log_file(agent_dir: &Path, server: &str) -> PathBuf {
    agent_dir.join(format!("mcp_{server}.log"))
}

/// Ends a server, and says why with the last that it wrote.
async fn epitaph(live: Live, why: &str) -> String {
    drop(live.session);
    let refused = live.held.end().await;
    let words = live.stderr.last_words().await;
    let why = refused.unwrap_or_else(|| why.to_owned());
    match words.is_empty() {
        true => why,
        false => format!("{why}; the last that it wrote: {words}"),
    }
}

/// Says hello, and asks for the tools.
async fn greet(session: &mut Session<Receiver, Sender>, server: &str) -> Result<Vec<Found>, Fault> {
    let hello = json!({
        "protocolVersion": REVISION,
        "capabilities": {},
        "clientInfo": {"name": "muster", "version": env!("CARGO_PKG_VERSION")},
    });
    let welcome = session.request("initialize", hello).await?;
    let revision = welcome["protocolVersion"].as_str().unwrap_or("none");
    if !UNDERSTOOD.contains(&revision) {
        let known = UNDERSTOOD.join(", ");
        let why = format!("it speaks revision {revision} of the protocol, and not one of {known}");
        return Err(Fault::Odd(why));
    }
    session.notify("notifications/initialized", json!({}));
    if welcome["capabilities"]["tools"].is_null() {
        session.flush().await?;
        return Ok(Vec::new());
    }
    offer::list(session, server).await
}
