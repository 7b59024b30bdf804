//! What one search may spend, and when it must stop.

use std::io::{self, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::time::Instant;

use crate::io::clock;
use crate::tools::limits;

/// Why a search stopped before it had seen everything.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stopped {
    /// Its time was up.
    Time,
    /// It had visited as many names as it may.
    Entries,
    /// It had read as many bytes as it may.
    Bytes,
    /// It had counted as many matches as it may.
    Matches,
    /// Nobody waits for it any more.
    Cancelled,
}

/// Counts what a search spends.
#[derive(Debug)]
pub(crate) struct Meter {
    deadline: Instant,
    /// Set by whoever waits, when it gives up; shared, since a thread can't be sent a message
    /// while it reads.
    cancelled: Arc<AtomicBool>,
    entries: u64,
    bytes: u64,
    stopped: Option<Stopped>,
}

impl Meter {
    /// Nothing spent yet.
    pub(crate) fn new(deadline: Instant, cancelled: Arc<AtomicBool>) -> Self {
        Meter {
            deadline,
            cancelled,
            entries: 0,
            bytes: 0,
            stopped: None,
        }
    }

    /// Why it stopped, if it did.
    pub(crate) fn stopped(&self) -> Option<Stopped> {
        self.stopped
    }

    /// Counts one visited name. Hands back false when the search must stop.
    pub(crate) fn visit(&mut self) -> bool {
        self.entries += 1;
        if self.entries > limits::SEARCH_ENTRIES_MAX {
            self.stop(Stopped::Entries);
        }
        self.may_go_on()
    }

    /// Counts bytes that were read. Hands back false when the search must stop.
    pub(crate) fn spend(&mut self, bytes: usize) -> bool {
        self.bytes = self.bytes.saturating_add(bytes as u64);
        if self.bytes > limits::SEARCH_BYTES_MAX {
            self.stop(Stopped::Bytes);
        }
        self.may_go_on()
    }

    /// Stops the search; the first reason counts.
    pub(crate) fn stop(&mut self, why: Stopped) {
        self.stopped.get_or_insert(why);
    }

    fn may_go_on(&mut self) -> bool {
        if self.cancelled.load(Ordering::Relaxed) {
            self.stop(Stopped::Cancelled);
        } else if clock::now() >= self.deadline {
            self.stop(Stopped::Time);
        }
        self.stopped.is_none()
    }
}

/// A reader that ends when its search must stop, so that no file is too long to be left.
#[derive(Debug)]
pub(crate) struct Metered<'a, R> {
    pub(crate) inner: R,
    pub(crate) meter: &'a mut Meter,
}

impl<R: Read> Read for Metered<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.inner.read(buffer)?;
        Ok(if self.meter.spend(count) { count } else { 0 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_search_stops_at_each_of_its_bounds_and_keeps_the_first_reason() {
        let later = clock::now() + Duration::from_secs(600);
        let cancelled = Arc::new(AtomicBool::new(false));
        let mut meter = Meter::new(later, cancelled.clone());
        let most = usize::try_from(limits::SEARCH_BYTES_MAX).unwrap();
        assert!(meter.visit() && meter.spend(most));
        assert!(!meter.spend(1));
        cancelled.store(true, Ordering::Relaxed);
        assert!(!meter.visit());
        assert_eq!(meter.stopped(), Some(Stopped::Bytes));
        let mut late = Meter::new(clock::now(), Arc::default());
        assert!(!late.visit());
        assert_eq!(late.stopped(), Some(Stopped::Time));
        let mut given_up = Meter::new(later, cancelled);
        let mut reader = Metered {
            inner: io::repeat(b'x'),
            meter: &mut given_up,
        };
        assert_eq!(reader.read(&mut [0; 10]).unwrap(), 0);
        assert_eq!(given_up.stopped(), Some(Stopped::Cancelled));
    }
}
