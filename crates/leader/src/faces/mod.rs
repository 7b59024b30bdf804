//! The ways in which people and programs use a conversation. They hold no rule of their own.

pub mod batch;
pub mod client;
pub mod config;
pub mod console;
pub mod curtain;
pub mod demo;
pub mod detach;
pub mod doctor;
pub mod entry;
pub mod interrupt;
pub mod job_control;
pub mod logging;
pub mod look;
pub mod resume;
pub mod run;
pub mod runs;
mod scope;
pub mod serve;
pub mod session;
pub mod steps;
pub mod surroundings;
pub mod target;
pub mod task;
pub mod trust;
