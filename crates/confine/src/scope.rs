//! Landlock's scopes: a process inside can't signal, nor reach by an abstract socket, anything
//! that was not started inside.

use landlock::{CompatLevel, Compatible, Ruleset, RulesetAttr, RulesetError, Scope};

/// Restricts this process and all that it will start (Linux 6.12).
///
/// # Errors
/// When the kernel has no Landlock, or one without scopes; nothing is restricted then.
pub(crate) fn restrict() -> Result<(), RulesetError> {
    Ruleset::default()
        .set_compatibility(CompatLevel::HardRequirement)
        .scope(Scope::Signal | Scope::AbstractUnixSocket)?
        .create()?
        .restrict_self()
        .map(drop)
}
