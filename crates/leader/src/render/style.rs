//! Colours, where they are wanted and nowhere else.

use protocol::status::Status;

/// Whether a writer takes colours.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Style {
    /// No control codes at all.
    #[default]
    Plain,
    /// ANSI colours.
    Colour,
}

/// What a piece of text means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tone {
    /// Went well.
    Good,
    /// Went wrong.
    Bad,
    /// Neither, but worth a look.
    Odd,
    /// A heading.
    Strong,
    /// Less important.
    Faint,
}

impl Style {
    /// Colours only on a terminal, and not where `NO_COLOR` holds something or `TERM` is `dumb`.
    pub fn of(is_terminal: bool, no_color: Option<&str>, term: Option<&str>) -> Style {
        let wanted = no_color.is_none_or(str::is_empty) && term != Some("dumb");
        if is_terminal && wanted {
            Style::Colour
        } else {
            Style::Plain
        }
    }

    /// A text in a tone.
    pub fn paint(self, tone: Tone, text: &str) -> String {
        match self {
            Style::Plain => text.to_owned(),
            Style::Colour => format!("\x1b[{}m{text}\x1b[0m", tone.code()),
        }
    }
}

impl Tone {
    /// The tone of a status.
    pub fn of(status: Status) -> Tone {
        match status {
            Status::Completed => Tone::Good,
            Status::Failed | Status::TimedOut | Status::Interrupted => Tone::Bad,
            Status::Terminated | Status::Stopping | Status::Waiting => Tone::Odd,
            Status::Created | Status::Queued | Status::Idle => Tone::Faint,
            Status::Starting | Status::Running => Tone::Strong,
        }
    }

    fn code(self) -> &'static str {
        match self {
            Tone::Good => "32",
            Tone::Bad => "31",
            Tone::Odd => "33",
            Tone::Strong => "1",
            Tone::Faint => "2",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colours_need_a_terminal_and_nobody_against_them() {
        assert_eq!(Style::of(true, None, Some("xterm")), Style::Colour);
        assert_eq!(Style::of(true, Some(""), None), Style::Colour);
        assert_eq!(Style::of(false, None, None), Style::Plain);
        assert_eq!(Style::of(true, Some("1"), None), Style::Plain);
        assert_eq!(Style::of(true, None, Some("dumb")), Style::Plain);
        assert_eq!(Style::Colour.paint(Tone::Bad, "x"), "\x1b[31mx\x1b[0m");
        assert_eq!(Style::Plain.paint(Tone::Bad, "x"), "x");
    }
}
