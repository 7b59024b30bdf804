//! How a shell command is started, watched, ended, and told of.

mod ending;
mod environment;
mod group;
mod remark;
mod start;
mod watch;

pub(crate) use ending::tell;
pub(crate) use start::{Order, start};
pub(crate) use watch::watch;
