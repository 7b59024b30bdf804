//! A text with places for values: `{name}`. Any other brace is an ordinary character.

use std::collections::BTreeSet;

/// One text, cut at its places.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Template {
    pieces: Vec<Piece>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Piece {
    Plain(String),
    Slot(String),
}

impl Template {
    /// Cuts a text. Line ends become `\n`, a byte order mark and blank lines at the end go.
    pub(super) fn parse(text: &str) -> Self {
        let text = text.trim_start_matches('\u{feff}').replace("\r\n", "\n");
        let mut rest = text.trim_end();
        let mut pieces = Vec::new();
        let mut plain = String::new();
        while let Some(open) = rest.find('{') {
            plain.push_str(&rest[..open]);
            rest = &rest[open..];
            match slot_name(rest) {
                Some(name) => {
                    if !plain.is_empty() {
                        pieces.push(Piece::Plain(std::mem::take(&mut plain)));
                    }
                    pieces.push(Piece::Slot(name.to_owned()));
                    rest = &rest[name.len() + 2..];
                }
                None => {
                    plain.push('{');
                    rest = &rest[1..];
                }
            }
        }
        plain.push_str(rest);
        if !plain.is_empty() {
            pieces.push(Piece::Plain(plain));
        }
        Template { pieces }
    }

    /// The names of its places.
    pub(super) fn slots(&self) -> BTreeSet<&str> {
        self.pieces
            .iter()
            .filter_map(|piece| match piece {
                Piece::Slot(name) => Some(name.as_str()),
                Piece::Plain(_) => None,
            })
            .collect()
    }

    /// Whether nothing stands in it.
    pub(super) fn is_empty(&self) -> bool {
        self.pieces.is_empty()
    }

    /// Puts values into the places. A value is inserted as it is: braces in it mean nothing. A
    /// place without a value keeps its name, so that a mistake is seen and not silently swallowed.
    pub(super) fn fill(&self, values: &[(&str, &str)]) -> String {
        let mut text = String::new();
        for piece in &self.pieces {
            match piece {
                Piece::Plain(plain) => text.push_str(plain),
                Piece::Slot(name) => match values.iter().find(|(known, _)| known == name) {
                    Some((_, value)) => text.push_str(value),
                    None => {
                        text.push('{');
                        text.push_str(name);
                        text.push('}');
                    }
                },
            }
        }
        text
    }
}

/// The name of the place that a text begins with, if it begins with one.
fn slot_name(text: &str) -> Option<&str> {
    let inner = text.strip_prefix('{')?;
    let name = &inner[..inner.find('}')?];
    let first = name.bytes().next()?;
    let fits = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_';
    (first.is_ascii_lowercase() && name.bytes().all(fits)).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_text_without_values_comes_back_as_it_is(text in "[{}a-z_0 é\n]{0,60}") {
            prop_assert_eq!(Template::parse(&text).fill(&[]), text.trim_end());
        }

        #[test]
        fn a_value_comes_through_untouched(value in "\\PC{0,60}") {
            let filled = Template::parse("<{a}|{b}>").fill(&[("a", &value), ("b", "x")]);
            prop_assert_eq!(filled, format!("<{value}|x>"));
        }
    }

    #[test]
    fn inserted_braces_are_never_interpreted() {
        let template = Template::parse("{task} for {agent_id}: {task}\n\n");
        let filled = template.fill(&[("task", "{agent_id} {x} }{"), ("agent_id", "7")]);
        assert_eq!(filled, "{agent_id} {x} }{ for 7: {agent_id} {x} }{");
    }

    #[test]
    fn other_braces_are_ordinary_characters() {
        for plain in [
            "{}",
            "{ a }",
            "{A}",
            "{a",
            "{{",
            "a}b",
            "{\"k\": 1}",
            "{1a}",
        ] {
            let template = Template::parse(plain);
            assert_eq!(template.slots().len(), 0, "{plain}");
            assert_eq!(template.fill(&[]), plain);
        }
        let nested = Template::parse("{{name}}");
        assert_eq!(nested.fill(&[("name", "x")]), "{x}");
    }

    #[test]
    fn line_ends_and_a_byte_order_mark_do_not_reach_the_model() {
        assert_eq!(Template::parse("\u{feff}a\r\nb\r\n\n").fill(&[]), "a\nb");
        assert!(Template::parse(" \n").is_empty());
    }
}
