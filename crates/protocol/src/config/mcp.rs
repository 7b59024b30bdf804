//! The section `[mcp]` of a file: its servers.

use super::error::{ConfigError, ConfigErrorKind, secret_in_file, unknown_key};
use super::field::{Field, is_secret_name};
use super::keys::MCP;
use super::tree::{Entry, Value, place};
use crate::limits;
use crate::mcp::McpServerSpec;

/// What may stand in `[mcp]`.
const SECTION: &[&str] = &["servers"];
/// What may stand in a server.
const KNOWN: &[&str] = &["command", "args", "env", "timeout_seconds"];

/// Reads the section: each server with the place where it stands.
///
/// # Errors
/// When a key is unknown or would hold a secret, a value is not allowed, a server lacks its
/// command, or there are too many.
pub(super) fn read_mcp(
    entries: &[Entry],
    file: &str,
) -> Result<Vec<(McpServerSpec, String)>, ConfigError> {
    let mut servers = Vec::new();
    for entry in entries {
        let field = Field {
            path: format!("{MCP}.{}", entry.key),
            at: place(file, entry.line),
            value: &entry.value,
        };
        if entry.key != "servers" {
            return Err(unknown_key(&field.path, &field.at, SECTION));
        }
        let Value::Table(found) = &entry.value else {
            let rule = "a section: a line `[mcp.servers.NAME]` and the server's keys below it";
            return Err(field.wrong(ConfigErrorKind::WrongType, rule));
        };
        if found.len() > limits::MCP_SERVERS_MAX {
            let rule = format!("at most {} servers", limits::MCP_SERVERS_MAX);
            return Err(field.wrong(ConfigErrorKind::OutOfRange, &rule));
        }
        for server in found {
            servers.push((read_server(server, file)?, place(file, server.line)));
        }
    }
    Ok(servers)
}

fn read_server(server: &Entry, file: &str) -> Result<McpServerSpec, ConfigError> {
    let whole = Field {
        path: format!("{MCP}.servers.{}", server.key),
        at: place(file, server.line),
        value: &server.value,
    };
    if !is_server_name(&server.key) {
        let rule = format!(
            "named with 1 to {} letters, digits, `-` and single `_`",
            limits::MCP_SERVER_NAME_BYTES_MAX
        );
        return Err(whole.wrong(ConfigErrorKind::OutOfRange, &rule));
    }
    let Value::Table(entries) = &server.value else {
        return Err(whole.wrong(ConfigErrorKind::WrongType, "a section with a `command`"));
    };
    let mut spec = McpServerSpec {
        name: server.key.clone(),
        command: String::new(),
        args: Vec::new(),
        env: Vec::new(),
        timeout_seconds: limits::MCP_CALL_SECONDS,
    };
    for entry in entries {
        let field = Field {
            path: format!("{}.{}", whole.path, entry.key),
            at: place(file, entry.line),
            value: &entry.value,
        };
        match entry.key.as_str() {
            "command" => spec.command = field.text()?.to_owned(),
            "args" => spec.args = field.texts("a list of texts", limits::MCP_ARGS_MAX)?,
            "env" => spec.env = field.variable_names()?,
            "timeout_seconds" => {
                spec.timeout_seconds = field.whole(1, limits::MCP_CALL_SECONDS_MAX)?;
            }
            secret if is_secret_name(secret) => {
                return Err(secret_in_file(&field.path, &field.at));
            }
            _ => return Err(unknown_key(&field.path, &field.at, KNOWN)),
        }
    }
    if spec.command.is_empty() {
        return Err(ConfigError::new(
            ConfigErrorKind::OutOfRange,
            format!("`{}` lacks `command`", whole.path),
        )
        .at(&whole.at)
        .hint("for example command = \"mcp-server-git\""));
    }
    let has_nul = |word: &String| word.contains('\0');
    if has_nul(&spec.command) || spec.args.iter().any(has_nul) {
        return Err(whole.wrong(ConfigErrorKind::OutOfRange, "without NUL characters"));
    }
    Ok(spec)
}

/// Two underscores part the server from the tool in the name of a tool.
fn is_server_name(name: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    (1..=limits::MCP_SERVER_NAME_BYTES_MAX).contains(&name.len())
        && name.chars().all(plain)
        && !name.contains("__")
        && !name.ends_with('_')
}

impl Field<'_> {
    /// Names of environment variables.
    fn variable_names(&self) -> Result<Vec<String>, ConfigError> {
        let rule = "a list of names of environment variables, such as [\"GITHUB_TOKEN\"]";
        let names = self.texts(rule, limits::MCP_ENV_MAX)?;
        let is_name = |name: &String| {
            let plain = |c: char| c.is_ascii_alphanumeric() || c == '_';
            !name.is_empty()
                && name.chars().all(plain)
                && !name.starts_with(|c: char| c.is_ascii_digit())
        };
        match names.iter().all(is_name) {
            true => Ok(names),
            false => Err(self.wrong(ConfigErrorKind::SecretInFile, rule).hint(
                "a value stays in the surroundings of `leader`; only its name is written here",
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{ConfigErrorKind as Kind, ConfigFile, FileTrust, Layers, resolve, wishes};
    use super::*;

    fn layers(user: &str, workspace: &str) -> Layers {
        let file = |name: &str, text: &str| {
            Some(ConfigFile {
                name: name.to_owned(),
                text: text.to_owned(),
            })
        };
        Layers {
            user: file("user.toml", user),
            workspace: file("muster.toml", workspace),
            ..Layers::default()
        }
    }

    const SERVER: &str =
        "[mcp.servers.docs]\ncommand = \"docs-server\"\nargs = [\"-v\"]\nenv = [\"DOCS_TOKEN\"]\n";

    fn docs() -> McpServerSpec {
        McpServerSpec {
            name: "docs".to_owned(),
            command: "docs-server".to_owned(),
            args: vec!["-v".to_owned()],
            env: vec!["DOCS_TOKEN".to_owned()],
            timeout_seconds: 60,
        }
    }

    #[test]
    fn servers_of_the_user_are_taken_in_the_order_of_their_names() {
        let second = "[mcp.servers.api]\ncommand = \"a\"\ntimeout_seconds = 5\n";
        let settings = resolve(&layers(&format!("{SERVER}{second}"), "")).unwrap();
        let api = McpServerSpec {
            name: "api".to_owned(),
            command: "a".to_owned(),
            args: Vec::new(),
            env: Vec::new(),
            timeout_seconds: 5,
        };
        assert_eq!(settings.mcp, [api, docs()]);
        assert_eq!(settings.sources["mcp.servers.docs"], "user.toml:1");
    }

    #[test]
    fn servers_of_a_workspace_need_its_acceptance() {
        let mut layers = layers("", SERVER);
        let settings = resolve(&layers).unwrap();
        assert_eq!(settings.mcp, []);
        assert!(
            settings.warnings[0].contains("`mcp` is ignored"),
            "{:?}",
            settings.warnings
        );
        assert!(
            settings.warnings[1].contains("`leader trust`"),
            "{:?}",
            settings.warnings
        );
        let wished = wishes(&layers).unwrap();
        let keys: Vec<&str> = wished.iter().map(|wish| wish.key.as_str()).collect();
        assert_eq!(
            keys,
            [
                "mcp.servers.docs.command",
                "mcp.servers.docs.args",
                "mcp.servers.docs.env"
            ]
        );
        assert!(
            wished[0].meaning().contains("program"),
            "{}",
            wished[0].meaning()
        );
        layers.trust = FileTrust::Accepted {
            at: "then".to_owned(),
        };
        assert_eq!(resolve(&layers).unwrap().mcp, [docs()]);
    }

    #[test]
    fn a_server_that_can_be_none_is_refused_with_its_line() {
        for (text, kind, word) in [
            (
                "[mcp.servers.a]\nargs = []",
                Kind::OutOfRange,
                "lacks `command`",
            ),
            (
                "[mcp.servers.a__b]\ncommand = \"a\"",
                Kind::OutOfRange,
                "single `_`",
            ),
            (
                "[mcp.servers.a]\ncommand = \"a\"\ncwd = \"b\"",
                Kind::UnknownKey,
                "cwd",
            ),
            (
                "[mcp.servers.a]\ncommand = \"a\"\ntoken = \"b\"",
                Kind::SecretInFile,
                "token",
            ),
            (
                "[mcp.servers.a]\ncommand = \"a\"\nenv = [\"sk-123\"]",
                Kind::SecretInFile,
                "names of environment variables",
            ),
            ("[mcp]\nservers = 1", Kind::WrongType, "section"),
            ("[mcp]\nserver = 1", Kind::UnknownKey, "servers"),
            (
                "[mcp.servers.a]\ncommand = \"a\"\ntimeout_seconds = 601",
                Kind::OutOfRange,
                "600",
            ),
        ] {
            let error = resolve(&layers(text, "")).unwrap_err();
            let told = error.to_tool_error();
            let told = format!("{} {}", told.message, told.hint);
            assert_eq!(error.kind, kind, "{told}");
            assert!(told.contains(word) && told.contains("user.toml:"), "{told}");
            assert!(!told.contains("sk-123"), "{told}");
        }
    }
}
