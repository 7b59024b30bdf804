//! Commands in the background, as the tools start, show and stop them. A build that was started
//! with `&` was once lost with its shell, and one that was waited for cost an agent its deadline.

use super::*;
use crate::tools::check_background::CheckBackground;
use crate::tools::run_command::RunCommand;
use crate::tools::stop_background::StopBackground;
use crate::tools::testing::{Ground, Liveness};
use crate::tools::{Tool, ToolResult};
use protocol::text::BackgroundState;
use serde_json::{Value, json};

const PLENTY: Duration = Duration::from_secs(60);

async fn start_for(ground: &Ground, command: &str, seconds: u64) -> ToolResult {
    let arguments = json!({"command": command, "run_in_background": true,
        "timeout_seconds": seconds});
    RunCommand
        .call(&ground.context, &arguments.to_string(), PLENTY)
        .await
}

async fn start(ground: &Ground, command: &str) {
    start_for(ground, command, 60).await.unwrap();
}

async fn text(result: impl Future<Output = ToolResult>) -> String {
    match result.await.unwrap().value {
        Value::String(text) => text,
        other => panic!("{other}"),
    }
}

async fn check(ground: &Ground, id: Option<&str>) -> String {
    let arguments = json!({"command_id": id}).to_string();
    text(CheckBackground.call(&ground.context, &arguments, PLENTY)).await
}

/// Waits for ends that were not told, as the loop sees them before each turn.
async fn announced(ground: &Ground, count: usize) -> Vec<BackgroundResult> {
    let mut ended = Vec::new();
    let all = async {
        while ended.len() < count {
            let changed = ground.context.background.changed.notified();
            ended.extend(ground.context.background.take_ended(&ground.context));
            if ended.len() < count {
                changed.await;
            }
        }
    };
    timeout(PLENTY, all).await.unwrap();
    ended
}

#[tokio::test]
async fn an_end_is_announced_once_and_can_be_looked_at_again() {
    let ground = Ground::new();
    let begun = tokio::time::Instant::now();
    let output = start_for(&ground, "echo out; sleep 0.2; exit 3", 60)
        .await
        .unwrap();
    assert!(begun.elapsed() < Duration::from_secs(30));
    assert_eq!(output.tally.commands, 1);
    let told = output.value.as_str().unwrap();
    assert!(told.contains("bg_1") && told.contains("60 s"), "{told}");
    let result = "[failed: exit code 3; 4 bytes of output]\nout\n";
    assert_eq!(
        announced(&ground, 1).await,
        [BackgroundResult {
            command_id: "bg_1".to_owned(),
            command: "echo out; sleep 0.2; exit 3".to_owned(),
            state: BackgroundState::Error,
            result: result.to_owned(),
        }]
    );
    assert_eq!(ground.context.background.take_ended(&ground.context), []);
    assert_eq!(
        check(&ground, Some("bg_1")).await,
        format!(
            "[bg_1 error: echo out; sleep 0.2; exit 3]\n{}",
            result.trim()
        )
    );
}

#[tokio::test]
async fn a_look_waits_for_an_end_and_what_it_saw_is_not_announced() {
    let ground = Ground::new();
    start(&ground, "sleep 0.3; echo done").await;
    let seen = check(&ground, None).await;
    assert_eq!(
        seen,
        "[bg_1 completed: sleep 0.3; echo done]\n[exit code 0; 5 bytes of output]\ndone"
    );
    assert_eq!(ground.context.background.take_ended(&ground.context), []);
}

#[tokio::test]
async fn the_output_so_far_can_be_seen_and_a_stop_ends_the_whole_tree() {
    let ground = Ground::new();
    let mut alive = Liveness::new(&ground);
    start(
        &ground,
        &format!(
            "echo so far; {}",
            Liveness::holding("sleep 300 & sleep 300")
        ),
    )
    .await;
    let alive = tokio::task::spawn_blocking(move || {
        alive.wait_for_life();
        alive
    });
    let mut alive = alive.await.unwrap();
    let seen = ground
        .context
        .background
        .see(&ground.context, Some("bg_1"))
        .await
        .unwrap();
    assert_eq!(seen[0].state, BackgroundState::Running);
    assert!(
        seen[0].result.ends_with("so far]\nso far\n") && seen[0].result.contains("of at most 60 s"),
        "{seen:?}"
    );
    let stopped = StopBackground.call(&ground.context, r#"{"command_id":"bg_1"}"#, PLENTY);
    let told = text(stopped).await;
    assert!(
        told.starts_with("[bg_1 stopped: ") && told.ends_with("]\nso far"),
        "{told}"
    );
    alive.wait_for_death();
    let again = StopBackground.call(&ground.context, r#"{"command_id":"bg_1"}"#, PLENTY);
    assert_eq!(text(again).await, told, "a second stop changes nothing");
    assert_eq!(ground.context.background.take_ended(&ground.context), []);
}

#[tokio::test]
async fn its_time_is_bounded_by_itself_and_by_the_agents_deadline() {
    let ground = Ground::new();
    start_for(&ground, "sleep 300", 1).await.unwrap();
    let arguments = json!({"command": "sleep 300", "run_in_background": true}).to_string();
    RunCommand
        .call(&ground.context, &arguments, Duration::from_secs(1))
        .await
        .unwrap();
    for end in announced(&ground, 2).await {
        assert_eq!(end.state, BackgroundState::Timeout, "{end:?}");
    }
}

#[tokio::test]
async fn there_is_room_for_so_many_and_not_for_one_more() {
    let ground = Ground::new();
    for _ in 0..BACKGROUND_COMMANDS_MAX {
        start(&ground, "sleep 300").await;
    }
    let error = start_for(&ground, "sleep 300", 60).await.unwrap_err();
    assert_eq!(error.code, ErrorCode::TooMany);
    assert!(error.message.contains("bg_1, bg_2"), "{error}");
    let stopped = StopBackground.call(&ground.context, r#"{"command_id":"bg_3"}"#, PLENTY);
    stopped.await.unwrap();
    start(&ground, "sleep 300").await;
    ground.context.background.end_all().await;
}

#[tokio::test]
async fn what_is_told_of_ends_is_bounded_and_old_ones_are_forgotten() {
    let ground = Ground::new();
    start(&ground, "yes | head -c 3000000").await;
    let ended = announced(&ground, 1).await;
    assert!(ended[0].result.chars().count() <= protocol::limits::TOOL_RESULT_CHARS_MAX);
    assert!(ended[0].result.contains("outputs/1.txt"), "{ended:?}");
    for _ in 0..limits::BACKGROUND_ENDED_MAX + 2 {
        start(&ground, "true").await;
        announced(&ground, 1).await;
    }
    let arguments = r#"{"command_id":"bg_1"}"#;
    let error = CheckBackground
        .call(&ground.context, arguments, PLENTY)
        .await
        .unwrap_err();
    assert_eq!(error.code, ErrorCode::NotFound);
    assert!(error.hint.starts_with("known: bg_3, "), "{error:?}");
}

#[tokio::test]
async fn the_end_of_the_run_ends_them_also_those_that_do_not_obey() {
    let ground = Ground::new();
    let mut alive = Liveness::new(&ground);
    start(
        &ground,
        &Liveness::holding("trap '' TERM; sleep 300 & sleep 300; sleep 300"),
    )
    .await;
    let mut alive = tokio::task::spawn_blocking(move || {
        alive.wait_for_life();
        alive
    })
    .await
    .unwrap();
    ground.context.background.end_all().await;
    let alive = tokio::task::spawn_blocking(move || alive.wait_for_death());
    alive.await.unwrap();
    let error = start_for(&ground, "true", 60).await.unwrap_err();
    assert_eq!(error.code, ErrorCode::Cancelled);
}

#[tokio::test]
async fn nothing_runs_and_nothing_is_known_at_first() {
    let ground = Ground::new();
    assert_eq!(check(&ground, None).await, "[no background commands]");
    let arguments = r#"{"command_id":"bg_9"}"#;
    for result in [
        CheckBackground
            .call(&ground.context, arguments, PLENTY)
            .await,
        StopBackground
            .call(&ground.context, arguments, PLENTY)
            .await,
    ] {
        let error = result.unwrap_err();
        assert_eq!(error.code, ErrorCode::NotFound);
        assert!(error.hint.contains("run_in_background"), "{error:?}");
    }
    let refused = start_for(&ground, "echo \0", 60).await.unwrap_err();
    assert_eq!(refused.code, ErrorCode::InvalidParameters);
}
