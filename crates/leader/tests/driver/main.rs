//! The driver with the real jail and workers that are small shell scripts.

#![expect(
    clippy::disallowed_methods,
    reason = "tests measure, wait and start processes themselves"
)]
#![expect(
    clippy::unwrap_used,
    reason = "a test that can't go on fails, also in its helpers"
)]

mod calls;
mod crash;
mod ends;
mod stops;
mod support;
mod threads;
