//! Tools of MCP servers (Model Context Protocol, revision 2025-11-25, standard input and output):
//! programs that a person has configured, which live and end with their agent.

mod content;
mod lines;
mod offer;
mod server;
mod session;
mod stderr;
mod tool;

pub use server::{Servers, Wanted};
