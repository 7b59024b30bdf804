//! The edge to the operating system: clocks, files, processes and signals.

pub mod clock;
pub mod detached;
pub mod failure;
pub mod files;
pub mod growth;
pub mod hold;
pub mod identity;
pub mod job_control;
pub mod model_check;
pub mod own_scope;
pub mod process;
pub mod programs;
pub mod rung;
pub mod space;
pub mod spawn;
pub mod stdin;
pub mod trees;
pub mod usage;
pub mod version;
pub mod worktree;

mod child_output;
pub mod terminal;
