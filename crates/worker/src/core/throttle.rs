//! Lets through so many a second of a kind of news whose latest word is all that counts.

/// Holds back news that comes too soon; the latest is kept and never dropped.
#[derive(Debug)]
pub struct Throttle<T> {
    interval_ms: u64,
    last_ms: Option<u64>,
    waiting: Option<T>,
}

impl<T> Throttle<T> {
    /// Lets at most `per_second` through in a second, evenly.
    pub fn per_second(per_second: u32) -> Self {
        Throttle {
            interval_ms: 1_000_u64.div_ceil(u64::from(per_second.max(1))),
            last_ms: None,
            waiting: None,
        }
    }

    /// Takes news; gives it back when it may go out now, and keeps it otherwise.
    pub fn offer(&mut self, now_ms: u64, news: T) -> Option<T> {
        self.waiting = Some(news);
        self.take_due(now_ms)
    }

    /// When the news that waits may go out; none when none waits.
    pub fn due_ms(&self) -> Option<u64> {
        self.waiting.as_ref()?;
        Some(
            self.last_ms
                .map_or(0, |last| last.saturating_add(self.interval_ms)),
        )
    }

    /// The news that waits, if its time has come.
    pub fn take_due(&mut self, now_ms: u64) -> Option<T> {
        if self.due_ms()? > now_ms {
            return None;
        }
        self.last_ms = Some(now_ms);
        self.waiting.take()
    }

    /// The news that waits, whatever the time: the last one before the end.
    pub fn take_last(&mut self) -> Option<T> {
        self.waiting.take()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn at_most_so_many_a_second_and_the_last_always() {
        let mut throttle = Throttle::per_second(5);
        let mut sent = Vec::new();
        for now_ms in 0..1_000 {
            sent.extend(throttle.take_due(now_ms));
            sent.extend(throttle.offer(now_ms, now_ms));
        }
        assert_eq!(sent, [0, 199, 399, 599, 799]);
        assert_eq!(throttle.due_ms(), Some(1_000));
        assert_eq!(throttle.take_last(), Some(999));
        assert_eq!(throttle.due_ms(), None);
        assert_eq!(throttle.take_due(5_000), None);
    }
}
