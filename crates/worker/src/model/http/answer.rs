//! An answer as it comes in, bounded in time and size.

use std::borrow::Cow;
use std::time::Duration;

use protocol::limits;
use reqwest::StatusCode;
use reqwest::header::{CONTENT_TYPE, HeaderMap};
use tokio::time::{Instant, timeout_at};

use super::endpoint::{Endpoint, deepest};
use crate::io::clock;
use crate::model::fault::{Fault, Mend, Refusal, judge_refusal, judge_status};
use crate::model::{ModelErrorKind, lenient, retry};

/// How much of the beginning of an answer is kept to be shown if it turns out to be none.
const HEAD_BYTES_MAX: usize = 2 * 1024;

/// An answer, read piece by piece. Outside this module it has a good status.
pub(crate) struct Answer<'a> {
    endpoint: &'a Endpoint,
    response: reqwest::Response,
    content_type: String,
    first_byte_until: Instant,
    /// Once the answer is whole, what else may come is waited for only this long.
    only_end: bool,
    read: usize,
    bytes_max: usize,
    head: Vec<u8>,
}

impl std::fmt::Debug for Answer<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Answer")
            .field("status", &self.response.status())
            .field("read", &self.read)
            .finish_non_exhaustive()
    }
}

impl<'a> Answer<'a> {
    pub(super) fn new(
        endpoint: &'a Endpoint,
        response: reqwest::Response,
        first_byte_until: Instant,
    ) -> Self {
        let content_type = text_of(response.headers(), CONTENT_TYPE.as_str()).unwrap_or("");
        Answer {
            content_type: content_type.trim().to_ascii_lowercase(),
            endpoint,
            response,
            first_byte_until,
            only_end: false,
            read: 0,
            bytes_max: limits::MODEL_REPLY_BYTES_MAX,
            head: Vec::new(),
        }
    }

    pub(super) fn is_good(&self) -> bool {
        self.response.status().is_success()
    }

    /// The content type, in small letters.
    pub(crate) fn content_type(&self) -> &str {
        &self.content_type
    }

    /// The beginning of what came so far.
    pub(crate) fn head(&self) -> Cow<'_, str> {
        String::from_utf8_lossy(&self.head)
    }

    /// Says that the answer comes as a stream, which has many more bytes than the answer in it;
    /// that one is to be bounded by whoever puts it together.
    pub(crate) fn expect_stream(&mut self) {
        self.bytes_max = limits::MODEL_STREAM_BYTES_MAX;
    }

    /// Says that the answer itself is whole: a silence from here on is soon taken as its end.
    pub(crate) fn expect_only_end(&mut self) {
        self.only_end = true;
    }

    /// Adds the next piece to `buffer`; false at the end.
    ///
    /// # Errors
    /// When nothing comes in time, the connection breaks, or the answer is too large.
    pub(crate) async fn read_into(&mut self, buffer: &mut Vec<u8>) -> Result<bool, Fault> {
        let (until, patience) = if self.read == 0 {
            (self.first_byte_until, self.endpoint.first_byte)
        } else {
            let patience = if self.only_end {
                let after = Duration::from_millis(limits::MODEL_AFTER_FINISH_MS);
                self.endpoint.gap.min(after)
            } else {
                self.endpoint.gap
            };
            (clock::after(patience), patience)
        };
        let piece = match timeout_at(until, self.response.chunk()).await {
            Ok(Ok(piece)) => piece,
            Ok(Err(error)) => {
                return Err(self.cut(&format!("the connection broke: {}", deepest(&error))));
            }
            Err(_) => return Err(self.endpoint.silent(patience)),
        };
        let Some(piece) = piece else {
            return Ok(false);
        };
        self.read += piece.len();
        if self.read > self.bytes_max {
            return Err(self.too_large());
        }
        let head = HEAD_BYTES_MAX.saturating_sub(self.head.len());
        self.head.extend_from_slice(&piece[..head.min(piece.len())]);
        buffer.extend_from_slice(&piece);
        Ok(true)
    }

    /// Reads what is left of an answer that has said its last word, so that its connection can
    /// be used again; one that stays open is given up instead.
    pub(crate) async fn drain(mut self) {
        let until = clock::after(Duration::from_millis(limits::MODEL_DRAIN_MS));
        while let Ok(Ok(Some(_))) = timeout_at(until, self.response.chunk()).await {}
    }

    /// The answer ended too early.
    pub(crate) fn cut(&self, what: &str) -> Fault {
        let kind = ModelErrorKind::Cut;
        let what = self.endpoint.explain.transport(kind, what);
        Fault::new(kind, Mend::Again, what)
    }

    /// The answer, or one event of it, is larger than allowed. Another try would be as large.
    pub(crate) fn too_large(&self) -> Fault {
        let kind = ModelErrorKind::BadReply;
        let what = "the answer is larger than allowed";
        Fault::new(
            kind,
            Mend::Never,
            self.endpoint.explain.transport(kind, what),
        )
    }

    /// A good status, and no answer in it.
    pub(crate) fn no_answer(&self, what: &str) -> Fault {
        let kind = ModelErrorKind::BadReply;
        let what = format!(
            "{} ({}), but {what}",
            self.response.status(),
            if self.content_type.is_empty() {
                "no content type"
            } else {
                &self.content_type
            }
        );
        let words = self.endpoint.explain.good_status(kind, &what, &self.head());
        Fault::new(kind, Mend::BadReply, words)
    }

    /// A good status, and the word that no answer will be given to this. Another try would most
    /// likely be declined as well.
    pub(crate) fn declined(&self, word: &str) -> Fault {
        let kind = ModelErrorKind::Refused;
        let what = format!("the model declined to answer (`{word}`)");
        let words = self.endpoint.explain.transport(kind, &what);
        Fault::new(kind, Mend::Never, words)
    }

    /// A good status, and an error object in it.
    pub(crate) fn error_inside(&self, refusal: &Refusal) -> Fault {
        let (kind, mend) = judge_refusal(refusal);
        let what = if refusal.code.is_empty() {
            "the answer is an error".to_owned()
        } else {
            format!("the answer is an error ({})", refusal.code)
        };
        let words = &refusal.words;
        Fault::new(
            kind,
            mend,
            self.endpoint.explain.good_status(kind, &what, words),
        )
    }

    /// Reads the body of a bad status, as far as it comes, and says what it means.
    pub(super) async fn refused(mut self) -> Fault {
        let mut body = Vec::new();
        while body.len() < limits::MODEL_ERROR_BODY_BYTES_MAX {
            match self.read_into(&mut body).await {
                Ok(true) => {}
                // The status alone says enough.
                Ok(false) | Err(_) => break,
            }
        }
        let text = String::from_utf8_lossy(&body);
        let refusal = lenient::parse(&text)
            .ok()
            .and_then(|answer| Refusal::in_answer(&answer));
        let status = self.response.status();
        let (kind, mend) = judge_status(status.as_u16(), &refusal.clone().unwrap_or_default());
        let shown = match &refusal {
            Some(refusal) if !refusal.code.is_empty() => {
                format!("{} ({})", refusal.words, refusal.code)
            }
            Some(refusal) => refusal.words.clone(),
            None => text.into_owned(),
        };
        let message = self
            .endpoint
            .explain
            .status(kind, status, &self.content_type, &shown);
        let headers = self.response.headers();
        Fault {
            wish: wish(headers, status),
            mend: if text_of(headers, "x-should-retry") == Some("false") {
                Mend::Never
            } else {
                mend
            },
            ..Fault::new(kind, mend, message)
        }
    }
}

fn wish(headers: &HeaderMap, status: StatusCode) -> Option<Duration> {
    if status.is_redirection() {
        return None;
    }
    retry::wish(
        text_of(headers, "retry-after-ms"),
        text_of(headers, "retry-after"),
        clock::time_of_day(),
    )
}

fn text_of<'h>(headers: &'h HeaderMap, name: &str) -> Option<&'h str> {
    headers.get(name)?.to_str().ok()
}
