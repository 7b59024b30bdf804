//! One address that is posted to, and an answer as it comes in, both bounded in time and size.

use std::error::Error;
use std::time::Duration;

use jiff::Timestamp;
use protocol::channel::ModelAccess;
use protocol::limits;
use reqwest::header::{AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use reqwest::{StatusCode, Url};
use tokio::time::{Instant, timeout_at};

use super::client::client;
use super::explain::Explainer;
use crate::model::fault::{Fault, Mend, Refusal, judge_refusal, judge_status};
use crate::model::{ModelError, ModelErrorKind, lenient, retry};

/// How much of the beginning of an answer is kept to be shown if it turns out to be none.
const HEAD_BYTES_MAX: usize = 2 * 1024;

/// An address with its headers.
pub(crate) struct Endpoint {
    client: reqwest::Client,
    url: Url,
    headers: HeaderMap,
    first_byte: Duration,
    gap: Duration,
    explain: Explainer,
}

impl std::fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Endpoint")
            .field("address", &self.explain.address())
            .finish_non_exhaustive()
    }
}

impl Endpoint {
    /// Prepares the address `base_url` + `path` with the key in the `Authorization` header.
    ///
    /// # Errors
    /// When the address, a header or the key can't be used.
    pub(crate) fn new(access: &ModelAccess, path: &str) -> Result<Self, ModelError> {
        let spec = &access.spec;
        let unusable = |what: String| ModelError {
            kind: ModelErrorKind::Refused,
            message: format!("model `{}` can't be used: {what}", spec.key),
            requests: 0,
        };
        let url = address(&spec.base_url, path).map_err(&unusable)?;
        let headers = headers(access).map_err(&unusable)?;
        let connect = Duration::from_secs(spec.timeouts.connect_seconds.into());
        let client = client(&url, connect)
            .map_err(|error| unusable(format!("no HTTP client: {}", deepest(&error))))?;
        Ok(Endpoint {
            explain: Explainer::new(access, &url),
            client,
            url,
            headers,
            first_byte: Duration::from_secs(spec.timeouts.first_byte_seconds.into()),
            gap: Duration::from_secs(spec.timeouts.gap_seconds.into()),
        })
    }

    /// The address as it may be shown.
    pub(crate) fn address(&self) -> &str {
        self.explain.address()
    }

    /// Posts a JSON body. What comes back has a good status; its body is still to be read.
    ///
    /// # Errors
    /// When there is no connection, no answer in time, or a bad status.
    pub(crate) async fn post(&self, body: Vec<u8>) -> Result<Answer<'_>, Fault> {
        let first_byte_until = Instant::now() + self.first_byte;
        let request = self
            .client
            .post(self.url.clone())
            .headers(self.headers.clone())
            .body(body);
        let response = match timeout_at(first_byte_until, request.send()).await {
            Ok(Ok(response)) => response,
            Ok(Err(error)) => return Err(self.not_sent(&error)),
            Err(_) => return Err(self.silent(self.first_byte)),
        };
        let answer = Answer::new(self, response, first_byte_until);
        if answer.response.status().is_success() {
            Ok(answer)
        } else {
            Err(answer.refused().await)
        }
    }

    fn not_sent(&self, error: &reqwest::Error) -> Fault {
        let (kind, what) = if error.is_connect() {
            (ModelErrorKind::Connect, "no connection")
        } else {
            (ModelErrorKind::Cut, "the connection broke before an answer")
        };
        let what = format!("{what}: {}", deepest(error));
        Fault::new(kind, Mend::Again, self.explain.transport(kind, &what))
    }

    fn silent(&self, after: Duration) -> Fault {
        let what = format!("the model was silent for {} s", after.as_secs());
        let kind = ModelErrorKind::Stalled;
        Fault::new(kind, Mend::Silent, self.explain.transport(kind, &what))
    }
}

/// An answer with a good status, read piece by piece.
pub(crate) struct Answer<'a> {
    endpoint: &'a Endpoint,
    response: reqwest::Response,
    content_type: String,
    first_byte_until: Instant,
    /// Once the answer is whole, what else may come is waited for only this long.
    only_end: bool,
    read: usize,
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
    fn new(endpoint: &'a Endpoint, response: reqwest::Response, first_byte_until: Instant) -> Self {
        let content_type = text_of(response.headers(), CONTENT_TYPE.as_str()).unwrap_or("");
        Answer {
            content_type: content_type.trim().to_ascii_lowercase(),
            endpoint,
            response,
            first_byte_until,
            only_end: false,
            read: 0,
            head: Vec::new(),
        }
    }

    /// The content type, in small letters.
    pub(crate) fn content_type(&self) -> &str {
        &self.content_type
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
            (Instant::now() + patience, patience)
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
        if self.read > limits::MODEL_REPLY_BYTES_MAX {
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
        let until = Instant::now() + Duration::from_millis(limits::MODEL_DRAIN_MS);
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
        let head = String::from_utf8_lossy(&self.head);
        let words = self.endpoint.explain.good_status(kind, &what, &head);
        Fault::new(kind, Mend::BadReply, words)
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
    async fn refused(mut self) -> Fault {
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
        Timestamp::now(),
    )
}

fn text_of<'h>(headers: &'h HeaderMap, name: &str) -> Option<&'h str> {
    headers.get(name)?.to_str().ok()
}

/// `base_url` with `path` behind it, unless it is there already.
fn address(base_url: &str, path: &str) -> Result<Url, String> {
    let mut url = Url::parse(base_url.trim()).map_err(|error| {
        format!("`base_url` is no address ({error}); it looks like https://host/v1")
    })?;
    if !matches!(url.scheme(), "http" | "https") || !url.has_host() {
        return Err("`base_url` must begin with https:// or http:// and name a host".to_owned());
    }
    let base = url.path().trim_end_matches('/');
    if !base.ends_with(path) {
        let whole = format!("{base}{path}");
        url.set_path(&whole);
    }
    Ok(url)
}

fn headers(access: &ModelAccess) -> Result<HeaderMap, String> {
    let mut headers = HeaderMap::new();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    // A key that was read from a file often has a newline at its end.
    let key = access.api_key.as_deref().map_or("", str::trim);
    if !key.is_empty() {
        let mut value = HeaderValue::from_str(&format!("Bearer {key}"))
            .map_err(|_| "its key holds a character that no HTTP header can carry".to_owned())?;
        value.set_sensitive(true);
        headers.insert(AUTHORIZATION, value);
    }
    for (name, value) in &access.spec.headers {
        let bad = || format!("`headers`: `{name}` or its value can't stand in an HTTP header");
        let name = HeaderName::try_from(name.as_str()).map_err(|_| bad())?;
        let mut value = HeaderValue::from_str(value).map_err(|_| bad())?;
        value.set_sensitive(true);
        headers.insert(name, value);
    }
    Ok(headers)
}

/// The first cause of an error: what is above it only says that something failed.
fn deepest(error: &dyn Error) -> String {
    let mut cause = error;
    while let Some(next) = cause.source() {
        cause = next;
    }
    cause.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use protocol::job::{ModelSpec, Provider};

    #[test]
    fn the_path_is_added_once_and_a_query_stays() {
        for (base, wanted) in [
            ("https://h/v1", "https://h/v1/chat"),
            ("https://h/v1///", "https://h/v1/chat"),
            (" http://127.0.0.1:8080 ", "http://127.0.0.1:8080/chat"),
            ("https://h/v1/chat", "https://h/v1/chat"),
            ("https://h/d?v=1", "https://h/d/chat?v=1"),
        ] {
            assert_eq!(address(base, "/chat").unwrap().as_str(), wanted);
        }
        for bad in ["", "h/v1", "ftp://h/v1", "file:///etc"] {
            assert!(address(bad, "/chat").is_err(), "{bad}");
        }
    }

    #[test]
    fn what_no_header_can_carry_is_refused_without_showing_it() {
        let mut access = ModelAccess {
            spec: ModelSpec::new("main", Provider::Openai, "http://127.0.0.1:1/v1", "m"),
            api_key: Some("sk-secret\nmore".to_owned()),
        };
        let error = Endpoint::new(&access, "/chat").unwrap_err();
        assert_eq!(
            error.message,
            "model `main` can't be used: its key holds a character that no HTTP header can carry"
        );
        access.api_key = Some("sk-secret-key\n".to_owned());
        let endpoint = Endpoint::new(&access, "/chat").unwrap();
        assert_eq!(
            format!("{endpoint:?}"),
            "Endpoint { address: \"http://127.0.0.1:1/v1/chat\", .. }"
        );
        access
            .spec
            .headers
            .insert("a b".into(), "header-secret".into());
        let error = Endpoint::new(&access, "/chat").unwrap_err();
        assert_eq!(
            error.message,
            "model `main` can't be used: `headers`: `a b` or its value can't stand in an HTTP \
             header"
        );
    }
}
