//! `leader demo`: the whole story on one screen, offline, with a scripted model.

pub mod command;
pub mod play;
pub mod pulse;
pub mod script;
pub mod truth;
