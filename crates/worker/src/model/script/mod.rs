//! A model that replays a file of replies. It thinks nothing, and every log line of it says so.

mod file;
mod fill;
mod play;
mod replay;

pub use play::Script;
