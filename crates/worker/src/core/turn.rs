//! The conversation machine: what the loop does next, decided without doing it.
//!
//! [`Machine::step`] takes what happened and gives the actions that follow, in order. The driver
//! carries them out and comes back with what they led to. Every call of a model is answered by
//! exactly one tool message, directly after the message that made it, whatever happens.

use std::collections::{HashSet, VecDeque};

use protocol::channel::DeliveredMessage;
use protocol::conversation::{Media, Message, Outcome, ToolCall};
use protocol::error::{ErrorCode, ToolError};
use protocol::limits::{OUTPUT_LIMIT_RETRIES_MAX, REMINDERS_MAX, REPORT_CHARS_MAX};
use protocol::result::cut_middle;
use protocol::stats::Stats;
use protocol::status::{Completion, StopReason};
use protocol::text::{BackgroundResult, Frame, FrameKind, Prompts};

use crate::core::compaction::{Room, Step};
use crate::core::deadline::TimeSpent;
use crate::core::loop_guard::LoopGuard;
use crate::core::policy::Policy;
use crate::core::reply::{FinishKind, ModelError, ModelReply};
use crate::core::tally::Counts;

mod calls;
mod context;
mod step;
#[cfg(test)]
mod tests;

pub use step::{Action, CallResult, Compacted, Input, Rules};

/// Calls that run side by side at most; more of one turn follow in further groups.
pub const CALLS_SIDE_BY_SIDE_MAX: usize = 8;
/// Delivered messages that wait for a turn boundary. What comes beyond is not acknowledged, so
/// that its sender knows that it was not delivered.
pub const MESSAGES_WAITING_MAX: usize = 1_000;
/// Ids of delivered messages that are remembered, to know a repeated delivery.
pub const MESSAGE_IDS_REMEMBERED_MAX: usize = 10_000;
/// A text that stands in for a report, in bytes: what a report of the greatest length may take.
const TEXT_AS_REPORT_BYTES_MAX: usize = REPORT_CHARS_MAX * 4;

#[derive(Debug)]
enum Phase {
    New,
    Asking,
    Calling {
        running: Vec<ToolCall>,
        waiting: VecDeque<ToolCall>,
    },
    Compacting(Step),
    Resting,
    Ended,
}

/// One run's conversation, as far as decisions hang on it.
#[derive(Debug)]
pub struct Machine {
    rules: Rules,
    policy: Policy,
    prompts: Prompts,
    display_name: String,
    phase: Phase,
    counts: Counts,
    guard: LoopGuard,
    inbox: VecDeque<DeliveredMessage>,
    known_ids: HashSet<String>,
    /// Ends of background commands that the model has not been told of; there are never more than
    /// may run at once and were not announced.
    background: Vec<BackgroundResult>,
    /// Images that calls of this turn asked for; they follow all results, for nothing may stand
    /// between a call and its results.
    media: Vec<Media>,
    reminders: u32,
    cut_answers: u32,
    last_text: Option<String>,
    time_warned: bool,
    tokens_warned: bool,
    tokens_spent_told: bool,
    room: Room,
    /// The refusal that the conversation is being shortened for.
    refused: Option<ModelError>,
    nudges: u32,
    wrap_up: Option<u64>,
}

impl Machine {
    /// A machine that waits for [`Input::Begin`]. `display_name` is what others call the agent.
    pub fn new(rules: Rules, policy: Policy, prompts: Prompts, display_name: String) -> Self {
        Machine {
            rules,
            policy,
            prompts,
            display_name,
            phase: Phase::New,
            counts: Counts::new(rules.prices),
            guard: LoopGuard::default(),
            inbox: VecDeque::new(),
            known_ids: HashSet::new(),
            background: Vec::new(),
            media: Vec::new(),
            reminders: 0,
            cut_answers: 0,
            last_text: None,
            time_warned: false,
            tokens_warned: false,
            tokens_spent_told: false,
            room: Room::new(rules.context_tokens),
            refused: None,
            nudges: 0,
            wrap_up: None,
        }
    }

    /// Counts so far.
    pub fn stats(&self, time: TimeSpent) -> Stats {
        self.counts.at(time.runtime_seconds())
    }

    /// Whether the run is over.
    pub fn has_ended(&self) -> bool {
        matches!(self.phase, Phase::Ended)
    }

    /// Whether it waits for a message.
    pub fn is_resting(&self) -> bool {
        matches!(self.phase, Phase::Resting)
    }

    /// Takes what happened and gives what follows. An input that does not fit where the machine
    /// stands changes nothing and is followed by nothing.
    pub fn step(&mut self, input: Input, time: TimeSpent) -> Vec<Action> {
        let mut actions = Vec::new();
        match input {
            Input::Begin(messages) => self.begin(messages, time, &mut actions),
            Input::Reply(reply) => self.reply(reply, time, &mut actions),
            Input::ModelFailed(error) => self.model_failed(&error, time, &mut actions),
            Input::Compacted(result) => self.compacted(result, &mut actions),
            Input::Results(results) => self.results(results, time, &mut actions),
            Input::Delivered(messages) => self.delivered(messages, time, &mut actions),
            Input::Background(results) => self.background.extend(results),
            Input::WrapUp { seconds_left } => self.wrap_up = Some(seconds_left),
            Input::Stop(reason) => self.stop(reason, &mut actions),
        }
        actions
    }

    fn begin(&mut self, messages: Vec<Message>, time: TimeSpent, actions: &mut Vec<Action>) {
        if !matches!(self.phase, Phase::New) {
            return;
        }
        for message in messages {
            append(message, actions);
        }
        self.boundary(time, actions);
    }

    fn reply(&mut self, reply: ModelReply, time: TimeSpent, actions: &mut Vec<Action>) {
        if !matches!(self.phase, Phase::Asking) {
            return;
        }
        self.counts.answer(reply.usage);
        self.room.answered(reply.usage);
        (self.refused, self.nudges) = (None, 0);
        let said = reply
            .content
            .as_deref()
            .filter(|text| !text.trim().is_empty());
        if let Some(text) = said {
            self.last_text = Some(text.to_owned());
        }
        match reply.finish {
            FinishKind::Length => {
                append(assistant(reply, Vec::new()), actions);
                self.cut_answer(time, actions);
            }
            // What it may still want run stands in the part that follows.
            FinishKind::Paused => {
                append(assistant(reply, Vec::new()), actions);
                self.boundary(time, actions);
            }
            FinishKind::Done => {
                self.cut_answers = 0;
                let calls = reply.tool_calls.clone();
                append(assistant(reply, calls.clone()), actions);
                if calls.is_empty() {
                    self.quiet_turn(time, actions);
                } else {
                    self.reminders = 0;
                    self.phase = Phase::Calling {
                        running: Vec::new(),
                        waiting: calls.into(),
                    };
                    self.go_on_calling(time, actions);
                }
            }
        }
    }

    /// An answer was cut: its calls may be torn, so none is run and the model is told.
    fn cut_answer(&mut self, time: TimeSpent, actions: &mut Vec<Action>) {
        self.cut_answers += 1;
        if self.cut_answers > OUTPUT_LIMIT_RETRIES_MAX {
            self.end_without_report(StopReason::OutputLimit, actions);
            return;
        }
        append(Message::user(self.prompts.output_cut()), actions);
        self.boundary(time, actions);
    }

    /// The model said something and called nothing.
    fn quiet_turn(&mut self, time: TimeSpent, actions: &mut Vec<Action>) {
        if !self.inbox.is_empty() || !self.background.is_empty() {
            // Somebody spoke to it meanwhile, or a command of its own ended; it answers that
            // before its turn counts as an end.
            self.boundary(time, actions);
            return;
        }
        match self.rules.completion {
            Completion::FinishTask if self.reminders == REMINDERS_MAX => {
                self.end_without_report(StopReason::NoFinish, actions);
            }
            Completion::FinishTask => {
                self.reminders += 1;
                append(Message::user(self.prompts.reminder()), actions);
                self.boundary(time, actions);
            }
            Completion::FinalText => {
                let outcome = Outcome {
                    success: true,
                    summary: self.text_as_report(),
                    stop_reason: None,
                };
                self.end(outcome, actions);
            }
            Completion::Idle => {
                self.phase = Phase::Resting;
                actions.push(Action::Rest {
                    text: self.text_as_report(),
                });
            }
        }
    }

    fn delivered(
        &mut self,
        messages: Vec<DeliveredMessage>,
        time: TimeSpent,
        actions: &mut Vec<Action>,
    ) {
        if self.has_ended() {
            return;
        }
        for message in messages {
            if self.known_ids.contains(&message.id) {
                if self.inbox.iter().all(|waiting| waiting.id != message.id) {
                    actions.push(Action::Acknowledge(vec![message.id]));
                }
            } else if self.inbox.len() < MESSAGES_WAITING_MAX
                && self.known_ids.len() < MESSAGE_IDS_REMEMBERED_MAX
            {
                self.known_ids.insert(message.id.clone());
                self.inbox.push_back(message);
            }
        }
        if self.is_resting() && !self.inbox.is_empty() {
            self.reminders = 0;
            self.boundary(time, actions);
        }
    }

    fn stop(&mut self, reason: StopReason, actions: &mut Vec<Action>) {
        if self.has_ended() {
            return;
        }
        if let Phase::Calling { running, waiting } = &mut self.phase {
            let unanswered: Vec<ToolCall> = running.drain(..).chain(waiting.drain(..)).collect();
            for call in unanswered {
                append(
                    cancelled(&call, self.prompts.call_interrupted(reason)),
                    actions,
                );
            }
        }
        self.end_without_report(reason, actions);
    }

    /// Between two turns: checks the bounds, lets in what waits, and asks.
    fn boundary(&mut self, time: TimeSpent, actions: &mut Vec<Action>) {
        if self.counts.turns() >= u64::from(self.rules.max_turns) {
            self.end_without_report(StopReason::TurnLimit, actions);
            return;
        }
        if !self.tokens_allow(actions) {
            return;
        }
        if !self.media.is_empty() {
            let media = std::mem::take(&mut self.media);
            let files: Vec<&str> = media.iter().map(|media| media.file.as_str()).collect();
            let text = self.prompts.media_shown(&files);
            append(Message::showing(text, media), actions);
        }
        for message in self.inbox.drain(..) {
            let frame = Frame {
                from: &message.from,
                to: &self.display_name,
                kind: FrameKind::of_word(&message.kind),
                id: &message.id,
                content: &message.content,
            };
            actions.push(Action::Append {
                message: Message::user(self.prompts.frame(&frame)),
                message_ids: vec![message.id.clone()],
            });
        }
        if !self.background.is_empty() {
            let ended = std::mem::take(&mut self.background);
            append(
                Message::user(self.prompts.background_results(&ended)),
                actions,
            );
        }
        if let Some(seconds_left) = self.wrap_up.take() {
            self.time_warned = true;
            append(Message::user(self.prompts.wrap_up(seconds_left)), actions);
        } else if !self.time_warned && time.is_warning_time() {
            self.time_warned = true;
            let warning = self.prompts.time_warning(time.seconds_left());
            append(Message::user(warning), actions);
        }
        self.ask(actions);
    }

    fn end_without_report(&mut self, reason: StopReason, actions: &mut Vec<Action>) {
        let outcome = Outcome {
            success: false,
            summary: self.text_as_report(),
            stop_reason: Some(reason),
        };
        self.end(outcome, actions);
    }

    fn end(&mut self, outcome: Outcome, actions: &mut Vec<Action>) {
        self.phase = Phase::Ended;
        actions.push(Action::End(outcome));
    }

    /// The last thing the model said, for where there is no report.
    fn text_as_report(&self) -> String {
        let text = self.last_text.as_deref().unwrap_or_default();
        cut_middle(text, TEXT_AS_REPORT_BYTES_MAX, "")
    }
}

fn append(message: Message, actions: &mut Vec<Action>) {
    actions.push(Action::Append {
        message,
        message_ids: Vec::new(),
    });
}

/// The answer as it goes into the conversation. An answer with neither text nor calls gets an
/// empty text: providers refuse a history with a message that has nothing at all.
fn assistant(reply: ModelReply, calls: Vec<ToolCall>) -> Message {
    let content = match reply.content {
        None if calls.is_empty() => Some(String::new()),
        content => content,
    };
    Message {
        reasoning_content: reply.reasoning_content,
        provider_blocks: reply.provider_blocks,
        ..Message::assistant(content, calls)
    }
}

fn cancelled(call: &ToolCall, why: String) -> Message {
    let error = ToolError::new(ErrorCode::Cancelled, why);
    Message::tool(call.id.clone(), error.to_result().to_string())
}
