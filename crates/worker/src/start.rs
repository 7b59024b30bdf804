//! From the process's start to its exit code.

use std::ffi::OsString;
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use confine::keeper::Client;
use confine::report::Rung;
use confine::shield::hide_this_process;
use protocol::exit;
use protocol::job::{AGENT_DIR, JOB_FILE};
use protocol::result::AgentResult;
use protocol::secret::Mask;
use serde_json::json;
use tracing::level_filters::LevelFilter;

use crate::check::check_model;
use crate::cli::{Cli, Mode, OutputFormat};
use crate::exit::StartError;
use crate::io::again::go_on;
use crate::io::channel::{open, take_standard_io};
use crate::io::files::ensure_dir;
use crate::io::hold::{Hold, refuse_ended};
use crate::io::job::{read_job, set_aside};
use crate::io::log::LogWriter;
use crate::io::signals::Signals;
use crate::io::{prompts, secrets, settings};
use crate::run::begin::{
    Start, alone, commands_network, first_messages, has, look_around, under_leader,
};
use crate::run::prepare::{Prepared, new_task_id, prepare};
use crate::run::report::{Output, Reporter};
use crate::run::result::{agent_result, tell_people};
use crate::run::toolbox::offered;
use crate::tools::command::{Keeping, highest_of_environment};

/// Threads for blocking work beside the one that runs everything else.
const BLOCKING_THREADS_MAX: usize = 1;

/// What was found of a keeper, or why its socket can't be used.
type Inherited = Result<Option<Client>, String>;

/// Runs the worker with these arguments, the program's name first.
pub fn main(arguments: Vec<OsString>) -> ExitCode {
    // Before the key comes, and before anything that could look at it is started.
    let hidden = hide_this_process();
    // Before anything can be started that would inherit the socket to the keeper.
    let keeper = Client::inherited().map_err(|error| error.to_string());
    let cli = match Cli::read(arguments) {
        Ok(cli) => cli,
        Err(error) => {
            // Help goes to stdout and a mistake to stderr; a closed pipe is nobody's fault.
            drop(error.print());
            let asked = !error.use_stderr();
            return ExitCode::from(if asked { exit::SUCCESS } else { exit::USAGE });
        }
    };
    // First thing, before a library can print: under a leader stdout is the channel.
    let channel = match cli.channel.map(|_| take_standard_io()).transpose() {
        Ok(channel) => channel,
        Err(error) => return refuse(&StartError::new(format!("no channel: {error}"))),
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(BLOCKING_THREADS_MAX)
        .build();
    let runtime = match runtime {
        Ok(runtime) => runtime,
        Err(error) => return refuse(&StartError::new(format!("no runtime: {error}"))),
    };
    let code = runtime.block_on(async {
        // A stop that comes while the worker starts must not kill it: the handlers come first.
        let signals = Signals::install()
            .map_err(|error| StartError::new(format!("no signal handlers: {error}")))?;
        start_log(&cli);
        if let Err(error) = &hidden {
            tracing::warn!(%error, "other processes of this user can look into this one");
        }
        run(&cli, channel, signals, keeper).await
    });
    // A blocking call that hangs, in a dead file system say, must not keep the process.
    runtime.shutdown_background();
    match code {
        Ok(code) => ExitCode::from(code),
        Err(error) => refuse(&error),
    }
}

fn refuse(error: &StartError) -> ExitCode {
    // When stderr is closed there is nobody left to tell.
    drop(io::stderr().write_all(error.lines().as_bytes()));
    ExitCode::from(exit::USAGE)
}

/// Logs go to stderr. Alone, people see progress there, so that only trouble is logged; under a
/// leader it is the worker's log.
fn start_log(cli: &Cli) {
    let plain = if cli.channel.is_some() {
        LevelFilter::INFO
    } else {
        LevelFilter::ERROR
    };
    let told = std::env::var("RUST_LOG")
        .ok()
        .and_then(|level| level.parse::<LevelFilter>().ok());
    let level = match (cli.quiet, cli.verbose) {
        (true, _) => LevelFilter::ERROR,
        (false, 0) => told.unwrap_or(plain),
        (false, 1) => LevelFilter::DEBUG,
        (false, _) => LevelFilter::TRACE,
    };
    // A second start in one process, as in tests, keeps the first log.
    drop(
        tracing_subscriber::fmt()
            .with_max_level(level)
            .with_writer(|| LogWriter)
            .try_init(),
    );
}

async fn run(
    cli: &Cli,
    channel: Option<(OwnedFd, OwnedFd)>,
    signals: Signals,
    keeper: Inherited,
) -> Result<u8, StartError> {
    match (cli.mode()?, channel) {
        (Mode::CheckModel, _) => check_model(&mut io::stdin().lock(), &mut io::stdout()).await,
        (Mode::Task(wanted), _) => {
            let prepared = prepare(&wanted)?;
            let keeping = find_keeping(keeper, prepared.highest).await;
            if cli.dry_run {
                return dry_run(&prepared, &keeping);
            }
            let agent_dir = prepared.lay_out()?;
            let held = Hold::take(&agent_dir.join(JOB_FILE))?;
            let code = run_alone(cli, prepared, agent_dir, signals, keeping).await;
            drop(held);
            code
        }
        (Mode::Job(path), _) | (Mode::Leader(path), None) => {
            job_alone(cli, &path, signals, keeper).await
        }
        (Mode::Leader(path), Some((input, output))) => {
            let (leader, events) = open(input, output)
                .map_err(|error| StartError::new(format!("no channel: {error}")))?;
            let held = Hold::take(&path)?;
            let (job, prompts, agent_dir) = take_job(&path)?;
            refuse_ended(&agent_dir, &job.spec.task_id)?;
            // A run that goes on finds its journal there, put in place by its leader.
            if job.spec.resumes.is_none() {
                make_ready(&agent_dir)?;
            }
            let keeping = find_keeping(keeper, highest_of_environment()).await;
            let start = Start {
                job,
                prompts,
                agent_dir,
                signals,
                reporter: Reporter {
                    leader: Some(leader.clone()),
                    ..Reporter::default()
                },
                keeping,
            };
            let ended = under_leader(start, leader, events).await?;
            drop(held);
            Ok(ended.exit_code())
        }
    }
}

/// Runs a job without a leader, anew or on from where its earlier run stopped.
async fn job_alone(
    cli: &Cli,
    path: &Path,
    signals: Signals,
    keeper: Inherited,
) -> Result<u8, StartError> {
    // Two workers in one folder would write over each other.
    let held = (!cli.dry_run).then(|| Hold::take(path)).transpose()?;
    let (mut job, prompts, agent_dir) = take_job(path)?;
    let access = settings::model_of_job(&job.spec)?;
    let web_key = settings::web_key_of(job.spec.web.as_ref())?;
    if cli.resume {
        go_on(&mut job.spec, &prompts, &agent_dir, new_task_id()?)?;
    } else if !cli.dry_run {
        make_ready(&agent_dir)?;
    }
    // The job file may be another one now.
    let held_anew = cli.resume.then(|| Hold::take(&agent_dir.join(JOB_FILE)));
    let held_anew = held_anew.transpose()?;
    let prepared = Prepared {
        job,
        prompts,
        access,
        web_key,
        highest: highest_of_environment(),
        warnings: Vec::new(),
    };
    let keeping = find_keeping(keeper, prepared.highest).await;
    if cli.dry_run {
        return dry_run(&prepared, &keeping);
    }
    let code = run_alone(cli, prepared, agent_dir, signals, keeping).await;
    drop((held, held_anew));
    code
}

async fn find_keeping(keeper: Inherited, highest: Rung) -> Arc<Keeping> {
    let keeping = Arc::new(Keeping::find(keeper, highest).await);
    if let Some(gap) = keeping.gap() {
        tracing::warn!(gap, "commands are not held as they should be");
    }
    keeping
}

fn take_job(
    path: &Path,
) -> Result<(crate::io::job::Job, protocol::text::Prompts, PathBuf), StartError> {
    let job = read_job(path)?;
    let prompts = prompts::load(job.spec.language, job.spec.prompts_dir.as_deref())?;
    let agent_dir = job
        .spec
        .workspace
        .join(&job.spec.deliverables_dir)
        .join(AGENT_DIR);
    Ok((job, prompts, agent_dir))
}

fn make_ready(agent_dir: &Path) -> Result<(), StartError> {
    ensure_dir(agent_dir)
        .and_then(|()| set_aside(agent_dir))
        .map_err(|error| {
            StartError::new(error.to_string()).hint("the worker keeps its record there")
        })
}

async fn run_alone(
    cli: &Cli,
    mut prepared: Prepared,
    agent_dir: PathBuf,
    signals: Signals,
    keeping: Arc<Keeping>,
) -> Result<u8, StartError> {
    prepared.warnings.extend(keeping.gap());
    let spec = prepared.job.spec.clone();
    let mut reporter = Reporter {
        people: (!cli.quiet).then(|| Box::new(io::stderr()) as Output),
        stream: (cli.output_format == OutputFormat::StreamJson)
            .then(|| Box::new(io::stdout()) as Output),
        ..Reporter::default()
    };
    for warning in &prepared.warnings {
        reporter.tell_people(&format!("warning: {warning}"));
    }
    reporter.tell_people(&format!(
        "{} starts: {} (at most {} s, model {})",
        spec.display_name, spec.summary, spec.limits.timeout_seconds, spec.model.key
    ));
    let start = Start {
        job: prepared.job,
        prompts: prepared.prompts.clone(),
        agent_dir,
        signals,
        reporter,
        keeping: Arc::clone(&keeping),
    };
    let mask = secrets::mask(&prepared.access, prepared.web_key.as_ref(), &[]);
    let ended = alone(start, prepared.access, prepared.web_key).await?;
    let result = agent_result(
        &spec,
        &prepared.prompts,
        &ended,
        prepared.warnings,
        keeping.told(commands_network(&spec)),
    );
    print_result(cli, &result, &mask)?;
    Ok(ended.exit_code())
}

fn print_result(cli: &Cli, result: &AgentResult, mask: &Mask) -> Result<(), StartError> {
    if !cli.quiet {
        let mut people = Reporter {
            people: Some(Box::new(io::stderr())),
            mask: mask.clone(),
            ..Reporter::default()
        };
        tell_people(&mut people, result);
    }
    let mut line = match cli.output_format {
        OutputFormat::Text => return Ok(()),
        OutputFormat::Json => json!(result),
        OutputFormat::StreamJson => json!({"event": "result", "result": result}),
    };
    mask.json(&mut line);
    print_line(&line)
}

fn print_line(line: &serde_json::Value) -> Result<(), StartError> {
    let mut out = io::stdout().lock();
    match writeln!(out, "{line}").and_then(|()| out.flush()) {
        // Whoever closed the pipe has read enough.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        result => {
            result.map_err(|error| StartError::new(format!("cannot write to stdout: {error}")))
        }
    }
}

fn dry_run(prepared: &Prepared, keeping: &Keeping) -> Result<u8, StartError> {
    let job = &prepared.job;
    let project = look_around(&job.spec.workspace);
    let warnings: Vec<&String> = prepared.warnings.iter().chain(&project.warnings).collect();
    let tools: Vec<serde_json::Value> = offered(
        &prepared.prompts,
        &job.spec.tools,
        &has(&job.spec, &project),
        &[],
    )
    .into_iter()
    .map(|tool| {
        json!({"name": tool.name, "description": tool.description,
                   "parameters": tool.parameters})
    })
    .collect();
    print_line(&json!({
        "job": job.spec,
        "messages": first_messages(job, &prepared.prompts, &project),
        "tools": tools,
        "commands": keeping.told(commands_network(&job.spec)),
        "warnings": warnings}))?;
    Ok(exit::SUCCESS)
}
