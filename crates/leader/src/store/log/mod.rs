//! `events.jsonl` of a run: who may write it, how it is written, and what is read back of it.

mod error;
mod lock;
mod mend;
mod open;
mod read;
#[cfg(test)]
mod tests;
mod writer;

pub use error::LogError;
pub use lock::{LOCK_FILE, RunLock};
pub use mend::TORN_FILE;
pub use open::{APPENDS_WAITING_MAX, EventLog, Observer, Opened, Pending};
pub use read::{LOG_FILE, ReadLog, read, read_until};
