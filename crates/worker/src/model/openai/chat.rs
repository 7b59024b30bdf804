//! A model behind a server that speaks chat completions.

use std::path::PathBuf;

use protocol::channel::ModelAccess;
use protocol::conversation::Message;
use protocol::job::ModelSpec;
use serde_json::{Map, Value};

use super::assemble::Assembler;
use super::picture::show;
use super::request::{body, varied};
use crate::model::ask::{Chance, Try, TryFuture, ask, chance};
use crate::model::http::{Endpoint, Wire};
use crate::model::reading::read;
use crate::model::{EventSink, Model, ModelError, ModelRequest, ReplyFuture};

/// A model that is asked over chat completions.
pub struct OpenAi {
    spec: ModelSpec,
    endpoint: Endpoint,
    requests: u64,
    chance: Chance,
    /// Where the images of conversations lie.
    images: PathBuf,
}

impl std::fmt::Debug for OpenAi {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Headers of the configuration may hold secrets, so the whole of it is not shown.
        f.debug_struct("OpenAi")
            .field("key", &self.spec.key)
            .field("model", &self.spec.model)
            .field("endpoint", &self.endpoint)
            .field("requests", &self.requests)
            .finish_non_exhaustive()
    }
}

impl OpenAi {
    /// Prepares the model that `access` describes; nothing is sent yet.
    ///
    /// # Errors
    /// When the address, a header or the key can't be used.
    pub fn new(access: &ModelAccess) -> Result<Self, ModelError> {
        Ok(OpenAi {
            spec: access.spec.clone(),
            endpoint: Endpoint::new(access, Wire::ChatCompletions)?,
            requests: 0,
            chance,
            images: PathBuf::new(),
        })
    }

    /// Takes the images that conversations name from this folder, the agent's own.
    #[must_use]
    pub fn with_images(mut self, folder: PathBuf) -> Self {
        self.images = folder;
        self
    }

    /// Takes the jitter of pauses before retries from `chance`, a number from 0 up to but not
    /// including 1; 0 means no pause but the one that a server asks for.
    #[must_use]
    pub fn with_chance(mut self, chance: fn() -> f64) -> Self {
        self.chance = chance;
        self
    }
}

impl Model for OpenAi {
    fn complete<'a>(
        &'a mut self,
        request: ModelRequest<'a>,
        events: EventSink<'a>,
    ) -> ReplyFuture<'a> {
        Box::pin(async move {
            let mut body = body(&self.spec, &request);
            show(&mut body, request.messages, &self.images);
            let question = Question {
                endpoint: &self.endpoint,
                body,
                messages: request.messages,
            };
            let requests = &mut self.requests;
            ask(&question, request.within, self.chance, requests, events).await
        })
    }

    fn requests(&self) -> u64 {
        self.requests
    }
}

/// One question, ready to be sent as often as needed.
struct Question<'a> {
    endpoint: &'a Endpoint,
    body: Map<String, Value>,
    messages: &'a [Message],
}

impl Try for Question<'_> {
    fn once<'a>(&'a self, variation: u32, events: EventSink<'a>) -> TryFuture<'a> {
        Box::pin(async move {
            let body = match variation {
                0 => serde_json::to_vec(&self.body),
                _ => serde_json::to_vec(&varied(&self.body, variation)),
            }
            .expect("a JSON value can be written");
            let answer = self.endpoint.post(body).await?;
            read::<Assembler>(answer, self.messages, events).await
        })
    }

    fn address(&self) -> &str {
        self.endpoint.address()
    }
}
