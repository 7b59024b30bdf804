//! What a call is about, read out of arguments that may be anything.

use serde_json::Value;

/// The text of one parameter, or nothing. Arguments are not checked here: an action is shown
/// before the call is known to be well formed.
pub(crate) fn of(arguments: &str, parameter: &str) -> String {
    let Ok(value) = serde_json::from_str::<Value>(arguments) else {
        return String::new();
    };
    let object = match value {
        // Some models encode their arguments twice.
        Value::String(inner) => serde_json::from_str(&inner).unwrap_or(Value::Null),
        other => other,
    };
    object[parameter].as_str().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_subject_is_found_or_empty() {
        assert_eq!(of(r#"{"path":"a/b"}"#, "path"), "a/b");
        assert_eq!(of(r#""{\"path\":\"a/b\"}""#, "path"), "a/b");
        for odd in [
            "",
            "{",
            "null",
            "[]",
            "5",
            r#"{"path":5}"#,
            r#"{"other":"x"}"#,
        ] {
            assert_eq!(of(odd, "path"), "", "{odd}");
        }
    }
}
