//! Tells that something below a directory has been made or written, so that nobody looks again
//! and again.

use std::io;
use std::os::fd::OwnedFd;
use std::path::{Component, Path};

use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use crate::os::files::Dir;

/// A watch over one directory and the way to it, good for one change.
///
/// It is good for one because every change may be the one that makes or replaces a directory on
/// the way, and with it what must be watched: the caller sets a new one, looks, then waits for it.
/// In that order no change is missed, however fast they come, and many of them are one.
#[derive(Debug)]
pub struct Growth {
    changed: AsyncFd<OwnedFd>,
}

impl Growth {
    /// Watches the directory `path` below `start`, as far as the way to it exists. No link below
    /// `start` is followed. Must be called inside a runtime.
    ///
    /// # Errors
    /// When `start` can't be opened, something on the way is no directory, `path` is not made of
    /// plain names, or the system has no watch left (`EMFILE`, `ENOSPC`; see inotify(7)).
    pub fn watch(start: &Path, path: &Path) -> io::Result<Growth> {
        let inotify = Inotify::init(InitFlags::IN_CLOEXEC | InitFlags::IN_NONBLOCK)?;
        // Each directory is watched before the next is looked for, so that one made in between
        // is a change.
        let made = AddWatchFlags::IN_CREATE | AddWatchFlags::IN_MOVED_TO;
        let mut dir = Dir::open(start)?;
        inotify.add_watch(&dir.path(), made)?;
        let mut parts = path.components().peekable();
        while let Some(part) = parts.next() {
            let Component::Normal(name) = part else {
                return Err(io::Error::new(
                    io::ErrorKind::InvalidInput,
                    format!("`{}` is not made of plain names", path.display()),
                ));
            };
            dir = match dir.open_dir(Path::new(name)) {
                Ok(deeper) => deeper,
                Err(error) if error.kind() == io::ErrorKind::NotFound => break,
                Err(error) => return Err(error),
            };
            let what = match parts.peek() {
                Some(_) => made,
                None => made | AddWatchFlags::IN_MODIFY,
            };
            inotify.add_watch(&dir.path(), what)?;
        }
        let inotify = OwnedFd::from(inotify);
        // SAFETY: the descriptor is owned by the registration, and so open and the same for as
        // long as it lives.
        let changed = unsafe { AsyncFd::register_with_interest(inotify, Interest::READABLE) }?;
        Ok(Growth { changed })
    }

    /// Waits for the first change since it was set. Dropping the wait loses nothing.
    ///
    /// # Errors
    /// When the runtime is shutting down.
    pub async fn changed(&self) -> io::Result<()> {
        // That there is something to read is all that is asked; what it is, a look tells.
        self.changed.readable().await.map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{self, File};
    use std::io::Write;
    use std::os::fd::AsFd;
    use std::time::Duration;

    use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

    const BUDGET: Duration = Duration::from_secs(20);

    /// Whether nothing has changed so far, as the kernel tells it at once.
    fn is_still(growth: &Growth) -> bool {
        let mut fds = [PollFd::new(
            growth.changed.get_ref().as_fd(),
            PollFlags::POLLIN,
        )];
        poll(&mut fds, PollTimeout::ZERO).unwrap() == 0
    }

    async fn changes(growth: &Growth) {
        tokio::time::timeout(BUDGET, growth.changed())
            .await
            .expect("a change in time")
            .unwrap();
    }

    #[tokio::test]
    async fn a_file_that_is_made_or_grows_is_a_change() {
        let place = tempfile::tempdir().unwrap();
        let dir = Path::new("a/b");
        fs::create_dir_all(place.path().join(dir)).unwrap();
        let growth = Growth::watch(place.path(), dir).unwrap();
        assert!(is_still(&growth));
        let mut file = File::create(place.path().join("a/b/file")).unwrap();
        changes(&growth).await;
        let growth = Growth::watch(place.path(), dir).unwrap();
        assert!(is_still(&growth));
        file.write_all(b"more").unwrap();
        changes(&growth).await;
    }

    #[tokio::test]
    async fn the_way_may_be_made_later_and_the_directory_replaced() {
        let place = tempfile::tempdir().unwrap();
        let at = |path: &str| place.path().join(path);
        for made in ["a", "a/b"] {
            let growth = Growth::watch(place.path(), Path::new("a/b")).unwrap();
            assert!(is_still(&growth), "{made}");
            fs::create_dir(at(made)).unwrap();
            changes(&growth).await;
        }
        fs::create_dir(at("other")).unwrap();
        let growth = Growth::watch(place.path(), Path::new("a/b")).unwrap();
        fs::remove_dir(at("a/b")).unwrap();
        fs::rename(at("other"), at("a/b")).unwrap();
        changes(&growth).await;
    }

    #[tokio::test]
    async fn what_happens_beside_it_is_no_change() {
        let place = tempfile::tempdir().unwrap();
        fs::create_dir_all(place.path().join("a/b")).unwrap();
        let mut beside = File::create(place.path().join("a/beside")).unwrap();
        let growth = Growth::watch(place.path(), Path::new("a/b")).unwrap();
        beside.write_all(b"more").unwrap();
        assert!(is_still(&growth));
    }

    #[tokio::test]
    async fn no_link_is_followed() {
        let place = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink("/tmp", place.path().join("a")).unwrap();
        assert!(Growth::watch(place.path(), Path::new("a")).is_err());
        assert!(Growth::watch(place.path(), Path::new("../a")).is_err());
    }
}
