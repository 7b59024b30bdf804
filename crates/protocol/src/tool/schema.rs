//! JSON Schemas in the plain form that model APIs accept.

use schemars::JsonSchema;
use serde_json::{Map, Value};

/// The schema of `T` with references inlined, `$schema`, `title` and `format` dropped and
/// `null` types made optional; several model APIs refuse or ignore those.
pub fn schema_of<T: JsonSchema>() -> Value {
    let mut root = schemars::schema_for!(T).to_value();
    let definitions = root
        .as_object_mut()
        .and_then(|object| object.remove("$defs"))
        .and_then(|value| match value {
            Value::Object(map) => Some(map),
            _ => None,
        })
        .unwrap_or_default();
    let mut plain = simplify(root, &definitions);
    if let Some(object) = plain.as_object_mut() {
        object.remove("description");
        object
            .entry("properties")
            .or_insert_with(|| Value::Object(Map::new()));
    }
    plain
}

fn simplify(value: Value, definitions: &Map<String, Value>) -> Value {
    match value {
        Value::Object(object) => simplify_object(object, definitions),
        Value::Array(items) => Value::Array(
            items
                .into_iter()
                .map(|item| simplify(item, definitions))
                .collect(),
        ),
        other => other,
    }
}

fn simplify_object(mut object: Map<String, Value>, definitions: &Map<String, Value>) -> Value {
    if let Some(target) = object
        .get("$ref")
        .and_then(Value::as_str)
        .and_then(|reference| reference.strip_prefix("#/$defs/"))
        .and_then(|name| definitions.get(name))
    {
        let mut inlined = simplify(target.clone(), definitions);
        if let (Some(inlined), Some(description)) =
            (inlined.as_object_mut(), object.get("description"))
        {
            inlined.insert("description".into(), description.clone());
        }
        return inlined;
    }
    if let Some(Value::Array(options)) = object.get("anyOf") {
        let solid: Vec<&Value> = options
            .iter()
            .filter(|option| option["type"] != "null")
            .collect();
        if let [only] = solid.as_slice() {
            let mut inner = simplify((*only).clone(), definitions);
            if let (Some(inner), Some(description)) =
                (inner.as_object_mut(), object.get("description"))
            {
                inner.insert("description".into(), description.clone());
            }
            return inner;
        }
    }
    for noise in ["$schema", "title", "format", "default"] {
        // A property may itself be called `title`; only the keyword, a plain value, is noise.
        if object.get(noise).is_some_and(|value| !value.is_object()) {
            object.remove(noise);
        }
    }
    if let Some(Value::Array(types)) = object.get_mut("type") {
        types.retain(|word| word != "null");
        if let [only] = types.as_slice() {
            let only = only.clone();
            object.insert("type".into(), only);
        }
    }
    Value::Object(
        object
            .into_iter()
            .map(|(key, value)| (key, simplify(value, definitions)))
            .collect(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tool::{leader::LEADER_TOOLS, worker::WORKER_TOOLS};

    fn assert_plain(value: &Value, path: &str) {
        match value {
            Value::Object(object) => {
                for word in ["$ref", "$schema", "$defs", "anyOf"] {
                    assert!(!object.contains_key(word), "{word} at {path}");
                }
                assert!(
                    !object.get("type").is_some_and(Value::is_array),
                    "type list at {path}"
                );
                for (key, value) in object {
                    assert_plain(value, &format!("{path}/{key}"));
                }
            }
            Value::Array(items) => items.iter().for_each(|item| assert_plain(item, path)),
            _ => {}
        }
    }

    #[test]
    fn every_schema_is_plain_and_says_what_each_parameter_means() {
        for tool in WORKER_TOOLS.iter().chain(LEADER_TOOLS) {
            let schema = (tool.schema)();
            assert_plain(&schema, tool.name);
            assert_eq!(schema["type"], "object", "{}", tool.name);
            for (name, property) in schema["properties"].as_object().unwrap() {
                assert!(property["description"].is_string(), "{}.{name}", tool.name);
            }
        }
    }
}
