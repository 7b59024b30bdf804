//! What the kernel tells of a process and of those below it.

use std::fs;
use std::path::PathBuf;

/// Every process below `root`, by the kernel's lists of children.
pub fn descendants(root: i32) -> Vec<i32> {
    let mut found = Vec::new();
    let mut queue = vec![root];
    while let Some(pid) = queue.pop() {
        for child in children(pid) {
            found.push(child);
            queue.push(child);
        }
    }
    found
}

/// The children of a process, those that have ended but are not reaped among them; none when it
/// is gone.
pub fn children(pid: i32) -> Vec<i32> {
    let Ok(tasks) = fs::read_dir(format!("/proc/{pid}/task")) else {
        return Vec::new();
    };
    tasks
        .filter_map(Result::ok)
        .filter_map(|task| fs::read_to_string(task.path().join("children")).ok())
        .flat_map(|list| {
            list.split_whitespace()
                .filter_map(|word| word.parse().ok())
                .collect::<Vec<i32>>()
        })
        .collect()
}

/// The letter of a process's state; none when it is gone.
pub fn state(pid: i32) -> Option<char> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name before it may hold anything, a parenthesis as well.
    stat.rsplit_once(") ")?.1.chars().next()
}

/// The children of a process that have ended and were not reaped.
pub fn zombies(pid: i32) -> Vec<i32> {
    let ended = |child: &i32| state(*child) == Some('Z');
    children(pid).into_iter().filter(ended).collect()
}

/// What each open descriptor of a process leads to; none when it is gone.
pub fn descriptors(pid: i32) -> Vec<PathBuf> {
    let Ok(links) = fs::read_dir(format!("/proc/{pid}/fd")) else {
        return Vec::new();
    };
    links
        .filter_map(Result::ok)
        .filter_map(|link| fs::read_link(link.path()).ok())
        .collect()
}

/// Resident memory of a process in KiB.
///
/// # Panics
/// When it is gone.
pub fn resident_kib(pid: i32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("a live process");
    status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))
        .and_then(|rest| rest.split_whitespace().next())
        .and_then(|number| number.parse().ok())
        .expect("the kernel tells VmRSS of a live process")
}

/// Mounts in the namespace of a process.
///
/// # Panics
/// When it is gone.
pub fn mounts(pid: i32) -> usize {
    let list = fs::read_to_string(format!("/proc/{pid}/mountinfo")).expect("a live process");
    list.lines().count()
}
