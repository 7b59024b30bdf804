//! The ways in which people and programs use a conversation. They hold no rule of their own.

pub mod client;
pub mod console;
pub mod interrupt;
pub mod serve;
pub mod steps;
pub mod target;
pub mod task;
