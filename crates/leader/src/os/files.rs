//! Files under a directory that is held by descriptor, so that nothing an agent does to names can
//! send the leader elsewhere: no link is followed, no FIFO is waited for.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileTypeExt;
use std::path::{Component, Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, openat, renameat};
use nix::sys::stat::{FileStat, Mode, SFlag, fstat, fstatat, mkdirat};
use nix::unistd::{UnlinkatFlags, unlinkat};

const DIR_MODE: Mode = Mode::from_bits_truncate(0o777);
const FILE_MODE: Mode = Mode::from_bits_truncate(0o666);

/// What a name stands for, without following it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Nothing.
    Missing,
    /// A regular file.
    File,
    /// A directory.
    Dir,
    /// A symbolic link.
    Link,
    /// A FIFO, socket or device.
    Special,
}

impl Kind {
    /// In words, for messages.
    pub fn words(self) -> &'static str {
        match self {
            Kind::Missing => "missing",
            Kind::File => "a file",
            Kind::Dir => "a directory",
            Kind::Link => "a symbolic link",
            Kind::Special => "a FIFO, socket or device",
        }
    }
}

/// What a special file is called in a list of skipped files.
pub fn special_word(kind: std::fs::FileType) -> &'static str {
    if kind.is_fifo() {
        "fifo"
    } else if kind.is_socket() {
        "socket"
    } else {
        "device"
    }
}

/// An open directory.
#[derive(Debug)]
pub struct Dir {
    fd: OwnedFd,
}

impl Dir {
    /// Opens a directory by its path; links on the way are followed, for the path is the user's.
    ///
    /// # Errors
    /// When it is no directory or can't be opened.
    pub fn open(path: &Path) -> io::Result<Dir> {
        let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        let fd = nix::fcntl::open(path, flags, Mode::empty())?;
        Ok(Dir { fd })
    }

    /// Opens `name` in this directory.
    ///
    /// # Errors
    /// When it is a link (`ELOOP` or `ENOTDIR`), no directory, or can't be opened.
    pub fn open_dir(&self, name: &Path) -> io::Result<Dir> {
        let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        let fd = openat(&self.fd, name, flags, Mode::empty())?;
        Ok(Dir { fd })
    }

    /// Opens the directory at a relative path, step by step, following no link.
    ///
    /// # Errors
    /// As [`Dir::open_dir`], and when the path is not made of plain names.
    pub fn open_below(&self, path: &Path) -> io::Result<Dir> {
        self.walk(path, |dir, name| dir.open_dir(name))
    }

    /// Like [`Dir::open_below`], and makes what is missing.
    ///
    /// # Errors
    /// As [`Dir::open_below`], and when a directory can't be made.
    pub fn make_below(&self, path: &Path) -> io::Result<Dir> {
        self.walk(path, |dir, name| dir.make_dir(name))
    }

    fn walk(&self, path: &Path, step: impl Fn(&Dir, &Path) -> io::Result<Dir>) -> io::Result<Dir> {
        let mut at = Dir {
            fd: self.fd.try_clone()?,
        };
        for part in path.components() {
            let Component::Normal(name) = part else {
                return Err(io::Error::new(
                    io::ErrorKind::InvalidInput,
                    format!("`{}` is not made of plain names", path.display()),
                ));
            };
            at = step(&at, Path::new(name))?;
        }
        Ok(at)
    }

    /// Makes the directory `name` unless it is there, and opens it.
    ///
    /// # Errors
    /// When something else than a directory has the name, or it can't be made.
    pub fn make_dir(&self, name: &Path) -> io::Result<Dir> {
        match mkdirat(&self.fd, name, DIR_MODE) {
            Ok(()) | Err(Errno::EEXIST) => self.open_dir(name),
            Err(errno) => Err(errno.into()),
        }
    }

    /// What `name` is.
    ///
    /// # Errors
    /// When the system can't say, as for want of permission.
    pub fn kind(&self, name: &Path) -> io::Result<Kind> {
        match fstatat(&self.fd, name, AtFlags::AT_SYMLINK_NOFOLLOW) {
            Ok(stat) => Ok(kind_of(&stat)),
            Err(Errno::ENOENT) => Ok(Kind::Missing),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Opens the regular file `name` for reading and gives its size in bytes. Never blocks: a
    /// FIFO is opened without waiting for a writer and then refused.
    ///
    /// # Errors
    /// When it is missing, a link (`ELOOP`), or no regular file ([`io::ErrorKind::InvalidData`]).
    pub fn open_file(&self, name: &Path) -> io::Result<(File, u64)> {
        let flags = OFlag::O_RDONLY | OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK | OFlag::O_CLOEXEC;
        let fd = openat(&self.fd, name, flags, Mode::empty())?;
        let stat = fstat(&fd)?;
        match kind_of(&stat) {
            Kind::File => Ok((File::from(fd), u64::try_from(stat.st_size).unwrap_or(0))),
            kind @ (Kind::Missing | Kind::Dir | Kind::Link | Kind::Special) => Err(io::Error::new(
                io::ErrorKind::InvalidData,
                format!("it is {}, not a regular file", kind.words()),
            )),
        }
    }

    /// Makes a new file `name` and opens it for writing.
    ///
    /// # Errors
    /// When the name is taken, by a link too, or the file can't be made.
    pub fn create_new(&self, name: &Path) -> io::Result<File> {
        let flags =
            OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        Ok(File::from(openat(&self.fd, name, flags, FILE_MODE)?))
    }

    /// Opens the file `name` for reading and writing, and makes it where it is missing.
    ///
    /// # Errors
    /// When it is a link or can't be opened.
    pub fn open_or_create(&self, name: &Path) -> io::Result<File> {
        let flags = OFlag::O_RDWR
            | OFlag::O_CREAT
            | OFlag::O_NOFOLLOW
            | OFlag::O_NONBLOCK
            | OFlag::O_CLOEXEC;
        Ok(File::from(openat(&self.fd, name, flags, FILE_MODE)?))
    }

    /// Puts `bytes` under `name` so that a reader sees the old file or the whole new one, and the
    /// new one outlasts a loss of power.
    ///
    /// # Errors
    /// When it can't be written; the old file is then untouched and nothing is left behind.
    pub fn replace_file(&self, name: &Path, bytes: &[u8]) -> io::Result<()> {
        let mut temporary = name.as_os_str().to_owned();
        temporary.push(format!(".{}.tmp", std::process::id()));
        let temporary = PathBuf::from(temporary);
        // A leftover of an earlier process of the same number is in the way of O_EXCL.
        self.remove_file(&temporary)?;
        let written = self.write_new(&temporary, bytes).and_then(|()| {
            self.rename(&temporary, self, name)?;
            self.sync()
        });
        if written.is_err() {
            // The write's own error is the one to report.
            drop(self.remove_file(&temporary));
        }
        written
    }

    fn write_new(&self, name: &Path, bytes: &[u8]) -> io::Result<()> {
        let mut file = self.create_new(name)?;
        file.write_all(bytes)?;
        file.sync_all()
    }

    /// Renames `from` here to `to` in another directory.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn rename(&self, from: &Path, target: &Dir, to: &Path) -> io::Result<()> {
        Ok(renameat(&self.fd, from, &target.fd, to)?)
    }

    /// Removes the file or link `name`; that it is missing is no error.
    ///
    /// # Errors
    /// When the system refuses, as for a directory.
    pub fn remove_file(&self, name: &Path) -> io::Result<()> {
        match unlinkat(&self.fd, name, UnlinkatFlags::NoRemoveDir) {
            Ok(()) | Err(Errno::ENOENT) => Ok(()),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Makes the names of this directory outlast a loss of power.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn sync(&self) -> io::Result<()> {
        Ok(nix::unistd::fsync(&self.fd)?)
    }

    /// Whether the directory has been removed while it was held.
    ///
    /// # Errors
    /// When the system can't say.
    pub fn is_removed(&self) -> io::Result<bool> {
        Ok(fstat(&self.fd)?.st_nlink == 0)
    }

    /// Whether there is nothing in it.
    ///
    /// # Errors
    /// When it can't be read.
    pub fn is_empty(&self) -> io::Result<bool> {
        Ok(std::fs::read_dir(self.path())?.next().is_none())
    }

    /// A path that leads to this very directory for as long as `self` lives, whatever its name
    /// has become. For this process alone.
    pub fn path(&self) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}/.", self.fd.as_raw_fd()))
    }
}

impl AsFd for Dir {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

fn kind_of(stat: &FileStat) -> Kind {
    match SFlag::from_bits_truncate(stat.st_mode) & SFlag::S_IFMT {
        SFlag::S_IFREG => Kind::File,
        SFlag::S_IFDIR => Kind::Dir,
        SFlag::S_IFLNK => Kind::Link,
        _ => Kind::Special,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::os::unix::fs::symlink;

    fn held() -> (tempfile::TempDir, Dir) {
        let place = tempfile::tempdir().unwrap();
        let dir = Dir::open(place.path()).unwrap();
        (place, dir)
    }

    #[test]
    fn no_link_is_followed_and_no_fifo_waited_for() {
        let (place, dir) = held();
        symlink("/etc", place.path().join("d")).unwrap();
        symlink("/etc/passwd", place.path().join("f")).unwrap();
        symlink("self", place.path().join("self")).unwrap();
        nix::unistd::mkfifo(&place.path().join("p"), Mode::S_IRWXU).unwrap();
        assert!(dir.open_dir(Path::new("d")).is_err());
        assert!(dir.open_below(Path::new("d/ssl")).is_err());
        assert!(dir.make_below(Path::new("d/new")).is_err());
        for name in ["f", "self", "p", "d"] {
            assert!(dir.open_file(Path::new(name)).is_err(), "{name}");
        }
        let kinds: Vec<Kind> = ["d", "f", "p", "none", "."]
            .iter()
            .map(|name| dir.kind(Path::new(name)).unwrap())
            .collect();
        assert_eq!(
            kinds,
            [
                Kind::Link,
                Kind::Link,
                Kind::Special,
                Kind::Missing,
                Kind::Dir
            ]
        );
    }

    #[test]
    fn replacing_through_a_link_replaces_the_link() {
        let (place, dir) = held();
        let outside = tempfile::NamedTempFile::new().unwrap();
        symlink(outside.path(), place.path().join("c.json")).unwrap();
        dir.replace_file(Path::new("c.json"), b"new").unwrap();
        assert_eq!(std::fs::read(outside.path()).unwrap(), b"");
        let (mut file, size) = dir.open_file(Path::new("c.json")).unwrap();
        let mut text = String::new();
        file.read_to_string(&mut text).unwrap();
        assert_eq!((text.as_str(), size), ("new", 3));
        assert_eq!(std::fs::read_dir(place.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_held_directory_is_known_to_be_removed() {
        let (place, dir) = held();
        let inner = dir.make_below(Path::new("a/b")).unwrap();
        assert!(!inner.is_removed().unwrap());
        assert!(inner.is_empty().unwrap());
        std::fs::remove_dir(place.path().join("a/b")).unwrap();
        assert!(inner.is_removed().unwrap());
        assert!(dir.make_below(Path::new("../x")).is_err());
    }
}
