//! What leader and worker say to each other, as types and rules about them.
//!
//! Nothing here opens a file or socket, reads a clock or starts a thread: both sides, and every
//! test, can therefore share it. `docs/protocol.md` tells the same story for people who write a
//! worker in another language.

pub mod batch;
pub mod channel;
pub mod check;
pub mod config;
pub mod confinement;
pub mod conversation;
pub mod definition;
pub mod error;
pub mod event;
pub mod exit;
pub mod ids;
pub mod job;
pub mod journal;
pub mod limits;
pub mod manifest;
pub mod mcp;
mod model_headers;
pub mod place;
pub mod result;
pub mod secret;
pub mod size;
pub mod socket;
pub mod stats;
pub mod status;
pub mod text;
pub mod tool;
pub mod web;
pub mod wire;
