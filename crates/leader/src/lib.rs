//! The supervisor: starts workers, holds their deadlines, collects what they deliver.

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
