//! The keeper: starts each command of a worker in namespaces of its own, which a confined worker
//! can't make itself any more.
//!
//! It is forked by the tree's init before the worker, with init's capabilities and no Landlock.
//! The worker sends it one packet per command over a socket, its descriptor [`KEEPER_FD`]: a
//! [`CommandSpec`] and four descriptors (input, output, errors, report). On the report socket come
//! the same lines as a jail writes; its hang-up kills the command.

mod client;
mod deadline;
mod server;
mod spec;

pub use client::{Client, ClientError};
pub use spec::CommandSpec;

pub(crate) use server::{serve, socket};

/// The descriptor under which a worker finds the keeper's socket.
pub const KEEPER_FD: i32 = 3;

/// The variable that tells a worker that there is a keeper; its value is [`KEEPER_FD`].
pub const ENV_KEEPER: &str = "MUSTER_KEEPER";
