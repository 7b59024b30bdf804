//! Some lines of a text with their numbers, read as a stream, so that a file of any size can be
//! looked into.

use std::io::{self, BufRead};

use super::limits;
use super::text::{Encoding, decode};

/// Which lines are wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Wanted {
    /// The first, from 1.
    pub(crate) start: u64,
    /// The last, if not to the end.
    pub(crate) end: Option<u64>,
    /// The most characters.
    pub(crate) chars_max: usize,
}

/// The lines that were found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Excerpt {
    /// Each line with its number before it.
    pub(crate) text: String,
    /// The number of the last line shown; less than the first wanted one when there is none.
    pub(crate) last: u64,
    /// Why it ends there.
    pub(crate) stop: Stop,
    /// Lines of which only the beginning is shown.
    pub(crate) cut: Vec<CutLine>,
}

/// A line that is not shown whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CutLine {
    /// Its number.
    pub(crate) number: u64,
    /// Its length in the file, in bytes.
    pub(crate) bytes: u64,
}

/// Why an excerpt ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stop {
    /// The text ends there; so many lines it has.
    EndOfText { lines: u64 },
    /// The wanted lines are shown, and more follow.
    RangeShown,
    /// As many characters as wanted are shown, and more follow.
    Full,
    /// The wanted lines lie further in than is looked.
    TooFarIn { lines: u64 },
}

/// Reads the wanted lines.
///
/// # Errors
/// When reading fails.
pub(crate) fn read(
    reader: impl BufRead,
    encoding: Encoding,
    wanted: Wanted,
) -> io::Result<Excerpt> {
    read_within(reader, encoding, wanted, limits::SCAN_BYTES_MAX)
}

fn read_within(
    mut reader: impl BufRead,
    encoding: Encoding,
    wanted: Wanted,
    scan_bytes_max: u64,
) -> io::Result<Excerpt> {
    let mut excerpt = Excerpt {
        text: String::new(),
        last: wanted.start.saturating_sub(1),
        stop: Stop::RangeShown,
        cut: Vec::new(),
    };
    let single = wanted.end == Some(wanted.start);
    let line_chars_max = if single {
        wanted.chars_max
    } else {
        limits::READ_LINE_CHARS_MAX.min(wanted.chars_max)
    };
    let (mut number, mut scanned, mut chars) = (0_u64, 0_u64, 0_usize);
    let mut kept = Vec::new();
    loop {
        if scanned >= scan_bytes_max && number < wanted.start {
            excerpt.stop = Stop::TooFarIn { lines: number };
            return Ok(excerpt);
        }
        let shown = number + 1 >= wanted.start;
        let past_the_end = wanted.end.is_some_and(|end| number >= end);
        let keep = if shown && !past_the_end {
            limits::READ_LINE_BYTES_MAX
        } else {
            0
        };
        kept.clear();
        let Some(bytes) = next_line(&mut reader, &mut kept, keep)? else {
            excerpt.stop = Stop::EndOfText { lines: number };
            return Ok(excerpt);
        };
        number += 1;
        scanned += bytes;
        if past_the_end {
            return Ok(excerpt);
        }
        if !shown {
            continue;
        }
        let line = decode(encoding, &kept);
        let line = line.strip_suffix('\r').unwrap_or(&line);
        let (start, whole) = first_chars(line, line_chars_max);
        let row = format!("{number}\t{start}\n");
        let row_chars = row.chars().count();
        if chars + row_chars > wanted.chars_max && excerpt.last >= wanted.start {
            excerpt.stop = Stop::Full;
            return Ok(excerpt);
        }
        if !whole || bytes > kept.len() as u64 + 1 {
            excerpt.cut.push(CutLine { number, bytes });
        }
        chars += row_chars;
        excerpt.text.push_str(&row);
        excerpt.last = number;
    }
}

/// Reads one line, with its end, and keeps at most `keep` bytes of it without its newline. Hands
/// back its length in bytes; none at the end of the text.
fn next_line(
    reader: &mut impl BufRead,
    kept: &mut Vec<u8>,
    keep: usize,
) -> io::Result<Option<u64>> {
    let mut bytes = 0_u64;
    loop {
        let buffer = match reader.fill_buf() {
            Ok(buffer) => buffer,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        if buffer.is_empty() {
            return Ok((bytes > 0).then_some(bytes));
        }
        let newline = buffer.iter().position(|byte| *byte == b'\n');
        let line = &buffer[..newline.unwrap_or(buffer.len())];
        let room = keep.saturating_sub(kept.len());
        kept.extend_from_slice(&line[..room.min(line.len())]);
        let used = line.len() + usize::from(newline.is_some());
        bytes += used as u64;
        reader.consume(used);
        if newline.is_some() {
            return Ok(Some(bytes));
        }
    }
}

/// The first characters of a text, and whether that is all of it.
fn first_chars(text: &str, most: usize) -> (&str, bool) {
    match text.char_indices().nth(most) {
        Some((at, _)) => (&text[..at], false),
        None => (text, true),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn excerpt(text: &[u8], start: u64, end: Option<u64>, chars_max: usize) -> Excerpt {
        let wanted = Wanted {
            start,
            end,
            chars_max,
        };
        // A small buffer, so that lines cross its borders.
        let reader = io::BufReader::with_capacity(5, text);
        read(reader, Encoding::Utf8, wanted).unwrap()
    }

    fn found(text: &str, last: u64, stop: Stop) -> Excerpt {
        Excerpt {
            text: text.to_owned(),
            last,
            stop,
            cut: Vec::new(),
        }
    }

    #[test]
    fn lines_are_numbered_whatever_ends_them() {
        let all = found(
            "1\tone\n2\ttwo\n3\tthree\n",
            3,
            Stop::EndOfText { lines: 3 },
        );
        for text in [
            "one\ntwo\nthree\n",
            "one\r\ntwo\r\nthree\r\n",
            "one\ntwo\nthree",
        ] {
            assert_eq!(excerpt(text.as_bytes(), 1, None, 1_000), all);
        }
        assert_eq!(
            excerpt(b"", 1, None, 10),
            found("", 0, Stop::EndOfText { lines: 0 })
        );
    }

    #[test]
    fn a_range_stops_where_it_was_asked_to() {
        let text = b"a\nb\nc\nd\n";
        assert_eq!(
            excerpt(text, 2, Some(3), 100),
            found("2\tb\n3\tc\n", 3, Stop::RangeShown)
        );
        assert_eq!(
            excerpt(text, 3, Some(4), 100),
            found("3\tc\n4\td\n", 4, Stop::EndOfText { lines: 4 })
        );
        assert_eq!(
            excerpt(text, 9, None, 100),
            found("", 8, Stop::EndOfText { lines: 4 })
        );
    }

    #[test]
    fn the_characters_are_bounded_at_a_line_end() {
        assert_eq!(
            excerpt(b"ab\ncd\nef\n", 1, None, 10),
            found("1\tab\n2\tcd\n", 2, Stop::Full)
        );
        assert_eq!(
            excerpt(b"ab\ncd\nef\n", 1, None, 9),
            found("1\tab\n", 1, Stop::Full)
        );
    }

    #[test]
    fn a_long_line_is_cut_and_a_single_one_less_so() {
        let text = format!("{}\nend\n", "好".repeat(3_000));
        let several = excerpt(text.as_bytes(), 1, None, 20_000);
        assert_eq!(several.text, format!("1\t{}\n2\tend\n", "好".repeat(2_000)));
        assert_eq!(
            several.cut,
            [CutLine {
                number: 1,
                bytes: 9_001
            }]
        );
        let single = excerpt(text.as_bytes(), 1, Some(1), 20_000);
        assert_eq!(single.text, format!("1\t{}\n", "好".repeat(3_000)));
        assert_eq!(single.cut, []);
    }

    #[test]
    fn an_endless_line_is_read_in_bounded_memory() {
        let reader = io::BufReader::new(io::Read::take(io::repeat(b'y'), 50_000_000));
        let wanted = Wanted {
            start: 1,
            end: Some(1),
            chars_max: 100,
        };
        let excerpt = read(reader, Encoding::Utf8, wanted).unwrap();
        assert_eq!(excerpt.text, format!("1\t{}\n", "y".repeat(100)));
        assert_eq!(
            excerpt.cut,
            [CutLine {
                number: 1,
                bytes: 50_000_000
            }]
        );
    }

    #[test]
    fn lines_too_far_in_are_given_up() {
        let wanted = Wanted {
            start: 100,
            end: None,
            chars_max: 100,
        };
        let text = "x\n".repeat(200);
        let read = |most| {
            read_within(text.as_bytes(), Encoding::Utf8, wanted, most)
                .unwrap()
                .stop
        };
        assert_eq!(read(190), Stop::TooFarIn { lines: 95 });
        assert_eq!(read(200), Stop::Full);
    }
}
