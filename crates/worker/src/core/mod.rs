//! The decisions of the loop, pure: no clock, file, socket or thread.

pub mod compaction;
pub mod deadline;
pub mod loop_guard;
pub mod policy;
pub mod reply;
pub mod tally;
pub mod throttle;
pub mod turn;
