//! The executable as a person or a script uses it, with workers that are small shell scripts.

#![expect(
    clippy::disallowed_methods,
    reason = "tests measure, wait and start processes themselves"
)]
#![expect(
    clippy::unwrap_used,
    reason = "what a test needs and does not get ends the test"
)]

mod batch;
mod help;
mod input;
mod look;
mod run;
mod serve;
mod signals;
mod support;
