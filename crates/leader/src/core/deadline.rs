//! Clocks that can stand still, and the steps of a stop. Times are monotonic milliseconds.

use protocol::limits;

/// The least time that an agent has to leave after its report, whatever its grace: it is saving
/// its conversation.
pub const LINGER_MS_MIN: u64 = 2_000;
/// Between two tries to kill what a kill did not end.
pub const KILL_AGAIN_MS: u64 = 1_000;

/// How long one agent has worked, and how long it still may. It stands still while the agent waits
/// or is idle.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Clock {
    limit_ms: u64,
    spent_ms: u64,
    running_since_ms: Option<u64>,
}

impl Clock {
    /// A clock that has not started.
    pub fn new(limit_ms: u64) -> Self {
        Clock {
            limit_ms,
            spent_ms: 0,
            running_since_ms: None,
        }
    }

    /// Lets it run from `now_ms` on; nothing changes when it runs already.
    pub fn run(&mut self, now_ms: u64) {
        self.running_since_ms.get_or_insert(now_ms);
    }

    /// Lets it stand still from `now_ms` on.
    pub fn pause(&mut self, now_ms: u64) {
        self.spent_ms = self.spent_ms(now_ms);
        self.running_since_ms = None;
    }

    /// How long it has run.
    pub fn spent_ms(&self, now_ms: u64) -> u64 {
        let running = self
            .running_since_ms
            .map_or(0, |since| now_ms.saturating_sub(since));
        self.spent_ms.saturating_add(running)
    }

    /// How long it may still run.
    pub fn remaining_ms(&self, now_ms: u64) -> u64 {
        self.limit_ms.saturating_sub(self.spent_ms(now_ms))
    }

    /// When it will have run out; none while it stands still.
    pub fn due_ms(&self) -> Option<u64> {
        let since = self.running_since_ms?;
        Some(since.saturating_add(self.limit_ms.saturating_sub(self.spent_ms)))
    }

    /// Whether it runs.
    pub fn is_running(&self) -> bool {
        self.running_since_ms.is_some()
    }
}

/// The next step of a stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LadderStep {
    /// SIGTERM to the worker.
    Term,
    /// The kill: the grace is over.
    Kill,
    /// The tree should be empty by now.
    Verify,
}

/// Where a stop is and what comes next. Every step is counted from the beginning of the stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ladder {
    next: LadderStep,
    due_ms: u64,
    kill_due_ms: u64,
}

impl Ladder {
    /// A stop that begins now: SIGTERM at the smaller of 2 s and half the grace, the kill at its
    /// end.
    pub fn stop(now_ms: u64, grace_ms: u64) -> Self {
        let term_after_ms = limits::TERM_AFTER_MS_MAX.min(grace_ms / 2);
        Ladder {
            next: LadderStep::Term,
            due_ms: now_ms.saturating_add(term_after_ms),
            kill_due_ms: now_ms.saturating_add(grace_ms),
        }
    }

    /// An agent that has reported and is to leave by itself: no SIGTERM, which would cut its
    /// saving short; the kill at the end of the grace.
    pub fn linger(now_ms: u64, grace_ms: u64) -> Self {
        let kill_due_ms = now_ms.saturating_add(grace_ms.max(LINGER_MS_MIN));
        Ladder {
            next: LadderStep::Kill,
            due_ms: kill_due_ms,
            kill_due_ms,
        }
    }

    /// What comes next.
    pub fn next(&self) -> LadderStep {
        self.next
    }

    /// When.
    pub fn due_ms(&self) -> u64 {
        self.due_ms
    }

    /// SIGTERM was sent.
    pub fn termed(&mut self) {
        self.next = LadderStep::Kill;
        self.due_ms = self.kill_due_ms;
    }

    /// The kill was sent, for the first time.
    pub fn killed(&mut self, now_ms: u64) {
        self.next = LadderStep::Verify;
        self.due_ms = now_ms.saturating_add(limits::EMPTY_WITHIN_MS);
    }

    /// The kill was sent again.
    pub fn killed_again(&mut self, now_ms: u64) {
        self.next = LadderStep::Verify;
        self.due_ms = now_ms.saturating_add(KILL_AGAIN_MS);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_counts_only_while_it_runs() {
        let mut clock = Clock::new(1_000);
        assert_eq!((clock.due_ms(), clock.remaining_ms(5_000)), (None, 1_000));
        clock.run(100);
        clock.run(900);
        assert_eq!((clock.due_ms(), clock.spent_ms(400)), (Some(1_100), 300));
        clock.pause(400);
        assert_eq!((clock.due_ms(), clock.spent_ms(9_000)), (None, 300));
        clock.run(10_000);
        assert_eq!(
            (clock.due_ms(), clock.remaining_ms(10_200)),
            (Some(10_700), 500)
        );
        assert_eq!(clock.remaining_ms(99_999), 0);
        // A time before the start, as after a wrong order of inputs, counts nothing.
        assert_eq!(clock.spent_ms(5), 300);
    }

    #[test]
    fn a_stop_terms_at_half_its_grace_but_after_two_seconds_at_most() {
        for (grace_ms, term_ms) in [(0, 0), (1_000, 500), (4_000, 2_000), (60_000, 2_000)] {
            let mut ladder = Ladder::stop(100, grace_ms);
            assert_eq!(
                (ladder.next(), ladder.due_ms()),
                (LadderStep::Term, 100 + term_ms)
            );
            ladder.termed();
            assert_eq!(
                (ladder.next(), ladder.due_ms()),
                (LadderStep::Kill, 100 + grace_ms)
            );
            ladder.killed(70_000);
            assert_eq!(
                (ladder.next(), ladder.due_ms()),
                (LadderStep::Verify, 72_000)
            );
            ladder.killed_again(72_000);
            assert_eq!(
                (ladder.next(), ladder.due_ms()),
                (LadderStep::Verify, 73_000)
            );
        }
    }

    #[test]
    fn a_reporter_gets_time_to_save_even_without_a_grace() {
        assert_eq!(Ladder::linger(0, 0).due_ms(), LINGER_MS_MIN);
        assert_eq!(Ladder::linger(0, 5_000).due_ms(), 5_000);
        assert_eq!(Ladder::linger(0, 5_000).next(), LadderStep::Kill);
    }
}
