//! `leader doctor`: whether agents can run here, how they are held, and what would hold them
//! better.

pub mod command;
pub mod look;
pub mod prove;
pub mod report;
