//! Ends from outside: signals, the deadline, `kill -9`.

use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use protocol::status::{Status, StopReason};
use serde_json::{Value, json};

use crate::harness::{Alive, Place, assert_paired, finishes, read_conversation, runs, wait_for};

/// A script whose agent stays in a command that holds the pipe `ws/alive`.
fn stuck() -> Value {
    json!([{"text": "I wait.", "tool_calls": [
        {"name": "run_command",
         "arguments": {"command": "exec 9>alive; echo >&9; sleep 600 & sleep 600"}},
        {"name": "write_file", "arguments": {"file_path": "out/b", "content": "x"}}]}])
}

#[test]
fn a_signal_saves_the_conversation_and_ends_all_commands() {
    for (signal, code) in [
        (Signal::SIGTERM, 143),
        (Signal::SIGINT, 130),
        (Signal::SIGHUP, 129),
    ] {
        let place = Place::new(stuck());
        let mut alive = Alive::new(&place.path("ws/alive"));
        let mut worker = Place::start(&mut place.run());
        alive.wait_for_holder();
        worker.signal(signal);
        assert_eq!(worker.end().code(), Some(code));
        alive.wait_for_nobody();
        let conversation = place.conversation();
        assert_eq!(conversation.status, Status::Terminated);
        let result = conversation.result.clone().unwrap();
        assert_eq!(result.stop_reason, Some(StopReason::Terminated));
        assert_eq!(result.summary, "I wait.");
        assert_paired(&conversation);
        assert!(!place.path("ws/out/b").exists());
    }
}

#[test]
fn the_deadline_ends_a_command_that_does_not_end() {
    let place = Place::new(stuck());
    let mut alive = Alive::new(&place.path("ws/alive"));
    let start = Instant::now();
    let mut worker = Place::start(place.run().arg("--timeout-seconds=2"));
    alive.wait_for_holder();
    assert_eq!(worker.end().code(), Some(124));
    assert!(start.elapsed() >= Duration::from_secs(2));
    alive.wait_for_nobody();
    let conversation = place.conversation();
    assert_eq!(conversation.status, Status::TimedOut);
    assert_paired(&conversation);
}

#[test]
fn a_worker_that_is_killed_leaves_a_conversation_and_a_journal_that_can_be_read() {
    // One agent that never pauses, killed at another point each time: with so many rounds some
    // kills fall into the middle of a write.
    let busy: Vec<Value> = (0..40)
        .map(|n| runs(&format!("echo {n} {}", "x".repeat(20_000))))
        .collect();
    let place = Place::new(json!(busy));
    for round in 0..20_u64 {
        let folder = format!("out{round}");
        let mut command = place.worker();
        command.args([
            "--task-file=task.md",
            "--workspace=ws",
            "--model=script:script.yaml",
        ]);
        command.arg(format!("--deliverables-dir={folder}"));
        let mut worker = Place::start(&mut command);
        let own = place.path("ws").join(&folder).join(".subagent");
        let conversation = own.join("conversations.json");
        wait_for("the first conversation", || {
            read_conversation(&conversation)
        });
        // A point in time and not an event is what is wanted here: any point must do.
        std::thread::sleep(Duration::from_millis(round * 7));
        worker.signal(Signal::SIGKILL);
        worker.end();
        let left = read_conversation(&conversation).unwrap();
        let journal = std::fs::read(own.join("journal.jsonl")).unwrap();
        let folded = protocol::journal::fold(&journal, &left.task_id).unwrap();
        assert!(folded.skipped <= 1);
        assert!(folded.file.messages.len() >= left.messages.len());
        let both = folded.file.messages.iter().zip(&left.messages);
        for (of_journal, of_file) in both {
            assert_eq!(of_journal, of_file);
        }
    }
}

#[test]
fn a_reader_never_meets_half_a_conversation() {
    let mut replies: Vec<Value> = (0..50)
        .map(|n| {
            let mut reply = runs(&format!("echo {n} {}", "x".repeat(5_000)));
            reply["delay_ms"] = json!(30);
            reply
        })
        .collect();
    replies.push(finishes(true));
    let place = Place::new(json!(replies));
    let path = place.own_file("conversations.json");
    let mut worker = Place::start(place.run().args(["-q", "--max-turns=60"]));
    let mut seen = Vec::new();
    let status = wait_for("the worker's end", || {
        // Reading fails the test when it is no valid JSON.
        if let Some(conversation) = read_conversation(&path) {
            let length = conversation.messages.len();
            if seen.last() != Some(&length) {
                seen.push(length);
            }
        }
        worker.0.try_wait().unwrap()
    });
    assert_eq!(status.code(), Some(0));
    assert!(seen.is_sorted(), "{seen:?}");
    assert!(
        seen.len() > 1,
        "it was written while the agent ran: {seen:?}"
    );
    assert_eq!(place.conversation().messages.len(), 2 + 51 * 2);
}
