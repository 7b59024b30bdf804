//! The event log as the driver uses it: which records are on the disk, and who listens.

use std::collections::VecDeque;
use std::fmt;
use std::future::Future;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;

use protocol::event::EventLine;
use protocol::secret::Mask;
use tokio::sync::broadcast;

use crate::core::record::{Durability, Record};
use crate::driver::subscription::{EVENTS_BEHIND_MAX, Subscription};
use crate::os::clock;
use crate::store::log::{self, LOG_FILE, LogError, RunLock};

type Written = Pin<Box<dyn Future<Output = Result<u64, LogError>> + Send>>;

/// The log of a running conversation.
pub(super) struct EventLog {
    log: Option<log::EventLog>,
    path: PathBuf,
    events: broadcast::Sender<Arc<EventLine>>,
    /// Records in the order of their appending, counted from 1; not the numbers of the lines,
    /// which the writer gives.
    appended: u64,
    /// Up to this one all records are where they must be.
    durable: u64,
    /// Records whose way to the disk is waited for.
    waiting: VecDeque<(u64, Written)>,
    failure: Option<String>,
    /// Whether nobody has asked for the failure yet.
    failure_is_news: bool,
}

impl fmt::Debug for EventLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EventLog")
            .field("path", &self.path)
            .field("appended", &self.appended)
            .field("durable", &self.durable)
            .field("failure", &self.failure)
            .finish_non_exhaustive()
    }
}

impl EventLog {
    /// Takes the run's folder and opens its log, in which nothing stands that `mask` hides.
    ///
    /// # Errors
    /// When another leader holds the folder, the log can't be used, or it is not a new one.
    pub(super) fn open(run_dir: PathBuf, mask: Mask) -> Result<Self, String> {
        let words = |error: LogError| match std::error::Error::source(&error) {
            Some(source) => format!("{error}: {source}"),
            None => error.to_string(),
        };
        let holder = format!("pid {}", std::process::id());
        let lock = RunLock::take(&run_dir, &holder).map_err(words)?;
        let (events, _) = broadcast::channel(EVENTS_BEHIND_MAX);
        let observer = {
            let events = events.clone();
            // Without a subscriber nobody is told, which is no failure.
            Box::new(move |line| drop(events.send(line)))
        };
        let opened = log::EventLog::open(lock, observer, mask).map_err(words)?;
        if opened.found.last_seq > 0 {
            return Err("the conversation was run before".to_owned());
        }
        Ok(EventLog {
            log: Some(opened.log),
            path: run_dir.join(LOG_FILE),
            events,
            appended: 0,
            durable: 0,
            waiting: VecDeque::new(),
            failure: None,
            failure_is_news: false,
        })
    }

    /// Hands a record to the writer and gives its ordinal, for [`EventLog::durable`].
    pub(super) async fn append(&mut self, record: Box<Record>) -> u64 {
        self.appended += 1;
        let durability = record.durability();
        let appended = match &self.log {
            Some(log) => log.append(record, clock::timestamp()).await,
            None => Err(LogError::Closed),
        };
        match (appended, durability) {
            (Ok(pending), Durability::Synced) => {
                self.waiting
                    .push_back((self.appended, Box::pin(pending.done())));
            }
            // It reaches the disk with the next that is synced.
            (Ok(_), Durability::Lazy) => {}
            (Err(error), Durability::Synced | Durability::Lazy) => self.failed(&error),
        }
        if self.waiting.is_empty() {
            self.durable = self.appended;
        }
        self.appended
    }

    /// Up to which ordinal effects may be carried out.
    pub(super) fn durable(&self) -> u64 {
        self.durable
    }

    /// Whether a record is on its way to the disk.
    pub(super) fn is_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Waits for the next record to be on the disk. A record that could not be written holds
    /// nothing back: its effects are carried out, for an agent must be stopped and a caller
    /// answered also on a full disk; but no new agent is started. Cancel-safe.
    pub(super) async fn progress(&mut self) {
        let Some((ordinal, written)) = self.waiting.front_mut() else {
            return std::future::pending().await;
        };
        let ordinal = *ordinal;
        let written = written.await;
        self.waiting.pop_front();
        if let Err(error) = written {
            self.failed(&error);
        }
        self.durable = match self.waiting.front() {
            Some(_) => ordinal,
            None => self.appended,
        };
    }

    fn failed(&mut self, error: &LogError) {
        let words = match std::error::Error::source(error) {
            Some(source) => format!("{error}: {source}"),
            None => error.to_string(),
        };
        if self.failure.is_none() {
            tracing::error!("the event log can't be written: {words}; all agents are stopped");
            self.failure_is_news = true;
            self.failure = Some(words);
        }
    }

    /// Whether a first record was lost since the last call.
    pub(super) fn has_just_failed(&mut self) -> bool {
        std::mem::take(&mut self.failure_is_news)
    }

    /// Why records are lost, once one was.
    pub(super) fn failure(&self) -> Option<&str> {
        self.failure.as_deref()
    }

    /// The events after `after_seq`, or those from now on.
    pub(super) fn subscribe(&self, after_seq: Option<u64>) -> Subscription {
        // Lines are told after they are written, so that whatever is not told to this receiver
        // can be read.
        let live = self.events.subscribe();
        match after_seq {
            None => Subscription::live(live),
            Some(after_seq) => Subscription::from_log(live, self.path.clone(), after_seq),
        }
    }

    /// Writes what waits and lets go of the run's folder.
    pub(super) async fn close(&mut self) {
        if let Some(log) = self.log.take() {
            let closing = tokio::task::spawn_blocking(move || log.close());
            // It can only fail by a panic of the writer, which has said so.
            drop(closing.await);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::driver::subscription::SubscriptionItem;
    use protocol::status::StopReason;

    fn lazy() -> Box<Record> {
        Box::new(Record::RunStopping {
            reason: StopReason::LeaderStopped,
        })
    }

    fn synced() -> Box<Record> {
        Box::new(Record::RunEnded {})
    }

    #[tokio::test]
    async fn effects_wait_for_a_synced_record_and_not_for_a_lazy_one() {
        let place = tempfile::tempdir().unwrap();
        let mut log = EventLog::open(place.path().to_path_buf(), Mask::default()).unwrap();
        assert_eq!(log.append(lazy()).await, 1);
        assert_eq!((log.durable(), log.is_waiting()), (1, false));
        assert_eq!(log.append(synced()).await, 2);
        assert_eq!(log.append(lazy()).await, 3);
        assert_eq!((log.durable(), log.is_waiting()), (1, true));
        log.progress().await;
        assert_eq!((log.durable(), log.is_waiting()), (3, false));
        let mut events = log.subscribe(Some(1));
        let next = events.next().await;
        assert!(
            matches!(&next, Some(SubscriptionItem::Event(line)) if line.seq == 2),
            "{next:?}"
        );
        log.close().await;
        assert!(EventLog::open(place.path().to_path_buf(), Mask::default()).is_err());
    }

    #[tokio::test]
    async fn a_log_that_fails_holds_nothing_back_and_says_so() {
        let place = tempfile::tempdir().unwrap();
        let mut log = EventLog::open(place.path().to_path_buf(), Mask::default()).unwrap();
        assert_eq!(log.failure(), None);
        log.close().await;
        assert_eq!(log.append(synced()).await, 1);
        assert_eq!((log.durable(), log.is_waiting()), (1, false));
        assert_eq!(log.failure(), Some("the event log is closed"));
    }
}
