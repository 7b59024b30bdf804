//! `read_file`: lines of a text with their numbers.

use std::fs::File;
use std::io::{BufReader, Read, Seek, SeekFrom};
use std::time::Duration;

use protocol::error::{ErrorCode, ToolError};
use protocol::text::{ActionKind, Prompts};
use protocol::tool::parse_text;
use protocol::tool::worker::{READ_FILE, ReadFileParams};
use serde_json::Value;

use super::excerpt::{Excerpt, Stop, Wanted, read as read_excerpt};
use super::failure::{Doing, io_failure};
use super::filetype::binary_kind;
use super::paths::resolve;
use super::text::{Encoding, decode, recognise};
use super::{Tally, Tool, ToolContext, ToolFuture, ToolOutput, ToolResult};
use super::{blocking, limits, subject};

/// The tool.
#[derive(Debug)]
pub(crate) struct ReadFile;

impl Tool for ReadFile {
    fn name(&self) -> &'static str {
        READ_FILE
    }

    fn action(&self, arguments: &str, prompts: &Prompts) -> String {
        prompts.action(ActionKind::Reading, &subject::of(arguments, "path"))
    }

    fn call<'a>(
        &'a self,
        context: &'a ToolContext,
        arguments: &'a str,
        within: Duration,
    ) -> ToolFuture<'a> {
        Box::pin(async move {
            let params: ReadFileParams = parse_text(arguments)?;
            let context = context.clone();
            let within = within.min(Duration::from_secs(limits::READ_SECONDS_MAX));
            blocking::read(within, "reading the file", move || read(&context, &params)).await
        })
    }
}

fn read(context: &ToolContext, params: &ReadFileParams) -> ToolResult {
    let place = resolve(&context.workspace, &params.path, Doing::Read)?;
    let shown = place.shown();
    let (mut file, stat) = place.open_file()?;
    let size = u64::try_from(stat.st_size).unwrap_or_default();
    let wanted = wanted(params);
    let (encoding, excerpt) = if size <= limits::WHOLE_FILE_BYTES_MAX {
        read_whole(&mut file, &shown, wanted)?
    } else {
        read_long(file, &shown, size, wanted)?
    };
    Ok(ToolOutput {
        value: Value::String(tell(&shown, size, encoding, wanted, &excerpt)?),
        tally: Tally {
            files_read: 1,
            ..Tally::default()
        },
    })
}

/// What is shown of what was asked for. `max_chars` is the most to show, so less is no breach.
fn wanted(params: &ReadFileParams) -> Wanted {
    let line = |number: i64| u64::try_from(number).unwrap_or_default();
    Wanted {
        start: params.start_line.map_or(1, line),
        end: params.end_line.map(line),
        chars_max: params
            .max_chars
            .and_then(|chars| usize::try_from(chars).ok())
            .unwrap_or(limits::READ_CHARS_MAX)
            .min(limits::READ_CHARS_MAX),
    }
}

fn read_whole(
    file: &mut File,
    shown: &str,
    wanted: Wanted,
) -> Result<(Encoding, Excerpt), ToolError> {
    let mut bytes = Vec::new();
    // A file may grow while it is read; what is beyond the limit is left out then.
    file.take(limits::WHOLE_FILE_BYTES_MAX)
        .read_to_end(&mut bytes)
        .map_err(|error| io_failure(Doing::Read, shown, &error))?;
    let sniffed = &bytes[..bytes.len().min(limits::SNIFF_BYTES_MAX)];
    refuse_binary(sniffed, shown, bytes.len() as u64)?;
    let recognised = recognise(&bytes, true);
    let text = decode(recognised.encoding, recognised.body);
    let excerpt = read_excerpt(text.as_bytes(), Encoding::Utf8, wanted)
        .map_err(|error| io_failure(Doing::Read, shown, &error))?;
    Ok((recognised.encoding, excerpt))
}

fn read_long(
    mut file: File,
    shown: &str,
    size: u64,
    wanted: Wanted,
) -> Result<(Encoding, Excerpt), ToolError> {
    let failed = |error: std::io::Error| io_failure(Doing::Read, shown, &error);
    let mut start = Vec::new();
    (&mut file)
        .take(limits::SNIFF_BYTES_MAX as u64)
        .read_to_end(&mut start)
        .map_err(failed)?;
    refuse_binary(&start, shown, size)?;
    let recognised = recognise(&start, false);
    match recognised.encoding {
        Encoding::Utf16Le | Encoding::Utf16Be => {
            return Err(ToolError::new(
                ErrorCode::TooLarge,
                format!(
                    "`{shown}` is UTF-16 text of {size} bytes; the most for that encoding is {}",
                    limits::WHOLE_FILE_BYTES_MAX
                ),
            )
            .hint("convert it with iconv in run_command, and read the result"));
        }
        Encoding::Utf8 | Encoding::BrokenUtf8 | Encoding::Gbk | Encoding::SingleByte => {}
    }
    let body_at = recognised.mark.len() as u64;
    file.seek(SeekFrom::Start(body_at)).map_err(failed)?;
    let excerpt = read_excerpt(
        BufReader::with_capacity(64 * 1024, file),
        recognised.encoding,
        wanted,
    )
    .map_err(failed)?;
    Ok((recognised.encoding, excerpt))
}

/// Refuses what is no text, by name.
pub(crate) fn refuse_binary(start: &[u8], shown: &str, size: u64) -> Result<(), ToolError> {
    match binary_kind(start) {
        None => Ok(()),
        Some(kind) => Err(ToolError::new(
            ErrorCode::BinaryFile,
            format!("`{shown}` is a binary file ({kind}, {size} bytes), not text"),
        )
        .hint("use a program that knows the format, with run_command")),
    }
}

/// The lines, and in brackets what is not shown and how to see it.
fn tell(
    shown: &str,
    size: u64,
    encoding: Encoding,
    wanted: Wanted,
    excerpt: &Excerpt,
) -> Result<String, ToolError> {
    let start = wanted.start;
    let past_the_end = |lines: u64| {
        ToolError::new(
            ErrorCode::InvalidParameters,
            format!("`{shown}` has {lines} lines; `start_line` {start} lies past its end"),
        )
        .hint("ask for an earlier line")
    };
    let mut told = excerpt.text.clone();
    match excerpt.stop {
        Stop::EndOfText { lines: 0 } if start == 1 => told.push_str("[the file is empty]\n"),
        Stop::EndOfText { lines } if lines < start => return Err(past_the_end(lines)),
        Stop::EndOfText { .. } => {}
        Stop::RangeShown | Stop::Full => told.push_str(&format!(
            "[lines {start}-{} are shown; the file of {size} bytes goes on: read on with \
             start_line={}]\n",
            excerpt.last,
            excerpt.last + 1
        )),
        Stop::TooFarIn { lines } => {
            return Err(ToolError::new(
                ErrorCode::TooLarge,
                format!(
                    "`{shown}` is too long: `start_line` {start} lies beyond its first {} bytes \
                     ({lines} lines)",
                    limits::SCAN_BYTES_MAX
                ),
            )
            .hint("use tail, grep or sed with run_command"));
        }
    }
    for line in &excerpt.cut {
        let way = if wanted.end == Some(wanted.start) {
            format!(
                "see more of it with run_command: sed -n '{}p' FILE | cut -b FROM-TO",
                line.number
            )
        } else {
            format!(
                "read it alone with start_line={0}, end_line={0}",
                line.number
            )
        };
        told.push_str(&format!(
            "[line {} has {} bytes; only its beginning is shown: {way}]\n",
            line.number, line.bytes
        ));
    }
    if let Some(remark) = encoding.remark() {
        told.push_str(&format!("[encoding: {remark}]\n"));
    }
    Ok(told)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tools::testing::Ground;
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;
    use std::os::unix::fs::symlink;

    fn params(path: &str) -> ReadFileParams {
        ReadFileParams {
            path: path.to_owned(),
            start_line: None,
            end_line: None,
            max_chars: None,
        }
    }

    fn text(ground: &Ground, params: &ReadFileParams) -> String {
        let output = read(&ground.context, params).unwrap();
        assert_eq!(
            output.tally,
            Tally {
                files_read: 1,
                ..Tally::default()
            }
        );
        output.value.as_str().unwrap().to_owned()
    }

    fn code(ground: &Ground, path: &str) -> ErrorCode {
        read(&ground.context, &params(path)).unwrap_err().code
    }

    #[test]
    fn a_file_is_shown_with_line_numbers() {
        let ground = Ground::new();
        ground.file("f", b"one\r\ntwo\n");
        assert_eq!(text(&ground, &params("f")), "1\tone\n2\ttwo\n");
        ground.file("empty", b"");
        assert_eq!(text(&ground, &params("empty")), "[the file is empty]\n");
    }

    #[test]
    fn a_long_file_says_how_to_read_on() {
        let ground = Ground::new();
        let lines: String = (1..=5_000).map(|n| format!("line {n}\n")).collect();
        ground.file("f", lines.as_bytes());
        let first = text(&ground, &params("f"));
        assert!(first.chars().count() < 30_000);
        let (_, way) = first.rsplit_once("start_line=").unwrap();
        let next: i64 = way.trim_end_matches("]\n").parse().unwrap();
        assert!(first.contains(&format!("\n{0}\tline {0}\n", next - 1)));
        let on = text(
            &ground,
            &ReadFileParams {
                start_line: Some(next),
                ..params("f")
            },
        );
        assert!(
            on.starts_with(&format!("{next}\tline {next}\n")),
            "{on:.100}"
        );
        let range = ReadFileParams {
            start_line: Some(2),
            end_line: Some(3),
            ..params("f")
        };
        assert_eq!(
            text(&ground, &range),
            format!(
                "2\tline 2\n3\tline 3\n[lines 2-3 are shown; the file of {} bytes goes on: read \
                 on with start_line=4]\n",
                lines.len()
            )
        );
        let past = ReadFileParams {
            start_line: Some(5_001),
            ..params("f")
        };
        let error = read(&ground.context, &past).unwrap_err();
        assert_eq!(
            error.message,
            "`f` has 5000 lines; `start_line` 5001 lies past its end"
        );
    }

    #[test]
    fn a_long_line_says_how_to_see_more_of_it() {
        let ground = Ground::new();
        ground.file("f", format!("{}\nb\n", "x".repeat(40_000)).as_bytes());
        let several = text(&ground, &params("f"));
        assert!(several.contains("\n2\tb\n"), "{several:.100}");
        assert!(several.ends_with(
            "[line 1 has 40001 bytes; only its beginning is shown: read it alone with \
             start_line=1, end_line=1]\n"
        ));
        let alone = ReadFileParams {
            start_line: Some(1),
            end_line: Some(1),
            ..params("f")
        };
        let alone = text(&ground, &alone);
        assert!(alone.chars().count() > 24_000 && alone.chars().count() < 30_000);
        assert!(alone.contains("sed -n '1p' FILE | cut -b FROM-TO"));
    }

    #[test]
    fn other_encodings_are_read_and_named() {
        let ground = Ground::new();
        for (bytes, shown) in [
            (&b"\xef\xbb\xbfx=1\n"[..], "1\tx=1\n"),
            (
                b"\xc4\xe3\xba\xc3\nx=1\n",
                "1\t你好\n2\tx=1\n[encoding: GBK]\n",
            ),
            (
                b"caf\xe9\n",
                "1\tcafé\n[encoding: not UTF-8, shown as Latin-1]\n",
            ),
            (
                b"\xff\xfe\x60\x4f\n\0b\0",
                "1\t你\n2\tb\n[encoding: UTF-16 LE]\n",
            ),
            (
                b"\xfe\xff\x4f\x60\0\n\0b",
                "1\t你\n2\tb\n[encoding: UTF-16 BE]\n",
            ),
        ] {
            ground.file("f", bytes);
            assert_eq!(text(&ground, &params("f")), shown);
        }
    }

    #[test]
    fn a_file_too_long_to_hold_is_looked_into() {
        let ground = Ground::new();
        let path = ground.path("big");
        let line = format!("{}\n", "y".repeat(1_023));
        std::fs::write(&path, line.repeat(17 * 1024)).unwrap();
        let deep = ReadFileParams {
            start_line: Some(17_000),
            end_line: Some(17_000),
            ..params("big")
        };
        assert!(text(&ground, &deep).starts_with("17000\tyyy"));
        let mut utf16 = b"\xff\xfe".to_vec();
        utf16.extend("a\0".repeat(9 * 1024 * 1024).bytes());
        std::fs::write(&path, utf16).unwrap();
        assert_eq!(code(&ground, "big"), ErrorCode::TooLarge);
    }

    #[test]
    fn what_is_no_text_is_refused_by_name() {
        let ground = Ground::new();
        ground.file("logo.png", b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR");
        let error = read(&ground.context, &params("logo.png")).unwrap_err();
        assert_eq!(error.code, ErrorCode::BinaryFile);
        assert_eq!(
            error.message,
            "`logo.png` is a binary file (PNG image, 16 bytes), not text"
        );
        let begun = std::time::Instant::now();
        nix::unistd::mkfifo(&ground.path("p"), nix::sys::stat::Mode::S_IRWXU).unwrap();
        assert_eq!(code(&ground, "p"), ErrorCode::NotAFile);
        assert_eq!(code(&ground, "sub_agent_results"), ErrorCode::NotAFile);
        assert!(begun.elapsed() < Duration::from_secs(1));
    }

    #[test]
    fn nothing_outside_is_read() {
        let ground = Ground::new();
        let victim = ground.outside.join("victim.txt");
        std::fs::write(&victim, "secret").unwrap();
        symlink(&victim, ground.path("notes.md")).unwrap();
        symlink(&ground.outside, ground.path("box")).unwrap();
        for path in [
            "notes.md",
            "box/victim.txt",
            "../outside/victim.txt",
            "/etc/hosts",
        ] {
            assert_eq!(code(&ground, path), ErrorCode::OutsideWorkspace, "{path}");
        }
        assert_eq!(code(&ground, "gone"), ErrorCode::NotFound);
        assert_eq!(code(&ground, "a\0b"), ErrorCode::InvalidParameters);
    }

    #[test]
    fn names_that_are_no_text_are_read_by_their_escaped_form() {
        let ground = Ground::new();
        for (name, escaped) in [
            (&b"bad\xff.txt"[..], "bad\\xff.txt"),
            (b"a\nb", "a\\x0ab"),
            (b"-rf", "-rf"),
            ("\u{feff}/x".as_bytes(), "\\xef\\xbb\\xbf/x"),
        ] {
            ground.file(OsStr::from_bytes(name), b"here\n");
            assert_eq!(text(&ground, &params(escaped)), "1\there\n", "{escaped}");
        }
    }
}
