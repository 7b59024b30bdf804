//! One key of a model's section: how each kind of value is read.

use std::collections::BTreeMap;

use serde_json::{Map, Value as Json};

use super::error::{ConfigError, ConfigErrorKind, secret_in_file, unknown_key};
use super::tree::{Value, place};
use crate::job::ModelTimeouts;
use crate::limits;
use crate::status::ThinkingMode;

/// What may stand in `timeouts`.
const TIMEOUTS: &[&str] = &["connect_seconds", "first_byte_seconds", "gap_seconds"];
/// Fields of a request that are ours to fill.
const OUR_BODY: &[&str] = &["model", "messages", "tools", "stream"];
/// Fields of a request in which some gateways take a key.
const SECRET_FIELDS: &[&str] = &["api_key", "apikey", "token", "secret", "password"];
/// Headers that carry a key.
const SECRET_HEADERS: &[&str] = &[
    "authorization",
    "proxy-authorization",
    "x-api-key",
    "api-key",
    "cookie",
];

/// Whether a key by its name would hold a secret.
pub(super) fn is_secret_name(name: &str) -> bool {
    let name = name.to_ascii_lowercase().replace('-', "_");
    let whole = ["apikey", "key", "token", "secret", "password"];
    let ends = ["api_key", "_token", "_secret", "_password", "_apikey"];
    whole.contains(&name.as_str()) || ends.iter().any(|end| name.ends_with(end))
}

/// One key of a model with its value. Messages never show the value: it might be a key that was
/// put into the wrong place.
pub(super) struct Field<'a> {
    pub(super) path: String,
    pub(super) at: String,
    pub(super) value: &'a Value,
}

impl Field<'_> {
    pub(super) fn wrong(&self, kind: ConfigErrorKind, rule: &str) -> ConfigError {
        ConfigError::new(kind, format!("`{}` must be {rule}", self.path)).at(&self.at)
    }

    fn misfit(&self, rule: &str) -> ConfigError {
        let rule = format!("{rule}, not {}", self.value.kind());
        self.wrong(ConfigErrorKind::WrongType, &rule)
    }

    pub(super) fn text(&self) -> Result<&str, ConfigError> {
        match self.value {
            Value::Text(text) if text.is_empty() => {
                Err(self.wrong(ConfigErrorKind::OutOfRange, "a text that is not empty"))
            }
            Value::Text(text) => Ok(text),
            _ => Err(self.misfit("a text")),
        }
    }

    pub(super) fn switch(&self) -> Result<bool, ConfigError> {
        match self.value {
            Value::Switch(value) => Ok(*value),
            _ => Err(self.misfit("true or false")),
        }
    }

    pub(super) fn word<T: Copy>(&self, words: &[(&str, T)]) -> Result<T, ConfigError> {
        let list: Vec<String> = words.iter().map(|(word, _)| format!("{word:?}")).collect();
        let rule = format!("one of {}", list.join(", "));
        let Value::Text(text) = self.value else {
            return Err(self.misfit(&rule));
        };
        words
            .iter()
            .find(|(word, _)| word == text)
            .map(|(_, value)| *value)
            .ok_or_else(|| self.wrong(ConfigErrorKind::OutOfRange, &rule))
    }

    /// A list of so many texts at most.
    pub(super) fn texts(&self, rule: &str, most: usize) -> Result<Vec<String>, ConfigError> {
        let Value::List(items) = self.value else {
            return Err(self.misfit(rule));
        };
        if items.len() > most {
            let rule = format!("a list of at most {most}");
            return Err(self.wrong(ConfigErrorKind::OutOfRange, &rule));
        }
        items
            .iter()
            .map(|item| match item {
                Value::Text(text) => Ok(text.clone()),
                _ => Err(self.wrong(ConfigErrorKind::WrongType, rule)),
            })
            .collect()
    }

    pub(super) fn whole(&self, min: u32, max: u32) -> Result<u32, ConfigError> {
        let rule = format!("a whole number from {min} to {max}");
        let Value::Whole(number) = self.value else {
            return Err(self.misfit(&rule));
        };
        u32::try_from(*number)
            .ok()
            .filter(|number| (min..=max).contains(number))
            .ok_or_else(|| self.wrong(ConfigErrorKind::OutOfRange, &rule))
    }

    pub(super) fn tokens(&self) -> Result<u32, ConfigError> {
        self.whole(1, limits::MODEL_TOKENS_MAX)
    }

    pub(super) fn price(&self) -> Result<f64, ConfigError> {
        let rule = "a price of a million tokens, 0 or more";
        let price = match self.value {
            Value::Real(number) => *number,
            // Prices are small; a whole number beyond 2^53 would be no price.
            Value::Whole(number) => *number as f64,
            _ => return Err(self.misfit(rule)),
        };
        if price.is_finite() && price >= 0.0 {
            Ok(price)
        } else {
            Err(self.wrong(ConfigErrorKind::OutOfRange, rule))
        }
    }

    pub(super) fn base_url(&self) -> Result<String, ConfigError> {
        check_base_url(self.text()?).map_err(|rule| self.wrong(ConfigErrorKind::OutOfRange, rule))
    }

    pub(super) fn variable_name(&self) -> Result<String, ConfigError> {
        let text = self.text()?;
        let plain = |c: char| c.is_ascii_alphanumeric() || c == '_';
        if text.chars().all(plain) && !text.starts_with(|c: char| c.is_ascii_digit()) {
            return Ok(text.to_owned());
        }
        Err(self
            .wrong(
                ConfigErrorKind::SecretInFile,
                "the name of an environment variable",
            )
            .hint("if this is the key itself: put it into a variable and name that here"))
    }

    /// The keys of a table, each as a field of its own.
    fn fields(&self, file: &str) -> Result<Vec<(&str, Field<'_>)>, ConfigError> {
        let Value::Table(entries) = self.value else {
            return Err(self.misfit("a table"));
        };
        Ok(entries
            .iter()
            .map(|entry| {
                let field = Field {
                    path: format!("{}.{}", self.path, entry.key),
                    at: place(file, entry.line),
                    value: &entry.value,
                };
                (entry.key.as_str(), field)
            })
            .collect())
    }

    pub(super) fn headers(&self, file: &str) -> Result<BTreeMap<String, String>, ConfigError> {
        let mut headers = BTreeMap::new();
        for (name, field) in self.fields(file)? {
            let lower = name.to_ascii_lowercase();
            if SECRET_HEADERS.contains(&lower.as_str()) || is_secret_name(&lower) {
                return Err(secret_in_file(&field.path, &field.at));
            }
            let named = !name.is_empty()
                && name
                    .chars()
                    .all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c));
            if !named {
                let rule = "a header whose name is of letters, digits and `-`";
                return Err(field.wrong(ConfigErrorKind::OutOfRange, rule));
            }
            let value = field.text()?;
            if !value.chars().all(|c| (' '..='~').contains(&c)) {
                let rule = "a text of printable ASCII characters";
                return Err(field.wrong(ConfigErrorKind::OutOfRange, rule));
            }
            headers.insert(name.to_owned(), value.to_owned());
        }
        Ok(headers)
    }

    pub(super) fn body(&self, file: &str) -> Result<Map<String, Json>, ConfigError> {
        let mut body = Map::new();
        for (name, field) in self.fields(file)? {
            if OUR_BODY.contains(&name) {
                return Err(ConfigError::new(
                    ConfigErrorKind::OutOfRange,
                    format!("`{}` is set by muster itself", field.path),
                )
                .at(&field.at)
                .hint("the model's name and streaming have keys of their own: `model`, `stream`"));
            }
            if SECRET_FIELDS.contains(&name) {
                return Err(secret_in_file(&field.path, &field.at));
            }
            body.insert(name.to_owned(), field.json(field.value)?);
        }
        Ok(body)
    }

    fn json(&self, value: &Value) -> Result<Json, ConfigError> {
        let too_large = || self.wrong(ConfigErrorKind::OutOfRange, "a number that JSON can hold");
        match value {
            Value::Text(text) => Ok(Json::from(text.clone())),
            Value::Whole(number) => i64::try_from(*number)
                .map(Json::from)
                .map_err(|_| too_large()),
            Value::Real(number) => serde_json::Number::from_f64(*number)
                .map(Json::Number)
                .ok_or_else(too_large),
            Value::Switch(value) => Ok(Json::from(*value)),
            Value::Date(_) => Err(self.wrong(ConfigErrorKind::WrongType, "no date; quote it")),
            Value::List(items) => items.iter().map(|item| self.json(item)).collect(),
            Value::Table(entries) => entries
                .iter()
                .map(|entry| Ok((entry.key.clone(), self.json(&entry.value)?)))
                .collect::<Result<Map<_, _>, _>>()
                .map(Json::Object),
        }
    }

    pub(super) fn thinking(
        &self,
        file: &str,
    ) -> Result<BTreeMap<String, Map<String, Json>>, ConfigError> {
        let mut modes = BTreeMap::new();
        for (name, field) in self.fields(file)? {
            if !ThinkingMode::ALL.iter().any(|mode| mode.as_str() == name) {
                let known: Vec<&str> = ThinkingMode::ALL.iter().map(|mode| mode.as_str()).collect();
                return Err(unknown_key(&field.path, &field.at, &known));
            }
            modes.insert(name.to_owned(), field.body(file)?);
        }
        Ok(modes)
    }

    pub(super) fn timeouts(&self, file: &str) -> Result<ModelTimeouts, ConfigError> {
        let mut timeouts = ModelTimeouts::default();
        for (name, field) in self.fields(file)? {
            let slot = match name {
                "connect_seconds" => &mut timeouts.connect_seconds,
                "first_byte_seconds" => &mut timeouts.first_byte_seconds,
                "gap_seconds" => &mut timeouts.gap_seconds,
                _ => return Err(unknown_key(&field.path, &field.at, TIMEOUTS)),
            };
            *slot = field.whole(1, limits::MODEL_TIMEOUT_SECONDS_MAX)?;
        }
        Ok(timeouts)
    }
}

/// Checks the URL of a server and takes a slash from its end. The rule that it breaks is said
/// without the URL, which might hold a password.
pub(super) fn check_base_url(url: &str) -> Result<String, &'static str> {
    let Some((scheme, rest)) = url.split_once("://") else {
        return Err("a URL that begins with http:// or https://");
    };
    if scheme != "http" && scheme != "https" {
        return Err("a URL that begins with http:// or https://");
    }
    let authority = rest.split(['/', '?', '#']).next().unwrap_or("");
    if authority.contains('@') {
        return Err("a URL without a user name or password; name the key with `api_key_env`");
    }
    if authority.is_empty() || url.chars().any(|c| c.is_whitespace() || c.is_control()) {
        return Err("a URL with a host and without blanks");
    }
    if rest.contains(['?', '#']) {
        return Err("a URL without `?` or `#`");
    }
    let trimmed = url.trim_end_matches('/');
    if trimmed.ends_with("/chat/completions") {
        return Err("a URL up to its version part, such as https://host/v1, without the rest");
    }
    Ok(trimmed.to_owned())
}
