//! Placeholders in scripted replies.

use serde_json::Value;

/// Puts values in the place of `{name}`. What is put in is not looked at again, and a name that
/// is not known stays as it is, because replies may well hold braces of their own.
pub(super) fn fill(text: &str, values: &[(&str, String)]) -> String {
    let mut filled = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(open) = rest.find('{') {
        let (before, from_brace) = rest.split_at(open);
        filled.push_str(before);
        let found = values.iter().find_map(|(name, value)| {
            let after = from_brace[1..].strip_prefix(name)?.strip_prefix('}')?;
            Some((value, after))
        });
        if let Some((value, after)) = found {
            filled.push_str(value);
            rest = after;
        } else {
            filled.push('{');
            rest = &from_brace[1..];
        }
    }
    filled.push_str(rest);
    filled
}

/// Fills all texts of a JSON value, the names of fields aside.
pub(super) fn fill_value(value: &Value, values: &[(&str, String)]) -> Value {
    match value {
        Value::String(text) => Value::String(fill(text, values)),
        Value::Array(items) => items.iter().map(|item| fill_value(item, values)).collect(),
        Value::Object(fields) => fields
            .iter()
            .map(|(name, field)| (name.clone(), fill_value(field, values)))
            .collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) => value.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn only_known_names_are_filled_and_only_once() {
        let values = [("task", "say {turn}".to_owned()), ("turn", "3".to_owned())];
        for (text, wanted) in [
            ("{task} at {turn}", "say {turn} at 3"),
            ("fn main() { {turn} }", "fn main() { 3 }"),
            ("{{turn}}", "{3}"),
            ("{turn", "{turn"),
            ("{other} {", "{other} {"),
            ("", ""),
        ] {
            assert_eq!(fill(text, &values), wanted);
        }
    }

    #[test]
    fn texts_at_every_depth_are_filled() {
        let values = [("turn", "3".to_owned())];
        assert_eq!(
            fill_value(
                &json!({"{turn}": ["{turn}", {"a": "x{turn}"}, 1, null]}),
                &values
            ),
            json!({"{turn}": ["3", {"a": "x3"}, 1, null]})
        );
    }
}
