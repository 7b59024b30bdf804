//! Where a person's task text comes from, and what can be wrong with it.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use protocol::error::{ErrorCode, ToolError};
use protocol::limits::{SUMMARY_CHARS_WANTED, TASK_BYTES_MAX};

use crate::cli::RunArgs;
use crate::faces::console::code_of;

/// The task of `leader run`, from the argument, the file or stdin.
///
/// # Errors
/// When none is given, it can't be read, is empty, too long or no UTF-8.
pub fn read_task(args: &RunArgs, stdin: &mut dyn Read) -> Result<String, ToolError> {
    match (&args.task, &args.task_file) {
        (Some(dash), _) if dash == "-" => text_of("stdin", stdin),
        (Some(text), _) => check("the argument TASK", text.clone().into_bytes()),
        (None, Some(path)) => from_file(path),
        (None, None) => Err(
            ToolError::new(ErrorCode::InvalidParameters, "no task was given").hint(
                "pass it as an argument, with `--task-file FILE`, or on stdin with `leader run -`",
            ),
        ),
    }
}

/// The task in a file.
///
/// # Errors
/// When it can't be read, is empty, too long or no UTF-8.
pub fn from_file(path: &Path) -> Result<String, ToolError> {
    let name = format!("the task file `{}`", path.display());
    let unreadable = |error: std::io::Error| {
        let text = format!("{name} could not be read: {error}");
        let failure = ToolError::new(code_of(&error), text);
        match error.kind() {
            // A path that leads nowhere is the caller's mistake, as is one that is closed to it.
            std::io::ErrorKind::PermissionDenied => ToolError {
                code: ErrorCode::InvalidParameters,
                ..failure
            }
            .hint("check the file's permissions"),
            _ => failure.hint("check the path; it is relative to where the leader was started"),
        }
    };
    let mut file = File::open(path).map_err(unreadable)?;
    if file.metadata().map_err(unreadable)?.is_dir() {
        return Err(ToolError::new(
            ErrorCode::NotAFile,
            format!("{name} is a directory"),
        ));
    }
    text_of(&name, &mut file)
}

fn text_of(name: &str, reader: &mut dyn Read) -> Result<String, ToolError> {
    let mut bytes = Vec::new();
    // One byte over the limit is enough to know, however much there is.
    reader
        .take(TASK_BYTES_MAX as u64 + 1)
        .read_to_end(&mut bytes)
        .map_err(|error| {
            ToolError::new(
                code_of(&error),
                format!("{name} could not be read: {error}"),
            )
        })?;
    check(name, bytes)
}

fn check(name: &str, bytes: Vec<u8>) -> Result<String, ToolError> {
    if bytes.len() > TASK_BYTES_MAX {
        return Err(ToolError::new(
            ErrorCode::TooLarge,
            format!("{name} has more than {TASK_BYTES_MAX} bytes, which is the most for a task"),
        )
        .hint("put long material into files of the workspace and name them in the task"));
    }
    let text = String::from_utf8(bytes).map_err(|error| {
        ToolError::new(
            ErrorCode::InvalidParameters,
            format!(
                "{name} is not UTF-8: the first bad byte is number {}",
                error.utf8_error().valid_up_to() + 1
            ),
        )
        .hint("convert it, for example with `iconv -t UTF-8`")
    })?;
    // A byte order mark is an editor's, not the task's.
    let text = text
        .strip_prefix('\u{FEFF}')
        .map(str::to_owned)
        .unwrap_or(text);
    if text.trim().is_empty() {
        return Err(
            ToolError::new(ErrorCode::InvalidParameters, format!("{name} is empty"))
                .hint("say what the agent is to do: goal, requirements, deliverables, scope"),
        );
    }
    Ok(text)
}

/// The summary of a task for which a person gave none: its beginning, on one line.
pub fn summary_of(task: &str) -> String {
    let words: Vec<&str> = task.split_whitespace().collect();
    words
        .join(" ")
        .chars()
        .take(*SUMMARY_CHARS_WANTED.end())
        .collect::<String>()
        .trim_end()
        .to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn from(args: RunArgs, stdin: &[u8]) -> Result<String, ToolError> {
        let mut stdin = stdin;
        read_task(&args, &mut stdin)
    }

    fn stdin_args() -> RunArgs {
        RunArgs {
            task: Some("-".into()),
            ..RunArgs::default()
        }
    }

    fn file_args(path: &Path) -> RunArgs {
        RunArgs {
            task_file: Some(path.to_owned()),
            ..RunArgs::default()
        }
    }

    #[test]
    fn the_three_ways_give_the_same_text() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "\u{FEFF}写文档\n").unwrap();
        let argument = RunArgs {
            task: Some("写文档\n".into()),
            ..RunArgs::default()
        };
        for (args, stdin) in [
            (argument, ""),
            (stdin_args(), "写文档\n"),
            (file_args(file.path()), ""),
        ] {
            assert_eq!(from(args, stdin.as_bytes()).unwrap(), "写文档\n");
        }
        assert!(
            from(RunArgs::default(), b"")
                .unwrap_err()
                .hint
                .contains("--task-file")
        );
    }

    #[test]
    fn each_bad_text_is_told_by_name() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("task.md");
        let missing = from(file_args(&path), b"").unwrap_err();
        assert_eq!(missing.code, ErrorCode::NotFound);
        assert!(missing.message.contains("task.md"), "{missing}");
        let directory = from(file_args(dir.path()), b"").unwrap_err();
        assert_eq!(directory.code, ErrorCode::NotAFile);
        std::fs::write(&path, " \n\t").unwrap();
        let empty = from(file_args(&path), b"").unwrap_err();
        assert!(empty.message.ends_with("task.md` is empty"), "{empty}");
        std::fs::write(&path, b"abc\xff").unwrap();
        let binary = from(file_args(&path), b"").unwrap_err();
        assert!(
            binary.message.contains("first bad byte is number 4"),
            "{binary}"
        );
        std::fs::write(&path, vec![b'x'; 5 << 20]).unwrap();
        let large = from(file_args(&path), b"").unwrap_err();
        assert_eq!(large.code, ErrorCode::TooLarge);
    }

    #[test]
    fn a_task_is_taken_up_to_its_limit() {
        assert!(from(stdin_args(), &vec![b'x'; TASK_BYTES_MAX]).is_ok());
        assert!(from(stdin_args(), &vec![b'x'; TASK_BYTES_MAX + 1]).is_err());
    }

    #[test]
    fn a_summary_is_the_start_of_the_task_on_one_line() {
        assert_eq!(summary_of("  Write\n the docs "), "Write the docs");
        assert_eq!(summary_of(&"文".repeat(40)), "文".repeat(30));
        assert_eq!(summary_of(&format!("{} b", "a".repeat(29))), "a".repeat(29));
    }
}
