//! The only place of the jail that reads a clock.

use std::time::{Duration, Instant};

/// The present moment, steady: nothing sets it back.
#[expect(
    clippy::disallowed_methods,
    reason = "this is the place that reads the clock"
)]
pub(crate) fn now() -> Instant {
    Instant::now()
}

/// The moment in so many milliseconds.
pub(crate) fn in_ms(ms: u64) -> Instant {
    now() + Duration::from_millis(ms)
}

/// How long it is until then; nothing when it has passed.
pub(crate) fn left_until(then: Instant) -> Duration {
    then.saturating_duration_since(now())
}
