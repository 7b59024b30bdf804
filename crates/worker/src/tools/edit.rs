//! Replacing texts in the bytes of a file, all or nothing, with every other byte left as it is.
//!
//! The search is made in a view of the bytes in which each CRLF is one line feed, so that a text
//! as `read_file` shows it fits a file with either line end; what is put in gets the line ends of
//! the place.

use protocol::tool::worker::Replacement;

use super::text::{Encoding, Recognised, decode, encode, gbk_boundaries, recognise};

/// A file's new content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Edited {
    /// All of it.
    pub(crate) bytes: Vec<u8>,
    /// How many places were changed.
    pub(crate) places: usize,
}

/// Why nothing is changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum EditFailure {
    /// A text does not occur; `text` is what was searched, as it stood then.
    NoMatch { index: usize, text: String },
    /// A text occurs more than once; the lines on which it begins.
    SeveralMatches { index: usize, lines: Vec<usize> },
    /// What is to be put in has a character that the file's encoding has not.
    NotEncodable {
        index: usize,
        character: char,
        encoding: Encoding,
    },
    /// The replacement differs from the text only in its line ends, which are kept.
    OnlyLineEnds { index: usize },
    /// The file is damaged UTF-16, which can't be written back as it was.
    DamagedUtf16,
}

/// Makes the replacements one after the other, each on what the one before left.
///
/// # Errors
/// The first replacement that can't be made; then nothing is changed.
pub(crate) fn apply(original: &[u8], replacements: &[Replacement]) -> Result<Edited, EditFailure> {
    let Recognised {
        encoding,
        mark,
        body,
    } = recognise(original, true);
    let wide = matches!(encoding, Encoding::Utf16Le | Encoding::Utf16Be);
    let (inner, mut body) = if wide {
        let text = decode(encoding, body).into_owned();
        if encode(encoding, &text).as_deref() != Ok(body) {
            return Err(EditFailure::DamagedUtf16);
        }
        (Encoding::Utf8, text.into_bytes())
    } else {
        (encoding, body.to_vec())
    };
    let mut places = 0;
    for (index, replacement) in replacements.iter().enumerate() {
        let (new_body, count) = replace(&body, inner, index, replacement)?;
        body = new_body;
        places += count;
    }
    let mut bytes = mark.to_vec();
    if wide {
        let text = String::from_utf8_lossy(&body);
        bytes.extend(encode(encoding, &text).unwrap_or_default());
    } else {
        bytes.append(&mut body);
    }
    Ok(Edited { bytes, places })
}

fn replace(
    body: &[u8],
    encoding: Encoding,
    index: usize,
    replacement: &Replacement,
) -> Result<(Vec<u8>, usize), EditFailure> {
    let view = View::of(body);
    let no_match = || EditFailure::NoMatch {
        index,
        text: decode(encoding, &view.bytes).into_owned(),
    };
    // A text that the encoding can't hold can't stand in the file.
    let old = encode(encoding, &line_feeds(&replacement.old_string)).map_err(|_| no_match())?;
    let new = encode(encoding, &line_feeds(&replacement.new_string)).map_err(|character| {
        EditFailure::NotEncodable {
            index,
            character,
            encoding,
        }
    })?;
    let found = view.find(&old, encoding);
    match found.len() {
        0 => return Err(no_match()),
        1 => {}
        _ if replacement.replace_all == Some(true) => {}
        _ => {
            return Err(EditFailure::SeveralMatches {
                index,
                lines: view.lines_of(&found),
            });
        }
    }
    if old == new {
        return Err(EditFailure::OnlyLineEnds { index });
    }
    let mut edited = Vec::with_capacity(body.len());
    let mut copied = 0;
    for at in &found {
        let (start, end) = (view.original(*at), view.original(at + old.len()));
        edited.extend_from_slice(&body[copied..start]);
        push_with_line_ends(&mut edited, &new, view.line_end_at(&body[start..end]));
        copied = end;
    }
    edited.extend_from_slice(&body[copied..]);
    Ok((edited, found.len()))
}

/// What ends a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LineEnd {
    Lf,
    CrLf,
}

/// The bytes of a file with each CRLF as one line feed.
#[derive(Debug)]
struct View {
    bytes: Vec<u8>,
    /// Where in `bytes` the line feeds stand that were CRLF.
    shortened: Vec<usize>,
    /// What most lines of the file end with.
    usual: LineEnd,
}

impl View {
    fn of(body: &[u8]) -> Self {
        let mut bytes = Vec::with_capacity(body.len());
        let mut shortened = Vec::new();
        let mut line_feeds = 0_usize;
        for (at, byte) in body.iter().enumerate() {
            match byte {
                b'\r' if body.get(at + 1) == Some(&b'\n') => shortened.push(bytes.len()),
                b'\n' => {
                    line_feeds += 1;
                    bytes.push(b'\n');
                }
                other => bytes.push(*other),
            }
        }
        let usual = if shortened.len() * 2 > line_feeds {
            LineEnd::CrLf
        } else {
            LineEnd::Lf
        };
        View {
            bytes,
            shortened,
            usual,
        }
    }

    /// Where a place of the view stands in the original; before a CRLF, before its first byte.
    fn original(&self, at: usize) -> usize {
        at + self.shortened.partition_point(|newline| *newline < at)
    }

    /// Where `sought` occurs, at whole characters, without overlaps.
    fn find(&self, sought: &[u8], encoding: Encoding) -> Vec<usize> {
        match (str::from_utf8(&self.bytes), str::from_utf8(sought)) {
            // The search in texts takes linear time, whatever is sought.
            (Ok(text), Ok(sought)) => text.match_indices(sought).map(|(at, _)| at).collect(),
            _ => {
                let starts = (encoding == Encoding::Gbk).then(|| gbk_boundaries(&self.bytes));
                find_bytes(&self.bytes, sought, |at| {
                    starts.as_ref().is_none_or(|starts| starts[at])
                })
            }
        }
    }

    /// The numbers of the lines on which places lie.
    fn lines_of(&self, places: &[usize]) -> Vec<usize> {
        let (mut line, mut counted) = (1, 0);
        places
            .iter()
            .map(|at| {
                line += self.bytes[counted..*at]
                    .iter()
                    .filter(|byte| **byte == b'\n')
                    .count();
                counted = *at;
                line
            })
            .collect()
    }

    /// What lines end with at a place that is being replaced.
    fn line_end_at(&self, replaced: &[u8]) -> LineEnd {
        match replaced.iter().position(|byte| *byte == b'\n') {
            None => self.usual,
            Some(at) if at > 0 && replaced[at - 1] == b'\r' => LineEnd::CrLf,
            Some(_) => LineEnd::Lf,
        }
    }
}

fn find_bytes(bytes: &[u8], sought: &[u8], may_start: impl Fn(usize) -> bool) -> Vec<usize> {
    let mut found = Vec::new();
    let Some(first) = sought.first() else {
        return found;
    };
    let mut from = 0;
    while let Some(offset) = bytes[from..].iter().position(|byte| byte == first) {
        let at = from + offset;
        if bytes[at..].starts_with(sought) && may_start(at) {
            found.push(at);
            from = at + sought.len();
        } else {
            from = at + 1;
        }
    }
    found
}

fn line_feeds(text: &str) -> String {
    text.replace("\r\n", "\n")
}

fn push_with_line_ends(edited: &mut Vec<u8>, new: &[u8], line_end: LineEnd) {
    match line_end {
        LineEnd::Lf => edited.extend_from_slice(new),
        LineEnd::CrLf => {
            for byte in new {
                if *byte == b'\n' {
                    edited.push(b'\r');
                }
                edited.push(*byte);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(old: &str, new: &str) -> Vec<Replacement> {
        vec![Replacement {
            old_string: old.to_owned(),
            new_string: new.to_owned(),
            replace_all: None,
        }]
    }

    fn edited(original: &[u8], old: &str, new: &str) -> Vec<u8> {
        apply(original, &one(old, new)).unwrap().bytes
    }

    #[test]
    fn line_ends_stay_what_they_are() {
        assert_eq!(
            edited(b"a\r\nb\r\nc\r\n", "a\nb", "a\nB"),
            b"a\r\nB\r\nc\r\n"
        );
        assert_eq!(
            edited(b"a\r\nb\r\nc\r\n", "b", "x\ny"),
            b"a\r\nx\r\ny\r\nc\r\n"
        );
        assert_eq!(edited(b"a\nb\nc\n", "a\r\nb", "a\r\nB"), b"a\nB\nc\n");
        assert_eq!(edited(b"a\r\nb\r\nc\r\n", "\nb\n", "\n"), b"a\r\nc\r\n");
        // In a file of both kinds, the place decides, and else the majority.
        assert_eq!(edited(b"a\nb\r\nc\r\n", "a\nb", "A\nB"), b"A\nB\r\nc\r\n");
        assert_eq!(edited(b"a\nb\r\nc\r\n", "b", "1\n2"), b"a\n1\r\n2\r\nc\r\n");
        // A carriage return that ends no line is text.
        assert_eq!(edited(b"a\rb\n", "a\rb", "c"), b"c\n");
    }

    #[test]
    fn mark_and_missing_newline_stay() {
        assert_eq!(
            edited(b"\xef\xbb\xbfx=1\n", "x=1", "x=2"),
            b"\xef\xbb\xbfx=2\n"
        );
        assert_eq!(edited(b"a\nb", "b", "c"), b"a\nc");
        assert_eq!(edited(b"a\nc", "c", ""), b"a\n");
    }

    #[test]
    fn bytes_far_from_the_edit_stay_in_every_encoding() {
        for (before, after) in [
            (&b"caf\xe9\nx=1\n"[..], &b"caf\xe9\nx=2\n"[..]),
            (b"\xc4\xe3\xba\xc3\nx=1\n", b"\xc4\xe3\xba\xc3\nx=2\n"),
            (
                b"\xe5\xa5\xbd\xff\xe5\xa5\xbd x=1\n",
                b"\xe5\xa5\xbd\xff\xe5\xa5\xbd x=2\n",
            ),
            (b"\xff\xfex\0=\x001\0\n\0", b"\xff\xfex\0=\x002\0\n\0"),
            (b"\xfe\xff\0x\0=\x001\0\n", b"\xfe\xff\0x\0=\x002\0\n"),
            (b"\x80\x81\xfe\xff\x90 x=1", b"\x80\x81\xfe\xff\x90 x=2"),
        ] {
            assert_eq!(edited(before, "x=1", "x=2"), after);
        }
    }

    #[test]
    fn text_in_the_files_encoding_is_found_and_put_in() {
        assert_eq!(
            edited(b"\xc4\xe3\xba\xc3\n", "好", "们"),
            b"\xc4\xe3\xc3\xc7\n"
        );
        assert_eq!(edited(b"caf\xe9\n", "é", "è"), b"caf\xe8\n");
        // The second byte of a character is no match: 0x7c by itself is a vertical bar.
        let common = b"\xc4\xe3\xba\xc3".repeat(5);
        let text = |end: &[u8]| [common.as_slice(), b"\x8c\x7c", end].concat();
        assert_eq!(edited(&text(b"|"), "|", "+"), text(b"+"));
        assert_eq!(
            apply(b"caf\xe9\n", &one("caf", "咖啡")),
            Err(EditFailure::NotEncodable {
                index: 0,
                character: '咖',
                encoding: Encoding::SingleByte
            })
        );
    }

    #[test]
    fn several_matches_are_refused_with_their_lines() {
        let text = b"a\nx=1\nb\nx=1\r\nc\nx=1\n";
        assert_eq!(
            apply(text, &one("x=1", "x=2")),
            Err(EditFailure::SeveralMatches {
                index: 0,
                lines: vec![2, 4, 6]
            })
        );
        let mut all = one("x=1", "x=2");
        all[0].replace_all = Some(true);
        assert_eq!(
            apply(text, &all),
            Ok(Edited {
                bytes: b"a\nx=2\nb\nx=2\r\nc\nx=2\n".to_vec(),
                places: 3
            })
        );
    }

    #[test]
    fn replacements_build_on_each_other_and_fail_together() {
        let mut chain = one("a", "b");
        chain.extend(one("b", "c"));
        assert_eq!(
            apply(b"a\n", &chain),
            Ok(Edited {
                bytes: b"c\n".to_vec(),
                places: 2
            })
        );
        chain.extend(one("gone", "x"));
        assert_eq!(
            apply(b"a\n", &chain),
            Err(EditFailure::NoMatch {
                index: 2,
                text: "c\n".to_owned()
            })
        );
    }

    #[test]
    fn what_would_change_only_line_ends_is_told() {
        assert_eq!(
            apply(b"a\r\nb\r\n", &one("a\r\nb", "a\nb")),
            Err(EditFailure::OnlyLineEnds { index: 0 })
        );
    }

    #[test]
    fn damaged_utf16_is_refused() {
        for text in [&b"\xff\xfex\0\x00\xd8"[..], b"\xff\xfex\0="] {
            assert_eq!(apply(text, &one("x", "y")), Err(EditFailure::DamagedUtf16));
        }
    }
}
