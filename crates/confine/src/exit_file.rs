//! `exit.json`: the end on disk, for whoever comes after a leader that is gone.

use std::ffi::OsString;
use std::fs::File;
use std::io::Write;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{OFlag, OpenHow, ResolveFlag, openat, openat2, renameat};
use nix::sys::stat::Mode;

use crate::report::{ExitRecord, Outcome, Step, to_json};
use crate::steps::StepError;
use crate::sys::best_effort;

/// How a directory is opened.
const DIRECTORY: OFlag = OFlag::O_DIRECTORY
    .union(OFlag::O_NOFOLLOW)
    .union(OFlag::O_CLOEXEC)
    .union(OFlag::O_RDONLY);

/// Opens a directory below another one, through no link and no `..` (openat2, Linux 5.6).
fn open_below(root: &Path, rest: &Path) -> Result<OwnedFd, Errno> {
    let flags = DIRECTORY.difference(OFlag::O_NOFOLLOW);
    let root = nix::fcntl::open(root, flags, Mode::empty())?;
    let resolve = ResolveFlag::RESOLVE_BENEATH | ResolveFlag::RESOLVE_NO_SYMLINKS;
    openat2(
        &root,
        rest,
        OpenHow::new().flags(DIRECTORY).resolve(resolve),
    )
}

/// The version of the record.
const EXIT_FORMAT: u32 = 1;

/// A place for the record, held by its directory's descriptor: whoever swaps the directory's name
/// for a link later redirects nothing.
#[derive(Debug)]
pub(crate) struct ExitFile {
    directory: OwnedFd,
    name: OsString,
    path: PathBuf,
}

impl ExitFile {
    /// Opens the directory of `path`, which must exist and not be a link itself; below the
    /// workspace, where an earlier agent may have put links, nothing on the way may be one.
    pub(crate) fn open(path: &Path, workspace: Option<&Path>) -> Result<ExitFile, StepError> {
        let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
            return Err(StepError::new(Step::ExitFile, "use as the exit file").at(path));
        };
        let below = workspace.and_then(|root| Some((root, parent.strip_prefix(root).ok()?)));
        let opened = match below {
            Some((root, rest)) if !rest.as_os_str().is_empty() => open_below(root, rest),
            Some(_) | None => nix::fcntl::open(parent, DIRECTORY, Mode::empty()),
        };
        let directory = opened.map_err(|errno| {
            StepError::errno(Step::ExitFile, errno, "open the exit file's directory").at(parent)
        })?;
        Ok(ExitFile {
            directory,
            name: name.to_owned(),
            path: path.to_owned(),
        })
    }

    /// Writes the record beside its place and renames it there, so that a reader finds a whole
    /// record or none.
    ///
    /// It is not synced: what it is for, a dead leader on a live machine, needs no disk.
    pub(crate) fn write(&self, outcome: Outcome) -> Result<(), StepError> {
        let failed =
            |errno, what: &str| StepError::errno(Step::ExitFile, errno, what).at(&self.path);
        let record = ExitRecord {
            format: EXIT_FORMAT,
            outcome,
        };
        let mut beside = OsString::from(".");
        beside.push(&self.name);
        beside.push(format!(".{}", std::process::id()));
        let flags =
            OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_WRONLY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        let mode = Mode::S_IRUSR | Mode::S_IWUSR;
        let file = openat(&self.directory, beside.as_os_str(), flags, mode)
            .map_err(|errno| failed(errno, "make the exit file"))?;
        let written = File::from(file).write_all(format!("{}\n", to_json(&record)).as_bytes());
        let renamed = match written {
            Ok(()) => renameat(
                &self.directory,
                beside.as_os_str(),
                &self.directory,
                self.name.as_os_str(),
            ),
            Err(error) => Err(Errno::from_raw(error.raw_os_error().unwrap_or(0))),
        };
        renamed.map_err(|errno| {
            best_effort(nix::unistd::unlinkat(
                &self.directory,
                beside.as_os_str(),
                nix::unistd::UnlinkatFlags::NoRemoveDir,
            ));
            failed(errno, "write the exit file")
        })
    }
}
