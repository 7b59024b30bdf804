//! The supervisor: starts workers, holds their deadlines, collects what they deliver.

pub mod core;
pub mod driver;
