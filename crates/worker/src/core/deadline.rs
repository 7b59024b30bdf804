//! The agent's own copy of its deadline: pausable, extendable, in milliseconds of any steady clock.

use protocol::limits::TIME_WARNING_PERCENT;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Running { ends_ms: u64 },
    Paused { left_ms: u64 },
}

/// How much of an agent's time is gone and how much is left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TimeSpent {
    /// On the agent's clock; pauses do not count.
    pub elapsed_ms: u64,
    /// Until the stop.
    pub remaining_ms: u64,
}

impl TimeSpent {
    /// Whether so much of the whole is gone that the model is to be warned.
    pub fn is_warning_time(self) -> bool {
        let total = u128::from(self.elapsed_ms) + u128::from(self.remaining_ms);
        u128::from(self.elapsed_ms) * 100 >= total * u128::from(TIME_WARNING_PERCENT)
    }

    /// Whole seconds left, at least 1 while there is any time.
    pub fn seconds_left(self) -> u64 {
        self.remaining_ms.div_ceil(1_000)
    }

    /// Whole seconds on the agent's clock.
    pub fn runtime_seconds(self) -> u64 {
        self.elapsed_ms / 1_000
    }
}

/// One agent's deadline.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Deadline {
    total_ms: u64,
    state: State,
}

impl Deadline {
    /// Starts the clock.
    pub fn start(now_ms: u64, total_ms: u64) -> Self {
        Deadline {
            total_ms,
            state: State::Running {
                ends_ms: now_ms.saturating_add(total_ms),
            },
        }
    }

    /// Takes over what the leader says is left, running or paused. Time already spent stays spent.
    pub fn set(&mut self, now_ms: u64, remaining_ms: u64, paused: bool) {
        let elapsed_ms = self.spent(now_ms).elapsed_ms;
        self.total_ms = elapsed_ms.saturating_add(remaining_ms);
        self.state = if paused {
            State::Paused {
                left_ms: remaining_ms,
            }
        } else {
            State::Running {
                ends_ms: now_ms.saturating_add(remaining_ms),
            }
        };
    }

    /// What is gone and what is left.
    pub fn spent(&self, now_ms: u64) -> TimeSpent {
        let remaining_ms = match self.state {
            State::Running { ends_ms } => ends_ms.saturating_sub(now_ms),
            State::Paused { left_ms } => left_ms,
        };
        TimeSpent {
            elapsed_ms: self.total_ms.saturating_sub(remaining_ms),
            remaining_ms,
        }
    }

    /// When it passes; none while the clock stands still.
    pub fn ends_ms(&self) -> Option<u64> {
        match self.state {
            State::Running { ends_ms } => Some(ends_ms),
            State::Paused { .. } => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spent(elapsed_ms: u64, remaining_ms: u64) -> TimeSpent {
        TimeSpent {
            elapsed_ms,
            remaining_ms,
        }
    }

    #[test]
    fn the_warning_is_due_at_four_fifths() {
        let deadline = Deadline::start(1_000, 10_000);
        assert!(!deadline.spent(8_999).is_warning_time());
        assert!(deadline.spent(9_000).is_warning_time());
        assert_eq!(deadline.spent(9_001).seconds_left(), 2);
        assert_eq!(deadline.spent(20_000), spent(10_000, 0));
    }

    #[test]
    fn a_pause_costs_nothing_and_an_extension_counts_from_now() {
        let mut deadline = Deadline::start(0, 10_000);
        deadline.set(4_000, 6_000, true);
        assert_eq!(deadline.ends_ms(), None);
        assert_eq!(deadline.spent(100_000), spent(4_000, 6_000));
        deadline.set(100_000, 6_000, false);
        assert_eq!(deadline.ends_ms(), Some(106_000));
        assert_eq!(deadline.spent(101_000), spent(5_000, 5_000));
        deadline.set(101_000, 15_000, false);
        assert_eq!(deadline.spent(101_000), spent(5_000, 15_000));
        assert!(!deadline.spent(101_000).is_warning_time());
    }
}
