//! `search_workspace`: lines of files, or files by name.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use protocol::error::ToolError;
use protocol::text::{ActionKind, Prompts};
use protocol::tool::parse_text;
use protocol::tool::worker::{SEARCH_WORKSPACE, SearchKind, SearchWorkspaceParams};
use serde_json::Value;

use super::search::{
    Filter, Meter, NameQuery, Report, content_matcher, search_content, search_names,
};
use super::{Tally, Tool, ToolContext, ToolFuture, ToolOutput, ToolResult};
use super::{blocking, limits, subject};
use crate::io::clock;

/// The tool.
#[derive(Debug)]
pub(crate) struct SearchWorkspace;

impl Tool for SearchWorkspace {
    fn name(&self) -> &'static str {
        SEARCH_WORKSPACE
    }

    fn action(&self, arguments: &str, prompts: &Prompts) -> String {
        let kind = match subject::of(arguments, "kind").as_str() {
            "files" => ActionKind::SearchingFiles,
            _ => ActionKind::SearchingText,
        };
        prompts.action(kind, &subject::of(arguments, "query"))
    }

    fn call<'a>(
        &'a self,
        context: &'a ToolContext,
        arguments: &'a str,
        within: Duration,
    ) -> ToolFuture<'a> {
        Box::pin(async move {
            let params: SearchWorkspaceParams = parse_text(arguments)?;
            let context = context.clone();
            let within = within.min(Duration::from_secs(limits::SEARCH_SECONDS_MAX));
            let cancelled = CancelOnDrop::default();
            let flag = Arc::clone(&cancelled.0);
            let deadline = clock::after(within);
            // The search ends itself in time; only a file system that hangs needs the second.
            let patience = within + Duration::from_secs(1);
            blocking::read(patience, "the search", move || {
                search(&context, &params, Meter::new(deadline, flag))
            })
            .await
        })
    }
}

/// Tells a search that nobody waits for it any more.
#[derive(Debug, Default)]
struct CancelOnDrop(Arc<AtomicBool>);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn search(context: &ToolContext, params: &SearchWorkspaceParams, mut meter: Meter) -> ToolResult {
    let text = find(context, params, &mut meter)?;
    Ok(ToolOutput {
        value: Value::String(text),
        tally: Tally {
            searches: 1,
            ..Tally::default()
        },
    })
}

fn find(
    context: &ToolContext,
    params: &SearchWorkspaceParams,
    meter: &mut Meter,
) -> Result<String, ToolError> {
    let regex = params.regex == Some(true);
    let query = params.query.as_str();
    let filter = params.glob.as_deref().map(Filter::new).transpose()?;
    let shown_max = params
        .max_results
        .and_then(|most| usize::try_from(most).ok())
        .unwrap_or(limits::SEARCH_RESULTS_DEFAULT);
    let mut report = Report::new(shown_max);
    match params.kind.unwrap_or_default() {
        SearchKind::Content => {
            let matcher = content_matcher(query, regex)?;
            search_content(
                context,
                &matcher,
                query,
                filter.as_ref(),
                meter,
                &mut report,
            )?;
        }
        SearchKind::Files => {
            let query = NameQuery::new(query, regex)?;
            search_names(context, &query, filter.as_ref(), meter, &mut report);
        }
    }
    let what: String = query.chars().take(limits::SEARCH_LINE_CHARS_MAX).collect();
    Ok(report.tell(&format!("`{what}`"), meter.stopped()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tools::testing::Ground;
    use protocol::error::ErrorCode;
    use serde_json::json;
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;
    use std::os::unix::fs::symlink;

    fn meter() -> Meter {
        Meter::new(clock::now() + Duration::from_secs(60), Arc::default())
    }

    fn found(ground: &Ground, arguments: Value) -> String {
        let params = parse_text(&arguments.to_string()).unwrap();
        let output = search(&ground.context, &params, meter()).unwrap();
        assert_eq!(
            output.tally,
            Tally {
                searches: 1,
                ..Tally::default()
            }
        );
        output.value.as_str().unwrap().to_owned()
    }

    #[test]
    fn lines_are_found_with_path_and_number() {
        let ground = Ground::new();
        ground.file("src/a.rs", b"one\nneedle(1)\n");
        ground.file("src/b.txt", b"a needle(1) here\r\nand needle(2)\r\n");
        ground.file("data.bin", b"\0needle(1)\0");
        assert_eq!(
            found(&ground, json!({"query": "needle("})),
            "src/a.rs:2: needle(1)\nsrc/b.txt:1: a needle(1) here\nsrc/b.txt:2: and needle(2)\n\
             [3 matches in 2 files]\n"
        );
        assert_eq!(
            found(
                &ground,
                json!({"query": "^needle", "regex": true, "glob": "*.rs"})
            ),
            "src/a.rs:2: needle(1)\n[1 match in 1 file]\n"
        );
        assert_eq!(
            found(&ground, json!({"query": "gone"})),
            "[no match for `gone`]\n"
        );
    }

    #[test]
    fn no_more_than_asked_for_is_shown_and_the_rest_counted() {
        let ground = Ground::new();
        ground.file("f", "x\n".repeat(250).as_bytes());
        let told = found(&ground, json!({"query": "x"}));
        assert_eq!(told.matches("f:").count(), 100);
        assert!(
            told.contains("[250 matches in 1 file]\n[150 of them are left out"),
            "{told}"
        );
        let told = found(&ground, json!({"query": "x", "max_results": "3"}));
        assert!(
            told.starts_with("f:1: x\nf:2: x\nf:3: x\n[250 matches"),
            "{told}"
        );
    }

    #[test]
    fn names_are_found_and_odd_ones_can_be_used_again() {
        let ground = Ground::new();
        let long = "n".repeat(255);
        let names: [&[u8]; 6] = [
            b"bad\xff.txt",
            "\u{feff}/x".as_bytes(),
            "\u{3000}/x".as_bytes(),
            b"-rf",
            b"a\nb",
            long.as_bytes(),
        ];
        for name in names {
            ground.file(OsStr::from_bytes(name), b"needle\n");
        }
        let listed = found(&ground, json!({"query": "*", "kind": "files"}));
        let content = found(&ground, json!({"query": "needle"}));
        for shown in [
            "bad\\xff.txt",
            "\\xef\\xbb\\xbf/x",
            "\\xe3\\x80\\x80/x",
            "-rf",
            "a\\x0ab",
            &long,
        ] {
            assert!(listed.contains(&format!("{shown}\n")), "{listed}");
            assert!(
                content.contains(&format!("{shown}:1: needle\n")),
                "{content}"
            );
            let place = crate::tools::paths::resolve(
                &ground.context.workspace,
                shown,
                crate::tools::failure::Doing::Read,
            );
            assert!(place.unwrap().open_file().is_ok(), "{shown}");
        }
        assert!(listed.ends_with("[6 matches in 6 files]\n"), "{listed}");
    }

    #[test]
    fn nothing_outside_is_searched() {
        let ground = Ground::new();
        let secret = ground.outside.join("secret");
        std::fs::write(&secret, "needle").unwrap();
        symlink(&secret, ground.path("link")).unwrap();
        symlink(&ground.outside, ground.path("box")).unwrap();
        nix::unistd::mkfifo(&ground.path("p"), nix::sys::stat::Mode::S_IRWXU).unwrap();
        assert_eq!(
            found(&ground, json!({"query": "needle"})),
            "[no match for `needle`]\n"
        );
        assert_eq!(
            found(&ground, json!({"query": "*", "kind": "files"})),
            "box\nlink\n[2 matches in 2 files]\n"
        );
    }

    #[test]
    fn a_link_that_comes_and_goes_shows_nothing_outside() {
        let ground = Ground::new();
        std::fs::write(ground.outside.join("f"), "needle").unwrap();
        ground.file("d/f", b"plain");
        ground.file("e/f", b"plain");
        let (real, link, at) = (ground.path("real"), ground.path("link"), ground.path("d"));
        symlink(&ground.outside, &link).unwrap();
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    std::fs::rename(&at, &real).unwrap();
                    std::fs::rename(&link, &at).unwrap();
                    std::fs::rename(&at, &link).unwrap();
                    std::fs::rename(&real, &at).unwrap();
                }
            });
            for _ in 0..300 {
                let told = found(&ground, json!({"query": "needle"}));
                assert!(told.starts_with("[no match"), "{told}");
            }
            stop.store(true, Ordering::Relaxed);
        });
    }

    #[test]
    fn other_encodings_are_searched() {
        let ground = Ground::new();
        ground.file("gbk.txt", b"x\n\xc4\xe3\xba\xc3 hello\n");
        ground.file("utf16.txt", b"\xff\xfe\x60\x4f\x7d\x59\n\0");
        ground.file("utf8.txt", "你好\n".as_bytes());
        assert_eq!(
            found(&ground, json!({"query": "你好"})),
            "gbk.txt:2: 你好 hello\nutf16.txt:1: 你好\nutf8.txt:1: 你好\n[3 matches in 3 files]\n"
        );
        assert_eq!(
            found(&ground, json!({"query": "hello"})),
            "gbk.txt:2: 你好 hello\n[1 match in 1 file]\n"
        );
    }

    #[test]
    fn what_can_not_be_searched_for_is_refused() {
        let ground = Ground::new();
        for arguments in [
            json!({"query": "a(b", "regex": true}),
            json!({"query": "a\nb"}),
            json!({"query": "x", "glob": "a["}),
            json!({"query": "[z-a]", "regex": true, "kind": "files"}),
        ] {
            let params = parse_text(&arguments.to_string()).unwrap();
            let error = search(&ground.context, &params, meter()).unwrap_err();
            assert_eq!(error.code, ErrorCode::InvalidParameters, "{arguments}");
        }
    }

    #[test]
    fn a_search_that_must_stop_tells_what_it_has() {
        let ground = Ground::new();
        ground.file("f", b"needle\n");
        let late = Meter::new(clock::now(), Arc::default());
        let params = parse_text(&json!({"query": "needle"}).to_string()).unwrap();
        let output = search(&ground.context, &params, late).unwrap();
        assert_eq!(
            output.value,
            "[no match for `needle`]\n[not everything was searched, since the time for a search \
             was up: narrow it with `glob`]\n"
        );
    }

    #[tokio::test]
    async fn a_call_that_is_dropped_cancels_its_search() {
        let cancelled = CancelOnDrop::default();
        let flag = Arc::clone(&cancelled.0);
        assert!(!flag.load(Ordering::Relaxed));
        drop(cancelled);
        assert!(flag.load(Ordering::Relaxed));
        let ground = Ground::new();
        ground.file("f", b"needle\n");
        let output = SearchWorkspace
            .call(
                &ground.context,
                r#"{"query":"needle"}"#,
                Duration::from_secs(60),
            )
            .await
            .unwrap();
        assert_eq!(output.value, "f:1: needle\n[1 match in 1 file]\n");
    }

    #[test]
    fn one_endless_line_does_not_take_all_memory() {
        let ground = Ground::new();
        let mut line = vec![b'y'; 70 * 1024 * 1024];
        line.extend(b"needle");
        ground.file("big", &line);
        ground.file("small", b"needle\n");
        assert_eq!(
            found(&ground, json!({"query": "needle"})),
            "small:1: needle\n[1 match in 1 file]\n[1 files or directories could not be read]\n"
        );
    }
}
