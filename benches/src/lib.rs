//! What the product costs, beside bare floors in the same run.
//!
//! `cargo run --release -p benches -- all` takes every figure and prints a table. Each figure is a
//! file of [`figures`] and one line in its list; README.md beside this crate says what they mean.

#![expect(
    clippy::disallowed_methods,
    reason = "a bench measures, and starts what it measures"
)]

pub mod cli;
pub mod error;
pub mod figures;
pub mod ground;
pub mod model;
pub mod process;
pub mod programs;
pub mod row;
pub mod serve;
pub mod stats;
pub mod worker;
