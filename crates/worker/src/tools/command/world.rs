//! What a confined command finds around it: caches that it may write, and no way to the sockets of
//! the user's agents.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use confine::report::NetworkReach;

/// What commands find around them. The default is that of a worker that is not confined.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommandWorld {
    /// Variables that they see although they look like keys.
    pub env_allow: Vec<String>,
    /// Where they keep what they download and build, absolute; none leaves them the user's own
    /// places, which a confined command can't write.
    pub caches: Option<PathBuf>,
    /// What they may reach of the network, where this worker itself sees to that.
    pub network: NetworkReach,
}

impl Default for CommandWorld {
    fn default() -> Self {
        CommandWorld {
            env_allow: Vec::new(),
            caches: None,
            network: NetworkReach::Full,
        }
    }
}

/// Variables of package managers and where each points below the caches.
const CACHES: &[(&str, &str)] = &[
    ("XDG_CACHE_HOME", "xdg"),
    ("CARGO_HOME", "cargo"),
    ("npm_config_cache", "npm"),
    ("YARN_CACHE_FOLDER", "yarn"),
    ("PIP_CACHE_DIR", "pip"),
    ("UV_CACHE_DIR", "uv"),
    ("GOCACHE", "go/build"),
    ("GOMODCACHE", "go/mod"),
    ("GRADLE_USER_HOME", "gradle"),
];

/// Ways to programs that hold keys, run containers or show windows: their sockets are out of sight.
const DROPPED: &[&str] = &[
    "SSH_AUTH_SOCK",
    "SSH_AGENT_PID",
    "GPG_AGENT_INFO",
    "DOCKER_HOST",
    "CONTAINER_HOST",
    "DBUS_SESSION_BUS_ADDRESS",
    "DBUS_SYSTEM_BUS_ADDRESS",
    "XDG_RUNTIME_DIR",
    "WAYLAND_DISPLAY",
    "DISPLAY",
    "XAUTHORITY",
    "TMUX",
];

/// Where temporary files go unless it is there: no other place is writable.
const TEMPORARY: &[&str] = &["TMPDIR", "TMP", "TEMP"];

impl CommandWorld {
    /// Whether a variable is kept from commands because what it names is.
    pub(super) fn drops(&self, name: &OsStr) -> bool {
        self.caches.is_some() && DROPPED.iter().any(|dropped| name == OsStr::new(dropped))
    }

    /// The variables that say where to put what.
    pub(super) fn variables(&self) -> Vec<(OsString, OsString)> {
        let Some(caches) = &self.caches else {
            return Vec::new();
        };
        let caches = CACHES
            .iter()
            .map(|(name, below)| (OsString::from(name), caches.join(below).into()));
        let temporary = TEMPORARY
            .iter()
            .map(|name| (OsString::from(name), OsString::from("/tmp")));
        caches.chain(temporary).collect()
    }

    /// Where cargo keeps its own things for commands.
    pub(super) fn cargo_home(&self) -> Option<PathBuf> {
        self.caches.as_deref().map(|caches| caches.join("cargo"))
    }
}

/// Where the user's own cargo keeps its things.
pub(super) fn users_cargo_home(variable: impl Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    let named = variable("CARGO_HOME").map(PathBuf::from);
    let usual = || variable("HOME").map(|home| Path::new(&home).join(".cargo"));
    named.or_else(usual).filter(|path| path.is_absolute())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_confined_command_has_caches_of_the_workspace_and_no_sockets_of_agents() {
        let world = CommandWorld {
            caches: Some("/w/.muster/cache".into()),
            ..CommandWorld::default()
        };
        let set = world.variables();
        let value = |name: &str| {
            let found = set.iter().find(|(known, _)| known == name);
            found.map(|(_, value)| value.to_str().unwrap())
        };
        assert_eq!(value("CARGO_HOME"), Some("/w/.muster/cache/cargo"));
        assert_eq!(value("GOCACHE"), Some("/w/.muster/cache/go/build"));
        assert_eq!(value("TMPDIR"), Some("/tmp"));
        assert_eq!(set.len(), CACHES.len() + TEMPORARY.len());
        assert!(world.drops(OsStr::new("SSH_AUTH_SOCK")));
        assert!(!world.drops(OsStr::new("PATH")));
        let free = CommandWorld::default();
        assert_eq!(free.variables(), []);
        assert!(!free.drops(OsStr::new("SSH_AUTH_SOCK")));
    }

    #[test]
    fn the_users_cargo_is_where_the_variables_say() {
        let look = |pairs: &'static [(&str, &str)]| {
            users_cargo_home(|name| {
                let found = pairs.iter().find(|(known, _)| *known == name);
                found.map(|(_, value)| OsString::from(value))
            })
        };
        assert_eq!(look(&[("HOME", "/h")]), Some("/h/.cargo".into()));
        assert_eq!(
            look(&[("HOME", "/h"), ("CARGO_HOME", "/c")]),
            Some("/c".into())
        );
        assert_eq!(look(&[]), None);
    }
}
