//! HTTP as the model dialects use it.

mod answer;
mod client;
mod endpoint;
mod explain;
mod wire;

pub(crate) use answer::Answer;
pub use client::{client, client_to};
pub(crate) use endpoint::Endpoint;
pub(crate) use wire::Wire;
