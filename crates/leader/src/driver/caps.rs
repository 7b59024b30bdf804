//! What holds each cap of an agent, as records and results tell it.

use confine::report::MemoryCap;
use protocol::job::Caps;
use serde_json::{Map, Value, json};

use crate::core::usage::Space;

/// Who sees to a cap.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Holder {
    /// The kernel, for the whole tree.
    Tree,
    /// The leader, which looks.
    Watchdog,
    /// Nobody.
    None,
}

impl Holder {
    fn word(self) -> &'static str {
        match self {
            Holder::Tree => "tree",
            Holder::Watchdog => "watchdog",
            Holder::None => "none",
        }
    }
}

/// The caps of one agent, and who holds each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct CapsInForce {
    caps: Caps,
    memory: Holder,
    disk: Holder,
}

impl CapsInForce {
    /// What is held where the jail holds `memory`, and what lies where the agent writes could be
    /// counted or not.
    pub(super) fn of(caps: Caps, memory: MemoryCap, at_start: Option<Space>) -> Self {
        CapsInForce {
            caps,
            memory: match (caps.memory_bytes, memory) {
                (None, _) => Holder::None,
                (Some(_), MemoryCap::Tree) => Holder::Tree,
                (Some(_), MemoryCap::None) => Holder::Watchdog,
            },
            disk: match (caps.disk_bytes, at_start) {
                (Some(_), Some(_)) => Holder::Watchdog,
                (None, _) | (Some(_), None) => Holder::None,
            },
        }
    }

    /// What is to be looked at; none where nothing is capped. What the kernel holds is looked at
    /// too, for the figures in the result.
    pub(super) fn watched(&self) -> Option<Caps> {
        let caps = Caps {
            disk_bytes: self
                .caps
                .disk_bytes
                .filter(|_| self.disk == Holder::Watchdog),
            ..self.caps
        };
        (!caps.is_empty()).then_some(caps)
    }

    /// Adds the caps to what is told of a confinement.
    pub(super) fn tell(&self, told: &mut Value) {
        if self.caps.is_empty() {
            return;
        }
        let mut limits = Map::new();
        let mut gaps: Vec<&str> = Vec::new();
        if let Some(bytes) = self.caps.memory_bytes {
            limits.insert("memory".to_owned(), limit("bytes", bytes, self.memory));
            if self.memory == Holder::Watchdog {
                told["memory"] = json!(self.memory.word());
                gaps.push(MEMORY_GAP);
            }
        }
        if let Some(seconds) = self.caps.cpu_seconds {
            limits.insert(
                "cpu".to_owned(),
                limit("seconds", seconds, Holder::Watchdog),
            );
        }
        if let Some(bytes) = self.caps.disk_bytes {
            limits.insert("disk".to_owned(), limit("bytes", bytes, self.disk));
            gaps.push(match self.disk {
                Holder::None => DISK_NOT_COUNTED,
                Holder::Tree | Holder::Watchdog => DISK_GAP,
            });
        }
        told["limits"] = Value::Object(limits);
        if let Some(list) = told["gaps"].as_array_mut() {
            list.extend(gaps.into_iter().map(Value::from));
        }
    }
}

/// What a watch over memory can't hold.
const MEMORY_GAP: &str = "memory is looked at and not bounded by the kernel: a burst between two \
                          looks, at most 500 ms apart, is seen only after it";
/// What a watch over disk space can't hold.
const DISK_GAP: &str = "disk space is counted in the deliverables dir and the write paths alone, once a second at most";
/// Why disk space is not watched at all.
const DISK_NOT_COUNTED: &str =
    "disk space is not watched: where the agent writes there are too many files to count";

fn limit(unit: &str, number: u64, holder: Holder) -> Value {
    json!({ unit: number, "held_by": holder.word() })
}

#[cfg(test)]
mod tests {
    use super::*;

    const CAPS: Caps = Caps {
        memory_bytes: Some(1 << 30),
        cpu_seconds: Some(60),
        disk_bytes: Some(1 << 20),
    };

    fn told(caps: CapsInForce) -> Value {
        let mut told = json!({"memory": "none", "gaps": ["a gap"]});
        caps.tell(&mut told);
        told
    }

    #[test]
    fn each_cap_is_told_with_who_holds_it() {
        let space = Some(Space::default());
        let limits = |memory: &str, disk: &str| {
            json!({
                "memory": {"bytes": 1 << 30, "held_by": memory},
                "cpu": {"seconds": 60, "held_by": "watchdog"},
                "disk": {"bytes": 1 << 20, "held_by": disk},
            })
        };
        let watched = CapsInForce::of(CAPS, MemoryCap::None, space);
        assert_eq!(watched.watched(), Some(CAPS));
        assert_eq!(
            told(watched),
            json!({
                "memory": "watchdog",
                "gaps": ["a gap", MEMORY_GAP, DISK_GAP],
                "limits": limits("watchdog", "watchdog"),
            })
        );
        let held = CapsInForce::of(CAPS, MemoryCap::Tree, None);
        let without_disk = Caps {
            disk_bytes: None,
            ..CAPS
        };
        assert_eq!(held.watched(), Some(without_disk));
        assert_eq!(
            told(held),
            json!({
                "memory": "none",
                "gaps": ["a gap", DISK_NOT_COUNTED],
                "limits": limits("tree", "none"),
            })
        );
    }

    #[test]
    fn without_caps_nothing_is_added_or_watched() {
        let none = CapsInForce::of(Caps::default(), MemoryCap::None, None);
        assert_eq!(none.watched(), None);
        assert_eq!(told(none), json!({"memory": "none", "gaps": ["a gap"]}));
    }
}
