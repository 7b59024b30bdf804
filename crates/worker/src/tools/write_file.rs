//! `write_file`: a whole new file, or more at the end of one.

use std::io::Read;
use std::time::Duration;

use protocol::error::{ErrorCode, ToolError};
use protocol::text::{ActionKind, Prompts};
use protocol::tool::parse_text;
use protocol::tool::worker::{WRITE_FILE, WriteFileParams};
use serde_json::json;

use super::access::WriteAccess;
use super::failure::{Doing, io_failure};
use super::paths::{Kind, Place, resolve};
use super::text::{encode, recognise};
use super::{Tally, Tool, ToolContext, ToolFuture, ToolOutput, ToolResult};
use super::{blocking, limits, save, subject};

/// The tool.
#[derive(Debug)]
pub(crate) struct WriteFile;

impl Tool for WriteFile {
    fn name(&self) -> &'static str {
        WRITE_FILE
    }

    fn action(&self, arguments: &str, prompts: &Prompts) -> String {
        prompts.action(ActionKind::Writing, &subject::of(arguments, "file_path"))
    }

    fn call<'a>(
        &'a self,
        context: &'a ToolContext,
        arguments: &'a str,
        _within: Duration,
    ) -> ToolFuture<'a> {
        Box::pin(async move {
            let params: WriteFileParams = parse_text(arguments)?;
            let context = context.clone();
            blocking::run(move || write(&context, &params)).await
        })
    }
}

fn write(context: &ToolContext, params: &WriteFileParams) -> ToolResult {
    let place = resolve(&context.workspace, &params.file_path, Doing::Write)?;
    WriteAccess::of(context).check(&place.relative)?;
    let shown = place.shown();
    let existed = place.kind.is_some();
    let done = if params.append == Some(true) {
        let content = in_the_encoding_of(&place, &params.content)?;
        save::append(place, &content)?;
        if existed { "appended" } else { "created" }
    } else {
        save::replace(place, params.content.as_bytes())?;
        if existed { "replaced" } else { "created" }
    };
    Ok(ToolOutput {
        value: json!({
            "success": true,
            "path": shown,
            "done": done,
            "chars_written": params.content.chars().count(),
        }),
        tally: Tally {
            files_written: 1,
            ..Tally::default()
        },
    })
}

/// A text as it is to be appended to a file, so that one file never holds two encodings.
fn in_the_encoding_of(place: &Place, content: &str) -> Result<Vec<u8>, ToolError> {
    if place.kind != Some(Kind::File) {
        return Ok(content.as_bytes().to_vec());
    }
    let shown = place.shown();
    let (file, _) = place.open_file()?;
    let mut start = Vec::new();
    file.take(limits::SNIFF_BYTES_MAX as u64)
        .read_to_end(&mut start)
        .map_err(|error| io_failure(Doing::Read, &shown, &error))?;
    let whole = start.len() < limits::SNIFF_BYTES_MAX;
    let encoding = recognise(&start, whole).encoding;
    encode(encoding, content).map_err(|character| {
        ToolError::new(
            ErrorCode::InvalidParameters,
            format!(
                "`content` has `{character}`, which the encoding of `{shown}` ({}) does not have; \
                 nothing was written",
                encoding.remark().unwrap_or("UTF-8")
            ),
        )
        .hint("write the file anew, or convert it to UTF-8 with iconv first")
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tools::testing::Ground;
    use std::fs;
    use std::os::unix::fs::symlink;
    use std::sync::atomic::{AtomicBool, Ordering};

    fn put(ground: &Ground, path: &str, content: &str) -> ToolResult {
        let params = WriteFileParams {
            file_path: path.to_owned(),
            content: content.to_owned(),
            append: None,
        };
        write(&ground.context, &params)
    }

    fn add(ground: &Ground, path: &str, content: &str) -> ToolResult {
        let params = WriteFileParams {
            file_path: path.to_owned(),
            content: content.to_owned(),
            append: Some(true),
        };
        write(&ground.context, &params)
    }

    #[test]
    fn a_new_file_gets_its_parents() {
        let ground = Ground::new();
        let output = put(&ground, "a/b/c.txt", "好\n").unwrap();
        assert_eq!(
            output,
            ToolOutput {
                value: json!({"success": true, "path": "a/b/c.txt", "done": "created",
                              "chars_written": 2}),
                tally: Tally {
                    files_written: 1,
                    ..Tally::default()
                },
            }
        );
        assert_eq!(ground.read("a/b/c.txt"), "好\n".as_bytes());
    }

    #[test]
    fn a_file_that_exists_keeps_its_mode() {
        let ground = Ground::new();
        for mode in [0o755, 0o600, 0o640] {
            ground.file_with_mode("run.sh", b"old", mode);
            assert_eq!(
                put(&ground, "run.sh", "new").unwrap().value["done"],
                "replaced"
            );
            assert_eq!(
                (ground.read("run.sh"), ground.mode("run.sh")),
                (b"new".to_vec(), mode)
            );
            assert_eq!(
                add(&ground, "run.sh", "er").unwrap().value["done"],
                "appended"
            );
            assert_eq!(
                (ground.read("run.sh"), ground.mode("run.sh")),
                (b"newer".to_vec(), mode)
            );
        }
        assert_eq!(ground.names("."), ["run.sh", "sub_agent_results"]);
    }

    #[test]
    fn what_is_appended_has_the_encoding_of_the_file() {
        let ground = Ground::new();
        for (before, after) in [
            (&b"\xff\xfea\0"[..], &b"\xff\xfea\0\x7d\x59"[..]),
            (b"\xc4\xe3", b"\xc4\xe3\xba\xc3"),
            ("你".as_bytes(), "你好".as_bytes()),
            (b"", "好".as_bytes()),
        ] {
            ground.file("f", before);
            add(&ground, "f", "好").unwrap();
            assert_eq!(ground.read("f"), after);
        }
        ground.file("f", b"caf\xe9\n");
        let error = add(&ground, "f", "好").unwrap_err();
        assert_eq!(error.code, ErrorCode::InvalidParameters);
        assert_eq!(ground.read("f"), b"caf\xe9\n");
    }

    #[test]
    fn a_file_with_a_second_name_is_replaced_but_not_appended_to() {
        let ground = Ground::new();
        let victim = ground.outside.join("victim.txt");
        fs::write(&victim, "victim").unwrap();
        fs::hard_link(&victim, ground.path("f")).unwrap();
        assert_eq!(
            add(&ground, "f", "x").unwrap_err().code,
            ErrorCode::PermissionDenied
        );
        assert!(put(&ground, "f", "x").is_ok());
        assert_eq!(fs::read(&victim).unwrap(), b"victim");
    }

    const SMALL_FILES: &str = "WRITE_FILE_TEST_WITH_SMALL_FILES";

    #[test]
    fn what_does_not_fit_leaves_everything_as_it_was() {
        if std::env::var_os(SMALL_FILES).is_some() {
            return with_small_files();
        }
        // Once more in a process whose files may have 512 bytes; the signal that comes with the
        // limit is ignored, so that writes fail as they do on a full disk.
        let status = std::process::Command::new("/bin/sh")
            .args(["-c", "trap '' XFSZ; ulimit -f 1; exec \"$0\" \"$@\""])
            .arg(std::env::current_exe().unwrap())
            .args([
                "--exact",
                "tools::write_file::tests::what_does_not_fit_leaves_everything_as_it_was",
            ])
            .env(SMALL_FILES, "1")
            .output()
            .unwrap();
        let told = String::from_utf8_lossy(&status.stdout);
        assert!(
            status.status.success() && told.contains("1 passed"),
            "{told}"
        );
    }

    fn with_small_files() {
        let ground = Ground::new();
        ground.file("f", b"old");
        let long = "x".repeat(10_000);
        for result in [
            put(&ground, "f", &long),
            add(&ground, "f", &long),
            put(&ground, "g", &long),
        ] {
            assert_eq!(result.unwrap_err().code, ErrorCode::TooLarge);
        }
        assert_eq!(ground.read("f"), b"old");
        assert_eq!(ground.names("."), ["f", "sub_agent_results"]);
    }

    #[test]
    fn writes_that_must_fail_say_why_and_change_nothing() {
        let ground = Ground::new();
        ground.file("f", b"file");
        fs::create_dir(ground.path("d")).unwrap();
        let long = "n".repeat(300);
        for (path, code, word) in [
            ("d", ErrorCode::NotAFile, "a directory"),
            (".", ErrorCode::NotAFile, "a directory"),
            ("f/x", ErrorCode::NotFound, "is a file, not a directory"),
            (long.as_str(), ErrorCode::InvalidParameters, "255 bytes"),
            ("", ErrorCode::InvalidParameters, "empty"),
            ("a\0b", ErrorCode::InvalidParameters, "NUL"),
            ("../f", ErrorCode::OutsideWorkspace, "outside the workspace"),
            (
                "/etc/f",
                ErrorCode::OutsideWorkspace,
                "outside the workspace",
            ),
            (".git/hooks/x", ErrorCode::OutsideWriteScope, ".git"),
            ("muster.toml", ErrorCode::OutsideWriteScope, "muster.toml"),
            (
                "sub_agent_results/agent_1/.subagent/job.json",
                ErrorCode::OutsideWriteScope,
                ".subagent",
            ),
        ] {
            for result in [put(&ground, path, "x"), add(&ground, path, "x")] {
                let error = result.unwrap_err();
                assert_eq!(error.code, code, "{path}: {error}");
                assert!(error.message.contains(word), "{path}: {error}");
            }
        }
        assert_eq!(ground.read("f"), b"file");
        assert_eq!(ground.names("."), ["d", "f", "sub_agent_results"]);
    }

    #[test]
    fn a_directory_that_the_system_keeps_closed_is_an_error() {
        let ground = Ground::new();
        let mut context = ground.context.clone();
        // No file can be made in /proc, whoever asks, also where a test runs as root.
        context.workspace = "/proc/self/task".into();
        let params = WriteFileParams {
            file_path: "x".to_owned(),
            content: "x".to_owned(),
            append: None,
        };
        let error = write(&context, &params).unwrap_err();
        assert!(error.message.starts_with("can't write `x`: "), "{error}");
    }

    #[test]
    fn a_write_protected_file_is_left_alone() {
        if nix::unistd::geteuid().is_root() {
            // Root may write every file; the rule is the kernel's, and it is asked.
            use std::io::Write;
            writeln!(std::io::stderr(), "skipped: root may write every file").ok();
            return;
        }
        let ground = Ground::new();
        ground.file_with_mode("f", b"old", 0o444);
        assert_eq!(
            put(&ground, "f", "x").unwrap_err().code,
            ErrorCode::PermissionDenied
        );
        assert_eq!(ground.read("f"), b"old");
    }

    #[test]
    fn no_link_leads_a_write_out() {
        let ground = Ground::new();
        let victim = ground.outside.join("victim.txt");
        fs::write(&victim, "victim").unwrap();
        symlink(&victim, ground.path("notes.md")).unwrap();
        symlink(ground.outside.join("none.txt"), ground.path("new.md")).unwrap();
        symlink(&ground.outside, ground.path("box")).unwrap();
        for path in ["notes.md", "new.md", "box/victim.txt", "box/none.txt"] {
            for result in [put(&ground, path, "x"), add(&ground, path, "x")] {
                assert_eq!(
                    result.unwrap_err().code,
                    ErrorCode::OutsideWorkspace,
                    "{path}"
                );
            }
        }
        assert_eq!(fs::read(&victim).unwrap(), b"victim");
        assert!(!ground.outside.join("none.txt").exists());
    }

    #[test]
    fn a_link_that_comes_and_goes_never_leads_a_write_out() {
        let ground = Ground::new();
        let victim = ground.outside.join("victim.txt");
        fs::write(&victim, "victim").unwrap();
        fs::create_dir(ground.path("real")).unwrap();
        let stop = AtomicBool::new(false);
        let (target, swap) = (ground.path("f"), ground.path("swap"));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    let _ignored = fs::remove_file(&swap);
                    symlink(&victim, &swap).unwrap();
                    fs::rename(&swap, &target).unwrap();
                    fs::write(&swap, "plain").unwrap();
                    fs::rename(&swap, &target).unwrap();
                }
            });
            for round in 0..2_000 {
                let _either_way = if round % 2 == 0 {
                    put(&ground, "f", "x")
                } else {
                    add(&ground, "f", "x")
                };
            }
            stop.store(true, Ordering::Relaxed);
        });
        assert_eq!(fs::read(&victim).unwrap(), b"victim");
        assert_eq!(fs::read_dir(&ground.outside).unwrap().count(), 1);
    }

    #[test]
    fn a_scope_holds_also_through_a_link_inside() {
        let mut ground = Ground::new();
        fs::create_dir(ground.path("src")).unwrap();
        fs::create_dir(ground.path("docs")).unwrap();
        symlink("../docs", ground.path("src/docs")).unwrap();
        ground.context.write_scope = vec![ground.path("src")];
        assert!(put(&ground, "src/a.rs", "x").is_ok());
        assert!(put(&ground, "sub_agent_results/agent_1/r.md", "x").is_ok());
        for path in ["docs/a.md", "src/docs/a.md"] {
            let error = put(&ground, path, "x").unwrap_err();
            assert_eq!(error.code, ErrorCode::OutsideWriteScope);
            assert!(error.message.contains("`docs/a.md`"), "{error}");
        }
    }
}
