//! Notices mounts that fell off because somebody outside replaced the name they stood on, and makes
//! them again. This is detection: in between, which is a fraction of a millisecond where the name
//! is there again, what was protected was not.
//!
//! Two things can happen to a mount. When another file is renamed over the one that it stands on,
//! or that one is removed, the kernel drops the mount and tells by its table. When a directory is
//! moved away, the mount goes along and nothing is told, so the directories above are watched too.

use std::collections::{BTreeSet, HashSet};
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{Read, Seek};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify};

use super::make;
use crate::files::{Kind, Step, kind_of};
use crate::sys::best_effort;

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
    /// Changes of the names in the directories above; without it only the table tells.
    names: Option<Inotify>,
    steps: Vec<Step>,
    /// What fell off and can't be made again as yet.
    fallen: Vec<Step>,
}

impl MountWatch {
    /// Starts to watch; `None` where there is nothing to be watched, or no way to.
    pub(crate) fn open(steps: Vec<Step>) -> Option<MountWatch> {
        if steps.is_empty() {
            return None;
        }
        // From here on a change polls as an exceptional condition, proc_pid_mountinfo(5).
        let table = File::open("/proc/self/mountinfo").ok()?;
        Some(MountWatch {
            table,
            names: watch_names(&steps),
            steps,
            fallen: Vec::new(),
        })
    }

    /// The descriptor to poll for an exceptional condition.
    pub(crate) fn table(&self) -> BorrowedFd<'_> {
        self.table.as_fd()
    }

    /// The descriptor to poll for something to read, if there is one.
    pub(crate) fn names(&self) -> Option<BorrowedFd<'_>> {
        self.names.as_ref().map(AsFd::as_fd)
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

    /// Takes in what names changed; says whether a mount stands on any of them.
    pub(crate) fn hear_names(&self) -> bool {
        let mut concerned = false;
        while let Some(Ok(events)) = self.names.as_ref().map(Inotify::read_events) {
            concerned |= events.iter().any(|event| {
                // Where some were lost, any may have been among them.
                event.mask.contains(AddWatchFlags::IN_Q_OVERFLOW)
                    || self.stands_on(event.name.as_deref())
            });
        }
        concerned
    }

    fn stands_on(&self, name: Option<&OsStr>) -> bool {
        self.steps
            .iter()
            .any(|step| step.path().file_name() == name)
    }

    /// The mount points of this namespace.
    fn standing(&mut self) -> Option<HashSet<PathBuf>> {
        let mut text = Vec::new();
        self.table.rewind().ok()?;
        self.table.read_to_end(&mut text).ok()?;
        Some(mount_points(&text))
    }
}

/// Watches the directories above all steps; `None` where the user has used up what there is.
fn watch_names(steps: &[Step]) -> Option<Inotify> {
    let names = Inotify::init(InitFlags::IN_CLOEXEC | InitFlags::IN_NONBLOCK).ok()?;
    let parents: BTreeSet<&Path> = steps
        .iter()
        .filter_map(|step| step.path().parent())
        .collect();
    for parent in parents {
        // One that can't be read can't be watched; what stands in it is left to the table.
        best_effort(names.add_watch(parent, AddWatchFlags::IN_MOVE | AddWatchFlags::IN_CREATE));
    }
    Some(names)
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
