//! Doors for the fuzz targets of `tests/fuzz` to what reads other people's bytes. Each panics when
//! a rule is broken that holds for every input. Built with `--cfg fuzzing` alone.

use protocol::tool::worker::Replacement;
use serde_json::Value;

use crate::model::schema::{Dialect, plain};
use crate::model::sse::SseParser;
use crate::tools::edit::{EditFailure, apply};
use crate::tools::skill::front;

/// A stream cut into pieces gives the events of the whole one. Every byte of `cuts` is the length
/// of a piece.
pub fn server_sent_events(cuts: &[u8], stream: &[u8]) {
    let read = |pieces: &mut dyn Iterator<Item = &[u8]>| {
        let (mut parser, mut events) = (SseParser::default(), Vec::new());
        for piece in pieces {
            if parser.push(piece, &mut events).is_err() {
                return None;
            }
        }
        events.extend(parser.finish());
        Some(events)
    };
    let whole = read(&mut std::iter::once(stream));
    let mut rest = stream;
    let mut pieces = Vec::new();
    for cut in cuts {
        let (piece, more) = rest.split_at(usize::from(*cut).min(rest.len()));
        pieces.push(piece);
        rest = more;
    }
    pieces.push(rest);
    assert_eq!(read(&mut pieces.into_iter()), whole);
}

/// Front matter is read or refused in words.
pub fn front_matter(text: &str) {
    if let Ok(found) = front::read(text) {
        assert!(!found.description.trim().is_empty());
        assert!(found.name.is_none_or(|name| !name.trim().is_empty()));
    }
}

/// An edit changes the one place where the text stands and no other byte.
pub fn edit(file: &[u8], old: &str, new: &str) {
    let replacement = Replacement {
        old_string: old.to_owned(),
        new_string: new.to_owned(),
        replace_all: None,
    };
    let outcome = apply(file, std::slice::from_ref(&replacement));
    if let Ok(edited) = &outcome {
        assert_eq!(edited.places, 1);
    }
    // For plain texts there is another way to say what must come of it.
    let Ok(text) = std::str::from_utf8(file) else {
        return;
    };
    let all = [text, old, new];
    if old.is_empty() || old == new || !all.iter().all(|text| is_plain(text)) {
        return;
    }
    let places = overlapping(text, old);
    match outcome {
        Ok(edited) => assert_eq!(edited.bytes, text.replacen(old, new, 1).into_bytes()),
        Err(EditFailure::NoMatch { .. }) => assert_eq!(places, 0),
        Err(EditFailure::SeveralMatches { .. }) => assert!(places > 1),
        Err(other) => panic!("{other:?}"),
    }
}

fn is_plain(text: &str) -> bool {
    text.bytes()
        .all(|byte| byte == b'\n' || (0x20..0x7f).contains(&byte))
}

fn overlapping(text: &str, wanted: &str) -> usize {
    (0..text.len())
        .filter(|at| text[*at..].starts_with(wanted))
        .count()
}

/// Whatever a schema is, it comes out as one of an object, and comes out the same a second time.
pub fn schema(text: &[u8]) {
    let Ok(schema) = serde_json::from_slice::<Value>(text) else {
        return;
    };
    for dialect in [Dialect::Chat, Dialect::Messages] {
        let once = plain(&schema, dialect);
        assert_eq!(once["type"], "object");
        assert!(once["properties"].is_object());
        assert_eq!(plain(&once, dialect), once);
    }
}
