//! What one line of a caller asks for, and what is answered to a line that asks for nothing.

use protocol::limits::LINE_BYTES_MAX;
use protocol::wire::{Frame, INVALID_REQUEST, Line, RpcError};
use serde_json::Value;

/// What is to be done about a line.
#[derive(Debug, Clone, PartialEq)]
pub enum Asked {
    /// Make this call and answer it.
    Call {
        /// The caller's id of it.
        id: Value,
        /// What to do.
        method: String,
        /// With what.
        params: Value,
    },
    /// Make this call; the caller wants no answer.
    Silent {
        /// What to do.
        method: String,
        /// With what.
        params: Value,
    },
    /// Answer this at once.
    Refuse(Frame),
    /// Nothing: an empty line, or an answer to a question that we never asked.
    Nothing,
}

/// Reads one line of a caller.
pub fn asked(line: &Line) -> Asked {
    let bytes = match line {
        // A last line without its newline is what `printf '{…}' | nc` sends.
        Line::Whole(bytes) | Line::Torn(bytes) => bytes,
        Line::TooLong(length) => {
            let message = format!("the line has {length} bytes; the most is {LINE_BYTES_MAX}");
            let error = RpcError::new(INVALID_REQUEST, message);
            return Asked::Refuse(Frame::error(Value::Null, error));
        }
    };
    if bytes.iter().all(u8::is_ascii_whitespace) {
        return Asked::Nothing;
    }
    match Frame::parse(bytes) {
        Ok(Frame::Request { id, method, params }) => Asked::Call {
            id,
            method,
            params: or_object(params),
        },
        Ok(Frame::Notification { method, params }) => Asked::Silent {
            method,
            params: or_object(params),
        },
        Ok(Frame::Response { .. }) => Asked::Nothing,
        Err(error) => Asked::Refuse(Frame::error(id_of(bytes), error)),
    }
}

/// No params and null params mean none.
fn or_object(params: Value) -> Value {
    match params {
        Value::Null => Value::Object(serde_json::Map::new()),
        other => other,
    }
}

/// The id of a line that is no valid frame, as far as one can be found, so that the caller can
/// tell which of its calls was wrong.
fn id_of(bytes: &[u8]) -> Value {
    let value: Value = serde_json::from_slice(bytes).unwrap_or_default();
    match value.get("id") {
        Some(id @ (Value::Number(_) | Value::String(_))) => id.clone(),
        _ => Value::Null,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use protocol::wire::PARSE_ERROR;
    use serde_json::json;

    fn of(text: &str) -> Asked {
        asked(&Line::Whole(text.as_bytes().to_vec()))
    }

    fn refusal(text: &str) -> (Value, i64) {
        match of(text) {
            Asked::Refuse(Frame::Response {
                id,
                outcome: Err(error),
            }) => (id, error.code),
            other => panic!("{text}: {other:?}"),
        }
    }

    #[test]
    fn ids_are_kept_also_zero_and_texts() {
        for id in [json!(0), json!(-3), json!("a"), json!(1.5)] {
            assert_eq!(
                of(&json!({"id": id, "method": "ps"}).to_string()),
                Asked::Call {
                    id: id.clone(),
                    method: "ps".into(),
                    params: json!({})
                }
            );
            assert_eq!(
                refusal(&json!({"id": id, "method": 5}).to_string()),
                (id, INVALID_REQUEST)
            );
        }
    }

    #[test]
    fn what_is_no_call_is_answered_in_its_own_way() {
        assert_eq!(refusal("{\"id\":1"), (Value::Null, PARSE_ERROR));
        assert_eq!(refusal("[]"), (Value::Null, INVALID_REQUEST));
        assert_eq!(
            refusal("{\"id\":{},\"method\":\"ps\"}"),
            (Value::Null, INVALID_REQUEST)
        );
        assert_eq!(of(""), Asked::Nothing);
        assert_eq!(of("  \t"), Asked::Nothing);
        assert_eq!(of("{\"id\":1,\"result\":null}"), Asked::Nothing);
        assert_eq!(
            of("{\"method\":\"ps\",\"params\":{\"a\":1}}"),
            Asked::Silent {
                method: "ps".into(),
                params: json!({"a": 1})
            }
        );
    }

    #[test]
    fn a_line_over_the_limit_is_refused_and_a_torn_one_still_read() {
        let Asked::Refuse(Frame::Response { id, outcome }) = asked(&Line::TooLong(5_000_000))
        else {
            panic!("not refused");
        };
        assert_eq!(id, Value::Null);
        assert!(outcome.unwrap_err().message.contains("5000000"));
        assert_eq!(
            asked(&Line::Torn(b"{\"id\":1,\"method\":\"ps\"}".to_vec())),
            Asked::Call {
                id: json!(1),
                method: "ps".into(),
                params: json!({})
            }
        );
    }
}
