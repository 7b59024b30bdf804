//! The commands that look at runs, live or ended, and act on live ones from another terminal.

pub mod ended;
pub mod find;
pub mod kill;
pub mod logs;
pub mod overview;
pub mod ps;
pub mod status;
pub mod wait;
