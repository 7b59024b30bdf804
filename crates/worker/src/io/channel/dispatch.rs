//! What a line of the leader means, decided without doing it.

use protocol::channel::{
    DEADLINE, DELIVER, DeadlineParams, DeliverParams, PING, STOP, StopParams, WRAP_UP, WrapUpParams,
};
use protocol::limits::JUNK_BYTES_MAX;
use protocol::status::StopReason;
use protocol::wire::{Frame, INVALID_PARAMS, Line, METHOD_NOT_FOUND, RpcError};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::link::FromLeader;

/// Bytes of a line that is no frame, as the log shows it.
const JUNK_SHOWN_BYTES_MAX: usize = 200;

/// What to do about one line.
#[derive(Debug, PartialEq)]
pub(super) enum Meaning {
    /// The agent must know.
    Event(FromLeader),
    /// An answer goes back.
    Reply(Frame),
    /// One of our own calls is answered.
    Answer {
        /// The call.
        id: u64,
        /// Its result.
        outcome: Result<Value, RpcError>,
    },
    /// It is no frame of ours; why, for the log.
    Junk(String),
}

/// Reads one line.
pub(super) fn meaning(line: &Line) -> Meaning {
    let bytes = match line {
        Line::Whole(bytes) => bytes,
        Line::TooLong(length) => return Meaning::Junk(format!("a line of {length} bytes")),
        Line::Torn(bytes) => return Meaning::Junk(format!("{} bytes without end", bytes.len())),
    };
    match Frame::parse(bytes) {
        Ok(Frame::Request { id, method, params }) => request(id, &method, &params),
        Ok(Frame::Notification { method, params }) => notification(&method, params),
        Ok(Frame::Response { id, outcome }) => match id.as_u64() {
            Some(id) => Meaning::Answer { id, outcome },
            None => Meaning::Junk(format!("an answer to a call {id} that was never made")),
        },
        Err(error) => Meaning::Junk(error.message),
    }
}

fn request(id: Value, method: &str, params: &Value) -> Meaning {
    match method {
        PING => Meaning::Reply(Frame::result(id, json!({}))),
        DELIVER | STOP | WRAP_UP | DEADLINE => {
            // These want no answer; a leader that asks for one is obeyed and told so.
            let done = Frame::result(id.clone(), json!({}));
            match notification(method, params.clone()) {
                Meaning::Junk(why) => {
                    Meaning::Reply(Frame::error(id, RpcError::new(INVALID_PARAMS, why)))
                }
                Meaning::Event(event) => Meaning::Event(FromLeader::Asked {
                    event: Box::new(event),
                    answer: done,
                }),
                other @ (Meaning::Reply(_) | Meaning::Answer { .. }) => other,
            }
        }
        _ => {
            let error = RpcError::new(METHOD_NOT_FOUND, format!("no method `{method}`"));
            Meaning::Reply(Frame::error(id, error))
        }
    }
}

fn notification(method: &str, params: Value) -> Meaning {
    let event = match method {
        DELIVER => read(params).map(|params: DeliverParams| FromLeader::Deliver(params.messages)),
        STOP => Ok(stop(params)),
        WRAP_UP => read(params).map(|params: WrapUpParams| FromLeader::WrapUp {
            seconds_left: params.seconds_left,
        }),
        DEADLINE => read(params).map(|params: DeadlineParams| FromLeader::Deadline {
            remaining_ms: params.remaining_ms,
            paused: params.paused,
        }),
        _ => Err("an unknown notification".to_owned()),
    };
    match event {
        Ok(event) => Meaning::Event(event),
        Err(why) => Meaning::Junk(format!("`{method}`: {why}")),
    }
}

/// A stop is obeyed whatever its particulars: the kill follows in any case.
fn stop(params: Value) -> FromLeader {
    let reason = read(params).map_or(StopReason::Terminated, |params: StopParams| params.reason);
    FromLeader::Stop { reason }
}

fn read<T: DeserializeOwned>(params: Value) -> Result<T, String> {
    serde_json::from_value(params).map_err(|error| error.to_string())
}

/// Counts lines that are no frames, and says how much of each the log may still have.
#[derive(Debug, Default)]
pub(super) struct Junk {
    /// So many there were.
    pub(super) lines: u64,
    logged_bytes: usize,
}

impl Junk {
    /// Takes one; gives the text for the log, while there is room for it.
    pub(super) fn note(&mut self, why: &str) -> Option<String> {
        self.lines += 1;
        let shown = &why[..protocol::result::floor_border(why, JUNK_SHOWN_BYTES_MAX)];
        if self.logged_bytes + shown.len() > JUNK_BYTES_MAX {
            return None;
        }
        self.logged_bytes += shown.len();
        Some(shown.to_owned())
    }
}

#[cfg(test)]
mod tests {
    use protocol::channel::DeliveredMessage;

    use super::*;

    fn of(text: &str) -> Meaning {
        meaning(&Line::Whole(text.as_bytes().to_vec()))
    }

    #[test]
    fn every_method_of_the_leader_is_understood() {
        let message = DeliveredMessage {
            id: "m1".into(),
            kind: "message".into(),
            from: "Team Leader".into(),
            content: "hi".into(),
        };
        let table = [
            (
                r#"{"jsonrpc":"2.0","method":"agent/deliver","params":{"messages":[{"id":"m1","kind":"message","from":"Team Leader","content":"hi","later":1}]}}"#,
                FromLeader::Deliver(vec![message]),
            ),
            (
                r#"{"method":"agent/stop","params":{"reason":"deadline","grace_ms":5000}}"#,
                FromLeader::Stop {
                    reason: StopReason::Deadline,
                },
            ),
            (
                r#"{"method":"agent/stop","params":{"reason":"of a later version"}}"#,
                FromLeader::Stop {
                    reason: StopReason::Terminated,
                },
            ),
            (
                r#"{"method":"agent/stop"}"#,
                FromLeader::Stop {
                    reason: StopReason::Terminated,
                },
            ),
            (
                r#"{"method":"agent/wrap_up","params":{"seconds_left":9}}"#,
                FromLeader::WrapUp { seconds_left: 9 },
            ),
            (
                r#"{"method":"agent/deadline","params":{"remaining_ms":5,"paused":true}}"#,
                FromLeader::Deadline {
                    remaining_ms: 5,
                    paused: true,
                },
            ),
        ];
        for (line, event) in table {
            assert_eq!(of(line), Meaning::Event(event), "{line}");
        }
    }

    #[test]
    fn requests_are_answered_under_their_id() {
        assert_eq!(
            of(r#"{"id":0,"method":"agent/ping"}"#),
            Meaning::Reply(Frame::result(Value::from(0), json!({})))
        );
        let Meaning::Reply(Frame::Response { id, outcome }) =
            of(r#"{"id":"x","method":"agent/dance","params":{}}"#)
        else {
            panic!("no answer");
        };
        assert_eq!(id, Value::from("x"));
        assert_eq!(outcome.unwrap_err().code, METHOD_NOT_FOUND);
    }

    #[test]
    fn what_is_no_frame_is_junk_and_harmless() {
        for line in [
            "Service started",
            "{\"half\":",
            "[]",
            "{}",
            r#"{"method":"agent/dance"}"#,
            r#"{"method":"agent/deliver","params":5}"#,
            r#"{"id":"never","result":1}"#,
        ] {
            assert!(matches!(of(line), Meaning::Junk(_)), "{line}");
        }
        assert!(matches!(meaning(&Line::TooLong(9)), Meaning::Junk(_)));
        assert!(matches!(meaning(&Line::Torn(vec![1])), Meaning::Junk(_)));
    }

    #[test]
    fn junk_in_the_log_is_bounded_and_all_is_counted() {
        let mut junk = Junk::default();
        let mut logged = 0;
        for _ in 0..10_000 {
            logged += junk.note(&"€".repeat(1_000)).map_or(0, |text| text.len());
        }
        assert_eq!(junk.lines, 10_000);
        assert!(logged <= JUNK_BYTES_MAX && logged > JUNK_BYTES_MAX / 2);
    }
}
