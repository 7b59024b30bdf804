//! Starts a conversation: everything that can be wrong is found here, before any agent.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use confine::probe::{Probe, ProbeError};
use confine::report::Rung;
use protocol::config::{self, RequiredRung, RetentionSettings};
use protocol::secret::{Mask, known_values};
use protocol::status::Language;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;

use crate::core::record::Record;
use crate::core::supervisor::{Admission, SupervisorConfig};
use crate::core::{Supervisor, record};
use crate::driver::agents::Agents;
use crate::driver::asked::{Asked, word_of};
use crate::driver::config::{DriverConfig, StartError};
use crate::driver::creating::{Creating, new_conversation};
use crate::driver::effects::EffectQueue;
use crate::driver::event_log::EventLog;
use crate::driver::handle::{ConversationInfo, Handle};
use crate::driver::places;
use crate::driver::plan::{Ground, Texts};
use crate::driver::request::REQUESTS_WAITING_MAX;
use crate::driver::state::{CHILD_EVENTS_MAX, Ending, Secrets, Sources, State};
use crate::driver::tickets::Tickets;
use crate::driver::watchdog::Watchdog;
use crate::driver::work::{WORK_WAITING_MAX, Workshop};
use crate::os::clock::{self, Clock};
use crate::os::files::Dir;
use crate::os::identity;
use crate::os::programs::{JAIL_VARIABLE, Programs};
use crate::os::rung::{self, Wanted};
use crate::os::spawn::secret_variables;
use crate::settings::{Variables, own_places};
use crate::store::recover::recover_all;
use crate::store::retention::sweep;
use crate::store::{git_exclude, prompts};

pub use crate::store::recover::RUNS_DIR;

/// Starts conversations.
#[derive(Debug)]
pub struct Driver;

impl Driver {
    /// Starts a conversation in the present runtime: checks the executables, makes and locks the
    /// run's folder, opens its log. The task ends after [`Handle::close`], or once every handle is
    /// gone; it stops every agent before.
    ///
    /// # Errors
    /// With the first thing that would make every agent fail.
    pub async fn start(config: DriverConfig) -> Result<(Handle, JoinHandle<()>), StartError> {
        let workspace = usable_workspace(&config.workspace)?;
        let programs = programs(&config);
        programs.check()?;
        let wanted = Wanted::of(&config.settings);
        let look = Look::begin(&wanted, &programs);
        close_dead_runs(&workspace).await;
        remove_old_runs(&workspace, config.settings.retention).await;
        let texts = texts(&config, &workspace)?;
        // A machine that holds too little is refused before anything is made.
        let found = look.end().await?;
        let conversation = config.conversation.clone().unwrap_or_else(new_conversation);
        let run_dir = workspace.join(RUNS_DIR).join(conversation.as_str());
        make_run_dir(&workspace, &run_dir)?;
        make_cache_dir(&workspace);
        let failed = |why: String| StartError::Log {
            path: run_dir.clone(),
            why,
        };
        let secrets = secrets(&config);
        let mut log = EventLog::open(run_dir.clone(), secrets.mask.clone()).map_err(failed)?;
        let version = env!("CARGO_PKG_VERSION");
        let first = record::Record::run_started(conversation.clone(), version, workspace.clone());
        begin(&mut log, first).await.map_err(failed)?;
        if let Err(error) = git_exclude::exclude(&workspace) {
            tracing::warn!(%error, "our folders could not be put into the repository's info/exclude");
        }
        let asked = Asked::of(wanted, &config.settings.job_confinement());
        let measure = found.map(|found| word_of(found.confinement.rung));
        let info = ConversationInfo {
            conversation: conversation.clone(),
            workspace: workspace.clone(),
            run_dir,
        };
        let ground = Ground {
            conversation,
            workspace,
            settings: config.settings.clone(),
            environment: config.environment.clone(),
            texts,
            system: identity::system_text(),
        };
        let core = Supervisor::new(supervisor_config(&ground, measure));
        let parts = (programs, asked, core, secrets);
        Ok(launch(config, ground, parts, log, info))
    }
}

/// Before any agent of this run can take a directory of theirs.
async fn close_dead_runs(workspace: &Path) {
    let workspace = workspace.to_path_buf();
    let closed = tokio::task::spawn_blocking(move || recover_all(&workspace)).await;
    for run in closed.unwrap_or_default() {
        tracing::info!(
            conversation = %run.conversation,
            agents = run.ends.len(),
            "closed a run whose leader had died"
        );
    }
}

/// After the dead runs were closed, so that what is removed has its end written down.
async fn remove_old_runs(workspace: &Path, rules: RetentionSettings) {
    let workspace = workspace.to_path_buf();
    let sweeping =
        tokio::task::spawn_blocking(move || sweep(&workspace, rules, clock::unix_seconds()));
    if let Err(error) = sweeping.await {
        tracing::error!(%error, "ended runs could not be looked at");
    }
}

async fn begin(log: &mut EventLog, first: Record) -> Result<(), String> {
    log.append(Box::new(first)).await;
    while log.is_waiting() {
        log.progress().await;
    }
    match log.failure() {
        Some(why) => Err(why.to_owned()),
        None => Ok(()),
    }
}

fn launch(
    config: DriverConfig,
    ground: Ground,
    (programs, asked, core, known): (Programs, Asked, Supervisor, Secrets),
    log: EventLog,
    info: ConversationInfo,
) -> (Handle, JoinHandle<()>) {
    let (requests, requests_in) = mpsc::channel(REQUESTS_WAITING_MAX);
    let (child_events, children) = mpsc::channel(CHILD_EVENTS_MAX);
    let (outcomes_out, outcomes) = mpsc::channel(WORK_WAITING_MAX);
    let (closed_out, closed) = watch::channel(false);
    let hidden_variables = secret_variables(
        key_names(&config).map(str::to_owned),
        &config.settings.env_allow,
    );
    let pairs = config.environment.pairs();
    let variables: Variables = pairs
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect();
    let state = State {
        core,
        ground: Arc::new(ground),
        programs,
        asked,
        hidden_variables,
        secrets: places::secrets(
            config.environment.get("HOME").map(PathBuf::from).as_deref(),
            &config.settings.secret_paths,
        ),
        own_places: own_places(&variables)
            .into_iter()
            .map(|path| path.canonicalize().unwrap_or(path))
            .collect(),
        known,
        keep_fd: config.keep_fd,
        reserved_numbers: config.reserved_numbers,
        clock: Clock::start(),
        log,
        agents: Agents::default(),
        tickets: Tickets::default(),
        creating: Creating::default(),
        queue: EffectQueue::default(),
        ending: Ending::default(),
        workshop: Workshop::new(outcomes_out),
        watchdog: Watchdog::start(child_events.clone()),
        child_events,
        inputs: std::collections::VecDeque::new(),
    };
    let sources = Sources {
        requests: requests_in,
        children,
        outcomes,
    };
    let task = tokio::spawn(state.run(sources, closed_out));
    (Handle::new(requests, info, closed), task)
}

/// The variables in which models and the search engine have their keys.
fn key_names(config: &DriverConfig) -> impl Iterator<Item = &str> {
    let settings = &config.settings;
    let search = settings.web.as_ref().and_then(|web| web.search.as_ref());
    let models = settings.models.values();
    models
        .filter_map(|model| model.api_key_env.as_deref())
        .chain(search.and_then(|search| search.api_key_env.as_deref()))
}

/// What this leader knows and nobody is to read: the keys of all models and whatever else in its
/// environment is called like a secret.
fn secrets(config: &DriverConfig) -> Secrets {
    let servers = config.settings.mcp.iter();
    let given = servers.flat_map(|server| server.env.iter().map(String::as_str));
    let named: Vec<&str> = key_names(config).chain(given).collect();
    let exists = |path: &str| Path::new(path).exists();
    let values = known_values(config.environment.pairs(), &named, &exists);
    Secrets {
        mask: Mask::of(&values),
        values,
    }
}

fn usable_workspace(path: &Path) -> Result<PathBuf, StartError> {
    let failed = |source| StartError::Workspace {
        path: path.to_path_buf(),
        source,
    };
    let workspace = std::fs::canonicalize(path).map_err(failed)?;
    if !workspace.is_dir() {
        return Err(failed(std::io::ErrorKind::NotADirectory.into()));
    }
    Ok(workspace)
}

fn programs(config: &DriverConfig) -> Programs {
    let variable = |name: &str| match (&config.jail_bin, name) {
        (Some(jail), JAIL_VARIABLE) => Some(jail.to_string_lossy().into_owned()),
        (Some(_) | None, name) => config.environment.get(name),
    };
    Programs::around(config.worker_bin.as_deref(), &config.workspace, variable)
}

/// A look at what the machine holds, which takes some milliseconds: a process escapes and is killed.
///
/// Only who requires a rung has it, before anything is made. For all others the jail of each agent
/// finds out by itself what can be had, and says so; the first one is what later ones are held to.
enum Look {
    /// Nothing is required.
    NotNeeded,
    /// It is under way, for agents that require so much.
    UnderWay(JoinHandle<Result<Probe, ProbeError>>, Rung),
}

impl Look {
    /// Begins to try out what the machine holds. Needs a running tokio runtime.
    fn begin(wanted: &Wanted, programs: &Programs) -> Look {
        if wanted.require == Rung::Group {
            return Look::NotNeeded;
        }
        let (jail, asked) = (programs.jail.clone(), wanted.clone());
        let looking = tokio::task::spawn_blocking(move || rung::find(&jail, &asked));
        Look::UnderWay(looking, wanted.require)
    }

    /// What was found, which is no less than what is required.
    async fn end(self) -> Result<Option<Probe>, StartError> {
        let Look::UnderWay(looking, require) = self else {
            return Ok(None);
        };
        // A fault in the look itself is no answer either.
        let found = looking.await.unwrap_or(Err(ProbeError::TooSlow));
        let found = found.map_err(StartError::Probe)?;
        match rung::shortfall(require, &found) {
            Some(short) => Err(StartError::Confinement(Box::new(short))),
            None => Ok(Some(found)),
        }
    }
}

fn texts(config: &DriverConfig, workspace: &Path) -> Result<Texts, StartError> {
    let folder = config
        .settings
        .prompts_dir
        .as_ref()
        .map(|folder| workspace.join(folder));
    let load = |language| {
        prompts::load(folder.as_deref(), language).map_err(|why| StartError::Prompts {
            path: folder.clone().unwrap_or_default(),
            why,
        })
    };
    Ok(Texts {
        zh: load(Language::Zh)?,
        en: load(Language::En)?,
    })
}

fn make_run_dir(workspace: &Path, run_dir: &Path) -> Result<(), StartError> {
    let relative = run_dir.strip_prefix(workspace).unwrap_or(run_dir);
    Dir::open(workspace)
        .and_then(|workspace| workspace.make_below(relative))
        .map(drop)
        .map_err(|source| StartError::RunDir {
            path: run_dir.to_path_buf(),
            source,
        })
}

/// The caches that the commands of all agents share. Without it they have none, and each jail
/// tells so.
fn make_cache_dir(workspace: &Path) {
    let made = Dir::open(workspace)
        .and_then(|workspace| workspace.make_below(Path::new(confine::files::CACHE_DIR)));
    if let Err(error) = made {
        tracing::warn!(%error, "no folder for caches could be made");
    }
}

fn supervisor_config(ground: &Ground, rung: Option<RequiredRung>) -> SupervisorConfig {
    let limits = &ground.settings.limits;
    let ms = |seconds: u32| u64::from(seconds) * 1_000;
    SupervisorConfig {
        conversation: ground.conversation.clone(),
        max_concurrent: limits.max_concurrent as usize,
        max_live: limits.max_live as usize,
        admission: match limits.admission {
            config::Admission::Reject => Admission::Reject,
            config::Admission::Queue => Admission::Queue,
        },
        start_timeout_ms: ms(limits.start_timeout_seconds),
        queue_timeout_ms: ms(limits.queue_timeout_seconds),
        answer_timeout_ms: ms(limits.answer_timeout_seconds),
        rung,
        texts: Arc::new(ground.texts.clone()),
    }
}
