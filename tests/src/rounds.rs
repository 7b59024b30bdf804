//! How often a test repeats itself, and the random points of time at which it strikes.

use std::time::{Duration, Instant};

/// The number that the variable `name` asks for, else `ordinary`.
pub fn rounds(name: &str, ordinary: u32) -> u32 {
    std::env::var(name)
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(ordinary)
}

/// A small generator of random numbers, so that a run can be repeated from its printed seed.
#[derive(Debug)]
pub struct Random(u64);

impl Random {
    /// Starts from a seed.
    pub fn new(seed: u64) -> Self {
        Random(seed)
    }

    /// A number below `limit`; 0 where that is 0.
    pub fn below(&mut self, limit: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33).checked_rem(limit).unwrap_or(0)
    }

    /// Lets up to `limit` pass; this is the point of a random strike, not a wait for anything.
    pub fn pause(&mut self, limit: Duration) {
        let most_us = u64::try_from(limit.as_micros()).unwrap_or(u64::MAX);
        std::thread::sleep(Duration::from_micros(self.below(most_us)));
    }
}

/// Durations that were measured, and what they come to.
#[derive(Debug, Default)]
pub struct Times(Vec<Duration>);

impl Times {
    /// Adds one.
    pub fn add(&mut self, time: Duration) {
        self.0.push(time);
    }

    /// The time that `percent` of all do not exceed; zero of none.
    pub fn percentile(&self, percent: usize) -> Duration {
        let mut sorted = self.0.clone();
        sorted.sort();
        let rank = (sorted.len() * percent).div_ceil(100);
        sorted
            .get(rank.saturating_sub(1))
            .copied()
            .unwrap_or_default()
    }

    /// For people: how many, and p50, p99 and the longest.
    pub fn summary(&self) -> String {
        format!(
            "{} times: p50 {:?}, p99 {:?}, max {:?}",
            self.0.len(),
            self.percentile(50),
            self.percentile(99),
            self.percentile(100)
        )
    }
}

/// The time of starting a shell that does nothing and waiting for its end: what a process costs on
/// this machine at this moment, against which other times are judged.
///
/// # Panics
/// When there is no shell.
pub fn process_time() -> Duration {
    let start = Instant::now();
    let status = std::process::Command::new("sh").args(["-c", ":"]).status();
    assert!(status.expect("a shell").success());
    start.elapsed()
}
