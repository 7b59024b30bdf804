//! What an agent uses of the machine, against what it may use.

use protocol::job::Caps;
use protocol::limits::DISK_ENTRIES_MAX;
use protocol::size::show_bytes;
use protocol::stats::Usage;
use protocol::status::StopReason;
use serde::{Deserialize, Serialize};

use crate::core::lifecycle::Resource;

/// One look at an agent's tree; none where it was not looked at.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Measure {
    /// Memory of all its processes at this moment, what they share counted once.
    pub memory_bytes: Option<u64>,
    /// Processor time of all its processes so far.
    pub cpu_ms: Option<u64>,
    /// What it has added where it writes.
    pub disk: Option<Space>,
}

/// What lies in some directories.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Space {
    /// On the disk.
    pub bytes: u64,
    /// Files, directories and all else that has a name.
    pub entries: u64,
}

/// A limit that was passed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Excess {
    /// Of what there was too much.
    pub resource: Resource,
    /// How much: bytes, milliseconds of processor time, or entries.
    pub used: u64,
    /// How much it might be, in the same unit.
    pub limit: u64,
}

impl Excess {
    /// The reason of the end that it brings.
    pub fn reason(&self) -> StopReason {
        match self.resource {
            Resource::Memory => StopReason::OutOfMemory,
            Resource::Cpu => StopReason::CpuLimit,
            Resource::Disk | Resource::Files => StopReason::DiskLimit,
        }
    }

    /// How much it was of how much, for an error.
    pub fn figures(&self) -> String {
        let show = |number: u64| match self.resource {
            Resource::Memory | Resource::Disk => show_bytes(number),
            Resource::Cpu => format!("{}.{} s", number / 1_000, number % 1_000 / 100),
            Resource::Files => format!("{number} files"),
        };
        format!("{} of at most {}", show(self.used), show(self.limit))
    }
}

/// The first limit that a look finds passed; what is exactly at its limit has not passed it.
pub fn excess(caps: &Caps, measure: &Measure) -> Option<Excess> {
    let over = |resource, used: Option<u64>, limit: Option<u64>| {
        let (used, limit) = (used?, limit?);
        (used > limit).then_some(Excess {
            resource,
            used,
            limit,
        })
    };
    let cpu_ms = caps
        .cpu_seconds
        .map(|seconds| seconds.saturating_mul(1_000));
    let files = caps.disk_bytes.map(|_| DISK_ENTRIES_MAX);
    let bytes = measure.disk.map(|space| space.bytes);
    let entries = measure.disk.map(|space| space.entries);
    over(Resource::Memory, measure.memory_bytes, caps.memory_bytes)
        .or_else(|| over(Resource::Cpu, measure.cpu_ms, cpu_ms))
        .or_else(|| over(Resource::Disk, bytes, caps.disk_bytes))
        .or_else(|| over(Resource::Files, entries, files))
}

/// Adds a look to what an agent has used: the most of memory and disk, all of the processor.
pub fn add(usage: &mut Usage, measure: &Measure) {
    let most = |kept: &mut Option<u64>, found: Option<u64>| *kept = (*kept).max(found);
    most(&mut usage.memory_peak_bytes, measure.memory_bytes);
    most(&mut usage.cpu_ms, measure.cpu_ms);
    most(
        &mut usage.disk_peak_bytes,
        measure.disk.map(|space| space.bytes),
    );
}

/// How full the fullest of an agent's caps is, in percent.
pub fn fill_percent(caps: &Caps, measure: &Measure) -> u64 {
    let share = |used: Option<u64>, limit: Option<u64>| match (used, limit) {
        (Some(used), Some(limit)) => used.saturating_mul(100) / limit.max(1),
        _ => 0,
    };
    let cpu_ms = caps
        .cpu_seconds
        .map(|seconds| seconds.saturating_mul(1_000));
    share(measure.memory_bytes, caps.memory_bytes)
        .max(share(measure.cpu_ms, cpu_ms))
        .max(share(
            measure.disk.map(|space| space.bytes),
            caps.disk_bytes,
        ))
}

/// From the end of one look at all agents to the next, in milliseconds.
///
/// The kernel tells nobody when the memory of a tree grows (`memory.pressure` and PSI speak of a
/// cgroup or the machine), so it is looked at: the more often, the nearer the fullest agent is to
/// its limit, and never for more than a twentieth of the time, however many agents there are.
pub fn pause_ms(fullest_percent: u64, look_took_ms: u64) -> u64 {
    let left = 100 - fullest_percent.min(100);
    let wanted = LOOK_MS_MIN + (LOOK_MS_MAX - LOOK_MS_MIN) * left / 100;
    wanted.max(look_took_ms.saturating_mul(LOOK_SHARE))
}

/// Between two looks at an agent that uses nothing, in milliseconds.
const LOOK_MS_MAX: u64 = 500;
/// Between two looks at one that is at its limit.
const LOOK_MS_MIN: u64 = 50;
/// A pause is at least so many times as long as the look before it.
const LOOK_SHARE: u64 = 19;

#[cfg(test)]
mod tests {
    use super::*;

    const CAPS: Caps = Caps {
        memory_bytes: Some(256 << 20),
        cpu_seconds: Some(60),
        disk_bytes: Some(1 << 20),
    };

    fn at_the_limit() -> Measure {
        Measure {
            memory_bytes: Some(256 << 20),
            cpu_ms: Some(60_000),
            disk: Some(Space {
                bytes: 1 << 20,
                entries: DISK_ENTRIES_MAX,
            }),
        }
    }

    #[test]
    fn a_limit_holds_at_it_and_one_past_it() {
        let full = at_the_limit();
        assert_eq!(excess(&CAPS, &full), None);
        let disk = |bytes, entries| Measure {
            disk: Some(Space { bytes, entries }),
            ..full
        };
        let past = [
            (
                Measure {
                    memory_bytes: Some((256 << 20) + 1),
                    ..full
                },
                (Resource::Memory, StopReason::OutOfMemory),
                "256 MiB of at most 256 MiB",
            ),
            (
                Measure {
                    cpu_ms: Some(61_250),
                    ..full
                },
                (Resource::Cpu, StopReason::CpuLimit),
                "61.2 s of at most 60.0 s",
            ),
            (
                disk(3 << 20, 1),
                (Resource::Disk, StopReason::DiskLimit),
                "3 MiB of at most 1 MiB",
            ),
            (
                disk(1, DISK_ENTRIES_MAX + 1),
                (Resource::Files, StopReason::DiskLimit),
                "200001 files of at most 200000 files",
            ),
        ];
        for (measure, (resource, reason), figures) in past {
            let found = excess(&CAPS, &measure).unwrap();
            assert_eq!((found.resource, found.reason()), (resource, reason));
            assert_eq!(found.figures(), figures);
        }
    }

    #[test]
    fn what_is_not_capped_or_not_measured_is_never_too_much() {
        let huge = Measure {
            memory_bytes: Some(u64::MAX),
            cpu_ms: Some(u64::MAX),
            disk: Some(Space {
                bytes: u64::MAX,
                entries: u64::MAX,
            }),
        };
        assert_eq!(excess(&Caps::default(), &huge), None);
        assert_eq!(excess(&CAPS, &Measure::default()), None);
    }

    #[test]
    fn the_most_is_kept() {
        let mut usage = Usage::default();
        let memory = |bytes| Measure {
            memory_bytes: Some(bytes),
            ..Measure::default()
        };
        for measure in [memory(5), memory(9), memory(7), Measure::default()] {
            add(&mut usage, &measure);
        }
        let expected = Usage {
            memory_peak_bytes: Some(9),
            ..Usage::default()
        };
        assert_eq!(usage, expected);
    }

    #[test]
    fn looks_are_closer_near_a_limit_and_never_take_all_the_time() {
        assert_eq!(pause_ms(0, 0), 500);
        assert_eq!(pause_ms(50, 1), 275);
        assert_eq!(pause_ms(100, 1), 50);
        assert_eq!(pause_ms(900, 1), 50);
        assert_eq!(pause_ms(100, 100), 1_900);
        assert_eq!(fill_percent(&CAPS, &at_the_limit()), 100);
        assert_eq!(fill_percent(&Caps::default(), &at_the_limit()), 0);
    }
}
