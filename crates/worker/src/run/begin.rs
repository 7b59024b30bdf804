//! Begins a run: opens its record, its model and its tools, and lets the loop go.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use confine::files::CACHE_DIR;
use confine::report::NetworkReach;
use protocol::channel::{
    INITIALIZE, InitializeParams, InitializeResult, ModelAccess, PROTOCOL, WebKey, same_major,
};
use protocol::confinement::{NetworkMode, WriteMode};
use protocol::conversation::{Message, Role};
use protocol::job::JobSpec;
use protocol::limits::START_TIMEOUT_SECONDS;
use protocol::mcp::McpEnv;
use protocol::status::{Completion, StopReason};
use protocol::text::{FirstMessage, Prompts};
use protocol::tool::worker::Need;
use serde_json::Value;
use tokio::sync::mpsc;

use crate::core::policy::Policy;
use crate::core::tally::Prices;
use crate::core::turn::{Machine, Rules};
use crate::exit::{Ended, StartError, StopCause};
use crate::io::channel::{FromLeader, Leader};
use crate::io::clock::utc_now;
use crate::io::job::Job;
use crate::io::record::Record;
use crate::io::secrets;
use crate::io::signals::Signals;
use crate::model::{RunFacts, open};
use crate::run::agent::Agent;
use crate::run::report::Reporter;
use crate::run::surroundings::Surroundings;
use crate::run::toolbox::{Toolbox, offered};
use crate::run::watch::Watch;
use crate::tools::background::Background;
use crate::tools::command::{CommandWorld, Keeping};
use crate::tools::mcp::{Servers, Wanted};
use crate::tools::project::Project;
use crate::tools::skill::user_folder;
use crate::tools::web::Web;
use crate::tools::{ToolContext, list};

/// What a run is begun with.
#[derive(Debug)]
pub struct Start {
    /// The job with its texts.
    pub job: Job,
    /// The texts of its language.
    pub prompts: Prompts,
    /// The run's own folder, absolute.
    pub agent_dir: PathBuf,
    /// The handlers, installed long before.
    pub signals: Signals,
    /// Who is told.
    pub reporter: Reporter,
    /// What holds the processes of commands together.
    pub keeping: Arc<Keeping>,
}

/// Runs a worker that has no leader.
///
/// # Errors
/// When its record can't be begun.
pub async fn alone(
    start: Start,
    access: ModelAccess,
    web_key: Option<WebKey>,
) -> Result<Ended, StartError> {
    let within = Duration::from_secs(u64::from(start.job.spec.limits.timeout_seconds));
    let (mut around, job, prompts) = open_surroundings(start, None, within)?;
    around.hide(secrets::mask(&access, web_key.as_ref(), &[]));
    let keys = (access, web_key, McpEnv::default());
    Ok(work(around, job, prompts, keys, &[], None).await)
}

/// Runs a worker under a leader: says `initialize`, and gets its model and its time.
///
/// # Errors
/// When its record can't be begun.
pub async fn under_leader(
    start: Start,
    leader: Leader,
    events: mpsc::Receiver<FromLeader>,
) -> Result<Ended, StartError> {
    let within = Duration::from_secs(u64::from(START_TIMEOUT_SECONDS));
    // The record first: a leader that never answers finds it all the same.
    let (mut around, job, prompts) = open_surroundings(start, Some(events), within)?;
    let hello = leader.call(
        INITIALIZE,
        InitializeParams {
            protocol: PROTOCOL.to_owned(),
            worker_version: env!("CARGO_PKG_VERSION").to_owned(),
            commands: Some(around.keeping.told(commands_network(&job.spec))),
        },
    );
    let answer = around.watch.race(hello, None, |_, _, _| Ok(())).await;
    let answer = match answer {
        Ok(Ok(value)) => value,
        Ok(Err(error)) => {
            let why = error.to_string();
            return Ok(around.fail(why, StopReason::ProtocolError, None).await);
        }
        Err(StopCause::Deadline) => {
            let why = format!("the leader did not answer `{INITIALIZE}` in {within:?}");
            return Ok(around.fail(why, StopReason::StartTimeout, None).await);
        }
        Err(cause) => {
            let reason = cause.reason();
            return Ok(around.fail(String::new(), reason, Some(cause)).await);
        }
    };
    let welcome = match understand(answer) {
        Ok(welcome) => welcome,
        Err(why) => return Ok(around.fail(why, StopReason::ProtocolError, None).await),
    };
    around.watch.restart(welcome.remaining_ms);
    let keys = (welcome.model, welcome.web_key, welcome.mcp_env);
    around.hide(secrets::mask(&keys.0, keys.1.as_ref(), &welcome.secrets));
    Ok(work(around, job, prompts, keys, &welcome.tools, Some(leader)).await)
}

fn understand(answer: Value) -> Result<InitializeResult, String> {
    // The version first: a newer shape would only give a riddle about some field.
    let theirs = answer["protocol"].as_str().unwrap_or("none").to_owned();
    if !same_major(PROTOCOL, &theirs) {
        return Err(format!(
            "the leader speaks version {theirs} of the channel and this worker {PROTOCOL}; use \
             a leader and a worker of the same release"
        ));
    }
    serde_json::from_value(answer)
        .map_err(|error| format!("the answer to `{INITIALIZE}` has not its shape: {error}"))
}

fn open_surroundings(
    start: Start,
    events: Option<mpsc::Receiver<FromLeader>>,
    within: Duration,
) -> Result<(Surroundings, Job, Prompts), StartError> {
    let watch = Watch::start(start.signals, events, within);
    let record = Record::begin(&start.job.spec, &start.agent_dir, utc_now(), watch.now_ms())
        .map_err(|error| {
            StartError::new(error.to_string())
                .hint("the worker keeps its record there: it must be writable and not full")
        })?;
    let around = Surroundings {
        agent_dir: start.agent_dir,
        record,
        watch,
        reporter: start.reporter,
        keeping: start.keeping,
    };
    Ok((around, start.job, start.prompts))
}

async fn work(
    mut around: Surroundings,
    job: Job,
    prompts: Prompts,
    (access, web_key, mcp_env): (ModelAccess, Option<WebKey>, McpEnv),
    served: &[Value],
    leader: Option<Leader>,
) -> Ended {
    let spec = &job.spec;
    let facts = RunFacts {
        agent_id: spec.agent_id,
        workspace: spec.workspace.clone(),
        deliverables_dir: spec.deliverables_dir.clone(),
        task: job.task.clone(),
    };
    let model = match open(&access, &facts) {
        Ok(model) => model,
        Err(error) => {
            return around
                .fail(error.message, StopReason::ModelError, None)
                .await;
        }
    };
    let project = look_around(&spec.workspace);
    for warning in &project.warnings {
        tracing::warn!(warning, "something of the workspace's own is left out");
        around.reporter.tell_people(&format!("warning: {warning}"));
    }
    let first = match around.record.conversation().messages.last() {
        None => first_messages(&job, &prompts, &project),
        // It had said something and called nothing: that is answered as ever.
        Some(last) if last.role == Role::Assistant => vec![Message::user(prompts.reminder())],
        Some(_) => Vec::new(),
    };
    let context = ToolContext {
        workspace: spec.workspace.clone(),
        deliverables_dir: spec.workspace.join(&spec.deliverables_dir),
        agent_dir: around.agent_dir.clone(),
        write_scope: write_scope(spec),
        prompts: Arc::new(prompts.clone()),
        commands: command_world(spec),
        hidden_env: hidden_env(&access, spec),
        mask: around.reporter.mask.clone(),
        keeping: Arc::clone(&around.keeping),
        background: Arc::new(Background::new()),
        vision: spec.has().contains(&Need::Vision),
        web: Arc::new(Web {
            spec: spec.web_in_reach().cloned(),
            key: web_key.map(|WebKey(key)| key),
        }),
        skills: Arc::clone(&project.skills),
    };
    let mut servers = match start_servers(&mut around, spec, mcp_env, &context).await {
        Ok(servers) => servers,
        Err(cause) => {
            let reason = cause.reason();
            return around.fail(String::new(), reason, Some(cause)).await;
        }
    };
    let mut offered = offered(&prompts, &spec.tools, &has(spec, &project), served);
    let policy = Policy::new(
        spec.tools.iter().map(String::as_str),
        served.iter().filter_map(|tool| tool["name"].as_str()),
    )
    .with_alone(servers.offered.iter().map(|tool| tool.name.as_str()));
    offered.extend(servers.offered.iter().cloned());
    let rules = Rules {
        completion: completion(spec, leader.is_some()),
        max_turns: spec.limits.max_turns,
        max_total_tokens: spec.limits.max_total_tokens,
        context_tokens: access.spec.context_tokens,
        prices: Prices::of(&access.spec),
    };
    let machine = Machine::new(rules, policy, prompts, spec.display_name.clone());
    let mut own = list::all();
    own.extend(servers.take_tools());
    let toolbox = Toolbox {
        own,
        leader,
        context,
        servers,
    };
    Agent::new(around, machine, model, offered, toolbox, spec)
        .run(first)
        .await
}

/// Starts the MCP servers of the job; nothing where it has none.
///
/// # Errors
/// What ends the run meanwhile.
async fn start_servers(
    around: &mut Surroundings,
    spec: &JobSpec,
    env: McpEnv,
    context: &ToolContext,
) -> Result<Servers, StopCause> {
    if spec.mcp.is_empty() {
        return Ok(Servers::default());
    }
    let wanted = Wanted {
        servers: spec.mcp.clone(),
        granted: spec.tools.clone(),
        env,
    };
    let starting = Servers::start(&wanted, context);
    let servers = around.watch.race(starting, None, |_, _, _| Ok(())).await?;
    for warning in &servers.warnings {
        tracing::warn!(warning, "the agent goes on without an MCP server");
        around.reporter.tell_people(&format!("warning: {warning}"));
    }
    Ok(servers)
}

/// What the file tools let it write; empty means the whole workspace.
fn write_scope(spec: &JobSpec) -> Vec<PathBuf> {
    let given = spec
        .write_paths
        .iter()
        .map(|path| spec.workspace.join(path))
        .collect::<Vec<_>>();
    match (spec.confinement.write, given.is_empty()) {
        // The deliverables dir is open in any case; named here, it is all there is.
        (WriteMode::Scope, true) => vec![spec.workspace.join(&spec.deliverables_dir)],
        (WriteMode::Scope | WriteMode::Workspace, _) => given,
    }
}

/// What commands find around them. Without a leader nothing holds their writes, so they keep the
/// caches of the user.
fn command_world(spec: &JobSpec) -> CommandWorld {
    CommandWorld {
        env_allow: spec.confinement.env_allow.clone(),
        caches: spec
            .conversation
            .is_some()
            .then(|| spec.workspace.join(CACHE_DIR)),
        network: commands_network(spec),
    }
}

/// What commands are to reach of the network.
pub fn commands_network(spec: &JobSpec) -> NetworkReach {
    match spec.confinement.network {
        NetworkMode::Full => NetworkReach::Full,
        NetworkMode::Model | NetworkMode::None => NetworkReach::Loopback,
    }
}

/// Nobody can wake an idle agent that has no leader: its text is its end.
fn completion(spec: &JobSpec, has_leader: bool) -> Completion {
    match spec.completion {
        Completion::Idle if !has_leader => Completion::FinalText,
        completion => completion,
    }
}

/// The variables that hold keys of this run.
fn hidden_env(access: &ModelAccess, spec: &JobSpec) -> Vec<String> {
    let search = spec.web.as_ref().and_then(|web| web.search.as_ref());
    let web = search.and_then(|search| search.api_key_env.clone());
    access.spec.api_key_env.iter().cloned().chain(web).collect()
}

/// What the workspace of a run brings along.
pub fn look_around(workspace: &Path) -> Project {
    let user = user_folder(|name| std::env::var_os(name).map(PathBuf::from));
    Project::find(workspace, user.as_deref())
}

/// What an agent has that tools may need.
pub fn has(spec: &JobSpec, project: &Project) -> Vec<Need> {
    let skills = (!project.skills.is_empty()).then_some(Need::Skills);
    spec.has().into_iter().chain(skills).collect()
}

/// What the conversation begins with: the system prompt with what the workspace brings along, and
/// the task.
pub fn first_messages(job: &Job, prompts: &Prompts, project: &Project) -> Vec<Message> {
    let spec = &job.spec;
    let first = prompts.first_message(&FirstMessage {
        agent_id: spec.agent_id,
        summary: &spec.summary,
        task: &job.task,
        deliverables_dir: &spec.deliverables_dir.to_string_lossy(),
        timeout_seconds: spec.limits.timeout_seconds,
        completion: spec.completion,
    });
    vec![
        Message::system(format!("{}{}", job.system_prompt, project.section(prompts))),
        Message::user(first),
    ]
}
