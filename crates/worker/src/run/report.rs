//! What a run tells while it goes on: to people, to a program that reads lines, to its leader.

use std::io::{self, Write};
use std::time::Duration;

use protocol::channel::{
    ACK, AckParams, FINISHED, FinishedParams, OUTPUT, OutputParams, ProgressParams,
};
use protocol::conversation::{Message, Outcome, Role};
use protocol::secret::Mask;
use protocol::stats::Stats;
use serde_json::json;

use crate::core::turn::CallResult;
use crate::exit::StopCause;
use crate::io::channel::Leader;
use crate::model::ModelReply;
use crate::run::steps::{Streamed, answered, done};

/// One line for people, in characters.
const LINE_CHARS_MAX: usize = 160;
/// For the last words to the leader, before the process leaves without them.
const FLUSH_WITHIN: Duration = Duration::from_secs(1);

/// A writer that may be handed on.
pub type Output = Box<dyn Write + Send>;

/// Everyone who listens to a run.
#[derive(Default)]
pub struct Reporter {
    /// People, line by line.
    pub people: Option<Output>,
    /// A program that wants one JSON object a line.
    pub stream: Option<Output>,
    /// The leader.
    pub leader: Option<Leader>,
    /// What nobody is told.
    pub mask: Mask,
    /// What people have not seen yet of an answer that is coming.
    pub streamed: Streamed,
}

impl std::fmt::Debug for Reporter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Reporter")
            .field("people", &self.people.is_some())
            .field("stream", &self.stream.is_some())
            .field("leader", &self.leader.is_some())
            .finish()
    }
}

impl Reporter {
    /// A message was added to the conversation.
    ///
    /// # Errors
    /// When the program that reads the stream has gone.
    pub fn message(&mut self, message: &Message, turn: u64) -> Result<(), StopCause> {
        self.line(json!({"event": "message", "turn": turn, "message": message}))?;
        if message.role != Role::Assistant {
            return Ok(());
        }
        let text = message.content.as_deref().unwrap_or_default().trim();
        if text.is_empty() {
            return Ok(());
        }
        if let Some(leader) = &self.leader {
            leader.notify_spare(
                OUTPUT,
                OutputParams {
                    text: text.to_owned(),
                    is_final: message.tool_calls.is_empty(),
                },
            );
        }
        Ok(())
    }

    /// The agent does something else now, or has got further.
    pub fn progress(&mut self, progress: &ProgressParams) {
        if let Some(leader) = &self.leader {
            let mut progress = progress.clone();
            self.mask.progress(&mut progress);
            leader.progress(progress);
        }
    }

    /// The agent begins these calls, in words.
    ///
    /// # Errors
    /// When the program that reads the stream has gone.
    pub fn action(&mut self, action: &str, turn: u64) -> Result<(), StopCause> {
        self.tell_people(&format!("turn {turn}: {action}"));
        self.line(json!({"event": "action", "turn": turn, "action": action}))
    }

    /// A piece of an answer came.
    pub fn text(&mut self, piece: &str, turn: u64) {
        if self.people.is_none() {
            return;
        }
        for line in self.streamed.push(piece) {
            self.tell_people(&format!("turn {turn}: {line}"));
        }
    }

    /// The answer is whole; it took so long.
    pub(super) fn answered(&mut self, reply: &ModelReply, turn: u64, took_ms: u64) {
        for line in self
            .streamed
            .end(reply.content.as_deref().unwrap_or_default())
        {
            self.tell_people(&format!("turn {turn}: {line}"));
        }
        self.tell_people(&format!("turn {turn}: {}", answered(took_ms, reply.usage)));
    }

    /// Calls that ran side by side have ended.
    pub(super) fn done(&mut self, results: &[CallResult], turn: u64, took_ms: u64) {
        self.tell_people(&format!("turn {turn}: {}", done(took_ms, results)));
    }

    /// A model request failed and is sent again.
    ///
    /// # Errors
    /// When the program that reads the stream has gone.
    pub fn retry(&mut self, attempt: u32, why: &str, pause: Duration) -> Result<(), StopCause> {
        self.streamed.forget();
        let seconds = pause.as_secs_f64();
        self.tell_people(&format!(
            "model request {attempt} failed: {why}; again in {seconds:.1} s"
        ));
        self.line(json!({
            "event": "retry", "attempt": attempt, "why": why,
            "pause_ms": u64::try_from(pause.as_millis()).unwrap_or(u64::MAX)}))
    }

    /// These delivered messages are in the journal, and on the disk.
    pub fn acknowledge(&mut self, message_ids: Vec<String>) {
        if message_ids.is_empty() {
            return;
        }
        if let Some(leader) = &self.leader {
            leader.notify(ACK, AckParams { message_ids });
        }
    }

    /// The run is over and its files are written.
    pub async fn finished(&mut self, outcome: &Outcome, stats: Stats) {
        let Some(leader) = &self.leader else {
            return;
        };
        leader.notify_last(
            FINISHED,
            FinishedParams {
                success: outcome.success,
                summary: outcome.summary.clone(),
                stop_reason: outcome.stop_reason,
                stats,
            },
        );
        leader.flush(FLUSH_WITHIN).await;
    }

    /// One line for people. Nothing hangs on it, so a closed terminal is no failure.
    pub fn tell_people(&mut self, text: &str) {
        let text = self.mask.text(text);
        if let Some(people) = &mut self.people
            && writeln!(people, "{}", one_line(&text)).is_err()
        {
            self.people = None;
        }
    }

    fn line(&mut self, mut event: serde_json::Value) -> Result<(), StopCause> {
        let Some(stream) = &mut self.stream else {
            return Ok(());
        };
        self.mask.json(&mut event);
        match writeln!(stream, "{event}").and_then(|()| stream.flush()) {
            Ok(()) => Ok(()),
            Err(error) => {
                if error.kind() != io::ErrorKind::BrokenPipe {
                    tracing::error!(%error, "cannot write to stdout");
                }
                self.stream = None;
                Err(StopCause::OutputClosed)
            }
        }
    }
}

/// A text of a model as one line of a terminal: cut, and without control characters, which could
/// move the cursor or hide what is printed.
pub fn one_line(text: &str) -> String {
    let mut line = String::new();
    let mut words = text.split_whitespace();
    let mut chars = 0;
    for word in words.by_ref() {
        for c in word.chars().chain([' ']) {
            if chars == LINE_CHARS_MAX {
                line.push('…');
                return line;
            }
            line.push(if c.is_control() { '\u{fffd}' } else { c });
            chars += 1;
        }
    }
    line.pop();
    line
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    /// A writer that a test can look into, or that has been closed.
    #[derive(Clone, Default)]
    struct Sink(Arc<Mutex<Vec<u8>>>, bool);

    impl Write for Sink {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            if self.1 {
                return Err(io::ErrorKind::BrokenPipe.into());
            }
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_line_for_people_is_cut_and_moves_no_cursor() {
        assert_eq!(one_line(" a\n\tb  c "), "a b c");
        assert_eq!(one_line("a\u{1b}[2Jb\u{7}"), "a\u{fffd}[2Jb\u{fffd}");
        let long = one_line(&"固".repeat(1_000));
        assert_eq!(long.chars().count(), LINE_CHARS_MAX + 1);
        assert_eq!(one_line(""), "");
    }

    #[test]
    fn each_event_is_one_line_of_json() {
        let sink = Sink::default();
        let mut reporter = Reporter {
            stream: Some(Box::new(sink.clone())),
            ..Reporter::default()
        };
        reporter.message(&Message::user("a\nb"), 0).unwrap();
        reporter.action("reading x", 1).unwrap();
        let text = String::from_utf8(sink.0.lock().unwrap().clone()).unwrap();
        let events: Vec<serde_json::Value> = text
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect();
        assert_eq!(
            events,
            [
                json!({"event": "message", "turn": 0,
                       "message": {"role": "user", "content": "a\nb"}}),
                json!({"event": "action", "turn": 1, "action": "reading x"}),
            ]
        );
    }

    #[test]
    fn a_reader_that_has_gone_stops_the_run_and_a_closed_terminal_does_not() {
        let gone = || -> Output { Box::new(Sink(Arc::default(), true)) };
        let mut reporter = Reporter {
            people: Some(gone()),
            stream: Some(gone()),
            ..Reporter::default()
        };
        reporter.tell_people("hello");
        assert!(reporter.people.is_none());
        assert!(matches!(
            reporter.action("reading x", 1),
            Err(StopCause::OutputClosed)
        ));
        assert!(reporter.action("reading x", 1).is_ok());
    }
}
