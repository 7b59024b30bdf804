//! Server-sent events out of bytes that may be cut anywhere.
//!
//! Lines end in LF, CR or CRLF, also when CR and LF come in two packets. What the total may be is
//! bounded by whoever reads the bytes; here one event is.

use protocol::limits;

/// One event. Its id and the server's wish for reconnecting mean nothing here and are left out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SseEvent {
    /// Its kind; empty where the server names none.
    pub(crate) kind: String,
    /// Its data lines, joined by newlines.
    pub(crate) data: String,
}

/// One event has more than [`limits::MODEL_EVENT_BYTES_MAX`] bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct EventTooLarge;

/// What has come of a stream so far.
#[derive(Debug, Default)]
pub(crate) struct SseParser {
    line: Vec<u8>,
    kind: String,
    data: Option<String>,
    /// The last byte was a CR, so that a LF right behind it is no second line end.
    after_cr: bool,
    /// A byte order mark may stand before the first line only.
    past_first_line: bool,
}

impl SseParser {
    /// Takes further bytes and adds the events that they complete.
    ///
    /// # Errors
    /// When an event is too large; nothing more can be read of this stream.
    pub(crate) fn push(
        &mut self,
        mut bytes: &[u8],
        events: &mut Vec<SseEvent>,
    ) -> Result<(), EventTooLarge> {
        if self.after_cr && !bytes.is_empty() {
            self.after_cr = false;
            bytes = bytes.strip_prefix(b"\n").unwrap_or(bytes);
        }
        while let Some(end) = bytes.iter().position(|byte| matches!(byte, b'\n' | b'\r')) {
            self.extend_line(&bytes[..end])?;
            events.extend(self.end_line());
            let crlf = bytes[end..].starts_with(b"\r\n");
            self.after_cr = bytes[end..] == *b"\r";
            bytes = &bytes[end + if crlf { 2 } else { 1 }..];
        }
        self.extend_line(bytes)
    }

    /// The event that the end of the stream completes: servers leave out the last empty line, or
    /// even the last line end.
    pub(crate) fn finish(&mut self) -> Option<SseEvent> {
        let ended = if self.line.is_empty() {
            None
        } else {
            self.end_line()
        };
        ended.or_else(|| self.end_event())
    }

    fn extend_line(&mut self, bytes: &[u8]) -> Result<(), EventTooLarge> {
        let data = self.data.as_ref().map_or(0, String::len);
        if data + self.line.len() + bytes.len() > limits::MODEL_EVENT_BYTES_MAX {
            return Err(EventTooLarge);
        }
        self.line.extend_from_slice(bytes);
        Ok(())
    }

    fn end_line(&mut self) -> Option<SseEvent> {
        let bytes = std::mem::take(&mut self.line);
        let text = String::from_utf8_lossy(&bytes);
        let mut line = text.as_ref();
        if !self.past_first_line {
            self.past_first_line = true;
            line = line.strip_prefix('\u{feff}').unwrap_or(line);
        }
        if line.is_empty() {
            return self.end_event();
        }
        let (field, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "data" => match &mut self.data {
                Some(data) => {
                    data.push('\n');
                    data.push_str(value);
                }
                none => *none = Some(value.to_owned()),
            },
            "event" => self.kind = value.to_owned(),
            // A comment has an empty field name; `id`, `retry` and unknown ones mean nothing.
            _ => {}
        }
        None
    }

    /// An event without data is none, but the kind that it named is forgotten.
    fn end_event(&mut self) -> Option<SseEvent> {
        let kind = std::mem::take(&mut self.kind);
        let data = self.data.take()?;
        Some(SseEvent { kind, data })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn parse(pieces: &[&[u8]]) -> Vec<SseEvent> {
        let mut parser = SseParser::default();
        let mut events = Vec::new();
        for piece in pieces {
            parser.push(piece, &mut events).unwrap();
        }
        events.extend(parser.finish());
        events
    }

    fn event(kind: &str, data: &str) -> SseEvent {
        SseEvent {
            kind: kind.to_owned(),
            data: data.to_owned(),
        }
    }

    #[test]
    fn every_line_end_gives_the_same_events() {
        // A parser that split at two LF only got not a single event out of a stream with CRLF.
        let text = ": hello\n\nevent: ping\ndata: {}\n\ndata: a\ndata:b\ndata\n\nid: 1\nretry: 5\n\
                    odd\n\ndata:  two\n\ndata: last";
        let wanted = [
            event("ping", "{}"),
            event("", "a\nb\n"),
            event("", " two"),
            event("", "last"),
        ];
        for line_end in ["\n", "\r\n", "\r"] {
            let text = text.replace('\n', line_end);
            assert_eq!(parse(&[text.as_bytes()]), wanted, "{line_end:?}");
            let single: Vec<&[u8]> = text.as_bytes().chunks(1).collect();
            assert_eq!(parse(&single), wanted, "{line_end:?} byte by byte");
        }
    }

    #[test]
    fn an_event_is_there_as_soon_as_its_empty_line_is() {
        let mut parser = SseParser::default();
        let mut events = Vec::new();
        parser.push(b"data: 1\r\n\r", &mut events).unwrap();
        assert_eq!(events, [event("", "1")]);
        parser.push(b"\ndata: 2\n", &mut events).unwrap();
        assert_eq!(events.len(), 1, "the late LF ends no line of its own");
        parser.push(b"\n", &mut events).unwrap();
        assert_eq!(events, [event("", "1"), event("", "2")]);
    }

    #[test]
    fn a_byte_order_mark_is_skipped_and_broken_text_is_kept_readable() {
        assert_eq!(
            parse(&[b"\xef\xbb", b"\xbfdata: a\n\n\xef\xbb\xbfdata: b\n\n"]),
            [event("", "a")]
        );
        assert_eq!(parse(&[b"data: \xff!\n\n"]), [event("", "\u{fffd}!")]);
        assert_eq!(parse(&[b"", b"event: x\n\n", b"\n\n"]), []);
    }

    #[test]
    fn an_event_is_bounded_and_many_are_not() {
        let most = limits::MODEL_EVENT_BYTES_MAX;
        let mut parser = SseParser::default();
        let mut events = Vec::new();
        let full = [b"data: ".as_slice(), &vec![b'x'; most - 6], b"\n\n"].concat();
        for _ in 0..2 {
            parser.push(&full, &mut events).unwrap();
        }
        assert_eq!(events.len(), 2);
        let over = vec![b'x'; most + 1];
        assert_eq!(parser.push(&over, &mut events), Err(EventTooLarge));
        // Many short data lines of one event count together.
        let mut parser = SseParser::default();
        let line = b"data: xxxxxxxxxx\n".repeat(1000);
        let mut pushed = 0;
        while parser.push(&line, &mut events).is_ok() {
            pushed += 1;
            assert!(pushed < 1000, "an endless event was taken whole");
        }
        assert!(pushed > 300);
    }

    proptest! {
        #[test]
        fn where_the_bytes_are_cut_makes_no_difference(
            lines in prop::collection::vec(
                prop::sample::select(vec![
                    "data: {\"a\":1}", "data", ": ping", "event: e", "", "", "data: 固🌍", "x: y",
                    "\u{feff}data: z",
                ]),
                0..20,
            ),
            ends in prop::collection::vec(prop::sample::select(vec!["\n", "\r", "\r\n"]), 20),
            cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..8),
        ) {
            let text: String = lines.iter().zip(&ends).flat_map(|(l, e)| [*l, *e]).collect();
            let bytes = text.as_bytes();
            let mut at: Vec<usize> = cuts.iter().map(|cut| cut.index(bytes.len() + 1)).collect();
            at.push(0);
            at.push(bytes.len());
            at.sort_unstable();
            let pieces: Vec<&[u8]> = at.windows(2).map(|w| &bytes[w[0]..w[1]]).collect();
            prop_assert_eq!(parse(&pieces), parse(&[bytes]));
        }
    }
}
