//! What went wrong with one try, and what kind of thing that is.

use std::time::Duration;

use serde_json::Value;

use crate::model::ModelErrorKind;

/// One try that brought no answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Fault {
    /// What it is if nothing mends it.
    pub(crate) kind: ModelErrorKind,
    /// Whether trying again may help.
    pub(crate) mend: Mend,
    /// The pause that the server asks for.
    pub(crate) wish: Option<Duration>,
    /// Status, the provider's words, what to check; never the key.
    pub(crate) message: String,
}

/// Whether trying again may help, and against which bound it counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mend {
    /// The same request gets the same answer.
    Never,
    /// It may pass: no connection, too many requests, a failing server, an early break.
    Again,
    /// The model was silent. Each further try may cost as much time again.
    Silent,
    /// The answer broke after some of it was there. Each further try is paid for again.
    LateCut,
    /// A good status, and no answer in it: as a rule a wrong address.
    BadReply,
    /// The server could not read what its own model wrote. The same question with the same seed
    /// brings the same words.
    Unreadable,
}

impl Fault {
    /// A fault without a wish of the server.
    pub(crate) fn new(kind: ModelErrorKind, mend: Mend, message: impl Into<String>) -> Self {
        Fault {
            kind,
            mend,
            wish: None,
            message: message.into(),
        }
    }

    /// The same fault of an answer of which some was there already.
    #[must_use]
    pub(crate) fn after_content(mut self) -> Self {
        if self.mend == Mend::Again {
            self.mend = Mend::LateCut;
        }
        self
    }
}

/// What a provider says of its refusal.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Refusal {
    /// Its code or, without one, its type.
    pub(crate) code: String,
    /// Its words.
    pub(crate) words: String,
}

impl Refusal {
    /// The error object of an answer, in the shapes that are seen: an object or a text under
    /// `error`, or a bare text under `message` or `detail`.
    pub(crate) fn in_answer(answer: &Value) -> Option<Refusal> {
        let error = match answer.get("error") {
            None | Some(Value::Null) => return Refusal::bare(answer),
            Some(error) => error,
        };
        let code = ["code", "type"]
            .iter()
            .filter_map(|name| word(error.get(name)?))
            .find(|code| !code.is_empty());
        let words = error.get("message").and_then(word);
        Some(Refusal {
            code: code.unwrap_or_default(),
            words: words
                .or_else(|| word(error))
                .unwrap_or_else(|| error.to_string()),
        })
    }

    fn bare(answer: &Value) -> Option<Refusal> {
        let says = |name| answer.get(name).and_then(Value::as_str);
        let words = says("message").or_else(|| says("detail"))?;
        Some(Refusal {
            code: answer.get("code").and_then(word).unwrap_or_default(),
            words: words.to_owned(),
        })
    }
}

fn word(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => None,
    }
}

/// What an HTTP status means, with the provider's words where there are any.
pub(crate) fn judge_status(status: u16, refusal: &Refusal) -> (ModelErrorKind, Mend) {
    match status {
        401 | 403 => (ModelErrorKind::Auth, Mend::Never),
        // A spent budget comes as "too many requests" too, but waiting does not fill it.
        429 if is_spent(refusal) => (ModelErrorKind::Refused, Mend::Never),
        429 => (ModelErrorKind::Server, Mend::Again),
        413 => (ModelErrorKind::ContextTooLong, Mend::Never),
        _ if is_context_too_long(refusal) => (ModelErrorKind::ContextTooLong, Mend::Never),
        500 if is_unreadable_output(refusal) => UNREADABLE,
        408 | 409 | 500..=599 => (ModelErrorKind::Server, Mend::Again),
        _ => (ModelErrorKind::Refused, Mend::Never),
    }
}

/// What an error object inside an answer with a good status means. Routers put the status that
/// they got from the provider behind them into its code.
pub(crate) fn judge_refusal(refusal: &Refusal) -> (ModelErrorKind, Mend) {
    if let Some(status) = refusal.code.parse().ok().filter(|code| *code >= 300) {
        return judge_status(status, refusal);
    }
    let code = refusal.code.to_lowercase();
    if is_context_too_long(refusal) || code == "request_too_large" {
        (ModelErrorKind::ContextTooLong, Mend::Never)
    } else if is_unreadable_output(refusal) {
        UNREADABLE
    } else if is_spent(refusal) {
        (ModelErrorKind::Refused, Mend::Never)
    } else if ["api_key", "authentication", "permission"]
        .iter()
        .any(|word| code.contains(word))
    {
        (ModelErrorKind::Auth, Mend::Never)
    } else if ["invalid_request", "not_found", "unsupported", "billing"]
        .iter()
        .any(|word| code.contains(word))
    {
        (ModelErrorKind::Refused, Mend::Never)
    } else {
        (ModelErrorKind::Server, Mend::Again)
    }
}

const UNREADABLE: (ModelErrorKind, Mend) = (ModelErrorKind::UnreadableOutput, Mend::Unreadable);

/// Whether a server says that it could not make an answer of what its model wrote. Servers that
/// force their models into the shape of a call answer so when that fails.
fn is_unreadable_output(refusal: &Refusal) -> bool {
    const WORDS: [&str; 5] = [
        "does not match the expected",
        "failed to parse tool call",
        "failed to parse function call",
        "failed to parse model output",
        "error parsing tool call",
    ];
    let words = refusal.words.to_lowercase();
    WORDS.iter().any(|known| words.contains(known))
}

fn is_spent(refusal: &Refusal) -> bool {
    refusal.code.to_lowercase().contains("insufficient_quota")
}

/// Whether a refusal says that the conversation is longer than the model's context. There is no
/// common code for it, so the words of the servers in use are looked for.
fn is_context_too_long(refusal: &Refusal) -> bool {
    const CODES: [&str; 3] = [
        "context_length_exceeded",
        "exceed_context_size",
        "context_window_exceeded",
    ];
    const WORDS: [&str; 9] = [
        "context length",
        "context window",
        "context size",
        "context limit",
        "maximum context",
        "prompt is too long",
        "range of input length",
        "exceeded model token limit",
        "input is too long",
    ];
    let code = refusal.code.to_lowercase();
    let words = refusal.words.to_lowercase();
    CODES.iter().any(|known| code.contains(known))
        || WORDS.iter().any(|known| words.contains(known))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn refusal(code: &str, words: &str) -> Refusal {
        Refusal {
            code: code.to_owned(),
            words: words.to_owned(),
        }
    }

    #[test]
    fn an_error_object_is_found_in_every_shape() {
        for (answer, wanted) in [
            (
                json!({"error": {"message": "m", "code": "c", "type": "t"}}),
                Some(("c", "m")),
            ),
            (
                json!({"error": {"message": "m", "code": null, "type": "t"}}),
                Some(("t", "m")),
            ),
            (
                json!({"error": {"message": "m", "code": 429}}),
                Some(("429", "m")),
            ),
            (json!({"error": "plain words"}), Some(("", "plain words"))),
            (json!({"error": {"odd": 1}}), Some(("", "{\"odd\":1}"))),
            (json!({"code": "c", "message": "m"}), Some(("c", "m"))),
            (json!({"detail": "Not Found"}), Some(("", "Not Found"))),
            (json!({"error": null, "choices": []}), None),
            (json!([]), None),
        ] {
            let wanted = wanted.map(|(code, words)| refusal(code, words));
            assert_eq!(Refusal::in_answer(&answer), wanted, "{answer}");
        }
    }

    #[test]
    fn each_status_has_one_meaning() {
        let plain = Refusal::default();
        for (status, kind, mend) in [
            (301, ModelErrorKind::Refused, Mend::Never),
            (400, ModelErrorKind::Refused, Mend::Never),
            (401, ModelErrorKind::Auth, Mend::Never),
            (403, ModelErrorKind::Auth, Mend::Never),
            (404, ModelErrorKind::Refused, Mend::Never),
            (408, ModelErrorKind::Server, Mend::Again),
            (409, ModelErrorKind::Server, Mend::Again),
            (413, ModelErrorKind::ContextTooLong, Mend::Never),
            (422, ModelErrorKind::Refused, Mend::Never),
            (429, ModelErrorKind::Server, Mend::Again),
            (500, ModelErrorKind::Server, Mend::Again),
            (502, ModelErrorKind::Server, Mend::Again),
            (529, ModelErrorKind::Server, Mend::Again),
            (600, ModelErrorKind::Refused, Mend::Never),
        ] {
            assert_eq!(judge_status(status, &plain), (kind, mend), "{status}");
        }
    }

    #[test]
    fn a_context_that_is_too_long_is_recognised_in_each_servers_words() {
        let too_long = (ModelErrorKind::ContextTooLong, Mend::Never);
        for (status, code, words) in [
            (400, "context_length_exceeded", ""),
            (400, "CONTEXT_LENGTH_EXCEEDED", "Context length exceeded"),
            (
                400,
                "",
                "This model's maximum context length is 8192 tokens.",
            ),
            (
                500,
                "exceed_context_size_error",
                "the request exceeds the available context size",
            ),
            (
                400,
                "InvalidParameter",
                "Range of input length should be [1, 30720]",
            ),
            (
                400,
                "invalid_request_error",
                "Your request exceeded model token limit: 8192",
            ),
            (
                400,
                "",
                "prompt is too long: 210000 tokens > 200000 maximum",
            ),
        ] {
            let refusal = refusal(code, words);
            assert_eq!(judge_status(status, &refusal), too_long, "{words}");
            assert_eq!(judge_refusal(&refusal), too_long, "{words}");
        }
        // A limit of tokens a minute passes by waiting, whatever else its text speaks of.
        let rate = refusal("rate_limit", "tokens per minute, see the context window");
        assert_eq!(
            judge_status(429, &rate),
            (ModelErrorKind::Server, Mend::Again)
        );
    }

    #[test]
    fn output_that_the_server_can_not_read_is_told_from_a_server_that_fails() {
        for words in [
            "The model output does not match the expected peg-native format",
            "error parsing tool call: raw='{\"path' err=unexpected end of JSON input",
        ] {
            let refusal = refusal("500", words);
            assert_eq!(judge_status(500, &refusal), UNREADABLE, "{words}");
            assert_eq!(judge_refusal(&refusal), UNREADABLE, "{words}");
        }
        let plain = refusal("", "internal error");
        assert_eq!(
            judge_status(500, &plain),
            (ModelErrorKind::Server, Mend::Again)
        );
    }

    #[test]
    fn an_error_inside_a_good_answer_is_judged_by_its_code() {
        for (code, kind, mend) in [
            ("429", ModelErrorKind::Server, Mend::Again),
            ("401", ModelErrorKind::Auth, Mend::Never),
            ("rate_limit_exceeded", ModelErrorKind::Server, Mend::Again),
            ("overloaded_error", ModelErrorKind::Server, Mend::Again),
            ("invalid_api_key", ModelErrorKind::Auth, Mend::Never),
            (
                "invalid_request_error",
                ModelErrorKind::Refused,
                Mend::Never,
            ),
            ("insufficient_quota", ModelErrorKind::Refused, Mend::Never),
            ("", ModelErrorKind::Server, Mend::Again),
            ("17", ModelErrorKind::Server, Mend::Again),
        ] {
            assert_eq!(judge_refusal(&refusal(code, "x")), (kind, mend), "{code}");
        }
        let spent = refusal("insufficient_quota", "check your plan");
        assert_eq!(
            judge_status(429, &spent),
            (ModelErrorKind::Refused, Mend::Never)
        );
    }
}
