//! The layers of a configuration, laid over each other in order.

use super::draft::{Draft, ignored};
use super::error::{ConfigError, ConfigErrorKind, not_available, secret_in_file, unknown_key};
use super::field::is_secret_name;
use super::keys::{CONFINEMENT, Key, LATER_CONFINEMENT, LATER_SECTIONS, MODELS, NUMBERS, TOP};
use super::model::read_model;
use super::settings::Settings;
use super::tree::{Entry, Value, parse, place};

/// One file's text.
#[derive(Debug, Clone)]
pub struct ConfigFile {
    /// How messages name it, such as its path.
    pub name: String,
    /// Its content.
    pub text: String,
}

/// One value of the command line.
#[derive(Debug, Clone)]
pub struct Flag {
    /// How messages name it, such as `--lang`.
    pub flag: String,
    /// The key it sets, such as `language` or `limits.max_concurrent`.
    pub key: String,
    /// The value.
    pub value: String,
}

/// All layers but the built-in one.
#[derive(Debug, Clone, Default)]
pub struct Layers {
    /// The user's file, if there is one.
    pub user: Option<ConfigFile>,
    /// The workspace's `muster.toml`, if there is one.
    pub workspace: Option<ConfigFile>,
    /// The environment; only `MUSTER_*` is looked at, and an empty value counts as none.
    pub variables: Vec<(String, String)>,
    /// Flags, later ones win.
    pub flags: Vec<Flag>,
}

/// How far a file is trusted.
#[derive(Debug, Clone, Copy)]
enum Trust {
    User,
    Workspace,
}

/// Lays the layers over each other.
///
/// # Errors
/// When a file is no TOML, holds an unknown key, a value that is not allowed, a secret or (in the
/// user's file) a part of a later version, or when two values can't hold together.
pub fn resolve(layers: &Layers) -> Result<Settings, ConfigError> {
    let mut draft = Draft::default();
    if let Some(file) = &layers.user {
        read_file(&mut draft, file, Trust::User)?;
    }
    if let Some(file) = &layers.workspace {
        read_file(&mut draft, file, Trust::Workspace)?;
    }
    for (name, value) in &layers.variables {
        read_variable(&mut draft, name, value)?;
    }
    for flag in &layers.flags {
        let Some(key) = Key::of_path(&flag.key) else {
            let known: Vec<String> = Key::all().map(Key::path).collect();
            let known: Vec<&str> = known.iter().map(String::as_str).collect();
            return Err(unknown_key(&flag.key, &flag.flag, &known));
        };
        let setting = key.read_text(&flag.value, &flag.flag)?;
        draft.set(key, setting, &flag.flag);
    }
    draft.finish()
}

fn read_variable(draft: &mut Draft, name: &str, value: &str) -> Result<(), ConfigError> {
    if !name.starts_with("MUSTER_") || value.trim().is_empty() {
        return Ok(());
    }
    if let Some(key) = Key::all().find(|key| key.variable() == name) {
        let setting = key.read_text(value, name)?;
        draft.set(key, setting, name);
        return Ok(());
    }
    // Other variables of that beginning are somebody else's business; only what is nearly one of
    // ours is most likely a slip.
    let near = Key::all()
        .map(Key::variable)
        .find(|known| strsim::osa_distance(known, name) <= 2);
    if let Some(near) = near {
        draft.warn(format!("{name}: is ignored; did you mean {near}?"));
    }
    Ok(())
}

fn read_file(draft: &mut Draft, file: &ConfigFile, trust: Trust) -> Result<(), ConfigError> {
    for entry in parse(&file.name, &file.text)? {
        let at = place(&file.name, entry.line);
        match entry.key.as_str() {
            "limits" => read_section(draft, file, &entry, trust)?,
            "confinement" => read_section(draft, file, &entry, trust)?,
            MODELS => match trust {
                Trust::User => read_models(draft, file, &entry)?,
                Trust::Workspace => draft.warn(ignored(MODELS, &at)),
            },
            later if LATER_SECTIONS.contains(&later) => match trust {
                Trust::User => return Err(not_available(later, &at)),
                Trust::Workspace => draft.warn(ignored(later, &at)),
            },
            key => read_plain(draft, key, &entry.value, &at, trust, TOP)?,
        }
    }
    Ok(())
}

fn read_section(
    draft: &mut Draft,
    file: &ConfigFile,
    section: &Entry,
    trust: Trust,
) -> Result<(), ConfigError> {
    let entries = entries_of(section, file)?;
    let known: Vec<&str> = if section.key == "limits" {
        let numbers = NUMBERS.iter().map(|number| number.name);
        numbers.chain(["admission"]).collect()
    } else {
        let later = LATER_CONFINEMENT.iter().copied();
        CONFINEMENT.iter().copied().chain(later).collect()
    };
    for entry in entries {
        let at = place(&file.name, entry.line);
        let path = format!("{}.{}", section.key, entry.key);
        if section.key == "confinement" && LATER_CONFINEMENT.contains(&entry.key.as_str()) {
            match trust {
                Trust::User => return Err(not_available(&path, &at)),
                Trust::Workspace => draft.warn(ignored(&path, &at)),
            }
        } else {
            read_plain(draft, &path, &entry.value, &at, trust, &known)?;
        }
    }
    Ok(())
}

fn read_plain(
    draft: &mut Draft,
    path: &str,
    value: &Value,
    at: &str,
    trust: Trust,
    known: &[&str],
) -> Result<(), ConfigError> {
    let Some(key) = Key::of_path(path) else {
        let bare = path.rsplit('.').next().unwrap_or(path);
        return Err(if is_secret_name(bare) {
            secret_in_file(path, at)
        } else {
            unknown_key(path, at, known)
        });
    };
    let setting = key.read(value, at)?;
    match trust {
        Trust::User => draft.set(key, setting, at),
        Trust::Workspace => draft.tighten(key, setting, at),
    }
    Ok(())
}

fn read_models(draft: &mut Draft, file: &ConfigFile, section: &Entry) -> Result<(), ConfigError> {
    for entry in entries_of(section, file)? {
        let spec = read_model(entry, &file.name)?;
        draft.set_model(spec, &place(&file.name, entry.line));
    }
    Ok(())
}

fn entries_of<'a>(section: &'a Entry, file: &ConfigFile) -> Result<&'a [Entry], ConfigError> {
    match &section.value {
        Value::Table(entries) => Ok(entries),
        Value::Text(_)
        | Value::Whole(_)
        | Value::Real(_)
        | Value::Switch(_)
        | Value::Date(_)
        | Value::List(_) => Err(ConfigError::new(
            ConfigErrorKind::WrongType,
            format!(
                "`{}` must be a section, not {}",
                section.key,
                section.value.kind()
            ),
        )
        .at(&place(&file.name, section.line))
        .hint(format!(
            "write a line `[{}]` and its keys below it",
            section.key
        ))),
    }
}
