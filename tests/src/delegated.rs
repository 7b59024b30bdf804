//! A directory of the machine's cgroup v2 tree, delegated as a service manager would do it.

use std::fs;
use std::io;
use std::os::unix::fs::chown;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use crate::ground::{ORDINARY, User};
use crate::waiting::until;

/// How long the last group may take to be empty.
const EMPTY_WITHIN: Duration = Duration::from_secs(60);
/// The group that a leader itself runs in: a group with processes can have no controllers for
/// those below it, so that a leader and its agents' groups are neighbours.
const OWN_GROUP: &str = "leader";

/// A directory that is removed with the value.
#[derive(Debug)]
pub struct Delegated(PathBuf);

impl Delegated {
    /// Makes one for `user`.
    ///
    /// # Errors
    /// In words, when this machine has none to give.
    pub fn make(user: User) -> Result<Delegated, String> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        if !nix::unistd::geteuid().is_root() {
            return Err("only root can delegate a cgroup".to_owned());
        }
        let tree = tree().ok_or("no cgroup v2 tree is mounted")?;
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("muster-suite-{}-{number}", std::process::id());
        let delegated = Delegated(tree.join(name));
        let made = delegated.fill(user);
        made.map_err(|error| format!("no group in {}: {error}", tree.display()))?;
        Ok(delegated)
    }

    fn fill(&self, user: User) -> io::Result<()> {
        fs::create_dir(&self.0)?;
        fs::create_dir(self.0.join(OWN_GROUP))?;
        // A kernel before 5.14 kills no group as one.
        fs::metadata(self.0.join(OWN_GROUP).join("cgroup.kill"))?;
        if user == User::Ordinary {
            // What cgroups(7) names for a delegation: the directory and the file by which a
            // process moves from one group below it to another.
            for path in [self.0.clone(), self.0.join("cgroup.procs")] {
                chown(path, Some(ORDINARY), Some(ORDINARY))?;
            }
        }
        Ok(())
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// The configuration that names it.
    pub fn settings(&self) -> String {
        format!("[confinement]\ncgroup = \"{}\"", self.0.display())
    }

    /// A shell text that moves its shell into the directory and becomes the command in its
    /// arguments.
    pub(crate) fn enter(&self) -> String {
        let group = self.0.join(OWN_GROUP);
        format!("echo $$ >'{}/cgroup.procs' && exec \"$@\"", group.display())
    }

    /// Groups of trees that are there.
    pub fn groups(&self) -> usize {
        let entries = self.0.read_dir().into_iter().flatten().flatten();
        let groups = entries.filter(|entry| entry.path().is_dir());
        groups.filter(|it| it.file_name() != OWN_GROUP).count()
    }

    /// Removes it once its last group is empty.
    ///
    /// # Panics
    /// When one does not become empty.
    pub fn remove(&self) {
        let removed = until(EMPTY_WITHIN, || {
            for entry in self.0.read_dir().into_iter().flatten().flatten() {
                fs::remove_dir(entry.path()).ok();
            }
            fs::remove_dir(&self.0).ok()
        });
        assert_eq!(removed, Some(()), "{}", self.0.display());
    }
}

impl Drop for Delegated {
    fn drop(&mut self) {
        if !self.0.exists() {
            return;
        }
        if std::thread::panicking() {
            // What a failed test left is ended as one.
            fs::write(self.0.join("cgroup.kill"), "1").ok();
        }
        self.remove();
    }
}

/// Where the cgroup v2 tree is mounted.
fn tree() -> Option<PathBuf> {
    let mounts = fs::read_to_string("/proc/mounts").ok()?;
    mounts.lines().find_map(|line| {
        let mut words = line.split(' ').skip(1);
        let path = words.next()?;
        (words.next()? == "cgroup2").then(|| PathBuf::from(path))
    })
}
