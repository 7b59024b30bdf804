//! Writing a file whole or not at all, through descriptors that can't be led astray.
//!
//! A file is replaced by a temporary one in the same directory and a rename: a reader sees the old
//! or the new text, a full disk leaves the old, and a link that is swapped in at the last moment
//! is replaced itself instead of being written through.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::Write;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};

use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, openat, renameat};
use nix::sys::stat::{FileStat, Mode, fchmod, fstat, fstatat, mkdirat};
use nix::unistd::{AccessFlags, Gid, Uid, UnlinkatFlags, faccessat, fchown, ftruncate, unlinkat};
use protocol::error::{ErrorCode, ToolError};
use protocol::place::temporary_name;

use super::failure::{Doing, io_failure, system_failure};
use super::limits;
use super::paths::{Kind, Place, kind_of, not_a_file};

/// Counts temporary names of this process.
static TEMP_NAMES: AtomicU64 = AtomicU64::new(0);

/// Replaces or makes the file at `place`, with its parents. Mode and owner of a file that exists
/// are kept.
///
/// # Errors
/// When the place is no file, or the system refuses; the file is then as it was before.
pub(crate) fn replace(place: Place, content: &[u8]) -> Result<(), ToolError> {
    let shown = place.shown();
    let (directory, name) = enter(place)?;
    let old = existing(directory.as_fd(), &name, &shown)?;
    if old.is_some() {
        check_writable(directory.as_fd(), &name, &shown)?;
    }
    let mut temp = Temp::create(directory.as_fd(), old.as_ref(), &shown)?;
    temp.file
        .write_all(content)
        .map_err(|error| io_failure(Doing::Write, &shown, &error))?;
    temp.rename_to(&name)
        .map_err(|errno| system_failure(Doing::Write, &shown, errno))
}

/// Appends to the file at `place`, or makes it, with its parents. When the whole of `content`
/// does not fit, none of it stays.
///
/// # Errors
/// When the place is no file, or the system refuses; the file is then as it was before.
pub(crate) fn append(place: Place, content: &[u8]) -> Result<(), ToolError> {
    let shown = place.shown();
    let (directory, name) = enter(place)?;
    if existing(directory.as_fd(), &name, &shown)?.is_none() {
        let mut temp = Temp::create(directory.as_fd(), None, &shown)?;
        temp.file
            .write_all(content)
            .map_err(|error| io_failure(Doing::Write, &shown, &error))?;
        return temp
            .rename_to(&name)
            .map_err(|errno| system_failure(Doing::Write, &shown, errno));
    }
    let flags = OFlag::O_WRONLY
        | OFlag::O_APPEND
        | OFlag::O_NOFOLLOW
        | OFlag::O_NONBLOCK
        | OFlag::O_NOCTTY
        | OFlag::O_CLOEXEC;
    let refused = |errno| system_failure(Doing::Write, &shown, errno);
    let opened =
        openat(directory.as_fd(), name.as_os_str(), flags, Mode::empty()).map_err(refused)?;
    let stat = fstat(&opened).map_err(refused)?;
    if let Kind::Other(what) = kind_of(&stat) {
        return Err(not_a_file(&shown, what));
    }
    if stat.st_nlink > 1 {
        // The other name may lie anywhere, also where this agent may not write.
        return Err(ToolError::new(
            ErrorCode::PermissionDenied,
            format!("can't append to `{shown}`: it is a hard link, one of several names of a file"),
        )
        .hint("write the whole file; then it becomes one of its own"));
    }
    let mut file = File::from(opened);
    file.write_all(content).map_err(|error| {
        // Half an appended text is worse than none; where even this fails, the error still says
        // that the file could not be written.
        let _: nix::Result<()> = ftruncate(&file, stat.st_size);
        io_failure(Doing::Write, &shown, &error)
    })
}

/// Makes the file at `place`, with its parents, unless something is there already: then nothing
/// is written and false comes back.
///
/// # Errors
/// When the system refuses; then no part of the file stays.
pub(crate) fn create(place: Place, content: &[u8]) -> Result<bool, ToolError> {
    let shown = place.shown();
    let (directory, name) = enter(place)?;
    let flags =
        OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    let mode = Mode::from_bits_truncate(0o666);
    let opened = match openat(&directory, name.as_os_str(), flags, mode) {
        Ok(opened) => opened,
        Err(Errno::EEXIST) => return Ok(false),
        Err(errno) => return Err(system_failure(Doing::Write, &shown, errno)),
    };
    File::from(opened).write_all(content).map_err(|error| {
        // Half a file would be taken for the whole; the write's own error is the one to tell.
        let _: nix::Result<()> = unlinkat(&directory, name.as_os_str(), UnlinkatFlags::NoRemoveDir);
        io_failure(Doing::Write, &shown, &error)
    })?;
    Ok(true)
}

/// Makes the parents of a place and hands back the directory that holds it and its name.
fn enter(place: Place) -> Result<(OwnedFd, OsString), ToolError> {
    let shown = place.shown();
    let mut rest = place.rest;
    let Some(name) = rest.pop() else {
        return Err(not_a_file(&shown, "a directory"));
    };
    let refused = |errno| system_failure(Doing::Write, &shown, errno);
    let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    let mut directory = place.directory;
    for parent in rest {
        match mkdirat(
            &directory,
            parent.as_os_str(),
            Mode::from_bits_truncate(0o777),
        ) {
            // Someone else may have made it meanwhile; what it is, the opening finds out.
            Ok(()) | Err(Errno::EEXIST) => {}
            Err(errno) => return Err(refused(errno)),
        }
        directory =
            openat(&directory, parent.as_os_str(), flags, Mode::empty()).map_err(refused)?;
    }
    Ok((directory, name))
}

/// The regular file that stands at a name, if any.
fn existing(
    directory: BorrowedFd<'_>,
    name: &OsStr,
    shown: &str,
) -> Result<Option<FileStat>, ToolError> {
    let stat = match fstatat(directory, name, AtFlags::AT_SYMLINK_NOFOLLOW) {
        Ok(stat) => stat,
        Err(Errno::ENOENT) => return Ok(None),
        Err(errno) => return Err(system_failure(Doing::Write, shown, errno)),
    };
    match kind_of(&stat) {
        Kind::File => Ok(Some(stat)),
        Kind::Directory => Err(not_a_file(shown, "a directory")),
        Kind::Other(what) => Err(not_a_file(shown, what)),
    }
}

/// A rename needs no right to the file itself, so a write-protected file would be replaced.
fn check_writable(directory: BorrowedFd<'_>, name: &OsStr, shown: &str) -> Result<(), ToolError> {
    match faccessat(directory, name, AccessFlags::W_OK, AtFlags::AT_EACCESS) {
        Ok(()) => Ok(()),
        Err(Errno::EACCES) => Err(ToolError::new(
            ErrorCode::PermissionDenied,
            format!("can't write `{shown}`: it is write-protected"),
        )
        .hint("leave it, or write a file of another name")),
        Err(errno) => Err(system_failure(Doing::Write, shown, errno)),
    }
}

/// A temporary file that is gone again unless it was renamed.
#[derive(Debug)]
struct Temp<'a> {
    directory: BorrowedFd<'a>,
    name: String,
    file: File,
    renamed: bool,
}

impl<'a> Temp<'a> {
    fn create(
        directory: BorrowedFd<'a>,
        old: Option<&FileStat>,
        shown: &str,
    ) -> Result<Self, ToolError> {
        let refused = |errno| system_failure(Doing::Write, shown, errno);
        // Closed to others until it has the mode of the file that it replaces; a new file gets
        // what the user's mask leaves.
        let mode = if old.is_some() { 0o600 } else { 0o666 };
        let (name, opened) =
            open_new(directory, Mode::from_bits_truncate(mode)).map_err(refused)?;
        let temp = Temp {
            directory,
            name,
            file: File::from(opened),
            renamed: false,
        };
        if let Some(old) = old {
            temp.take_over(old).map_err(refused)?;
        }
        Ok(temp)
    }

    fn take_over(&self, old: &FileStat) -> nix::Result<()> {
        let own = fstat(&self.file)?;
        if (own.st_uid, own.st_gid) != (old.st_uid, old.st_gid) {
            // Only root may give a file away; for everybody else it becomes their own.
            let (uid, gid) = (Uid::from_raw(old.st_uid), Gid::from_raw(old.st_gid));
            if fchown(&self.file, Some(uid), Some(gid)).is_err() {
                let _: nix::Result<()> = fchown(&self.file, None, Some(gid));
            }
        }
        // After the owner, since chown(2) clears the set-id bits.
        fchmod(&self.file, Mode::from_bits_truncate(old.st_mode & 0o7777))
    }

    fn rename_to(mut self, name: &OsStr) -> nix::Result<()> {
        renameat(self.directory, self.name.as_str(), self.directory, name)?;
        self.renamed = true;
        Ok(())
    }
}

impl Drop for Temp<'_> {
    fn drop(&mut self) {
        if !self.renamed {
            // The write has failed and its error is on its way; a second one would hide it.
            let _: nix::Result<()> = unlinkat(
                self.directory,
                self.name.as_str(),
                UnlinkatFlags::NoRemoveDir,
            );
        }
    }
}

fn open_new(directory: BorrowedFd<'_>, mode: Mode) -> nix::Result<(String, OwnedFd)> {
    let flags =
        OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    for _ in 0..limits::TEMP_NAME_TRIES_MAX {
        let number = TEMP_NAMES.fetch_add(1, Ordering::Relaxed);
        // Not made from the file's own name, which may already be as long as a name can be.
        let name = temporary_name(std::process::id(), number);
        match openat(directory.as_fd(), name.as_str(), flags, mode) {
            Ok(opened) => return Ok((name, opened)),
            Err(Errno::EEXIST) => {}
            Err(errno) => return Err(errno),
        }
    }
    Err(Errno::EEXIST)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tools::paths::resolve;
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::path::{Path, PathBuf};

    fn workspace() -> (tempfile::TempDir, PathBuf) {
        let keep = tempfile::tempdir().unwrap();
        let path = fs::canonicalize(keep.path()).unwrap();
        (keep, path)
    }

    fn place(workspace: &Path, path: &str) -> Place {
        resolve(workspace, path, Doing::Write).unwrap()
    }

    fn entries(directory: &Path) -> Vec<String> {
        let mut names: Vec<String> = fs::read_dir(directory)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    #[test]
    fn a_link_swapped_in_is_replaced_and_never_written_through() {
        let (_keep, base) = workspace();
        let workspace = base.join("w");
        fs::create_dir(&workspace).unwrap();
        let victim = base.join("victim");
        fs::write(&victim, "victim").unwrap();
        fs::write(workspace.join("f"), "old").unwrap();
        let (to_replace, to_append) = (place(&workspace, "f"), place(&workspace, "f"));
        fs::remove_file(workspace.join("f")).unwrap();
        symlink(&victim, workspace.join("f")).unwrap();
        assert_eq!(
            append(to_append, b"x").unwrap_err().code,
            ErrorCode::NotAFile
        );
        assert_eq!(
            replace(to_replace, b"x").unwrap_err().code,
            ErrorCode::NotAFile
        );
        assert_eq!(fs::read(&victim).unwrap(), b"victim");
    }

    #[test]
    fn a_parent_swapped_for_a_link_is_not_walked_through() {
        let (_keep, base) = workspace();
        let (workspace, outside) = (base.join("w"), base.join("outside"));
        fs::create_dir(&workspace).unwrap();
        fs::create_dir(&outside).unwrap();
        let place = place(&workspace, "new/f");
        symlink(&outside, workspace.join("new")).unwrap();
        assert!(replace(place, b"x").is_err());
        assert_eq!(entries(&outside), Vec::<String>::new());
    }

    #[test]
    fn a_failed_write_leaves_the_old_file_and_nothing_else() {
        let (_keep, workspace) = workspace();
        fs::write(workspace.join("f"), "old").unwrap();
        let directory = File::open(&workspace).unwrap();
        let temp = Temp::create(directory.as_fd(), None, "f").unwrap();
        assert_eq!(entries(&workspace).len(), 2);
        drop(temp);
        assert_eq!(entries(&workspace), ["f"]);
    }

    #[test]
    fn an_append_makes_the_file_or_makes_it_longer() {
        let (_keep, workspace) = workspace();
        fs::write(workspace.join("f"), "old").unwrap();
        append(place(&workspace, "f"), b" new").unwrap();
        assert_eq!(fs::read(workspace.join("f")).unwrap(), b"old new");
        append(place(&workspace, "g"), b"first").unwrap();
        assert_eq!(fs::read(workspace.join("g")).unwrap(), b"first");
        let mode = fs::metadata(workspace.join("g"))
            .unwrap()
            .permissions()
            .mode();
        assert_eq!(mode & 0o600, 0o600);
    }
}
