//! One agent: model client, tools, conversation log; alone in a terminal or under a leader.

#![cfg_attr(
    test,
    expect(
        clippy::disallowed_methods,
        reason = "tests measure, wait and start processes themselves"
    )
)]

pub mod check;
pub mod cli;
pub mod core;
pub mod exit;
#[cfg(fuzzing)]
pub mod fuzzing;
pub mod io;
pub mod model;
pub mod run;
pub mod start;
pub mod tools;
