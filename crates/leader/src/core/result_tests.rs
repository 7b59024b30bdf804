//! Results as callers get them, at their limits.

use std::collections::BTreeMap;

use protocol::error::{ErrorCode, ToolError};
use protocol::limits::{RESULT_BYTES_MAX, RESULT_NAMES_BYTES_MAX, RESULT_NAMES_MAX};
use protocol::result::{AgentResult, SkippedFile, StillRunning, WaitResult};
use protocol::status::Status;

use super::*;
use crate::core::input::{Caller, Mode};
use crate::core::test_kit::{PlainTexts, order};

fn agent() -> Agent {
    Agent::new(order(1, Mode::Blocking), Caller(0), 0)
}

fn plain() -> AgentResult {
    standing(&agent(), Status::Completed, 0, &PlainTexts)
}

fn json(result: &AgentResult) -> String {
    serde_json::to_string(result).unwrap()
}

#[test]
fn a_small_result_is_left_as_it_is() {
    let result = AgentResult {
        deliverables_files: vec!["a.md".to_owned()],
        ..plain()
    };
    assert_eq!(for_model(result.clone()), result);
}

#[test]
fn a_result_for_a_model_is_never_larger_than_its_limit() {
    // Escapes make JSON longer than its text, up to six times.
    for text in ["x", "\u{1}", "固", "\"", "🌍"] {
        let result = AgentResult {
            result_summary: text.repeat(100_000),
            deliverables_files: (0..RESULT_NAMES_MAX)
                .map(|n| format!("{n}/{}", text.repeat(60)))
                .collect(),
            deliverables_skipped: (0..500)
                .map(|n| SkippedFile {
                    name: format!("{n}{text}"),
                    why: "fifo".to_owned(),
                })
                .collect(),
            warnings: vec![text.repeat(5_000), "second".to_owned()],
            error: Some(
                ToolError::new(ErrorCode::AgentFailed, text.repeat(9_000)).hint(text.repeat(9_000)),
            ),
            confinement: serde_json::json!({"rung": "pidns", "gaps": vec!["gap"; 1_000]}),
            ..plain()
        };
        let cut = for_model(result);
        assert!(
            json(&cut).len() <= RESULT_BYTES_MAX,
            "{} of {text:?}",
            json(&cut).len()
        );
        assert_eq!(
            cut.confinement,
            serde_json::json!({"rung": "pidns", "gaps": ["1000 in the event log of the run"]})
        );
        assert_eq!(
            (cut.deliverables_truncated, cut.deliverables_count),
            (true, Some(RESULT_NAMES_MAX as u64))
        );
        assert!(
            cut.result_summary
                .contains("all of it is in out/1/.subagent/conversations.json")
        );
        assert!(cut.error.is_some());
    }
}

#[test]
fn names_stop_at_their_limit_and_the_count_is_true() {
    let name = "n".repeat(61);
    // Quotes and a comma make 64 bytes of each.
    let exact = RESULT_NAMES_BYTES_MAX / 64;
    let with = |count: usize| AgentResult {
        deliverables_files: vec![name.clone(); count],
        ..plain()
    };
    let fits = for_model(with(exact));
    assert_eq!(
        (fits.deliverables_files.len(), fits.deliverables_truncated),
        (exact, false)
    );
    assert_eq!(fits.deliverables_count, None);
    let over = for_model(with(exact + 1));
    assert_eq!(
        (over.deliverables_files.len(), over.deliverables_truncated),
        (exact, true)
    );
    assert_eq!(over.deliverables_count, Some(exact as u64 + 1));
    // What was cut before keeps the count of all there is.
    let listed = AgentResult {
        deliverables_truncated: true,
        deliverables_count: Some(100_000),
        ..with(exact + 1)
    };
    assert_eq!(for_model(listed).deliverables_count, Some(100_000));
}

fn many_ended(count: u32) -> WaitResult {
    WaitResult {
        success: true,
        timed_out: false,
        agents: (1..=count)
            .map(|number| AgentResult {
                display_name: format!("Sub-agent {number}"),
                summary: "固".repeat(200),
                result_summary: "long ".repeat(5_000),
                deliverables_files: vec!["some/name".to_owned(); 900],
                ..plain()
            })
            .collect(),
        also_ended: BTreeMap::new(),
        running: vec![
            StillRunning {
                agent_id: protocol::ids::AgentId::FIRST,
                role_id: None,
                display_name: "x".repeat(70),
                status: Status::Running,
            };
            usize::try_from(count).unwrap()
        ],
        more_running: 0,
    }
}

#[test]
fn the_agents_of_one_wait_share_one_limit_and_no_end_goes_untold() {
    for count in [0, 1, 2, 5, 6, 20, 99] {
        let cut = wait_for_model(many_ended(count));
        let bytes = serde_json::to_string(&cut).unwrap().len();
        assert!(bytes <= RESULT_BYTES_MAX, "{bytes} of {count}");
        let mut told: Vec<&str> = cut
            .agents
            .iter()
            .map(|result| result.display_name.as_str())
            .collect();
        told.extend(cut.also_ended.values().flatten().map(String::as_str));
        let expected: Vec<String> = (1..=count)
            .map(|number| format!("Sub-agent {number}"))
            .collect();
        assert_eq!(told, expected);
        let running = cut.running.len() as u64 + cut.more_running;
        assert_eq!(running, u64::from(count));
        assert!(count == 0 || !cut.agents.is_empty());
        for result in &cut.agents {
            assert_eq!(result.deliverables_count, Some(900));
        }
    }
    let one = wait_for_model(many_ended(1));
    assert!(
        one.agents[0].result_summary.len() > 3_000,
        "one agent has the room of all"
    );
}

#[test]
fn a_terminate_tells_how_it_really_ended() {
    let ended = AgentResult {
        status: Status::Completed,
        deliverables_files: vec!["f".to_owned(); 2_000],
        ..plain()
    };
    let cut = terminated_for_model(terminated(&ended));
    assert_eq!((cut.success, cut.status), (true, Status::Completed));
    assert_eq!(
        (cut.deliverables_truncated, cut.deliverables_count),
        (true, Some(2_000))
    );
}
