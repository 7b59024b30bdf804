//! When a conversation is shortened, and what of it is kept.
//!
//! First the results of old calls go into files; when that is not enough, everything between the
//! task and the last turns becomes a summary. What is left is always a conversation that strict
//! providers take: instructions, the task, and every result directly behind its call.

use std::fmt::Write;

use protocol::conversation::{Message, Role};
use protocol::limits::{
    CONTEXT_FULL_PERCENT, OLD_RESULT_BYTES_MIN, SUMMARY_SOURCE_BYTES_MAX, TURNS_KEPT,
};
use protocol::result::cut_middle;
use protocol::stats::TokenUsage;

/// One text of a message, as the model that summarises gets it, in bytes.
const TEXT_SHOWN_BYTES_MAX: usize = 2_000;
/// The arguments of one call, as the model that summarises gets them, in bytes.
const ARGUMENTS_SHOWN_BYTES_MAX: usize = 400;

/// A way to shorten a conversation, the gentler one first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Results of calls before the last turns are replaced by pointers to files that hold them.
    OldResults,
    /// All results are, but those of the last turn: for a model that has refused already.
    AllResults,
    /// All but the instructions, the task and the last turns is replaced by a summary.
    Summary,
}

/// How full the model's context is, and what was done about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Room {
    context_tokens: Option<u64>,
    used: u64,
    taken: Option<Step>,
    turns_since: u32,
}

impl Room {
    /// The room of a model with a context of so many tokens; none where that is not known, and
    /// then only its refusals tell.
    pub fn new(context_tokens: Option<u32>) -> Self {
        Room {
            context_tokens: context_tokens.map(u64::from),
            used: 0,
            taken: None,
            turns_since: 0,
        }
    }

    /// The model answered: what was sent and said is what is in use now.
    pub fn answered(&mut self, usage: Option<TokenUsage>) {
        if let Some(usage) = usage {
            self.used = usage.prompt.saturating_add(usage.completion);
        }
        self.turns_since = self.turns_since.saturating_add(1);
        if !self.is_full() {
            self.taken = None;
        }
    }

    /// What is to be done before the next question, if anything. After a summary that did not
    /// help it waits for some turns: another one would say the same.
    pub fn due(&self) -> Option<Step> {
        if !self.is_full() {
            return None;
        }
        match self.taken {
            None => Some(Step::OldResults),
            // Nobody knows yet what it has brought.
            Some(_) if self.turns_since == 0 => None,
            Some(Step::OldResults | Step::AllResults) => Some(Step::Summary),
            Some(Step::Summary) => (self.turns_since > TURNS_KEPT).then_some(Step::Summary),
        }
    }

    /// What is to be done after the model refused the conversation as too long; none when all
    /// has been done.
    pub fn refused(&self) -> Option<Step> {
        match self.taken {
            None | Some(Step::OldResults) => Some(Step::AllResults),
            Some(Step::AllResults) => Some(Step::Summary),
            Some(Step::Summary) => (self.turns_since > 0).then_some(Step::Summary),
        }
    }

    /// This is being done.
    pub fn take(&mut self, step: Step) {
        self.taken = Some(step);
        self.turns_since = 0;
    }

    fn is_full(&self) -> bool {
        self.context_tokens.is_some_and(|all| {
            u128::from(self.used) * 100 >= u128::from(all) * u128::from(CONTEXT_FULL_PERCENT)
        })
    }
}

/// Where the results stand that a step puts into files: those that are long enough to be worth
/// one, before the turns that the step leaves alone.
pub fn old_results(messages: &[Message], step: Step) -> Vec<usize> {
    let turns_left = match step {
        Step::OldResults => TURNS_KEPT,
        Step::AllResults => 1,
        Step::Summary => return Vec::new(),
    };
    let end = answers_from_the_end(messages)
        .nth(turns_left.saturating_sub(1) as usize)
        .unwrap_or(0);
    let is_long = |at: &usize| {
        let message = &messages[*at];
        let length = message.content.as_ref().map_or(0, String::len);
        message.role == Role::Tool && length >= OLD_RESULT_BYTES_MIN
    };
    (0..end).filter(is_long).collect()
}

/// What a summary leaves as it is: the messages before `head`, and those from `tail` on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Kept {
    /// Instructions and the task.
    pub head: usize,
    /// The last turns.
    pub tail: usize,
}

/// What is kept beside a summary; none when there is nothing between. The last turns are as many
/// of [`TURNS_KEPT`] as leave something to summarise and have at most `tail_bytes_max` bytes,
/// and half of the whole.
pub fn kept(messages: &[Message], tail_bytes_max: usize) -> Option<Kept> {
    let whole: usize = messages.iter().map(size).sum();
    let tail_bytes_max = tail_bytes_max.min(whole / 2);
    let instructions = messages
        .iter()
        .take_while(|message| message.role == Role::System)
        .count();
    let has_task = messages
        .get(instructions)
        .is_some_and(|first| first.role == Role::User);
    let head = instructions + usize::from(has_task);
    let mut tail = end_of_last_turn(messages);
    for start in answers_from_the_end(messages).take(TURNS_KEPT as usize) {
        let bytes: usize = messages[start..].iter().map(size).sum();
        if start <= head || bytes > tail_bytes_max {
            break;
        }
        tail = start;
    }
    (tail > head).then_some(Kept { head, tail })
}

/// The conversation with `summary` in the place of what lay between.
pub fn summarised(messages: &[Message], kept: Kept, summary: String) -> Vec<Message> {
    let mut shorter = messages[..kept.head].to_vec();
    shorter.push(Message::user(summary));
    shorter.extend_from_slice(&messages[kept.tail..]);
    shorter
}

/// What is between, as a text for a model that summarises it.
pub fn transcript(messages: &[Message], kept: Kept) -> String {
    let mut text = String::new();
    for message in &messages[kept.head..kept.tail] {
        let role = match message.role {
            Role::System => "system",
            Role::User => "user",
            Role::Assistant => "assistant",
            Role::Tool => "tool",
        };
        let said = message.content.as_deref().unwrap_or_default();
        // Writing to a text can't fail.
        writeln!(
            text,
            "[{role}] {}",
            cut_middle(said, TEXT_SHOWN_BYTES_MAX, "")
        )
        .ok();
        for call in &message.tool_calls {
            let arguments = cut_middle(&call.function.arguments, ARGUMENTS_SHOWN_BYTES_MAX, "");
            writeln!(text, "[call] {} {arguments}", call.function.name).ok();
        }
    }
    cut_middle(&text, SUMMARY_SOURCE_BYTES_MAX, "")
}

/// Where the answers of the model stand, the last one first.
fn answers_from_the_end(messages: &[Message]) -> impl Iterator<Item = usize> + '_ {
    let is_answer = |at: &usize| messages[*at].role == Role::Assistant;
    (0..messages.len()).rev().filter(is_answer)
}

/// Behind the last answer and the results of its calls.
fn end_of_last_turn(messages: &[Message]) -> usize {
    let spoken = |message: &Message| matches!(message.role, Role::Assistant | Role::Tool);
    messages.iter().rposition(spoken).map_or(0, |at| at + 1)
}

fn size(message: &Message) -> usize {
    let calls = message.tool_calls.iter();
    let calls: usize = calls.map(|call| call.function.arguments.len()).sum();
    message.content.as_ref().map_or(0, String::len) + calls
}

#[cfg(test)]
mod tests {
    use protocol::conversation::ToolCall;

    use super::*;

    fn usage(prompt: u64) -> Option<TokenUsage> {
        Some(TokenUsage {
            prompt,
            ..TokenUsage::default()
        })
    }

    /// Instructions, the task, and so many turns with a call and a result of this size each.
    fn conversation(turns: usize, result_bytes: usize) -> Vec<Message> {
        let mut messages = vec![Message::system("you are"), Message::user("task")];
        for turn in 0..turns {
            let id = format!("c{turn}");
            let call = ToolCall::new(id.clone(), "read_file", "{}");
            messages.push(Message::assistant(None, vec![call]));
            messages.push(Message::tool(id, "x".repeat(result_bytes)));
        }
        messages
    }

    /// Whether every result stands directly behind its call, and every call has one.
    fn is_legal(messages: &[Message]) -> bool {
        let mut open: Vec<&str> = Vec::new();
        for message in messages {
            if let Some(id) = message.tool_call_id.as_deref() {
                let Some(at) = open.iter().position(|call| *call == id) else {
                    return false;
                };
                open.remove(at);
            } else if !open.is_empty() {
                return false;
            }
            open.extend(message.tool_calls.iter().map(|call| call.id.as_str()));
        }
        open.is_empty() && messages.first().is_some_and(|m| m.role == Role::System)
    }

    #[test]
    fn the_gentle_step_comes_first_and_none_comes_twice_in_vain() {
        let mut room = Room::new(Some(1_000));
        room.answered(usage(799));
        assert_eq!(room.due(), None);
        room.answered(usage(800));
        assert_eq!(room.due(), Some(Step::OldResults));
        room.take(Step::OldResults);
        assert_eq!(
            room.due(),
            None,
            "what it brought is told by the next answer"
        );
        room.answered(usage(900));
        assert_eq!(room.due(), Some(Step::Summary));
        room.take(Step::Summary);
        for _ in 0..TURNS_KEPT {
            room.answered(usage(900));
            assert_eq!(room.due(), None);
        }
        room.answered(usage(900));
        assert_eq!(room.due(), Some(Step::Summary));
        room.answered(usage(10));
        assert_eq!(room.due(), None);
        room.answered(None);
        room.answered(usage(800));
        assert_eq!(room.due(), Some(Step::OldResults), "it begins anew");
    }

    #[test]
    fn a_model_that_refuses_is_asked_again_after_each_step_and_then_believed() {
        let mut room = Room::new(None);
        room.answered(usage(u64::MAX));
        assert_eq!(room.due(), None, "nobody said what is too much");
        assert_eq!(room.refused(), Some(Step::AllResults));
        room.take(Step::AllResults);
        assert_eq!(room.refused(), Some(Step::Summary));
        room.take(Step::Summary);
        assert_eq!(room.refused(), None);
    }

    #[test]
    fn old_results_are_those_of_earlier_turns_that_are_worth_a_file() {
        let long = OLD_RESULT_BYTES_MIN;
        let kept = TURNS_KEPT as usize;
        let none = Vec::<usize>::new();
        let old = |turns, bytes, step| old_results(&conversation(turns, bytes), step);
        assert_eq!(old(kept + 2, long, Step::OldResults), [3, 5]);
        assert_eq!(old(kept, long, Step::OldResults), none);
        assert_eq!(old(3, long, Step::AllResults), [3, 5]);
        assert_eq!(old(1, long, Step::AllResults), none);
        assert_eq!(old(9, long - 1, Step::AllResults), none);
        assert_eq!(old(9, long, Step::Summary), none);
        assert_eq!(old_results(&[], Step::AllResults), none);
    }

    #[test]
    fn what_is_left_after_a_summary_is_legal_and_keeps_the_task() {
        for turns in 0..12 {
            for tail_bytes_max in [0, 150, 1_000_000] {
                let mut messages = conversation(turns, 100);
                messages.push(Message::user("go on"));
                let Some(kept) = kept(&messages, tail_bytes_max) else {
                    assert_eq!(turns, 0);
                    continue;
                };
                let shorter = summarised(&messages, kept, "summary".to_owned());
                assert!(is_legal(&shorter), "{shorter:?}");
                assert_eq!(shorter[..2], messages[..2]);
                assert_eq!(shorter[2], Message::user("summary"));
                assert_eq!(shorter.last(), messages.last());
                let answers = answers_from_the_end(&shorter).count();
                let most = match tail_bytes_max {
                    0 => 0,
                    150 => 1,
                    _ => TURNS_KEPT as usize,
                };
                // At least one turn is summarised, and half of all.
                assert_eq!(answers, most.min(turns / 2), "{turns} {tail_bytes_max}");
            }
        }
        assert_eq!(kept(&conversation(0, 0), 0), None);
    }

    #[test]
    fn a_transcript_tells_who_said_what_and_is_bounded() {
        let messages = conversation(3, 10);
        let kept = Kept { head: 2, tail: 4 };
        assert_eq!(
            transcript(&messages, kept),
            "[assistant] \n[call] read_file {}\n[tool] xxxxxxxxxx\n"
        );
        let messages = conversation(2_000, 10_000);
        let kept = Kept {
            head: 2,
            tail: messages.len(),
        };
        assert!(transcript(&messages, kept).len() <= SUMMARY_SOURCE_BYTES_MAX);
    }
}
