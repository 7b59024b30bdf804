//! Commands of every unpleasant kind. Whether a process is gone is told by a named pipe that it
//! and all its descendants hold open for writing, never by a name or a number.

use super::*;
use crate::tools::testing::{Ground, Liveness};
use serde_json::json;
use std::time::Instant;

const PLENTY: Duration = Duration::from_secs(60);

fn arguments(command: &str, timeout_seconds: u64) -> String {
    json!({"command": command, "timeout_seconds": timeout_seconds}).to_string()
}

async fn text_of(ground: &Ground, command: &str, timeout_seconds: u64) -> String {
    let output = run(
        &ground.context,
        &arguments(command, timeout_seconds),
        PLENTY,
    )
    .await
    .unwrap();
    assert_eq!(
        output.tally,
        Tally {
            commands: 1,
            ..Tally::default()
        }
    );
    output.value.as_str().unwrap().to_owned()
}

/// The part of a result behind its bracketed lines.
fn output_of(text: &str) -> &str {
    let mut rest = text;
    while rest.starts_with('[') {
        rest = rest.split_once('\n').map_or("", |(_, behind)| behind);
    }
    rest
}

#[tokio::test]
async fn a_command_tells_output_and_exit_code() {
    let ground = Ground::new();
    let text = text_of(&ground, "echo out; echo err >&2; echo again; exit 3", 60).await;
    assert!(text.starts_with("[failed: exit code 3; "), "{text}");
    assert!(text.contains("; 14 bytes of output]\n"), "{text}");
    assert_eq!(output_of(&text), "out\nerr\nagain\n");
    let quiet = text_of(&ground, "true", 60).await;
    assert!(quiet.starts_with("[exit code 0; "), "{quiet}");
    assert!(quiet.ends_with("\n[no output]"), "{quiet}");
}

#[tokio::test]
async fn two_runs_that_went_alike_are_told_alike() {
    let ground = Ground::new();
    let first = text_of(&ground, "echo x; exit 1", 60).await;
    let second = text_of(&ground, "sleep 0.2; echo x; exit 1", 60).await;
    assert_eq!(first, second);
    assert_eq!(first, "[failed: exit code 1; 2 bytes of output]\nx\n");
}

#[tokio::test]
async fn a_background_child_that_keeps_the_output_is_noted_and_ended() {
    let ground = Ground::new();
    let mut alive = Liveness::new(&ground);
    let begun = Instant::now();
    let text = text_of(&ground, &Liveness::holding("sleep 300 & echo started"), 60).await;
    assert!(begun.elapsed() < Duration::from_secs(10));
    assert!(text.starts_with("[exit code 0; "), "{text}");
    assert!(
        text.contains("a background process was left and ended"),
        "{text}"
    );
    assert_eq!(output_of(&text), "started\n");
    alive.wait_for_life();
    alive.wait_for_death();
}

#[tokio::test]
async fn a_background_child_that_closed_the_output_is_noted_and_ended_too() {
    let ground = Ground::new();
    let mut alive = Liveness::new(&ground);
    let command = "for i in 1 2 3 4; do sleep 300 >/dev/null 2>&1 & done; echo ok";
    let text = text_of(&ground, &Liveness::holding(command), 60).await;
    assert!(
        text.contains("a background process was left and ended"),
        "{text}"
    );
    assert_eq!(output_of(&text), "ok\n");
    alive.wait_for_life();
    alive.wait_for_death();
}

#[tokio::test]
async fn a_pipeline_of_a_pattern_that_leaves_nothing_is_not_noted() {
    let ground = Ground::new();
    let text = text_of(&ground, "(true &) ; seq 3 | cat", 60).await;
    assert!(!text.contains("[note:"), "{text}");
    assert_eq!(output_of(&text), "1\n2\n3\n");
}

#[tokio::test]
async fn a_time_out_ends_the_whole_pipeline_and_keeps_its_output() {
    let ground = Ground::new();
    let mut alive = Liveness::new(&ground);
    let command = "mkfifo p; (while :; do echo x; sleep 0.1; done) > p & cat p";
    let begun = Instant::now();
    let text = text_of(&ground, &Liveness::holding(command), 1).await;
    let took = begun.elapsed();
    assert!(
        took >= Duration::from_secs(1) && took < Duration::from_secs(10),
        "{took:?}"
    );
    assert!(
        text.starts_with("[failed: timed out (timeout of 1 s); "),
        "{text}"
    );
    assert!(output_of(&text).starts_with("x\nx\n"), "{text}");
    alive.wait_for_life();
    alive.wait_for_death();
}

#[tokio::test]
async fn a_process_that_ignores_the_polite_signal_is_killed() {
    let ground = Ground::new();
    let mut alive = Liveness::new(&ground);
    let command = "trap '' TERM INT HUP; echo up; sleep 400; sleep 400";
    let text = text_of(&ground, &Liveness::holding(command), 1).await;
    assert!(
        text.contains("with SIGKILL, since SIGTERM was not obeyed"),
        "{text}"
    );
    assert_eq!(output_of(&text), "up\n");
    alive.wait_for_life();
    alive.wait_for_death();
}

#[tokio::test]
async fn a_program_that_outlives_its_obedient_shell_is_killed() {
    let ground = Ground::new();
    let mut alive = Liveness::new(&ground);
    let command = "(trap '' TERM; while :; do sleep 1; done) & sleep 400";
    let text = text_of(&ground, &Liveness::holding(command), 1).await;
    assert!(text.contains("with SIGKILL"), "{text}");
    alive.wait_for_life();
    alive.wait_for_death();
}

#[tokio::test]
async fn a_stopped_process_is_ended_by_the_time_out() {
    let ground = Ground::new();
    let mut alive = Liveness::new(&ground);
    let text = text_of(&ground, &Liveness::holding("kill -STOP $$"), 1).await;
    assert!(text.contains("ended with SIGTERM"), "{text}");
    alive.wait_for_life();
    alive.wait_for_death();
}

#[tokio::test]
async fn input_has_ended_before_it_begins() {
    let ground = Ground::new();
    let begun = Instant::now();
    let text = text_of(&ground, "read -r x; echo got:$x; cat; echo end", 60).await;
    assert_eq!(output_of(&text), "got:\nend\n");
    assert!(begun.elapsed() < Duration::from_secs(30));
}

#[tokio::test]
async fn neither_pager_nor_editor_waits_for_a_person() {
    let ground = Ground::new();
    let identity = "git -c user.name=n -c user.email=e@example.com";
    let setup = format!(
        "git init -q r && cd r && for i in 1 2 3; do {identity} commit -q \
                         --allow-empty -m commit-$i; done; git log --oneline; {identity} commit \
                         --allow-empty"
    );
    let text = text_of(&ground, &setup, 60).await;
    assert!(text.starts_with("[failed: exit code 1; "), "{text}");
    assert!(
        text.contains("commit-1") && text.contains("commit-3"),
        "{text}"
    );
    assert!(text.contains("no editor can be opened here"), "{text}");
}

#[tokio::test]
async fn a_death_by_signal_is_told_apart_from_an_exit_code() {
    let ground = Ground::new();
    for (command, words) in [
        (
            "printf before; kill -9 $$",
            "[failed: killed by SIGKILL (signal 9); ",
        ),
        (
            "printf before; kill -TERM $$",
            "[failed: killed by SIGTERM (signal 15); ",
        ),
        ("printf before; exit 137", "[failed: exit code 137; "),
    ] {
        let text = text_of(&ground, command, 60).await;
        assert!(text.starts_with(words), "{text}");
        assert_eq!(output_of(&text), "before");
    }
}

#[tokio::test]
async fn closed_output_is_no_end_and_costs_no_time() {
    let ground = Ground::new();
    let mut alive = Liveness::new(&ground);
    let command = Liveness::holding("exec >&- 2>&-; sleep 400");
    let used = || nix::sys::resource::getrusage(nix::sys::resource::UsageWho::RUSAGE_THREAD);
    // The runtime of a test has one thread, so its own use is the thread's.
    let before = used().unwrap().user_time();
    let text = text_of(&ground, &command, 2).await;
    let after = used().unwrap().user_time();
    let busy_us =
        (after.tv_sec() - before.tv_sec()) * 1_000_000 + after.tv_usec() - before.tv_usec();
    assert!(
        busy_us < 500_000,
        "{busy_us} us of work while nothing happened"
    );
    assert!(
        text.starts_with("[failed: timed out (timeout of 2 s); "),
        "{text}"
    );
    alive.wait_for_life();
    alive.wait_for_death();
}

#[tokio::test]
async fn the_reason_at_the_end_survives_long_output_and_a_leaking_child() {
    let ground = Ground::new();
    let command = "sleep 20 & seq 1 400000; echo FAIL_REASON >&2; exit 3";
    let text = text_of(&ground, command, 60).await;
    assert!(text.starts_with("[failed: exit code 3; "), "{text:.200}");
    assert!(text.contains("a background process was left and ended"));
    assert!(text.contains("bytes of output are left out here"));
    assert!(text.contains("; 2688907 bytes of output, "), "{text:.200}");
    assert!(text.contains("\n400000\n"));
    assert!(text.ends_with("\nFAIL_REASON\n"));
}

#[tokio::test]
async fn much_output_takes_bounded_memory_on_either_stream() {
    let ground = Ground::new();
    for redirect in ["", " >&2"] {
        let command = format!("head -c 67108864 /dev/zero | tr '\\0' x{redirect}");
        let text = text_of(&ground, &command, 120).await;
        assert!(text.starts_with("[exit code 0; "), "{text:.200}");
        assert!(text.contains("; 67108864 bytes of output, "), "{text:.200}");
        assert!(text.len() < 2 * 1024 * 1024);
        assert!(text.ends_with("xxx"));
    }
}

#[tokio::test]
async fn progress_colours_and_odd_bytes_are_made_readable() {
    let ground = Ground::new();
    let command = r"for i in $(seq 1 20000); do printf '\r%d%%' $i; done; echo
        printf 'first\rsecond\nthird\n'; printf '\033[31mred\033[0m\n'
        printf '\377\376\000abc\303\n'; printf '\307\375\266\257\306\367\n' >&2";
    let text = text_of(&ground, command, 60).await;
    assert_eq!(
        output_of(&text),
        "20000%\nsecond\nthird\nred\n\u{fffd}\u{fffd}\u{fffd}abc\u{fffd}\n驱动器\n"
    );
}

#[tokio::test]
async fn a_server_in_the_foreground_is_ended_with_what_it_said() {
    let ground = Ground::new();
    let mut alive = Liveness::new(&ground);
    let command = Liveness::holding("echo serving; while :; do sleep 1; done");
    // The agent's own deadline is nearer than the default time-out.
    let arguments = json!({"command": command}).to_string();
    let output = run(&ground.context, &arguments, Duration::from_secs(1))
        .await
        .unwrap();
    let text = output.value.as_str().unwrap();
    assert!(
        text.starts_with("[failed: timed out (timeout of 1 s); "),
        "{text}"
    );
    assert_eq!(output_of(text), "serving\n");
    alive.wait_for_life();
    alive.wait_for_death();
}

#[tokio::test]
async fn a_call_that_is_dropped_ends_its_command() {
    let ground = Ground::new();
    let mut alive = Liveness::new(&ground);
    let command = arguments(&Liveness::holding("sleep 300 & sleep 300"), 60);
    {
        let call = run(&ground.context, &command, PLENTY);
        tokio::pin!(call);
        let shown = tokio::task::spawn_blocking(move || {
            alive.wait_for_life();
            alive
        });
        alive = tokio::select! {
            ended = &mut call => panic!("the command ended by itself: {ended:?}"),
            alive = shown => alive.unwrap(),
        };
    }
    alive.wait_for_death();
}

#[tokio::test]
async fn a_flood_does_not_delay_the_time_out() {
    let ground = Ground::new();
    let begun = Instant::now();
    let text = text_of(&ground, "yes verylongline", 1).await;
    assert!(begun.elapsed() < Duration::from_secs(15));
    assert!(text.starts_with("[failed: timed out"), "{text:.200}");
}

#[tokio::test]
async fn a_command_runs_where_it_is_asked_to() {
    let ground = Ground::new();
    ground.file("d/e/f", b"");
    let at = |directory: &str| json!({"command": "pwd; ls", "working_dir": directory}).to_string();
    let output = run(&ground.context, &at("d/e"), PLENTY).await.unwrap();
    let wanted = format!("{}\nf\n", ground.path("d/e").display());
    assert_eq!(output_of(output.value.as_str().unwrap()), wanted);
    for (directory, code) in [
        ("gone", ErrorCode::NotFound),
        ("d/e/f", ErrorCode::InvalidParameters),
        ("..", ErrorCode::OutsideWorkspace),
        ("/tmp", ErrorCode::OutsideWorkspace),
    ] {
        let error = run(&ground.context, &at(directory), PLENTY)
            .await
            .unwrap_err();
        assert_eq!(error.code, code, "{directory}");
    }
}

#[tokio::test]
async fn commands_that_can_be_none_are_refused() {
    let ground = Ground::new();
    let long = format!("true {}", "x".repeat(200 * 1024));
    for (command, code) in [
        ("", ErrorCode::InvalidParameters),
        ("echo a\0b", ErrorCode::InvalidParameters),
        (long.as_str(), ErrorCode::TooLarge),
    ] {
        let error = run(&ground.context, &arguments(command, 60), PLENTY)
            .await
            .unwrap_err();
        assert_eq!(error.code, code, "{error}");
    }
}

#[tokio::test]
async fn a_command_sees_the_marker_and_no_hidden_variable() {
    let mut ground = Ground::new();
    // HOME stands for a variable that the run was told to hide.
    ground.context.hidden_env = vec!["HOME".to_owned()];
    let text = text_of(&ground, "echo \"$MUSTER_NESTED $TERM ${HOME-none}\"", 60).await;
    assert_eq!(output_of(&text), "1 dumb none\n");
}
