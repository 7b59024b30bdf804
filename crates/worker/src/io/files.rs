//! Writing a run's own files so that a reader, a crash or a full disk never meets half a file.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use protocol::status::StopReason;

/// A file of the run that could not be written or read.
#[derive(Debug, thiserror::Error)]
#[error("cannot {doing} {}: {source}", path.display())]
pub struct FileError {
    /// A verb.
    pub doing: &'static str,
    /// On which path.
    pub path: PathBuf,
    /// Why.
    pub source: io::Error,
}

impl FileError {
    /// An error of `doing` something to `path`.
    pub fn new(doing: &'static str, path: &Path, source: io::Error) -> Self {
        FileError {
            doing,
            path: path.to_owned(),
            source,
        }
    }

    /// Why a run ends that can't keep its record for it.
    pub fn stop_reason(&self) -> StopReason {
        match self.source.raw_os_error() {
            Some(libc::ENOSPC | libc::EDQUOT | libc::EFBIG) => StopReason::DiskLimit,
            _ => StopReason::BadResultFile,
        }
    }
}

/// What a crash of the machine may cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Durability {
    /// The last write; a crash of the process alone costs nothing.
    Process,
    /// Nothing: the file and its name are on the disk when the call returns.
    Machine,
}

/// Makes the folder of a run's own files, if it is not there.
///
/// # Errors
/// When it can't be made, or when something else stands in its place: following a link there
/// would write wherever it points.
pub fn ensure_dir(dir: &Path) -> Result<(), FileError> {
    match fs::symlink_metadata(dir) {
        Ok(found) if found.is_dir() => Ok(()),
        Ok(_) => Err(FileError::new(
            "use",
            dir,
            io::Error::new(
                io::ErrorKind::NotADirectory,
                "something else than a directory stands there",
            ),
        )),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            fs::create_dir_all(dir).map_err(|error| FileError::new("create", dir, error))
        }
        Err(error) => Err(FileError::new("look at", dir, error)),
    }
}

/// Puts `bytes` in the place of `dir/name`: a reader sees the old file or the new one. When it
/// fails the old file stands, and the temporary one is gone.
///
/// # Errors
/// When a step fails, with the path.
pub fn replace(
    dir: &Path,
    name: &str,
    bytes: &[u8],
    durability: Durability,
) -> Result<(), FileError> {
    ensure_dir(dir)?;
    let path = dir.join(name);
    let fail = |error| FileError::new("write", &path, error);
    let mut temporary = tempfile::Builder::new()
        .prefix(&format!(".{name}."))
        .suffix(".tmp")
        .permissions(fs::Permissions::from_mode(0o644))
        .tempfile_in(dir)
        .map_err(fail)?;
    temporary.write_all(bytes).map_err(fail)?;
    if durability == Durability::Machine {
        temporary.as_file().sync_all().map_err(fail)?;
    }
    temporary
        .persist(&path)
        .map_err(|error| fail(error.error))?;
    if durability == Durability::Machine {
        // The new name is the directory's content, not the file's (fsync(2)).
        File::open(dir)
            .and_then(|dir| dir.sync_all())
            .map_err(fail)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(dir: &Path) -> Vec<String> {
        let mut names: Vec<String> = fs::read_dir(dir)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    #[test]
    fn a_file_is_replaced_and_its_folder_made_again() {
        let root = tempfile::tempdir().unwrap();
        let dir = root.path().join("a/b");
        for durability in [Durability::Process, Durability::Machine] {
            replace(&dir, "f.json", b"{}", durability).unwrap();
            assert_eq!(names(&dir), ["f.json"]);
            fs::remove_dir_all(root.path().join("a")).unwrap();
        }
    }

    #[test]
    fn a_failed_write_leaves_the_old_file_and_nothing_else() {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir(root.path().join("f.json")).unwrap();
        let error = replace(root.path(), "f.json", b"{}", Durability::Process).unwrap_err();
        assert!(error.to_string().contains("f.json"), "{error}");
        assert_eq!(error.stop_reason(), StopReason::BadResultFile);
        assert_eq!(names(root.path()), ["f.json"]);
    }

    #[test]
    fn a_link_in_the_place_of_the_folder_is_not_followed() {
        let root = tempfile::tempdir().unwrap();
        let elsewhere = root.path().join("elsewhere");
        fs::create_dir(&elsewhere).unwrap();
        let dir = root.path().join("dir");
        std::os::unix::fs::symlink(&elsewhere, &dir).unwrap();
        assert!(replace(&dir, "f.json", b"{}", Durability::Process).is_err());
        assert_eq!(names(&elsewhere), Vec::<String>::new());
    }

    #[test]
    fn a_full_disk_is_told_apart() {
        let full = FileError::new(
            "write",
            Path::new("/x"),
            io::Error::from_raw_os_error(libc::ENOSPC),
        );
        assert_eq!(full.stop_reason(), StopReason::DiskLimit);
    }
}
