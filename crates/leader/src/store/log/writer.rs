//! The one writer of a log: lines that are waiting while the disk is busy share the next write
//! and the next sync.

use std::fmt;
use std::fs::File;
use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::Arc;

use protocol::event::EventLine;
use protocol::limits::LINE_BYTES_MAX;
use protocol::secret::Mask;
use tokio::sync::{mpsc, oneshot};

use crate::core::record::{Durability, Record};
use crate::store::log::error::LogError;
use crate::store::log::open::Observer;

/// Lines that share one write and one sync.
const GROUP_LINES_MAX: usize = 1_024;

/// One line on its way to the disk.
pub(super) struct Append {
    pub(super) record: Box<Record>,
    pub(super) ts: String,
    pub(super) done: oneshot::Sender<Result<u64, LogError>>,
}

/// What the writer needs of its file; a test stands in with a disk that is full.
pub(super) trait LogFile: Send {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()>;
    fn sync(&mut self) -> io::Result<()>;
    fn cut(&mut self, bytes: u64) -> io::Result<()>;
}

impl LogFile for File {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.write_all(bytes)
    }

    fn sync(&mut self) -> io::Result<()> {
        self.sync_data()
    }

    fn cut(&mut self, bytes: u64) -> io::Result<()> {
        self.set_len(bytes)
    }
}

/// The one writer of one log.
pub(super) struct Writer {
    file: Box<dyn LogFile>,
    path: PathBuf,
    observer: Observer,
    /// What no line may hold.
    mask: Mask,
    next_seq: u64,
    /// The length up to which every line is whole.
    good_bytes: u64,
    /// Whether some of it may not be on the disk.
    is_behind: bool,
    /// Why nothing can be written any more.
    broken: Option<LogError>,
}

impl fmt::Debug for Writer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Writer")
            .field("path", &self.path)
            .field("next_seq", &self.next_seq)
            .finish_non_exhaustive()
    }
}

/// A line of a group, written and not yet told.
struct Written {
    line: Arc<EventLine>,
    durability: Durability,
    done: oneshot::Sender<Result<u64, LogError>>,
}

impl Writer {
    /// A writer of `file`, which has `bytes` of whole lines.
    pub(super) fn new(
        file: Box<dyn LogFile>,
        path: PathBuf,
        (observer, mask): (Observer, Mask),
        next_seq: u64,
        bytes: u64,
    ) -> Self {
        Writer {
            file,
            path,
            observer,
            mask,
            next_seq,
            good_bytes: bytes,
            is_behind: true,
            broken: None,
        }
    }

    /// Writes until nobody can append any more.
    pub(super) fn run(mut self, mut waiting: mpsc::Receiver<Append>) {
        let mut group = Vec::new();
        while waiting.blocking_recv_many(&mut group, GROUP_LINES_MAX) > 0 {
            self.write_group(group.drain(..));
        }
        // The last lines may have asked for no sync of their own.
        if self.is_behind
            && let Err(error) = self.file.sync()
        {
            let path = self.path.display();
            tracing::warn!(%error, %path, "the last lines of the event log may be lost");
        }
    }

    /// Writes the lines of a group at once, syncs them at once, and tells who waits.
    pub(super) fn write_group(&mut self, group: impl Iterator<Item = Append>) {
        let mut bytes = Vec::new();
        let mut written = Vec::new();
        for Append { record, ts, done } in group {
            let seq = self.next_seq + written.len() as u64;
            let mut line = record.to_line(seq, ts);
            line.fields
                .values_mut()
                .for_each(|field| self.mask.json(field));
            match encode(&line) {
                Ok(text) => {
                    bytes.extend_from_slice(&text);
                    written.push(Written {
                        line: Arc::new(line),
                        durability: record.durability(),
                        done,
                    });
                }
                // Whoever waits may have gone; then nobody wants to know.
                Err(error) => drop(done.send(Err(error))),
            }
        }
        match self.put(&bytes, &written) {
            Ok(()) => {
                self.next_seq += written.len() as u64;
                for Written { line, done, .. } in written {
                    let seq = line.seq;
                    (self.observer)(line);
                    drop(done.send(Ok(seq)));
                }
            }
            Err(error) => {
                for Written { done, .. } in written {
                    drop(done.send(Err(error.clone())));
                }
            }
        }
    }

    fn put(&mut self, bytes: &[u8], written: &[Written]) -> Result<(), LogError> {
        if let Some(error) = &self.broken {
            return Err(error.clone());
        }
        if let Err(error) = self.file.append(bytes) {
            let error = LogError::io("write to", &self.path, error);
            // Part of it may be there: without the cut the next line would grow onto it.
            if let Err(cut) = self.file.cut(self.good_bytes) {
                self.broken = Some(LogError::io("take back a half line of", &self.path, cut));
            }
            return Err(error);
        }
        let synced = written
            .iter()
            .any(|line| line.durability == Durability::Synced);
        if synced && let Err(error) = self.file.sync() {
            // After a failed sync the kernel may have dropped what was not on the disk, and a
            // second try would succeed without it (fsync(2), ERRORS). Nothing is certain any more.
            let error = LogError::io("sync", &self.path, error);
            self.broken = Some(error.clone());
            return Err(error);
        }
        self.is_behind = !synced;
        self.good_bytes += bytes.len() as u64;
        Ok(())
    }
}

fn encode(line: &EventLine) -> Result<Vec<u8>, LogError> {
    let mut text = serde_json::to_vec(line).unwrap_or_default();
    if text.len() > LINE_BYTES_MAX {
        return Err(LogError::TooLong { bytes: text.len() });
    }
    text.push(b'\n');
    Ok(text)
}
