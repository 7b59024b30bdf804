//! Caps on what one agent may use, and lists of variables: how their values are read.

use super::error::{ConfigError, ConfigErrorKind};
use super::keys::Key;
use super::tree::Value;
use crate::limits;
use crate::size::{bytes_of, show_bytes};

/// What a cap counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CapUnit {
    Bytes,
    Seconds,
}

/// A key of `[confinement]` that bounds what one agent may use. Without a value there is no bound.
#[derive(Debug)]
pub(super) struct CapKey {
    pub(super) name: &'static str,
    pub(super) unit: CapUnit,
    pub(super) min: u64,
    pub(super) max: u64,
}

/// Every cap. For each of them the smaller value is the tighter one.
pub(super) const CAPS: &[CapKey] = &[
    CapKey {
        name: "memory",
        unit: CapUnit::Bytes,
        min: limits::MEMORY_CAP_BYTES_MIN,
        max: limits::CAP_BYTES_MAX,
    },
    CapKey {
        name: "cpu_seconds",
        unit: CapUnit::Seconds,
        min: 1,
        max: limits::CPU_CAP_SECONDS_MAX,
    },
    CapKey {
        name: "disk",
        unit: CapUnit::Bytes,
        min: limits::DISK_CAP_BYTES_MIN,
        max: limits::CAP_BYTES_MAX,
    },
];

impl Key {
    /// A cap: a whole number, or, where it counts bytes, a size such as `2GiB`.
    pub(super) fn cap(self, key: &CapKey, value: &Value, place: &str) -> Result<u64, ConfigError> {
        let rule = match key.unit {
            CapUnit::Seconds => format!("must be a whole number from {} to {}", key.min, key.max),
            CapUnit::Bytes => format!(
                "must be a size such as \"2GiB\", from {} to {}",
                show_bytes(key.min),
                show_bytes(key.max)
            ),
        };
        let number = match (value, key.unit) {
            (Value::Whole(number), _) => u64::try_from(*number).ok(),
            (Value::Text(text), CapUnit::Bytes) => bytes_of(text),
            _ => return Err(self.wrong(ConfigErrorKind::WrongType, &rule, value, place)),
        };
        number
            .filter(|number| (key.min..=key.max).contains(number))
            .ok_or_else(|| self.wrong(ConfigErrorKind::OutOfRange, &rule, value, place))
    }
}
