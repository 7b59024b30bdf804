//! Why a configuration can't be used.

use std::fmt;

use crate::error::{ErrorCode, ToolError, closest};

/// What kind of mistake it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConfigErrorKind {
    /// The file is no TOML, or too large.
    Syntax,
    /// A key that no version knows.
    UnknownKey,
    /// A value of the wrong type.
    WrongType,
    /// A value that is not allowed.
    OutOfRange,
    /// A key or token of a model that stands in a file.
    SecretInFile,
    /// Two values that can't hold together.
    Conflict,
    /// Part of a later version.
    NotAvailable,
    /// No model of that name is configured.
    UnknownModel,
    /// No model is configured at all.
    NoModel,
    /// The variable that is to hold a model's key does not.
    NoKey,
}

/// A mistake in a configuration: where, what and why, and what to try. The values of keys never
/// stand in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigError {
    /// The kind.
    pub kind: ConfigErrorKind,
    /// `FILE:LINE`, a variable or a flag; none where the mistake has no place.
    pub place: Option<String>,
    /// What is wrong.
    pub message: String,
    /// What to try; empty where there is nothing to say. May have several lines.
    pub hint: String,
}

impl ConfigError {
    pub(super) fn new(kind: ConfigErrorKind, message: impl Into<String>) -> Self {
        ConfigError {
            kind,
            place: None,
            message: message.into(),
            hint: String::new(),
        }
    }

    pub(super) fn at(mut self, place: &str) -> Self {
        self.place = Some(place.to_owned());
        self
    }

    pub(super) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = hint.into();
        self
    }

    /// Whether no model is configured at all, so that a caller may look for a local one.
    pub fn is_no_model(&self) -> bool {
        self.kind == ConfigErrorKind::NoModel
    }

    /// The whole report for a person: the message, then its hint on lines of their own.
    pub fn report(&self) -> String {
        if self.hint.is_empty() {
            self.to_string()
        } else {
            format!("{self}\nhint: {}", self.hint)
        }
    }

    /// The same as a tool's failure.
    pub fn to_tool_error(&self) -> ToolError {
        let code = match self.kind {
            ConfigErrorKind::UnknownModel => ErrorCode::UnknownModel,
            ConfigErrorKind::NoModel | ConfigErrorKind::NoKey => ErrorCode::NoModel,
            ConfigErrorKind::NotAvailable => ErrorCode::NotAvailable,
            ConfigErrorKind::Syntax
            | ConfigErrorKind::UnknownKey
            | ConfigErrorKind::WrongType
            | ConfigErrorKind::OutOfRange
            | ConfigErrorKind::SecretInFile
            | ConfigErrorKind::Conflict => ErrorCode::InvalidParameters,
        };
        ToolError::new(code, self.to_string()).hint(self.hint.clone())
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.place {
            Some(place) => write!(f, "{place}: {}", self.message),
            None => f.write_str(&self.message),
        }
    }
}

impl std::error::Error for ConfigError {}

/// An unknown key, with the closest known one.
pub(super) fn unknown_key(key: &str, place: &str, known: &[&str]) -> ConfigError {
    let bare = key.rsplit('.').next().unwrap_or(key);
    let hint = match closest(bare, known.iter().copied()) {
        Some(near) => format!("did you mean `{near}`?"),
        None => format!("known: `{}`", known.join("`, `")),
    };
    ConfigError::new(ConfigErrorKind::UnknownKey, format!("unknown key `{key}`"))
        .at(place)
        .hint(hint)
}

/// A key that belongs to a later version.
pub(super) fn not_available(key: &str, place: &str) -> ConfigError {
    ConfigError::new(
        ConfigErrorKind::NotAvailable,
        format!("`{key}` is not available in this version"),
    )
    .at(place)
    .hint("remove it, or put `#` before its lines")
}

/// A secret that stands in a file. Its value is not told.
pub(super) fn secret_in_file(key: &str, place: &str) -> ConfigError {
    ConfigError::new(
        ConfigErrorKind::SecretInFile,
        format!("`{key}` would hold a secret, and a secret must not stand in a configuration file"),
    )
    .at(place)
    .hint(
        "put the key into an environment variable and name it: api_key_env = \"OPENAI_API_KEY\"; \
         if the file was ever shared, replace the key",
    )
}
