//! Waits for a process that holds a file, and holds it in its stead.

use std::fs::File;
use std::io;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

/// What came of waiting for a file's holder.
#[derive(Debug)]
pub enum Held {
    /// The file is held by this process now, until this is dropped.
    Ours(File),
    /// Its holder has not let go of it in time.
    Theirs,
}

/// Waits until nobody else holds `file` and holds it then (flock(2)), for at most `bound`. Blocks;
/// not for an async task.
///
/// # Errors
/// When the file can't be locked at all, as on a file system without locks.
pub fn wait_for(file: File, bound: Duration) -> io::Result<Held> {
    // Most files are held by nobody.
    match file.try_lock() {
        Ok(()) => return Ok(Held::Ours(file)),
        Err(std::fs::TryLockError::WouldBlock) => {}
        Err(std::fs::TryLockError::Error(error)) => return Err(error),
    }
    // The kernel wakes who waits for a lock, but knows no end of waiting. So a thread waits, and
    // where it comes too late it lets go of the file at once, since nobody takes its answer.
    let (sender, answer) = mpsc::channel();
    let waiting = std::thread::Builder::new().name("file-hold".to_owned());
    #[expect(
        clippy::disallowed_methods,
        reason = "flock has no bound of its own, and callers are no async tasks"
    )]
    waiting.spawn(move || drop(sender.send(file.lock().map(|()| file))))?;
    match answer.recv_timeout(bound) {
        Ok(locked) => locked.map(Held::Ours),
        Err(RecvTimeoutError::Timeout) => Ok(Held::Theirs),
        Err(RecvTimeoutError::Disconnected) => Err(io::Error::other("nobody waits for the file")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_free_file_is_ours_and_a_held_one_is_when_it_is_let_go_of() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("job.json");
        std::fs::write(&path, "{}").unwrap();
        let open = || File::open(&path).unwrap();
        let long = Duration::from_secs(20);
        let Held::Ours(first) = wait_for(open(), long).unwrap() else {
            panic!("nobody else held it");
        };
        let waited = wait_for(open(), Duration::from_millis(20)).unwrap();
        assert!(matches!(waited, Held::Theirs));
        std::thread::scope(|scope| {
            let second = scope.spawn(|| wait_for(open(), long).unwrap());
            drop(first);
            assert!(matches!(second.join().unwrap(), Held::Ours(_)));
        });
    }
}
