//! Where a command prints: results on stdout, everything else on stderr, each with its own look.

use std::io::{self, Write};

use protocol::error::ToolError;

pub use crate::os::failure::code_of;
use crate::render::Style;
use crate::render::result::error_text;
use crate::render::style::Tone;
use crate::render::width::plain_lines;
use crate::render::wrap::wrap;

/// How the two outputs look.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Look {
    /// Of stdout.
    pub out: Style,
    /// Of stderr.
    pub err: Style,
    /// Columns of the terminal that stdout is; none when it is no terminal.
    pub out_columns: Option<usize>,
    /// Columns of the terminal that stderr is; none when it is no terminal.
    pub err_columns: Option<usize>,
    /// Whether a line may be drawn over and over on stderr.
    pub live: bool,
    /// Whether no progress is wanted at all.
    pub quiet: bool,
}

/// The two outputs of a command.
pub struct Console<'a> {
    out: &'a mut dyn Write,
    err: &'a mut dyn Write,
    look: Look,
    out_is_closed: bool,
    live_is_drawn: bool,
}

impl std::fmt::Debug for Console<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Console")
            .field("look", &self.look)
            .field("out_is_closed", &self.out_is_closed)
            .finish_non_exhaustive()
    }
}

impl<'a> Console<'a> {
    /// A console that prints to these writers.
    pub fn new(out: &'a mut dyn Write, err: &'a mut dyn Write, look: Look) -> Self {
        Console {
            out,
            err,
            look,
            out_is_closed: false,
            live_is_drawn: false,
        }
    }

    /// How it looks.
    pub fn look(&self) -> Look {
        self.look
    }

    /// Whether no progress is wanted at all, also not as lines.
    pub fn is_quiet(&self) -> bool {
        self.look.quiet
    }

    /// Whether whoever read stdout has gone: `leader … | head`. Nothing more need be made for it.
    pub fn out_is_closed(&self) -> bool {
        self.out_is_closed
    }

    /// Prints to stdout. A reader that has gone is no failure.
    ///
    /// # Errors
    /// When stdout can't be written for another reason, such as a full disk.
    pub fn print(&mut self, text: &str) -> Result<(), ToolError> {
        if self.out_is_closed {
            return Ok(());
        }
        self.clear_live();
        let written = self
            .out
            .write_all(text.as_bytes())
            .and_then(|()| self.out.flush());
        match written {
            Ok(()) => Ok(()),
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {
                self.out_is_closed = true;
                Ok(())
            }
            Err(error) => Err(ToolError::new(
                code_of(&error),
                format!("the result could not be written to stdout: {error}"),
            )),
        }
    }

    /// Prints to stdout what is either JSON or text for people; the long lines of that are broken
    /// for the terminal, if stdout is one.
    ///
    /// # Errors
    /// As [`Console::print`].
    pub fn show(&mut self, text: &str, is_json: bool) -> Result<(), ToolError> {
        match self.look.out_columns {
            Some(columns) if !is_json => self.print(&wrap(text, columns)),
            Some(_) | None => self.print(text),
        }
    }

    /// Prints to stderr, long lines broken for the terminal, if it is one. There is nowhere left to tell of a failure of that.
    pub fn say(&mut self, text: &str) {
        self.clear_live();
        match self.look.err_columns {
            Some(columns) => self.err.write_all(wrap(text, columns).as_bytes()).ok(),
            None => self.err.write_all(text.as_bytes()).ok(),
        };
        self.err.flush().ok();
    }

    /// A warning on stderr.
    pub fn warn(&mut self, text: &str) {
        let mark = self.look.err.paint(Tone::Odd, "warning:");
        self.say(&format!("{mark} {}\n", plain_lines(text)));
    }

    /// A refusal or failure on stderr, with its hint.
    pub fn fail(&mut self, error: &ToolError) {
        let text = error_text(error, self.look.err);
        self.say(&text);
    }

    /// Draws the live line in place of the one before, if there may be one.
    pub fn live(&mut self, line: &str) {
        if !self.look.live {
            return;
        }
        // Return, text, erase what is left of a longer line before (ECMA-48, EL).
        write!(self.err, "\r{line}\x1b[K").ok();
        self.err.flush().ok();
        self.live_is_drawn = true;
    }

    /// Takes the live line away.
    pub fn clear_live(&mut self) {
        if self.live_is_drawn {
            self.err.write_all(b"\r\x1b[K").ok();
            self.err.flush().ok();
            self.live_is_drawn = false;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use protocol::error::ErrorCode;

    struct Failing(io::ErrorKind);

    impl Write for Failing {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(self.0.into())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_reader_that_left_is_quiet_and_a_full_disk_is_not() {
        let mut err = Vec::new();
        let mut pipe = Failing(io::ErrorKind::BrokenPipe);
        let mut console = Console::new(&mut pipe, &mut err, Look::default());
        assert_eq!(console.print("x"), Ok(()));
        assert!(console.out_is_closed());
        let mut disk = Failing(io::ErrorKind::StorageFull);
        let mut console = Console::new(&mut disk, &mut err, Look::default());
        assert_eq!(console.print("x").unwrap_err().code, ErrorCode::DiskFull);
        assert!(err.is_empty());
    }

    #[test]
    fn long_lines_are_broken_for_a_terminal_and_nowhere_else() {
        let text = "hint: what is told here takes more columns than there are\n";
        let broken = "hint: what is told here takes more\n  columns than there are\n";
        for (columns, expected) in [(None, text), (Some(40), broken)] {
            let (mut out, mut err) = (Vec::new(), Vec::new());
            let look = Look {
                out_columns: columns,
                err_columns: columns,
                ..Look::default()
            };
            let mut console = Console::new(&mut out, &mut err, look);
            console.say(text);
            console.show(text, false).unwrap();
            // What programs read is left alone.
            console.show(text, true).unwrap();
            assert_eq!(String::from_utf8(err).unwrap(), expected);
            assert_eq!(String::from_utf8(out).unwrap(), expected.to_owned() + text);
        }
    }

    #[test]
    fn a_live_line_is_drawn_only_where_it_may_and_taken_away_before_text() {
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let mut console = Console::new(&mut out, &mut err, Look::default());
        console.live("busy");
        console.warn("odd");
        assert_eq!(err, b"warning: odd\n");
        err.clear();
        let look = Look {
            live: true,
            ..Look::default()
        };
        let mut console = Console::new(&mut out, &mut err, look);
        console.live("busy");
        console.live("done");
        console.print("result\n").unwrap();
        console.clear_live();
        assert_eq!(
            (out, err),
            (
                b"result\n".to_vec(),
                b"\rbusy\x1b[K\rdone\x1b[K\r\x1b[K".to_vec()
            )
        );
    }
}
