//! `edit_file`: exact texts of a file replaced, all of them or none.

use std::io::Read;
use std::time::Duration;

use protocol::error::{ErrorCode, ToolError};
use protocol::text::{ActionKind, Prompts};
use protocol::tool::parse_text;
use protocol::tool::worker::{EDIT_FILE, EditFileParams};
use serde_json::json;

use super::access::WriteAccess;
use super::edit::{EditFailure, apply};
use super::failure::{Doing, io_failure};
use super::nearest::nearest;
use super::paths::{Place, resolve};
use super::read_file::refuse_binary;
use super::{Tally, Tool, ToolContext, ToolFuture, ToolOutput, ToolResult};
use super::{blocking, limits, save, subject};

/// The tool.
#[derive(Debug)]
pub(crate) struct EditFile;

impl Tool for EditFile {
    fn name(&self) -> &'static str {
        EDIT_FILE
    }

    fn action(&self, arguments: &str, prompts: &Prompts) -> String {
        prompts.action(ActionKind::Editing, &subject::of(arguments, "file_path"))
    }

    fn call<'a>(
        &'a self,
        context: &'a ToolContext,
        arguments: &'a str,
        _within: Duration,
    ) -> ToolFuture<'a> {
        Box::pin(async move {
            let params: EditFileParams = parse_text(arguments)?;
            let context = context.clone();
            blocking::run(move || edit(&context, &params)).await
        })
    }
}

fn edit(context: &ToolContext, params: &EditFileParams) -> ToolResult {
    let place = resolve(&context.workspace, &params.file_path, Doing::Write)?;
    WriteAccess::of(context).check(&place.relative)?;
    let shown = place.shown();
    let original = read_all(&place, &shown)?;
    let edited = apply(&original, &params.replacements)
        .map_err(|failure| explain(failure, &shown, params))?;
    if edited.bytes.len() as u64 > limits::EDIT_BYTES_MAX {
        return Err(too_large(&shown, edited.bytes.len() as u64));
    }
    save::replace(place, &edited.bytes)?;
    Ok(ToolOutput {
        value: json!({"success": true, "path": shown, "places_changed": edited.places}),
        tally: Tally {
            files_written: 1,
            ..Tally::default()
        },
    })
}

fn read_all(place: &Place, shown: &str) -> Result<Vec<u8>, ToolError> {
    let (file, stat) = place.open_file()?;
    let size = u64::try_from(stat.st_size).unwrap_or_default();
    if size > limits::EDIT_BYTES_MAX {
        return Err(too_large(shown, size));
    }
    let mut bytes = Vec::new();
    file.take(limits::EDIT_BYTES_MAX + 1)
        .read_to_end(&mut bytes)
        .map_err(|error| io_failure(Doing::Read, shown, &error))?;
    if bytes.len() as u64 > limits::EDIT_BYTES_MAX {
        return Err(too_large(shown, bytes.len() as u64));
    }
    let sniffed = &bytes[..bytes.len().min(limits::SNIFF_BYTES_MAX)];
    refuse_binary(sniffed, shown, bytes.len() as u64)?;
    Ok(bytes)
}

fn too_large(shown: &str, size: u64) -> ToolError {
    ToolError::new(
        ErrorCode::TooLarge,
        format!(
            "`{shown}` has {size} bytes; the most that can be edited is {}",
            limits::EDIT_BYTES_MAX
        ),
    )
    .hint("use sed or a script with run_command")
}

/// What the model is told; nothing was changed.
fn explain(failure: EditFailure, shown: &str, params: &EditFileParams) -> ToolError {
    let which = |index: usize| {
        if params.replacements.len() == 1 {
            "`old_string`".to_owned()
        } else {
            format!("`old_string` of replacement {}", index + 1)
        }
    };
    match failure {
        EditFailure::NoMatch { index, text } => {
            let old = &params.replacements[index].old_string;
            no_match(&which(index), shown, nearest(&text, old))
        }
        EditFailure::SeveralMatches { index, lines } => {
            let named: Vec<String> = lines
                .iter()
                .take(limits::EDIT_LINES_NAMED_MAX)
                .map(usize::to_string)
                .collect();
            let more = if named.len() < lines.len() {
                " and more"
            } else {
                ""
            };
            ToolError::new(
                ErrorCode::SeveralMatches,
                format!(
                    "{} occurs {} times in `{shown}`, on lines {}{more}; nothing was changed",
                    which(index),
                    lines.len(),
                    named.join(", ")
                ),
            )
            .hint("take in more of the lines around it, or set `replace_all`")
        }
        EditFailure::NotEncodable {
            index,
            character,
            encoding,
        } => ToolError::new(
            ErrorCode::InvalidParameters,
            format!(
                "`new_string` of replacement {} has `{character}`, which the encoding of \
                 `{shown}` ({}) does not have; nothing was changed",
                index + 1,
                encoding.remark().unwrap_or("UTF-8")
            ),
        )
        .hint("convert the file to UTF-8 with iconv first, if the task allows it"),
        EditFailure::OnlyLineEnds { .. } => ToolError::new(
            ErrorCode::InvalidParameters,
            "`old_string` and `new_string` differ only in line ends, which an edit keeps",
        )
        .hint("change line ends with sed in run_command"),
        EditFailure::DamagedUtf16 => ToolError::new(
            ErrorCode::BinaryFile,
            format!("`{shown}` is damaged UTF-16 text, which could not be written back as it is"),
        )
        .hint("convert it with iconv in run_command"),
    }
}

fn no_match(which: &str, shown: &str, near: Option<super::nearest::Nearest>) -> ToolError {
    let message = format!("{which} does not occur in `{shown}`; nothing was changed");
    let Some(near) = near else {
        return ToolError::new(ErrorCode::NoMatch, message)
            .hint("read the file and copy the text from it, without the line numbers");
    };
    let how = if near.only_blanks {
        ", which differs only in blanks,"
    } else {
        ""
    };
    ToolError::new(
        ErrorCode::NoMatch,
        format!(
            "{message}. The nearest text{how} is on lines {}-{}:\n{}",
            near.first_line, near.last_line, near.text
        ),
    )
    .hint("copy the text exactly, with its blanks and without line numbers")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tools::testing::Ground;
    use std::os::unix::fs::symlink;

    fn change(ground: &Ground, path: &str, pairs: &[(&str, &str)]) -> ToolResult {
        let replacements: Vec<_> = pairs
            .iter()
            .map(|(old, new)| json!({"old_string": old, "new_string": new}))
            .collect();
        let arguments = json!({"file_path": path, "replacements": replacements}).to_string();
        edit(&ground.context, &parse_text(&arguments)?)
    }

    #[test]
    fn an_edit_changes_what_it_should_and_keeps_the_mode() {
        let ground = Ground::new();
        for mode in [0o755, 0o600] {
            ground.file_with_mode("run.sh", b"#!/bin/sh\r\necho old\r\n", mode);
            let output = change(&ground, "run.sh", &[("old", "new"), ("echo", "printf")]).unwrap();
            assert_eq!(
                output,
                ToolOutput {
                    value: json!({"success": true, "path": "run.sh", "places_changed": 2}),
                    tally: Tally {
                        files_written: 1,
                        ..Tally::default()
                    },
                }
            );
            assert_eq!(ground.read("run.sh"), b"#!/bin/sh\r\nprintf new\r\n");
            assert_eq!(ground.mode("run.sh"), mode);
        }
    }

    #[test]
    fn what_can_not_be_done_whole_is_not_begun() {
        let ground = Ground::new();
        let text = b"a\nx=1\nb\nx=1\nc\nx=1\n";
        ground.file("f", text);
        let several = change(&ground, "f", &[("a", "A"), ("x=1", "x=2")]).unwrap_err();
        assert_eq!(several.code, ErrorCode::SeveralMatches);
        assert_eq!(
            several.message,
            "`old_string` of replacement 2 occurs 3 times in `f`, on lines 2, 4, 6; nothing was \
             changed"
        );
        for (old, new) in [("", "x"), ("x=1", "x=1")] {
            let error = change(&ground, "f", &[(old, new)]).unwrap_err();
            assert_eq!(error.code, ErrorCode::InvalidParameters);
        }
        assert_eq!(ground.read("f"), text);
    }

    #[test]
    fn a_text_that_does_not_occur_is_answered_with_the_nearest() {
        let ground = Ground::new();
        ground.file("f", b"fn a() {\n    let total = 1;\n}\n");
        assert_eq!(
            change(&ground, "f", &[("\tlet total = 1;", "x")]).unwrap_err(),
            ToolError::new(
                ErrorCode::NoMatch,
                "`old_string` does not occur in `f`; nothing was changed. The nearest text, which \
                 differs only in blanks, is on lines 2-2:\n    let total = 1;\n",
            )
            .hint("copy the text exactly, with its blanks and without line numbers")
        );
        let far = change(&ground, "f", &[("nothing like it 12345", "x")]).unwrap_err();
        assert_eq!(
            far.message,
            "`old_string` does not occur in `f`; nothing was changed"
        );
    }

    #[test]
    fn what_is_no_text_file_inside_is_refused() {
        let mut ground = Ground::new();
        let victim = ground.outside.join("victim.txt");
        std::fs::write(&victim, "old").unwrap();
        symlink(&victim, ground.path("notes.md")).unwrap();
        nix::unistd::mkfifo(&ground.path("p"), nix::sys::stat::Mode::S_IRWXU).unwrap();
        ground.file("x.png", b"\x89PNG\r\n\x1a\n\0old");
        ground.file("muster.toml", b"old");
        ground.file("docs/f", b"old");
        ground.context.write_scope = vec![ground.path("src")];
        for (path, code) in [
            ("notes.md", ErrorCode::OutsideWorkspace),
            ("muster.toml", ErrorCode::OutsideWriteScope),
            ("docs/f", ErrorCode::OutsideWriteScope),
        ] {
            assert_eq!(
                change(&ground, path, &[("old", "new")]).unwrap_err().code,
                code
            );
        }
        ground.context.write_scope.clear();
        for (path, code) in [
            ("p", ErrorCode::NotAFile),
            ("docs", ErrorCode::NotAFile),
            ("gone", ErrorCode::NotFound),
            ("x.png", ErrorCode::BinaryFile),
        ] {
            assert_eq!(
                change(&ground, path, &[("old", "new")]).unwrap_err().code,
                code
            );
        }
        assert_eq!(std::fs::read(&victim).unwrap(), b"old");
        assert_eq!(ground.read("docs/f"), b"old");
    }

    #[test]
    fn a_file_that_is_too_large_is_refused_at_the_limit() {
        let ground = Ground::new();
        let most = usize::try_from(limits::EDIT_BYTES_MAX).unwrap();
        let mut content = vec![b'\n'; most];
        content[0] = b'x';
        ground.file("f", &content);
        assert!(change(&ground, "f", &[("x", "y")]).is_ok());
        assert_eq!(
            change(&ground, "f", &[("y", "yy")]).unwrap_err().code,
            ErrorCode::TooLarge
        );
        content.push(b'\n');
        ground.file("f", &content);
        assert_eq!(
            change(&ground, "f", &[("x", "y")]).unwrap_err().code,
            ErrorCode::TooLarge
        );
    }
}
