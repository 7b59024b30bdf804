//! `muster.toml`: its layers, what each may change, and the settings that come of them.
//!
//! Nothing here opens a file: the caller reads the texts and the environment and gives them to
//! [`resolve`]. Layers in order, later ones win:
//!
//! 1. what is built in;
//! 2. the user's file;
//! 3. the workspace's `muster.toml`, which is not trusted: it may fix the language and tighten
//!    limits and confinement, everything else of it is ignored with a warning, unless a person has
//!    accepted exactly this content of it ([`FileTrust`]);
//! 4. variables: `MUSTER_` and the key in capitals for top-level keys and those of `[limits]`
//!    (`MUSTER_LANGUAGE`, `MUSTER_DEFAULT_MODEL`, `MUSTER_MAX_CONCURRENT` …), and
//!    `MUSTER_CONFINEMENT_` or `MUSTER_RETENTION_` and the key in capitals for those of
//!    `[confinement]` and `[retention]`;
//! 5. flags.
//!
//! A key of a model is never in a file, never in [`Settings`] and never in a message: a model
//! names the variable that holds it.

mod caps;
mod confined;
mod draft;
mod error;
mod field;
mod keys;
mod layers;
mod list;
mod mcp;
mod model;
mod select;
mod settings;
mod tree;
mod trust;
mod web;
mod wishes;

pub use error::{ConfigError, ConfigErrorKind};
pub use layers::{ConfigFile, Flag, Layers, resolve, wishes};
pub use select::{api_key, model_by_key, select_model, web_key};
pub use settings::{
    Admission, LanguageChoice, LimitSettings, RequiredRung, RetentionSettings, Settings,
};
pub use trust::{FileTrust, TrustRecord, Wish, fingerprint, record_name, trust_dir};

#[cfg(test)]
mod caps_tests;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod trust_tests;
