//! What is kept of a command's output while it streams by, in bounded memory.
//!
//! Escape sequences are taken out, a line that was written over by carriage returns is kept as it
//! stood last, and of the rest the start and the end are kept with the true size.

use std::collections::VecDeque;
use std::fmt::Write as _;

use super::limits;
use super::text::readable;

const ESCAPE: u8 = 0x1b;
const BELL: u8 = 0x07;
const BACKSPACE: u8 = 0x08;
const DELETE: u8 = 0x7f;

/// Where the stream stands in an escape sequence (ECMA-48).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sequence {
    /// In plain text.
    None,
    /// After ESC, or after the bytes that choose a character set.
    Begun,
    /// In a control sequence, until its final byte.
    Control,
    /// In a string for the terminal, such as its title, until BEL or ESC `\`.
    Text,
    /// After an ESC inside such a string.
    TextEscape,
}

/// Takes in output piece by piece. A copy of it can be finished to see what came so far.
#[derive(Debug, Clone)]
pub(crate) struct Capture {
    raw_bytes: u64,
    sequence: Sequence,
    /// The line that is being written; it may still be overwritten.
    line: Vec<u8>,
    /// Whether the start of the line was too long to be held and is kept already.
    line_began: bool,
    /// Whether a carriage return was the last thing seen on it.
    returned: bool,
    kept: HeadTail,
}

/// All that came, as a model reads it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Captured {
    /// Start and end with a mark between them, or all of it.
    pub(crate) text: String,
    /// How much the command wrote, in bytes.
    pub(crate) raw_bytes: u64,
    /// How much of the cleaned text is left out, in bytes.
    pub(crate) left_out_bytes: u64,
}

impl Capture {
    /// Nothing yet.
    pub(crate) fn new() -> Self {
        Capture::with_bounds(limits::OUTPUT_HEAD_BYTES_MAX, limits::OUTPUT_TAIL_BYTES_MAX)
    }

    fn with_bounds(head_bytes_max: usize, tail_bytes_max: usize) -> Self {
        Capture {
            raw_bytes: 0,
            sequence: Sequence::None,
            line: Vec::new(),
            line_began: false,
            returned: false,
            kept: HeadTail {
                head: Vec::new(),
                tail: VecDeque::new(),
                head_bytes_max,
                tail_bytes_max,
                left_out_bytes: 0,
            },
        }
    }

    /// Takes the next piece. Pieces may be cut anywhere.
    pub(crate) fn push(&mut self, piece: &[u8]) {
        self.raw_bytes = self.raw_bytes.saturating_add(piece.len() as u64);
        let mut rest = piece;
        while let [first, after @ ..] = rest {
            if self.sequence == Sequence::None {
                let plain = rest.iter().position(|byte| is_control(*byte));
                let (run, behind) = rest.split_at(plain.unwrap_or(rest.len()));
                if !run.is_empty() {
                    self.plain(run);
                    rest = behind;
                    continue;
                }
                self.control(*first);
            } else {
                self.sequence = after_sequence_byte(self.sequence, *first);
            }
            rest = after;
        }
    }

    /// What was kept, once nothing more comes.
    pub(crate) fn finish(mut self) -> Captured {
        self.keep_line();
        let left_out_bytes = self.kept.left_out_bytes;
        Captured {
            text: self.kept.into_text(),
            raw_bytes: self.raw_bytes,
            left_out_bytes,
        }
    }

    fn plain(&mut self, run: &[u8]) {
        self.begin_overwriting();
        let mut rest = run;
        while !rest.is_empty() {
            let room = limits::OUTPUT_LINE_BYTES_MAX.saturating_sub(self.line.len());
            let (now, later) = rest.split_at(room.min(rest.len()));
            self.line.extend_from_slice(now);
            if self.line.len() >= limits::OUTPUT_LINE_BYTES_MAX {
                self.keep_line();
                self.line_began = true;
            }
            rest = later;
        }
    }

    fn control(&mut self, byte: u8) {
        match byte {
            b'\n' => {
                self.returned = false;
                self.line.push(b'\n');
                self.keep_line();
                self.line_began = false;
            }
            b'\r' => self.returned = true,
            b'\t' => self.plain(b"\t"),
            // No JSON reader likes it, and it is a sign of binary data: it shows as such.
            0 => self.plain("\u{fffd}".as_bytes()),
            BACKSPACE => self.rub_out(),
            ESCAPE => self.sequence = Sequence::Begun,
            _ => {}
        }
    }

    /// After a carriage return, what follows stands in the place of the line.
    fn begin_overwriting(&mut self) {
        if !std::mem::take(&mut self.returned) {
            return;
        }
        self.line.clear();
        if std::mem::take(&mut self.line_began) {
            // The start of the old line is kept already; the new one must not be glued to it.
            self.kept.push(b"\n");
        }
    }

    fn rub_out(&mut self) {
        while let Some(byte) = self.line.pop() {
            if !is_continuation(byte) {
                break;
            }
        }
    }

    fn keep_line(&mut self) {
        self.kept.push(&self.line);
        self.line.clear();
    }
}

fn is_control(byte: u8) -> bool {
    byte < 0x20 || byte == DELETE
}

fn is_continuation(byte: u8) -> bool {
    byte & 0xc0 == 0x80
}

fn after_sequence_byte(sequence: Sequence, byte: u8) -> Sequence {
    match (sequence, byte) {
        // CAN and SUB break a sequence off.
        (_, 0x18 | 0x1a) => Sequence::None,
        (Sequence::Begun, b'[') => Sequence::Control,
        (Sequence::Begun, b']' | b'P' | b'X' | b'^' | b'_') => Sequence::Text,
        (Sequence::Begun | Sequence::Control, ESCAPE) => Sequence::Begun,
        (Sequence::Begun, 0x20..=0x2f) => Sequence::Begun,
        (Sequence::Begun, _) => Sequence::None,
        (Sequence::Control, 0x40..=0x7e) => Sequence::None,
        // A line end inside a sequence is the sign of one that was never finished.
        (Sequence::Control, b'\n') => Sequence::None,
        (Sequence::Control, _) => Sequence::Control,
        (Sequence::Text | Sequence::TextEscape, BELL) => Sequence::None,
        (Sequence::Text | Sequence::TextEscape, ESCAPE) => Sequence::TextEscape,
        (Sequence::TextEscape, b'\\') => Sequence::None,
        (Sequence::Text | Sequence::TextEscape, b'\n') => Sequence::None,
        (Sequence::Text | Sequence::TextEscape, _) => Sequence::Text,
        (Sequence::None, _) => Sequence::None,
    }
}

/// The first and the last bytes of a stream.
#[derive(Debug, Clone)]
struct HeadTail {
    head: Vec<u8>,
    tail: VecDeque<u8>,
    head_bytes_max: usize,
    tail_bytes_max: usize,
    left_out_bytes: u64,
}

impl HeadTail {
    fn push(&mut self, bytes: &[u8]) {
        let room = self.head_bytes_max - self.head.len();
        // Once something is in the tail, the head is closed.
        let room = if self.tail.is_empty() { room } else { 0 };
        let (head, rest) = bytes.split_at(room.min(bytes.len()));
        self.head.extend_from_slice(head);
        self.tail.extend(rest);
        let over = self.tail.len().saturating_sub(self.tail_bytes_max);
        self.tail.drain(..over);
        self.left_out_bytes = self.left_out_bytes.saturating_add(over as u64);
    }

    fn into_text(mut self) -> String {
        if self.left_out_bytes == 0 {
            self.head.extend(self.tail.iter());
            return readable_lines(&self.head);
        }
        // Neither side may begin or end inside a character.
        let head_end = whole_characters_end(&self.head);
        let mut tail: &[u8] = self.tail.make_contiguous();
        while let [byte, rest @ ..] = tail
            && is_continuation(*byte)
        {
            tail = rest;
        }
        let mut text = readable_lines(&self.head[..head_end]);
        // Writing to a String does not fail.
        let _: std::fmt::Result = write!(
            text,
            "\n[... {} bytes of output are left out here ...]\n",
            self.left_out_bytes
        );
        text.push_str(&readable_lines(tail));
        text
    }
}

/// Where the last whole character of a text that may be cut ends.
fn whole_characters_end(bytes: &[u8]) -> usize {
    let back = bytes
        .iter()
        .rev()
        .take(3)
        .take_while(|byte| is_continuation(**byte))
        .count();
    let Some(lead_at) = bytes.len().checked_sub(back + 1) else {
        return bytes.len();
    };
    let wanted = match bytes[lead_at] {
        0xc2..=0xdf => 2,
        0xe0..=0xef => 3,
        0xf0..=0xf4 => 4,
        _ => 1,
    };
    if wanted > back + 1 {
        lead_at
    } else {
        bytes.len()
    }
}

/// A text line by line, since programs of different encodings may write to one stream.
fn readable_lines(bytes: &[u8]) -> String {
    match std::str::from_utf8(bytes) {
        Ok(text) => text.to_owned(),
        Err(_) => bytes
            .split_inclusive(|byte| *byte == b'\n')
            .map(readable)
            .collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(pieces: &[&[u8]]) -> String {
        let mut capture = Capture::new();
        for piece in pieces {
            capture.push(piece);
        }
        capture.finish().text
    }

    #[test]
    fn overwritten_lines_are_kept_as_they_stood_last() {
        let mut bar = Vec::new();
        for i in 1..=20_000 {
            bar.extend(format!("\r{i}%").bytes());
        }
        bar.extend(b"\nfirst\rsecond\nthird\n");
        assert_eq!(text(&[&bar]), "20000%\nsecond\nthird\n");
        assert_eq!(text(&[b"dos\r\nline\r\r\nend\r"]), "dos\nline\nend");
        assert_eq!(text(&[b"a\rb\n\rc"]), "b\nc");
    }

    #[test]
    fn escape_sequences_are_taken_out_wherever_a_piece_is_cut() {
        let raw = b"\x1b[1;31mred\x1b[0m \x1b]0;title\x07plain\x1b]8;;u\x1b\\link\x1b(B!\x1b7\ttab";
        let wanted = "red plainlink!\ttab";
        for cut in 0..=raw.len() {
            let (left, right) = raw.split_at(cut);
            assert_eq!(text(&[left, right]), wanted, "cut at {cut}");
        }
        assert_eq!(text(&[b"\x1b[never finished\nnext"]), "ever finished\nnext");
        assert_eq!(text(&[b"\x1b]never\nnext"]), "next");
    }

    #[test]
    fn bytes_that_are_no_text_stay_readable() {
        assert_eq!(
            text(&[b"\xff\xfe\0abc\xc3"]),
            "\u{fffd}\u{fffd}\u{fffd}abc\u{fffd}"
        );
        assert_eq!(
            text(&[b"\xc7\xfd\xb6\xaf\xc6\xf7\nok \xe5\xa5\xbd\n"]),
            "驱动器\nok 好\n"
        );
        assert_eq!(text(&[b"N\x08Na\x08\xe5\xa5\xbd\x08b\x07\n"]), "Nb\n");
    }

    #[test]
    fn a_cut_falls_between_characters() {
        for k in 0..4 {
            let raw = format!(
                "{}{}{}",
                "a".repeat(k),
                "固".repeat(40_000),
                "🌍".repeat(40_000)
            );
            let mut capture = Capture::with_bounds(30_000, 30_001);
            raw.as_bytes()
                .chunks(997)
                .for_each(|piece| capture.push(piece));
            let captured = capture.finish();
            assert_eq!(captured.raw_bytes, raw.len() as u64);
            assert!(!captured.text.contains('\u{fffd}'), "K = {k}");
            let (head, tail) = captured.text.split_once("\n[... ").unwrap();
            assert!(raw.starts_with(head) && head.len() > 29_990, "K = {k}");
            let tail = tail.split_once(" ...]\n").unwrap().1;
            assert!(raw.ends_with(tail) && tail.len() > 29_990, "K = {k}");
        }
    }

    #[test]
    fn the_bounds_hold_at_the_limit_and_one_past_it() {
        let mut capture = Capture::with_bounds(4, 4);
        capture.push(b"abcdefgh");
        let all = capture.finish();
        assert_eq!((all.text.as_str(), all.left_out_bytes), ("abcdefgh", 0));
        let mut capture = Capture::with_bounds(4, 4);
        capture.push(b"abcdefghi");
        let cut = capture.finish();
        assert_eq!(
            cut.text,
            "abcd\n[... 1 bytes of output are left out here ...]\nfghi"
        );
        assert_eq!((cut.raw_bytes, cut.left_out_bytes), (9, 1));
    }

    #[test]
    fn one_endless_line_takes_bounded_memory() {
        let mut capture = Capture::new();
        let piece = vec![b'y'; 1024 * 1024];
        for _ in 0..50 {
            capture.push(&piece);
        }
        let held =
            capture.line.capacity() + capture.kept.head.capacity() + capture.kept.tail.capacity();
        assert!(held < 8 * 1024 * 1024, "{held} bytes");
        capture.push(b"\rlast");
        let captured = capture.finish();
        assert_eq!(captured.raw_bytes, 50 * 1024 * 1024 + 5);
        assert!(captured.text.starts_with("yyy") && captured.text.ends_with("y\nlast"));
        let kept = limits::OUTPUT_HEAD_BYTES_MAX + limits::OUTPUT_TAIL_BYTES_MAX;
        assert!(captured.text.len() < kept + 100);
    }
}
