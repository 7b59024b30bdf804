//! What a worker says when it is only asked whether a model answers.

use serde::{Deserialize, Serialize};

/// The one line on the stdout of `worker --check-model`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelCheck {
    /// The version of this shape.
    pub format: u32,
    /// From the request to the whole answer or the failure, in milliseconds.
    pub took_ms: u64,
    /// Why there was no answer, in the provider's words where it had any, with the setting to look
    /// at; none when it answered.
    pub failure: Option<String>,
}

impl ModelCheck {
    /// The version that is written.
    pub const FORMAT: u32 = 1;

    /// An answer, or why there was none.
    pub fn new(took_ms: u64, failure: Option<String>) -> Self {
        ModelCheck {
            format: ModelCheck::FORMAT,
            took_ms,
            failure,
        }
    }

    /// Reads a line; anything else is none.
    pub fn parse(line: &str) -> Option<ModelCheck> {
        serde_json::from_str(line)
            .ok()
            .filter(|check: &ModelCheck| check.format == ModelCheck::FORMAT)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_read_as_it_was_written_and_nothing_else_is() {
        let check = ModelCheck::new(12, Some("no".to_owned()));
        let line = serde_json::to_string(&check).unwrap();
        assert_eq!(line, r#"{"format":1,"took_ms":12,"failure":"no"}"#);
        assert_eq!(ModelCheck::parse(&line), Some(check));
        for other in ["", "{}", r#"{"format":2,"took_ms":1,"failure":null}"#] {
            assert_eq!(ModelCheck::parse(other), None, "{other}");
        }
    }
}
