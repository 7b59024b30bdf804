//! What is said of a failure: where, what, and which setting to look at. Never a secret.

use protocol::channel::ModelAccess;
use protocol::limits;
use reqwest::{StatusCode, Url};

use crate::model::ModelErrorKind;

/// What stands in the place of a secret.
const HIDDEN: &str = "[hidden]";
/// A shorter secret is not looked for: it would hide half of every text.
const SECRET_BYTES_MIN: usize = 6;

/// Who is spoken to and which settings led there.
#[derive(Clone)]
pub(super) struct Explainer {
    key: String,
    model: String,
    api_key_env: Option<String>,
    has_key: bool,
    address: String,
    secrets: Vec<String>,
}

impl std::fmt::Debug for Explainer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Explainer")
            .field("key", &self.key)
            .field("address", &self.address)
            .finish_non_exhaustive()
    }
}

impl Explainer {
    pub(super) fn new(access: &ModelAccess, url: &Url) -> Self {
        let key = access.api_key.as_deref().map(str::trim);
        let words = key.into_iter().chain(url.password());
        let secrets = words
            .chain(access.spec.headers.values().map(String::as_str))
            .filter(|secret| secret.len() >= SECRET_BYTES_MIN)
            .map(str::to_owned)
            .collect();
        Explainer {
            key: access.spec.key.clone(),
            model: access.spec.model.clone(),
            api_key_env: access.spec.api_key_env.clone(),
            has_key: key.is_some_and(|key| !key.is_empty()),
            address: shown(url),
            secrets,
        }
    }

    /// The address without user, password and query, any of which may be a secret.
    pub(super) fn address(&self) -> &str {
        &self.address
    }

    /// An answer with a bad status.
    pub(super) fn status(
        &self,
        kind: ModelErrorKind,
        status: StatusCode,
        content_type: &str,
        body: &str,
    ) -> String {
        format!(
            "{} answered {} ({}): {}; {}",
            self.address,
            status,
            or_none(content_type),
            self.excerpt(body),
            self.hint(kind, Some(status))
        )
    }

    /// An error object or something that is no answer, with a good status.
    pub(super) fn good_status(&self, kind: ModelErrorKind, what: &str, words: &str) -> String {
        format!(
            "{}: {what}: {}; {}",
            self.address,
            self.excerpt(words),
            self.hint(kind, None)
        )
    }

    /// No answer, or half of one.
    pub(super) fn transport(&self, kind: ModelErrorKind, what: &str) -> String {
        format!(
            "{}: {}; {}",
            self.address,
            self.hide(what),
            self.hint(kind, None)
        )
    }

    /// The beginning of a text on one line, without secrets.
    fn excerpt(&self, text: &str) -> String {
        let mut words = self.hide(text);
        words = words.split_whitespace().collect::<Vec<_>>().join(" ");
        if words.is_empty() {
            return "(nothing)".to_owned();
        }
        match words.char_indices().nth(limits::MODEL_ERROR_CHARS_MAX) {
            Some((end, _)) => format!("{}…", &words[..end]),
            None => words,
        }
    }

    fn hide(&self, text: &str) -> String {
        let mut text = text.to_owned();
        for secret in &self.secrets {
            text = text.replace(secret.as_str(), HIDDEN);
        }
        text
    }

    /// What to look at.
    fn hint(&self, kind: ModelErrorKind, status: Option<StatusCode>) -> String {
        let key = &self.key;
        match kind {
            ModelErrorKind::Auth => match &self.api_key_env {
                Some(name) => format!(
                    "check the key in the environment variable `{name}` (`api_key_env` of model \
                     `{key}`)"
                ),
                None if self.has_key => format!("check the key of model `{key}`"),
                None => format!(
                    "no key was sent: let `api_key_env` of model `{key}` name the environment \
                     variable that holds it"
                ),
            },
            ModelErrorKind::Refused => match status {
                Some(StatusCode::NOT_FOUND) => format!(
                    "check `model` (`{}`) and `base_url` of model `{key}`",
                    self.model
                ),
                Some(status) if status.is_redirection() => {
                    format!("redirects are not followed: check `base_url` of model `{key}`")
                }
                _ => format!(
                    "check `model` (`{}`) and `body` of model `{key}`",
                    self.model
                ),
            },
            ModelErrorKind::ContextTooLong => format!(
                "the conversation is longer than the model takes: check `context_tokens` of model \
                 `{key}`"
            ),
            ModelErrorKind::Connect => {
                format!("check that the server runs, and `base_url` of model `{key}`")
            }
            ModelErrorKind::BadReply => format!(
                "check `base_url` of model `{key}`: as a rule it ends in a version such as `/v1`"
            ),
            ModelErrorKind::Stalled => format!(
                "check the server, or raise `first_byte_seconds` or `gap_seconds` in `timeouts` of \
                 model `{key}`"
            ),
            ModelErrorKind::UnreadableOutput => format!(
                "the model `{}` writes calls that its server can't read: use another one than \
                 `{key}`, or set `body` of it, for example `parallel_tool_calls`",
                self.model
            ),
            ModelErrorKind::Server
            | ModelErrorKind::Cut
            | ModelErrorKind::Deadline
            | ModelErrorKind::Script => {
                format!("try again later, or use another model than `{key}`")
            }
        }
    }
}

/// An address as it may be shown.
fn shown(url: &Url) -> String {
    let mut shown = url.clone();
    shown.set_query(None);
    shown.set_fragment(None);
    // These fail only for addresses that can have neither, and then there is nothing to remove.
    let removed = shown.set_password(None).and(shown.set_username(""));
    debug_assert!(removed.is_ok());
    shown.to_string()
}

fn or_none(content_type: &str) -> &str {
    if content_type.is_empty() {
        "no content type"
    } else {
        content_type
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use protocol::job::{ModelSpec, Provider};

    fn explainer(key: Option<&str>, env: Option<&str>) -> Explainer {
        let mut spec = ModelSpec::new("main", Provider::Openai, "", "some-model");
        spec.api_key_env = env.map(str::to_owned);
        spec.headers
            .insert("api-key".to_owned(), "header-secret".to_owned());
        let access = ModelAccess {
            spec,
            api_key: key.map(str::to_owned),
        };
        let url = Url::parse("https://user:password@host.example/v1/x?key=secret").unwrap();
        Explainer::new(&access, &url)
    }

    #[test]
    fn a_failure_says_where_what_and_which_setting() {
        let explainer = explainer(Some("sk-secret-key\n"), Some("SOME_KEY"));
        assert_eq!(
            explainer.status(
                ModelErrorKind::Auth,
                StatusCode::UNAUTHORIZED,
                "application/json",
                "Incorrect key:\n  sk-secret-key, header-secret, password"
            ),
            "https://host.example/v1/x answered 401 Unauthorized (application/json): Incorrect \
             key: [hidden], [hidden], [hidden]; check the key in the environment variable \
             `SOME_KEY` (`api_key_env` of model `main`)"
        );
        assert_eq!(
            explainer.status(ModelErrorKind::Refused, StatusCode::NOT_FOUND, "", " "),
            "https://host.example/v1/x answered 404 Not Found (no content type): (nothing); check \
             `model` (`some-model`) and `base_url` of model `main`"
        );
        let debug = format!("{explainer:?}");
        assert!(!debug.contains("secret"), "{debug}");
    }

    #[test]
    fn at_most_two_hundred_characters_of_a_body_are_shown() {
        let explainer = explainer(None, None);
        let exact = "固".repeat(limits::MODEL_ERROR_CHARS_MAX);
        assert_eq!(explainer.excerpt(&exact), exact);
        assert_eq!(explainer.excerpt(&format!("{exact}x")), format!("{exact}…"));
    }

    #[test]
    fn without_a_key_the_hint_says_how_to_give_one() {
        let hint = |key, env| explainer(key, env).hint(ModelErrorKind::Auth, None);
        assert_eq!(
            hint(None, None),
            "no key was sent: let `api_key_env` of model `main` name the environment variable \
             that holds it"
        );
        assert_eq!(hint(Some("k"), None), "check the key of model `main`");
    }
}
