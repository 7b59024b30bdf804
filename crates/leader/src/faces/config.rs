//! `leader config`: what holds, and where it is from.

use protocol::config::Settings;
use protocol::error::ToolError;
use serde_json::{Map, Value, json};

use crate::cli::ConfigArgs;
use crate::faces::console::Console;
use crate::faces::surroundings::Surroundings;

/// What stands in place of a header's value, which may be a secret.
const HIDDEN: &str = "(hidden)";

/// Prints the resolved configuration.
///
/// # Errors
/// When the configuration can't be resolved or stdout can't be written.
pub fn config(
    args: &ConfigArgs,
    surroundings: &Surroundings,
    console: &mut Console<'_>,
) -> Result<u8, ToolError> {
    let settings = surroundings.settings(Vec::new(), console)?;
    let value = config_value(&settings);
    let text = match args.json {
        true => format!("{value}\n"),
        false => config_text(&value),
    };
    console.show(&text, args.json)?;
    Ok(protocol::exit::SUCCESS)
}

/// The configuration as the control socket and `--json` give it.
pub fn config_value(settings: &Settings) -> Value {
    let mut value = serde_json::to_value(settings).unwrap_or(Value::Null);
    if let Some(models) = value["models"].as_object_mut() {
        for model in models.values_mut() {
            if let Some(headers) = model["headers"].as_object_mut() {
                headers
                    .values_mut()
                    .for_each(|header| *header = Value::from(HIDDEN));
            }
        }
    }
    nest_confinement(&mut value);
    let mut answer = Map::new();
    answer.insert("success".to_owned(), json!(true));
    if let Value::Object(fields) = value {
        answer.extend(fields);
    }
    Value::Object(answer)
}

/// Puts the keys of `[confinement]` where a file has them.
fn nest_confinement(value: &mut Value) {
    let Some(fields) = value.as_object_mut() else {
        return;
    };
    let section: Map<String, Value> = [
        "require",
        "highest",
        "cgroup",
        "write",
        "network",
        "git",
        "secret_paths",
        "memory",
        "cpu_seconds",
        "disk",
        "env_allow",
    ]
    .into_iter()
    .filter_map(|key| Some((key.to_owned(), fields.shift_remove(key)?)))
    .collect();
    fields.insert("confinement".to_owned(), Value::Object(section));
}

/// One value a line, with its source behind it.
fn config_text(value: &Value) -> String {
    let sources = &value["sources"];
    let mut lines = Vec::new();
    for (key, part) in value.as_object().into_iter().flatten() {
        if !matches!(key.as_str(), "success" | "sources" | "warnings") {
            flatten(key, part, &mut lines);
        }
    }
    lines
        .into_iter()
        .map(|(key, shown)| match source_of(&key, sources) {
            Some(source) => format!("{key} = {shown}  # {source}\n"),
            None => format!("{key} = {shown}\n"),
        })
        .collect()
}

fn flatten(key: &str, value: &Value, lines: &mut Vec<(String, String)>) {
    match value {
        Value::Object(fields) if !fields.is_empty() => {
            for (name, inner) in fields {
                flatten(&format!("{key}.{name}"), inner, lines);
            }
        }
        Value::Null => lines.push((key.to_owned(), "(none)".to_owned())),
        other => lines.push((key.to_owned(), other.to_string())),
    }
}

/// The source of a key, or of the nearest table around it that has one.
fn source_of<'a>(key: &str, sources: &'a Value) -> Option<&'a str> {
    let mut key = key;
    loop {
        if let Some(source) = sources.get(key).and_then(Value::as_str) {
            return Some(source);
        }
        key = key.rsplit_once('.')?.0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use protocol::config::{ConfigFile, Layers, resolve};

    fn settings() -> Settings {
        resolve(&Layers {
            user: Some(ConfigFile {
                name: "u.toml".to_owned(),
                text: "[limits]\nmax_concurrent = 7\n[models.m]\nprovider = \"openai\"\n\
                       base_url = \"http://127.0.0.1:1/v1\"\nmodel = \"x\"\n\
                       [models.m.headers]\nX-Team = \"tok-secret\"\n"
                    .to_owned(),
            }),
            ..Layers::default()
        })
        .unwrap()
    }

    #[test]
    fn every_value_has_its_source_and_no_header_its_value() {
        let value = config_value(&settings());
        let text = config_text(&value);
        assert!(
            text.contains("limits.max_concurrent = 7  # u.toml:2\n"),
            "{text}"
        );
        assert!(
            text.contains("limits.grace_seconds = 5  # built-in\n"),
            "{text}"
        );
        assert!(
            text.contains("models.m.model = \"x\"  # u.toml:3\n"),
            "{text}"
        );
        assert!(text.contains("default_model = (none)"), "{text}");
        assert!(
            text.contains("confinement.require = \"none\"  # built-in\n"),
            "{text}"
        );
        for shown in [text, value.to_string()] {
            assert!(!shown.contains("tok-secret"), "{shown}");
        }
    }
}
