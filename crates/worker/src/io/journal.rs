//! The journal's file: one line per message, in the kernel before the next step.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use protocol::job::JOURNAL_FILE;
use protocol::journal::JournalLine;

use crate::io::files::{FileError, ensure_dir};

/// An open journal. Its file is only ever appended to.
#[derive(Debug)]
pub struct Journal {
    path: PathBuf,
    file: File,
    length: u64,
}

impl Journal {
    /// Begins an empty journal in `dir`; what stands there of that name is cut.
    ///
    /// # Errors
    /// When the folder or the file can't be made.
    pub fn create(dir: &Path) -> Result<Self, FileError> {
        ensure_dir(dir)?;
        let path = dir.join(JOURNAL_FILE);
        let file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .custom_flags(libc::O_NOFOLLOW | libc::O_CLOEXEC | libc::O_NONBLOCK)
            .open(&path)
            .map_err(|error| FileError::new("create", &path, error))?;
        let found = file
            .metadata()
            .map_err(|error| FileError::new("look at", &path, error))?;
        if !found.is_file() {
            let error = io::Error::new(io::ErrorKind::InvalidInput, "it is no regular file");
            return Err(FileError::new("use", &path, error));
        }
        Ok(Journal {
            path,
            file,
            length: 0,
        })
    }

    /// Opens the journal that a leader has put in place for a run that goes on, and gives what it
    /// holds; none when there is none.
    ///
    /// # Errors
    /// When it is no regular file, larger than `bytes_max`, or can't be read.
    pub fn open_again(dir: &Path, bytes_max: u64) -> Result<Option<(Self, Vec<u8>)>, FileError> {
        let path = dir.join(JOURNAL_FILE);
        let opened = OpenOptions::new()
            .read(true)
            .append(true)
            .custom_flags(libc::O_NOFOLLOW | libc::O_CLOEXEC | libc::O_NONBLOCK)
            .open(&path);
        let mut file = match opened {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(FileError::new("open", &path, error)),
        };
        let found = file
            .metadata()
            .map_err(|error| FileError::new("look at", &path, error))?;
        if !found.is_file() || found.len() > bytes_max {
            let error = io::Error::new(
                io::ErrorKind::InvalidInput,
                format!("it is no regular file of at most {bytes_max} bytes"),
            );
            return Err(FileError::new("use", &path, error));
        }
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)
            .map_err(|error| FileError::new("read", &path, error))?;
        let length = bytes.len() as u64;
        let journal = Journal { path, file, length };
        Ok(Some((journal, bytes)))
    }

    /// Whether the file under the journal's name is another one, or gone: a command of the agent
    /// deleted its folder. Lines would then go where no one finds them.
    pub fn is_lost(&self) -> bool {
        let (Ok(open), Ok(found)) = (self.file.metadata(), fs::symlink_metadata(&self.path)) else {
            return true;
        };
        (open.dev(), open.ino()) != (found.dev(), found.ino())
    }

    /// Adds a line. It is with the kernel when this returns, so `kill -9` does not lose it; only
    /// a crash of the machine can, until [`Journal::sync`].
    ///
    /// # Errors
    /// When it can't be written whole; the lines before it stand.
    pub fn append(&mut self, line: &JournalLine) -> Result<(), FileError> {
        let fail = |error| FileError::new("write", &self.path, error);
        let mut bytes = serde_json::to_vec(line).map_err(|error| fail(error.into()))?;
        bytes.push(b'\n');
        if let Err(error) = self.file.write_all(&bytes) {
            // Half a line would glue itself to the next one. Where even cutting fails, a reader
            // skips the torn line, so that error has nothing to add.
            if self.file.set_len(self.length).is_ok() {
                use std::io::Seek;
                drop(self.file.seek(io::SeekFrom::Start(self.length)));
            }
            return Err(fail(error));
        }
        self.length += bytes.len() as u64;
        Ok(())
    }

    /// Brings all lines to the disk. Called once a turn and not once a line: a line's own loss
    /// needs a crash of the machine, and that ends the run anyway; but what was acknowledged to
    /// others, and the end, must survive it.
    ///
    /// # Errors
    /// When the disk refuses.
    pub fn sync(&self) -> Result<(), FileError> {
        self.file
            .sync_data()
            .map_err(|error| FileError::new("sync", &self.path, error))
    }
}

#[cfg(test)]
mod tests {
    use protocol::conversation::Message;

    use super::*;

    fn line(text: &str) -> JournalLine {
        JournalLine::Replaced {
            messages: vec![Message::user(text)],
        }
    }

    #[test]
    fn lines_are_there_as_soon_as_they_are_appended() {
        let root = tempfile::tempdir().unwrap();
        let mut journal = Journal::create(root.path()).unwrap();
        journal.append(&line("one\ntwo")).unwrap();
        journal.append(&line("three")).unwrap();
        let text = fs::read_to_string(root.path().join(JOURNAL_FILE)).unwrap();
        let read: Vec<JournalLine> = text
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect();
        assert_eq!(read, [line("one\ntwo"), line("three")]);
    }

    #[test]
    fn a_deleted_or_replaced_file_is_noticed() {
        let root = tempfile::tempdir().unwrap();
        let journal = Journal::create(root.path()).unwrap();
        assert!(!journal.is_lost());
        let path = root.path().join(JOURNAL_FILE);
        fs::rename(&path, root.path().join("other")).unwrap();
        assert!(journal.is_lost());
        fs::write(&path, "").unwrap();
        assert!(journal.is_lost());
    }

    #[test]
    fn a_pipe_in_its_place_is_refused_at_once() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join(JOURNAL_FILE);
        nix::unistd::mkfifo(&path, nix::sys::stat::Mode::S_IRWXU).unwrap();
        assert!(Journal::create(root.path()).is_err());
    }
}
