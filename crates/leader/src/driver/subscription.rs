//! A bounded stream of events: first what the log holds, then what happens, with an explicit gap
//! wherever the reader was too slow or history is gone.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::PathBuf;
use std::sync::Arc;

use protocol::event::EventLine;
use protocol::limits::LINE_BYTES_MAX;
use tokio::sync::broadcast;
use tokio::task::JoinHandle;

/// Live events that are kept for a reader that is behind; beyond that it gets a gap.
pub const EVENTS_BEHIND_MAX: usize = 4_096;
/// Events that are read from the log in one go.
const HISTORY_BATCH_LINES: usize = 256;

/// One thing that a subscriber gets.
#[derive(Debug, Clone, PartialEq)]
pub enum SubscriptionItem {
    /// An event.
    Event(EventLine),
    /// Events of this range, both ends included, exist no more or came too fast.
    Gap {
        /// The first one missed.
        from_seq: u64,
        /// The last one missed.
        to_seq: u64,
    },
}

/// A stream of events in the order of their `seq`, each at most once.
#[derive(Debug)]
pub struct Subscription {
    live: broadcast::Receiver<Arc<EventLine>>,
    history: Option<History>,
    reading: Option<JoinHandle<(History, Vec<EventLine>)>>,
    ready: VecDeque<EventLine>,
    /// The seq that is due next; none until the first event when only live ones are wanted.
    due: Option<u64>,
}

impl Subscription {
    /// A stream of what happens from now on.
    pub(crate) fn live(live: broadcast::Receiver<Arc<EventLine>>) -> Self {
        Subscription {
            live,
            history: None,
            reading: None,
            ready: VecDeque::new(),
            due: None,
        }
    }

    /// A stream of all events after `after_seq`: those up to now are read from the log at `path`.
    pub(crate) fn from_log(
        live: broadcast::Receiver<Arc<EventLine>>,
        path: PathBuf,
        after_seq: u64,
    ) -> Self {
        Subscription {
            live,
            history: Some(History {
                path,
                reader: None,
                after_seq,
                ended: false,
            }),
            reading: None,
            ready: VecDeque::new(),
            due: Some(after_seq.saturating_add(1)),
        }
    }

    /// The next item; none once the leader has ended. Cancel-safe: no item is lost when the
    /// returned future is dropped.
    pub async fn next(&mut self) -> Option<SubscriptionItem> {
        loop {
            if let Some(line) = self.ready.pop_front() {
                if let Some(item) = self.take(line) {
                    return Some(item);
                }
                continue;
            }
            if self.fill_from_log().await {
                continue;
            }
            match self.live.recv().await {
                Ok(line) => self.ready.push_back(Arc::unwrap_or_clone(line)),
                // The seq of the next event shows how much was missed.
                Err(broadcast::error::RecvError::Lagged(_)) => {}
                Err(broadcast::error::RecvError::Closed) => return None,
            }
        }
    }

    /// Decides what a line means: it is due, it was told before, or there is a gap before it.
    fn take(&mut self, line: EventLine) -> Option<SubscriptionItem> {
        let due = self.due.unwrap_or(line.seq);
        if line.seq < due {
            return None;
        }
        if line.seq > due {
            let gap = SubscriptionItem::Gap {
                from_seq: due,
                to_seq: line.seq - 1,
            };
            self.due = Some(line.seq);
            self.ready.push_front(line);
            return Some(gap);
        }
        self.due = Some(line.seq.saturating_add(1));
        Some(SubscriptionItem::Event(line))
    }

    /// Reads the next batch of the log; false when there is no more history to read.
    async fn fill_from_log(&mut self) -> bool {
        if self.reading.is_none() {
            let Some(mut history) = self.history.take().filter(|history| !history.ended) else {
                return false;
            };
            self.reading = Some(tokio::task::spawn_blocking(move || {
                let lines = history.read_batch();
                (history, lines)
            }));
        }
        let Some(reading) = &mut self.reading else {
            return false;
        };
        let read = reading.await;
        self.reading = None;
        match read {
            Ok((history, lines)) => {
                self.ready.extend(lines);
                self.history = Some(history);
                true
            }
            // The runtime is going down: what comes live, if anything, is all there is.
            Err(_) => false,
        }
    }
}

/// The part of a stream that lies in the log.
#[derive(Debug)]
struct History {
    path: PathBuf,
    reader: Option<BufReader<File>>,
    after_seq: u64,
    ended: bool,
}

impl History {
    /// The next lines after `after_seq`. A log that can't be read is history that is gone, which
    /// shows as a gap. A torn last line is still being written and comes live.
    fn read_batch(&mut self) -> Vec<EventLine> {
        let mut lines = Vec::new();
        let mut reader = match self.reader.take() {
            Some(reader) => reader,
            None => match File::open(&self.path) {
                Ok(file) => BufReader::new(file),
                Err(_) => {
                    self.ended = true;
                    return lines;
                }
            },
        };
        while lines.len() < HISTORY_BATCH_LINES {
            let mut raw = Vec::new();
            let most = LINE_BYTES_MAX as u64 + 1;
            match reader.by_ref().take(most).read_until(b'\n', &mut raw) {
                Ok(1..) => {}
                Ok(0) | Err(_) => {
                    self.ended = true;
                    return lines;
                }
            }
            if let Ok(line) = serde_json::from_slice::<EventLine>(&raw)
                && line.seq > self.after_seq
            {
                lines.push(line);
            }
        }
        self.reader = Some(reader);
        lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn event(seq: u64) -> EventLine {
        EventLine {
            seq,
            ts: "2026-03-10T12:00:00Z".to_owned(),
            event: "e".to_owned(),
            fields: serde_json::Map::new(),
        }
    }

    async fn all(mut subscription: Subscription) -> Vec<SubscriptionItem> {
        let mut items = Vec::new();
        while let Some(item) = subscription.next().await {
            items.push(item);
        }
        items
    }

    #[tokio::test]
    async fn history_and_live_join_without_a_seam() {
        let mut log = tempfile::NamedTempFile::new().unwrap();
        for seq in 1..=600 {
            writeln!(log, "{}", serde_json::to_string(&event(seq)).unwrap()).unwrap();
        }
        write!(log, "{{\"seq\":601,\"ts\"").unwrap();
        let (sender, live) = broadcast::channel(8);
        // The last of the history come a second time, live: they are told once.
        for seq in 599..=602 {
            sender.send(Arc::new(event(seq))).unwrap();
        }
        drop(sender);
        let items = all(Subscription::from_log(live, log.path().to_owned(), 3)).await;
        let expected: Vec<_> = (4..=602)
            .map(|seq| SubscriptionItem::Event(event(seq)))
            .collect();
        assert_eq!(items, expected);
    }

    #[tokio::test]
    async fn a_reader_that_is_too_slow_is_told_what_it_missed() {
        let (sender, live) = broadcast::channel(4);
        let mut subscription = Subscription::live(live);
        sender.send(Arc::new(event(1))).unwrap();
        let first = subscription.next().await;
        assert_eq!(first, Some(SubscriptionItem::Event(event(1))));
        for seq in 2..=10 {
            sender.send(Arc::new(event(seq))).unwrap();
        }
        drop(sender);
        let items = all(subscription).await;
        let mut expected = vec![SubscriptionItem::Gap {
            from_seq: 2,
            to_seq: 6,
        }];
        expected.extend((7..=10).map(|seq| SubscriptionItem::Event(event(seq))));
        assert_eq!(items, expected);
    }

    #[tokio::test]
    async fn history_that_is_gone_is_a_gap() {
        let (sender, live) = broadcast::channel(4);
        sender.send(Arc::new(event(5))).unwrap();
        drop(sender);
        let items = all(Subscription::from_log(live, "/nonexistent".into(), 2)).await;
        let expected = vec![
            SubscriptionItem::Gap {
                from_seq: 3,
                to_seq: 4,
            },
            SubscriptionItem::Event(event(5)),
        ];
        assert_eq!(items, expected);
    }
}
