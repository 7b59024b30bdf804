//! Schemas of tools in the form that each dialect takes. Ours are plain already; those of other
//! people's tools come as their authors wrote them.

use serde_json::{Map, Value, json};

/// The interface that a schema is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Dialect {
    /// Chat completions.
    Chat,
    /// Messages, which refuses alternatives at the top.
    Messages,
}

/// Schemas inside each other; what lies deeper may be anything.
const DEPTH_MAX: usize = 32;

/// The schema of a tool's parameters: always of an object with properties, with types that JSON
/// Schema knows, and in its details as `dialect` takes it. A schema that can't be understood
/// becomes one of an object that may hold anything, so that its tool can still be offered.
pub(crate) fn plain(schema: &Value, dialect: Dialect) -> Value {
    let mut root = match mended(schema, DEPTH_MAX) {
        Value::Object(fields) => fields,
        _ => Map::new(),
    };
    if dialect == Dialect::Messages {
        for word in ["anyOf", "oneOf", "allOf"] {
            root.shift_remove(word);
        }
    }
    root.insert("type".to_owned(), "object".into());
    if !root.get("properties").is_some_and(Value::is_object) {
        root.insert("properties".to_owned(), json!({}));
    }
    keep_known_names(&mut root);
    Value::Object(root)
}

/// Keywords whose value is a schema.
const ONE: &[&str] = &[
    "items",
    "additionalProperties",
    "not",
    "contains",
    "propertyNames",
];
/// Keywords whose value is a list of schemas.
const LIST: &[&str] = &["anyOf", "oneOf", "allOf", "prefixItems"];
/// Keywords whose value is schemas by name.
const NAMED: &[&str] = &["properties", "$defs", "definitions", "patternProperties"];

fn mended(schema: &Value, depth: usize) -> Value {
    // `true` and `false` are schemas too.
    let Value::Object(fields) = schema else {
        return match schema {
            Value::Bool(_) => schema.clone(),
            _ => json!({}),
        };
    };
    if depth == 0 {
        return json!({});
    }
    let mut mended_fields = Map::new();
    for (name, value) in fields {
        let below = |value: &Value| mended(value, depth - 1);
        let value = match (name.as_str(), value) {
            ("type", value) => match types(value) {
                Some(value) => value,
                None => continue,
            },
            // A list of names; as a switch it stood beside each property long ago.
            ("required", Value::Array(names)) => names
                .iter()
                .filter(|name| name.is_string())
                .cloned()
                .collect(),
            // Which draft it is written in; some providers refuse the word.
            ("required" | "$schema", _) => continue,
            ("items", Value::Array(list)) => list.first().map_or_else(|| json!({}), below),
            (word, value) if ONE.contains(&word) => below(value),
            (word, Value::Array(list)) if LIST.contains(&word) => list.iter().map(below).collect(),
            (word, Value::Object(named)) if NAMED.contains(&word) => named
                .iter()
                .map(|(name, schema)| (name.clone(), below(schema)))
                .collect(),
            (word, _) if LIST.contains(&word) || NAMED.contains(&word) => continue,
            (_, value) => value.clone(),
        };
        mended_fields.insert(name.clone(), value);
    }
    if mended_fields.get("type") == Some(&json!("array")) {
        // A list of nobody knows what is refused without this.
        mended_fields.entry("items").or_insert_with(|| json!({}));
    }
    Value::Object(mended_fields)
}

/// The words of JSON Schema for those of programming languages; none where any value will do.
fn types(value: &Value) -> Option<Value> {
    match value {
        Value::String(word) => word_of(word).map(Value::from),
        Value::Array(words) => {
            let words: Vec<&str> = words
                .iter()
                .filter_map(|word| word_of(word.as_str()?))
                .collect();
            (!words.is_empty()).then(|| json!(words))
        }
        _ => None,
    }
}

fn word_of(word: &str) -> Option<&'static str> {
    Some(match word.to_ascii_lowercase().as_str() {
        "object" | "dict" | "hashmap" | "map" => "object",
        "array" | "list" | "tuple" | "set" | "arraylist" => "array",
        "string" | "str" | "char" | "text" => "string",
        "number" | "float" | "double" => "number",
        "integer" | "int" | "long" | "short" | "byte" | "bigint" => "integer",
        "boolean" | "bool" => "boolean",
        "null" | "none" => "null",
        _ => return None,
    })
}

/// A name in `required` that is no property is refused.
fn keep_known_names(root: &mut Map<String, Value>) {
    let known = root.get("properties").cloned().unwrap_or_default();
    if let Some(Value::Array(names)) = root.get_mut("required") {
        names.retain(|name| known.get(name.as_str().unwrap_or_default()).is_some());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use protocol::tool::leader::LEADER_TOOLS;
    use protocol::tool::worker::WORKER_TOOLS;

    #[test]
    fn our_own_schemas_stay_as_they_are() {
        for tool in WORKER_TOOLS.iter().chain(LEADER_TOOLS) {
            let schema = (tool.schema)();
            for dialect in [Dialect::Chat, Dialect::Messages] {
                assert_eq!(plain(&schema, dialect), schema, "{}", tool.name);
            }
        }
    }

    #[test]
    fn odd_schemas_of_others_come_out_plain() {
        // The first is how a benchmark of function calls writes each of its schemas.
        for (odd, chat) in [
            (
                json!({"type": "dict", "required": ["a", "gone"], "properties": {
                    "a": {"type": "float", "required": true, "description": "d"},
                    "b": {"type": "tuple", "items": {"type": "dict", "properties": {
                        "c": {"type": "any"}}}},
                    "type": {"type": "String"}}}),
                json!({"type": "object", "required": ["a"], "properties": {
                    "a": {"type": "number", "description": "d"},
                    "b": {"type": "array", "items": {"type": "object", "properties": {"c": {}}}},
                    "type": {"type": "string"}}}),
            ),
            (
                json!({"type": "array"}),
                json!({"type": "object", "items": {}, "properties": {}}),
            ),
            (json!(null), json!({"type": "object", "properties": {}})),
            (
                json!({"properties": [1], "required": "a"}),
                json!({"properties": {}, "type": "object"}),
            ),
            (
                json!({"type": "object", "properties": {
                    "a": {"type": ["str", "none"], "anyOf": 5},
                    "b": {"type": "array", "items": [{"type": "int"}]},
                    "c": true, "d": "x"}}),
                json!({"type": "object", "properties": {
                    "a": {"type": ["string", "null"]},
                    "b": {"type": "array", "items": {"type": "integer"}},
                    "c": true, "d": {}}}),
            ),
        ] {
            assert_eq!(plain(&odd, Dialect::Chat), chat, "{odd}");
        }
    }

    #[test]
    fn alternatives_at_the_top_are_for_one_dialect_only() {
        let odd = json!({"type": "object", "properties": {}, "oneOf": [{"type": "object"}]});
        assert_eq!(plain(&odd, Dialect::Chat), odd);
        assert_eq!(
            plain(&odd, Dialect::Messages),
            json!({"type": "object", "properties": {}})
        );
    }

    #[test]
    fn a_schema_without_end_is_cut() {
        let mut deep = json!({"type": "string"});
        for _ in 0..500 {
            deep = json!({"type": "object", "properties": {"a": deep}});
        }
        let plain = plain(&deep, Dialect::Chat).to_string();
        assert_eq!(plain.matches("properties").count(), DEPTH_MAX);
    }

    /// Every `type` of a schema and of those inside it is a word of JSON Schema, and every list
    /// says what is in it.
    fn check(schema: &Value) {
        let Value::Object(fields) = schema else {
            assert!(schema.is_boolean(), "{schema}");
            return;
        };
        let words = match fields.get("type") {
            None => Vec::new(),
            Some(Value::Array(words)) => words.iter().collect(),
            Some(word) => vec![word],
        };
        for word in &words {
            let word = word.as_str().unwrap();
            assert_eq!(word_of(word), Some(word), "{schema}");
        }
        assert!(
            words != ["array"] || fields.contains_key("items"),
            "{schema}"
        );
        for (name, value) in fields {
            match value {
                _ if ONE.contains(&name.as_str()) => check(value),
                Value::Array(list) if LIST.contains(&name.as_str()) => list.iter().for_each(check),
                Value::Object(named) if NAMED.contains(&name.as_str()) => {
                    named.values().for_each(check);
                }
                _ => {}
            }
        }
    }

    /// Every list of functions in the files below a folder, each with its parameters.
    fn functions_below(folder: &std::path::Path, found: &mut Vec<Value>) {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                functions_below(&path, found);
                continue;
            }
            let text = std::fs::read_to_string(&path).unwrap_or_default();
            for line in text.lines() {
                let Ok(value) = serde_json::from_str::<Value>(line) else {
                    continue;
                };
                let named = value.get("function").unwrap_or(&value);
                let list = match named {
                    Value::Array(list) => list.clone(),
                    one => vec![one.clone()],
                };
                found.extend(list.iter().filter_map(|one| one.get("parameters")).cloned());
            }
        }
    }

    #[test]
    fn no_schema_of_a_public_benchmark_is_refused() {
        // 9 000 functions of the Berkeley collection, with the types of four languages, lists
        // without items and properties that are called `type`. Installed by tests/peers/install.sh.
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("../../tests/peers/bfcl/bfcl_eval/data");
        if !folder.is_dir() {
            assert!(std::env::var_os("CI").is_none(), "no {folder:?}");
            use std::io::Write;
            writeln!(std::io::stderr(), "skipped: run tests/peers/install.sh").ok();
            return;
        }
        let mut found = Vec::new();
        functions_below(&folder, &mut found);
        assert!(found.len() > 9_000, "{}", found.len());
        for schema in &found {
            for dialect in [Dialect::Chat, Dialect::Messages] {
                let made = plain(schema, dialect);
                assert_eq!(made["type"], "object", "{schema}");
                check(&made);
                assert_eq!(plain(&made, dialect), made, "{schema}");
                let properties = schema["properties"].as_object();
                let kept = made["properties"].as_object().map(serde_json::Map::len);
                assert_eq!(kept, Some(properties.map_or(0, serde_json::Map::len)));
            }
        }
    }
}
