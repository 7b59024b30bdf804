//! Skills: folders with a `SKILL.md` that says how something is done.

mod find;
pub(crate) mod front;

pub use find::{Found, SKILL_FILE, Skill, find, user_folder};
