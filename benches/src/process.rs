//! Processes as the kernel shows them: what they use, what they started, when they are gone.

use std::collections::BTreeMap;
use std::fs;
use std::time::{Duration, Instant};

use confine::signal::PidFd;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike;
use std::os::fd::AsFd;

use crate::error::BenchError;

/// The processor time of every process that was waited for so far, with those that it waited for
/// itself, in milliseconds.
///
/// # Errors
/// When the system refuses.
pub fn children_cpu_ms() -> Result<f64, BenchError> {
    let usage = getrusage(UsageWho::RUSAGE_CHILDREN)
        .map_err(|errno| BenchError::io("ask for the processor time of children")(errno.into()))?;
    let used = usage.user_time() + usage.system_time();
    Ok(used.num_microseconds() as f64 / 1e3)
}

/// One process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seen {
    /// Its number.
    pub pid: u32,
    /// Its parent's number.
    pub parent: u32,
    /// The name of its program, cut by the kernel to 15 bytes.
    pub name: String,
}

/// Every process below `root`, in no order.
///
/// # Errors
/// When `/proc` can't be read.
pub fn descendants(root: u32) -> Result<Vec<Seen>, BenchError> {
    let entries = fs::read_dir("/proc").map_err(BenchError::io("read /proc"))?;
    let all: Vec<Seen> = entries
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        // One that ends meanwhile is none any more.
        .filter_map(|pid: u32| parse_stat(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?))
        .collect();
    Ok(below(&all, root))
}

/// Reads a line of `/proc/PID/stat` (proc_pid_stat(5)); the name may hold any character.
fn parse_stat(line: &str) -> Option<Seen> {
    let (pid, rest) = line.split_once(" (")?;
    let (name, rest) = rest.rsplit_once(") ")?;
    Some(Seen {
        pid: pid.parse().ok()?,
        parent: rest.split(' ').nth(1)?.parse().ok()?,
        name: name.to_owned(),
    })
}

fn below(all: &[Seen], root: u32) -> Vec<Seen> {
    let mut children: BTreeMap<u32, Vec<&Seen>> = BTreeMap::new();
    for seen in all {
        children.entry(seen.parent).or_default().push(seen);
    }
    let mut found = Vec::new();
    let mut queue = vec![root];
    while let Some(parent) = queue.pop() {
        for child in children.remove(&parent).unwrap_or_default() {
            queue.push(child.pid);
            found.push(child.clone());
        }
    }
    found
}

/// The proportional set size of a process in megabytes: its own pages, and of each shared one its
/// share.
///
/// # Errors
/// When it is gone, or belongs to somebody else: init and keeper let nobody but root look.
pub fn pss_mb(pid: u32) -> Result<f64, BenchError> {
    let path = format!("/proc/{pid}/smaps_rollup");
    let text = fs::read_to_string(&path).map_err(BenchError::io(format!(
        "read {path} (hint: only root may look into the jail's processes)"
    )))?;
    let kilobytes = field(&text, "Pss:").unwrap_or(0);
    Ok(kilobytes as f64 * 1024.0 / 1e6)
}

/// How many threads a process has.
///
/// # Errors
/// When it is gone.
pub fn threads(pid: u32) -> Result<u64, BenchError> {
    let path = format!("/proc/{pid}/status");
    let text = fs::read_to_string(&path).map_err(BenchError::io(format!("read {path}")))?;
    Ok(field(&text, "Threads:").unwrap_or(0))
}

/// The first number of the line that begins with a key.
fn field(text: &str, key: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(key))?;
    line.split_whitespace().next()?.parse().ok()
}

/// Holds on processes, which tell their end.
#[derive(Debug)]
pub struct Holds(Vec<PidFd>);

impl Holds {
    /// Takes hold of these; one that has ended already is left out.
    pub fn take(pids: impl IntoIterator<Item = u32>) -> Holds {
        Holds(
            pids.into_iter()
                .filter_map(|pid| PidFd::open(pid).ok())
                .collect(),
        )
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// Waits until all have ended and gives the moment at which that was seen.
    ///
    /// # Errors
    /// When some have not within the budget.
    pub fn gone(&self, budget: Duration) -> Result<Instant, BenchError> {
        let until = Instant::now() + budget;
        for (number, hold) in self.0.iter().enumerate() {
            // A pidfd becomes readable at the end of its process (pidfd_open(2)).
            let mut fds = [PollFd::new(hold.as_fd(), PollFlags::POLLIN)];
            let left = until.saturating_duration_since(Instant::now());
            let timeout = PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX);
            if !matches!(poll(&mut fds, timeout), Ok(ready) if ready > 0) {
                return Err(BenchError::TooSlow {
                    what: format!(
                        "the end of {} of {} processes",
                        self.count() - number,
                        self.count()
                    ),
                    seconds: budget.as_secs(),
                });
            }
        }
        Ok(Instant::now())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    fn seen(pid: u32, parent: u32, name: &str) -> Seen {
        Seen {
            pid,
            parent,
            name: name.to_owned(),
        }
    }

    #[test]
    fn a_name_with_brackets_hides_no_parent() {
        assert_eq!(
            parse_stat("7 (a) b (c)) S 3 7 7 0"),
            Some(seen(7, 3, "a) b (c)"))
        );
        assert_eq!(parse_stat("7 (a"), None);
    }

    #[test]
    fn what_lies_below_is_found_at_any_depth() {
        let all = [
            seen(2, 1, "a"),
            seen(3, 2, "b"),
            seen(4, 3, "c"),
            seen(5, 1, "d"),
        ];
        let mut found: Vec<u32> = below(&all, 2).iter().map(|seen| seen.pid).collect();
        found.sort_unstable();
        assert_eq!(found, [3, 4]);
    }

    #[test]
    fn a_child_is_seen_held_and_missed() {
        let mut child = Command::new("sleep")
            .arg("60")
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        let pid = child.id();
        let found = descendants(std::process::id()).unwrap();
        assert!(found.iter().any(|seen| seen.pid == pid), "{found:?}");
        assert_eq!(threads(pid).unwrap(), 1);
        let holds = Holds::take([pid]);
        assert_eq!(holds.count(), 1);
        let error = holds.gone(Duration::from_millis(1)).unwrap_err();
        assert!(error.to_string().contains("1 of 1 processes"), "{error}");
        child.kill().unwrap();
        holds.gone(Duration::from_secs(10)).unwrap();
        child.wait().unwrap();
    }
}
