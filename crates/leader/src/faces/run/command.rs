//! From the arguments of `leader run`, or of another command that has one agent, to its exit code.

use std::collections::BTreeSet;
use std::future::Future;
use std::io::Read;
use std::path::PathBuf;

use protocol::config::Settings;
use protocol::error::{ErrorCode, ToolError};
use protocol::status::{Status, StopReason};
use protocol::tool::leader::CreateSubAgentParams;

use crate::cli::RunArgs;
use crate::driver::{CreateAnswer, CreateOrderRequest, Handle, Origin};
use crate::exit;
use crate::faces::batch::batch;
use crate::faces::batch::carry::end_of;
use crate::faces::console::Console;
use crate::faces::detach::{self, AcceptedAgent, announce};
use crate::faces::interrupt::Interrupts;
use crate::faces::run::drive::drive;
use crate::faces::run::output::Output;
use crate::faces::session::{Session, SessionOrder};
use crate::faces::surroundings::{Surroundings, run_flags};
use crate::faces::task::{read_task, summary_of};
use crate::os::detached::Announcer;
use crate::settings::choose_model;

/// Runs one sub-agent and prints what it delivered.
///
/// # Errors
/// When the input or the machine is not fit, or the create is refused; nothing runs then.
pub async fn run(
    args: &RunArgs,
    surroundings: &Surroundings,
    stdin: &mut dyn Read,
    console: &mut Console<'_>,
) -> Result<u8, ToolError> {
    let announcer = detach::begin(args)?;
    if let Some(path) = &args.batch {
        return batch(path, args, surroundings, stdin, announcer, console).await;
    }
    let task = read_task(args, stdin)?;
    let flags = run_flags(args);
    let settings = surroundings.settings(flags, console)?;
    choose_model(&settings, &surroundings.variables)?;
    let output = Output::of(args.json, args.stream_json);
    let order = CreateOrderRequest {
        params: params(args, task),
        origin: Origin::Person,
        item: None,
    };
    let opened = Opening {
        surroundings,
        settings,
        worker_bin: args.worker_bin.clone(),
        output,
    };
    see_through(opened, console, move |handle| async move {
        match announcer {
            None => handle.create(order).await,
            Some(announcer) => create_detached(&handle, order, announcer).await,
        }
    })
    .await
}

/// Creates the agent, lets go of whoever waits for that, and stays with it to its end.
async fn create_detached(
    handle: &Handle,
    mut order: CreateOrderRequest,
    announcer: Announcer,
) -> Result<CreateAnswer, ToolError> {
    order.params.run_in_background = Some(true);
    match handle.create(order).await? {
        CreateAnswer::Started(started) => {
            let agents = vec![AcceptedAgent::of(&started)];
            announce(announcer, handle, agents, 0)?;
            let end = end_of(handle, started.task_id.to_string()).await?;
            Ok(CreateAnswer::Ended(end))
        }
        ended @ CreateAnswer::Ended(_) => Ok(ended),
    }
}

/// What the conversation of one agent is opened with.
#[derive(Debug)]
pub struct Opening<'a> {
    /// Where.
    pub surroundings: &'a Surroundings,
    /// By which rules.
    pub settings: Settings,
    /// The worker's executable, where a flag names one.
    pub worker_bin: Option<PathBuf>,
    /// How it is printed.
    pub output: Output,
}

/// Opens a conversation, starts its one agent, stays with it to its end, and prints that.
///
/// # Errors
/// When the machine is not fit, or the start is refused; nothing runs then.
pub async fn see_through<F>(
    opening: Opening<'_>,
    console: &mut Console<'_>,
    start: impl FnOnce(Handle) -> F,
) -> Result<u8, ToolError>
where
    F: Future<Output = Result<CreateAnswer, ToolError>>,
{
    let output = opening.output;
    // From here on a signal ends the agents in order instead of this process at once.
    let mut interrupts = Interrupts::listen().map_err(|error| {
        ToolError::new(ErrorCode::Io, format!("signals can't be caught: {error}"))
    })?;
    let session = Session::open(SessionOrder {
        surroundings: opening.surroundings,
        settings: opening.settings,
        worker_bin: opening.worker_bin,
        reserved_numbers: BTreeSet::new(),
    })
    .await?;
    if let Err(error) = session.socket() {
        console.warn(&format!(
            "no control socket, so that `leader ps` does not see this run: {error}"
        ));
    }
    let start = start(session.handle().clone());
    let (handle, curtain) = (session.handle(), session.curtain());
    let driven = drive(handle, start, output, curtain, &mut interrupts, console).await;
    session
        .close(StopReason::ConversationClosed, &mut interrupts)
        .await;
    let driven = driven?;
    let result = match driven.result {
        // Whoever wanted the end was quicker than the start.
        Err(error) if error.code == ErrorCode::ShuttingDown && driven.was_stopped => {
            let ends = [(Status::Terminated, Some(StopReason::LeaderStopped))];
            return Ok(exit::of_run(&ends, driven.stopped_by));
        }
        result => result?,
    };
    for event in driven.last_events.collect().await {
        output.event(&event, console)?;
    }
    output.result(&result, console)?;
    let ends = [(result.status, result.stop_reason)];
    Ok(exit::of_run(&ends, driven.stopped_by))
}

fn params(args: &RunArgs, task: String) -> CreateSubAgentParams {
    CreateSubAgentParams {
        agent_id: args.agent_id.map(i64::from),
        role_id: None,
        summary: Some(args.summary.clone().unwrap_or_else(|| summary_of(&task))),
        task,
        deliverables_dir: args.deliverables_dir.clone(),
        reuse_deliverables_dir: Some(args.reuse_deliverables_dir),
        write_paths: (!args.write_paths.is_empty()).then(|| args.write_paths.clone()),
        run_in_background: Some(false),
        timeout_seconds: args.timeout_seconds.map(i64::from),
        max_turns: args.max_turns.map(i64::from),
        thinking_mode: None,
        model_key: None,
    }
}
