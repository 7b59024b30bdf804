//! Waiting for a condition with a budget, where no event can be had from outside.

use std::time::{Duration, Instant};

/// How often a condition is looked at again.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// Looks until `condition` gives something, or the budget is used up.
pub fn until<T>(budget: Duration, mut condition: impl FnMut() -> Option<T>) -> Option<T> {
    let end = Instant::now() + budget;
    loop {
        if let Some(found) = condition() {
            return Some(found);
        }
        if Instant::now() >= end {
            return None;
        }
        std::thread::sleep(LOOK_EVERY);
    }
}

/// Runs `work` and says how long it took.
pub fn within<T>(work: impl FnOnce() -> T) -> (T, Duration) {
    let start = Instant::now();
    let result = work();
    (result, start.elapsed())
}
