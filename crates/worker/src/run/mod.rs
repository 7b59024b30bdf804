//! Carries out what the core decides: one run from its start to its exit code.

pub mod agent;
pub mod begin;
pub mod caught;
mod live;
pub mod prepare;
pub mod report;
pub mod result;
pub mod steps;
mod surroundings;
pub mod toolbox;
pub mod watch;
