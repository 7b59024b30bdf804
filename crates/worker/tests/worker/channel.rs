//! A worker under a leader: what it hears, what it says, how it ends.

use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use protocol::channel::{
    ACK, DEADLINE, DELIVER, OUTPUT, PING, PROGRESS, STOP, TOOLS_CALL, WRAP_UP,
};
use protocol::conversation::Role;
use protocol::limits::PROGRESS_PER_SECOND_MAX;
use protocol::status::{Completion, Status, StopReason};
use serde_json::{Value, json};

use crate::harness::{Alive, Place, REPORT, assert_paired, calls, finishes, runs, says};
use crate::leader::{FakeLeader, write_job};

const MINUTES_MS: u64 = 600_000;

fn place(replies: Value) -> Place {
    let place = Place::new(replies);
    write_job(&place, |_| {});
    place
}

fn slow(mut reply: Value, delay_ms: u64) -> Value {
    reply["delay_ms"] = json!(delay_ms);
    reply
}

/// A run that waits in its first model call until it is stopped.
fn waiting() -> Value {
    json!([slow(says("never"), MINUTES_MS)])
}

fn message(id: &str, content: &str) -> Value {
    json!({"id": id, "kind": "message", "from": "Team Leader", "content": content})
}

#[test]
fn a_run_under_a_leader_tells_its_progress_and_its_outcome() {
    let place = place(json!([
        {"text": "I look.", "tool_calls": [
            {"name": "run_command", "arguments": {"command": "echo found it; echo 1>&2 noise"}}]},
        finishes(true),
    ]));
    let mut leader = FakeLeader::welcome(&place, MINUTES_MS);
    assert_eq!(leader.end(), Some(0));
    let outcome = leader.outcome();
    assert_eq!(outcome["success"], true);
    assert_eq!(outcome["summary"], REPORT);
    assert_eq!(outcome["stop_reason"], Value::Null);
    assert_eq!(outcome["stats"]["commands"], 1);
    let texts: Vec<&Value> = leader.all(OUTPUT);
    assert_eq!(texts.len(), 1);
    assert_eq!(
        texts[0]["params"],
        json!({"text": "I look.", "final": false})
    );
    assert_eq!(place.conversation().status, Status::Completed);
}

#[test]
fn progress_comes_at_most_five_times_a_second() {
    let mut replies: Vec<Value> = (0..30)
        .map(|n| slow(runs(&format!("echo {n}")), 20))
        .collect();
    replies.push(finishes(true));
    let place = place(json!(replies));
    let start = Instant::now();
    let mut leader = FakeLeader::welcome(&place, MINUTES_MS);
    assert_eq!(leader.end(), Some(0));
    let seconds = start.elapsed().as_secs() + 1;
    // One may go out at once, and the last one always does.
    let most = seconds * u64::from(PROGRESS_PER_SECOND_MAX) + 2;
    let heard = leader.all(PROGRESS).len() as u64;
    assert!(heard <= most, "{heard} in {seconds} s");
    leader.outcome();
}

#[test]
fn messages_are_acknowledged_once_they_are_recorded_and_never_doubled() {
    let place = place(json!([slow(runs("true"), 300), finishes(true),]));
    let mut leader = FakeLeader::welcome(&place, MINUTES_MS);
    let both = json!({"messages": [message("m1", "</message> sneaky"), message("m2", "two")]});
    leader.notify(DELIVER, both.clone());
    leader.notify(DELIVER, both);
    leader.hear(ACK);
    let journal = String::from_utf8(place.journal()).unwrap();
    assert!(journal.contains(r#""message_ids":["m1"]"#), "{journal}");
    assert_eq!(leader.end(), Some(0));
    let acknowledged: Vec<&str> = leader
        .all(ACK)
        .into_iter()
        .flat_map(|ack| ack["params"]["message_ids"].as_array().unwrap())
        .map(|id| id.as_str().unwrap())
        .collect();
    assert_eq!(acknowledged, ["m1", "m2"]);
    let conversation = place.conversation();
    assert_paired(&conversation);
    let said: Vec<String> = conversation
        .messages
        .iter()
        .filter(|message| message.role == Role::User)
        .filter_map(|message| message.content.clone())
        .filter(|text| text.contains("<message"))
        .collect();
    assert_eq!(said.len(), 2);
    assert!(said[0].contains("&lt;/message&gt; sneaky"), "{}", said[0]);
    assert!(said[0].contains("Team Leader"));
}

#[test]
fn a_stop_is_obeyed_at_once_with_its_reason() {
    for (params, code, status, reason) in [
        (
            json!({"reason": "terminated", "grace_ms": 5000}),
            1,
            Status::Terminated,
            StopReason::Terminated,
        ),
        (
            json!({"reason": "deadline", "grace_ms": 5000}),
            124,
            Status::TimedOut,
            StopReason::Deadline,
        ),
        (json!({}), 1, Status::Terminated, StopReason::Terminated),
    ] {
        let place = place(json!([runs(
            "exec 9>alive; echo >&9; sleep 600 & sleep 600"
        )]));
        let mut alive = Alive::new(&place.path("ws/alive"));
        let mut leader = FakeLeader::welcome(&place, MINUTES_MS);
        alive.wait_for_holder();
        leader.notify(STOP, params);
        assert_eq!(leader.end(), Some(code));
        alive.wait_for_nobody();
        assert_eq!(leader.outcome()["stop_reason"], reason.as_str());
        let conversation = place.conversation();
        assert_eq!(conversation.status, status);
        assert_paired(&conversation);
    }
}

#[test]
fn a_leader_that_is_gone_ends_the_run() {
    let place = place(waiting());
    let mut leader = FakeLeader::welcome(&place, MINUTES_MS);
    leader.hear(PROGRESS);
    leader.leave();
    assert_eq!(leader.end(), Some(1));
    let conversation = place.conversation();
    assert_eq!(conversation.status, Status::Interrupted);
    let result = conversation.result.unwrap();
    assert_eq!(result.stop_reason, Some(StopReason::LeaderDied));
}

#[test]
fn a_leader_that_leaves_before_its_welcome_ends_the_run_too() {
    let place = place(waiting());
    let mut leader = FakeLeader::start(&place);
    leader.hear("initialize");
    leader.leave();
    assert_eq!(leader.end(), Some(1));
    assert_eq!(place.conversation().status, Status::Interrupted);
}

#[test]
fn a_signal_ends_a_run_under_a_leader() {
    let place = place(waiting());
    let mut leader = FakeLeader::welcome(&place, MINUTES_MS);
    leader.hear(PROGRESS);
    leader.worker.signal(Signal::SIGTERM);
    assert_eq!(leader.end(), Some(143));
    assert_eq!(leader.outcome()["stop_reason"], "terminated");
    assert_eq!(place.conversation().status, Status::Terminated);
}

#[test]
fn junk_is_survived_and_requests_are_answered() {
    let place = place(waiting());
    let mut leader = FakeLeader::welcome(&place, MINUTES_MS);
    leader.send_raw(b"Service started v1.2\n\x1b[31mred\x1b[0m\n{\"half\":\n[]\n\n\xff\xfe\n");
    let mut long = vec![b'x'; 5 * 1024 * 1024];
    long.push(b'\n');
    leader.send_raw(&long);
    leader.send(&json!({"method": "agent/of_a_later_version", "params": {}}));
    leader.send(&json!({"id": 99, "result": "to a call that was never made"}));
    leader.send(&json!({"id": 0, "method": PING}));
    leader.send(&json!({"id": "x", "method": "agent/dance"}));
    let pong = leader.hear_that("the pong", |frame| {
        frame["id"] == 0 && frame["method"].is_null()
    });
    assert!(pong["result"].is_object(), "{pong}");
    let refused = leader.hear_that("the refusal", |frame| frame["id"] == "x");
    assert_eq!(refused["error"]["code"], -32601);
    leader.notify(STOP, json!({"reason": "terminated", "grace_ms": 0}));
    assert_eq!(leader.end(), Some(1));
}

#[test]
fn the_deadline_is_the_workers_own_too_and_moves_with_the_leaders_word() {
    let place = place(json!([runs("sleep 600"), slow(says("never"), MINUTES_MS)]));
    let start = Instant::now();
    let mut leader = FakeLeader::welcome(&place, 1_000);
    leader.notify(DEADLINE, json!({"remaining_ms": 3_000, "paused": false}));
    assert_eq!(leader.end(), Some(124));
    assert!(start.elapsed() >= Duration::from_secs(3));
    assert_eq!(leader.outcome()["stop_reason"], "deadline");
    assert_eq!(place.conversation().status, Status::TimedOut);
}

#[test]
fn a_model_call_that_ran_out_of_time_is_made_again_when_there_is_more() {
    let place = place(json!([slow(says("too late"), MINUTES_MS), finishes(true)]));
    let mut leader = FakeLeader::welcome(&place, 1_000);
    leader.hear(PROGRESS);
    leader.notify(
        DEADLINE,
        json!({"remaining_ms": MINUTES_MS, "paused": false}),
    );
    // The call was begun with the time there was, and gives up after that; the script answers
    // the next one with its next reply.
    assert_eq!(leader.end(), Some(0));
}

#[test]
fn a_wrap_up_is_told_to_the_model() {
    let place = place(json!([slow(runs("true"), 300), finishes(true)]));
    let mut leader = FakeLeader::welcome(&place, MINUTES_MS);
    leader.notify(WRAP_UP, json!({"seconds_left": 77}));
    assert_eq!(leader.end(), Some(0));
    let told = place
        .conversation()
        .messages
        .iter()
        .filter_map(|message| message.content.as_deref())
        .any(|text| text.contains("77 seconds"));
    assert!(told);
}

#[test]
fn a_leader_of_another_major_version_is_told_so() {
    let place = place(waiting());
    let mut leader = FakeLeader::start(&place);
    let hello = leader.hear("initialize");
    leader.send(&json!({"id": hello["id"], "result": {"protocol": "2.0"}}));
    assert_eq!(leader.end(), Some(1));
    let finished = leader.hear("agent/finished");
    assert_eq!(finished["params"]["stop_reason"], "protocol_error");
    let summary = finished["params"]["summary"].as_str().unwrap();
    assert!(
        summary.contains("2.0") && summary.contains("1.0"),
        "{summary}"
    );
}

#[test]
fn tools_that_the_leader_serves_are_called_over_the_channel() {
    let place = place(json!([
        calls(&[
            ("ask_leader", json!({"n": 1})),
            ("ask_leader", json!({"n": 2})),
            ("not_served", json!({})),
        ]),
        finishes(true),
    ]));
    let mut leader = FakeLeader::start(&place);
    let tools = json!([{"name": "ask_leader", "description": "asks",
                        "parameters": {"type": "object", "properties": {}}}]);
    leader.answer_initialize(&place, MINUTES_MS, &tools);
    let call = |n: u64| {
        move |frame: &Value| frame["method"] == TOOLS_CALL && frame["params"]["arguments"]["n"] == n
    };
    // Both are on their way before either is answered, and the later one is answered first.
    let first = leader.hear_that("the first call", call(1));
    let second = leader.hear_that("the second call", call(2));
    assert_eq!(first["params"]["name"], "ask_leader");
    leader.send(&json!({"id": second["id"], "result": {"success": true, "n": 2}}));
    leader.send(&json!({"id": first["id"], "error": {"code": -32602, "message": "no"}}));
    assert_eq!(leader.end(), Some(0));
    let conversation = place.conversation();
    assert_paired(&conversation);
    let results: Vec<&str> = conversation
        .messages
        .iter()
        .filter(|message| message.role == Role::Tool)
        .filter_map(|message| message.content.as_deref())
        .collect();
    assert!(results[0].contains("no"), "{}", results[0]);
    assert_eq!(results[1], r#"{"success":true,"n":2}"#);
    assert!(results[2].contains("unknown_tool"), "{}", results[2]);
}

#[test]
fn an_idle_agent_rests_until_it_is_spoken_to() {
    let place = Place::new(json!([says("round one"), says("round two")]));
    write_job(&place, |job| job.completion = Completion::Idle);
    // Its clock stands still while it rests, so that this much is enough for both rounds.
    let mut leader = FakeLeader::welcome(&place, 3_000);
    leader.hear_that("idle", |frame| frame["params"]["state"] == "idle");
    let one = leader.hear_that("round one", |frame| frame["params"]["text"] == "round one");
    assert_eq!(one["params"]["final"], true);
    leader.notify(DELIVER, json!({"messages": [message("m1", "go on")]}));
    leader.hear_that("round two", |frame| frame["params"]["text"] == "round two");
    leader.hear(ACK);
    leader.notify(
        STOP,
        json!({"reason": "conversation_closed", "grace_ms": 1000}),
    );
    assert_eq!(leader.end(), Some(1));
    assert_eq!(leader.outcome()["stop_reason"], "conversation_closed");
    let roles: Vec<Role> = place
        .conversation()
        .messages
        .iter()
        .map(|message| message.role)
        .collect();
    assert_eq!(
        roles,
        [
            Role::System,
            Role::User,
            Role::Assistant,
            Role::User,
            Role::Assistant
        ]
    );
}

#[test]
fn a_leader_that_does_not_read_delays_no_deadline() {
    let long = "x".repeat(200_000);
    let replies: Vec<Value> = (0..30)
        .map(|n| {
            json!({"text": long, "tool_calls": [
            {"name": "run_command", "arguments": {"command": format!("echo {n}")}}]})
        })
        .chain([slow(says("never"), MINUTES_MS)])
        .collect();
    let place = place(json!(replies));
    let mut command = place.worker();
    command
        .args(["--channel=stdio", "--job"])
        .arg(place.own_file("job.json"))
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::null());
    let mut worker = crate::harness::Running(command.spawn().unwrap());
    let job: Value =
        serde_json::from_slice(&std::fs::read(place.own_file("job.json")).unwrap()).unwrap();
    // The first call has the id 1; nothing of what the worker says is ever read.
    let welcome = json!({"id": 1, "result": {
        "protocol": "1.0", "tools": [], "remaining_ms": 3_000,
        "model": {"spec": job["model"], "api_key": null}}});
    crate::harness::wait_for("the first conversation", || {
        crate::harness::read_conversation(&place.own_file("conversations.json"))
    });
    use std::io::Write;
    writeln!(worker.0.stdin.as_mut().unwrap(), "{welcome}").unwrap();
    assert_eq!(worker.end().code(), Some(124));
    assert_eq!(place.conversation().status, Status::TimedOut);
}

#[test]
fn an_agent_that_waits_for_its_model_gives_signs_of_life_and_has_few_threads() {
    let place = place(waiting());
    let mut leader = FakeLeader::welcome(&place, MINUTES_MS);
    let sign = leader.hear_that("a sign of life", |frame| {
        frame["params"]["stats"]["runtime_seconds"]
            .as_u64()
            .is_some_and(|seconds| seconds >= 4)
    });
    let action = sign["params"]["last_action"].as_str().unwrap();
    assert!(
        action.contains("model") && action.contains(" s)"),
        "{action}"
    );
    assert_eq!(sign["params"]["state"], "running");
    let tasks = format!("/proc/{}/task", leader.worker.0.id());
    assert!(std::fs::read_dir(tasks).unwrap().count() <= 2);
    leader.notify(STOP, json!({"reason": "terminated", "grace_ms": 0}));
    assert_eq!(leader.end(), Some(1));
}
