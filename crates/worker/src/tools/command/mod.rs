//! How a shell command is started, held, watched, ended, and told of.

mod ending;
mod environment;
mod group;
mod keeping;
mod kept;
mod order;
mod reading;
mod refusal;
mod remark;
mod report;
mod run;
mod start;
mod watch;

pub use keeping::{JAIL_VARIABLE, Keeping};

pub(crate) use ending::tell;
pub(crate) use order::Order;
pub(crate) use run::run;
