//! What the loop asks of a model, whatever its dialect.

mod anthropic;
mod ask;
mod call_ids;
mod fault;
mod http;
mod lenient;
mod open;
mod openai;
mod reading;
mod retry;
pub(crate) mod schema;
mod script;
pub(crate) mod sse;

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use protocol::conversation::Message;
use serde_json::Value;

pub use crate::core::reply::{FinishKind, ModelError, ModelErrorKind, ModelReply};
pub use anthropic::Anthropic;
pub use http::{client, client_to};
pub use open::{RunFacts, open};
pub use openai::OpenAi;
pub use script::Script;

/// One tool as it is offered to a model.
#[derive(Debug, Clone, PartialEq)]
pub struct OfferedTool {
    /// Its name.
    pub name: String,
    /// What it does, in the agent's language.
    pub description: String,
    /// The JSON Schema of its parameters.
    pub parameters: Value,
}

/// One question to a model: the whole conversation and the tools.
#[derive(Debug)]
pub struct ModelRequest<'a> {
    /// First to last.
    pub messages: &'a [Message],
    /// In order; may be empty.
    pub tools: &'a [OfferedTool],
    /// What is left of the agent's deadline; the call never takes longer.
    pub within: Duration,
}

/// What a call tells while it goes on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ModelEvent {
    /// A request was sent; the first is 1.
    Sent {
        /// Which try.
        attempt: u32,
    },
    /// A piece of text came.
    Text(String),
    /// What was received so far is thrown away; a new try follows after the pause.
    Retry {
        /// The try that failed.
        attempt: u32,
        /// Why.
        why: String,
        /// Until the next one.
        pause: Duration,
    },
}

/// Where a call's events go. It must not block.
pub type EventSink<'a> = &'a mut (dyn FnMut(ModelEvent) + Send);

/// A boxed future, so that dialects can stand in one list.
pub type ReplyFuture<'a> =
    Pin<Box<dyn Future<Output = Result<ModelReply, ModelError>> + Send + 'a>>;

/// A model in some dialect. A call may be dropped at any await point; the model stays usable.
pub trait Model: Send + std::fmt::Debug {
    /// Asks once, with all retries and time-outs inside.
    fn complete<'a>(
        &'a mut self,
        request: ModelRequest<'a>,
        events: EventSink<'a>,
    ) -> ReplyFuture<'a>;

    /// Requests that left this process so far, those of failed and dropped calls included, so
    /// that the count can be compared with the provider's. A script makes none.
    fn requests(&self) -> u64;
}
