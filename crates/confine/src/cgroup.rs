//! A group of the tree's own in a delegated cgroup v2 directory: killed in one write, counted as
//! one, and known to be empty.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::errno::Errno;
use nix::fcntl::{OFlag, openat};
use nix::poll::{PollFd, PollFlags, PollTimeout};
use nix::sys::stat::{Mode, mkdirat};
use nix::unistd::{UnlinkatFlags, unlinkat};

use crate::clock;
use crate::limits;
use crate::policy::JailPolicy;
use crate::report::Step;
use crate::steps::StepError;
use crate::sys::best_effort;

/// What the names of our groups begin with; the jail's pid follows.
const PREFIX: &str = "muster-";

/// What a group bounds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Bounds {
    pub(crate) pids: bool,
    pub(crate) memory: bool,
}

/// A group, to be removed by the jail when it is empty.
#[derive(Debug)]
pub(crate) struct Cgroup {
    parent: OwnedFd,
    name: OsString,
    directory: OwnedFd,
    pub(crate) bounds: Bounds,
}

impl Cgroup {
    /// Makes a group below `delegated` and sets its bounds as far as its controllers reach.
    ///
    /// # Errors
    /// When the directory is not ours to use, or is no cgroup v2 directory (Linux 5.14, for the
    /// kill).
    pub(crate) fn create(delegated: &Path, policy: &JailPolicy) -> Result<Cgroup, StepError> {
        let failed = |errno, what: &str| StepError::errno(Step::Cgroup, errno, what).at(delegated);
        let flags = OFlag::O_DIRECTORY | OFlag::O_CLOEXEC | OFlag::O_RDONLY;
        let parent = nix::fcntl::open(delegated, flags, Mode::empty())
            .map_err(|errno| failed(errno, "open the delegated cgroup directory"))?;
        sweep(delegated, &parent);
        let name = OsString::from(format!("{PREFIX}{}", std::process::id()));
        mkdirat(&parent, name.as_os_str(), Mode::from_bits_truncate(0o755))
            .map_err(|errno| failed(errno, "make a group in the delegated cgroup directory"))?;
        let directory = openat(&parent, name.as_os_str(), flags, Mode::empty())
            .map_err(|errno| failed(errno, "open the new group in the cgroup directory"))?;
        let mut group = Cgroup {
            parent,
            name,
            directory,
            bounds: Bounds::default(),
        };
        // A directory that is no cgroup has no such file; neither has a kernel before 5.14.
        if let Err(errno) = group.open("cgroup.kill", OFlag::O_WRONLY) {
            group.remove();
            return Err(failed(errno, "find cgroup.kill in a group of"));
        }
        let pids = group
            .write("pids.max", &policy.process_cap.to_string())
            .is_ok();
        let memory = match policy.memory_bytes {
            Some(bytes) => {
                // All of it or nothing: a worker that lost a part of itself would not know. Before
                // Linux 4.19 there is no such file, and one process dies.
                best_effort(group.write("memory.oom.group", "1"));
                group.write("memory.max", &bytes.to_string()).is_ok()
            }
            None => false,
        };
        group.bounds = Bounds { pids, memory };
        Ok(group)
    }

    /// For clone3, which starts a process inside without a moment outside.
    pub(crate) fn as_fd(&self) -> BorrowedFd<'_> {
        self.directory.as_fd()
    }

    /// Moves the calling process in.
    pub(crate) fn join(&self) -> Result<(), StepError> {
        self.write("cgroup.procs", "0")
            .map_err(|errno| StepError::errno(Step::Cgroup, errno, "join the tree's cgroup"))
    }

    /// Kills everything inside; that it is empty is for [`Cgroup::wait_until_empty`] to say.
    pub(crate) fn kill(&self) {
        // The file was there; a write to it fails only when the group is gone with its processes.
        best_effort(self.write("cgroup.kill", "1"));
    }

    /// Waits until no process is inside, at most for the budget; says whether it is so.
    pub(crate) fn wait_until_empty(&self) -> bool {
        let deadline = clock::in_ms(limits::CGROUP_EMPTY_BUDGET_MS);
        let Ok(events) = self.open("cgroup.events", OFlag::O_RDONLY) else {
            return true;
        };
        loop {
            if self.populated() == Some(false) {
                return true;
            }
            let left = clock::left_until(deadline);
            if left.is_zero() {
                return false;
            }
            // The kernel reports a change of the file as an exceptional condition. It may have
            // changed between the look and the poll, which a second look soon after finds.
            let pause = left.min(Duration::from_millis(limits::CGROUP_LOOK_MS));
            let mut fds = [PollFd::new(events.as_fd(), PollFlags::POLLPRI)];
            let pause = PollTimeout::try_from(pause).unwrap_or(PollTimeout::ZERO);
            best_effort(nix::poll::poll(&mut fds, pause));
        }
    }

    fn populated(&self) -> Option<bool> {
        let mut text = String::new();
        let file = self.open("cgroup.events", OFlag::O_RDONLY).ok()?;
        File::from(file).read_to_string(&mut text).ok()?;
        populated(&text)
    }

    fn open(&self, name: &str, flags: OFlag) -> Result<OwnedFd, Errno> {
        openat(
            &self.directory,
            name,
            flags | OFlag::O_CLOEXEC,
            Mode::empty(),
        )
    }

    fn write(&self, name: &str, text: &str) -> Result<(), Errno> {
        let mut file = File::from(self.open(name, OFlag::O_WRONLY)?);
        file.write_all(text.as_bytes())
            .map_err(|error| Errno::from_raw(error.raw_os_error().unwrap_or(0)))
    }

    /// Whether the kernel has killed anything inside because the group's memory was used up.
    pub(crate) fn ran_out_of_memory(&self) -> bool {
        let mut text = String::new();
        let read = self
            .open("memory.events", OFlag::O_RDONLY)
            .map(|file| File::from(file).read_to_string(&mut text));
        matches!(read, Ok(Ok(_))) && kills_for_memory(&text) > 0
    }

    /// Removes the empty group.
    pub(crate) fn remove(&self) {
        // One that can't be removed is swept up by the next jail.
        best_effort(remove_group(&self.parent, &self.name));
    }
}

/// Removes from a delegated directory what jails that were killed left in it; what is still being
/// emptied gets [`limits::CGROUP_SWEEP_BUDGET_MS`]. For whoever started jails there, once it has
/// seen the last of them end. Blocks.
pub fn sweep_delegated(delegated: &Path) {
    let flags = OFlag::O_DIRECTORY | OFlag::O_CLOEXEC | OFlag::O_RDONLY;
    let Ok(parent) = nix::fcntl::open(delegated, flags, Mode::empty()) else {
        return;
    };
    let deadline = clock::in_ms(limits::CGROUP_SWEEP_BUDGET_MS);
    // The dead leave their group a moment after their parent has been told.
    while sweep(delegated, &parent) == Swept::SomeLeft && !clock::left_until(deadline).is_zero() {
        let pause = Duration::from_millis(limits::CGROUP_LOOK_MS);
        let pause = PollTimeout::try_from(pause).unwrap_or(PollTimeout::ZERO);
        best_effort(nix::poll::poll(&mut [], pause));
    }
}

/// Why a scope can't be used.
#[derive(Debug, thiserror::Error)]
pub enum ScopeError {
    /// This process is in no scope of a service manager.
    #[error("this process is in no scope: its cgroup is `{0}`")]
    None(String),
    /// The kernel or the machine's mounts are in the way.
    #[error("could not {what} `{}`", path.display())]
    System {
        /// What was tried.
        what: &'static str,
        /// On what.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
}

/// Makes the scope that this process was started in, as by `systemd-run --scope` with
/// `Delegate=yes`, a directory for groups of trees: moves the process into a group of its own
/// there, for a group with processes hands on no controllers, and hands them on. Gives the scope's
/// directory.
///
/// # Errors
/// When this process is in no scope, or may not use it.
pub fn take_over_scope() -> Result<PathBuf, ScopeError> {
    let read = |path: &str| {
        std::fs::read_to_string(path).map_err(|source| ScopeError::System {
            what: "read",
            path: path.into(),
            source,
        })
    };
    let (own, mounts) = (read("/proc/self/cgroup")?, read("/proc/self/mounts")?);
    let scope = scope_directory(&own, &mounts).ok_or(ScopeError::None(own))?;
    let group = scope.join(OWN_GROUP);
    let made = match std::fs::create_dir(&group) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        made => made,
    };
    let system = |what, path: &Path, source| ScopeError::System {
        what,
        path: path.to_owned(),
        source,
    };
    made.map_err(|source| system("make the group", &group, source))?;
    let members = group.join("cgroup.procs");
    std::fs::write(&members, "0").map_err(|source| system("move into", &members, source))?;
    for controller in ["+pids", "+memory"] {
        // What was not handed to the scope can't be handed on, and is then not claimed.
        let handed = std::fs::write(scope.join("cgroup.subtree_control"), controller);
        best_effort(handed);
    }
    Ok(scope)
}

/// The group of a scope in which whoever owns it runs itself.
const OWN_GROUP: &str = "leader";

/// Where the scope is that `/proc/self/cgroup` tells of, by the mounts of `/proc/self/mounts`.
fn scope_directory(own: &str, mounts: &str) -> Option<PathBuf> {
    let group = own.lines().find_map(|line| line.strip_prefix("0::/"))?;
    let tree = mounts.lines().find_map(|line| {
        let mut words = line.split(' ').skip(1);
        let path = words.next()?;
        (words.next()? == "cgroup2").then(|| Path::new(path))
    })?;
    // One that executed itself once more may have made its own group already.
    let scope = group.strip_suffix("/leader").unwrap_or(group);
    scope.ends_with(".scope").then(|| tree.join(scope))
}

/// What a sweep came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Swept {
    /// No group of a dead jail is left.
    All,
    /// One could not be removed yet.
    SomeLeft,
}

/// Removes an empty group and the empty groups below it, which whoever ran inside may have made.
/// Goes [`limits::CGROUP_DEPTH_MAX`] deep.
fn remove_group(parent: &OwnedFd, name: &OsStr) -> Result<(), Errno> {
    remove_to_depth(parent, name, limits::CGROUP_DEPTH_MAX)
}

fn remove_to_depth(parent: &OwnedFd, name: &OsStr, depth: u32) -> Result<(), Errno> {
    let removed = unlinkat(parent, name, UnlinkatFlags::RemoveDir);
    // With groups below it a group is busy, as one with processes is.
    if removed != Err(Errno::EBUSY) || depth == 0 {
        return removed;
    }
    let flags = OFlag::O_DIRECTORY | OFlag::O_CLOEXEC | OFlag::O_RDONLY | OFlag::O_NOFOLLOW;
    let group = openat(parent, name, flags, Mode::empty())?;
    let listed = Path::new("/proc/self/fd").join(group.as_raw_fd().to_string());
    let Ok(entries) = listed.read_dir() else {
        return removed;
    };
    let below = entries
        .flatten()
        .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    for entry in below.take(limits::CGROUP_SWEEP_MAX) {
        remove_to_depth(&group, &entry.file_name(), depth - 1)?;
    }
    unlinkat(parent, name, UnlinkatFlags::RemoveDir)
}

/// Removes groups whose jail was killed. The kernel refuses to remove one with processes in it; one
/// whose jail lives may be empty because it is just being filled, and is left alone.
fn sweep(delegated: &Path, parent: &OwnedFd) -> Swept {
    let Ok(entries) = delegated.read_dir() else {
        return Swept::All;
    };
    let mut swept = Swept::All;
    let names = entries.filter_map(|entry| entry.ok().map(|entry| entry.file_name()));
    for name in names.take(limits::CGROUP_SWEEP_MAX) {
        let jail = name
            .to_str()
            .and_then(|name| name.strip_prefix(PREFIX)?.parse::<u32>().ok());
        let gone = jail.is_some_and(|pid| !Path::new(&format!("/proc/{pid}")).exists());
        if gone && remove_group(parent, &name) == Err(Errno::EBUSY) {
            swept = Swept::SomeLeft;
        }
    }
    swept
}

/// Reads `cgroup.events`.
fn populated(text: &str) -> Option<bool> {
    text.lines()
        .find_map(|line| match line.strip_prefix("populated ")? {
            "0" => Some(false),
            "1" => Some(true),
            _ => None,
        })
}

/// Reads `memory.events`: how many processes were killed for lack of memory.
fn kills_for_memory(text: &str) -> u64 {
    text.lines()
        .find_map(|line| line.strip_prefix("oom_kill ")?.parse().ok())
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_memory_events_tell_whether_the_kernel_killed_for_memory() {
        let text =
            |kills| format!("low 0\nhigh 0\nmax 812\noom 3\noom_kill {kills}\noom_group_kill 1\n");
        assert_eq!(kills_for_memory(&text(0)), 0);
        assert_eq!(kills_for_memory(&text(4)), 4);
        assert_eq!(kills_for_memory("low 0\n"), 0);
    }

    #[test]
    fn the_events_file_says_whether_anything_is_inside() {
        assert_eq!(populated("populated 0\nfrozen 0\n"), Some(false));
        assert_eq!(populated("frozen 1\npopulated 1\n"), Some(true));
        assert_eq!(populated("frozen 0\n"), None);
    }

    #[test]
    fn a_scope_is_known_by_its_name_and_found_below_its_mount() {
        let mounts = "proc /proc proc rw 0 0\ncgroup2 /sys/fs/cgroup cgroup2 rw,nosuid 0 0\n";
        let of = |own: &str| scope_directory(own, mounts);
        let scope = "/sys/fs/cgroup/user.slice/app.slice/run-r1.scope";
        assert_eq!(
            of("1:cpu:/\n0::/user.slice/app.slice/run-r1.scope\n"),
            Some(scope.into())
        );
        assert_eq!(
            of("0::/user.slice/app.slice/run-r1.scope/leader\n"),
            Some(scope.into())
        );
        // A service's directory, a session's or the machine's own is nobody's to take.
        for other in [
            "0::/\n",
            "0::/system.slice/x.service\n",
            "1:cpu:/a.scope\n",
            "",
        ] {
            assert_eq!(of(other), None, "{other:?}");
        }
        assert_eq!(
            scope_directory("0::/a.scope\n", "proc /proc proc rw 0 0\n"),
            None
        );
    }

    #[test]
    fn a_directory_that_is_no_cgroup_is_refused_and_left_as_it_was() {
        let directory = tempfile::tempdir().unwrap();
        let error = Cgroup::create(directory.path(), &JailPolicy::default()).unwrap_err();
        assert_eq!(
            (error.step, error.errno),
            (Step::Cgroup, Some(libc::ENOENT))
        );
        assert_eq!(directory.path().read_dir().unwrap().count(), 0);
    }
}
