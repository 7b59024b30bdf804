//! Notices that a model makes the same call with the same result again and again.

use std::collections::VecDeque;
use std::hash::{DefaultHasher, Hash, Hasher};

use protocol::limits::{LOOP_STOP_COUNT, LOOP_WARN_COUNT};
use serde_json::Value;

/// Different calls that are remembered. A loop over more calls than this ends at the turn limit.
pub const REMEMBERED_CALLS_MAX: usize = 64;

/// What the calls of a turn came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LoopVerdict {
    /// Nothing is repeated too often.
    Fine,
    /// The model is to be told.
    Warn {
        /// The repeated tool.
        tool: String,
        /// In how many turns it was called so.
        count: u32,
    },
    /// The run is to be stopped.
    Stop {
        /// The repeated tool.
        tool: String,
        /// In how many turns it was called so.
        count: u32,
    },
}

/// Whether a call may have changed what later calls see.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    /// It only looked, or it failed.
    None,
    /// It succeeded with a tool that changes things.
    Changed,
}

#[derive(Debug)]
struct Seen {
    print: u64,
    tool: String,
    turns: u32,
    last_turn: u64,
}

/// Counts in how many turns each call came with the same result.
#[derive(Debug, Default)]
pub struct LoopGuard {
    seen: VecDeque<Seen>,
    turn: u64,
}

/// What makes two calls the same: name, arguments as JSON (not as spelled) and result.
pub fn fingerprint(tool: &str, arguments: &str, result: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    tool.hash(&mut hasher);
    match serde_json::from_str::<Value>(arguments) {
        Ok(value) => value.to_string().hash(&mut hasher),
        Err(_) => arguments.hash(&mut hasher),
    }
    result.hash(&mut hasher);
    hasher.finish()
}

impl LoopGuard {
    /// Takes one answered call. The same call twice in one turn counts once, so that a model is
    /// always told before it is stopped.
    pub fn observe(&mut self, tool: &str, print: u64, effect: Effect) {
        let turn = self.turn;
        if let Some(seen) = self.seen.iter_mut().find(|seen| seen.print == print) {
            if seen.last_turn != turn {
                seen.turns = seen.turns.saturating_add(1);
                seen.last_turn = turn;
            }
            return;
        }
        if effect == Effect::Changed {
            // Something new was done, so a repeated look or test is no longer idle: an edit
            // between two runs of the same failing test is work, not a loop. The calls stay
            // known, or two changes that undo each other would be new for ever.
            self.seen.iter_mut().for_each(|seen| seen.turns = 0);
        }
        if self.seen.len() == REMEMBERED_CALLS_MAX {
            self.seen.pop_front();
        }
        self.seen.push_back(Seen {
            print,
            tool: tool.to_owned(),
            turns: 1,
            last_turn: turn,
        });
    }

    /// Ends a turn and judges the calls that were made in it; the worst counts.
    pub fn end_turn(&mut self) -> LoopVerdict {
        let turn = self.turn;
        self.turn += 1;
        let worst = self
            .seen
            .iter()
            .filter(|seen| seen.last_turn == turn)
            .max_by_key(|seen| seen.turns);
        match worst {
            Some(seen) if seen.turns >= LOOP_STOP_COUNT => LoopVerdict::Stop {
                tool: seen.tool.clone(),
                count: seen.turns,
            },
            Some(seen) if seen.turns == LOOP_WARN_COUNT => LoopVerdict::Warn {
                tool: seen.tool.clone(),
                count: seen.turns,
            },
            _ => LoopVerdict::Fine,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn turn(guard: &mut LoopGuard, calls: &[(&str, u64, Effect)]) -> LoopVerdict {
        for (tool, print, effect) in calls {
            guard.observe(tool, *print, *effect);
        }
        guard.end_turn()
    }

    fn warn(tool: &str) -> LoopVerdict {
        LoopVerdict::Warn {
            tool: tool.into(),
            count: LOOP_WARN_COUNT,
        }
    }

    fn stop(tool: &str) -> LoopVerdict {
        LoopVerdict::Stop {
            tool: tool.into(),
            count: LOOP_STOP_COUNT,
        }
    }

    #[test]
    fn the_third_repetition_is_told_and_the_fifth_stops() {
        let mut guard = LoopGuard::default();
        let verdicts: Vec<LoopVerdict> = (0..5)
            .map(|_| turn(&mut guard, &[("read", 1, Effect::None)]))
            .collect();
        assert_eq!(
            verdicts,
            [
                LoopVerdict::Fine,
                LoopVerdict::Fine,
                warn("read"),
                LoopVerdict::Fine,
                stop("read"),
            ]
        );
    }

    #[test]
    fn a_loop_over_two_calls_is_one_too() {
        let mut guard = LoopGuard::default();
        let verdicts: Vec<LoopVerdict> = (0..10)
            .map(|n| turn(&mut guard, &[("write", n % 2, Effect::Changed)]))
            .collect();
        // The first write of the other content is new and sets the first back, so that one is
        // a turn behind.
        assert_eq!(verdicts[8], LoopVerdict::Fine);
        assert_eq!(verdicts[9], stop("write"));
    }

    #[test]
    fn a_test_run_again_after_each_edit_is_work() {
        let mut guard = LoopGuard::default();
        for edit in 0..50 {
            let verdict = turn(
                &mut guard,
                &[
                    ("edit", 100 + edit, Effect::Changed),
                    ("test", 1, Effect::None),
                ],
            );
            assert_eq!(verdict, LoopVerdict::Fine);
        }
    }

    #[test]
    fn many_equal_calls_in_one_turn_count_once() {
        let mut guard = LoopGuard::default();
        let calls = [("read", 1, Effect::None); 9];
        assert_eq!(turn(&mut guard, &calls), LoopVerdict::Fine);
        assert_eq!(turn(&mut guard, &calls), LoopVerdict::Fine);
        assert_eq!(turn(&mut guard, &calls), warn("read"));
    }

    #[test]
    fn memory_is_bounded() {
        let mut guard = LoopGuard::default();
        for print in 0..10_000 {
            guard.observe("read", print, Effect::None);
        }
        assert_eq!(guard.seen.len(), REMEMBERED_CALLS_MAX);
    }

    #[test]
    fn spelling_of_the_arguments_makes_no_difference() {
        let print = |arguments| fingerprint("read", arguments, "x");
        assert_eq!(print(r#"{"path":"a"}"#), print(r#"{ "path" : "a" }"#));
        assert_ne!(print(r#"{"path":"a"}"#), print(r#"{"path":"b"}"#));
        assert_ne!(print("{torn"), print("{tor"));
        assert_ne!(
            fingerprint("read", "{}", "x"),
            fingerprint("read", "{}", "y")
        );
    }
}
