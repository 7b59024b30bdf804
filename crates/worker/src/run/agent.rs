//! The loop: carries out the machine's actions and brings back what they led to.

use std::sync::Arc;

use protocol::conversation::{Message, Outcome, ToolCall};
use protocol::job::JobSpec;
use protocol::status::Status;
use protocol::text::{ActionKind, Prompts};
use tokio::sync::mpsc;

use crate::core::compaction::Step;
use crate::core::turn::{Action, Input, Machine};
use crate::exit::{Ended, StopCause};
use crate::model::{Model, ModelError, ModelErrorKind, ModelRequest, OfferedTool};
use crate::run::caught::caught;
use crate::run::live::{Beside, Live};
use crate::run::surroundings::Surroundings;
use crate::run::toolbox::Toolbox;

mod compact;

/// A model call that gave up for lack of time, although the deadline moved on meanwhile, is made
/// again when at least so much is left.
const ASK_AGAIN_LEFT_MS_MIN: u64 = 1_000;

/// What is to be done after a step.
enum Next {
    Ask,
    Run(Vec<ToolCall>),
    Compact(Step),
    Rest,
    Over(Outcome),
}

/// One agent at work.
#[derive(Debug)]
pub struct Agent {
    around: Surroundings,
    machine: Machine,
    model: Box<dyn Model>,
    offered: Vec<OfferedTool>,
    toolbox: Toolbox,
    prompts: Arc<Prompts>,
    display_name: String,
    context_tokens: Option<u32>,
    live: Live,
}

impl Agent {
    /// An agent that is ready to begin the job that `spec` describes.
    pub fn new(
        around: Surroundings,
        machine: Machine,
        model: Box<dyn Model>,
        offered: Vec<OfferedTool>,
        toolbox: Toolbox,
        spec: &JobSpec,
    ) -> Self {
        let prompts = Arc::clone(&toolbox.context.prompts);
        Agent {
            around,
            machine,
            model,
            offered,
            toolbox,
            display_name: spec.display_name.clone(),
            context_tokens: spec.model.context_tokens,
            live: Live {
                state: Status::Running,
                action: prompts.action(ActionKind::Starting, ""),
                tail: String::new(),
            },
            prompts,
        }
    }

    /// Runs to the end, whatever it is.
    pub async fn run(mut self, first: Vec<Message>) -> Ended {
        let (outcome, cause) = self.converse(first).await;
        // Before the end is told: nothing of this agent changes a file after its report.
        self.toolbox.context.background.end_all().await;
        self.toolbox.servers.end_all().await;
        let stats = self.machine.stats(self.around.watch.time());
        tracing::info!(
            success = outcome.success,
            stop_reason = outcome.stop_reason.map(|reason| reason.as_str()),
            turns = stats.turns,
            requests = self.model.requests(),
            runtime_seconds = stats.runtime_seconds,
            "the run is over"
        );
        let last = self.live.progress(stats);
        self.around.finish(outcome, cause, last).await
    }

    async fn converse(&mut self, first: Vec<Message>) -> (Outcome, Option<StopCause>) {
        let mut input = Input::Begin(first);
        let mut cause = None;
        loop {
            let next = match self.step(input) {
                Ok(next) => next,
                Err(StopCause::Record(error)) => return broken(error),
                Err(stop) if cause.is_none() => {
                    input = Input::Stop(stop.reason());
                    cause = Some(stop);
                    continue;
                }
                // It stops already; what else went wrong on the way changes nothing.
                Err(_) => {
                    input = Input::Stop(protocol::status::StopReason::Terminated);
                    continue;
                }
            };
            let happened = match next {
                Next::Over(outcome) => return (outcome, cause),
                Next::Ask => self.ask().await,
                Next::Run(calls) => self.call(&calls).await,
                Next::Compact(step) => self.compact(step).await,
                Next::Rest => self.rest().await,
            };
            input = match happened {
                Ok(input) => input,
                Err(StopCause::Record(error)) => return broken(error),
                Err(stop) => {
                    let reason = stop.reason();
                    cause = Some(stop);
                    Input::Stop(reason)
                }
            };
        }
    }

    /// Feeds the machine what happened, and books what it says is to be booked.
    fn step(&mut self, input: Input) -> Result<Next, StopCause> {
        let time = self.around.watch.time();
        let mut actions = Vec::new();
        // What came meanwhile came before: a message that is in the machine's hands keeps the
        // answer that now arrives from counting as the end.
        for note in self.around.watch.take_notes() {
            actions.extend(self.machine.step(note, time));
        }
        let background = &self.toolbox.context.background;
        let ended = background.take_ended(&self.toolbox.context);
        if !ended.is_empty() {
            actions.extend(self.machine.step(Input::Background(ended), time));
        }
        actions.extend(self.machine.step(input, time));
        let stats = self.machine.stats(time);
        let mut next = None;
        let mut carried = Vec::new();
        let mut closed = None;
        for action in actions {
            match action {
                Action::Append {
                    message,
                    message_ids,
                } => {
                    let Surroundings {
                        record, reporter, ..
                    } = &mut self.around;
                    let message = record
                        .append(message, message_ids.clone(), stats)
                        .map_err(StopCause::Record)?;
                    closed = closed.or(reporter.message(message, stats.turns).err());
                    carried.extend(message_ids);
                }
                Action::Acknowledge(message_ids) => carried.extend(message_ids),
                Action::Ask => next = Some(Next::Ask),
                Action::Run(calls) => next = Some(Next::Run(calls)),
                Action::Compact(step) => next = Some(Next::Compact(step)),
                Action::Rest { .. } => next = Some(Next::Rest),
                Action::End(outcome) => next = Some(Next::Over(outcome)),
            }
        }
        if !carried.is_empty() || matches!(next, Some(Next::Ask | Next::Compact(_) | Next::Rest)) {
            let now_ms = self.around.watch.now_ms();
            self.around
                .record
                .boundary(now_ms)
                .map_err(StopCause::Record)?;
            // Only what is on the disk is acknowledged: the sender forgets it then.
            self.around.reporter.acknowledge(carried);
        }
        match (next, closed) {
            (Some(Next::Over(outcome)), _) => Ok(Next::Over(outcome)),
            (_, Some(closed)) => Err(closed),
            (Some(next), None) => Ok(next),
            (None, None) => Ok(Next::Rest),
        }
    }

    async fn ask(&mut self) -> Result<Input, StopCause> {
        self.show(
            Status::Running,
            self.prompts.action(ActionKind::Thinking, ""),
        );
        let asked_ms = self.around.watch.now_ms();
        let turn = self.machine.stats(self.around.watch.time()).turns + 1;
        loop {
            match self.ask_once(None).await? {
                Err(error)
                    if error.kind == ModelErrorKind::Deadline
                        && self.around.watch.time().remaining_ms >= ASK_AGAIN_LEFT_MS_MIN => {}
                Err(error) => return Ok(Input::ModelFailed(error)),
                Ok(reply) => {
                    if let Some(text) = &reply.content {
                        self.live.printed_anew(text);
                    }
                    let took_ms = self.around.watch.now_ms().saturating_sub(asked_ms);
                    self.around.reporter.answered(&reply, turn, took_ms);
                    return Ok(Input::Reply(reply));
                }
            }
        }
    }

    /// Asks with the conversation and the tools, or with a question beside them.
    async fn ask_once(
        &mut self,
        beside: Option<Vec<Message>>,
    ) -> Result<Result<crate::model::ModelReply, ModelError>, StopCause> {
        let Agent {
            around,
            machine,
            model,
            offered,
            live,
            prompts,
            ..
        } = self;
        let within = around.watch.left();
        let turn = machine.stats(around.watch.time()).turns + 1;
        let (conversation, saver) = around.record.split();
        let request = match &beside {
            None => ModelRequest {
                messages: &conversation.messages,
                tools: offered,
                within,
            },
            Some(messages) => ModelRequest {
                messages,
                tools: &[],
                within,
            },
        };
        // Without a bound of its own: what a call tells is bounded by the size of its reply.
        let (tell, mut told) = mpsc::unbounded_channel();
        // When nobody listens any more the call is being dropped.
        let mut sink = move |event| drop(tell.send(event));
        let mut sees = Beside {
            machine,
            conversation,
            saver,
            live,
            reporter: &mut around.reporter,
            waiting: Some(prompts),
            turn: beside.is_none().then_some(turn),
            ticks: 0,
        };
        let call = caught(model.complete(request, &mut sink));
        let reply = around
            .watch
            .race(call, Some(&mut told), |aside, time, now_ms| {
                sees.happened(aside, time, now_ms)
            })
            .await?;
        Ok(reply.unwrap_or_else(|words| {
            tracing::error!(panic = words, "the model's dialect panicked");
            Err(ModelError {
                kind: ModelErrorKind::BadReply,
                message: "the answer of the model could not be read, by a fault of ours; the \
                          log has the details"
                    .to_owned(),
                requests: 0,
            })
        }))
    }

    async fn call(&mut self, calls: &[ToolCall]) -> Result<Input, StopCause> {
        let action = self.toolbox.action(calls);
        let turn = self.machine.stats(self.around.watch.time()).turns;
        self.around.reporter.action(&action, turn)?;
        self.show(Status::Running, action);
        let Agent {
            around,
            machine,
            toolbox,
            live,
            ..
        } = self;
        let within = around.watch.left();
        let begun_ms = around.watch.now_ms();
        let (conversation, saver) = around.record.split();
        let mut beside = Beside {
            machine,
            conversation,
            saver,
            live,
            reporter: &mut around.reporter,
            waiting: None,
            turn: None,
            ticks: 0,
        };
        let results = around
            .watch
            .race(toolbox.run(calls, within), None, |aside, time, now_ms| {
                beside.happened(aside, time, now_ms)
            })
            .await?;
        let took_ms = self.around.watch.now_ms().saturating_sub(begun_ms);
        self.around.reporter.done(&results, turn, took_ms);
        if let Some(result) = results.last() {
            self.live.printed_anew(&result.content);
        }
        Ok(Input::Results(results))
    }

    async fn rest(&mut self) -> Result<Input, StopCause> {
        self.show(Status::Idle, String::new());
        self.around.watch.rest().await?;
        self.show(
            Status::Running,
            self.prompts.action(ActionKind::Starting, ""),
        );
        Ok(Input::Delivered(Vec::new()))
    }

    fn show(&mut self, state: Status, action: String) {
        self.live.state = state;
        self.live.action = action;
        let stats = self.machine.stats(self.around.watch.time());
        self.around.reporter.progress(&self.live.progress(stats));
    }
}

/// The outcome of a run whose record can't be kept.
fn broken(error: crate::io::files::FileError) -> (Outcome, Option<StopCause>) {
    let outcome = Outcome {
        success: false,
        summary: error.to_string(),
        stop_reason: Some(error.stop_reason()),
    };
    (outcome, Some(StopCause::Record(error)))
}
