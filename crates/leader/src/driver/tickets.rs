//! Calls that wait for their answer, and what each kind of answer looks like to its caller.

use std::collections::HashMap;

use protocol::error::{ErrorCode, ToolError};
use serde::Serialize;
use serde_json::Value;
use tokio::sync::oneshot;

use crate::core::{Answer, Ticket, result};
use crate::driver::request::{CreateAnswer, Origin};

/// A call and where its answer goes.
#[derive(Debug)]
pub(super) enum Call {
    /// A create.
    Create {
        origin: Origin,
        answer: oneshot::Sender<Result<CreateAnswer, ToolError>>,
    },
    /// A terminate or a wait.
    Other {
        origin: Origin,
        answer: oneshot::Sender<Result<Value, ToolError>>,
    },
}

/// All calls that wait.
#[derive(Debug, Default)]
pub(super) struct Tickets {
    last: u64,
    calls: HashMap<Ticket, Call>,
}

impl Tickets {
    /// A ticket that was never given before.
    pub(super) fn issue(&mut self) -> Ticket {
        self.last += 1;
        Ticket(self.last)
    }

    pub(super) fn keep(&mut self, ticket: Ticket, call: Call) {
        self.calls.insert(ticket, call);
    }

    /// Whether the caller has gone before its answer came.
    pub(super) fn give_up(&mut self, ticket: Ticket) -> bool {
        self.calls.remove(&ticket).is_some()
    }

    /// Answers a call; one whose caller has gone is not there any more.
    pub(super) fn answer(&mut self, ticket: Ticket, answer: Answer) {
        match self.calls.remove(&ticket) {
            Some(Call::Create { origin, answer: to }) => drop(to.send(created(origin, answer))),
            Some(Call::Other { origin, answer: to }) => drop(to.send(other(origin, answer))),
            None => {}
        }
    }
}

fn created(origin: Origin, answer: Answer) -> Result<CreateAnswer, ToolError> {
    match answer {
        Answer::Refused(error) => Err(error),
        Answer::Created(whole) => Ok(CreateAnswer::Ended(match origin {
            Origin::Person => whole,
            Origin::Tool => Box::new(result::for_model(*whole)),
        })),
        Answer::Started(started) => Ok(CreateAnswer::Started(started)),
        Answer::Terminated(_) | Answer::Waited(_) => Err(mismatch()),
    }
}

fn other(origin: Origin, answer: Answer) -> Result<Value, ToolError> {
    match (answer, origin) {
        (Answer::Refused(error), _) => Err(error),
        (Answer::Terminated(whole), Origin::Person) => to_value(&whole),
        (Answer::Terminated(whole), Origin::Tool) => {
            to_value(&result::terminated_for_model(*whole))
        }
        (Answer::Waited(whole), Origin::Person) => to_value(&whole),
        (Answer::Waited(whole), Origin::Tool) => to_value(&result::wait_for_model(*whole)),
        (Answer::Created(_) | Answer::Started(_), _) => Err(mismatch()),
    }
}

/// A result as JSON.
pub(super) fn to_value(result: &impl Serialize) -> Result<Value, ToolError> {
    serde_json::to_value(result).map_err(|error| {
        ToolError::new(ErrorCode::Internal, format!("a result is no JSON: {error}"))
    })
}

fn mismatch() -> ToolError {
    ToolError::new(ErrorCode::Internal, "a call got the answer of another kind")
}
