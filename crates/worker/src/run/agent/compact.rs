//! Shortens the conversation, as the core says: files for old results, a model for a summary.

use protocol::conversation::Message;
use protocol::limits::{SUMMARY_BYTES_MAX, TURNS_KEPT_BYTES_MAX};
use protocol::result::cut_middle;
use protocol::status::Status;
use protocol::text::ActionKind;

use super::Agent;
use crate::core::compaction::{Kept, Step, kept, old_results, summarised, transcript};
use crate::core::turn::{Compacted, Input};
use crate::exit::StopCause;
use crate::tools::large;

impl Agent {
    pub(super) async fn compact(&mut self, step: Step) -> Result<Input, StopCause> {
        let action = self.prompts.action(ActionKind::Compacting, "");
        let turn = self.machine.stats(self.around.watch.time()).turns;
        self.around.reporter.action(&action, turn)?;
        self.show(Status::Running, action);
        let before = self.around.record.conversation().messages.len();
        let result = match step {
            Step::OldResults | Step::AllResults => self.put_old_results_away(step)?,
            Step::Summary => self.summarise().await?,
        };
        let after = self.around.record.conversation().messages.len();
        tracing::info!(
            ?step,
            before,
            after,
            ?result,
            "the conversation was shortened"
        );
        Ok(Input::Compacted(result))
    }

    fn put_old_results_away(&mut self, step: Step) -> Result<Compacted, StopCause> {
        let mut messages = self.around.record.conversation().messages.clone();
        let mut replaced = 0_usize;
        for at in old_results(&messages, step) {
            let text = messages[at].content.take().unwrap_or_default();
            // Where no file can be had the result stays, and a summary is what comes next.
            let pointer = large::put_away(&self.toolbox.context, &text);
            replaced += usize::from(pointer.is_some());
            messages[at].content = Some(pointer.unwrap_or(text));
        }
        if replaced == 0 {
            return Ok(Compacted::Nothing);
        }
        self.replace(messages)?;
        Ok(Compacted::Shorter { usage: None })
    }

    async fn summarise(&mut self) -> Result<Compacted, StopCause> {
        let messages = &self.around.record.conversation().messages;
        let Some(kept) = kept(messages, self.tail_bytes_max()) else {
            return Ok(Compacted::Nothing);
        };
        let source = transcript(messages, kept);
        let question = vec![
            Message::system(self.prompts.summary_instructions()),
            Message::user(source.clone()),
        ];
        let (summary, usage) = match self.ask_once(Some(question)).await? {
            Ok(reply) => (reply.content, reply.usage),
            Err(error) => return Ok(Compacted::Failed(error)),
        };
        // A model that says nothing leaves the record itself, cut.
        let summary = summary
            .filter(|text| !text.trim().is_empty())
            .unwrap_or(source);
        self.put_summary(kept, &cut_middle(&summary, SUMMARY_BYTES_MAX, ""))?;
        Ok(Compacted::Shorter { usage })
    }

    fn put_summary(&mut self, kept: Kept, summary: &str) -> Result<(), StopCause> {
        let message = self.prompts.summary_message(&self.display_name, summary);
        let messages = &self.around.record.conversation().messages;
        let shorter = summarised(messages, kept, message);
        self.replace(shorter)
    }

    fn replace(&mut self, messages: Vec<Message>) -> Result<(), StopCause> {
        self.around
            .record
            .replace(messages)
            .map_err(StopCause::Record)
    }

    /// A token has a byte at least, so the last turns never fill more than half of the context.
    fn tail_bytes_max(&self) -> usize {
        self.context_tokens.map_or(TURNS_KEPT_BYTES_MAX, |tokens| {
            TURNS_KEPT_BYTES_MAX.min(tokens as usize / 2)
        })
    }
}
