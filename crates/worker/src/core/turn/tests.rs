use proptest::prelude::*;
use protocol::conversation::Role;
use protocol::limits::{LOOP_STOP_COUNT, MAX_TURNS_DEFAULT};
use protocol::stats::TokenUsage;
use protocol::status::Language;
use protocol::text::BackgroundState;

use super::*;
use crate::core::loop_guard::fingerprint;
use crate::core::reply::ModelErrorKind;
use crate::core::tally::Prices;
use crate::tools::Tally;

const EARLY: TimeSpent = TimeSpent {
    elapsed_ms: 0,
    remaining_ms: 600_000,
};

fn prompts() -> Prompts {
    Prompts::builtin(Language::En)
}

fn rules(completion: Completion) -> Rules {
    Rules {
        completion,
        max_turns: MAX_TURNS_DEFAULT,
        max_total_tokens: None,
        context_tokens: None,
        prices: Prices::default(),
    }
}

/// A machine with everything that it said to do since the start.
struct Run {
    machine: Machine,
    messages: Vec<Message>,
    asked: u32,
    outcome: Option<Outcome>,
    acknowledged: Vec<String>,
}

impl Run {
    fn with(rules: Rules) -> (Self, Vec<Action>) {
        let policy = Policy::new(
            [
                "read_file",
                "read_mediafile",
                "search_workspace",
                "write_file",
                "run_command",
                "finish_task",
            ],
            [],
        );
        let mut run = Run {
            machine: Machine::new(rules, policy, prompts(), "Sub-agent 1".into()),
            messages: Vec::new(),
            asked: 0,
            outcome: None,
            acknowledged: Vec::new(),
        };
        let first = vec![Message::system("you"), Message::user("task")];
        let next = run.step(Input::Begin(first), EARLY);
        (run, next)
    }

    fn new(completion: Completion) -> (Self, Vec<Action>) {
        Run::with(rules(completion))
    }

    /// Steps, books what is to be booked, and gives the rest.
    fn step(&mut self, input: Input, time: TimeSpent) -> Vec<Action> {
        let mut next = Vec::new();
        for action in self.machine.step(input, time) {
            match action {
                Action::Append {
                    message,
                    message_ids,
                } => {
                    self.messages.push(message);
                    self.acknowledged.extend(message_ids);
                }
                Action::Acknowledge(ids) => self.acknowledged.extend(ids),
                Action::End(outcome) => {
                    assert_eq!(self.outcome.replace(outcome), None, "two ends");
                }
                Action::Ask => {
                    self.asked += 1;
                    next.push(Action::Ask);
                }
                action @ (Action::Run(_) | Action::Compact(_) | Action::Rest { .. }) => {
                    next.push(action)
                }
            }
        }
        next
    }

    fn says(&mut self, text: &str) -> Vec<Action> {
        self.step(Input::Reply(reply(Some(text), Vec::new())), EARLY)
    }

    fn calls(&mut self, calls: &[(&str, &str, &str)]) -> Vec<Action> {
        self.step(Input::Reply(reply(None, make(calls))), EARLY)
    }

    /// Answers the calls of an action with a text for each.
    fn answers(&mut self, contents: &[&str]) -> Vec<Action> {
        let results = contents.iter().map(|content| good(content)).collect();
        self.step(Input::Results(results), EARLY)
    }

    fn tail(&self, count: usize) -> &[Message] {
        &self.messages[self.messages.len() - count..]
    }
}

fn make(calls: &[(&str, &str, &str)]) -> Vec<ToolCall> {
    calls
        .iter()
        .map(|(id, name, arguments)| ToolCall::new(*id, *name, *arguments))
        .collect()
}

fn reply(content: Option<&str>, tool_calls: Vec<ToolCall>) -> ModelReply {
    ModelReply {
        content: content.map(str::to_owned),
        reasoning_content: None,
        provider_blocks: Vec::new(),
        tool_calls,
        finish: FinishKind::Done,
        usage: None,
    }
}

fn good(content: &str) -> CallResult {
    CallResult {
        content: content.to_owned(),
        succeeded: true,
        tally: Tally::default(),
        print: fingerprint("tool", "{}", content),
    }
}

fn failed(summary: &str, reason: StopReason) -> Option<Outcome> {
    Some(Outcome {
        success: false,
        summary: summary.into(),
        stop_reason: Some(reason),
    })
}

fn succeeded(summary: &str) -> Option<Outcome> {
    Some(Outcome {
        success: true,
        summary: summary.into(),
        stop_reason: None,
    })
}

fn finish_arguments(success: bool, summary: &str) -> String {
    serde_json::json!({"success": success, "summary": summary}).to_string()
}

#[test]
fn a_report_ends_the_run() {
    let (mut run, next) = Run::new(Completion::FinishTask);
    assert_eq!(next, [Action::Ask]);
    let arguments = finish_arguments(true, "all done");
    let calls = make(&[("c1", "finish_task", &arguments)]);
    assert_eq!(
        run.calls(&[("c1", "finish_task", &arguments)]),
        [Action::Run(calls)]
    );
    assert_eq!(run.answers(&["bye"]), []);
    assert_eq!(run.outcome, succeeded("all done"));
    assert_eq!(run.tail(1), [Message::tool("c1", "bye")]);
    assert_eq!(run.step(Input::Stop(StopReason::Deadline), EARLY), []);
    assert_eq!(run.machine.stats(EARLY).turns, 1);
}

#[test]
fn a_report_of_failure_is_no_success() {
    let (mut run, _) = Run::new(Completion::FinishTask);
    run.calls(&[("c1", "finish_task", &finish_arguments(false, "no disk"))]);
    run.answers(&["bye"]);
    assert_eq!(run.outcome, failed("no disk", StopReason::ReportedFailure));
}

#[test]
fn a_report_that_the_tool_refused_is_none() {
    let (mut run, _) = Run::new(Completion::FinishTask);
    run.calls(&[("c1", "finish_task", "{}")]);
    let refused = CallResult {
        succeeded: false,
        ..good("missing parameter")
    };
    let next = run.step(Input::Results(vec![refused]), EARLY);
    assert_eq!(next, [Action::Ask]);
    assert_eq!(run.outcome, None);
}

#[test]
fn a_model_that_never_reports_is_reminded_three_times() {
    // "I am done." for ever once counted as completed with nothing.
    let (mut run, _) = Run::new(Completion::FinishTask);
    for n in 0..3 {
        assert_eq!(run.says(&format!("I am done {n}.")), [Action::Ask]);
        assert_eq!(run.tail(1), [Message::user(prompts().reminder())]);
    }
    assert_eq!(run.says("I am done."), []);
    assert_eq!(run.asked, 4);
    assert_eq!(run.outcome, failed("I am done.", StopReason::NoFinish));
}

#[test]
fn a_call_between_starts_the_reminders_anew() {
    let (mut run, _) = Run::new(Completion::FinishTask);
    for n in 0..5 {
        run.says("done");
        run.says("done");
        run.calls(&[("r", "read_file", "{}")]);
        run.answers(&[&format!("text {n}")]);
    }
    assert_eq!(run.outcome, None);
}

#[test]
fn a_call_written_as_text_is_no_report() {
    let (mut run, _) = Run::new(Completion::FinishTask);
    let text = r#"<tool_call>{"name":"finish_task","arguments":{"success":true,"summary":"x"}}</tool_call>"#;
    for _ in 0..4 {
        run.says(text);
        run.says(&format!("```\n{text}\n```"));
    }
    let fenced = format!("```\n{text}\n```");
    assert_eq!(run.outcome, failed(&fenced, StopReason::NoFinish));
    assert_eq!(run.asked, 4);
}

#[test]
fn completions_without_a_report_end_or_rest_with_the_text() {
    let (mut run, _) = Run::new(Completion::FinalText);
    assert_eq!(run.says("the answer"), []);
    assert_eq!(run.outcome, succeeded("the answer"));

    let (mut run, _) = Run::new(Completion::Idle);
    assert_eq!(
        run.says("round one"),
        [Action::Rest {
            text: "round one".into()
        }]
    );
    assert!(run.machine.is_resting());
    let next = run.step(Input::Delivered(vec![message("m1", "more")]), EARLY);
    assert_eq!(next, [Action::Ask]);
    assert_eq!(run.acknowledged, ["m1"]);
    run.says("round two");
    run.step(Input::Stop(StopReason::ConversationClosed), EARLY);
    assert_eq!(
        run.outcome,
        failed("round two", StopReason::ConversationClosed)
    );
}

#[test]
fn looks_run_side_by_side_and_changes_alone_in_order() {
    let (mut run, _) = Run::new(Completion::FinishTask);
    let calls = [
        ("a", "read_file", "{}"),
        ("b", "search_workspace", "{}"),
        ("c", "write_file", "{}"),
        ("d", "read_file", "{}"),
    ];
    let next = run.calls(&calls);
    assert_eq!(next, [Action::Run(make(&calls[..2]))]);
    assert_eq!(run.answers(&["A", "B"]), [Action::Run(make(&calls[2..3]))]);
    assert_eq!(run.answers(&["C"]), [Action::Run(make(&calls[3..]))]);
    assert_eq!(run.answers(&["D"]), [Action::Ask]);
    let expected: Vec<Message> = [("a", "A"), ("b", "B"), ("c", "C"), ("d", "D")]
        .map(|(id, content)| Message::tool(id, content))
        .into();
    assert_eq!(run.tail(4), expected);
}

#[test]
fn a_group_is_bounded() {
    let (mut run, _) = Run::new(Completion::FinishTask);
    let ids: Vec<String> = (0..=CALLS_SIDE_BY_SIDE_MAX)
        .map(|n| n.to_string())
        .collect();
    let calls: Vec<(&str, &str, &str)> = ids
        .iter()
        .map(|id| (id.as_str(), "read_file", "{}"))
        .collect();
    let Some(Action::Run(first)) = run.calls(&calls).pop() else {
        panic!("nothing to run");
    };
    assert_eq!(first.len(), CALLS_SIDE_BY_SIDE_MAX);
    let results = vec!["x"; CALLS_SIDE_BY_SIDE_MAX];
    let Some(Action::Run(second)) = run.answers(&results).pop() else {
        panic!("nothing more to run");
    };
    assert_eq!(second.len(), 1);
}

#[test]
fn what_follows_a_report_in_its_turn_is_answered_but_not_run() {
    let (mut run, _) = Run::new(Completion::FinishTask);
    let yes = finish_arguments(true, "first");
    let no = finish_arguments(false, "second");
    run.calls(&[
        ("a", "write_file", "{}"),
        ("b", "finish_task", &yes),
        ("c", "write_file", "{}"),
        ("d", "finish_task", &no),
    ]);
    run.answers(&["A"]);
    assert_eq!(run.answers(&["B"]), []);
    assert_eq!(run.outcome, succeeded("first"));
    let stub = |why: String| {
        ToolError::new(ErrorCode::Cancelled, why)
            .to_result()
            .to_string()
    };
    assert_eq!(
        run.tail(4),
        [
            Message::tool("a", "A"),
            Message::tool("b", "B"),
            Message::tool("c", stub(prompts().cancelled_after_finish())),
            Message::tool("d", stub(prompts().finish_ignored())),
        ]
    );
}

#[test]
fn a_stop_answers_every_open_call() {
    // One call without an answer made a provider refuse every later request of that history.
    let (mut run, _) = Run::new(Completion::FinishTask);
    run.calls(&[
        ("a", "run_command", "{}"),
        ("b", "write_file", "{}"),
        ("c", "no_such_tool", "{}"),
    ]);
    run.step(Input::Stop(StopReason::Terminated), EARLY);
    assert_eq!(run.outcome, failed("", StopReason::Terminated));
    let ids: Vec<Option<&str>> = run
        .tail(3)
        .iter()
        .map(|message| message.tool_call_id.as_deref())
        .collect();
    assert_eq!(ids, [Some("a"), Some("b"), Some("c")]);
    assert_eq!(run.answers(&["late"]), []);
    assert_eq!(run.tail(1)[0].tool_call_id.as_deref(), Some("c"));
}

#[test]
fn a_tool_that_does_not_exist_is_answered_and_its_loop_ends() {
    let (mut run, _) = Run::new(Completion::FinishTask);
    let mut turns = 0;
    while run.outcome.is_none() {
        turns += 1;
        run.calls(&[("r", "read", r#"{"path":"x"}"#)]);
    }
    assert_eq!(turns, LOOP_STOP_COUNT);
    assert_eq!(run.outcome, failed("", StopReason::LoopDetected));
    let warned = run
        .messages
        .iter()
        .filter(|message| {
            message.content.as_deref() == Some(prompts().loop_warning("read", 3).as_str())
        })
        .count();
    assert_eq!(warned, 1);
    let answer = run.tail(1)[0].content.clone().unwrap();
    for real in ["read_file", "write_file", "finish_task"] {
        assert!(answer.contains(real), "{answer}");
    }
}

#[test]
fn cut_answers_run_nothing_and_are_bounded() {
    let (mut run, _) = Run::new(Completion::FinishTask);
    let cut = || ModelReply {
        finish: FinishKind::Length,
        ..reply(Some("so far"), make(&[("a", "write_file", "{\"to")]))
    };
    for _ in 0..OUTPUT_LIMIT_RETRIES_MAX {
        assert_eq!(run.step(Input::Reply(cut()), EARLY), [Action::Ask]);
        assert_eq!(
            run.tail(2),
            [
                Message::assistant(Some("so far".into()), Vec::new()),
                Message::user(prompts().output_cut()),
            ]
        );
    }
    assert_eq!(run.step(Input::Reply(cut()), EARLY), []);
    assert_eq!(run.outcome, failed("so far", StopReason::OutputLimit));
}

#[test]
fn turns_and_tokens_are_bounded() {
    let bounded = Rules {
        max_turns: 3,
        ..rules(Completion::FinishTask)
    };
    let (mut run, _) = Run::with(bounded);
    for n in 0..3 {
        run.calls(&[("r", "read_file", "{}")]);
        run.answers(&[&n.to_string()]);
    }
    assert_eq!(run.asked, 3);
    assert_eq!(run.outcome, failed("", StopReason::TurnLimit));

    let bounded = Rules {
        max_total_tokens: Some(10),
        ..rules(Completion::FinishTask)
    };
    let (mut run, _) = Run::with(bounded);
    let costly = |total| ModelReply {
        usage: Some(TokenUsage {
            total,
            ..TokenUsage::default()
        }),
        ..reply(Some("hm"), Vec::new())
    };
    assert_eq!(run.step(Input::Reply(costly(7)), EARLY), [Action::Ask]);
    assert_eq!(run.tail(1), [Message::user(prompts().reminder())]);
    assert_eq!(run.step(Input::Reply(costly(1)), EARLY), [Action::Ask]);
    assert_eq!(run.tail(1), [Message::user(prompts().token_warning(2))]);
    assert_eq!(run.step(Input::Reply(costly(2)), EARLY), [Action::Ask]);
    assert_eq!(run.tail(1), [Message::user(prompts().tokens_spent())]);
    run.step(
        Input::Reply(ModelReply {
            tool_calls: make(&[("r", "read_file", "{}")]),
            ..costly(1)
        }),
        EARLY,
    );
    assert_eq!(run.answers(&["1"]), []);
    assert_eq!(run.outcome, failed("hm", StopReason::TokenLimit));
}

fn refusal(kind: ModelErrorKind) -> ModelError {
    ModelError {
        kind,
        message: "the provider's words".into(),
        requests: 1,
    }
}

#[test]
fn a_refused_conversation_is_shortened_twice_and_then_the_refusal_counts() {
    // Overflow, compaction, overflow: an agent once tried 408 times in silence.
    let too_long = || Input::ModelFailed(refusal(ModelErrorKind::ContextTooLong));
    let shorter = || Input::Compacted(Compacted::Shorter { usage: None });
    let (mut run, _) = Run::new(Completion::FinishTask);
    let all_results = [Action::Compact(Step::AllResults)];
    let summary = [Action::Compact(Step::Summary)];
    assert_eq!(run.step(too_long(), EARLY), all_results);
    assert_eq!(run.step(shorter(), EARLY), [Action::Ask]);
    assert_eq!(run.step(too_long(), EARLY), summary);
    assert_eq!(run.step(shorter(), EARLY), [Action::Ask]);
    assert_eq!(run.step(too_long(), EARLY), []);
    let words = failed("the provider's words", StopReason::ModelError);
    assert_eq!(run.outcome, words);

    // Where nothing can be taken away, the next step follows at once.
    let nothing = || Input::Compacted(Compacted::Nothing);
    let (mut run, _) = Run::new(Completion::FinishTask);
    run.step(too_long(), EARLY);
    assert_eq!(run.step(nothing(), EARLY), summary);
    assert_eq!(run.step(nothing(), EARLY), []);
    assert_eq!(run.outcome, words);

    let (mut run, _) = Run::new(Completion::FinishTask);
    run.step(too_long(), EARLY);
    run.step(nothing(), EARLY);
    let error = refusal(ModelErrorKind::Server);
    assert_eq!(
        run.step(Input::Compacted(Compacted::Failed(error)), EARLY),
        []
    );
    assert_eq!(run.outcome, words);
}

#[test]
fn a_full_context_is_shortened_before_the_next_question() {
    let (mut run, _) = Run::with(Rules {
        context_tokens: Some(100),
        ..rules(Completion::FinishTask)
    });
    let used = |prompt| ModelReply {
        usage: Some(TokenUsage {
            prompt,
            total: prompt,
            ..TokenUsage::default()
        }),
        ..reply(Some("hm"), make(&[("r", "read_file", "{}")]))
    };
    run.step(Input::Reply(used(79)), EARLY);
    assert_eq!(run.answers(&["1"]), [Action::Ask]);
    run.step(Input::Reply(used(80)), EARLY);
    assert_eq!(run.answers(&["2"]), [Action::Compact(Step::OldResults)]);
    // What a summary costs counts, and is no turn. When it fails the model may still take it.
    let nothing = Input::Compacted(Compacted::Nothing);
    assert_eq!(run.step(nothing, EARLY), [Action::Compact(Step::Summary)]);
    let error = refusal(ModelErrorKind::Server);
    let failed = Input::Compacted(Compacted::Failed(error));
    assert_eq!(run.step(failed, EARLY), [Action::Ask]);
    run.step(Input::Stop(StopReason::Terminated), EARLY);

    let (mut run, _) = Run::with(Rules {
        context_tokens: Some(100),
        ..rules(Completion::FinishTask)
    });
    run.step(Input::Reply(used(90)), EARLY);
    run.answers(&["1"]);
    let usage = used(50).usage;
    let shorter = Input::Compacted(Compacted::Shorter { usage });
    assert_eq!(run.step(shorter, EARLY), [Action::Ask]);
    let stats = run.machine.stats(EARLY);
    assert_eq!((stats.turns, stats.token_usage.prompt), (1, 140));
}

#[test]
fn output_that_no_server_can_read_is_told_to_the_model_twice() {
    let unreadable = || Input::ModelFailed(refusal(ModelErrorKind::UnreadableOutput));
    let (mut run, _) = Run::new(Completion::FinishTask);
    for _ in 0..2 {
        for _ in 0..2 {
            assert_eq!(run.step(unreadable(), EARLY), [Action::Ask]);
            assert_eq!(run.tail(1), [Message::user(prompts().output_unreadable())]);
        }
        // An answer in between begins the count anew.
        run.says("hm");
    }
    run.step(unreadable(), EARLY);
    run.step(unreadable(), EARLY);
    assert_eq!(run.step(unreadable(), EARLY), []);
    assert_eq!(
        run.outcome,
        failed("the provider's words\n\nhm", StopReason::ModelError)
    );
}

#[test]
fn the_time_warning_comes_once_and_names_what_is_left() {
    let (mut run, _) = Run::new(Completion::FinishTask);
    let late = TimeSpent {
        elapsed_ms: 480_000,
        remaining_ms: 120_000,
    };
    run.step(
        Input::Reply(reply(None, make(&[("r", "read_file", "{}")]))),
        late,
    );
    run.step(Input::Results(vec![good("1")]), late);
    assert_eq!(run.tail(1), [Message::user(prompts().time_warning(120))]);
    run.step(
        Input::Reply(reply(None, make(&[("r", "read_file", "{}")]))),
        late,
    );
    run.step(Input::Results(vec![good("2")]), late);
    assert_eq!(run.tail(1), [Message::tool("r", "2")]);
}

#[test]
fn a_wrap_up_stands_at_the_next_boundary() {
    let (mut run, _) = Run::new(Completion::FinishTask);
    run.step(Input::WrapUp { seconds_left: 30 }, EARLY);
    run.calls(&[("r", "read_file", "{}")]);
    run.answers(&["1"]);
    assert_eq!(run.tail(1), [Message::user(prompts().wrap_up(30))]);
}

fn message(id: &str, content: &str) -> DeliveredMessage {
    DeliveredMessage {
        id: id.into(),
        kind: "message".into(),
        from: "Team Leader".into(),
        content: content.into(),
    }
}

#[test]
fn messages_wait_for_the_boundary_and_a_second_delivery_adds_nothing() {
    let (mut run, _) = Run::new(Completion::FinishTask);
    run.calls(&[("r", "read_file", "{}")]);
    run.step(
        Input::Delivered(vec![message("m1", "one"), message("m2", "two")]),
        EARLY,
    );
    run.step(Input::Delivered(vec![message("m1", "one")]), EARLY);
    assert_eq!(run.acknowledged, Vec::<String>::new());
    run.answers(&["text"]);
    assert_eq!(run.acknowledged, ["m1", "m2"]);
    let roles: Vec<Role> = run.tail(3).iter().map(|message| message.role).collect();
    assert_eq!(roles, [Role::Tool, Role::User, Role::User]);
    let length = run.messages.len();
    run.step(Input::Delivered(vec![message("m1", "one")]), EARLY);
    assert_eq!(run.acknowledged, ["m1", "m2", "m1"]);
    assert_eq!(run.messages.len(), length);
}

#[test]
fn messages_beyond_the_bound_are_not_acknowledged() {
    let (mut run, _) = Run::new(Completion::FinishTask);
    let many: Vec<DeliveredMessage> = (0..=MESSAGES_WAITING_MAX)
        .map(|n| message(&format!("m{n}"), "x"))
        .collect();
    let last = many.last().cloned().unwrap();
    run.step(Input::Delivered(many), EARLY);
    run.calls(&[("r", "read_file", "{}")]);
    run.answers(&["text"]);
    assert_eq!(run.acknowledged.len(), MESSAGES_WAITING_MAX);
    assert!(!run.acknowledged.contains(&last.id));
    // Its sender delivers it again, and now there is room.
    run.step(Input::Delivered(vec![last.clone()]), EARLY);
    run.calls(&[("r", "read_file", "{}")]);
    run.answers(&["other text"]);
    assert_eq!(run.acknowledged.last(), Some(&last.id));
}

#[test]
fn a_message_keeps_an_agent_from_ending_with_its_text() {
    let (mut run, _) = Run::new(Completion::FinalText);
    run.step(Input::Delivered(vec![message("m1", "one more")]), EARLY);
    assert_eq!(run.says("done"), [Action::Ask]);
    assert_eq!(run.acknowledged, ["m1"]);
    assert_eq!(run.says("done with that too"), []);
    assert_eq!(run.outcome, succeeded("done with that too"));
}

fn background(id: &str) -> BackgroundResult {
    BackgroundResult {
        command_id: id.into(),
        command: "make".into(),
        state: BackgroundState::Completed,
        result: "[exit code 0; 0 bytes of output]".into(),
    }
}

#[test]
fn ended_background_commands_stand_in_one_message_at_the_next_boundary() {
    let (mut run, _) = Run::new(Completion::FinalText);
    run.calls(&[("r", "read_file", "{}")]);
    run.step(Input::Background(vec![background("bg_1")]), EARLY);
    run.step(Input::Background(vec![background("bg_2")]), EARLY);
    assert!(!run.messages.iter().any(|message| {
        message.role == Role::User
            && message
                .content
                .as_deref()
                .is_some_and(|text| text.contains("bg_"))
    }));
    run.answers(&["text"]);
    let both = [background("bg_1"), background("bg_2")];
    assert_eq!(
        run.tail(2),
        [
            Message::tool("r", "text"),
            Message::user(prompts().background_results(&both))
        ]
    );
    // An end that comes with the last text is heard before that text counts as the end.
    run.step(Input::Background(vec![background("bg_3")]), EARLY);
    assert_eq!(run.says("done"), [Action::Ask]);
    assert_eq!(run.says("done with that too"), []);
    assert_eq!(run.outcome, succeeded("done with that too"));
}

#[test]
fn images_follow_all_results_of_their_turn() {
    let (mut run, _) = Run::new(Completion::FinishTask);
    run.calls(&[
        ("a", "read_mediafile", "{}"),
        ("b", "read_file", "{}"),
        ("c", "read_mediafile", "{}"),
    ]);
    let result = r#"{"success":true,"file":"media/1.png","mime":"image/png","bytes":7}"#;
    let refused = r#"{"success":false,"error":{}}"#;
    let mut results = vec![good(result), good("text"), good(refused)];
    results[2].succeeded = false;
    run.step(Input::Results(results), EARLY);
    let media = Media {
        file: "media/1.png".into(),
        mime: "image/png".into(),
        bytes: 7,
    };
    assert_eq!(
        run.tail(4),
        [
            Message::tool("a", result),
            Message::tool("b", "text"),
            Message::tool("c", refused),
            Message::showing(prompts().media_shown(&["media/1.png"]), vec![media]),
        ]
    );
}

#[test]
fn a_model_failure_is_told_in_the_providers_words() {
    let (mut run, _) = Run::new(Completion::FinishTask);
    let error = ModelError {
        kind: ModelErrorKind::Server,
        message: "500: out of chips".into(),
        requests: 6,
    };
    run.step(Input::ModelFailed(error), EARLY);
    assert_eq!(
        run.outcome,
        failed("500: out of chips", StopReason::ModelError)
    );
}

#[test]
fn a_text_without_end_is_cut_as_a_report() {
    let (mut run, _) = Run::new(Completion::FinalText);
    run.says(&"长".repeat(1_000_000));
    let summary = run.outcome.unwrap().summary;
    assert!(summary.len() <= TEXT_AS_REPORT_BYTES_MAX);
}

/// One random thing that happens to a machine.
fn any_input() -> impl Strategy<Value = Input> {
    let name = prop_oneof![
        4 => Just("read_file"),
        4 => Just("write_file"),
        1 => Just("finish_task"),
        2 => Just("no_such_tool"),
    ];
    let calls = proptest::collection::vec((name, 0..1000_u32), 0..12);
    let reply = (calls, any::<bool>()).prop_map(|(calls, cut)| {
        let calls = calls
            .into_iter()
            .enumerate()
            .map(|(index, (name, n))| {
                let arguments = finish_arguments(n % 2 == 0, "s");
                ToolCall::new(format!("{index}-{n}"), name, arguments)
            })
            .collect();
        let finish = if cut {
            FinishKind::Length
        } else {
            FinishKind::Done
        };
        Input::Reply(ModelReply {
            finish,
            ..reply(Some("text"), calls)
        })
    });
    let results = proptest::collection::vec((any::<u8>(), any::<bool>()), 0..10).prop_map(|list| {
        Input::Results(
            list.into_iter()
                .map(|(n, succeeded)| CallResult {
                    succeeded,
                    ..good(&n.to_string())
                })
                .collect(),
        )
    });
    prop_oneof![
        10 => reply,
        10 => results,
        2 => (0..20_u32).prop_map(|n| Input::Delivered(vec![message(&n.to_string(), "hi")])),
        1 => Just(Input::Background(vec![background("bg_1")])),
        1 => Just(Input::WrapUp { seconds_left: 3 }),
        1 => Just(Input::Stop(StopReason::Deadline)),
        1 => Just(Input::Begin(Vec::new())),
    ]
}

/// Every call has exactly one answer, directly after its message and in the order of the calls.
fn assert_paired(messages: &[Message], ended: bool) {
    let mut open: VecDeque<String> = VecDeque::new();
    for message in messages {
        match message.role {
            Role::Tool => assert_eq!(open.pop_front(), message.tool_call_id, "out of order"),
            Role::Assistant | Role::System | Role::User => {
                assert!(open.is_empty(), "unanswered: {open:?}");
                open.extend(message.tool_calls.iter().map(|call| call.id.clone()));
            }
        }
    }
    assert!(!ended || open.is_empty(), "unanswered at the end: {open:?}");
}

proptest! {
    #[test]
    fn whatever_happens_calls_stay_paired_and_there_is_one_end(
        inputs in proptest::collection::vec(any_input(), 0..200),
        which in 0..3_usize,
        jump_ms in 0..10_000_u64,
    ) {
        let completion = Completion::ALL[which];
        let (mut run, _) = Run::new(completion);
        let mut elapsed_ms = 0;
        for input in inputs {
            elapsed_ms += jump_ms;
            let time = TimeSpent {
                elapsed_ms,
                remaining_ms: 600_000_u64.saturating_sub(elapsed_ms),
            };
            run.step(input, time);
            assert_paired(&run.messages, run.outcome.is_some());
        }
        run.step(Input::Stop(StopReason::Terminated), EARLY);
        prop_assert!(run.outcome.is_some());
        prop_assert!(run.machine.has_ended());
        assert_paired(&run.messages, true);
    }
}
