//! MCP servers (Model Context Protocol, revision 2025-11-25) that an agent may use: what is
//! configured of them, and how their tools are called and granted.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::config::fingerprint;
use crate::limits::MCP_TOOL_NAME_BYTES_MAX;

/// What the name of every tool of such a server begins with.
const PREFIX: &str = "mcp__";
/// What stands in a grant for all tools of a server.
const ALL: &str = "*";
/// Hexadecimal digits that tell apart names that would be the same.
const MARK_CHARS: usize = 8;

/// One `[mcp.servers.NAME]`, resolved: a program that speaks MCP on its standard input and output.
/// It names the variables that it gets, never their values.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct McpServerSpec {
    /// Its name in the configuration: letters, digits, `-` and single `_`.
    pub name: String,
    /// The program: a path, or a name for the environment's PATH.
    pub command: String,
    /// Its arguments.
    #[serde(default)]
    pub args: Vec<String>,
    /// Variables that it gets although they are called like secrets.
    #[serde(default)]
    pub env: Vec<String>,
    /// The longest call, in seconds.
    pub timeout_seconds: u32,
}

/// Values of the variables that servers get, by name. They travel in the answer to `initialize`
/// alone, and are shown to nobody.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct McpEnv(pub BTreeMap<String, String>);

impl std::fmt::Debug for McpEnv {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.0.keys()).finish()
    }
}

impl McpEnv {
    /// The values of all variables that these servers name and that are set.
    pub fn of(servers: &[McpServerSpec], variable: impl Fn(&str) -> Option<String>) -> McpEnv {
        let names = servers.iter().flat_map(|server| &server.env);
        McpEnv(
            names
                .filter_map(|name| Some((name.clone(), variable(name)?)))
                .collect(),
        )
    }
}

/// The grant of all tools of a server.
pub fn grant_of_all(server: &str) -> String {
    format!("{PREFIX}{server}__{ALL}")
}

/// Whether grants give a tool, which is named as a model names it, of a server.
pub fn is_granted(granted: &[String], server: &str, tool: &str) -> bool {
    let all = grant_of_all(server);
    granted.iter().any(|name| *name == all || name == tool)
}

/// The names by which models call the tools of a server: `mcp__SERVER__TOOL` with `_` for what no
/// provider takes in a name. One that is too long, or that another tool has already, is cut and
/// ends with a mark made of its whole name, so that it is the same in every run.
pub fn tool_names(server: &str, tools: &[String]) -> Vec<String> {
    let mut names: Vec<String> = Vec::with_capacity(tools.len());
    for tool in tools {
        let plain: String = format!("{PREFIX}{server}__{tool}")
            .chars()
            .map(|c| match c {
                c if c.is_ascii_alphanumeric() || c == '-' => c,
                _ => '_',
            })
            .collect();
        let fits = plain.len() <= MCP_TOOL_NAME_BYTES_MAX && !names.contains(&plain);
        names.push(if fits {
            plain
        } else {
            let mark = &fingerprint(tool.as_bytes())[..MARK_CHARS];
            let room = MCP_TOOL_NAME_BYTES_MAX - MARK_CHARS - 1;
            format!("{}_{mark}", &plain[..plain.len().min(room)])
        });
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_tools_fit_every_provider_and_are_never_the_same() {
        let long = "x".repeat(80);
        let tools = ["read", "read.file", "read/file", &long].map(str::to_owned);
        let names = tool_names("docs", &tools);
        assert_eq!(names[0], "mcp__docs__read");
        assert_eq!(names[1], "mcp__docs__read_file");
        let mark = &fingerprint(b"read/file")[..8];
        assert_eq!(names[2], format!("mcp__docs__read_file_{mark}"));
        assert_eq!(names[3].len(), 64);
        assert!(names[3].starts_with("mcp__docs__xxx"), "{}", names[3]);
    }

    #[test]
    fn a_grant_is_for_one_tool_or_for_all_of_one_server() {
        let granted = ["mcp__a__*", "mcp__b__one", "*", "mcp__*"].map(str::to_owned);
        for (server, tool, wanted) in [
            ("a", "mcp__a__x", true),
            ("b", "mcp__b__one", true),
            ("b", "mcp__b__two", false),
            ("c", "mcp__c__x", false),
        ] {
            assert_eq!(is_granted(&granted, server, tool), wanted, "{tool}");
        }
    }

    #[test]
    fn values_are_taken_by_name_and_shown_to_nobody() {
        let server = McpServerSpec {
            name: "a".to_owned(),
            command: "a".to_owned(),
            args: Vec::new(),
            env: vec!["A_TOKEN".to_owned(), "UNSET".to_owned()],
            timeout_seconds: 1,
        };
        let env = McpEnv::of(&[server], |name| {
            (name == "A_TOKEN").then(|| "worth hiding".to_owned())
        });
        assert_eq!(env.0["A_TOKEN"], "worth hiding");
        assert_eq!(format!("{env:?}"), "[\"A_TOKEN\"]");
    }
}
