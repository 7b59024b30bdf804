//! Why a log or its lock can't be used.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use protocol::limits::LINE_BYTES_MAX;

/// Why the log can't be used.
#[derive(Debug, Clone, thiserror::Error)]
pub enum LogError {
    /// Another leader holds the run's folder.
    #[error("the run in `{}` belongs to a live leader ({holder})", .dir.display())]
    Held {
        /// The run's folder.
        dir: PathBuf,
        /// What that leader wrote of itself, such as its pid.
        holder: String,
    },
    /// The system refused.
    #[error("failed to {what} `{}`", .path.display())]
    Io {
        /// What was tried.
        what: &'static str,
        /// On what.
        path: PathBuf,
        /// Why not; `ENOSPC` when the disk is full.
        #[source]
        source: Arc<io::Error>,
    },
    /// A record is longer than a line may be.
    #[error("a record of {bytes} bytes is longer than the {LINE_BYTES_MAX} of a line")]
    TooLong {
        /// Its length.
        bytes: usize,
    },
    /// The writer has gone: the log is closed.
    #[error("the event log is closed")]
    Closed,
}

impl LogError {
    pub(in crate::store) fn io(what: &'static str, path: &Path, source: io::Error) -> Self {
        LogError::Io {
            what,
            path: path.to_owned(),
            source: Arc::new(source),
        }
    }

    /// Whether the disk is full.
    pub fn is_disk_full(&self) -> bool {
        matches!(self, LogError::Io { source, .. } if source.kind() == io::ErrorKind::StorageFull)
    }
}
