//! Identifiers as types of their own, so that one never stands where another is meant.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Why a text is no valid identifier.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what} `{text}` is not valid: {why}")]
pub struct IdError {
    /// The kind of identifier that was expected.
    pub what: &'static str,
    /// What was given, as it was given.
    pub text: String,
    /// The rule that it breaks.
    pub why: &'static str,
}

fn refuse(what: &'static str, text: &str, why: &'static str) -> IdError {
    IdError {
        what,
        text: text.to_owned(),
        why,
    }
}

/// An agent's number: positive, unique per conversation and role, never used again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AgentId(u32);

impl AgentId {
    /// The largest number that a tool parameter may name; batches and benches may go beyond.
    pub const TOOL_MAX: u32 = 99;
    /// The first number.
    pub const FIRST: AgentId = AgentId(1);

    /// Takes a number of 1 or more.
    ///
    /// # Errors
    /// When `number` is 0.
    pub fn new(number: u32) -> Result<Self, IdError> {
        if number == 0 {
            return Err(refuse("agent_id", "0", "it must be 1 or more"));
        }
        Ok(AgentId(number))
    }

    /// The number itself, 1 or more.
    pub fn get(self) -> u32 {
        self.0
    }

    /// The number after this one, or none at the end of the range.
    pub fn next(self) -> Option<Self> {
        self.0.checked_add(1).map(AgentId)
    }
}

impl fmt::Display for AgentId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl FromStr for AgentId {
    type Err = IdError;

    fn from_str(text: &str) -> Result<Self, IdError> {
        let number: u32 = text
            .parse()
            .map_err(|_| refuse("agent_id", text, "it must be a whole number"))?;
        AgentId::new(number).map_err(|_| refuse("agent_id", text, "it must be 1 or more"))
    }
}

impl Serialize for AgentId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u32(self.0)
    }
}

impl<'de> Deserialize<'de> for AgentId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let number = u32::deserialize(deserializer)?;
        AgentId::new(number).map_err(serde::de::Error::custom)
    }
}

/// Makes a newtype over a checked text, with the same conversions for each.
macro_rules! text_id {
    ($(#[$doc:meta])* $name:ident, $what:literal, $rule:expr) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(String);

        impl $name {
            /// Checks the text against the rule of this identifier.
            ///
            /// # Errors
            /// When the text breaks the rule; the error names it.
            pub fn new(text: impl Into<String>) -> Result<Self, IdError> {
                let text = text.into();
                let rule: fn(&str) -> Result<(), &'static str> = $rule;
                match rule(&text) {
                    Ok(()) => Ok(Self(text)),
                    Err(why) => Err(refuse($what, &text, why)),
                }
            }

            /// The text itself.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl FromStr for $name {
            type Err = IdError;

            fn from_str(text: &str) -> Result<Self, IdError> {
                Self::new(text)
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(&self.0)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = String::deserialize(deserializer)?;
                Self::new(text).map_err(serde::de::Error::custom)
            }
        }
    };
}

fn prefixed(text: &str, prefix: &str) -> bool {
    text.strip_prefix(prefix).is_some_and(|rest| {
        (8..=64).contains(&rest.len())
            && rest
                .bytes()
                .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
    })
}

text_id!(
    /// One run of one agent: `sub_` and a UUIDv7. Files and logs are keyed by it.
    TaskId,
    "task_id",
    |text| if prefixed(text, "sub_") { Ok(()) } else { Err("it must be `sub_` and a UUID") }
);

text_id!(
    /// A scope in which agent numbers are unique, or one agent's own conversation: `conv_` and a
    /// UUIDv7.
    ConversationId,
    "conversation",
    |text| if prefixed(text, "conv_") { Ok(()) } else { Err("it must be `conv_` and a UUID") }
);

text_id!(
    /// The id of an agent definition: `^[a-z0-9][a-z0-9_-]{0,63}$`.
    RoleId,
    "role_id",
    |text| {
        let first = text.bytes().next().is_some_and(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
        let rest = text
            .bytes()
            .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_' || b == b'-');
        if first && rest && text.len() <= 64 {
            Ok(())
        } else {
            Err("it must be 1 to 64 of a-z, 0-9, `_`, `-`, and begin with a letter or digit")
        }
    }
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn agent_numbers_start_at_one() {
        assert!(AgentId::new(0).is_err());
        assert_eq!("7".parse::<AgentId>().unwrap().get(), 7);
        for bad in ["0", "-1", "1.5", "", "x"] {
            assert!(bad.parse::<AgentId>().is_err(), "{bad}");
        }
        assert!(serde_json::from_str::<AgentId>("0").is_err());
    }

    #[test]
    fn text_ids_keep_their_rule_when_read() {
        let id = "sub_0190a6e0-0000-7000-8000-000000000001";
        assert_eq!(TaskId::new(id).unwrap().as_str(), id);
        assert!(TaskId::new("sub_../../etc").is_err());
        assert!(serde_json::from_str::<TaskId>("\"conv_0190a6e0\"").is_err());
        assert!(RoleId::new("code-reviewer").is_ok());
        for bad in ["", "-x", "A", "a b", &"a".repeat(65)] {
            assert!(RoleId::new(bad).is_err(), "{bad}");
        }
    }
}
