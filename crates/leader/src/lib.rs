//! The supervisor: starts workers, holds their deadlines, collects what they deliver.

#![cfg_attr(
    test,
    expect(
        clippy::disallowed_methods,
        reason = "tests measure, wait and start processes themselves"
    )
)]

pub mod cli;
pub mod core;
pub mod driver;
pub mod exit;
pub mod faces;
pub mod os;
pub mod render;
pub mod settings;
pub mod store;
pub mod tools;
