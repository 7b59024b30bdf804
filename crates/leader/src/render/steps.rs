//! An agent's steps for people.

use protocol::conversation::Role;

use crate::faces::steps::Step;
use crate::render::style::{Style, Tone};
use crate::render::width::{cut, plain, plain_lines};

/// Lines of one text that are shown; the journal has the rest.
const LINES_SHOWN_MAX: usize = 20;
/// Columns of a call's arguments.
const ARGUMENTS_COLUMNS_MAX: usize = 200;

/// One step, each line ended.
pub fn step_text(step: &Step, style: Style) -> String {
    match step {
        Step::Message {
            role,
            content,
            tool_calls,
        } => {
            let mut text = String::new();
            if let Some(content) = content.as_deref().filter(|text| !text.trim().is_empty()) {
                text.push_str(&block(role_word(*role), tone(*role), content, style));
            }
            for call in tool_calls {
                text.push_str(&format!(
                    "{} {} {}\n",
                    style.paint(Tone::Strong, "calls"),
                    plain(&call.name),
                    cut(&plain(&call.arguments), ARGUMENTS_COLUMNS_MAX)
                ));
            }
            text
        }
        Step::Replaced { messages } => format!(
            "{} the conversation was shortened to {messages} messages\n",
            style.paint(Tone::Faint, "note")
        ),
        Step::Finished {
            success,
            summary,
            stop_reason,
        } => {
            let (word, tone) = match success {
                true => ("finished", Tone::Good),
                false => ("ended", Tone::Bad),
            };
            let reason = stop_reason.map_or(String::new(), |reason| format!("{reason}: "));
            block(word, tone, &format!("{reason}{summary}"), style)
        }
    }
}

fn role_word(role: Role) -> &'static str {
    match role {
        Role::System => "system",
        Role::User => "user",
        Role::Assistant => "agent",
        Role::Tool => "result",
    }
}

fn tone(role: Role) -> Tone {
    match role {
        Role::System | Role::Tool => Tone::Faint,
        Role::User => Tone::Odd,
        Role::Assistant => Tone::Strong,
    }
}

/// A word, then a text whose further lines stand below it, indented.
fn block(word: &str, tone: Tone, text: &str, style: Style) -> String {
    let text = plain_lines(text.trim_end());
    let mut lines = text.lines();
    let first = lines.next().unwrap_or_default();
    let mut shown = format!("{} {first}\n", style.paint(tone, word));
    let count = lines.clone().count();
    for line in lines.by_ref().take(LINES_SHOWN_MAX - 1) {
        shown.push_str(&format!("  {line}\n"));
    }
    if count >= LINES_SHOWN_MAX {
        shown.push_str(&format!("  … {} more lines\n", count + 1 - LINES_SHOWN_MAX));
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::faces::steps::StepCall;
    use protocol::status::StopReason;

    fn shown(step: &Step) -> String {
        step_text(step, Style::Plain)
    }

    #[test]
    fn a_step_shows_who_and_what() {
        let step = Step::Message {
            role: Role::Assistant,
            content: Some("Reading.\nThen writing.\n".into()),
            tool_calls: vec![StepCall {
                name: "read_file".into(),
                arguments: "{\n \"path\": \"a\x1b\"}".into(),
            }],
        };
        assert_eq!(
            shown(&step),
            "agent Reading.\n  Then writing.\ncalls read_file {  \"path\": \"a\u{FFFD}\"}\n"
        );
        let silent = Step::Message {
            role: Role::Assistant,
            content: None,
            tool_calls: Vec::new(),
        };
        assert_eq!(shown(&silent), "");
        assert_eq!(
            shown(&Step::Finished {
                success: false,
                summary: "gave up".into(),
                stop_reason: Some(StopReason::NoFinish),
            }),
            "ended no_finish: gave up\n"
        );
    }

    #[test]
    fn a_long_text_shows_its_first_lines() {
        for (lines, more) in [(20, None), (21, Some("  … 1 more lines\n"))] {
            let content: String = (1..=lines).map(|n| format!("line {n}\n")).collect();
            let text = shown(&Step::Message {
                role: Role::Tool,
                content: Some(content),
                tool_calls: Vec::new(),
            });
            assert!(text.contains("  line 20\n"), "{text}");
            assert_eq!(text.contains("more lines"), more.is_some());
            assert!(text.ends_with(more.unwrap_or("  line 20\n")), "{text}");
        }
    }
}
