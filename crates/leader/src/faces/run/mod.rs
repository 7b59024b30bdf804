//! `leader run`: one sub-agent, one task, one answer.

pub mod command;
pub mod drive;
pub mod output;
pub mod stop;

pub use command::run;
