//! Keys that hold a list of texts.

use super::error::{ConfigError, ConfigErrorKind};
use super::keys::Key;
use super::tree::Value;
use crate::limits;

/// What the entries of a list must be.
pub(super) struct ListRule {
    words: &'static str,
    length_max: usize,
    holds: fn(&str) -> bool,
}

pub(super) const SECRET_PATHS: ListRule = ListRule {
    words: "a list of absolute paths or paths that begin with `~/`",
    length_max: limits::SECRET_PATHS_MAX,
    holds: |text| {
        let below = text.strip_prefix("~/").unwrap_or(text);
        let rooted = below.len() < text.len() || text.starts_with('/');
        rooted && !below.trim_matches('/').is_empty() && !text.contains('\0')
    },
};

pub(super) const ENV_ALLOW: ListRule = ListRule {
    words: "a list of names of variables",
    length_max: limits::ENV_ALLOW_MAX,
    holds: |text| !text.is_empty() && !text.contains(['=', '\0', ' ']),
};

/// A list as a variable or a flag writes it.
pub(super) fn split(text: &str, at: char) -> Value {
    let parts = text.split(at).filter(|part| !part.trim().is_empty());
    Value::List(
        parts
            .map(|part| Value::Text(part.trim().to_owned()))
            .collect(),
    )
}

impl Key {
    /// Reads a list of texts.
    pub(super) fn list(
        self,
        value: &Value,
        place: &str,
        rule: &ListRule,
    ) -> Result<Vec<String>, ConfigError> {
        let wrong = |kind| self.wrong(kind, &format!("must be {}", rule.words), value, place);
        let Value::List(items) = value else {
            return Err(wrong(ConfigErrorKind::WrongType));
        };
        if items.len() > rule.length_max {
            let most = format!("must have {} entries at most", rule.length_max);
            return Err(self.wrong(ConfigErrorKind::OutOfRange, &most, value, place));
        }
        items
            .iter()
            .map(|item| match item {
                Value::Text(text) if (rule.holds)(text) => Ok(text.clone()),
                Value::Text(_) => Err(wrong(ConfigErrorKind::OutOfRange)),
                _ => Err(wrong(ConfigErrorKind::WrongType)),
            })
            .collect()
    }
}
