//! What a command sees of the environment: no keys, no pager, no editor.

use std::ffi::{OsStr, OsString};

use protocol::secret::is_secret_name;

use super::world::CommandWorld;

/// Set for every command, whatever was there.
const FIXED: &[(&str, &str)] = &[
    // A pager would wait for a key press.
    ("PAGER", "cat"),
    ("GIT_PAGER", "cat"),
    ("MANPAGER", "cat"),
    ("SYSTEMD_PAGER", "cat"),
    // An editor would wait for a person; this one says so and fails.
    ("EDITOR", NO_EDITOR),
    ("VISUAL", NO_EDITOR),
    ("GIT_EDITOR", NO_EDITOR),
    ("GIT_SEQUENCE_EDITOR", NO_EDITOR),
    // So would a question for a password.
    ("GIT_TERMINAL_PROMPT", "0"),
    ("GIT_ASKPASS", "false"),
    ("SSH_ASKPASS", "false"),
    ("DEBIAN_FRONTEND", "noninteractive"),
    ("TERM", "dumb"),
    // What was printed before a time-out must not be lost in a buffer.
    ("PYTHONUNBUFFERED", "1"),
    // A leader that is started by a command refuses.
    ("MUSTER_NESTED", "1"),
];

/// What only this process itself is told: a descriptor that no command has.
const OWN: &str = confine::keeper::ENV_KEEPER;

/// Programs hand it to a shell with the file behind it; it never opens anything.
const NO_EDITOR: &str = "echo 'no editor can be opened here: give the text on the command line \
                         (such as git commit -m) or in a file' >&2; false";

/// The variables of a command, made from this process's own.
pub(crate) fn for_commands(
    own: impl IntoIterator<Item = (OsString, OsString)>,
    hidden: &[String],
    world: &CommandWorld,
) -> Vec<(OsString, OsString)> {
    let placed = world.variables();
    let fixed = FIXED.iter().map(|(name, _)| OsStr::new(name));
    let fixed_names: Vec<&OsStr> = fixed
        .chain(placed.iter().map(|(name, _)| name.as_os_str()))
        .collect();
    own.into_iter()
        .filter(|(name, _)| {
            let is_hidden = hidden.iter().any(|hidden| name == OsStr::new(hidden));
            let is_allowed = world.env_allow.iter().any(|it| name == OsStr::new(it));
            !is_hidden
                && (is_allowed || !is_secret_name(&name.to_string_lossy()))
                && !world.drops(name)
                && name != OWN
                && !fixed_names.contains(&name.as_os_str())
        })
        .chain(
            FIXED
                .iter()
                .map(|(name, value)| (OsString::from(name), OsString::from(value))),
        )
        .chain(placed.iter().cloned())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(own: &[&str], hidden: &[&str]) -> Vec<String> {
        let own = own
            .iter()
            .map(|name| (OsString::from(name), OsString::from("v")));
        let hidden: Vec<String> = hidden.iter().map(|name| (*name).to_owned()).collect();
        let fixed: Vec<OsString> = FIXED.iter().map(|(name, _)| OsString::from(name)).collect();
        for_commands(own, &hidden, &CommandWorld::default())
            .into_iter()
            .filter(|(name, _)| !fixed.contains(name))
            .map(|(name, _)| name.into_string().unwrap())
            .collect()
    }

    #[test]
    fn keys_are_kept_from_commands() {
        let own = [
            "OPENAI_API_KEY",
            "GH_TOKEN",
            "aws_secret_access_key",
            "DB_PASSWORD",
            "APIKEY",
            "NPM_TOKEN",
            "VAULT_SECRET",
            "MODEL_CREDENTIALS",
            "CORP",
            "MUSTER_KEEPER",
            "PATH",
            "HOME",
            "KEYBOARD",
            "TOKENIZERS_PARALLELISM",
        ];
        assert_eq!(
            names(&own, &["CORP"]),
            ["PATH", "HOME", "KEYBOARD", "TOKENIZERS_PARALLELISM"]
        );
    }

    #[test]
    fn what_would_wait_for_a_person_is_replaced_and_nothing_stands_twice() {
        let own = [("PAGER", "less"), ("EDITOR", "vi"), ("MUSTER_NESTED", "0")]
            .map(|(name, value)| (OsString::from(name), OsString::from(value)));
        let set = for_commands(own, &[], &CommandWorld::default());
        assert_eq!(set.len(), FIXED.len());
        let value = |name: &str| {
            set.iter()
                .find(|(known, _)| known == name)
                .map(|(_, value)| value.to_str().unwrap())
        };
        assert_eq!(value("PAGER"), Some("cat"));
        assert_eq!(value("EDITOR"), Some(NO_EDITOR));
        assert_eq!(value("MUSTER_NESTED"), Some("1"));
    }
}
