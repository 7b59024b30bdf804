//! Finds known values in texts and puts a mark in their place.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use serde_json::Value;

use crate::secret::MaskStream;
use crate::secret::forms::forms;
use crate::secret::known::can_be_masked;

/// What stands in the place of a secret. Nothing in it needs an escape in JSON, a shell or a URL.
pub const MARK: &str = "[masked]";

/// What is to be hidden. Cheap to clone; its `Debug` tells only how much it is.
#[derive(Clone, Default)]
pub struct Mask {
    needles: Arc<Needles>,
}

#[derive(Default)]
struct Needles {
    /// By the first byte.
    by_first: Vec<Vec<Vec<u8>>>,
    values: usize,
}

/// What begins at some place of a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Found {
    /// Nothing.
    Nothing,
    /// A secret of so many bytes; the longest if there are several.
    Secret(usize),
    /// Perhaps a secret, or a longer one: the text goes on.
    Open,
}

impl fmt::Debug for Mask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Mask({} values)", self.needles.values)
    }
}

impl Mask {
    /// Hides these values, in every form that [`MARK`]'s readers may meet them in: plain, JSON,
    /// percent-encoded, hexadecimal, base64. What is too short to be told from ordinary text is
    /// left out; see [`crate::secret::known_values`].
    pub fn of<T: AsRef<str>>(values: impl IntoIterator<Item = T>) -> Self {
        let values: BTreeSet<String> = values
            .into_iter()
            .map(|value| value.as_ref().to_owned())
            .filter(|value| can_be_masked(value))
            .collect();
        if values.is_empty() {
            return Mask::default();
        }
        let mut by_first = vec![Vec::new(); 256];
        for form in values.iter().flat_map(|value| forms(value)) {
            if let Some(first) = form.first() {
                by_first[usize::from(*first)].push(form);
            }
        }
        Mask {
            needles: Arc::new(Needles {
                by_first,
                values: values.len(),
            }),
        }
    }

    /// Whether there is nothing to hide.
    pub fn is_empty(&self) -> bool {
        self.needles.values == 0
    }

    /// A text without secrets.
    pub fn text<'a>(&self, text: &'a str) -> Cow<'a, str> {
        if !self.is_in(text.as_bytes()) {
            return Cow::Borrowed(text);
        }
        Cow::Owned(self.masked(text, false))
    }

    /// A text without secrets, in place.
    pub fn apply(&self, text: &mut String) {
        if self.is_in(text.as_bytes()) {
            *text = self.masked(text, false);
        }
    }

    /// A text that goes on, without secrets and without an end that may be the beginning of one.
    pub fn text_so_far(&self, text: &str) -> String {
        self.masked(text, true)
    }

    /// Takes the secrets out of every text of a JSON value, keys of objects as well.
    pub fn json(&self, value: &mut Value) {
        if self.is_empty() {
            return;
        }
        match value {
            Value::String(text) => self.apply(text),
            Value::Array(items) => items.iter_mut().for_each(|item| self.json(item)),
            Value::Object(fields) => {
                fields.values_mut().for_each(|field| self.json(field));
                if fields.keys().any(|key| self.is_in(key.as_bytes())) {
                    let masked = std::mem::take(fields).into_iter();
                    *fields = masked
                        .map(|(key, field)| (self.text(&key).into_owned(), field))
                        .collect();
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }

    /// Takes bytes piece by piece.
    pub fn stream(&self) -> MaskStream {
        MaskStream::new(self.clone())
    }

    fn masked(&self, text: &str, goes_on: bool) -> String {
        let mut stream = self.stream();
        let mut out = Vec::with_capacity(text.len());
        stream.push(text.as_bytes(), &mut out);
        if !goes_on {
            stream.finish(&mut out);
        }
        // Secrets are whole characters, and so is what is left of a text without them; only an
        // open end may cut one.
        match String::from_utf8(out) {
            Ok(text) => text,
            Err(error) => String::from_utf8_lossy(error.as_bytes()).into_owned(),
        }
    }

    /// Whether any secret stands in these bytes, in any form.
    pub fn is_in(&self, bytes: &[u8]) -> bool {
        let mut at = 0;
        while let Some(ahead) = self.candidate(&bytes[at..]) {
            at += ahead;
            if let Found::Secret(_) = self.at(&bytes[at..], false) {
                return true;
            }
            at += 1;
        }
        false
    }

    /// How far it is to the next byte that a secret may begin with.
    pub(super) fn candidate(&self, bytes: &[u8]) -> Option<usize> {
        if self.is_empty() {
            return None;
        }
        let by_first = &self.needles.by_first;
        bytes
            .iter()
            .position(|byte| !by_first[usize::from(*byte)].is_empty())
    }

    /// What begins at the start of `rest`. `goes_on` says whether more may come behind it.
    pub(super) fn at(&self, rest: &[u8], goes_on: bool) -> Found {
        let Some(first) = rest.first().filter(|_| !self.is_empty()) else {
            return Found::Nothing;
        };
        let mut found = Found::Nothing;
        for needle in &self.needles.by_first[usize::from(*first)] {
            let common = needle.len().min(rest.len());
            if needle[..common] != rest[..common] {
                continue;
            }
            found = match found {
                _ if common < needle.len() && goes_on => return Found::Open,
                _ if common < needle.len() => found,
                Found::Secret(longest) => Found::Secret(longest.max(common)),
                Found::Nothing | Found::Open => Found::Secret(common),
            };
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_key_is_hidden_in_every_form_and_the_rest_stands() {
        let mask = Mask::of(["tok123456789"]);
        for (text, expected) in [
            ("echo pre-tok123456789-post", "echo pre-[masked]-post"),
            ("dG9rMTIzNDU2Nzg5\n", "[masked]\n"),
            ("Basic eHRvazEyMzQ1Njc4OQ==", "Basic eH[masked]Q=="),
            ("746f6b313233343536373839", "[masked]"),
            ("tok12345678", "tok12345678"),
            ("", ""),
            ("tok123456789tok123456789", "[masked]"),
            ("文tok123456789文", "文[masked]文"),
        ] {
            assert_eq!(mask.text(text), expected);
        }
        assert_eq!(format!("{mask:?}"), "Mask(1 values)");
    }

    #[test]
    fn secrets_that_overlap_are_hidden_whole() {
        let mask = Mask::of(["AAAABBBB1", "BBBB1CCCC", "BBBB1CCCCDDDD"]);
        assert_eq!(mask.text("xAAAABBBB1CCCCy"), "x[masked]y");
        assert_eq!(mask.text("xBBBB1CCCCDDDDy"), "x[masked]y");
        assert_eq!(mask.text("xBBBB1CCCCDDDy"), "x[masked]DDDy");
    }

    #[test]
    fn short_values_hide_nothing() {
        let mask = Mask::of(["test", "", "ollama", "none"]);
        assert!(mask.is_empty());
        assert_eq!(
            mask.text("test with ollama, none"),
            "test with ollama, none"
        );
    }

    #[test]
    fn a_value_inside_a_json_text_leaves_it_valid() {
        let secret = "quo\"te\\12345";
        let mask = Mask::of([secret]);
        let mut value = json!({"a": [secret, 1, null], secret: {"b": format!("x{secret}y")}});
        mask.json(&mut value);
        let expected = json!({"a": [MARK, 1, null], MARK: {"b": "x[masked]y"}});
        assert_eq!(value, expected);
        let arguments = json!({"command": format!("echo {secret}")}).to_string();
        let masked = mask.text(&arguments).into_owned();
        let read: Value = serde_json::from_str(&masked).unwrap();
        assert_eq!(read, json!({"command": "echo [masked]"}));
    }

    #[test]
    fn an_open_end_shows_no_beginning_of_a_secret() {
        let mask = Mask::of(["tok123456789"]);
        assert_eq!(mask.text_so_far("said tok1234"), "said ");
        assert_eq!(mask.text_so_far("said tok123456789"), "said [masked]");
        assert_eq!(mask.text_so_far("said top"), "said top");
    }
}
