//! The supervisor: starts workers, holds their deadlines, collects what they deliver.

pub mod driver;
