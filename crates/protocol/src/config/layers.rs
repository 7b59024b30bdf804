//! The layers of a configuration, laid over each other in order.

use super::draft::{Draft, ignored};
use super::error::{ConfigError, ConfigErrorKind, not_available, secret_in_file, unknown_key};
use super::field::is_secret_name;
use super::keys::{
    CONFINEMENT, Key, LATER_CONFINEMENT, LATER_SECTIONS, MCP, MODELS, NUMBERS, RETENTION,
    RETENTION_NUMBERS, TOP, WEB,
};
use super::mcp::read_mcp;
use super::model::read_model;
use super::settings::Settings;
use super::tree::{Entry, Value, parse, place};
use super::trust::{FileTrust, Wish};
use super::web::read_web;

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
    /// How far that file is trusted.
    pub trust: FileTrust,
    /// The environment; only `MUSTER_*` is looked at, and an empty value counts as none.
    pub variables: Vec<(String, String)>,
    /// Flags, later ones win.
    pub flags: Vec<Flag>,
}

/// Whose a file is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Trust {
    User,
    Workspace,
    /// The workspace's, with a content that the user has accepted.
    Accepted,
}

impl Trust {
    /// How a place in such a file is named as the source of a value.
    fn source(self, at: &str) -> String {
        match self {
            Trust::User | Trust::Workspace => at.to_owned(),
            Trust::Accepted => format!("{at} (trusted)"),
        }
    }
}

/// Lays the layers over each other.
///
/// # Errors
/// When a file is no TOML, holds an unknown key, a value that is not allowed, a secret or (in the
/// user's file, or one that was accepted) a part of a later version, or when two values can't hold
/// together.
pub fn resolve(layers: &Layers) -> Result<Settings, ConfigError> {
    lay(layers)?.finish()
}

/// What the workspace's file wants beyond tightening, with what holds now beside it, in the order
/// of the file. It is told as if the file had not been accepted.
///
/// # Errors
/// As [`resolve`].
pub fn wishes(layers: &Layers) -> Result<Vec<Wish>, ConfigError> {
    let layers = Layers {
        trust: FileTrust::Never,
        ..layers.clone()
    };
    Ok(lay(&layers)?.wishes())
}

fn lay(layers: &Layers) -> Result<Draft, ConfigError> {
    let mut draft = Draft::default();
    if let Some(file) = &layers.user {
        read_file(&mut draft, file, Trust::User)?;
    }
    if let Some(file) = &layers.workspace {
        let trust = match layers.trust {
            FileTrust::Accepted { .. } => Trust::Accepted,
            FileTrust::Never | FileTrust::Changed { .. } => Trust::Workspace,
        };
        read_file(&mut draft, file, trust)?;
        draft.tell_of_trust(&file.name, &layers.trust);
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
    Ok(draft)
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
            "limits" | "confinement" | RETENTION => read_section(draft, file, &entry, trust)?,
            MODELS => match trust {
                Trust::User | Trust::Accepted => read_models(draft, file, &entry, trust)?,
                Trust::Workspace => wish_for_models(draft, file, &entry),
            },
            WEB => match trust {
                Trust::User | Trust::Accepted => {
                    let web = read_web(entries_of(&entry, file)?, &file.name, &at)?;
                    draft.set_web(web, &trust.source(&at));
                }
                Trust::Workspace => wish_for_web(draft, file, &entry),
            },
            MCP => match trust {
                Trust::User | Trust::Accepted => {
                    for (server, at) in read_mcp(entries_of(&entry, file)?, &file.name)? {
                        draft.set_server(server, &trust.source(&at));
                    }
                }
                Trust::Workspace => wish_for_servers(draft, file, &entry),
            },
            later if LATER_SECTIONS.contains(&later) => match trust {
                Trust::User | Trust::Accepted => return Err(not_available(later, &at)),
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
    let known: Vec<&str> = match section.key.as_str() {
        "limits" => {
            let numbers = NUMBERS.iter().map(|number| number.name);
            numbers.chain(["admission"]).collect()
        }
        RETENTION => RETENTION_NUMBERS.iter().map(|number| number.name).collect(),
        _ => {
            let later = LATER_CONFINEMENT.iter().copied();
            CONFINEMENT.iter().copied().chain(later).collect()
        }
    };
    for entry in entries {
        let at = place(&file.name, entry.line);
        let path = format!("{}.{}", section.key, entry.key);
        if section.key == "confinement" && LATER_CONFINEMENT.contains(&entry.key.as_str()) {
            match trust {
                Trust::User | Trust::Accepted => return Err(not_available(&path, &at)),
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
        Trust::User | Trust::Accepted => draft.set(key, setting, &trust.source(at)),
        Trust::Workspace => draft.tighten(key, setting, &value.to_toml(), at),
    }
    Ok(())
}

fn read_models(
    draft: &mut Draft,
    file: &ConfigFile,
    section: &Entry,
    trust: Trust,
) -> Result<(), ConfigError> {
    for entry in entries_of(section, file)? {
        let spec = read_model(entry, &file.name)?;
        let source = trust.source(&place(&file.name, entry.line));
        draft.set_model(spec, &source);
    }
    Ok(())
}

/// Notes what a file that nobody accepted says of models. It is not checked: it has no effect.
fn wish_for_models(draft: &mut Draft, file: &ConfigFile, section: &Entry) {
    draft.warn(ignored(MODELS, &place(&file.name, section.line)));
    for model in section.value.entries() {
        for entry in model.value.entries() {
            let key = format!("{MODELS}.{}.{}", model.key, entry.key);
            let wanted = match entry.key.as_str() {
                // A value of a header may be a secret that was put into the wrong place.
                "headers" => entry.value.names_to_toml(),
                _ => entry.value.to_toml(),
            };
            draft.wish(key, place(&file.name, entry.line), wanted);
        }
    }
}

/// A section of the web gives agents the web even where it is empty.
fn wish_for_web(draft: &mut Draft, file: &ConfigFile, section: &Entry) {
    let at = place(&file.name, section.line);
    draft.warn(ignored(WEB, &at));
    let entries = section.value.entries();
    if entries.iter().all(|entry| entry.key != "pages") {
        draft.wish(format!("{WEB}.pages"), at, "true".to_owned());
    }
    for entry in entries {
        let key = format!("{WEB}.{}", entry.key);
        draft.wish(key, place(&file.name, entry.line), entry.value.to_toml());
    }
}

/// Notes which servers a file that nobody accepted wants. It is not checked: it has no effect.
fn wish_for_servers(draft: &mut Draft, file: &ConfigFile, section: &Entry) {
    draft.warn(ignored(MCP, &place(&file.name, section.line)));
    let groups = section.value.entries().iter();
    for (group, server) in groups.flat_map(|group| {
        let servers = group.value.entries().iter();
        servers.map(move |server| (&group.key, server))
    }) {
        for entry in server.value.entries() {
            let key = format!("{MCP}.{group}.{}.{}", server.key, entry.key);
            draft.wish(key, place(&file.name, entry.line), entry.value.to_toml());
        }
    }
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
