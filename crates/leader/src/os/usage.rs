//! What the processes below a jail use of memory and processor, as `/proc` shows it (proc(5)).
//!
//! A look costs two or three small files a process. The exact sum of memory, for which the kernel
//! walks page tables, is taken only where the cheap one could be too much, or is a new height.

use std::collections::HashMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Processes that one look takes in; a tree's own cap on processes is far below it.
const PROCESSES_MAX: usize = 16_384;
/// Descriptors of one process that are looked at for memory that has no mapping.
const DESCRIPTORS_MAX: usize = 4_096;
/// The kernel's tick in `/proc`, in milliseconds: `USER_HZ` is 100 on every architecture that
/// Linux runs on today but for alpha (time(7)).
const TICK_MS: u64 = 10;
/// The cheap sum of memory must grow by a sixteenth before a height is measured again.
const GROWTH_SHARE: u64 = 16;

/// What one tree has used so far, look by look.
#[derive(Debug, Clone)]
pub struct Meter {
    jail: u32,
    memory_cap_bytes: Option<u64>,
    /// The greatest cheap sum at which the exact one was taken.
    highest_cheap_bytes: u64,
    /// The last exact sum, and the cheap one it was taken with.
    exact: Option<(u64, u64)>,
    cpu: Ratchet,
}

/// What one look saw.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Seen {
    /// Memory at this moment.
    pub memory_bytes: u64,
    /// Processor time so far.
    pub cpu_ms: u64,
}

impl Meter {
    /// A meter for the tree below this jail.
    pub fn new(jail: u32, memory_cap_bytes: Option<u64>) -> Self {
        Meter {
            jail,
            memory_cap_bytes,
            highest_cheap_bytes: 0,
            exact: None,
            cpu: Ratchet::default(),
        }
    }

    /// Looks at the tree. What has ended meanwhile is passed over.
    pub fn look(&mut self) -> Seen {
        let processes = below(self.jail);
        let cpu_ms = processes.iter().map(|process| process.ticks).sum::<u64>() * TICK_MS;
        let mapped: u64 = processes.iter().map(|process| process.resident_bytes).sum();
        let unmapped = memory_files(&processes);
        // Pages that processes share are counted with each, so this is the most it can be.
        let cheap = mapped.saturating_add(unmapped);
        Seen {
            memory_bytes: self.memory(cheap, unmapped, &processes),
            cpu_ms: self.cpu.take(cpu_ms),
        }
    }

    fn memory(&mut self, cheap: u64, unmapped: u64, processes: &[Process]) -> u64 {
        let is_a_height = cheap
            > self
                .highest_cheap_bytes
                .saturating_add(self.highest_cheap_bytes / GROWTH_SHARE);
        let could_be_too_much = self.memory_cap_bytes.is_some_and(|cap| cheap > cap);
        if is_a_height || could_be_too_much {
            self.highest_cheap_bytes = self.highest_cheap_bytes.max(cheap);
            let mut exact = exact_bytes(processes, unmapped).min(cheap);
            if self.memory_cap_bytes.is_some_and(|cap| exact > cap) {
                // Sharers that end one by one while they are read leave a growing share to those
                // that are read after them. What is too much at a second look as well, is.
                let again = below(self.jail);
                exact = exact.min(exact_bytes(&again, memory_files(&again)));
            }
            self.exact = Some((exact, cheap));
            return exact;
        }
        // Between two exact looks the sum moves as the cheap one does.
        match self.exact {
            Some((exact, at)) if at > 0 => {
                let share = u128::from(exact) * u128::from(cheap) / u128::from(at);
                u64::try_from(share).unwrap_or(u64::MAX).min(cheap)
            }
            Some(_) | None => cheap,
        }
    }
}

/// A sum that never falls. A process takes the time of children that nobody waited for with it;
/// what was seen of it stays counted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Ratchet {
    lost: u64,
    last: u64,
}

impl Ratchet {
    fn take(&mut self, sum: u64) -> u64 {
        self.lost += self.last.saturating_sub(sum);
        self.last = sum;
        self.lost.saturating_add(sum)
    }
}

/// A process as its `stat` shows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Process {
    pid: u32,
    /// Its own time, and that of its children that it waited for.
    ticks: u64,
    resident_bytes: u64,
}

/// Everything below a process, without it.
fn below(root: u32) -> Vec<Process> {
    let mut found = Vec::new();
    let mut open = children_of(root);
    while let Some(pid) = open.pop() {
        if found.len() == PROCESSES_MAX {
            break;
        }
        let stat = fs::read_to_string(format!("/proc/{pid}/stat"));
        if let Some(process) = stat.ok().and_then(|stat| process_of(pid, &stat)) {
            found.push(process);
            open.extend(children_of(pid));
        }
    }
    found
}

/// The children of all threads of a process; the kernel lists them by thread.
fn children_of(pid: u32) -> Vec<u32> {
    let threads = fs::read_dir(format!("/proc/{pid}/task"))
        .into_iter()
        .flatten();
    threads
        .flatten()
        .filter_map(|thread| fs::read_to_string(thread.path().join("children")).ok())
        .flat_map(|list| {
            let numbers = list.split_whitespace();
            numbers
                .filter_map(|number| number.parse().ok())
                .collect::<Vec<u32>>()
        })
        .collect()
}

/// Reads fields 14 to 17 and 24. The name before them may hold anything.
fn process_of(pid: u32, stat: &str) -> Option<Process> {
    let (_, rest) = stat.rsplit_once(')')?;
    let fields: Vec<&str> = rest.split_whitespace().collect();
    // The first of them is field 3.
    let number = |field: usize| fields.get(field - 3)?.parse::<u64>().ok();
    let ticks = [14, 15, 16, 17].into_iter().filter_map(number).sum();
    Some(Process {
        pid,
        ticks,
        resident_bytes: number(24)?.saturating_mul(page_bytes()),
    })
}

fn page_bytes() -> u64 {
    // SAFETY: the call takes a number and touches no memory of ours.
    let bytes = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    u64::try_from(bytes).unwrap_or(4_096)
}

/// The bytes of all files of memfd_create(2) that these processes hold open, each once: what of
/// them is not mapped is in no process's memory.
fn memory_files(processes: &[Process]) -> u64 {
    let mut files: HashMap<(u64, u64), u64> = HashMap::new();
    for process in processes {
        // Of a process that may not be looked into nothing is seen here.
        let links = fs::read_dir(format!("/proc/{}/fd", process.pid))
            .into_iter()
            .flatten();
        for link in links.flatten().take(DESCRIPTORS_MAX) {
            let is_memory = fs::read_link(link.path()).is_ok_and(|target| {
                target
                    .as_os_str()
                    .as_encoded_bytes()
                    .starts_with(b"/memfd:")
            });
            if is_memory && let Ok(file) = fs::metadata(link.path()) {
                files.insert((file.dev(), file.ino()), file.blocks().saturating_mul(512));
            }
        }
    }
    files.values().sum()
}

/// The memory of these processes with each shared page counted once among those who share it. One
/// that may not be looked into counts with all that it has.
fn exact_bytes(processes: &[Process], unmapped: u64) -> u64 {
    let (mut own, mut shared) = (0_u64, 0_u64);
    for process in processes {
        let path = format!("/proc/{}/smaps_rollup", process.pid);
        match proportional(Path::new(&path)) {
            Some(seen) => {
                own = own.saturating_add(seen.all_bytes - seen.shared_memory_bytes);
                shared = shared.saturating_add(seen.shared_memory_bytes);
            }
            // What it has now: one that has ended meanwhile has nothing any more.
            None => own = own.saturating_add(resident_bytes(process.pid)),
        }
    }
    // Files in memory are there once, mapped or not; which of them are mapped can't be told, so
    // the greater of the two counts and nothing counts twice.
    own.saturating_add(shared.max(unmapped))
}

fn resident_bytes(pid: u32) -> u64 {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"));
    let process = stat.ok().and_then(|stat| process_of(pid, &stat));
    process.map_or(0, |process| process.resident_bytes)
}

/// The proportional set size of a process, and what of it is shared memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Proportional {
    all_bytes: u64,
    shared_memory_bytes: u64,
}

fn proportional(path: &Path) -> Option<Proportional> {
    proportional_of(&fs::read_to_string(path).ok()?)
}

/// Reads `Pss` and `Pss_Shmem`, the latter of Linux 5.3 and newer.
fn proportional_of(rollup: &str) -> Option<Proportional> {
    let bytes = |name: &str| {
        let line = rollup.lines().find_map(|line| line.strip_prefix(name))?;
        let kib = line.split_whitespace().next()?.parse::<u64>().ok()?;
        kib.checked_mul(1_024)
    };
    let all_bytes = bytes("Pss:")?;
    Some(Proportional {
        all_bytes,
        shared_memory_bytes: bytes("Pss_Shmem:").unwrap_or(0).min(all_bytes),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_and_memory_are_found_behind_an_odd_name() {
        let stat = "7 (a) b (c) S 3 7 7 0 -1 4194560 1 2 3 4 10 20 3 4 20 0 1 0 555 9000 25 0";
        let expected = Process {
            pid: 7,
            ticks: 37,
            resident_bytes: 25 * page_bytes(),
        };
        assert_eq!(process_of(7, stat), Some(expected));
        assert_eq!(process_of(7, "7 (a) Z 1"), None);
    }

    #[test]
    fn shared_memory_is_told_apart() {
        let text = "00400000-7fff [rollup]\nRss: 900 kB\nPss: 300 kB\nPss_Dirty: 1 kB\n\
                    Pss_Anon: 100 kB\nPss_File: 50 kB\nPss_Shmem: 150 kB\n";
        let expected = Proportional {
            all_bytes: 300 * 1_024,
            shared_memory_bytes: 150 * 1_024,
        };
        assert_eq!(proportional_of(text), Some(expected));
        assert_eq!(proportional_of(""), None);
    }

    #[test]
    fn what_was_used_stays_used() {
        let mut cpu = Ratchet::default();
        assert_eq!(cpu.take(100), 100);
        assert_eq!(cpu.take(250), 250);
        // A process that had used 200 ended, and nobody waited for it.
        assert_eq!(cpu.take(50), 250);
        assert_eq!(cpu.take(80), 280);
    }

    #[test]
    fn memory_between_two_exact_looks_follows_the_cheap_sum() {
        let mut meter = Meter::new(0, Some(1_000));
        meter.exact = Some((400, 800));
        meter.highest_cheap_bytes = 800;
        assert_eq!(meter.memory(600, 0, &[]), 300);
        assert_eq!(meter.memory(840, 0, &[]), 420);
        // Past the cap it is taken exactly: nothing is left here.
        assert_eq!(meter.memory(1_001, 0, &[]), 0);
    }

    #[test]
    fn this_process_is_seen_below_its_parent() {
        let me = std::process::id();
        let parent = std::os::unix::process::parent_id();
        let seen = below(parent);
        let own = seen.iter().find(|process| process.pid == me).unwrap();
        assert!(own.resident_bytes > 0);
        let exact = exact_bytes(&[*own], 0);
        assert!(0 < exact && exact <= own.resident_bytes * 2, "{exact}");
        // One that ended between the two looks counts for nothing, however much it had.
        let gone = Process {
            pid: u32::MAX,
            ticks: 0,
            resident_bytes: 1 << 40,
        };
        assert_eq!(exact_bytes(&[gone], 0), 0);
    }
}
