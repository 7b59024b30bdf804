//! The model dialects against a scripted server that sends exact bytes.

#![expect(
    clippy::disallowed_methods,
    reason = "tests measure, wait and start processes themselves"
)]
#![expect(clippy::unwrap_used, reason = "a test ends at the first surprise")]

mod answers;
mod faults;
mod messages;
mod server;
mod streams;
