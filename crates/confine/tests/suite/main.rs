//! The built `jail`, judged from outside: its wait status, its lines, and a liveness socket that
//! every process of a tree inherits, whose end of file proves that none is left.

#![expect(
    clippy::disallowed_methods,
    reason = "tests measure, wait and start processes themselves"
)]
#![expect(
    clippy::unwrap_used,
    reason = "a test's broken assumption is a failed test"
)]

mod asking;
mod failures;
mod files;
mod keeping;
mod kills;
mod lower;
mod mounting;
mod network;
mod probing;
mod state;
mod storms;
mod support;
mod verdicts;
