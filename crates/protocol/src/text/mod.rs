//! Texts that models read, in two languages, and how values are put into them.
//!
//! All prose lies in the folder `prompts/` of the repository, once per language, and is built in;
//! this module only knows which text is asked for and which values stand in it. [`Prompts`] is
//! made once per run and has one function for each text.

mod background;
mod builds_on;
mod catalog;
mod frame;
mod notice;
mod project;
mod prompts;
mod start;
mod template;
mod turn;

pub use background::{BackgroundResult, BackgroundState};
pub use builds_on::BuildsOn;
pub use frame::{Frame, FrameKind};
pub use notice::Notice;
pub use project::{Instructions, SkillLine};
pub use prompts::{Prompts, TextError};
pub use start::{DelegationFacts, FirstMessage, SystemPrompt, WriteScope};
pub use turn::ActionKind;

#[cfg(test)]
mod tests;
