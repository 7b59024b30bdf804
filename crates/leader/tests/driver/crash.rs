//! What is left when the leader itself is killed, and what the next one makes of it.

use std::fs;
use std::io::Read;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use protocol::status::StopReason;

use crate::support::{
    BUDGET, Bench, PRELUDE, alive_pipe, config, jail, until, within, write_script,
};
use leader::driver::{Driver, StopMode};

/// Runs until it is killed, with a daemon that ignores every polite signal.
const ENDLESS: &str = r#"trap '' TERM HUP INT; alive; setsid sh -c 'trap "" TERM HUP; sleep 600' &
journal; conversation running null null; echo part >"$out/part.md"; hello
while :; do sleep 1; done"#;

#[tokio::test]
async fn a_killed_leader_leaves_no_process_and_the_next_one_closes_its_run() {
    let place = tempfile::tempdir().unwrap();
    write_script(
        &place.path().join("worker.sh"),
        &format!("{PRELUDE}{ENDLESS}\n"),
    );
    let mut alive = alive_pipe(place.path());
    let home = tempfile::tempdir().unwrap();
    let mut leader = Command::new(env!("CARGO_BIN_EXE_leader"))
        .args(["run", "Write the file a.md.", "--deliverables-dir", "d1"])
        .args(["--model", "script:replies.jsonl", "--json"])
        .arg("--worker-bin")
        .arg(place.path().join("worker.sh"))
        .current_dir(place.path())
        .env_clear()
        .env("PATH", "/usr/bin:/bin")
        .env("HOME", home.path())
        .env("MUSTER_JAIL", jail())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let runs = place.path().join(".muster/runs");
    let log_of = |run: Option<PathBuf>| -> String {
        run.and_then(|run| fs::read_to_string(run.join("events.jsonl")).ok())
            .unwrap_or_default()
    };
    let killed_run = || {
        let run = fs::read_dir(&runs).ok().and_then(|mut runs| runs.next());
        run.map(|run| run.unwrap().path())
    };
    let log = || log_of(killed_run());
    let mut early = None;
    until(|| {
        early = leader.try_wait().unwrap();
        early.is_some() || log().contains("agent.initialized")
    })
    .await;
    if early.is_some() {
        let mut said = String::new();
        leader
            .stderr
            .take()
            .unwrap()
            .read_to_string(&mut said)
            .unwrap();
        panic!("the leader ended early: {said}");
    }
    leader.kill().unwrap();
    assert_eq!(leader.wait().unwrap().signal(), Some(9));
    if log().contains(r#""kill":"complete""#) {
        let gone = until(|| matches!(alive.read(&mut [0; 64]), Ok(0))).await;
        assert!(gone < Duration::from_secs(2), "{gone:?}");
    }
    let killed_run = killed_run();
    assert!(!log_of(killed_run.clone()).contains("run.ended"));
    let (handle, task) = within(Driver::start(config(place.path(), "")))
        .await
        .unwrap();
    assert!(log_of(killed_run).contains("run.ended"));
    let file = fs::read(place.path().join("d1/.subagent/conversations.json")).unwrap();
    let file: serde_json::Value = serde_json::from_slice(&file).unwrap();
    assert_eq!(file["status"], "interrupted");
    assert_eq!(file["result"]["stop_reason"], "leader_died");
    assert_eq!(file["messages"][0]["content"], "half way");
    tokio::time::timeout(
        BUDGET,
        handle.close(StopReason::LeaderStopped, StopMode::Force),
    )
    .await
    .unwrap();
    within(task).await.unwrap();
}

#[tokio::test]
async fn one_conversation_has_one_leader() {
    let bench = Bench::new("exit 0").await;
    let mut second = config(bench.place.path(), "");
    second.conversation = Some(bench.handle.conversation().clone());
    let error = within(Driver::start(second)).await.unwrap_err();
    assert!(error.to_string().contains("live leader"), "{error}");
    assert!(!error.hint().is_empty());
    bench.end().await;
}
