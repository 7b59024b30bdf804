//! Plays the story: three agents at once, and what is seen of them.

use std::time::{Duration, Instant};

use protocol::error::{ErrorCode, ToolError};
use protocol::result::{AgentResult, AgentStatus};
use protocol::tool::leader::CreateSubAgentParams;
use tokio::task::JoinSet;
use tokio::time::MissedTickBehavior;

use crate::driver::{CreateAnswer, CreateOrderRequest, Handle, Origin};
use crate::faces::console::Console;
use crate::faces::curtain::Curtain;
use crate::faces::demo::pulse::Pulse;
use crate::faces::demo::script::Role;
use crate::faces::demo::truth::Seen;
use crate::faces::interrupt::{Interrupt, Interrupts};
use crate::os::clock;
use crate::os::terminal;
use crate::render::demo::{end_line, team_line};

/// Between two drawings of the live line, in milliseconds. It shows time that passes.
const LIVE_MS: u64 = 250;

/// What came of it.
#[derive(Debug)]
pub enum Played {
    /// It was played to its end.
    Through(Seen),
    /// Somebody wants it to end.
    Interrupted(Interrupt),
}

/// Whether each end is told as it comes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Telling {
    /// A line each.
    Aloud,
    /// Nothing until the whole is told.
    Silently,
}

/// Starts all three, and stays with them to the last end.
///
/// # Errors
/// When an agent is refused, stdout can't be written or the pipe can't be read.
pub async fn play(
    handle: &Handle,
    pulse: &mut Pulse,
    telling: Telling,
    mut curtain: Curtain,
    interrupts: &mut Interrupts,
    console: &mut Console<'_>,
) -> Result<Played, ToolError> {
    let began = clock::now();
    let mut agents = JoinSet::new();
    for role in Role::ALL {
        let handle = handle.clone();
        agents.spawn(async move { handle.create(order(role)).await });
    }
    let is_live = console.look().live && telling == Telling::Aloud;
    let mut ticks = tokio::time::interval(Duration::from_millis(LIVE_MS));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
    let mut results: Vec<AgentResult> = Vec::new();
    while !agents.is_empty() {
        tokio::select! {
            Some(ended) = agents.join_next() => {
                let result = result_of(ended)?;
                if telling == Telling::Aloud {
                    let line = end_line(&result, milliseconds(began), console.look().out);
                    console.print(&line)?;
                }
                results.push(result);
            }
            interrupt = interrupts.next() => return Ok(Played::Interrupted(interrupt)),
            () = curtain.falls() => {
                console.clear_live();
                curtain.stay_down().await;
            }
            _ = ticks.tick(), if is_live => draw(handle, console).await,
        }
    }
    console.clear_live();
    results.sort_by_key(|result| result.agent_id);
    let fate = tokio::select! {
        fate = pulse.fate() => fate,
        interrupt = interrupts.next() => return Ok(Played::Interrupted(interrupt)),
    };
    let fate = fate.map_err(|error| {
        ToolError::new(
            ErrorCode::Io,
            format!("the pipe of the process that was left behind can't be read: {error}"),
        )
    })?;
    Ok(Played::Through(Seen {
        results,
        fate,
        took_ms: milliseconds(began),
    }))
}

fn milliseconds(began: Instant) -> u64 {
    u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX)
}

fn order(role: Role) -> CreateOrderRequest {
    CreateOrderRequest {
        params: CreateSubAgentParams {
            agent_id: Some(i64::from(role.number())),
            summary: Some(role.summary().to_owned()),
            task: role.task().to_owned(),
            timeout_seconds: Some(role.timeout_seconds()),
            ..CreateSubAgentParams::default()
        },
        origin: Origin::Person,
        item: None,
    }
}

fn result_of(
    ended: Result<Result<CreateAnswer, ToolError>, tokio::task::JoinError>,
) -> Result<AgentResult, ToolError> {
    let internal = |why: String| ToolError::new(ErrorCode::Internal, why);
    match ended {
        Ok(Ok(CreateAnswer::Ended(result))) => Ok(*result),
        Ok(Ok(CreateAnswer::Started(_))) => Err(internal(
            "a blocking create was answered before its end".to_owned(),
        )),
        Ok(Err(error)) => Err(error),
        Err(error) => Err(internal(format!("a create was not answered: {error}"))),
    }
}

/// Draws where the agents stand. It does not wait for a driver that is busy longer than a moment.
async fn draw(handle: &Handle, console: &mut Console<'_>) {
    let columns = terminal::columns(std::io::stderr()).unwrap_or(terminal::COLUMNS_DEFAULT);
    let Ok(answer) = tokio::time::timeout(Duration::from_millis(LIVE_MS), handle.ps()).await else {
        return;
    };
    let agents: Vec<AgentStatus> =
        serde_json::from_value(answer["agents"].clone()).unwrap_or_default();
    // The last column stays free: many terminals break the line there.
    console.live(&team_line(&agents, columns.saturating_sub(1)));
}
