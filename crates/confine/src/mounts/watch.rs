//! Notices mounts that fell off because somebody outside replaced the name they stood on, and makes
//! them again. This is detection: in between, which is a fraction of a millisecond where the name
//! is there again, what was protected was not.
//!
//! Two things can happen to a mount. When another file is renamed over the one that it stands on,
//! or that one is removed, the kernel drops the mount and tells by its table. When a directory is
//! moved away, the mount goes along and nothing is told, so the directories above are watched too.
//! They are watched by signal (fcntl(2), F_NOTIFY) and not by inotify(7): a process that ends with
//! an inotify instance waits some 10 ms for the kernel to put it away before the rest of its
//! namespace is killed, and a user has 128 instances only.

use std::collections::{BTreeSet, HashSet};
use std::ffi::OsString;
use std::fs::File;
use std::io::{Read, Seek};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use super::make;
use crate::files::{Kind, Step, kind_of};
use crate::sys;

/// A mount that fell off.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Fallen {
    pub(crate) path: PathBuf,
    /// Whether it stands again; what may be written does not, for it is not known any more to be
    /// what was given.
    pub(crate) again: bool,
}

/// The watch over the mounts of this namespace.
#[derive(Debug)]
pub(crate) struct MountWatch {
    table: File,
    /// The directories above; those that can't be watched are not among them, and what stands in
    /// them is left to the table.
    _above: Vec<File>,
    steps: Vec<Step>,
    /// What fell off and can't be made again as yet.
    fallen: Vec<Step>,
}

impl MountWatch {
    /// Starts to watch; `None` where there is nothing to be watched, or no way to. From here on a
    /// name that is made or moved beside a mount is told by SIGIO to this process.
    pub(crate) fn open(steps: Vec<Step>) -> Option<MountWatch> {
        if steps.is_empty() {
            return None;
        }
        // From here on a change polls as an exceptional condition, proc_pid_mountinfo(5).
        let table = File::open("/proc/self/mountinfo").ok()?;
        Some(MountWatch {
            table,
            _above: watch_above(&steps),
            steps,
            fallen: Vec::new(),
        })
    }

    /// The descriptor to poll for an exceptional condition.
    pub(crate) fn table(&self) -> BorrowedFd<'_> {
        self.table.as_fd()
    }

    /// Whether something waits for its name to come back.
    pub(crate) fn has_fallen(&self) -> bool {
        !self.fallen.is_empty()
    }

    /// Looks what is missing and makes it again where it can be; gives what was found out new.
    pub(crate) fn look(&mut self) -> Vec<Fallen> {
        let Some(standing) = self.standing() else {
            return Vec::new();
        };
        let mut found = Vec::new();
        let (stand, gone): (Vec<_>, Vec<_>) = std::mem::take(&mut self.steps)
            .into_iter()
            .partition(|step| standing.contains(step.path()));
        self.steps = stand;
        for step in gone {
            match step {
                Step::Open(path) => found.push(Fallen { path, again: false }),
                guard => self.fallen.push(guard),
            }
        }
        // Outer ones first, or they would cover the inner ones again.
        self.fallen
            .sort_by(|one, other| one.path().cmp(other.path()));
        for step in std::mem::take(&mut self.fallen) {
            match again(&step) {
                Some(made) => {
                    found.push(Fallen {
                        path: made.path().to_owned(),
                        again: true,
                    });
                    self.steps.push(made);
                }
                None => self.fallen.push(step),
            }
        }
        found
    }

    /// Whether a mount does not stand on its name any more; asked at each name that is made or moved
    /// in the directories above, which may be many.
    pub(crate) fn is_moved(&self) -> bool {
        self.steps
            .iter()
            .any(|step| matches!(sys::is_mount_root(step.path()), Ok(false) | Err(_)))
    }

    /// The mount points of this namespace.
    fn standing(&mut self) -> Option<HashSet<PathBuf>> {
        let mut text = Vec::new();
        self.table.rewind().ok()?;
        self.table.read_to_end(&mut text).ok()?;
        Some(mount_points(&text))
    }
}

/// Watches the directories above all steps, as far as they can be read.
fn watch_above(steps: &[Step]) -> Vec<File> {
    let parents: BTreeSet<&Path> = steps
        .iter()
        .filter_map(|step| step.path().parent())
        .collect();
    parents
        .into_iter()
        .filter_map(|parent| {
            let directory = File::open(parent).ok()?;
            sys::signal_new_names(directory.as_fd()).ok()?;
            Some(directory)
        })
        .collect()
}

/// Makes a guard again; what stands there now may be of another kind than before.
fn again(step: &Step) -> Option<Step> {
    let kind = kind_of(step.path());
    if matches!(kind, Kind::Missing | Kind::Link) {
        return None;
    }
    let step = match step {
        Step::Hide(path, _) => Step::Hide(path.clone(), kind),
        Step::Open(_) => return None,
        Step::Close(_) | Step::Pin(_) => step.clone(),
    };
    make::guard(&step).ok().map(|()| step)
}

/// Reads the mount points out of `mountinfo`: the fifth field, proc_pid_mountinfo(5).
fn mount_points(text: &[u8]) -> HashSet<PathBuf> {
    text.split(|byte| *byte == b'\n')
        .filter_map(|line| line.split(|byte| *byte == b' ').nth(4))
        .map(|field| PathBuf::from(OsString::from_vec(unescaped(field))))
        .collect()
}

/// Blanks, tabs, line ends and backslashes are written as `\` and three octal digits.
fn unescaped(field: &[u8]) -> Vec<u8> {
    let mut plain = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((byte, after)) = rest.split_first() {
        let octal = after.get(..3).and_then(|digits| {
            let digits = std::str::from_utf8(digits).ok()?;
            u8::from_str_radix(digits, 8).ok()
        });
        match (byte, octal) {
            (b'\\', Some(value)) => {
                plain.push(value);
                rest = &after[3..];
            }
            _ => {
                plain.push(*byte);
                rest = after;
            }
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mount_points_are_read_with_their_blanks() {
        let text = b"36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - ext3 /dev/root rw\n\
                     37 35 0:5 / /a\\040b\\134c rw - tmpfs none rw\n\nshort line\n";
        let expected = ["/mnt2", "/a b\\c"].map(PathBuf::from);
        assert_eq!(mount_points(text), HashSet::from(expected));
    }
}
