//! The control socket of a conversation, and the command that holds one open for other programs.

pub mod command;
pub mod connection;
pub mod frames;
pub mod methods;
pub mod server;
pub mod socket;

pub use connection::{Event, Events, Service};
pub use server::ControlSocket;
