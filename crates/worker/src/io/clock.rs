//! The only place of the worker that reads a clock.

use std::time::{Duration, Instant};

use jiff::Timestamp;

/// A deadline of centuries would overflow the clock's own range; a year is as good.
const FAR: Duration = Duration::from_secs(365 * 24 * 3_600);

/// A steady clock that starts at 0. System sleep does not count, and nothing sets it back.
#[derive(Debug, Clone, Copy)]
pub struct Clock {
    start: Instant,
}

impl Clock {
    /// Starts at 0 now.
    pub fn start() -> Self {
        Clock {
            start: now().into_std(),
        }
    }

    /// Milliseconds since the start.
    pub fn now_ms(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// The moment of so many milliseconds since the start, for a timer.
    pub fn moment(&self, at_ms: u64) -> tokio::time::Instant {
        let after = Duration::from_millis(at_ms).min(FAR);
        tokio::time::Instant::from_std(self.start + after)
    }
}

/// The present moment, for timers and for what something took.
#[expect(
    clippy::disallowed_methods,
    reason = "this is the place that reads the clock"
)]
pub fn now() -> tokio::time::Instant {
    tokio::time::Instant::now()
}

/// The moment after so much time, a year at most, for a timer.
pub fn after(time: Duration) -> tokio::time::Instant {
    now() + time.min(FAR)
}

/// The time of day.
#[expect(
    clippy::disallowed_methods,
    reason = "this is the place that reads the clock"
)]
pub fn time_of_day() -> Timestamp {
    Timestamp::now()
}

/// The time of day as files hold it: RFC 3339, UTC, whole seconds.
pub fn utc_now() -> String {
    time_of_day().strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// The time of day as an agent is told it.
pub fn spoken_now() -> String {
    time_of_day().strftime("%Y-%m-%d %H:%M UTC").to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_of_day_are_rfc_3339_in_utc() {
        let now = utc_now();
        assert!(now.parse::<Timestamp>().is_ok(), "{now}");
        assert_eq!(now.len(), "2026-03-10T12:00:00Z".len());
        assert!(spoken_now().ends_with(" UTC"));
    }

    #[test]
    fn a_moment_without_end_does_not_overflow() {
        let clock = Clock::start();
        assert!(clock.moment(u64::MAX) > clock.moment(1_000));
        assert!(after(Duration::MAX) > after(Duration::from_secs(1)));
    }
}
