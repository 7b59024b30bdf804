//! Opens a log to be appended to, and hands records to its one writer.
//!
//! Whoever appends is told when the line is written, and on the disk where the record asks for
//! that.

use std::fs::OpenOptions;
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::JoinHandle;

use protocol::event::EventLine;
use protocol::secret::Mask;
use tokio::sync::{mpsc, oneshot};

use crate::core::record::Record;
use crate::store::log::error::LogError;
use crate::store::log::lock::RunLock;
use crate::store::log::mend::{mend, sync_dir};
use crate::store::log::read::{LOG_FILE, ReadLog, read};
use crate::store::log::writer::{Append, Writer};

/// Appends that wait for the writer; more wait for room.
pub const APPENDS_WAITING_MAX: usize = 4_096;

/// Gets each line in order, once it is written.
pub type Observer = Box<dyn FnMut(Arc<EventLine>) + Send>;

/// A log that was opened to be appended to.
#[derive(Debug)]
pub struct Opened {
    /// The log.
    pub log: EventLog,
    /// What was in it before.
    pub found: ReadLog,
    /// Where the torn end of it was put, if there was one.
    pub quarantined: Option<PathBuf>,
}

/// The way to the writer of one log. It is closed when this is dropped or [`EventLog::close`]d.
#[derive(Debug)]
pub struct EventLog {
    appends: mpsc::Sender<Append>,
    writer: Option<JoinHandle<()>>,
}

/// An append that is under way.
#[derive(Debug)]
pub struct Pending {
    done: oneshot::Receiver<Result<u64, LogError>>,
}

impl Pending {
    /// Waits until the line is written, and on the disk where its record asks for that; gives its
    /// number. Dropping the future gives up the word of it, not the append.
    ///
    /// # Errors
    /// When it could not be written: nothing of it is in the log.
    pub async fn done(self) -> Result<u64, LogError> {
        self.done.await.unwrap_or(Err(LogError::Closed))
    }

    /// The same for a thread without a runtime.
    ///
    /// # Errors
    /// As [`Pending::done`].
    ///
    /// # Panics
    /// When called inside a runtime, which it would block.
    pub fn wait(self) -> Result<u64, LogError> {
        self.done.blocking_recv().unwrap_or(Err(LogError::Closed))
    }
}

impl EventLog {
    /// Opens the log in the folder that `lock` holds; the lock is kept until the log is closed. A
    /// torn last line is moved to [`TORN_FILE`](super::TORN_FILE), so that the next one stands alone.
    /// Neither the file nor the observer gets what `mask` hides.
    ///
    /// # Errors
    /// When the log can't be read, mended or written.
    #[expect(
        clippy::disallowed_methods,
        reason = "the one writer of the log waits for the disk on a thread of its own"
    )]
    pub fn open(lock: RunLock, observer: Observer, mask: Mask) -> Result<Opened, LogError> {
        let dir = lock.dir().to_owned();
        let path = dir.join(LOG_FILE);
        let mut file = OpenOptions::new()
            .read(true)
            .append(true)
            .create(true)
            .mode(0o600)
            .custom_flags(libc::O_NOFOLLOW)
            .open(&path)
            .map_err(|error| LogError::io("open", &path, error))?;
        let found = read(&dir)?;
        let quarantined = mend(&mut file, &path, &dir, &found)?;
        if let Some(aside) = &quarantined {
            tracing::warn!(
                log = %path.display(),
                bytes = found.torn_bytes,
                "the last line of an event log was torn and is put aside in {}",
                aside.display()
            );
        }
        sync_dir(&dir)?;
        let bytes = file
            .metadata()
            .map_err(|error| LogError::io("look at", &path, error))?
            .len();
        let (appends, waiting) = mpsc::channel(APPENDS_WAITING_MAX);
        let next_seq = found.last_seq + 1;
        let writer = Writer::new(
            Box::new(file),
            path.clone(),
            (observer, mask),
            next_seq,
            bytes,
        );
        let writer = std::thread::Builder::new()
            .name("event-log".to_owned())
            .spawn(move || {
                writer.run(waiting);
                // Let go of only now: whoever takes it next finds every line.
                drop(lock);
            })
            .map_err(|error| LogError::io("start the writer of", &path, error))?;
        Ok(Opened {
            log: EventLog {
                appends,
                writer: Some(writer),
            },
            found,
            quarantined,
        })
    }

    /// Hands a record to the writer, in order of the calls; `ts` is RFC 3339, UTC. Waits only for
    /// room in the line, not for the disk.
    ///
    /// # Errors
    /// When the log is closed.
    pub async fn append(&self, record: Box<Record>, ts: String) -> Result<Pending, LogError> {
        let (done, waiting) = oneshot::channel();
        self.appends
            .send(Append { record, ts, done })
            .await
            .map_err(|_| LogError::Closed)?;
        Ok(Pending { done: waiting })
    }

    /// The same for a thread without a runtime.
    ///
    /// # Errors
    /// When the log is closed.
    ///
    /// # Panics
    /// When called inside a runtime, which it would block.
    pub fn append_blocking(&self, record: Box<Record>, ts: String) -> Result<Pending, LogError> {
        let (done, waiting) = oneshot::channel();
        self.appends
            .blocking_send(Append { record, ts, done })
            .map_err(|_| LogError::Closed)?;
        Ok(Pending { done: waiting })
    }

    /// Writes and syncs what waits, and lets go of the lock; returns when that is done. Blocks the
    /// thread for as long as the disk takes.
    pub fn close(mut self) {
        self.stop();
    }

    pub(super) fn stop(&mut self) {
        // The writer ends when nobody can send any more and the line is empty.
        let (nobody, _) = mpsc::channel(1);
        self.appends = nobody;
        if let Some(writer) = self.writer.take() {
            // A writer that panicked has said so; its appends were answered with `Closed`.
            drop(writer.join());
        }
    }
}

impl Drop for EventLog {
    fn drop(&mut self) {
        self.stop();
    }
}
