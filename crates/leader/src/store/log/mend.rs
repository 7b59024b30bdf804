//! Mends the end of a log that a crash has torn.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use crate::store::log::error::LogError;
use crate::store::log::read::ReadLog;

/// Where the torn end of a log is kept, beside it.
pub const TORN_FILE: &str = "events.torn";

/// Puts a log's torn end aside, or gives its last line the newline that it lacks.
pub(super) fn mend(
    file: &mut File,
    path: &Path,
    dir: &Path,
    found: &ReadLog,
) -> Result<Option<PathBuf>, LogError> {
    if found.torn_bytes == 0 {
        return Ok(None);
    }
    if found.lacks_newline {
        file.write_all(b"\n")
            .and_then(|()| file.sync_data())
            .map_err(|error| LogError::io("mend", path, error))?;
        return Ok(None);
    }
    let torn_path = dir.join(TORN_FILE);
    let aside = |error| LogError::io("move the torn end of the event log to", &torn_path, error);
    let mut torn = OpenOptions::new()
        .append(true)
        .create(true)
        .mode(0o600)
        .custom_flags(libc::O_NOFOLLOW)
        .open(&torn_path)
        .map_err(aside)?;
    file.seek(SeekFrom::Start(found.whole_bytes))
        .and_then(|_| io::copy(&mut file.take(found.torn_bytes), &mut torn))
        .and_then(|_| torn.write_all(b"\n"))
        .and_then(|()| torn.sync_all())
        .map_err(aside)?;
    // Only now: a crash between the two leaves the torn end in both places, never in neither.
    file.set_len(found.whole_bytes)
        .and_then(|()| file.sync_data())
        .map_err(|error| LogError::io("mend", path, error))?;
    Ok(Some(torn_path))
}

/// Makes the names in a folder last; without it a crash may lose a new file that was itself
/// synced.
pub(super) fn sync_dir(dir: &Path) -> Result<(), LogError> {
    fs::File::open(dir)
        .and_then(|dir| dir.sync_all())
        .map_err(|error| LogError::io("sync", dir, error))
}
