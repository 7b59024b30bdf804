//! One agent: model client, tools, conversation log; alone in a terminal or under a leader.

pub mod cli;
pub mod core;
pub mod exit;
pub mod io;
pub mod model;
pub mod run;
pub mod start;
pub mod tools;
