//! Where a tree may write and what it may not see: what is asked, and how mounts come to it.

mod agent;
mod layout;
mod policy;
mod secrets;

pub use agent::{AgentPlaces, CACHE_DIR, GitAccess, Open, PROTECTED_NAMES, Protected, Writes};
pub use policy::{FilePolicy, WriteMode};
pub use secrets::SECRET_PATHS;

pub(crate) use layout::{Kind, Layout, Step, kind_of, layout};
