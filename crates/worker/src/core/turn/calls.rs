//! The calls of one turn: in order, each answered once, and the report that ends the run.

use protocol::conversation::{Message, Outcome, ToolCall};
use protocol::error::{ErrorCode, ToolError};
use protocol::status::StopReason;
use protocol::tool::parse_text;
use protocol::tool::worker::{FINISH_TASK, FinishTaskParams, READ_MEDIAFILE};

use super::{Action, CALLS_SIDE_BY_SIDE_MAX, CallResult, Machine, Phase, append, cancelled};
use crate::core::deadline::TimeSpent;
use crate::core::loop_guard::{Effect, LoopVerdict, fingerprint};
use crate::core::policy::Manner;
use crate::core::tally::Tally;

impl Machine {
    /// Answers the calls that may not run, up to the next group that may.
    pub(super) fn go_on_calling(&mut self, time: TimeSpent, actions: &mut Vec<Action>) {
        let Phase::Calling { running, waiting } = &mut self.phase else {
            return;
        };
        while let Some(call) = waiting.front() {
            let name = &call.function.name;
            match self.policy.check(name, &self.prompts) {
                Err(error) => {
                    if !running.is_empty() {
                        break;
                    }
                    let content = error.to_result().to_string();
                    let print = fingerprint(name, &call.function.arguments, &content);
                    self.guard.observe(name, print, Effect::None);
                    append(Message::tool(call.id.clone(), content), actions);
                    waiting.pop_front();
                }
                Ok(Manner::Alone) => {
                    if running.is_empty() {
                        running.extend(waiting.pop_front());
                    }
                    break;
                }
                Ok(Manner::SideBySide) => {
                    running.extend(waiting.pop_front());
                    if running.len() == CALLS_SIDE_BY_SIDE_MAX {
                        break;
                    }
                }
            }
        }
        if !running.is_empty() {
            actions.push(Action::Run(running.clone()));
            return;
        }
        match self.guard.end_turn() {
            LoopVerdict::Fine => {}
            LoopVerdict::Warn { tool, count } => {
                append(
                    Message::user(self.prompts.loop_warning(&tool, count)),
                    actions,
                );
            }
            LoopVerdict::Stop { .. } => {
                self.end_without_report(StopReason::LoopDetected, actions);
                return;
            }
        }
        self.boundary(time, actions);
    }

    pub(super) fn results(
        &mut self,
        results: Vec<CallResult>,
        time: TimeSpent,
        actions: &mut Vec<Action>,
    ) {
        let Phase::Calling { running, .. } = &mut self.phase else {
            return;
        };
        let calls = std::mem::take(running);
        let mut results = results.into_iter();
        for call in calls {
            let result = results.next().unwrap_or_else(|| lost_result(&call));
            let looks_only = self
                .policy
                .check(&call.function.name, &self.prompts)
                .is_ok_and(|manner| manner == Manner::SideBySide);
            let effect = if result.succeeded && !looks_only {
                Effect::Changed
            } else {
                Effect::None
            };
            self.guard
                .observe(&call.function.name, result.print, effect);
            self.counts.call(result.tally);
            if call.function.name == READ_MEDIAFILE && result.succeeded {
                self.media.extend(serde_json::from_str(&result.content));
            }
            append(Message::tool(call.id.clone(), result.content), actions);
            if call.function.name == FINISH_TASK
                && result.succeeded
                && let Ok(report) = parse_text::<FinishTaskParams>(&call.function.arguments)
            {
                self.report(report, actions);
                return;
            }
        }
        self.go_on_calling(time, actions);
    }

    /// The first report counts; whatever follows it in its turn is answered but not run.
    fn report(&mut self, report: FinishTaskParams, actions: &mut Vec<Action>) {
        if let Phase::Calling { waiting, .. } = &mut self.phase {
            for call in std::mem::take(waiting) {
                let why = if call.function.name == FINISH_TASK {
                    self.prompts.finish_ignored()
                } else {
                    self.prompts.cancelled_after_finish()
                };
                append(cancelled(&call, why), actions);
            }
        }
        let outcome = Outcome {
            success: report.success,
            summary: report.summary,
            stop_reason: (!report.success).then_some(StopReason::ReportedFailure),
        };
        self.end(outcome, actions);
    }
}

/// Stands in where the driver brought fewer results than calls, so that no call stays open.
fn lost_result(call: &ToolCall) -> CallResult {
    let content = ToolError::new(ErrorCode::Internal, "the result of this call was lost")
        .to_result()
        .to_string();
    CallResult {
        print: fingerprint(&call.function.name, &call.function.arguments, &content),
        content,
        succeeded: false,
        tally: Tally::default(),
    }
}
