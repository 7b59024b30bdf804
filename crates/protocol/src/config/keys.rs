//! Which keys there are, and how the value of a plain one is read.

use std::path::Path;

use super::caps::{CAPS, CapKey};
use super::error::{ConfigError, ConfigErrorKind};
use super::list::{ENV_ALLOW, SECRET_PATHS, split};
use super::settings::{Admission, LanguageChoice, RequiredRung};
use super::tree::Value;
use crate::confinement::{GitMode, NetworkMode, WriteMode};
use crate::limits;

/// A key of `[limits]` that holds a whole number.
#[derive(Debug)]
pub(super) struct NumberKey {
    pub(super) name: &'static str,
    pub(super) min: u64,
    pub(super) max: u64,
    /// None where the default hangs on other values, or is no limit.
    pub(super) default: Option<u64>,
}

const fn number(name: &'static str, min: u32, max: u32, default: Option<u32>) -> NumberKey {
    NumberKey {
        name,
        min: min as u64,
        max: max as u64,
        default: match default {
            Some(value) => Some(value as u64),
            None => None,
        },
    }
}

/// Every number of `[limits]`. For each of them the smaller value is the tighter one.
pub(super) const NUMBERS: &[NumberKey] = &[
    number(
        "max_concurrent",
        1,
        limits::MAX_CONCURRENT_MAX,
        Some(limits::MAX_CONCURRENT_DEFAULT),
    ),
    number("max_live", 1, limits::MAX_LIVE_MAX, None),
    number("timeout_seconds_min", 1, limits::CONFIG_SECONDS_MAX, None),
    number(
        "timeout_seconds_max",
        1,
        limits::CONFIG_SECONDS_MAX,
        Some(limits::TIMEOUT_SECONDS_MAX),
    ),
    number(
        "start_timeout_seconds",
        1,
        limits::START_TIMEOUT_SECONDS_MAX,
        Some(limits::START_TIMEOUT_SECONDS),
    ),
    number("max_total_per_run", 1, limits::TOTAL_PER_RUN_MAX, None),
    NumberKey {
        name: "max_total_tokens",
        min: 1,
        // A TOML integer has 64 bits with a sign.
        max: i64::MAX as u64,
        default: None,
    },
    number(
        "queue_timeout_seconds",
        1,
        limits::CONFIG_SECONDS_MAX,
        Some(limits::QUEUE_TIMEOUT_SECONDS),
    ),
    number(
        "grace_seconds",
        0,
        limits::GRACE_SECONDS_MAX,
        Some(limits::GRACE_SECONDS),
    ),
    number(
        "idle_timeout_seconds",
        1,
        limits::CONFIG_SECONDS_MAX,
        Some(limits::IDLE_TIMEOUT_SECONDS),
    ),
    number(
        "answer_timeout_seconds",
        1,
        limits::CONFIG_SECONDS_MAX,
        Some(limits::ANSWER_TIMEOUT_SECONDS),
    ),
    number(
        "result_bytes",
        limits::RESULT_BYTES_SETTING_MIN,
        limits::RESULT_BYTES_SETTING_MAX,
        Some(limits::RESULT_BYTES_MAX as u32),
    ),
];

/// Every number of `[retention]`.
pub(super) const RETENTION_NUMBERS: &[NumberKey] = &[
    number(
        "days",
        1,
        limits::RETENTION_DAYS_MAX,
        Some(limits::RETENTION_DAYS),
    ),
    number(
        "runs",
        1,
        limits::RETENTION_RUNS_MAX,
        Some(limits::RETENTION_RUNS),
    ),
];

/// A key that holds one plain value.
#[derive(Debug, Clone, Copy)]
pub(super) enum Key {
    Language,
    DefaultModel,
    PromptsDir,
    Admission,
    Require,
    Highest,
    Cgroup,
    Write,
    Network,
    Git,
    SecretPaths,
    Cap(&'static CapKey),
    EnvAllow,
    Number(&'static NumberKey),
    Retention(&'static NumberKey),
}

/// A plain value, read and checked.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Setting {
    Language(LanguageChoice),
    DefaultModel(String),
    PromptsDir(String),
    Admission(Admission),
    Require(RequiredRung),
    Highest(RequiredRung),
    Cgroup(String),
    Write(WriteMode),
    Network(NetworkMode),
    Git(GitMode),
    SecretPaths(Vec<String>),
    /// By the key's name in `[confinement]`.
    Cap(&'static str, u64),
    EnvAllow(Vec<String>),
    Number(&'static str, u64),
    Retention(&'static str, u64),
}

/// The sections that hold no plain value of this version.
pub(super) const MODELS: &str = "models";
/// The section of the web.
pub(super) const WEB: &str = "web";
/// The section of MCP servers.
pub(super) const MCP: &str = "mcp";
/// Sections of which a later version knows more.
pub(super) const LATER_SECTIONS: &[&str] = &["agents", "launcher", "team"];
/// The section of what is kept of ended runs.
pub(super) const RETENTION: &str = "retention";
/// Keys of `[confinement]`.
pub(super) const CONFINEMENT: &[&str] = &[
    "require",
    "highest",
    "cgroup",
    "write",
    "network",
    "git",
    "secret_paths",
    "env_allow",
    "memory",
    "cpu_seconds",
    "disk",
];
/// Keys of `[confinement]` that a later version knows.
pub(super) const LATER_CONFINEMENT: &[&str] = &["pids"];
/// What may stand at the top of a file.
pub(super) const TOP: &[&str] = &[
    "language",
    "default_model",
    "prompts_dir",
    "limits",
    MODELS,
    "confinement",
    "agents",
    "web",
    MCP,
    "launcher",
    "team",
    RETENTION,
];

impl Key {
    /// Every plain key.
    pub(super) fn all() -> impl Iterator<Item = Key> {
        [
            Key::Language,
            Key::DefaultModel,
            Key::PromptsDir,
            Key::Admission,
            Key::Require,
            Key::Highest,
            Key::Cgroup,
            Key::Write,
            Key::Network,
            Key::Git,
            Key::SecretPaths,
            Key::EnvAllow,
        ]
        .into_iter()
        .chain(CAPS.iter().map(Key::Cap))
        .chain(NUMBERS.iter().map(Key::Number))
        .chain(RETENTION_NUMBERS.iter().map(Key::Retention))
    }

    /// The key of a path such as `limits.max_concurrent`.
    pub(super) fn of_path(path: &str) -> Option<Key> {
        Key::all().find(|key| key.path() == path)
    }

    /// Its path in a file.
    pub(super) fn path(self) -> String {
        match self {
            Key::Language => "language".to_owned(),
            Key::DefaultModel => "default_model".to_owned(),
            Key::PromptsDir => "prompts_dir".to_owned(),
            Key::Admission => "limits.admission".to_owned(),
            Key::Require => "confinement.require".to_owned(),
            Key::Highest => "confinement.highest".to_owned(),
            Key::Cgroup => "confinement.cgroup".to_owned(),
            Key::Write => "confinement.write".to_owned(),
            Key::Network => "confinement.network".to_owned(),
            Key::Git => "confinement.git".to_owned(),
            Key::SecretPaths => "confinement.secret_paths".to_owned(),
            Key::Cap(cap) => format!("confinement.{}", cap.name),
            Key::EnvAllow => "confinement.env_allow".to_owned(),
            Key::Number(number) => format!("limits.{}", number.name),
            Key::Retention(number) => format!("{RETENTION}.{}", number.name),
        }
    }

    /// The variable that sets it.
    pub(super) fn variable(self) -> String {
        let path = self.path();
        let name = path.strip_prefix("limits.").unwrap_or(&path);
        format!("MUSTER_{}", name.replace('.', "_").to_ascii_uppercase())
    }

    /// Reads the value as it stands in a file.
    pub(super) fn read(self, value: &Value, place: &str) -> Result<Setting, ConfigError> {
        match self {
            Key::Language => self
                .word(
                    value,
                    place,
                    &[LanguageChoice::Auto, LanguageChoice::Zh, LanguageChoice::En],
                    LanguageChoice::as_str,
                )
                .map(Setting::Language),
            Key::DefaultModel => self.text(value, place).map(Setting::DefaultModel),
            Key::PromptsDir => self.text(value, place).map(Setting::PromptsDir),
            Key::Admission => self
                .word(value, place, Admission::ALL, Admission::as_str)
                .map(Setting::Admission),
            Key::Require => self
                .word(value, place, RequiredRung::ALL, RequiredRung::as_str)
                .map(Setting::Require),
            // "No rung at all" is nothing that could be tried.
            Key::Highest => self
                .word(value, place, &RequiredRung::ALL[1..], RequiredRung::as_str)
                .map(Setting::Highest),
            Key::Cgroup => self.absolute(value, place).map(Setting::Cgroup),
            Key::Write => self
                .word(value, place, WriteMode::ALL, WriteMode::as_str)
                .map(Setting::Write),
            Key::Network => self
                .word(value, place, NetworkMode::ALL, NetworkMode::as_str)
                .map(Setting::Network),
            Key::Git => self
                .word(value, place, GitMode::ALL, GitMode::as_str)
                .map(Setting::Git),
            Key::SecretPaths => self
                .list(value, place, &SECRET_PATHS)
                .map(Setting::SecretPaths),
            Key::EnvAllow => self.list(value, place, &ENV_ALLOW).map(Setting::EnvAllow),
            Key::Cap(cap) => self
                .cap(cap, value, place)
                .map(|value| Setting::Cap(cap.name, value)),
            Key::Number(number) => self
                .number(number, value, place)
                .map(|value| Setting::Number(number.name, value)),
            Key::Retention(number) => self
                .number(number, value, place)
                .map(|value| Setting::Retention(number.name, value)),
        }
    }

    /// Reads the value of a variable or a flag, which is always a text.
    pub(super) fn read_text(self, text: &str, place: &str) -> Result<Setting, ConfigError> {
        let text = text.trim();
        let value = match self {
            Key::Number(_) | Key::Retention(_) | Key::Cap(_) => text
                .parse::<i128>()
                .map_or_else(|_| Value::Text(text.to_owned()), Value::Whole),
            Key::Language
            | Key::DefaultModel
            | Key::PromptsDir
            | Key::Admission
            | Key::Require
            | Key::Highest
            | Key::Cgroup
            | Key::Write
            | Key::Network
            | Key::Git => Value::Text(text.to_owned()),
            Key::SecretPaths => split(text, ':'),
            Key::EnvAllow => split(text, ','),
        };
        self.read(&value, place)
    }

    fn number(self, key: &NumberKey, value: &Value, place: &str) -> Result<u64, ConfigError> {
        let rule = format!("must be a whole number from {} to {}", key.min, key.max);
        let Value::Whole(number) = value else {
            return Err(self.wrong(ConfigErrorKind::WrongType, &rule, value, place));
        };
        u64::try_from(*number)
            .ok()
            .filter(|number| (key.min..=key.max).contains(number))
            .ok_or_else(|| self.wrong(ConfigErrorKind::OutOfRange, &rule, value, place))
    }

    fn text(self, value: &Value, place: &str) -> Result<String, ConfigError> {
        match value {
            Value::Text(text) if !text.is_empty() => Ok(text.clone()),
            Value::Text(_) => Err(self.wrong(
                ConfigErrorKind::OutOfRange,
                "must be a text of at least one character",
                value,
                place,
            )),
            Value::Whole(_)
            | Value::Real(_)
            | Value::Switch(_)
            | Value::Date(_)
            | Value::List(_)
            | Value::Table(_) => {
                Err(self.wrong(ConfigErrorKind::WrongType, "must be a text", value, place))
            }
        }
    }

    fn absolute(self, value: &Value, place: &str) -> Result<String, ConfigError> {
        let text = self.text(value, place)?;
        if Path::new(&text).is_absolute() {
            Ok(text)
        } else {
            let rule = "must be an absolute path";
            Err(self.wrong(ConfigErrorKind::OutOfRange, rule, value, place))
        }
    }

    fn word<T: Copy>(
        self,
        value: &Value,
        place: &str,
        words: &[T],
        spelled: fn(T) -> &'static str,
    ) -> Result<T, ConfigError> {
        let list: Vec<String> = words
            .iter()
            .map(|word| format!("\"{}\"", spelled(*word)))
            .collect();
        let rule = format!("must be one of {}", list.join(", "));
        let Value::Text(text) = value else {
            return Err(self.wrong(ConfigErrorKind::WrongType, &rule, value, place));
        };
        words
            .iter()
            .copied()
            .find(|word| spelled(*word) == text)
            .ok_or_else(|| self.wrong(ConfigErrorKind::OutOfRange, &rule, value, place))
    }

    pub(super) fn wrong(
        self,
        kind: ConfigErrorKind,
        rule: &str,
        value: &Value,
        place: &str,
    ) -> ConfigError {
        ConfigError::new(
            kind,
            format!("`{}` {rule}, not {}", self.path(), value.shown()),
        )
        .at(place)
    }
}
