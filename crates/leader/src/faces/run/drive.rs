//! What happens between the create and its answer: the live line, events, signals.

use std::future::Future;
use std::time::Duration;

use protocol::error::ToolError;
use protocol::result::{AgentResult, AgentStatus};
use serde_json::Value;
use tokio::time::MissedTickBehavior;

use crate::driver::{CreateAnswer, Handle, Subscription};
use crate::faces::console::Console;
use crate::faces::curtain::Curtain;
use crate::faces::interrupt::{Interrupt, Interrupts};
use crate::faces::run::output::Output;
use crate::faces::run::stop::Stop;
use crate::faces::serve::methods::event_value;
use crate::os::terminal;
use crate::render::line::live_line;

/// Between two drawings of the live line, in milliseconds. It shows time that passes, so a clock
/// draws it; nothing is decided by it.
const LIVE_MS: u64 = 250;

/// What a run came to.
#[derive(Debug)]
pub struct Driven {
    /// How the agent ended, or why there was none.
    pub result: Result<Box<AgentResult>, ToolError>,
    /// The first signal that asked for the end.
    pub stopped_by: Option<Interrupt>,
    /// Whether the end was asked for, by a signal or by a reader that left.
    pub was_stopped: bool,
    /// Events that came after the answer.
    pub last_events: LastEvents,
}

/// The rest of the events, once the driver has ended.
#[derive(Debug)]
pub struct LastEvents(Option<Subscription>);

impl LastEvents {
    /// The rest of this subscription, if there is one.
    pub fn of(events: Option<Subscription>) -> Self {
        LastEvents(events)
    }

    /// All of them.
    pub async fn collect(self) -> Vec<Value> {
        let mut events = Vec::new();
        if let Some(mut subscription) = self.0 {
            while let Some(item) = subscription.next().await {
                events.push(event_value(item));
            }
        }
        events
    }
}

/// Starts the agent and stays with it to its end.
///
/// # Errors
/// When stdout can't be written; the caller stops the agents.
pub async fn drive(
    handle: &Handle,
    start: impl Future<Output = Result<CreateAnswer, ToolError>>,
    output: Output,
    mut curtain: Curtain,
    interrupts: &mut Interrupts,
    console: &mut Console<'_>,
) -> Result<Driven, ToolError> {
    let mut events = match output {
        Output::StreamJson => Some(handle.subscribe(Some(0)).await?),
        Output::Text | Output::Json => None,
    };
    let is_live = console.look().live && output == Output::Text;
    let mut ticks = tokio::time::interval(Duration::from_millis(LIVE_MS));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
    let mut stop = Stop::new(handle, "the agent");
    let mut created = std::pin::pin!(start);
    let answer = loop {
        tokio::select! {
            answer = &mut created => break answer,
            interrupt = interrupts.next() => stop.ask(interrupt, console),
            () = stop.progress() => {}
            event = next_event(&mut events) => match event {
                Some(event) => {
                    output.event(&event, console)?;
                    // Nobody is left to hear of the result: `leader run … | head -1`.
                    if console.out_is_closed() {
                        stop.quietly();
                    }
                }
                None => events = None,
            },
            () = curtain.falls() => {
                console.clear_live();
                curtain.stay_down().await;
            }
            _ = ticks.tick(), if is_live => draw(handle, console).await,
        }
    };
    console.clear_live();
    Ok(Driven {
        result: answer.and_then(ended),
        stopped_by: stop.first(),
        was_stopped: stop.is_asked(),
        last_events: LastEvents(events),
    })
}

fn ended(answer: CreateAnswer) -> Result<Box<AgentResult>, ToolError> {
    match answer {
        CreateAnswer::Ended(result) => Ok(result),
        CreateAnswer::Started(_) => Err(ToolError::new(
            protocol::error::ErrorCode::Internal,
            "a blocking create was answered before its end",
        )),
    }
}

pub(in crate::faces) async fn next_event(events: &mut Option<Subscription>) -> Option<Value> {
    match events {
        Some(events) => events.next().await.map(event_value),
        None => std::future::pending().await,
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
    if let Some(agent) = agents.iter().find(|agent| !agent.status.is_end()) {
        // The last column stays free: many terminals break the line there.
        console.live(&live_line(agent, columns.saturating_sub(1)));
    }
}
