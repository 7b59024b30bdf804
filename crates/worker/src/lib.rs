//! One agent: model client, tools, conversation log; alone in a terminal or under a leader.

pub mod core;
pub mod model;
pub mod tools;
