//! What happens between the create and its answer: the live line, events, signals.

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use protocol::error::ToolError;
use protocol::result::{AgentResult, AgentStatus};
use protocol::status::StopReason;
use serde_json::Value;
use tokio::time::MissedTickBehavior;

use crate::driver::{CreateAnswer, Handle, StopMode, Subscription};
use crate::faces::console::Console;
use crate::faces::interrupt::{Interrupt, Interrupts};
use crate::faces::run::output::Output;
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
    let mut stop = Stop::new(handle);
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
            _ = ticks.tick(), if is_live => draw(handle, console).await,
        }
    };
    console.clear_live();
    Ok(Driven {
        result: answer.and_then(ended),
        stopped_by: stop.first,
        was_stopped: stop.is_asked,
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

async fn next_event(events: &mut Option<Subscription>) -> Option<Value> {
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

/// The way to the end: asked once, the agents stop in order; asked again, they are killed.
struct Stop<'a> {
    handle: &'a Handle,
    first: Option<Interrupt>,
    is_asked: bool,
    stopping: Option<Pin<Box<dyn Future<Output = ()> + 'a>>>,
}

impl<'a> Stop<'a> {
    fn new(handle: &'a Handle) -> Self {
        Stop {
            handle,
            first: None,
            is_asked: false,
            stopping: None,
        }
    }

    fn ask(&mut self, interrupt: Interrupt, console: &mut Console<'_>) {
        let mode = match self.first {
            None => {
                self.first = Some(interrupt);
                console.say(&format!(
                    "{}: stopping the agent in order; once more kills it\n",
                    interrupt.name()
                ));
                StopMode::Graceful
            }
            Some(_) => {
                console.say("killing the agent\n");
                StopMode::Force
            }
        };
        self.begin(mode);
    }

    fn quietly(&mut self) {
        if !self.is_asked {
            self.begin(StopMode::Graceful);
        }
    }

    fn begin(&mut self, mode: StopMode) {
        let handle = self.handle;
        self.is_asked = true;
        self.stopping = Some(Box::pin(async move {
            handle.stop_all(StopReason::LeaderStopped, mode).await;
        }));
    }

    /// Carries the stop on; it never completes twice, and never when nothing was asked.
    async fn progress(&mut self) {
        match &mut self.stopping {
            Some(stopping) => {
                stopping.await;
                self.stopping = None;
                // What is left to wait for is the answer of the create.
                std::future::pending().await
            }
            None => std::future::pending().await,
        }
    }
}
