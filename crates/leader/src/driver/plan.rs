//! From the parameters of a create, the configuration and the texts to everything that an agent
//! is started with. Decides; touches nothing.

use std::path::{Path, PathBuf};

use protocol::channel::{ModelAccess, WebKey};
use protocol::config::{Settings, api_key, model_by_key, select_model, web_key};
use protocol::confinement::{NetworkMode, WriteMode};
use protocol::definition::Definition;
use protocol::error::{ErrorCode, ToolError};
use protocol::ids::{AgentId, ConversationId, TaskId};
use protocol::job::{JOB_FORMAT, JobLimits, JobSpec, ModelSpec, Provider};
use protocol::status::Language;
use protocol::text::{Prompts, SystemPrompt, WriteScope};
use protocol::tool::Params;
use protocol::tool::leader::{CreateSubAgentParams, person_agent_id, summary_warning};
use protocol::tool::worker::useful_tools;

use crate::driver::config::Environment;
use crate::driver::request::{CreateOrderRequest, Origin, ResumeRequest};

/// Characters of the task that stand for a missing summary.
const SUMMARY_CHARS: usize = 30;

/// The texts of both languages.
#[derive(Debug, Clone)]
pub struct Texts {
    /// Chinese.
    pub zh: Prompts,
    /// English.
    pub en: Prompts,
}

impl Texts {
    /// The texts of one language.
    pub fn of(&self, language: Language) -> &Prompts {
        match language {
            Language::Zh => &self.zh,
            Language::En => &self.en,
        }
    }
}

/// What all agents of a conversation share.
#[derive(Debug, Clone)]
pub struct Ground {
    /// The conversation.
    pub conversation: ConversationId,
    /// Absolute, links resolved.
    pub workspace: PathBuf,
    /// The resolved configuration.
    pub settings: Settings,
    /// Where models and their keys are looked for.
    pub environment: Environment,
    /// What agents read.
    pub texts: Texts,
    /// The system as agents are told it, such as `Linux 6.12 x86_64`.
    pub system: String,
}

/// What is new with each agent.
#[derive(Debug, Clone)]
pub struct Identity {
    /// Its number.
    pub agent_id: AgentId,
    /// Which run.
    pub task_id: TaskId,
    /// Its own conversation.
    pub sub_conversation_id: ConversationId,
    /// RFC 3339, UTC.
    pub created_at: String,
    /// The same moment as the agent is told it.
    pub spoken_time: String,
}

/// Everything that an agent is started with.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The spawn spec.
    pub job: JobSpec,
    /// The task's text.
    pub task: String,
    /// The system prompt.
    pub system_prompt: String,
    /// The model with its key, for the answer to `initialize`.
    pub access: ModelAccess,
    /// The key of the search engine, for the same answer.
    pub web_key: Option<WebKey>,
    /// Earlier runs of the same agent, any of which the journal in its folder may be of; empty
    /// for one that is not resumed.
    pub earlier: Vec<TaskId>,
    /// What is odd about the call.
    pub warnings: Vec<String>,
}

/// Checks the parameters that need neither a number nor the file system.
///
/// # Errors
/// When one is out of its range, or names a role or model that is not known.
pub fn check(
    order: &CreateOrderRequest,
    settings: &Settings,
    environment: &Environment,
) -> Result<(), ToolError> {
    let params = &order.params;
    match order.origin {
        Origin::Tool => params.check()?,
        Origin::Person => {
            params.agent_id.map(person_agent_id).transpose()?;
            params.check_all_but_number()?;
        }
    }
    if let Some(role) = &params.role_id {
        return Err(ToolError::new(
            ErrorCode::UnknownRole,
            format!("there is no agent definition `{role}`; this version has none"),
        )
        .hint("leave `role_id` out: the agent then has all tools"));
    }
    timeout_seconds(params, order.origin, settings)?;
    model(params, order.origin, settings, environment).map(drop)
}

/// Makes the plan of one agent. `deliverables_dir` and `write_paths` are relative to the
/// workspace with their links resolved.
///
/// # Errors
/// As [`check`].
pub fn plan(
    order: &CreateOrderRequest,
    ground: &Ground,
    identity: Identity,
    deliverables_dir: PathBuf,
    write_paths: Vec<PathBuf>,
) -> Result<Plan, ToolError> {
    let params = &order.params;
    let settings = &ground.settings;
    check(order, settings, &ground.environment)?;
    let definition = Definition::implicit();
    let summary = match &params.summary {
        Some(summary) => summary.trim().to_owned(),
        None => params.task.trim().chars().take(SUMMARY_CHARS).collect(),
    };
    let language = settings.language.for_agent(&summary, &params.task);
    let texts = ground.texts.of(language);
    let access = model(params, order.origin, settings, &ground.environment)?;
    let job = JobSpec {
        format: JOB_FORMAT,
        conversation: Some(ground.conversation.clone()),
        sub_conversation_id: identity.sub_conversation_id,
        agent_id: identity.agent_id,
        task_id: identity.task_id,
        role_id: None,
        display_name: texts.display_name(definition.name.as_deref(), identity.agent_id),
        language,
        workspace: ground.workspace.clone(),
        deliverables_dir,
        write_paths,
        completion: definition.completion,
        tools: JobSpec::grants(definition.tools, &settings.mcp),
        model: access.spec.for_the_record(),
        limits: JobLimits {
            timeout_seconds: timeout_seconds(params, order.origin, settings)?,
            max_turns: match params.max_turns {
                Some(turns) => u32::try_from(turns).unwrap_or(definition.max_turns),
                None => definition.max_turns,
            },
            grace_seconds: settings.limits.grace_seconds,
            answer_timeout_seconds: settings.limits.answer_timeout_seconds,
            max_total_tokens: settings.limits.max_total_tokens,
            caps: settings.caps(),
        },
        confinement: settings.job_confinement(),
        web: settings.web.clone(),
        mcp: settings.mcp.clone(),
        prompts_dir: settings
            .prompts_dir
            .as_ref()
            .map(|folder| ground.workspace.join(folder)),
        created_at: identity.created_at,
        attempt: 1,
        resumes: None,
        item: order.item.as_ref().map(|item| item.tag.clone()),
        summary,
    };
    let system_prompt = system_prompt(&job, ground, &identity.spoken_time);
    Ok(Plan {
        // Whoever types a task for one run need not hear how summaries read best in lists.
        warnings: match order.origin {
            Origin::Tool => summary_warning(&job.summary).into_iter().collect(),
            Origin::Person => Vec::new(),
        },
        task: match &order.item {
            Some(item) => texts.task_that_builds_on(&params.task, &item.builds_on),
            None => params.task.clone(),
        },
        system_prompt,
        access,
        web_key: search_key(ground)?,
        earlier: Vec::new(),
        job,
    })
}

/// Makes the plan of an agent that takes up an earlier run of its own: the same number, place and
/// grants, a new run with a deadline of its own. `deliverables_dir` and `write_paths` as in
/// [`plan`].
///
/// # Errors
/// When its model is not configured any more, or the deadline is out of range.
pub fn plan_again(
    order: &ResumeRequest,
    ground: &Ground,
    (task_id, created_at, spoken_time): (TaskId, String, &str),
    deliverables_dir: PathBuf,
    write_paths: Vec<PathBuf>,
) -> Result<Plan, ToolError> {
    let settings = &ground.settings;
    let access = model_again(order, ground)?;
    let wanted = CreateSubAgentParams {
        timeout_seconds: Some(i64::from(
            order
                .timeout_seconds
                .unwrap_or(order.job.limits.timeout_seconds),
        )),
        ..CreateSubAgentParams::default()
    };
    let job = JobSpec {
        format: JOB_FORMAT,
        conversation: Some(ground.conversation.clone()),
        workspace: ground.workspace.clone(),
        deliverables_dir,
        write_paths,
        model: access.spec.for_the_record(),
        limits: JobLimits {
            timeout_seconds: timeout_seconds(&wanted, Origin::Person, settings)?,
            max_turns: order.job.limits.max_turns,
            grace_seconds: settings.limits.grace_seconds,
            answer_timeout_seconds: settings.limits.answer_timeout_seconds,
            max_total_tokens: settings.limits.max_total_tokens,
            caps: settings.caps(),
        },
        confinement: settings.job_confinement(),
        web: settings.web.clone(),
        mcp: settings.mcp.clone(),
        prompts_dir: settings
            .prompts_dir
            .as_ref()
            .map(|folder| ground.workspace.join(folder)),
        created_at,
        attempt: order.job.attempt.saturating_add(1),
        resumes: Some(order.job.task_id.clone()),
        task_id,
        ..order.job.clone()
    };
    Ok(Plan {
        system_prompt: system_prompt(&job, ground, spoken_time),
        task: order.task.clone(),
        access,
        web_key: search_key(ground)?,
        earlier: order.earlier.clone(),
        warnings: Vec::new(),
        job,
    })
}

/// The model of a resumed agent: the one that is named now, else the configured one of the same
/// key. Where a key is sent to is never taken from a log.
fn model_again(order: &ResumeRequest, ground: &Ground) -> Result<ModelAccess, ToolError> {
    let variable = |name: &str| ground.environment.get(name);
    let settings = &ground.settings;
    let key = &order.job.model.key;
    let found = match &order.model {
        Some(named) => select_model(settings, Some(named), &variable),
        None => model_by_key(settings, key).or_else(|error| {
            select_model(settings, None, &variable)
                .ok()
                .filter(|spec| spec.key == *key)
                .ok_or(error)
        }),
    };
    let spec = found.map_err(|error| {
        error
            .to_tool_error()
            .hint("name the model that it is to go on with: `leader resume N --model MODEL`")
    })?;
    check_reach(&spec, settings)?;
    let api_key = api_key(&spec, &variable).map_err(|error| error.to_tool_error())?;
    Ok(ModelAccess {
        spec: ModelSpec {
            thinking_mode: order.job.model.thinking_mode.or(spec.thinking_mode),
            ..spec
        },
        api_key,
    })
}

/// The key of the search engine, read anew for each agent as its model's is.
fn search_key(ground: &Ground) -> Result<Option<WebKey>, ToolError> {
    let variable = |name: &str| ground.environment.get(name);
    web_key(ground.settings.web.as_ref(), &variable).map_err(|error| error.to_tool_error())
}

fn system_prompt(job: &JobSpec, ground: &Ground, spoken_time: &str) -> String {
    let paths: Vec<String> = job.write_paths.iter().map(|path| text_of(path)).collect();
    ground.texts.of(job.language).system_prompt(&SystemPrompt {
        display_name: &job.display_name,
        workspace: &text_of(&job.workspace),
        system: &ground.system,
        current_time: spoken_time,
        deliverables_dir: &text_of(&job.deliverables_dir),
        tools: &useful_tools(&job.tools, &job.has()),
        write_scope: match (job.confinement.write, paths.is_empty()) {
            (WriteMode::Workspace, true) => WriteScope::Workspace,
            (WriteMode::Workspace, false) | (WriteMode::Scope, _) => WriteScope::Paths(&paths),
        },
        completion: job.completion,
    })
}

fn text_of(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

/// The deadline: what a model may ask for is narrower than what a person may.
fn timeout_seconds(
    params: &CreateSubAgentParams,
    origin: Origin,
    settings: &Settings,
) -> Result<u32, ToolError> {
    let limits = &settings.limits;
    let least = match origin {
        Origin::Person => 1,
        Origin::Tool => limits.timeout_seconds_min,
    };
    let most = limits.timeout_seconds_max;
    match params.timeout_seconds {
        None => Ok(limits.timeout_seconds_default()),
        Some(seconds) => u32::try_from(seconds)
            .ok()
            .filter(|seconds| (least..=most).contains(seconds))
            .ok_or_else(|| {
                ToolError::new(
                    ErrorCode::InvalidParameters,
                    format!("`timeout_seconds` must be {least} to {most}, not {seconds}"),
                )
            }),
    }
}

/// The model and its key. A model may choose among the configured keys alone: with a URL it could
/// have a key sent to a server of its choice.
fn model(
    params: &CreateSubAgentParams,
    origin: Origin,
    settings: &Settings,
    environment: &Environment,
) -> Result<ModelAccess, ToolError> {
    let variable = |name: &str| environment.get(name);
    let wanted = params.model_key.as_deref();
    let found = match (wanted, origin) {
        (Some(key), Origin::Tool) => model_by_key(settings, key),
        (wanted, Origin::Person | Origin::Tool) => select_model(settings, wanted, &variable),
    };
    let spec: ModelSpec = found.map_err(|error| error.to_tool_error())?;
    check_reach(&spec, settings)?;
    let api_key = api_key(&spec, &variable).map_err(|error| error.to_tool_error())?;
    Ok(ModelAccess {
        spec: ModelSpec {
            thinking_mode: params.thinking_mode.or(spec.thinking_mode),
            ..spec
        },
        api_key,
    })
}

/// A worker without any network reaches no server, one on this machine included: its loopback is
/// its own.
fn check_reach(spec: &ModelSpec, settings: &Settings) -> Result<(), ToolError> {
    match (settings.network, spec.provider) {
        (NetworkMode::Full | NetworkMode::Model, _) | (NetworkMode::None, Provider::Script) => {
            Ok(())
        }
        (NetworkMode::None, Provider::Openai | Provider::Anthropic) => Err(ToolError::new(
            ErrorCode::InvalidParameters,
            format!(
                "`confinement.network` is \"none\", and with it the model `{}` at {} can't be reached",
                spec.key, spec.base_url
            ),
        )
        .hint(
            "use `network = \"model\"`: the worker talks to its model, and its commands have no \
             network; \"none\" is for scripted models",
        )),
    }
}

#[cfg(test)]
#[path = "plan_tests.rs"]
mod tests;
