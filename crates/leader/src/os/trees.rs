//! Looks at the processes below a jail, as far as `/proc` shows them.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::time::Duration;

use crate::os::clock::Clock;

/// How long trees have to come to a stop, in milliseconds. A process in a system call that can't
/// be interrupted stops after it, which nobody waits for.
pub const STILL_MS_MAX: u64 = 1_000;
/// Between two looks, in milliseconds. The kernel tells nobody but a parent of a stop.
const LOOK_MS: u64 = 2;
/// Generations below a jail that are looked at.
const DEPTH_MAX: usize = 64;

/// A process as a look at all of them shows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Seen {
    parent: u32,
    state: char,
}

/// Waits until everything below these jails stands still, or [`STILL_MS_MAX`] are over.
pub async fn until_still(jails: &[u32]) {
    let clock = Clock::start();
    while clock.now_ms() < STILL_MS_MAX {
        let seen = look();
        if jails.iter().all(|jail| is_still(&seen, *jail)) {
            return;
        }
        tokio::time::sleep(Duration::from_millis(LOOK_MS)).await;
    }
    tracing::warn!("a tree did not come to a stop in {STILL_MS_MAX} ms");
}

/// These processes and everything below them, each once, in rising order.
pub fn with_all_below(roots: &[u32]) -> Vec<u32> {
    let seen = look();
    let mut found: BTreeSet<u32> = roots.iter().copied().collect();
    for _ in 0..DEPTH_MAX {
        let below: Vec<u32> = seen
            .iter()
            .filter(|(pid, process)| found.contains(&process.parent) && !found.contains(pid))
            .map(|(pid, _)| *pid)
            .collect();
        if below.is_empty() {
            break;
        }
        found.extend(below);
    }
    found.into_iter().collect()
}

/// Every process that this one can see.
fn look() -> BTreeMap<u32, Seen> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries
        .filter_map(|entry| {
            let pid = entry.file_name().to_str()?.parse().ok()?;
            let stat = fs::read_to_string(entry.path().join("stat")).ok()?;
            Some((pid, seen_of(&stat)?))
        })
        .collect()
}

/// State and parent stand behind the name, which may itself hold anything (proc(5)).
fn seen_of(stat: &str) -> Option<Seen> {
    let (_, rest) = stat.rsplit_once(')')?;
    let mut fields = rest.split_whitespace();
    Some(Seen {
        state: fields.next()?.chars().next()?,
        parent: fields.next()?.parse().ok()?,
    })
}

/// Whether a jail's tree stands still. The jail itself, and the init right below it where there is
/// one, stay awake to listen; a jail that was stopped before it could listen has nothing below it
/// that moves. A process that has ended moves no more.
fn is_still(seen: &BTreeMap<u32, Seen>, jail: u32) -> bool {
    let stopped = |pid: &u32| {
        seen.get(pid)
            .is_none_or(|found| matches!(found.state, 'T' | 't' | 'Z' | 'X'))
    };
    if stopped(&jail) {
        return true;
    }
    let children = |of: u32| {
        seen.iter()
            .filter(move |(_, found)| found.parent == of)
            .map(|(pid, _)| *pid)
    };
    let mut level: Vec<u32> = children(jail).collect();
    // Without anything below it the jail has yet to start what it will have to stop.
    if level.is_empty() {
        return false;
    }
    let below: Vec<u32> = level.iter().flat_map(|pid| children(*pid)).collect();
    if !below.is_empty() {
        level = level
            .into_iter()
            .filter(|pid| stopped(pid))
            .chain(below)
            .collect();
    }
    for _ in 0..DEPTH_MAX {
        if level.is_empty() {
            return true;
        }
        if !level.iter().all(stopped) {
            return false;
        }
        level = level.iter().flat_map(|pid| children(*pid)).collect();
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(processes: &[(u32, u32, char)]) -> BTreeMap<u32, Seen> {
        let seen = |(pid, parent, state): &(u32, u32, char)| {
            let (parent, state) = (*parent, *state);
            (*pid, Seen { parent, state })
        };
        processes.iter().map(seen).collect()
    }

    #[test]
    fn a_tree_is_still_when_all_but_those_who_listen_are() {
        for (processes, still) in [
            // Jail, init, worker, command.
            (
                vec![(5, 1, 'S'), (6, 5, 'S'), (7, 6, 'T'), (8, 7, 'T')],
                true,
            ),
            (
                vec![(5, 1, 'S'), (6, 5, 'S'), (7, 6, 'T'), (8, 7, 'S')],
                false,
            ),
            (
                vec![(5, 1, 'S'), (6, 5, 'S'), (7, 6, 'R'), (8, 7, 'T')],
                false,
            ),
            // Jail and worker, without an init between them.
            (vec![(5, 1, 'S'), (6, 5, 'T')], true),
            (vec![(5, 1, 'S'), (6, 5, 'S')], false),
            // Init alone: what it starts comes next.
            (vec![(5, 1, 'S')], false),
            // Stopped before it could listen; gone; a zombie.
            (vec![(5, 1, 'T')], true),
            (vec![(9, 1, 'S')], true),
            (vec![(5, 1, 'Z'), (9, 1, 'S')], true),
        ] {
            assert_eq!(is_still(&tree(&processes), 5), still, "{processes:?}");
        }
    }

    #[test]
    fn state_and_parent_are_found_behind_an_odd_name() {
        let stat = "7 (a) b (c) T 3 7 7 0 -1";
        let wanted = Seen {
            parent: 3,
            state: 'T',
        };
        assert_eq!(seen_of(stat), Some(wanted));
        assert_eq!(seen_of("7"), None);
        let (me, parent) = (std::process::id(), std::os::unix::process::parent_id());
        assert!(look().contains_key(&me));
        assert!(with_all_below(&[parent]).contains(&me));
        assert_eq!(with_all_below(&[]), Vec::<u32>::new());
    }
}
