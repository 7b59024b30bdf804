//! Commands and flags that later versions will have. They are known here so that whoever tries
//! one is told that it is not built yet, and not that it is misspelt.

/// Commands of later versions.
pub const LATER_COMMANDS: &[&str] = &[
    "agents",
    "ask",
    "chat",
    "completions",
    "events",
    "extend",
    "mcp",
    "say",
    "tasks",
    "team",
    "top",
    "worktrees",
];

/// Flags of later versions, with the command that they belong to.
pub const LATER_FLAGS: &[(&str, &str)] = &[
    ("run", "agent"),
    ("run", "role-id"),
    ("run", "thinking-mode"),
    ("run", "worktree"),
    ("serve", "http"),
    ("serve", "mcp-http"),
];

/// The answer to one of them.
pub fn not_available(what: &str) -> String {
    format!(
        "error: `{what}` is not available in this version\n\
         hint: `leader --help` lists the commands there are\n"
    )
}
