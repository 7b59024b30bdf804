//! Lines of the event log: `{"seq", "ts", "event", …}`.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// The `format` number of the event log that this version writes (in its first event).
pub const EVENT_LOG_FORMAT: u32 = 1;

/// One line of `events.jsonl`. What `event` means, and the fields beside these three, belong to
/// the leader; docs/lifecycle.md lists them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct EventLine {
    /// From 1, one more for each line.
    pub seq: u64,
    /// RFC 3339, UTC.
    pub ts: String,
    /// The event's name.
    pub event: String,
    /// The event's own fields.
    #[serde(flatten)]
    pub fields: Map<String, Value>,
}
