//! JSON-RPC 2.0, one object a line: the frame of the channel and of the control socket.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::limits::LINE_BYTES_MAX;

/// The line is no JSON.
pub const PARSE_ERROR: i64 = -32700;
/// The JSON is no request.
pub const INVALID_REQUEST: i64 = -32600;
/// No such method.
pub const METHOD_NOT_FOUND: i64 = -32601;
/// The params do not fit the method.
pub const INVALID_PARAMS: i64 = -32602;
/// A fault of ours.
pub const INTERNAL_ERROR: i64 = -32603;

/// A failed call, for malformed calls only: a tool's failure is a result.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, thiserror::Error)]
#[error("{message} ({code})")]
pub struct RpcError {
    /// One of the constants of this module.
    pub code: i64,
    /// What went wrong.
    pub message: String,
    /// More about it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data: Option<Value>,
}

impl RpcError {
    /// An error without data.
    pub fn new(code: i64, message: impl Into<String>) -> Self {
        RpcError {
            code,
            message: message.into(),
            data: None,
        }
    }
}

/// One parsed line.
#[derive(Debug, Clone, PartialEq)]
pub enum Frame {
    /// Wants an answer under its id (a number, also 0, or a text).
    Request {
        /// Pairs the answer with the call.
        id: Value,
        /// What to do.
        method: String,
        /// With what; null where there is nothing.
        params: Value,
    },
    /// Wants none.
    Notification {
        /// What happened.
        method: String,
        /// The particulars.
        params: Value,
    },
    /// Answers a request.
    Response {
        /// The request's id.
        id: Value,
        /// Its result, or why there is none.
        outcome: Result<Value, RpcError>,
    },
}

impl Frame {
    /// A request.
    pub fn request(id: impl Into<Value>, method: &str, params: Value) -> Self {
        Frame::Request {
            id: id.into(),
            method: method.to_owned(),
            params,
        }
    }

    /// A notification.
    pub fn notification(method: &str, params: Value) -> Self {
        Frame::Notification {
            method: method.to_owned(),
            params,
        }
    }

    /// A good answer.
    pub fn result(id: Value, result: Value) -> Self {
        Frame::Response {
            id,
            outcome: Ok(result),
        }
    }

    /// An answer that says why there is none.
    pub fn error(id: Value, error: RpcError) -> Self {
        Frame::Response {
            id,
            outcome: Err(error),
        }
    }

    /// The line, with its newline. JSON text never holds a raw newline, so a line is a frame.
    pub fn to_line(&self) -> String {
        let value = match self {
            Frame::Request { id, method, params } => {
                serde_json::json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params})
            }
            Frame::Notification { method, params } => {
                serde_json::json!({"jsonrpc": "2.0", "method": method, "params": params})
            }
            Frame::Response {
                id,
                outcome: Ok(result),
            } => {
                serde_json::json!({"jsonrpc": "2.0", "id": id, "result": result})
            }
            Frame::Response {
                id,
                outcome: Err(error),
            } => {
                serde_json::json!({"jsonrpc": "2.0", "id": id, "error": error})
            }
        };
        format!("{value}\n")
    }

    /// Reads one line. Unknown fields are ignored; `"jsonrpc"` may be missing.
    ///
    /// # Errors
    /// [`PARSE_ERROR`] when it is no JSON, [`INVALID_REQUEST`] when it is no frame.
    pub fn parse(line: &[u8]) -> Result<Frame, RpcError> {
        let value: Value = serde_json::from_slice(line)
            .map_err(|error| RpcError::new(PARSE_ERROR, format!("not JSON: {error}")))?;
        let Value::Object(mut object) = value else {
            return Err(RpcError::new(
                INVALID_REQUEST,
                "a frame must be a JSON object",
            ));
        };
        let id = object.remove("id");
        if let Some(method) = object.remove("method") {
            let Value::String(method) = method else {
                return Err(RpcError::new(INVALID_REQUEST, "`method` must be a string"));
            };
            let params = object.remove("params").unwrap_or(Value::Null);
            return match id {
                None | Some(Value::Null) => Ok(Frame::Notification { method, params }),
                Some(id @ (Value::Number(_) | Value::String(_))) => {
                    Ok(Frame::Request { id, method, params })
                }
                Some(_) => Err(RpcError::new(
                    INVALID_REQUEST,
                    "`id` must be a number or a string",
                )),
            };
        }
        let id = id.unwrap_or(Value::Null);
        if let Some(error) = object.remove("error") {
            let error = serde_json::from_value(error).map_err(|error| {
                RpcError::new(
                    INVALID_REQUEST,
                    format!("`error` has not its shape: {error}"),
                )
            })?;
            return Ok(Frame::Response {
                id,
                outcome: Err(error),
            });
        }
        match object.remove("result") {
            Some(result) => Ok(Frame::Response {
                id,
                outcome: Ok(result),
            }),
            None => Err(RpcError::new(
                INVALID_REQUEST,
                "neither method, result nor error",
            )),
        }
    }
}

/// One thing that a stream of bytes came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Line {
    /// A line without its newline (and without a carriage return before it).
    Whole(Vec<u8>),
    /// A line over the limit: its length in bytes, its content is gone.
    TooLong(usize),
    /// Bytes after the last newline when the stream ended.
    Torn(Vec<u8>),
}

/// Splits a stream into lines, holding at most one line of [`LINE_BYTES_MAX`].
#[derive(Debug)]
pub struct LineSplitter {
    buffer: Vec<u8>,
    limit: usize,
    /// Bytes of the present line that were thrown away because it is over the limit.
    dropped: usize,
}

impl Default for LineSplitter {
    fn default() -> Self {
        LineSplitter::with_limit(LINE_BYTES_MAX)
    }
}

impl LineSplitter {
    /// A splitter with a limit of its own, in bytes.
    pub fn with_limit(limit: usize) -> Self {
        LineSplitter {
            buffer: Vec::new(),
            limit,
            dropped: 0,
        }
    }

    /// Takes the next bytes and gives the lines that they complete.
    pub fn push(&mut self, bytes: &[u8]) -> Vec<Line> {
        let mut lines = Vec::new();
        for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
            let (content, ends) = match piece.split_last() {
                Some((b'\n', content)) => (content, true),
                _ => (piece, false),
            };
            self.take(content);
            if ends {
                lines.push(self.finish_line());
            }
        }
        lines
    }

    /// What is left when the stream has ended; none when it ended with a newline.
    pub fn end(&mut self) -> Option<Line> {
        if self.dropped > 0 {
            return Some(self.finish_line());
        }
        if self.buffer.is_empty() {
            return None;
        }
        Some(Line::Torn(std::mem::take(&mut self.buffer)))
    }

    fn take(&mut self, content: &[u8]) {
        if self.dropped > 0 {
            self.dropped += content.len();
        } else if self.buffer.len() + content.len() > self.limit {
            self.dropped = self.buffer.len() + content.len();
            self.buffer = Vec::new();
        } else {
            self.buffer.extend_from_slice(content);
        }
    }

    fn finish_line(&mut self) -> Line {
        if self.dropped > 0 {
            return Line::TooLong(std::mem::take(&mut self.dropped));
        }
        let mut line = std::mem::take(&mut self.buffer);
        if line.last() == Some(&b'\r') {
            line.pop();
        }
        Line::Whole(line)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A number beyond 64 bits was read a little off, and written as another one than came.
    #[test]
    fn a_number_of_any_size_is_written_as_it_was_read() {
        let line = format!(
            r#"{{"id":{}1,"method":"x","params":{{"n":1.7e-7}}}}"#,
            "6".repeat(60)
        );
        let frame = Frame::parse(line.as_bytes()).unwrap();
        assert_eq!(Frame::parse(frame.to_line().as_bytes()), Ok(frame));
    }

    #[test]
    fn frames_survive_the_wire() {
        let frames = [
            Frame::request(0, "initialize", serde_json::json!({"protocol": "1.0"})),
            Frame::notification("agent/output", serde_json::json!({"text": "a\nb"})),
            Frame::result(Value::from("x"), Value::Null),
            Frame::error(Value::from(3), RpcError::new(METHOD_NOT_FOUND, "no `x`")),
        ];
        for frame in frames {
            let line = frame.to_line();
            assert_eq!(line.matches('\n').count(), 1);
            assert_eq!(Frame::parse(line.trim_end().as_bytes()).unwrap(), frame);
        }
    }

    #[test]
    fn junk_is_named_not_fatal() {
        assert_eq!(
            Frame::parse(b"Service started").unwrap_err().code,
            PARSE_ERROR
        );
        for bad in [
            "[]",
            "5",
            "{}",
            r#"{"method":5}"#,
            r#"{"id":[],"method":"x"}"#,
        ] {
            assert_eq!(
                Frame::parse(bad.as_bytes()).unwrap_err().code,
                INVALID_REQUEST,
                "{bad}"
            );
        }
        let deep = "[".repeat(1_000_000);
        assert_eq!(Frame::parse(deep.as_bytes()).unwrap_err().code, PARSE_ERROR);
    }

    #[test]
    fn a_line_at_the_limit_is_whole_and_one_past_it_is_dropped() {
        let mut splitter = LineSplitter::with_limit(4);
        let lines = splitter.push(b"abcd\nabcde\nok\r\n");
        assert_eq!(
            lines,
            vec![
                Line::Whole(b"abcd".to_vec()),
                Line::TooLong(5),
                Line::Whole(b"ok".to_vec())
            ]
        );
        assert_eq!(splitter.push(b"half"), vec![]);
        assert_eq!(splitter.end(), Some(Line::Torn(b"half".to_vec())));
        assert_eq!(splitter.end(), None);
    }

    proptest! {
        #[test]
        fn where_the_stream_is_cut_changes_nothing(
            bytes in proptest::collection::vec(prop_oneof![Just(b'\n'), Just(b'a'), Just(b'\r')], 0..200),
            cut in 1usize..20,
        ) {
            let mut whole = LineSplitter::with_limit(8);
            let mut expected = whole.push(&bytes);
            expected.extend(whole.end());
            let mut cutting = LineSplitter::with_limit(8);
            let mut lines = Vec::new();
            for piece in bytes.chunks(cut) {
                lines.extend(cutting.push(piece));
            }
            lines.extend(cutting.end());
            prop_assert_eq!(lines, expected);
        }
    }
}
