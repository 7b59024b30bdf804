//! What differs between the dialects before the body: the path, and how the key is sent.

use reqwest::Url;
use reqwest::header::{AUTHORIZATION, HeaderName};

/// Which interface of a server is spoken to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wire {
    /// `POST …/chat/completions` with a bearer token.
    ChatCompletions,
    /// `POST …/v1/messages` with `x-api-key` and the version of the interface.
    Messages,
}

/// The version of the Messages interface whose shapes are spoken here.
const MESSAGES_VERSION: &str = "2023-06-01";

impl Wire {
    /// The address below a `base_url`, whose query stays.
    ///
    /// # Errors
    /// When `base_url` is no address of a web server, in words.
    pub(super) fn address(self, base_url: &str) -> Result<Url, String> {
        let mut url = Url::parse(base_url.trim()).map_err(|error| {
            format!("`base_url` is no address ({error}); it looks like https://host/v1")
        })?;
        if !matches!(url.scheme(), "http" | "https") || !url.has_host() {
            return Err(
                "`base_url` must begin with https:// or http:// and name a host".to_owned(),
            );
        }
        let base = url.path().trim_end_matches('/').to_owned();
        let path = match self {
            Wire::ChatCompletions => "/chat/completions",
            // Addresses of this interface are written without their version by habit.
            Wire::Messages if ends_in_version(&base) || base.ends_with("/messages") => "/messages",
            Wire::Messages => "/v1/messages",
        };
        if !base.ends_with(path) {
            url.set_path(&format!("{base}{path}"));
        }
        Ok(url)
    }

    /// The header that carries the key, and its text.
    pub(super) fn key_header(self, key: &str) -> (HeaderName, String) {
        match self {
            Wire::ChatCompletions => (AUTHORIZATION, format!("Bearer {key}")),
            Wire::Messages => (HeaderName::from_static("x-api-key"), key.to_owned()),
        }
    }

    /// The header that names the version of the interface, if it has one.
    pub(super) fn version(self) -> Option<(&'static str, &'static str)> {
        match self {
            Wire::ChatCompletions => None,
            Wire::Messages => Some(("anthropic-version", MESSAGES_VERSION)),
        }
    }
}

/// Whether the last part of a path is such as `v1`.
fn ends_in_version(path: &str) -> bool {
    let last = path.rsplit('/').next().unwrap_or("");
    last.strip_prefix('v')
        .is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_path_is_added_once_and_a_query_stays() {
        for (wire, base, wanted) in [
            (
                Wire::ChatCompletions,
                "https://h/v1",
                "https://h/v1/chat/completions",
            ),
            (
                Wire::ChatCompletions,
                "https://h/v1///",
                "https://h/v1/chat/completions",
            ),
            (
                Wire::ChatCompletions,
                " http://127.0.0.1:8080 ",
                "http://127.0.0.1:8080/chat/completions",
            ),
            (
                Wire::ChatCompletions,
                "https://h/v1/chat/completions",
                "https://h/v1/chat/completions",
            ),
            (
                Wire::ChatCompletions,
                "https://h/d?v=1",
                "https://h/d/chat/completions?v=1",
            ),
            (Wire::Messages, "https://h", "https://h/v1/messages"),
            (Wire::Messages, "https://h/", "https://h/v1/messages"),
            (Wire::Messages, "https://h/v1/", "https://h/v1/messages"),
            (
                Wire::Messages,
                "https://h/anthropic",
                "https://h/anthropic/v1/messages",
            ),
            (
                Wire::Messages,
                "https://h/v1/messages",
                "https://h/v1/messages",
            ),
        ] {
            assert_eq!(wire.address(base).unwrap().as_str(), wanted);
        }
        for bad in ["", "h/v1", "ftp://h/v1", "file:///etc"] {
            assert!(Wire::ChatCompletions.address(bad).is_err(), "{bad}");
        }
    }
}
