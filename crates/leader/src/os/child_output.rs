//! Sorts out what a child prints: frames, lines of the jail, and junk.
//!
//! A line in the jail's name is believed only where the worker can't have written it: before the
//! worker speaks, and at the very end. On stderr it notes names that were replaced from outside;
//! the worker could write such a line as well, so that nothing but an event comes of it.

use confine::limits::REBOUND_MAX;
use confine::report::{Ended, Failed, Fallen, JailLine};
use protocol::channel::INITIALIZE;
use protocol::limits;
use protocol::wire::{Frame, Line, LineSplitter};

use crate::os::process::{ChildEnd, ChildEvent, WaitStatus};
use crate::store::worker_log::WorkerLog;

/// The longest line of stderr that is looked at, in bytes: a path and the words around it.
const NOTE_BYTES_MAX: usize = 32 * 1024;
/// How the jail's notes on stderr begin.
const NOTE_START: &str = r#"{"jsonrpc":"2.0","method":"jail/"#;

/// What the child printed, sorted out.
#[derive(Debug)]
pub(super) struct Output {
    splitter: LineSplitter,
    log: WorkerLog,
    phase: Phase,
    notes: LineSplitter,
    fallen_told: u32,
    jail_failed: Option<Failed>,
    jail_ended: Option<Ended>,
    junk_lines: u64,
    junk_bytes_kept: usize,
}

/// What of the jail's lines is believed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// Nothing said yet: the jail's first line is due.
    Silent,
    /// The jail stands; the worker has not said `initialize`.
    Started,
    /// The worker speaks: a line of the jail is a forgery, but for the very last.
    Speaking,
}

impl Output {
    pub(super) fn new(log: WorkerLog) -> Self {
        Output {
            splitter: LineSplitter::default(),
            log,
            phase: Phase::Silent,
            notes: LineSplitter::with_limit(NOTE_BYTES_MAX),
            fallen_told: 0,
            jail_failed: None,
            jail_ended: None,
            junk_lines: 0,
            junk_bytes_kept: 0,
        }
    }

    /// Takes bytes of stderr and gives what the jail notes among them.
    pub(super) fn stderr(&mut self, bytes: &[u8]) -> Vec<ChildEvent> {
        self.log.write(bytes);
        let lines = self.notes.push(bytes);
        let fallen: Vec<Fallen> = lines.iter().filter_map(fallen_in).collect();
        let room = REBOUND_MAX.saturating_sub(self.fallen_told);
        let told = fallen.len().min(room as usize);
        self.fallen_told += u32::try_from(told).unwrap_or(room);
        fallen
            .into_iter()
            .take(told)
            .map(ChildEvent::Fallen)
            .collect()
    }

    /// Takes bytes of stdout and gives what they complete.
    pub(super) fn stdout(&mut self, bytes: &[u8]) -> Vec<ChildEvent> {
        let lines = self.splitter.push(bytes);
        lines
            .into_iter()
            .filter_map(|line| self.line(line))
            .collect()
    }

    /// Decides what one line is.
    fn line(&mut self, line: Line) -> Option<ChildEvent> {
        let line = match line {
            Line::Whole(line) if line.iter().all(u8::is_ascii_whitespace) => return None,
            Line::Whole(line) => line,
            Line::Torn(line) => {
                self.junk(&line);
                return None;
            }
            Line::TooLong(bytes) => {
                self.junk(format!("[a line of {bytes} bytes]").as_bytes());
                return None;
            }
        };
        // The jail's last line is believed only when nothing follows it.
        self.jail_ended = None;
        match Frame::parse(&line) {
            Ok(Frame::Notification { method, params }) if method.starts_with("jail/") => {
                match JailLine::from_method(&method, params) {
                    Some(jail) => self.jail_line(jail),
                    None => {
                        self.junk(&line);
                        None
                    }
                }
            }
            Ok(frame) => {
                if matches!(&frame, Frame::Request { method, .. } if method == INITIALIZE) {
                    self.phase = Phase::Speaking;
                }
                Some(ChildEvent::Frame(frame))
            }
            Err(_) => {
                self.junk(&line);
                None
            }
        }
    }

    fn jail_line(&mut self, line: JailLine) -> Option<ChildEvent> {
        match (line, self.phase) {
            (JailLine::Started(started), Phase::Silent) => {
                self.phase = Phase::Started;
                Some(ChildEvent::Started(Box::new(started)))
            }
            (JailLine::Failed(failed), Phase::Silent | Phase::Started) => {
                self.jail_failed = Some(failed);
                None
            }
            (JailLine::Ended(ended), Phase::Silent | Phase::Started | Phase::Speaking) => {
                self.jail_ended = Some(ended);
                None
            }
            (JailLine::Started(_), Phase::Started | Phase::Speaking)
            | (JailLine::Failed(_), Phase::Speaking)
            // It has its place on stderr.
            | (JailLine::Fallen(_), _) => {
                self.junk(b"[a line in the name of the jail]");
                None
            }
        }
    }

    /// Counts a line that is no frame, and keeps it while there is room.
    fn junk(&mut self, line: &[u8]) {
        self.junk_lines += 1;
        let room = limits::JUNK_BYTES_MAX - self.junk_bytes_kept;
        let kept = &line[..line.len().min(room)];
        self.junk_bytes_kept += kept.len();
        if !kept.is_empty() {
            self.log.write(b"[stdout] ");
            self.log.write(kept);
            self.log.write(b"\n");
        }
    }

    /// What all of it came to.
    pub(super) fn end(mut self, status: WaitStatus) -> ChildEnd {
        if let Some(rest) = self.splitter.end() {
            // Half a line is junk, and takes nothing from the jail's word before it.
            drop(self.line(rest));
        }
        let mut warnings = Vec::new();
        match self.junk_lines {
            0 => {}
            1 => warnings.push("a line on the worker's stdout was no frame; see worker.log".into()),
            lines => warnings.push(format!(
                "{lines} lines on the worker's stdout were no frames; see worker.log"
            )),
        }
        // Only these codes of the jail mean that it did not start the worker.
        let never_started = matches!(status, WaitStatus::Exited(125..=127));
        let stderr_tail = self.log.last_text();
        if let Err(error) = self.log.finish() {
            warnings.push(format!("worker.log could not be written: {error}"));
        }
        ChildEnd {
            status,
            jail_failed: self.jail_failed.filter(|_| never_started),
            jail_ended: self.jail_ended,
            stderr_tail,
            warnings,
        }
    }
}

/// What a line of stderr notes. It may stand behind half a line of the worker's own.
fn fallen_in(line: &Line) -> Option<Fallen> {
    let Line::Whole(line) = line else { return None };
    let text = std::str::from_utf8(line).ok()?;
    match JailLine::parse(&text[text.find(NOTE_START)?..])? {
        JailLine::Fallen(fallen) => Some(fallen),
        JailLine::Started(_) | JailLine::Failed(_) | JailLine::Ended(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::os::files::Dir;
    use protocol::secret::Mask;
    use std::fs;

    const HELLO: &str = r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{}}"#;
    const ENDED: &str =
        r#"{"jsonrpc":"2.0","method":"jail/ended","params":{"exit_code":3,"reason":"program"}}"#;
    const FAILED: &str = r#"{"jsonrpc":"2.0","method":"jail/failed","params":{"step":"exec","errno":2,"errno_name":"ENOENT","path":"/x","message":"no worker"}}"#;

    struct Heard {
        events: usize,
        end: ChildEnd,
        log: String,
    }

    fn hear(text: &str, status: WaitStatus) -> Heard {
        let place = tempfile::tempdir().unwrap();
        let log = WorkerLog::create(&Dir::open(place.path()).unwrap(), Mask::default());
        let mut output = Output::new(log);
        let events = output.stdout(text.as_bytes()).len();
        let end = output.end(status);
        let log = fs::read_to_string(place.path().join("worker.log")).unwrap();
        Heard { events, end, log }
    }

    #[test]
    fn what_the_jail_notes_on_stderr_is_heard_a_bounded_number_of_times() {
        let place = tempfile::tempdir().unwrap();
        let log = WorkerLog::create(&Dir::open(place.path()).unwrap(), Mask::default());
        let mut output = Output::new(log);
        let fallen = Fallen {
            path: "/w/.git".into(),
            again: true,
        };
        let line = JailLine::Fallen(fallen.clone()).to_line();
        let (start, rest) = line.split_at(20);
        assert!(output.stderr(b"half a line").is_empty());
        assert!(output.stderr(start.as_bytes()).is_empty());
        let heard = output.stderr(rest.as_bytes());
        assert!(matches!(&heard[..], [ChildEvent::Fallen(it)] if *it == fallen));
        let ended = format!("{ENDED}\n{}\n", line.trim_end().replace("true", "7"));
        assert!(output.stderr(ended.as_bytes()).is_empty());
        let many = output.stderr(line.repeat(100).as_bytes());
        assert_eq!(many.len(), REBOUND_MAX as usize - 1);
        assert!(output.stderr(line.as_bytes()).is_empty());
    }

    #[test]
    fn the_jail_is_believed_when_it_did_not_start_the_worker() {
        let heard = hear(&format!("{FAILED}\n"), WaitStatus::Exited(127));
        let failed = heard.end.jail_failed.unwrap();
        assert_eq!((failed.message.as_str(), heard.events), ("no worker", 0));
        assert_eq!(heard.log, "");
    }

    #[test]
    fn a_worker_can_not_speak_in_the_name_of_the_jail() {
        let forged = format!("{HELLO}\n{ENDED}\n{FAILED}\n{HELLO}\n");
        let heard = hear(&forged, WaitStatus::Exited(127));
        assert_eq!(heard.end.jail_failed, None);
        assert_eq!(heard.end.jail_ended, None);
        assert_eq!(heard.events, 2);
        assert_eq!(heard.log, "[stdout] [a line in the name of the jail]\n");
        // Before it speaks it may, but the code of its end tells that it was started.
        let heard = hear(&format!("{FAILED}\n"), WaitStatus::Exited(0));
        assert_eq!(heard.end.jail_failed, None);
    }

    #[test]
    fn the_last_line_is_the_jails_also_after_half_a_line() {
        let heard = hear(&format!("{HELLO}\nhalf\n{ENDED}\n"), WaitStatus::Exited(3));
        assert_eq!(heard.end.jail_ended.unwrap().exit_code, Some(3));
        let heard = hear(&format!("{ENDED}\ntorn"), WaitStatus::Signaled(9));
        assert!(heard.end.jail_ended.is_some());
        assert_eq!(heard.log, "[stdout] torn\n");
        assert_eq!(heard.end.warnings.len(), 1);
    }

    #[test]
    fn junk_is_kept_up_to_its_limit_and_counted_beyond() {
        let line = "x".repeat(1_023);
        let lines = limits::JUNK_BYTES_MAX / 1_023 + 5;
        let heard = hear(&format!("{line}\n").repeat(lines), WaitStatus::Exited(0));
        let kept: usize = heard
            .log
            .lines()
            .map(|line| line.len() - "[stdout] ".len())
            .sum();
        assert_eq!(kept, limits::JUNK_BYTES_MAX);
        assert!(heard.end.warnings[0].starts_with(&format!("{lines} lines")));
    }
}
