//! How a shell command is started, held, watched, ended, and told of.

mod awake;
mod cargo_seed;
mod control;
mod ending;
mod environment;
mod group;
mod keeping;
mod kept;
mod lasting;
mod order;
mod reading;
mod refusal;
mod remark;
mod report;
mod run;
mod start;
mod watch;
mod world;

pub use keeping::{HIGHEST_VARIABLE, JAIL_VARIABLE, Keeping, highest_of_environment};
pub use kept::Rungs;
pub use world::CommandWorld;

pub(crate) use control::{Control, Remote, control};
pub(crate) use ending::{Ended, state, tell};
pub(crate) use lasting::{Held, Lasting, Recipe, Secrets, start_lasting};
pub(crate) use order::Order;
pub(crate) use run::{Running, begin, run};
