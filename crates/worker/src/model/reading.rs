//! Reads an answer to its end, streamed or whole, into what a dialect makes of it.

use protocol::conversation::Message;
use serde_json::Value;

use super::call_ids::CallIds;
use super::fault::{Fault, Refusal};
use super::http::Answer;
use super::sse::{SseEvent, SseParser};
use super::{EventSink, ModelEvent, ModelReply, lenient};

/// The last word of a stream of chat completions; a router may add it to any stream.
const DONE: &str = "[DONE]";

/// An answer in one dialect, as far as it has come.
pub(crate) trait Assembly: Default + Send {
    /// The error object in a document, if that is what it is.
    fn refusal(document: &Value) -> Option<Refusal>;

    /// Takes a part of a stream.
    fn take_part(&mut self, document: &Value) -> Taken;

    /// Takes a whole answer and gives its text.
    fn take_whole(&mut self, document: &Value) -> String;

    /// Whether there is anything of an answer yet, be it a thought.
    fn has_content(&self) -> bool;

    /// Whether there is more of it than an answer may have.
    fn is_too_large(&self) -> bool;

    /// Whether the answer has said why it ended; only usage may still come.
    fn is_finished(&self) -> bool;

    /// The answer, when it is one. `ids` makes the ids of calls unique.
    ///
    /// # Errors
    /// When it is none.
    fn end(self, ending: Ending, ids: &mut CallIds) -> Result<ModelReply, NoAnswer>;
}

/// What a part of a stream brought.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Taken {
    /// Text of the answer, as it can be shown.
    pub(crate) text: String,
    /// Whether nothing comes behind it.
    pub(crate) last_word: bool,
}

/// How the bytes of an answer came to their end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ending {
    /// The server said that there is no more: a whole document, or the last word of a stream.
    Declared,
    /// The stream just ended.
    Silent,
}

/// Why an answer that has ended is none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum NoAnswer {
    /// There was nothing of an answer in it.
    Nothing,
    /// It ended before it was whole.
    Torn,
    /// The provider itself says that it broke off, with this word.
    BrokenOff(String),
    /// The model, or who stands before it, declined to answer, with this word.
    Declined(String),
    /// A call has arguments but names no tool.
    NamelessCall,
}

/// Reads `answer` to its end. The server decides how it answers: there are such that stream
/// unasked, and such that never do. `messages` is the conversation that was sent.
///
/// # Errors
/// When it breaks, is silent for too long, is too large, is an error, or is no answer.
pub(crate) async fn read<A: Assembly>(
    answer: Answer<'_>,
    messages: &[Message],
    events: EventSink<'_>,
) -> Result<ModelReply, Fault> {
    if answer.content_type().starts_with("text/event-stream") {
        read_stream::<A>(answer, messages, events).await
    } else {
        read_whole::<A>(answer, messages, events).await
    }
}

/// What an event was, other than a fault.
enum Heard {
    /// A part of the answer, or nothing of meaning.
    More,
    /// The last word.
    LastWord,
}

async fn read_stream<A: Assembly>(
    mut answer: Answer<'_>,
    messages: &[Message],
    events: EventSink<'_>,
) -> Result<ModelReply, Fault> {
    answer.expect_stream();
    let mut parser = SseParser::default();
    let mut assembly = A::default();
    let (mut bytes, mut heard) = (Vec::new(), Vec::new());
    loop {
        bytes.clear();
        let more = match answer.read_into(&mut bytes).await {
            Ok(more) => more,
            // It is whole already; only the last word, or the usage, did not come.
            Err(_) if assembly.is_finished() => false,
            Err(fault) => return Err(late(fault, &assembly)),
        };
        if parser.push(&bytes, &mut heard).is_err() {
            return Err(answer.too_large());
        }
        if !more {
            heard.extend(parser.finish());
        }
        for event in heard.drain(..) {
            match hear(&answer, &event, &mut assembly, &mut *events) {
                Ok(Heard::More) => {}
                Ok(Heard::LastWord) => {
                    let reply = end(&answer, messages, assembly, Ending::Declared);
                    answer.drain().await;
                    return reply;
                }
                Err(fault) => return Err(late(fault, &assembly)),
            }
        }
        if !more {
            return end(&answer, messages, assembly, Ending::Silent);
        }
        if assembly.is_finished() {
            answer.expect_only_end();
        }
    }
}

async fn read_whole<A: Assembly>(
    mut answer: Answer<'_>,
    messages: &[Message],
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
        return read_mislabelled::<A>(&answer, messages, &bytes, events);
    }
    let document = match lenient::parse(text) {
        Ok(document) if document.is_object() => document,
        Ok(_) | Err(_) => return Err(answer.no_answer("it is no JSON object")),
    };
    if let Some(refusal) = A::refusal(&document) {
        return Err(answer.error_inside(&refusal));
    }
    let mut assembly = A::default();
    let said = assembly.take_whole(&document);
    if !said.is_empty() {
        events(ModelEvent::Text(said));
    }
    end(&answer, messages, assembly, Ending::Declared)
}

/// A stream that came under another content type, and was therefore read whole.
fn read_mislabelled<A: Assembly>(
    answer: &Answer<'_>,
    messages: &[Message],
    bytes: &[u8],
    events: EventSink<'_>,
) -> Result<ModelReply, Fault> {
    let mut parser = SseParser::default();
    let mut assembly = A::default();
    let mut heard = Vec::new();
    if parser.push(bytes, &mut heard).is_err() {
        return Err(answer.too_large());
    }
    heard.extend(parser.finish());
    for event in &heard {
        match hear(answer, event, &mut assembly, &mut *events) {
            Ok(Heard::More) => {}
            Ok(Heard::LastWord) => return end(answer, messages, assembly, Ending::Declared),
            Err(fault) => return Err(late(fault, &assembly)),
        }
    }
    end(answer, messages, assembly, Ending::Silent)
}

/// Takes one event into the answer.
fn hear<A: Assembly>(
    answer: &Answer<'_>,
    event: &SseEvent,
    assembly: &mut A,
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
    if let Some(refusal) = A::refusal(&document) {
        return Err(answer.error_inside(&refusal));
    }
    let taken = assembly.take_part(&document);
    if !taken.text.is_empty() {
        events(ModelEvent::Text(taken.text));
    }
    if assembly.is_too_large() {
        return Err(answer.too_large());
    }
    Ok(if taken.last_word {
        Heard::LastWord
    } else {
        Heard::More
    })
}

fn end<A: Assembly>(
    answer: &Answer<'_>,
    messages: &[Message],
    assembly: A,
    ending: Ending,
) -> Result<ModelReply, Fault> {
    let had_content = assembly.has_content();
    let mut ids = CallIds::of(messages);
    assembly.end(ending, &mut ids).map_err(|no_answer| {
        let fault = match no_answer {
            NoAnswer::Nothing => return nothing::<A>(answer),
            NoAnswer::NamelessCall => return answer.no_answer("a call in it names no tool"),
            NoAnswer::Declined(word) => return answer.declined(&word),
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

/// An answer without an answer. Some servers put a bare error object where a stream was promised.
fn nothing<A: Assembly>(answer: &Answer<'_>) -> Fault {
    let document = lenient::parse(&answer.head()).ok();
    match document.and_then(|document| A::refusal(&document)) {
        Some(refusal) => answer.error_inside(&refusal),
        None => answer.no_answer("there is no choice in it"),
    }
}

fn late<A: Assembly>(fault: Fault, assembly: &A) -> Fault {
    if assembly.has_content() {
        fault.after_content()
    } else {
        fault
    }
}
