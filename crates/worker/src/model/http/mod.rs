//! HTTP as the model dialects use it.

mod client;
mod endpoint;
mod explain;

pub use client::client;
pub(crate) use endpoint::{Answer, Endpoint};
