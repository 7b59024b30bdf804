//! One address that is posted to, with its headers and time-outs.

use std::error::Error;
use std::time::Duration;

use protocol::channel::ModelAccess;
use reqwest::Url;
use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use tokio::time::timeout_at;

use super::answer::Answer;
use super::client::client;
use super::explain::Explainer;
use super::wire::Wire;
use crate::io::clock;
use crate::model::fault::{Fault, Mend};
use crate::model::{ModelError, ModelErrorKind};

/// An address with its headers.
pub(crate) struct Endpoint {
    client: reqwest::Client,
    url: Url,
    headers: HeaderMap,
    pub(super) first_byte: Duration,
    pub(super) gap: Duration,
    pub(super) explain: Explainer,
}

impl std::fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Endpoint")
            .field("address", &self.explain.address())
            .finish_non_exhaustive()
    }
}

impl Endpoint {
    /// Prepares the address below `base_url` with the key in the header where `wire` wants it.
    ///
    /// # Errors
    /// When the address, a header or the key can't be used.
    pub(crate) fn new(access: &ModelAccess, wire: Wire) -> Result<Self, ModelError> {
        let spec = &access.spec;
        let unusable = |what: String| ModelError {
            kind: ModelErrorKind::Refused,
            message: format!("model `{}` can't be used: {what}", spec.key),
            requests: 0,
        };
        let url = wire.address(&spec.base_url).map_err(&unusable)?;
        let headers = headers(access, wire).map_err(&unusable)?;
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
        let first_byte_until = clock::after(self.first_byte);
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
        if answer.is_good() {
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
        let mend = if is_tls(error) {
            Mend::Never
        } else {
            Mend::Again
        };
        let what = format!("{what}: {}", deepest(error));
        Fault::new(kind, mend, self.explain.transport(kind, &what))
    }

    /// Nothing came for this long.
    pub(super) fn silent(&self, after: Duration) -> Fault {
        let what = format!("the model was silent for {} s", after.as_secs());
        let kind = ModelErrorKind::Stalled;
        Fault::new(kind, Mend::Silent, self.explain.transport(kind, &what))
    }
}

fn headers(access: &ModelAccess, wire: Wire) -> Result<HeaderMap, String> {
    let mut headers = HeaderMap::new();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    if let Some((name, value)) = wire.version() {
        let value = HeaderValue::from_static(value);
        headers.insert(HeaderName::from_static(name), value);
    }
    // A key that was read from a file often has a newline at its end.
    let key = access.api_key.as_deref().map_or("", str::trim);
    if !key.is_empty() {
        let (name, text) = wire.key_header(key);
        let mut value = HeaderValue::from_str(&text)
            .map_err(|_| "its key holds a character that no HTTP header can carry".to_owned())?;
        value.set_sensitive(true);
        headers.insert(name, value);
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

/// Whether it was TLS that failed: a certificate that is not trusted, or a server that speaks no
/// TLS, is the same at the next try.
fn is_tls(error: &(dyn Error + 'static)) -> bool {
    let mut cause = Some(error);
    while let Some(error) = cause {
        if error.is::<rustls::Error>() {
            return true;
        }
        // What an I/O error wraps is not among its sources, only what that one's sources are.
        let wrapped = error
            .downcast_ref::<std::io::Error>()
            .and_then(std::io::Error::get_ref);
        cause = match wrapped {
            Some(wrapped) => Some(wrapped),
            None => error.source(),
        };
    }
    false
}

/// The first cause of an error: what is above it only says that something failed.
pub(super) fn deepest(error: &dyn Error) -> String {
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
    fn what_no_header_can_carry_is_refused_without_showing_it() {
        let mut access = ModelAccess {
            spec: ModelSpec::new("main", Provider::Openai, "http://127.0.0.1:1/v1", "m"),
            api_key: Some("sk-secret\nmore".to_owned()),
        };
        let error = Endpoint::new(&access, Wire::ChatCompletions).unwrap_err();
        assert_eq!(
            error.message,
            "model `main` can't be used: its key holds a character that no HTTP header can carry"
        );
        access.api_key = Some("sk-secret-key\n".to_owned());
        let endpoint = Endpoint::new(&access, Wire::ChatCompletions).unwrap();
        assert_eq!(
            format!("{endpoint:?}"),
            "Endpoint { address: \"http://127.0.0.1:1/v1/chat/completions\", .. }"
        );
        access
            .spec
            .headers
            .insert("a b".into(), "header-secret".into());
        let error = Endpoint::new(&access, Wire::ChatCompletions).unwrap_err();
        assert_eq!(
            error.message,
            "model `main` can't be used: `headers`: `a b` or its value can't stand in an HTTP \
             header"
        );
    }
}
