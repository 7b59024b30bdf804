//! Reading a model's arguments: loose where the meaning is plain, strict everywhere else.

use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use crate::error::{ErrorCode, ToolError, closest};
use crate::tool::schema::schema_of;

/// A tool's parameter type.
pub trait Params: DeserializeOwned + JsonSchema {
    /// Rules that the type alone does not hold, such as ranges.
    ///
    /// # Errors
    /// When a parameter is out of its range; it is refused, never clamped.
    fn check(&self) -> Result<(), ToolError> {
        Ok(())
    }
}

fn invalid(message: impl Into<String>) -> ToolError {
    ToolError::new(ErrorCode::InvalidParameters, message)
}

/// Reads the text of a call's arguments: an empty text is no arguments, and an object that was
/// encoded twice is decoded twice.
///
/// # Errors
/// When it is no JSON, no object, or does not fit `T`.
pub fn parse_text<T: Params>(text: &str) -> Result<T, ToolError> {
    if text.trim().is_empty() {
        return parse_params(Value::Object(Map::new()));
    }
    let value: Value = serde_json::from_str(text)
        .map_err(|error| invalid(format!("the arguments are no valid JSON: {error}")))?;
    let value = match value {
        Value::String(inner) => serde_json::from_str::<Value>(&inner)
            .ok()
            .filter(Value::is_object)
            .unwrap_or(Value::String(inner)),
        other => other,
    };
    parse_params(value)
}

/// Reads the arguments of a call.
///
/// # Errors
/// When they are no object, hold an unknown parameter, lack a required one, or do not fit.
pub fn parse_params<T: Params>(value: Value) -> Result<T, ToolError> {
    parse_params_by(value, &schema_of::<T>())
}

/// The same with the type's own schema at hand, for whoever reads many.
///
/// # Errors
/// As [`parse_params`].
pub fn parse_params_by<T: Params>(value: Value, schema: &Value) -> Result<T, ToolError> {
    let mut object = match value {
        Value::Object(object) => object,
        Value::Null => return Err(invalid("the arguments must be an object, not null")),
        other => {
            return Err(invalid(format!(
                "the arguments must be an object, not {}",
                kind(&other)
            )));
        }
    };
    check_names(&object, schema)?;
    loosen_object(&mut object, schema);
    check_required(&object, schema)?;
    let params: T = serde_json::from_value(Value::Object(object.clone()))
        .map_err(|error| explain(&error, &object, schema))?;
    params.check()?;
    Ok(params)
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

fn names(schema: &Value) -> Vec<&str> {
    schema["properties"]
        .as_object()
        .map(|object| object.keys().map(String::as_str).collect())
        .unwrap_or_default()
}

fn check_names(object: &Map<String, Value>, schema: &Value) -> Result<(), ToolError> {
    let known = names(schema);
    let Some(unknown) = object.keys().find(|key| !known.contains(&key.as_str())) else {
        return Ok(());
    };
    let error = invalid(format!("unknown parameter `{unknown}`"));
    let list = known.join("`, `");
    Err(match closest(unknown, known.iter().copied()) {
        Some(near) => error.hint(format!("did you mean `{near}`? Known: `{list}`")),
        None if known.is_empty() => error.hint("this tool takes no parameters"),
        None => error.hint(format!("known: `{list}`")),
    })
}

fn check_required(object: &Map<String, Value>, schema: &Value) -> Result<(), ToolError> {
    let missing: Vec<&str> = schema["required"]
        .as_array()
        .map(|required| {
            required
                .iter()
                .filter_map(Value::as_str)
                .filter(|name| object.get(*name).is_none_or(Value::is_null))
                .collect()
        })
        .unwrap_or_default();
    if missing.is_empty() {
        return Ok(());
    }
    Err(invalid(format!(
        "missing parameter `{}`",
        missing.join("`, `")
    )))
}

/// Turns `"3"` into 3 and `"true"` into true where the schema wants a number or a boolean, drops
/// a null where the parameter is optional, and reads a list or object that came as JSON text.
fn loosen_object(object: &mut Map<String, Value>, schema: &Value) {
    let required: Vec<&str> = schema["required"]
        .as_array()
        .map(|list| list.iter().filter_map(Value::as_str).collect())
        .unwrap_or_default();
    object.retain(|name, value| !value.is_null() || required.contains(&name.as_str()));
    for (name, value) in object.iter_mut() {
        loosen(value, &schema["properties"][name.as_str()]);
    }
}

fn loosen(value: &mut Value, schema: &Value) {
    let wanted = schema["type"].as_str().unwrap_or("");
    if let Value::String(text) = &*value {
        let text = text.trim();
        let read = match wanted {
            "integer" => text.parse::<i64>().ok().map(Value::from),
            "number" => text.parse::<f64>().ok().map(Value::from),
            "boolean" => match text.to_ascii_lowercase().as_str() {
                "true" => Some(Value::Bool(true)),
                "false" => Some(Value::Bool(false)),
                _ => None,
            },
            "array" => serde_json::from_str::<Value>(text)
                .ok()
                .filter(Value::is_array),
            "object" => serde_json::from_str::<Value>(text)
                .ok()
                .filter(Value::is_object),
            _ => None,
        };
        if let Some(read) = read {
            *value = read;
        }
    }
    if wanted == "integer"
        && let Some(whole) = value
            .as_f64()
            .filter(|n| n.fract() == 0.0 && n.abs() < 9.0e15)
        && !value.is_i64()
        && !value.is_u64()
    {
        // 3.0 is a whole number, whatever its spelling; the cast is exact in this range.
        *value = Value::from(whole as i64);
    }
    match value {
        Value::Array(items) => items
            .iter_mut()
            .for_each(|item| loosen(item, &schema["items"])),
        Value::Object(object) if schema["properties"].is_object() => loosen_object(object, schema),
        _ => {}
    }
}

/// Says which parameter does not fit, since a deserializer's message alone does not.
fn explain(error: &serde_json::Error, object: &Map<String, Value>, schema: &Value) -> ToolError {
    for (name, value) in object {
        let wanted = schema["properties"][name.as_str()]["type"]
            .as_str()
            .unwrap_or("");
        let fits = match wanted {
            "integer" => value.is_i64() || value.is_u64(),
            "number" => value.is_number(),
            "boolean" => value.is_boolean(),
            "string" => value.is_string(),
            "array" => value.is_array(),
            "object" => value.is_object(),
            _ => true,
        };
        if !fits {
            return invalid(format!(
                "`{name}` must be of type {wanted}, not {}",
                kind(value)
            ));
        }
    }
    invalid(error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tool::leader::CreateSubAgentParams;
    use crate::tool::worker::{EditFileParams, ReadFileParams, WriteFileParams};
    use serde_json::json;

    #[test]
    fn what_models_send_in_plain_meaning_is_read() {
        let params: ReadFileParams =
            parse_text(r#"{"path":"a","start_line":"3","end_line":4.0,"max_chars":null}"#).unwrap();
        assert_eq!(
            (params.start_line, params.end_line, params.max_chars),
            (Some(3), Some(4), None)
        );
        let twice = serde_json::to_string(r#"{"path":"a"}"#).unwrap();
        assert_eq!(parse_text::<ReadFileParams>(&twice).unwrap().path, "a");
        let edit: EditFileParams = parse_text(
            r#"{"file_path":"f","replacements":"[{\"old_string\":\"a\",\"new_string\":\"b\",\"replace_all\":\"true\"}]"}"#,
        )
        .unwrap();
        assert_eq!(edit.replacements[0].replace_all, Some(true));
    }

    #[test]
    fn arguments_that_are_no_object_are_named() {
        for (text, word) in [
            ("null", "null"),
            ("5", "number"),
            ("[]", "list"),
            ("\"a.txt\"", "string"),
        ] {
            let error = parse_text::<WriteFileParams>(text).unwrap_err();
            assert_eq!(error.code, ErrorCode::InvalidParameters);
            assert!(error.message.contains("must be an object"), "{error}");
            assert!(error.message.contains(word), "{error}");
        }
        let torn = parse_text::<WriteFileParams>("{\"file_path\":\"a").unwrap_err();
        assert!(torn.message.contains("no valid JSON"), "{torn}");
    }

    #[test]
    fn unknown_missing_and_misfit_parameters_are_told_apart() {
        let unknown = parse_params::<ReadFileParams>(json!({"pth": "a"})).unwrap_err();
        assert_eq!(unknown.message, "unknown parameter `pth`");
        assert!(
            unknown.hint.starts_with("did you mean `path`?"),
            "{}",
            unknown.hint
        );
        for empty in ["", " ", "{}"] {
            let missing = parse_text::<ReadFileParams>(empty).unwrap_err();
            assert_eq!(missing.message, "missing parameter `path`");
        }
        let misfit = parse_params::<ReadFileParams>(json!({"path": 5})).unwrap_err();
        assert_eq!(
            misfit.message,
            "`path` must be of type string, not a number"
        );
    }

    #[test]
    fn an_agent_number_is_a_whole_number_in_its_range() {
        let with = |id: Value| {
            parse_params::<CreateSubAgentParams>(
                json!({"agent_id": id, "summary": "s", "task": "t"}),
            )
        };
        assert_eq!(with(json!(1)).unwrap().agent_id, Some(1));
        assert_eq!(with(json!("1")).unwrap().agent_id, Some(1));
        for bad in [json!(0), json!(100), json!(-1), json!(1.5), json!("x")] {
            assert_eq!(
                with(bad.clone()).unwrap_err().code,
                ErrorCode::InvalidParameters,
                "{bad}"
            );
        }
    }
}
