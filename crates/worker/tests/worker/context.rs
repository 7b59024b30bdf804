//! A conversation that grows too long, and a budget of tokens.

use protocol::conversation::Role;
use protocol::status::StopReason;
use serde_json::{Value, json};

use crate::harness::{Place, assert_paired, calls, finishes, says, stderr};

fn reads(name: &str) -> Value {
    calls(&[("read_file", json!({"path": name}))])
}

fn too_long() -> Value {
    json!({"error": {"kind": "context_too_long", "message": "prompt is too long"}})
}

#[test]
fn a_refused_conversation_is_shortened_by_files_and_then_by_a_summary() {
    let place = Place::new(json!([
        reads("a.md"),
        reads("b.md"),
        too_long(),
        too_long(),
        {"text": "SUMMARY: read both files.", "usage": {"prompt": 40, "completion": 2}},
        finishes(true),
    ]));
    let long = "one line of a long file\n".repeat(100);
    std::fs::write(place.path("ws/a.md"), &long).unwrap();
    std::fs::write(place.path("ws/b.md"), "a short file\n").unwrap();
    let output = place.run().output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let conversation = place.conversation();
    assert_paired(&conversation);
    let roles: Vec<Role> = conversation.messages.iter().map(|m| m.role).collect();
    assert_eq!(
        roles,
        [
            Role::System,
            Role::User,
            Role::User,
            Role::Assistant,
            Role::Tool,
            Role::Assistant,
            Role::Tool,
        ],
        "{:?}",
        conversation.messages
    );
    let said = |at: usize| conversation.messages[at].content.clone().unwrap();
    assert!(said(1).contains("Write a greeting"), "the task stays");
    let summary = said(2);
    assert!(summary.contains("SUMMARY: read both files."), "{summary}");
    assert!(summary.contains("Sub-agent 1"), "who it is: {summary}");
    assert!(said(4).contains("a short file"), "the last turn stays");
    // The first result went to a file before, and the journal holds what was said all the same.
    let kept = std::fs::read_to_string(place.own_file("outputs/1.txt")).unwrap();
    assert!(kept.contains("one line of a long file"), "{kept}");
    let journal = String::from_utf8(place.journal()).unwrap();
    assert_eq!(journal.matches("\"kind\":\"replaced\"").count(), 2);
    assert_eq!(
        conversation.stats.turns, 3,
        "a summary is no turn of the conversation"
    );
    assert_eq!(conversation.stats.token_usage.total, 42);
}

#[test]
fn a_conversation_that_can_not_be_shortened_fails_with_the_providers_words() {
    let place = Place::new(json!([too_long()]));
    let output = place.run().output().unwrap();
    assert_eq!(output.status.code(), Some(4), "{}", stderr(&output));
    let result = place.conversation().result.unwrap();
    assert_eq!(result.stop_reason, Some(StopReason::ModelError));
    assert_eq!(result.summary, "prompt is too long");
}

#[test]
fn a_spent_budget_is_told_and_leaves_one_answer() {
    let costly = |text: &str| {
        let mut reply = says(text);
        reply["usage"] = json!({"prompt": 50, "completion": 0});
        reply
    };
    let place = Place::new(json!([costly("one"), costly("two"), finishes(true)]));
    let output = place
        .run()
        .env("MUSTER_MAX_TOTAL_TOKENS", "100")
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let told: Vec<String> = place
        .conversation()
        .messages
        .iter()
        .filter(|message| message.role == Role::User)
        .map(|message| message.content.clone().unwrap())
        .collect();
    assert!(
        told.last().unwrap().contains("budget of tokens is spent"),
        "{told:?}"
    );

    let place = Place::new(json!([costly("one"), costly("two"), costly("three")]));
    let output = place
        .run()
        .env("MUSTER_MAX_TOTAL_TOKENS", "100")
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(3), "{}", stderr(&output));
    let result = place.conversation().result.unwrap();
    assert_eq!(result.stop_reason, Some(StopReason::TokenLimit));
    assert_eq!(result.summary, "three");
}
