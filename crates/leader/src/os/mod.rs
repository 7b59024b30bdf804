//! The edge to the operating system: clocks, files, processes and signals.

pub mod clock;
pub mod files;
pub mod process;
pub mod programs;
pub mod signals;
pub mod spawn;
pub mod terminal;
