//! The lock of a run's folder: one live leader a run.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::os::hold;
use crate::store::log::error::LogError;

/// The lock's name in a run's folder.
pub const LOCK_FILE: &str = "lock";
/// Times that somebody who only looks may be in the way of the lock.
const LOOKERS_WAITED_FOR_MAX: u32 = 100_000;

/// The leader's hold on a run's folder, for as long as it lives; the kernel lets go of it at the
/// holder's death, however it dies.
#[derive(Debug)]
pub struct RunLock {
    dir: PathBuf,
    // Opened close-on-exec, as all files of the standard library are: no child keeps the lock.
    file: File,
}

impl RunLock {
    /// Takes the lock of the run's folder `dir`, which must exist. `holder` is what an error of
    /// somebody else will name, such as `pid 4711`.
    ///
    /// # Errors
    /// [`LogError::Held`] when a live leader has it; otherwise when the file can't be made.
    pub fn take(dir: &Path, holder: &str) -> Result<Self, LogError> {
        let path = dir.join(LOCK_FILE);
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .custom_flags(libc::O_NOFOLLOW)
            .open(&path)
            .map_err(|error| LogError::io("open", &path, error))?;
        if !lock_exclusively(&file).map_err(|error| LogError::io("lock", &path, error))? {
            return Err(LogError::Held {
                dir: dir.to_owned(),
                holder: who_holds(&mut file),
            });
        }
        file.set_len(0)
            .and_then(|()| file.seek(SeekFrom::Start(0)))
            .and_then(|_| file.write_all(holder.as_bytes()))
            .map_err(|error| LogError::io("write", &path, error))?;
        Ok(RunLock {
            dir: dir.to_owned(),
            file,
        })
    }

    /// Whether a live leader holds the run's folder. A folder without a lock file is held by
    /// nobody.
    ///
    /// # Errors
    /// When the file is there and can't be looked at.
    pub fn is_held(dir: &Path) -> Result<bool, LogError> {
        let path = dir.join(LOCK_FILE);
        let file = match File::open(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
            Err(error) => return Err(LogError::io("open", &path, error)),
        };
        // A shared lock, so that two who look do not take each other for the leader.
        match file.try_lock_shared() {
            Ok(()) => {
                let freed = file.unlock();
                freed.map_err(|error| LogError::io("unlock", &path, error))?;
                Ok(false)
            }
            Err(TryLockError::WouldBlock) => Ok(true),
            Err(TryLockError::Error(error)) => Err(LogError::io("lock", &path, error)),
        }
    }

    /// Returns once no live leader holds the run's folder. Blocks for as long as that takes; not
    /// for an async task.
    ///
    /// # Errors
    /// When the lock's file is there and can't be looked at.
    pub fn wait_until_free(dir: &Path) -> Result<(), LogError> {
        let path = dir.join(LOCK_FILE);
        let file = match File::open(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(LogError::io("open", &path, error)),
        };
        file.lock_shared()
            .and_then(|()| file.unlock())
            .map_err(|error| LogError::io("lock", &path, error))
    }

    /// As [`RunLock::wait_until_free`], for at most `bound`; whether it was free then is not told.
    ///
    /// # Errors
    /// As [`RunLock::wait_until_free`].
    pub fn wait_until_free_within(dir: &Path, bound: Duration) -> Result<(), LogError> {
        let path = dir.join(LOCK_FILE);
        let file = match File::open(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(LogError::io("open", &path, error)),
        };
        hold::wait_for(file, bound)
            .map(drop)
            .map_err(|error| LogError::io("lock", &path, error))
    }

    /// The folder that it holds.
    pub fn dir(&self) -> &Path {
        &self.dir
    }
}

impl Drop for RunLock {
    fn drop(&mut self) {
        // Closing would not do: a child that is between its fork and its exec has a copy of the
        // descriptor, and the lock lives as long as the last copy (flock(2)).
        if let Err(error) = self.file.unlock() {
            let dir = self.dir.display();
            tracing::warn!(%error, %dir, "the lock of a run is let go of late");
        }
    }
}

/// Takes the exclusive lock; false when a live leader has it. Who only looks holds a shared lock
/// for a moment, and is not taken for a leader.
fn lock_exclusively(file: &File) -> io::Result<bool> {
    for _ in 0..LOOKERS_WAITED_FOR_MAX {
        match file.try_lock() {
            Ok(()) => return Ok(true),
            Err(TryLockError::WouldBlock) => {}
            Err(TryLockError::Error(error)) => return Err(error),
        }
        match file.try_lock_shared() {
            Ok(()) => file.unlock()?,
            Err(TryLockError::WouldBlock) => return Ok(false),
            Err(TryLockError::Error(error)) => return Err(error),
        }
        std::thread::yield_now();
    }
    Ok(false)
}

fn who_holds(file: &mut File) -> String {
    const HOLDER_BYTES_MAX: u64 = 200;
    let mut text = Vec::new();
    // What can't be read is not worth an error of its own.
    let read = file.take(HOLDER_BYTES_MAX).read_to_end(&mut text);
    let text = String::from_utf8_lossy(&text);
    match (read, text.trim()) {
        (Ok(_), text) if !text.is_empty() => text.to_owned(),
        _ => "unknown process".to_owned(),
    }
}
