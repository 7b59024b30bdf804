//! A TOML text as a small tree in which every key and value knows its line.

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::error::{ConfigError, ConfigErrorKind};
use crate::limits::CONFIG_BYTES_MAX;

/// A value.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Value {
    Text(String),
    Whole(i128),
    Real(f64),
    Switch(bool),
    Date(String),
    List(Vec<Value>),
    Table(Vec<Entry>),
}

/// One key with its value.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Entry {
    pub(super) key: String,
    /// From 1.
    pub(super) line: usize,
    pub(super) value: Value,
}

impl Value {
    /// What kind of value it is, for messages.
    pub(super) fn kind(&self) -> &'static str {
        match self {
            Value::Text(_) => "a text",
            Value::Whole(_) => "a whole number",
            Value::Real(_) => "a number with a fraction",
            Value::Switch(_) => "true or false",
            Value::Date(_) => "a date",
            Value::List(_) => "a list",
            Value::Table(_) => "a table",
        }
    }

    /// The entries of a table; none of anything else.
    pub(super) fn entries(&self) -> &[Entry] {
        match self {
            Value::Table(entries) => entries,
            Value::Text(_)
            | Value::Whole(_)
            | Value::Real(_)
            | Value::Switch(_)
            | Value::Date(_)
            | Value::List(_) => &[],
        }
    }

    /// The whole value on one line, as TOML. Control characters are escaped.
    pub(super) fn to_toml(&self) -> String {
        match self {
            Value::Text(text) => format!("{text:?}"),
            Value::Whole(number) => number.to_string(),
            Value::Real(number) => number.to_string(),
            Value::Switch(value) => value.to_string(),
            Value::Date(date) => date.clone(),
            Value::List(items) => {
                let items: Vec<String> = items.iter().map(Value::to_toml).collect();
                format!("[{}]", items.join(", "))
            }
            Value::Table(entries) => inline(entries, Value::to_toml),
        }
    }

    /// A table on one line with the names of its keys and not their values.
    pub(super) fn names_to_toml(&self) -> String {
        inline(self.entries(), |_| "(hidden)".to_owned())
    }

    /// The value as it is shown in messages, in few characters.
    pub(super) fn shown(&self) -> String {
        match self {
            Value::Text(text) => {
                let head: String = text.chars().take(40).collect();
                let rest = if text.chars().count() > 40 { "…" } else { "" };
                format!("{:?}{rest}", head)
            }
            Value::Whole(number) => number.to_string(),
            Value::Real(number) => number.to_string(),
            Value::Switch(value) => value.to_string(),
            Value::Date(_) | Value::List(_) | Value::Table(_) => self.kind().to_owned(),
        }
    }
}

fn inline(entries: &[Entry], shown: impl Fn(&Value) -> String) -> String {
    let entries: Vec<String> = entries
        .iter()
        .map(|entry| format!("{:?} = {}", entry.key, shown(&entry.value)))
        .collect();
    format!("{{{}}}", entries.join(", "))
}

/// Reads a file's text. Entries are in the order of the file.
///
/// # Errors
/// When it is too large, or no TOML.
pub(super) fn parse(file: &str, text: &str) -> Result<Vec<Entry>, ConfigError> {
    if text.len() > CONFIG_BYTES_MAX {
        let message = format!("{} bytes; the most is {CONFIG_BYTES_MAX}", text.len());
        return Err(ConfigError::new(ConfigErrorKind::Syntax, message).at(file));
    }
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let lines = Lines::of(text);
    let root = DeTable::parse(text).map_err(|error| {
        let line = error.span().map_or(1, |span| lines.at(span.start));
        ConfigError::new(
            ConfigErrorKind::Syntax,
            format!("no valid TOML: {}", error.message()),
        )
        .at(&place(file, line))
    })?;
    Ok(table(root.get_ref(), &lines))
}

/// Where an entry stands.
pub(super) fn place(file: &str, line: usize) -> String {
    format!("{file}:{line}")
}

struct Lines {
    /// Where each line begins.
    starts: Vec<usize>,
}

impl Lines {
    fn of(text: &str) -> Self {
        let after_newline = text.match_indices('\n').map(|(at, _)| at + 1);
        Lines {
            starts: std::iter::once(0).chain(after_newline).collect(),
        }
    }

    /// The line of a byte, from 1.
    fn at(&self, byte: usize) -> usize {
        self.starts.partition_point(|start| *start <= byte)
    }
}

fn table(table: &DeTable<'_>, lines: &Lines) -> Vec<Entry> {
    let mut entries: Vec<Entry> = table
        .iter()
        .map(|(key, value)| Entry {
            key: key.get_ref().to_string(),
            line: lines.at(key.span().start),
            value: convert(value, lines),
        })
        .collect();
    entries.sort_by_key(|entry| entry.line);
    entries
}

fn convert(value: &Spanned<DeValue<'_>>, lines: &Lines) -> Value {
    match value.get_ref() {
        DeValue::String(text) => Value::Text(text.to_string()),
        DeValue::Integer(number) => i128::from_str_radix(number.as_str(), number.radix())
            .map_or_else(|_| Value::Text(number.to_string()), Value::Whole),
        DeValue::Float(number) => number
            .as_str()
            .parse()
            .map_or_else(|_| Value::Text(number.to_string()), Value::Real),
        DeValue::Boolean(value) => Value::Switch(*value),
        DeValue::Datetime(date) => Value::Date(date.to_string()),
        DeValue::Array(items) => {
            Value::List(items.iter().map(|item| convert(item, lines)).collect())
        }
        DeValue::Table(entries) => Value::Table(table(entries, lines)),
    }
}
