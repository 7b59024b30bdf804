//! A model behind a server that speaks chat completions.

use protocol::channel::ModelAccess;
use protocol::conversation::Message;
use protocol::job::ModelSpec;
use serde_json::Value;

use super::assemble::{Assembler, Ending, NoAnswer};
use super::piece::piece;
use super::request::body;
use crate::model::ask::{Chance, Try, TryFuture, ask, chance};
use crate::model::call_ids::CallIds;
use crate::model::fault::{Fault, Refusal};
use crate::model::http::{Answer, Endpoint};
use crate::model::sse::{SseEvent, SseParser};
use crate::model::{
    EventSink, Model, ModelError, ModelEvent, ModelReply, ModelRequest, ReplyFuture, lenient,
};

/// The last word of a stream.
const DONE: &str = "[DONE]";

/// A model that is asked over chat completions.
pub struct OpenAi {
    spec: ModelSpec,
    endpoint: Endpoint,
    requests: u64,
    chance: Chance,
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
            endpoint: Endpoint::new(access, "/chat/completions")?,
            requests: 0,
            chance,
        })
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
            let question = Question {
                endpoint: &self.endpoint,
                body: Value::Object(body(&self.spec, &request)).to_string(),
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
    body: String,
    messages: &'a [Message],
}

impl Try for Question<'_> {
    fn once<'a>(&'a self, events: EventSink<'a>) -> TryFuture<'a> {
        Box::pin(async move {
            let answer = self.endpoint.post(self.body.clone().into_bytes()).await?;
            // The server decides how it answers; there are such that stream unasked, and such
            // that never do.
            if answer.content_type().starts_with("text/event-stream") {
                self.read_stream(answer, events).await
            } else {
                self.read_whole(answer, events).await
            }
        })
    }

    fn address(&self) -> &str {
        self.endpoint.address()
    }
}

/// What an event was, other than a fault.
enum Heard {
    /// A part of the answer, or nothing of meaning.
    More,
    /// The last word.
    LastWord,
}

impl Question<'_> {
    async fn read_stream(
        &self,
        mut answer: Answer<'_>,
        events: EventSink<'_>,
    ) -> Result<ModelReply, Fault> {
        answer.expect_stream();
        let mut parser = SseParser::default();
        let mut assembler = Assembler::default();
        let (mut bytes, mut heard) = (Vec::new(), Vec::new());
        loop {
            bytes.clear();
            let more = match answer.read_into(&mut bytes).await {
                Ok(more) => more,
                // It is whole already; only the last word, or the usage, did not come.
                Err(_) if assembler.is_finished() => false,
                Err(fault) => return Err(late(fault, &assembler)),
            };
            if parser.push(&bytes, &mut heard).is_err() {
                return Err(answer.too_large());
            }
            if !more {
                heard.extend(parser.finish());
            }
            for event in heard.drain(..) {
                match hear(&answer, &event, &mut assembler, &mut *events) {
                    Ok(Heard::More) => {}
                    Ok(Heard::LastWord) => {
                        let reply = self.end(&answer, assembler, Ending::Declared);
                        answer.drain().await;
                        return reply;
                    }
                    Err(fault) => return Err(late(fault, &assembler)),
                }
            }
            if !more {
                return self.end(&answer, assembler, Ending::Silent);
            }
            if assembler.is_finished() {
                answer.expect_only_end();
            }
        }
    }

    async fn read_whole(
        &self,
        mut answer: Answer<'_>,
        events: EventSink<'_>,
    ) -> Result<ModelReply, Fault> {
        let mut bytes = Vec::new();
        while answer.read_into(&mut bytes).await? {}
        let text = String::from_utf8_lossy(&bytes);
        let text = text.trim_start_matches('\u{feff}').trim();
        if ["data:", "event:", ":"]
            .iter()
            .any(|start| text.starts_with(start))
        {
            return self.read_mislabelled(&answer, &bytes, events);
        }
        let document = match lenient::parse(text) {
            Ok(document) if document.is_object() => document,
            Ok(_) | Err(_) => return Err(answer.no_answer("it is no JSON object")),
        };
        if let Some(refusal) = refusal(&document) {
            return Err(answer.error_inside(&refusal));
        }
        let mut assembler = Assembler::default();
        let said = piece(&document);
        if !said.content.is_empty() {
            events(ModelEvent::Text(said.content.clone()));
        }
        assembler.take_whole(said);
        self.end(&answer, assembler, Ending::Declared)
    }

    /// A stream that came under another content type, and was therefore read whole.
    fn read_mislabelled(
        &self,
        answer: &Answer<'_>,
        bytes: &[u8],
        events: EventSink<'_>,
    ) -> Result<ModelReply, Fault> {
        let mut parser = SseParser::default();
        let mut assembler = Assembler::default();
        let mut heard = Vec::new();
        if parser.push(bytes, &mut heard).is_err() {
            return Err(answer.too_large());
        }
        heard.extend(parser.finish());
        for event in &heard {
            match hear(answer, event, &mut assembler, &mut *events) {
                Ok(Heard::More) => {}
                Ok(Heard::LastWord) => return self.end(answer, assembler, Ending::Declared),
                Err(fault) => return Err(late(fault, &assembler)),
            }
        }
        self.end(answer, assembler, Ending::Silent)
    }

    fn end(
        &self,
        answer: &Answer<'_>,
        assembler: Assembler,
        ending: Ending,
    ) -> Result<ModelReply, Fault> {
        let had_content = assembler.has_content();
        let mut ids = CallIds::of(self.messages);
        assembler.end(ending, &mut ids).map_err(|no_answer| {
            let fault = match no_answer {
                NoAnswer::NoChoice => return no_choice(answer),
                NoAnswer::NamelessCall => return answer.no_answer("a call in it names no tool"),
                NoAnswer::Torn => answer.cut("the answer was cut before its end"),
                NoAnswer::BrokenOff(word) => {
                    answer.cut(&format!("the provider broke the answer off (`{word}`)"))
                }
            };
            if had_content {
                fault.after_content()
            } else {
                fault
            }
        })
    }
}

/// An answer without a choice. Some servers put a bare error object where a stream was promised.
fn no_choice(answer: &Answer<'_>) -> Fault {
    let document = lenient::parse(&answer.head()).ok();
    match document.and_then(|document| refusal(&document)) {
        Some(refusal) => answer.error_inside(&refusal),
        None => answer.no_answer("there is no choice in it"),
    }
}

/// Takes one event into the answer.
fn hear(
    answer: &Answer<'_>,
    event: &SseEvent,
    assembler: &mut Assembler,
    events: EventSink<'_>,
) -> Result<Heard, Fault> {
    let data = event.data.trim();
    if data == DONE {
        return Ok(Heard::LastWord);
    }
    if !data.starts_with('{') {
        if event.kind == "error" {
            let words = data.to_owned();
            let code = String::new();
            return Err(answer.error_inside(&Refusal { code, words }));
        }
        tracing::debug!(kind = %event.kind, bytes = data.len(), "an event without JSON is skipped");
        return Ok(Heard::More);
    }
    // What began as JSON and is none was a part of the answer: to go on would hand out a text
    // or arguments with a hole in it.
    let document = lenient::parse(data)
        .map_err(|error| answer.cut(&format!("a chunk of the stream is damaged: {error}")))?;
    if let Some(refusal) = refusal(&document) {
        return Err(answer.error_inside(&refusal));
    }
    let said = piece(&document);
    if !said.content.is_empty() {
        events(ModelEvent::Text(said.content.clone()));
    }
    assembler.add(said);
    if assembler.is_too_large() {
        return Err(answer.too_large());
    }
    Ok(Heard::More)
}

/// The error object of a document. Beside choices only an explicit one counts.
fn refusal(document: &Value) -> Option<Refusal> {
    let explicit = document.get("error").is_some_and(|error| !error.is_null());
    let choices = document.get("choices").is_some();
    Refusal::in_answer(document).filter(|_| explicit || !choices)
}

fn late(fault: Fault, assembler: &Assembler) -> Fault {
    if assembler.has_content() {
        fault.after_content()
    } else {
        fault
    }
}
