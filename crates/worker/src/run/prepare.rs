//! From a command line to a job: everything that a leader would have decided.

use std::path::{Path, PathBuf};

use confine::report::Rung;
use protocol::channel::{ModelAccess, WebKey};
use protocol::config::{Flag, RequiredRung, Settings};
use protocol::definition::Definition;
use protocol::ids::{AgentId, ConversationId, TaskId};
use protocol::job::{
    JOB_FILE, JOB_FORMAT, JobLimits, JobSpec, Provider, SYSTEM_PROMPT_FILE, TASK_FILE,
};
use protocol::limits::{SUMMARY_CHARS_MAX, SUMMARY_CHARS_WANTED, TASK_BYTES_MAX};
use protocol::place::default_deliverables_dir;
use protocol::status::ThinkingMode;
use protocol::text::{Prompts, SystemPrompt, WriteScope};
use protocol::tool::worker::useful_tools;
use uuid::Uuid;

use crate::exit::StartError;
use crate::io::files::{Durability, FileError, replace};
use crate::io::job::{Job, SYSTEM_PROMPT_BYTES_MAX, read_text, set_aside};
use crate::io::place::{self, Reuse};
use crate::io::{clock, prompts, settings};

/// What a person asked for on the command line; what is none was left open.
#[derive(Debug, Clone)]
pub struct Wanted {
    /// The task's file.
    pub task_file: PathBuf,
    /// A system prompt of the person's own.
    pub system_prompt_file: Option<PathBuf>,
    /// Where to work.
    pub workspace: PathBuf,
    /// Where to deliver.
    pub deliverables_dir: Option<PathBuf>,
    /// Whether it may hold something.
    pub reuse: Reuse,
    /// The agent's number.
    pub agent_id: Option<AgentId>,
    /// What it is to do, in a few words.
    pub summary: Option<String>,
    /// Which model.
    pub model: Option<String>,
    /// How hard it is to think.
    pub thinking_mode: Option<ThinkingMode>,
    /// The deadline.
    pub timeout_seconds: Option<u32>,
    /// Answers of the model.
    pub max_turns: Option<u32>,
    /// In which language the agent is spoken to.
    pub lang: Option<String>,
}

/// A run that is ready to begin.
#[derive(Debug)]
pub struct Prepared {
    /// The job with its texts.
    pub job: Job,
    /// The texts of its language.
    pub prompts: Prompts,
    /// Its model with the key.
    pub access: ModelAccess,
    /// The key of the search engine.
    pub web_key: Option<WebKey>,
    /// The highest rung that commands may be held on.
    pub highest: Rung,
    /// What is odd, for people and for the result.
    pub warnings: Vec<String>,
}

impl Prepared {
    /// Makes the run's folder and writes what it is started with into it.
    ///
    /// # Errors
    /// When that can't be written.
    pub fn lay_out(&self) -> Result<PathBuf, StartError> {
        let spec = &self.job.spec;
        let dir = place::make_deliverables(&spec.workspace, &spec.deliverables_dir)?;
        let job = serde_json::to_vec_pretty(spec)
            .map_err(|error| StartError::new(format!("the job can't be written: {error}")))?;
        set_aside(&dir).map_err(unwritable)?;
        for (name, bytes) in [
            (TASK_FILE, self.job.task.as_bytes()),
            (SYSTEM_PROMPT_FILE, self.job.system_prompt.as_bytes()),
            (JOB_FILE, &job),
        ] {
            replace(&dir, name, bytes, Durability::Process).map_err(unwritable)?;
        }
        Ok(dir)
    }
}

fn unwritable(error: FileError) -> StartError {
    StartError::new(error.to_string())
        .hint("the worker keeps its record there: the workspace must be writable and not full")
}

/// Decides everything that the command line left open. Nothing is written.
///
/// # Errors
/// When something that was asked for can't be.
pub fn prepare(wanted: &Wanted) -> Result<Prepared, StartError> {
    let task = read_text(&wanted.task_file, "task file", TASK_BYTES_MAX)?;
    let workspace = place::workspace(&wanted.workspace)?;
    let flags: Vec<Flag> = wanted
        .lang
        .iter()
        .map(|lang| Flag {
            flag: "--lang".to_owned(),
            key: "language".to_owned(),
            value: lang.clone(),
        })
        .collect();
    let settings = settings::load(&workspace, flags)?;
    let mut warnings = settings.warnings.clone();
    let access = model(wanted, &settings)?;
    let definition = Definition::implicit();
    let limits = limits(wanted, &settings, &definition)?;
    let summary = summary(wanted, &task, &mut warnings)?;
    let agent_id = match (wanted.agent_id, &wanted.deliverables_dir) {
        (Some(agent_id), _) => agent_id,
        (None, Some(_)) => AgentId::FIRST,
        (None, None) => place::free_number(&workspace)?,
    };
    let deliverables_dir = wanted
        .deliverables_dir
        .clone()
        .unwrap_or_else(|| default_deliverables_dir(agent_id, None));
    let deliverables_dir = place::check_deliverables(&workspace, &deliverables_dir, wanted.reuse)?;
    let language = settings.language.for_agent(&summary, &task);
    let prompts_dir = absolute(settings.prompts_dir.as_deref())?;
    let prompts = prompts::load(language, prompts_dir.as_deref())?;
    let spec = JobSpec {
        format: JOB_FORMAT,
        conversation: None,
        sub_conversation_id: new_id("conv_", ConversationId::new)?,
        agent_id,
        task_id: new_task_id()?,
        role_id: None,
        display_name: prompts.display_name(None, agent_id),
        summary,
        language,
        workspace,
        deliverables_dir,
        write_paths: Vec::new(),
        completion: definition.completion,
        tools: JobSpec::grants(definition.tools, &settings.mcp),
        model: access.spec.for_the_record(),
        limits,
        confinement: settings.job_confinement(),
        web: settings.web.clone(),
        mcp: settings.mcp.clone(),
        prompts_dir,
        created_at: clock::utc_now(),
        attempt: 1,
        resumes: None,
        item: None,
    };
    let system_prompt = match &wanted.system_prompt_file {
        Some(path) => read_text(path, "system prompt file", SYSTEM_PROMPT_BYTES_MAX)?,
        None => system_prompt(&spec, &prompts),
    };
    Ok(Prepared {
        job: Job {
            spec,
            task,
            system_prompt,
        },
        prompts,
        access,
        web_key: settings::web_key_of(settings.web.as_ref())?,
        highest: rung_of(settings.highest),
        warnings,
    })
}

/// A rung of the configuration as the jail knows it.
fn rung_of(word: RequiredRung) -> Rung {
    match word {
        RequiredRung::None | RequiredRung::Group => Rung::Group,
        RequiredRung::Subreaper => Rung::Subreaper,
        RequiredRung::Pidns => Rung::Pidns,
        RequiredRung::Cgroup2 => Rung::Cgroup2,
    }
}

/// The id of a run that begins.
///
/// # Errors
/// When none can be made.
pub fn new_task_id() -> Result<TaskId, StartError> {
    new_id("sub_", TaskId::new)
}

fn new_id<T, E: std::fmt::Display>(
    prefix: &str,
    make: impl Fn(String) -> Result<T, E>,
) -> Result<T, StartError> {
    make(format!("{prefix}{}", Uuid::now_v7())).map_err(|error| StartError::new(error.to_string()))
}

fn model(wanted: &Wanted, settings: &Settings) -> Result<ModelAccess, StartError> {
    let mut access = settings::find_model(settings, wanted.model.as_deref())?;
    if wanted.thinking_mode.is_some() {
        access.spec.thinking_mode = wanted.thinking_mode;
    }
    let named_here = wanted
        .model
        .as_deref()
        .is_some_and(|model| model.starts_with("script:"));
    if access.spec.provider == Provider::Script && named_here {
        // Paths on a command line are taken from where one stands; those of the configuration
        // from the workspace, and that is done where the script is read.
        let path = absolute(Some(Path::new(&access.spec.model)))?;
        access.spec.model = path
            .and_then(|path| path.into_os_string().into_string().ok())
            .ok_or_else(|| StartError::new("the path of the script is not UTF-8"))?;
    }
    Ok(access)
}

fn absolute(path: Option<&Path>) -> Result<Option<PathBuf>, StartError> {
    path.map(|path| {
        std::path::absolute(path)
            .map_err(|error| StartError::new(format!("`{}`: {error}", path.display())))
    })
    .transpose()
}

fn limits(
    wanted: &Wanted,
    settings: &Settings,
    definition: &Definition,
) -> Result<JobLimits, StartError> {
    let most = settings.limits.timeout_seconds_max;
    let timeout_seconds = wanted
        .timeout_seconds
        .unwrap_or_else(|| definition.timeout_seconds.min(most));
    if !(1..=most).contains(&timeout_seconds) {
        return Err(StartError::new(format!(
            "--timeout-seconds is {timeout_seconds}, and must be 1 to {most}"
        ))
        .hint("limits.timeout_seconds_max in the configuration sets the greatest"));
    }
    Ok(JobLimits {
        timeout_seconds,
        max_turns: wanted.max_turns.unwrap_or(definition.max_turns),
        grace_seconds: settings.limits.grace_seconds,
        answer_timeout_seconds: settings.limits.answer_timeout_seconds,
        max_total_tokens: settings.limits.max_total_tokens,
        caps: settings.caps(),
    })
}

fn summary(wanted: &Wanted, task: &str, warnings: &mut Vec<String>) -> Result<String, StartError> {
    let Some(summary) = &wanted.summary else {
        return Ok(first_words(task));
    };
    let chars = summary.chars().count();
    if summary.trim().is_empty() || chars > SUMMARY_CHARS_MAX {
        return Err(StartError::new(format!(
            "--summary has {chars} characters, and must have 1 to {SUMMARY_CHARS_MAX}"
        )));
    }
    if !SUMMARY_CHARS_WANTED.contains(&chars) {
        warnings.push(format!(
            "the summary has {chars} characters; {} to {} are wanted",
            SUMMARY_CHARS_WANTED.start(),
            SUMMARY_CHARS_WANTED.end()
        ));
    }
    Ok(summary.clone())
}

/// The beginning of a task as its summary: one line, without the marks of a heading.
fn first_words(task: &str) -> String {
    let line = task.split_whitespace().collect::<Vec<_>>().join(" ");
    let line = line.trim_start_matches(['#', ' ']);
    let line = if line.is_empty() { task.trim() } else { line };
    line.chars().take(*SUMMARY_CHARS_WANTED.end()).collect()
}

fn system_prompt(spec: &JobSpec, prompts: &Prompts) -> String {
    prompts.system_prompt(&SystemPrompt {
        display_name: &spec.display_name,
        workspace: &spec.workspace.to_string_lossy(),
        system: &system_name(),
        current_time: &clock::spoken_now(),
        deliverables_dir: &spec.deliverables_dir.to_string_lossy(),
        tools: &useful_tools(&spec.tools, &spec.has()),
        write_scope: WriteScope::Workspace,
        completion: spec.completion,
    })
}

/// Such as `Linux 6.12.1 x86_64`.
fn system_name() -> String {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    format!("Linux {} {}", release.trim(), std::env::consts::ARCH)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_summary_is_the_beginning_of_the_task() {
        assert_eq!(first_words("# Write\n\nthe API docs"), "Write the API docs");
        assert_eq!(first_words("###"), "###");
        assert_eq!(first_words(&"文".repeat(100)).chars().count(), 30);
    }
}
