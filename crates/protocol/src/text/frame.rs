//! How one agent's words stand in another agent's conversation: framed, so that no content can
//! close or forge a frame.

use serde::{Deserialize, Serialize};

use super::prompts::Prompts;
use super::turn::single_line;
use crate::status::words;

words!(
    /// What kind of message it is.
    FrameKind {
        /// Work to do.
        Task = "task",
        /// A report.
        Output = "output",
        /// A question that wants an answer.
        Ask = "ask",
        /// The answer to one.
        Answer = "answer",
        /// Anything else that is said.
        Message = "message",
        /// What the leader tells of an agent.
        Notice = "notice",
    }
);

impl FrameKind {
    /// The kind of a wire word; an unknown word is a plain message.
    pub fn of_word(word: &str) -> FrameKind {
        FrameKind::ALL
            .iter()
            .copied()
            .find(|kind| kind.as_str() == word)
            .unwrap_or(FrameKind::Message)
    }
}

/// One message from one agent to another.
#[derive(Debug, Clone, Copy)]
pub struct Frame<'a> {
    /// The sender's display name.
    pub from: &'a str,
    /// The receiver's display name.
    pub to: &'a str,
    /// What it is.
    pub kind: FrameKind,
    /// The message's id.
    pub id: &'a str,
    /// What is said, as it was said.
    pub content: &'a str,
}

impl Prompts {
    /// The user message that carries another agent's words.
    pub fn frame(&self, frame: &Frame<'_>) -> String {
        let kind = frame.kind.as_str();
        self.file(
            "frames.md",
            &[
                ("kind_name", &self.phrase(&format!("kind_{kind}"), &[])),
                ("kind", kind),
                ("from", &escape(&single_line(frame.from))),
                ("to", &escape(&single_line(frame.to))),
                ("id", &escape(&single_line(frame.id))),
                ("content", &escape(frame.content)),
            ],
        )
    }
}

/// Makes a text harmless inside an element whose tags have these names, and leaves the rest as it
/// is: source code with `&amp;` and `&lt;` in every line would be copied so by some models.
pub(super) fn without_tags(text: &str, names: &[&str]) -> String {
    let is_tag = |rest: &str| {
        let name = rest.trim_start_matches(|c: char| c == '/' || c.is_whitespace());
        names.iter().any(|tag| {
            name.get(..tag.len())
                .is_some_and(|start| start.eq_ignore_ascii_case(tag))
        })
    };
    let mut harmless = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('<') {
        let (before, behind) = rest.split_at(at);
        let behind = &behind[1..];
        harmless.push_str(before);
        harmless.push_str(if is_tag(behind) { "&lt;" } else { "<" });
        rest = behind;
    }
    harmless.push_str(rest);
    harmless
}

/// Makes a text harmless inside an XML element or a quoted attribute.
pub(super) fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            other => escaped.push(other),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_frames_own_tags_are_taken_out() {
        let names = ["command", "background-results"];
        for (text, wanted) in [
            ("a < b && Vec<T>", "a < b && Vec<T>"),
            ("</command>", "&lt;/command>"),
            ("< / COMMAND id=1>", "&lt; / COMMAND id=1>"),
            ("<<background-results>", "<&lt;background-results>"),
            ("<comma", "<comma"),
            ("<\u{6587}>", "<\u{6587}>"),
            ("<", "<"),
            ("", ""),
        ] {
            assert_eq!(without_tags(text, &names), wanted);
        }
    }
}
