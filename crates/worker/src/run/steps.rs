//! What people see of each step of a run: the model's text as it comes, what a step took, and what
//! came of calls.

use protocol::stats::TokenUsage;
use serde_json::Value;

use crate::core::turn::CallResult;

/// What is kept of a line that has not ended, in bytes; of a longer one only so much is shown.
const PENDING_BYTES_MAX: usize = 4096;

/// The text of an answer that is still coming, line by line.
#[derive(Debug, Default)]
pub struct Streamed {
    pending: String,
    /// Something of this answer came already.
    begun: bool,
}

impl Streamed {
    /// Takes a piece and gives the lines that it completes.
    pub(super) fn push(&mut self, piece: &str) -> Vec<String> {
        self.begun = true;
        let mut lines = Vec::new();
        for part in piece.split_inclusive('\n') {
            let room = PENDING_BYTES_MAX.saturating_sub(self.pending.len());
            let end = part.floor_char_boundary(room);
            self.pending.push_str(&part[..end]);
            if part.ends_with('\n') {
                lines.push(std::mem::take(&mut self.pending));
            }
        }
        lines.retain(|line| !line.trim().is_empty());
        lines
    }

    /// The answer is whole: gives what is left of it, or all of it where nothing came before.
    pub(super) fn end(&mut self, text: &str) -> Vec<String> {
        let mut lines = match self.begun {
            true => Vec::new(),
            false => self.push(text),
        };
        lines.push(std::mem::take(&mut self.pending));
        lines.retain(|line| !line.trim().is_empty());
        self.begun = false;
        lines
    }

    /// The answer broke off and comes anew.
    pub(super) fn forget(&mut self) {
        *self = Streamed::default();
    }
}

/// What an answer of the model took.
pub(super) fn answered(took_ms: u64, usage: Option<TokenUsage>) -> String {
    let seconds = seconds(took_ms);
    match usage {
        Some(usage) => format!(
            "answered in {seconds}, {} tokens in, {} out",
            usage.prompt, usage.completion
        ),
        None => format!("answered in {seconds}"),
    }
}

/// What calls that ran side by side took and came to: the first line of a text, the message of an
/// error.
pub(super) fn done(took_ms: u64, results: &[CallResult]) -> String {
    let seconds = seconds(took_ms);
    let word = match results.iter().all(|result| result.succeeded) {
        true => "done",
        false => "failed",
    };
    let told: Vec<String> = results.iter().filter_map(first_words).collect();
    match told.is_empty() {
        true => format!("{word} in {seconds}"),
        false => format!("{word} in {seconds}: {}", told.join("; ")),
    }
}

fn first_words(result: &CallResult) -> Option<String> {
    match serde_json::from_str::<Value>(&result.content) {
        Ok(value) => value["error"]["message"].as_str().map(str::to_owned),
        Err(_) => result.content.lines().next().map(str::to_owned),
    }
}

fn seconds(milliseconds: u64) -> String {
    format!("{}.{} s", milliseconds / 1000, milliseconds % 1000 / 100)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::tally::Tally;

    #[test]
    fn text_is_shown_line_by_line_and_once() {
        let mut streamed = Streamed::default();
        assert_eq!(streamed.push("I wri"), Vec::<String>::new());
        assert_eq!(streamed.push("te.\n\nThen"), ["I write.\n"]);
        assert_eq!(streamed.end("I write.\n\nThen"), ["Then"]);
        // What came in one piece is shown as well.
        assert_eq!(streamed.end("all\nat once"), ["all\n", "at once"]);
        streamed.push("torn");
        streamed.forget();
        assert_eq!(streamed.end("whole"), ["whole"]);
        assert_eq!(streamed.end(""), Vec::<String>::new());
    }

    #[test]
    fn a_line_without_end_is_bounded() {
        let mut streamed = Streamed::default();
        for _ in 0..10_000 {
            streamed.push("固固固");
        }
        let lines = streamed.end("");
        assert_eq!(lines.len(), 1);
        assert!(lines[0].len() <= PENDING_BYTES_MAX);
    }

    #[test]
    fn a_step_tells_its_time_its_tokens_and_what_came_of_it() {
        let usage = TokenUsage {
            prompt: 120,
            completion: 30,
            total: 150,
            cached: 0,
        };
        assert_eq!(
            answered(1_250, Some(usage)),
            "answered in 1.2 s, 120 tokens in, 30 out"
        );
        assert_eq!(answered(90, None), "answered in 0.0 s");
        let result = |content: &str, succeeded| CallResult {
            content: content.to_owned(),
            succeeded,
            tally: Tally::default(),
            print: 0,
        };
        let command = result("[exit code 0; 3 bytes of output]\nabc", true);
        let wrote = result("{\"success\":true}", true);
        let error = result(
            "{\"success\":false,\"error\":{\"message\":\"no such file\"}}",
            false,
        );
        assert_eq!(
            done(300, &[command]),
            "done in 0.3 s: [exit code 0; 3 bytes of output]"
        );
        assert_eq!(done(0, std::slice::from_ref(&wrote)), "done in 0.0 s");
        assert_eq!(done(0, &[wrote, error]), "failed in 0.0 s: no such file");
    }
}
