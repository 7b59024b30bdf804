//! HTTP as the model dialects use it.

mod answer;
mod client;
mod endpoint;
mod explain;

pub(crate) use answer::Answer;
pub use client::client;
pub(crate) use endpoint::Endpoint;
