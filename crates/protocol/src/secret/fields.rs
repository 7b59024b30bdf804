//! Masks the texts of the types that both sides keep and send.

use crate::channel::{FinishedParams, ProgressParams};
use crate::conversation::{ConversationFile, Message, Outcome};
use crate::secret::Mask;

impl Mask {
    /// Takes the secrets out of a message: its text, its thoughts, its calls, and its parts as a
    /// provider sent them, also where the provider then no longer knows its own signature: such a
    /// part holds a secret that it was never told.
    pub fn message(&self, message: &mut Message) {
        let Message {
            role: _,
            content,
            tool_calls,
            tool_call_id,
            reasoning_content,
            provider_blocks,
            // Names of files; changed, they would name nothing.
            media: _,
        } = message;
        for text in [content, tool_call_id, reasoning_content]
            .into_iter()
            .flatten()
        {
            self.apply(text);
        }
        for block in provider_blocks {
            self.json(block);
        }
        for call in tool_calls {
            for text in [
                &mut call.id,
                &mut call.kind,
                &mut call.function.name,
                &mut call.function.arguments,
            ] {
                self.apply(text);
            }
        }
    }

    /// Takes the secrets out of what a run came to.
    pub fn outcome(&self, outcome: &mut Outcome) {
        self.apply(&mut outcome.summary);
    }

    /// Takes the secrets out of a report.
    pub fn finished(&self, report: &mut FinishedParams) {
        self.apply(&mut report.summary);
    }

    /// Takes the secrets out of a sign of life. Its texts go on, so that the beginning of a secret
    /// at their end is left out too.
    pub fn progress(&self, progress: &mut ProgressParams) {
        if self.is_empty() {
            return;
        }
        self.apply(&mut progress.last_action);
        progress.output_tail = self.text_so_far(&progress.output_tail);
    }

    /// Takes the secrets out of a whole conversation.
    pub fn conversation(&self, file: &mut ConversationFile) {
        self.apply(&mut file.summary);
        for message in &mut file.messages {
            self.message(message);
        }
        if let Some(outcome) = &mut file.result {
            self.outcome(outcome);
        }
        for value in file.other.values_mut() {
            self.json(value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conversation::ToolCall;
    use crate::stats::Stats;
    use crate::status::Status;

    const KEY: &str = "tok123456789";

    #[test]
    fn no_text_of_a_message_or_a_report_keeps_a_secret() {
        let mask = Mask::of([KEY]);
        let call = ToolCall::new(KEY, KEY, format!("{{\"command\":\"echo {KEY}\"}}"));
        let mut message = Message {
            tool_call_id: Some(KEY.to_owned()),
            reasoning_content: Some(format!("it is {KEY}")),
            ..Message::assistant(Some(format!("so: {KEY}.")), vec![call])
        };
        mask.message(&mut message);
        let masked = ToolCall::new("[masked]", "[masked]", r#"{"command":"echo [masked]"}"#);
        let expected = Message {
            tool_call_id: Some("[masked]".to_owned()),
            reasoning_content: Some("it is [masked]".to_owned()),
            ..Message::assistant(Some("so: [masked].".to_owned()), vec![masked])
        };
        assert_eq!(message, expected);

        let mut progress = ProgressParams {
            stats: Stats::default(),
            last_action: format!("running {KEY}"),
            state: Status::Running,
            output_tail: format!("{KEY} and tok123"),
        };
        mask.progress(&mut progress);
        assert_eq!(progress.last_action, "running [masked]");
        assert_eq!(progress.output_tail, "[masked] and ");
    }
}
