//! The only place of the leader that reads a clock.

use std::time::Instant;

/// Monotonic time in milliseconds since the clock was made; system sleep does not count.
#[derive(Debug, Clone, Copy)]
pub struct Clock {
    start: Instant,
}

impl Clock {
    /// A clock that stands at 0.
    pub fn start() -> Self {
        Clock {
            start: Instant::now(),
        }
    }

    /// Milliseconds since [`Clock::start`].
    pub fn now_ms(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// The instant at which this clock will show `ms`, for timers.
    pub fn instant_of(&self, ms: u64) -> Instant {
        self.start + std::time::Duration::from_millis(ms)
    }
}

/// The present time for files and logs: RFC 3339, UTC, whole seconds.
pub fn timestamp() -> String {
    jiff::Timestamp::now()
        .strftime("%Y-%m-%dT%H:%M:%SZ")
        .to_string()
}

/// The present time for people and models: `2026-03-10 12:00:00 UTC`.
pub fn spoken_time() -> String {
    jiff::Timestamp::now()
        .strftime("%Y-%m-%d %H:%M:%S UTC")
        .to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clock_only_rises_and_the_timestamp_is_utc() {
        let clock = Clock::start();
        let first = clock.now_ms();
        assert!(clock.now_ms() >= first);
        assert_eq!(
            clock.instant_of(5),
            clock.start + std::time::Duration::from_millis(5)
        );
        let text = timestamp();
        assert_eq!((text.len(), &text[10..11], &text[19..]), (20, "T", "Z"));
    }
}
