//! The Messages interface.

mod assemble;
mod messages;
mod request;

pub use messages::Anthropic;
