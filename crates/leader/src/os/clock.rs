//! The only place of the leader that reads a clock.

use std::time::{Duration, Instant};

/// Monotonic time in milliseconds since the clock was made, without the times in which it stood
/// still; system sleep does not count either.
#[derive(Debug, Clone, Copy)]
pub struct Clock {
    start: Instant,
    stands_at: Option<Duration>,
}

impl Clock {
    /// A clock that stands at 0 and runs.
    pub fn start() -> Self {
        Clock {
            start: now(),
            stands_at: None,
        }
    }

    /// Milliseconds since [`Clock::start`].
    pub fn now_ms(&self) -> u64 {
        let shown = self.stands_at.unwrap_or_else(|| self.start.elapsed());
        u64::try_from(shown.as_millis()).unwrap_or(u64::MAX)
    }

    /// The instant at which this clock will show `ms`, for timers; it holds while the clock runs.
    pub fn instant_of(&self, ms: u64) -> Instant {
        self.start + Duration::from_millis(ms)
    }

    /// Whether it stands still.
    pub fn stands_still(&self) -> bool {
        self.stands_at.is_some()
    }

    /// Shows the same time until [`Clock::go_on`].
    pub fn stand_still(&mut self) {
        let shown = self.start.elapsed();
        self.stands_at.get_or_insert(shown);
    }

    /// Goes on from the time that it shows.
    pub fn go_on(&mut self) {
        if let Some(shown) = self.stands_at.take() {
            // An earlier start than the machine's can't be; it would only shorten the pause.
            self.start = now().checked_sub(shown).unwrap_or(self.start);
        }
    }
}

/// The present moment, for what something took.
#[expect(
    clippy::disallowed_methods,
    reason = "this is the place that reads the clock"
)]
pub fn now() -> Instant {
    Instant::now()
}

#[expect(
    clippy::disallowed_methods,
    reason = "this is the place that reads the clock"
)]
fn time_of_day() -> jiff::Timestamp {
    jiff::Timestamp::now()
}

/// The present time in seconds since 1970, to be compared with the times of files.
pub fn unix_seconds() -> i64 {
    time_of_day().as_second()
}

/// The present time for files and logs: RFC 3339, UTC, whole seconds.
pub fn timestamp() -> String {
    time_of_day().strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// The present time for people and models: `2026-03-10 12:00:00 UTC`.
pub fn spoken_time() -> String {
    time_of_day().strftime("%Y-%m-%d %H:%M:%S UTC").to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_in_which_it_stood_still_does_not_count() {
        let mut clock = Clock::start();
        clock.start -= Duration::from_millis(500);
        clock.stand_still();
        let shown = clock.now_ms();
        assert!(shown >= 500 && clock.stands_still());
        // A pause of a minute, without waiting for one.
        clock.start -= Duration::from_secs(60);
        clock.stand_still();
        assert_eq!(clock.now_ms(), shown);
        clock.go_on();
        assert!(!clock.stands_still());
        assert!((shown..shown + 30_000).contains(&clock.now_ms()));
        clock.go_on();
        assert!((shown..shown + 30_000).contains(&clock.now_ms()));
    }

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
