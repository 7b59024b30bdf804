use proptest::prelude::*;

use super::*;

fn ended(assembler: Assembler, ending: Ending) -> Result<ModelReply, NoAnswer> {
    assembler.end(ending, &mut CallIds::of(&[]))
}

fn streamed(events: &[Value]) -> Assembler {
    let mut assembler = Assembler::default();
    for event in events {
        assembler.take_part(event);
    }
    assembler
}

fn stop(reason: &str) -> Value {
    json!({"type": "message_delta", "delta": {"stop_reason": reason},
        "usage": {"output_tokens": 9}})
}

fn begin(index: u64, block: Value) -> Value {
    json!({"type": "content_block_start", "index": index, "content_block": block})
}

fn part(index: u64, delta: Value) -> Value {
    json!({"type": "content_block_delta", "index": index, "delta": delta})
}

fn call(index: u64, input: &[&str]) -> Vec<Value> {
    let block = json!({"type": "tool_use", "id": format!("t{index}"), "name": "w", "input": {}});
    let mut events = vec![begin(index, block)];
    for text in input {
        let delta = json!({"type": "input_json_delta", "partial_json": text});
        events.push(part(index, delta));
    }
    events
}

#[test]
fn each_reason_for_an_end_has_one_meaning() {
    let whole = |reason: Option<&str>| {
        let mut assembler = Assembler::default();
        assembler.take_whole(&json!({
            "content": [
                {"type": "text", "text": "hi"},
                {"type": "tool_use", "id": "t1", "name": "w", "input": {"a": 1}},
            ],
            "stop_reason": reason,
            "usage": {"input_tokens": 1, "output_tokens": 2},
        }));
        ended(assembler, Ending::Declared).map(|reply| (reply.finish, reply.tool_calls.len()))
    };
    for (reason, wanted) in [
        (Some("end_turn"), Ok((FinishKind::Done, 1))),
        (Some("tool_use"), Ok((FinishKind::Done, 1))),
        (Some("stop_sequence"), Ok((FinishKind::Done, 1))),
        (Some("of_a_later_day"), Ok((FinishKind::Done, 1))),
        (Some("max_tokens"), Ok((FinishKind::Length, 0))),
        // A call of ours is to be answered before the server goes on.
        (Some("pause_turn"), Ok((FinishKind::Done, 1))),
        (None, Ok((FinishKind::Done, 1))),
        (
            Some("refusal"),
            Err(NoAnswer::Declined("refusal".to_owned())),
        ),
    ] {
        assert_eq!(whole(reason), wanted, "{reason:?}");
    }
    let paused = streamed(&[
        begin(
            0,
            json!({"type": "server_tool_use", "id": "s", "name": "web_search"}),
        ),
        stop("pause_turn"),
    ]);
    let reply = ended(paused, Ending::Declared).unwrap();
    assert_eq!(reply.finish, FinishKind::Paused);
    assert_eq!(reply.provider_blocks.len(), 1);
}

#[test]
fn an_answer_that_was_cut_hands_nothing_half_out() {
    let half = [call(0, &["{\"a\":1}"]), call(1, &["{\"b\": \"x"])].concat();
    assert_eq!(
        ended(streamed(&half), Ending::Silent),
        Err(NoAnswer::Torn),
        "the stream just ended"
    );
    assert_eq!(
        ended(streamed(&half), Ending::Declared),
        Err(NoAnswer::Torn)
    );
    let length = [half.clone(), vec![stop("max_tokens")]].concat();
    let reply = ended(streamed(&length), Ending::Silent).unwrap();
    assert_eq!(reply.tool_calls, [ToolCall::new("t0", "w", "{\"a\":1}")]);
    // With a reason the half is the model's own mistake, and it is told.
    let own = [half, vec![stop("tool_use")]].concat();
    let reply = ended(streamed(&own), Ending::Silent).unwrap();
    assert_eq!(reply.tool_calls[1].function.arguments, "{\"b\": \"x");
    assert_eq!(
        ended(Assembler::default(), Ending::Declared),
        Err(NoAnswer::Nothing)
    );
    // A thought that was cut off has no signature and would be refused.
    let thought = streamed(&[
        begin(0, json!({"type": "thinking", "thinking": ""})),
        part(0, json!({"type": "thinking_delta", "thinking": "hm"})),
        stop("max_tokens"),
    ]);
    let reply = ended(thought, Ending::Silent).unwrap();
    assert_eq!(reply.provider_blocks, Vec::<Value>::new());
    assert_eq!(reply.reasoning_content.as_deref(), Some("hm"));
}

#[test]
fn an_error_is_told_from_a_part_of_an_answer() {
    let code = |document: &Value| Assembler::refusal(document).map(|refusal| refusal.code);
    let error = json!({"type": "error", "error": {"type": "overloaded_error", "message": "m"}});
    assert_eq!(code(&error).as_deref(), Some("overloaded_error"));
    assert_eq!(
        code(&json!({"message": "no such path"})).as_deref(),
        Some("")
    );
    assert_eq!(code(&json!({"type": "message_start", "message": {}})), None);
    assert_eq!(code(&json!({"type": "ping"})), None);
}

fn odd_event() -> impl Strategy<Value = Value> {
    let kinds = prop::sample::select(vec![
        "message_start",
        "content_block_start",
        "content_block_delta",
        "content_block_stop",
        "message_delta",
        "ping",
    ]);
    let blocks = prop::sample::select(vec![
        json!({"type": "text", "text": "a"}),
        json!({"type": "tool_use", "id": "t", "name": "w"}),
        json!({"type": "tool_use", "id": null, "input": [1]}),
        json!({"type": "thinking"}),
        json!({"type": 5}),
        json!("x"),
    ]);
    let deltas = prop::sample::select(vec![
        json!({"type": "text_delta", "text": "b"}),
        json!({"type": "input_json_delta", "partial_json": "{\"a\":"}),
        json!({"type": "input_json_delta", "partial_json": "1}"}),
        json!({"type": "signature_delta", "signature": "s"}),
        json!({"type": "citations_delta", "citation": {}}),
        json!({"stop_reason": "max_tokens"}),
        json!({"stop_reason": "tool_use"}),
        json!(null),
    ]);
    (kinds, prop::option::of(0_u64..3), blocks, deltas).prop_map(|(kind, index, block, delta)| {
        json!({"type": kind, "index": index, "content_block": block, "delta": delta})
    })
}

proptest! {
    #[test]
    fn whatever_comes_the_calls_have_names_and_ids_of_their_own(
        events in prop::collection::vec(odd_event(), 0..12),
        declared in any::<bool>(),
    ) {
        let ending = if declared { Ending::Declared } else { Ending::Silent };
        let Ok(reply) = ended(streamed(&events), ending) else {
            return Ok(());
        };
        let mut ids = std::collections::HashSet::new();
        for call in reply.tool_calls {
            prop_assert!(!call.function.name.is_empty());
            prop_assert!(ids.insert(call.id));
        }
    }

    #[test]
    fn however_parameters_are_cut_they_come_together(
        text in any::<String>(),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..6),
    ) {
        let input = json!({"content": text}).to_string();
        let mut at: Vec<usize> = cuts
            .iter()
            .map(|cut| input.floor_char_boundary(cut.index(input.len() + 1)))
            .collect();
        at.extend([0, input.len()]);
        at.sort_unstable();
        let parts: Vec<&str> = at.windows(2).map(|ends| &input[ends[0]..ends[1]]).collect();
        let mut events = call(0, &parts);
        events.push(stop("tool_use"));
        let reply = ended(streamed(&events), Ending::Declared).unwrap();
        prop_assert_eq!(reply.tool_calls, vec![ToolCall::new("t0", "w", input)]);
    }
}
