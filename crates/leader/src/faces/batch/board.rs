//! What a person sees of a batch while it runs, on stderr: a line for each running item and the
//! totals on a terminal, one line for each end elsewhere, nothing with `--quiet`.

use std::time::Duration;

use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};
use protocol::manifest::ManifestItem;
use protocol::result::AgentStatus;
use protocol::status::Status;

use crate::faces::console::Console;
use crate::os::clock::Clock;
use crate::os::terminal;
use crate::render::Style;
use crate::render::batch::{Totals, running_line, settled_line, totals_line};

/// Between two looks at the agents, in milliseconds. They show time that passes, so a clock asks;
/// nothing is decided by it.
pub const LOOK_MS: u64 = 250;
/// Running items that have a line of their own.
const LINES_MAX: usize = 16;
/// Columns of a line where there is no terminal to ask.
const PLAIN_COLUMNS: usize = 200;
/// Silence after which the totals are told where there is no terminal, in milliseconds.
const SILENCE_MS_MAX: u64 = 30_000;
/// Columns of the bar itself.
const BAR_COLUMNS: usize = 20;

/// How a batch is shown.
#[derive(Debug)]
pub struct Board {
    clock: Clock,
    how: How,
}

#[derive(Debug)]
enum How {
    Bars(Box<Bars>),
    Lines { told_ms: u64 },
    Nothing,
}

#[derive(Debug)]
struct Bars {
    all: MultiProgress,
    lines: Vec<ProgressBar>,
    totals: ProgressBar,
}

impl Board {
    /// A board for `items` items.
    pub fn new(console: &Console<'_>, items: usize, is_quiet: bool) -> Board {
        let how = match (is_quiet, console.look().live) {
            (true, _) => How::Nothing,
            (false, true) => How::Bars(Box::new(Bars::new(items, console.look().err))),
            (false, false) => How::Lines { told_ms: 0 },
        };
        Board {
            clock: Clock::start(),
            how,
        }
    }

    /// Seconds since the beginning.
    pub fn seconds(&self) -> u64 {
        self.clock.now_ms() / 1_000
    }

    /// Whether it wants [`Board::look`].
    pub fn wants_looks(&self) -> bool {
        !matches!(self.how, How::Nothing)
    }

    /// Shows where the agents stand.
    pub fn look(
        &mut self,
        running: &[(&str, AgentStatus)],
        totals: &Totals,
        console: &mut Console<'_>,
    ) {
        let (seconds, now_ms) = (self.seconds(), self.clock.now_ms());
        match &mut self.how {
            How::Bars(bars) => bars.draw(running, totals, seconds),
            How::Lines { told_ms } => {
                if now_ms.saturating_sub(*told_ms) >= SILENCE_MS_MAX {
                    *told_ms = now_ms;
                    console.say(&format!("{}\n", totals_line(totals, seconds)));
                }
            }
            How::Nothing => {}
        }
    }

    /// Tells that an item is settled.
    pub fn settled(&mut self, record: &ManifestItem, totals: &Totals, console: &mut Console<'_>) {
        let now_ms = self.clock.now_ms();
        match &mut self.how {
            How::Bars(bars) => {
                let width = columns().saturating_sub(1);
                let line = settled_line(record, console.look().err, width);
                bars.all.suspend(|| console.say(&format!("{line}\n")));
            }
            How::Lines { told_ms } => {
                *told_ms = now_ms;
                let count = format!("[{}/{}] ", totals.settled(), totals.all);
                let line = settled_line(record, console.look().err, PLAIN_COLUMNS);
                console.say(&format!("{count}{line}\n"));
            }
            How::Nothing => {}
        }
    }

    /// Prints something while the bars are away.
    pub fn aside<T>(&self, print: impl FnOnce() -> T) -> T {
        match &self.how {
            How::Bars(bars) => bars.all.suspend(print),
            How::Lines { .. } | How::Nothing => print(),
        }
    }

    /// Takes the bars away until the next look.
    pub fn hide(&self) {
        if let How::Bars(bars) = &self.how {
            // A terminal that has gone shows nothing anyway.
            bars.all.clear().ok();
        }
    }

    /// Takes the bars away for good.
    pub fn clear(&mut self) {
        self.hide();
        self.how = How::Nothing;
    }
}

impl Bars {
    fn new(items: usize, style: Style) -> Bars {
        let all = MultiProgress::with_draw_target(ProgressDrawTarget::stderr());
        let totals = all.add(ProgressBar::new(items as u64));
        let colour = match style {
            Style::Plain => "",
            Style::Colour => ".green",
        };
        totals.set_style(bar_style(&format!("{{bar:{BAR_COLUMNS}{colour}}} {{msg}}")));
        Bars {
            all,
            lines: Vec::new(),
            totals,
        }
    }

    fn draw(&mut self, running: &[(&str, AgentStatus)], totals: &Totals, seconds: u64) {
        let width = columns().saturating_sub(1);
        let mut texts: Vec<String> = running
            .iter()
            .filter(|(_, agent)| agent.status != Status::Queued)
            .map(|(id, agent)| running_line(id, agent, width))
            .collect();
        if texts.len() > LINES_MAX {
            let more = texts.len() - (LINES_MAX - 1);
            texts.truncate(LINES_MAX - 1);
            texts.push(format!("… and {more} more running"));
        }
        while self.lines.len() < texts.len() {
            let line = self
                .all
                .insert_before(&self.totals, ProgressBar::no_length());
            line.set_style(bar_style("{msg}"));
            self.lines.push(line);
        }
        for line in self.lines.drain(texts.len()..) {
            line.finish_and_clear();
            self.all.remove(&line);
        }
        for (line, text) in self.lines.iter().zip(texts) {
            line.set_message(text);
        }
        self.totals.set_position(totals.settled() as u64);
        let room = width.saturating_sub(BAR_COLUMNS + 1);
        let text = totals_line(totals, seconds);
        self.totals
            .set_message(crate::render::width::cut(&text, room));
    }
}

/// The templates are ours, and known to be right; a bar without its look is better than none.
fn bar_style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template)
        .unwrap_or_else(|_| ProgressStyle::default_bar())
        .progress_chars("=> ")
}

fn columns() -> usize {
    terminal::columns(std::io::stderr()).unwrap_or(terminal::COLUMNS_DEFAULT)
}

/// The time between two looks.
pub fn look_every() -> Duration {
    Duration::from_millis(LOOK_MS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::faces::console::Look;
    use crate::render::line::sample_status;
    use protocol::manifest::ItemStatus;

    #[test]
    fn without_a_terminal_each_end_is_a_line_and_quiet_is_quiet() {
        for (is_quiet, expected) in [(false, "[1/2] skipped     a\n"), (true, "")] {
            let (mut out, mut err) = (Vec::new(), Vec::new());
            let mut console = Console::new(&mut out, &mut err, Look::default());
            let mut board = Board::new(&console, 2, is_quiet);
            let record = ManifestItem {
                status: ItemStatus::Skipped,
                ..ManifestItem::pending("a", "", Vec::new(), "s")
            };
            let totals = Totals {
                all: 2,
                skipped: 1,
                ..Totals::default()
            };
            board.settled(&record, &totals, &mut console);
            // Something was told a moment ago: no need for the totals.
            board.look(&[("b", sample_status())], &totals, &mut console);
            board.clear();
            assert_eq!(String::from_utf8(err).unwrap(), expected);
            assert!(out.is_empty());
        }
    }
}
