//! The real executable, run as a person and as a leader would run it.

#![expect(
    clippy::disallowed_methods,
    reason = "tests measure, wait and start processes themselves"
)]
#![expect(clippy::unwrap_used, reason = "a test ends at the first surprise")]

mod alone;
mod channel;
mod commands;
mod context;
mod harness;
mod input;
mod leader;
mod record;
mod stops;
