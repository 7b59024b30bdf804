//! `leader doctor --prove`: on this very machine, a leader is killed and nothing of its agents'
//! trees survives, and what agents may not write, read or reach is tried in vain.

pub mod attempts;
pub mod command;
pub mod proof;
pub mod secrets;
pub mod stage;
pub mod trees;
