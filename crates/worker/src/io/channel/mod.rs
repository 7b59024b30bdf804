//! The channel to the leader: JSON-RPC over what were stdin and stdout.

mod dispatch;
mod link;
mod standard_io;

pub use link::{CallError, FromLeader, Leader, open};
pub use standard_io::take_standard_io;
