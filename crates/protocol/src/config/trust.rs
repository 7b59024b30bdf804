//! Trust in a workspace's file: what is remembered of an acceptance, and what a file wants that
//! only an accepted one gets.
//!
//! A person accepts exactly one content of one file. What is remembered is its fingerprint, in the
//! user's own state folder (XDG Base Directory Specification 0.8), out of a repository's reach.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// The version of [`TrustRecord`] that is written.
const FORMAT: u32 = 1;
/// Characters of a fingerprint that name a record's file.
const NAME_CHARS: usize = 32;

/// How far a workspace's file is trusted.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum FileTrust {
    /// Nobody accepted it.
    #[default]
    Never,
    /// Exactly this content was accepted.
    Accepted {
        /// When, RFC 3339, UTC.
        at: String,
    },
    /// Another content of it was accepted.
    Changed {
        /// When, RFC 3339, UTC.
        at: String,
    },
}

/// An acceptance, as it lies in the user's state folder.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TrustRecord {
    /// The version of this shape.
    pub format: u32,
    /// The accepted file, absolute.
    pub path: String,
    /// The fingerprint of its content.
    pub sha256: String,
    /// When it was accepted, RFC 3339, UTC.
    pub accepted_at: String,
}

impl TrustRecord {
    /// The record of an acceptance; `at` is RFC 3339, UTC.
    pub fn new(path: &Path, content: &[u8], at: String) -> Self {
        TrustRecord {
            format: FORMAT,
            path: path.display().to_string(),
            sha256: fingerprint(content),
            accepted_at: at,
        }
    }

    /// How far a content of a file is trusted by this record. One of another file or another
    /// format says nothing.
    pub fn judge(&self, path: &Path, content: &[u8]) -> FileTrust {
        if self.format != FORMAT || self.path != path.display().to_string() {
            return FileTrust::Never;
        }
        let at = self.accepted_at.clone();
        if self.sha256 == fingerprint(content) {
            FileTrust::Accepted { at }
        } else {
            FileTrust::Changed { at }
        }
    }
}

/// What tells one content from every other: SHA-256 (FIPS 180-4) in lower-case hexadecimal.
pub fn fingerprint(content: &[u8]) -> String {
    let mut text = String::new();
    for byte in Sha256::digest(content) {
        // Writing to a text can't fail.
        write!(text, "{byte:02x}").ok();
    }
    text
}

/// The folder of all acceptances: `$XDG_STATE_HOME/muster/trust`, else
/// `~/.local/state/muster/trust`; none without either. A relative path in the variable is to be
/// ignored, says the specification.
pub fn trust_dir(variable: impl Fn(&str) -> Option<String>) -> Option<PathBuf> {
    let absolute = |name: &str| {
        variable(name)
            .map(PathBuf::from)
            .filter(|path| path.is_absolute())
    };
    absolute("XDG_STATE_HOME")
        .or_else(|| absolute("HOME").map(|home| home.join(".local/state")))
        .map(|state| state.join("muster/trust"))
}

/// The name of the file in which the acceptance of `path` lies.
pub fn record_name(path: &Path) -> String {
    let name = fingerprint(path.as_os_str().as_encoded_bytes());
    format!("{}.json", &name[..NAME_CHARS])
}

/// Something that a workspace's file wants and only an accepted one gets.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Wish {
    /// Which key, such as `limits.max_concurrent` or `models.team.base_url`.
    pub key: String,
    /// Where it stands: `FILE:LINE`.
    pub place: String,
    /// What it is to be, as TOML.
    pub wanted: String,
    /// What holds now, as TOML; `(none)` where nothing is set.
    pub in_force: String,
    /// Where that is from.
    pub source: String,
}

impl Wish {
    /// What would come of it, in words for the person who decides.
    pub fn meaning(&self) -> &'static str {
        let (first, last) = (
            self.key.split('.').next().unwrap_or_default(),
            self.key.rsplit('.').next().unwrap_or_default(),
        );
        match (first, last) {
            ("models", "base_url") => "tasks and files that agents read are sent to this server",
            ("models", "api_key_env") => "the content of this variable is sent to that server",
            ("models", "headers") => "these headers are sent with every request",
            ("models", "body") => "these fields are sent with every request",
            ("models", _) => "part of a model that agents may use",
            ("web", "base_url") => "what agents search for is sent to this server",
            ("web", "api_key_env") => "the content of this variable is sent to that server",
            ("web", "allow_hosts") => {
                "agents may read pages of these hosts, on private addresses too"
            }
            ("web", _) => "agents may use the web",
            ("mcp", _) => "agents may start this program and use what it offers",
            ("default_model", _) => "agents use this model unless another is named",
            ("prompts_dir", _) => {
                "agents are instructed by the files in it, whatever stands in them later"
            }
            ("confinement", _) => "agents may be held by less",
            ("limits", _) => "agents may use more",
            ("retention", _) => "ended runs are kept for another time",
            (_, _) => "more than a workspace may say",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fingerprint_is_the_published_one() {
        // FIPS 180-4, the examples of NIST for SHA-256.
        for (content, wanted) in [
            (
                "",
                "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
            ),
            (
                "abc",
                "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad",
            ),
        ] {
            assert_eq!(fingerprint(content.as_bytes()), wanted);
        }
    }

    #[test]
    fn an_acceptance_holds_for_one_content_of_one_file() {
        let path = Path::new("/w/muster.toml");
        let record = TrustRecord::new(path, b"a = 1", "then".to_owned());
        let accepted = FileTrust::Accepted {
            at: "then".to_owned(),
        };
        assert_eq!(record.judge(path, b"a = 1"), accepted);
        let changed = FileTrust::Changed {
            at: "then".to_owned(),
        };
        assert_eq!(record.judge(path, b"a = 1 "), changed);
        let other = Path::new("/v/muster.toml");
        assert_eq!(record.judge(other, b"a = 1"), FileTrust::Never);
        let later = TrustRecord {
            format: FORMAT + 1,
            ..record
        };
        assert_eq!(later.judge(path, b"a = 1"), FileTrust::Never);
    }

    #[test]
    fn a_record_of_the_first_format_is_still_read() {
        let text = r#"{"format":1,"path":"/w/muster.toml","sha256":"ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad","accepted_at":"2026-11-30T20:00:00Z","new":1}"#;
        let record: TrustRecord = serde_json::from_str(text).unwrap();
        assert_eq!(
            record.judge(Path::new("/w/muster.toml"), b"abc"),
            FileTrust::Accepted {
                at: "2026-11-30T20:00:00Z".to_owned()
            }
        );
    }

    #[test]
    fn acceptances_lie_in_the_users_state_folder() {
        for (pairs, wanted) in [
            (vec![], None),
            (vec![("HOME", "/h")], Some("/h/.local/state/muster/trust")),
            (
                vec![("HOME", "/h"), ("XDG_STATE_HOME", "/s")],
                Some("/s/muster/trust"),
            ),
            (
                vec![("HOME", "/h"), ("XDG_STATE_HOME", "s")],
                Some("/h/.local/state/muster/trust"),
            ),
            (vec![("HOME", "h")], None),
        ] {
            let found = trust_dir(|name| {
                let pair = pairs.iter().find(|(key, _)| *key == name);
                pair.map(|(_, value)| (*value).to_owned())
            });
            assert_eq!(found, wanted.map(PathBuf::from), "{pairs:?}");
        }
        let name = record_name(Path::new("/w/muster.toml"));
        assert_eq!(name.len(), NAME_CHARS + ".json".len());
        assert_ne!(name, record_name(Path::new("/v/muster.toml")));
    }
}
