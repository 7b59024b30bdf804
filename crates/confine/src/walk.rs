//! Ending a tree without a namespace: stop and kill down the lists of children until none is left.
//!
//! The jail is the subreaper, so whatever loses its parent becomes its child; that there is no
//! child left (ECHILD) is the proof that the tree is empty.

use std::io;

use nix::errno::Errno;
use nix::sys::signal::Signal;

use crate::limits;
use crate::signal::PidFd;
use crate::sys::best_effort;
use crate::verdict::{self, Verdict};

/// What is left of a tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Left {
    /// Nothing: the kernel says that this process has no child.
    Nothing,
    /// Something that has not ended yet.
    Something,
}

/// Checks that this kernel lists the children of a process (CONFIG_PROC_CHILDREN).
///
/// # Errors
/// `ENOENT` when it does not, or why the list could not be read.
pub(crate) fn check() -> Result<(), Errno> {
    children_of(std::process::id())
        .map(drop)
        .map_err(|error| Errno::from_raw(error.raw_os_error().unwrap_or(libc::ENOENT)))
}

/// Stops, then kills, every process below this one. To be repeated until nothing is left: one that
/// forked before it was stopped is found by its parent the next time.
pub(crate) fn strike() {
    let tree = stop_all();
    for process in &tree {
        best_effort(process.send(Signal::SIGKILL));
    }
}

/// Stops every process below this one for a while.
pub(crate) fn pause() {
    drop(stop_all());
}

/// Lets every process below this one go on.
pub(crate) fn resume() {
    drop(visit(Signal::SIGCONT));
}

/// Stops every process below this one, parents before their children, so that a list that was read
/// stays true.
fn stop_all() -> Vec<PidFd> {
    visit(Signal::SIGSTOP)
}

/// Sends `signal` to every process below this one, from the top down, and holds them.
fn visit(signal: Signal) -> Vec<PidFd> {
    let mut held: Vec<PidFd> = Vec::new();
    let mut parents = vec![std::process::id()];
    while let Some(parent) = parents.pop() {
        for child in children_of(parent).unwrap_or_default() {
            if held.len() >= limits::WALK_PROCESSES_MAX {
                return held;
            }
            let Some(process) = hold(child, parent) else {
                continue;
            };
            best_effort(process.send(signal));
            parents.push(child);
            held.push(process);
        }
    }
    held
}

/// Holds a process if it still is the child of that parent: its number may have gone to a stranger
/// between the reading of the list and the opening of the pidfd.
fn hold(child: u32, parent: u32) -> Option<PidFd> {
    let process = PidFd::open(child).ok()?;
    let stat = std::fs::read_to_string(format!("/proc/{child}/stat")).ok()?;
    let real = parent_in(&stat)?;
    // An orphan comes to this process; a parent inside may have ended meanwhile.
    let ours = real == parent || real == std::process::id();
    (ours && !process.has_ended().ok()?).then_some(process)
}

/// The parent's number in `/proc/PID/stat`; the name before it may hold anything.
fn parent_in(stat: &str) -> Option<u32> {
    stat.rsplit_once(')')?
        .1
        .split_whitespace()
        .nth(1)?
        .parse()
        .ok()
}

/// The children of every thread of a process.
fn children_of(pid: u32) -> io::Result<Vec<u32>> {
    let mut children = Vec::new();
    for task in std::fs::read_dir(format!("/proc/{pid}/task"))? {
        let list = std::fs::read_to_string(task?.path().join("children"))?;
        children.extend(
            list.split_whitespace()
                .filter_map(|pid| pid.parse::<u32>().ok()),
        );
    }
    Ok(children)
}

/// Reaps every child that has ended; hands the end of `program` to `on_program`.
pub(crate) fn reap(program: u32, on_program: &mut Option<Verdict>) -> Left {
    loop {
        match verdict::reap(-1, libc::WNOHANG) {
            Ok(Some((pid, verdict))) if pid == program => *on_program = Some(verdict),
            Ok(Some(_)) => {}
            Ok(None) => return Left::Something,
            Err(Errno::ECHILD) => return Left::Nothing,
            // No other error is possible for these arguments; nothing can be said then.
            Err(_) => return Left::Something,
        }
    }
}

/// Makes this process the parent of all orphans below it.
pub(crate) fn become_subreaper() -> Result<(), Errno> {
    nix::sys::prctl::set_child_subreaper(true)
}

/// Ends everything below and returns when nothing is left, however long that takes: a process in
/// an uninterruptible wait ends when its wait does.
///
/// `pause` waits for the next SIGCHLD, at most for the milliseconds it is given: what the walk has
/// missed makes no sound.
pub(crate) fn clear(program: u32, on_program: &mut Option<Verdict>, pause: impl Fn(u16)) {
    let mut pause_ms = limits::WALK_PAUSE_MIN_MS;
    loop {
        strike();
        if reap(program, on_program) == Left::Nothing {
            return;
        }
        pause(pause_ms);
        if reap(program, on_program) == Left::Nothing {
            return;
        }
        pause_ms = pause_ms.saturating_mul(2).min(limits::WALK_PAUSE_MAX_MS);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parent_is_found_behind_any_name() {
        assert_eq!(parent_in("12 (a b) c) S 7 12 12 0"), Some(7));
        assert_eq!(parent_in("12 (x"), None);
    }
}
