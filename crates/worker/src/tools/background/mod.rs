//! Commands that run beside the agent's turns.

mod commands;
mod entry;

pub use commands::Background;

pub(crate) use entry::Seen;
