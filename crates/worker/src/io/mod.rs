//! Where the loop touches the system: clock, signals, files, the channel.

pub mod again;
pub mod channel;
pub mod clock;
pub mod deliverables;
pub mod files;
pub mod hold;
pub mod job;
pub mod journal;
pub mod log;
pub mod place;
pub mod prompts;
pub mod record;
pub mod secrets;
pub mod settings;
pub mod signals;
