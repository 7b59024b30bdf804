//! JSON as providers really send it: with halves of emoji in it.

use std::borrow::Cow;

use serde_json::Value;

/// Reads JSON in which a surrogate may stand without its other half. A provider that cuts an
/// emoji in two leaves such a half behind, and `serde_json` refuses the whole document for it.
///
/// # Errors
/// When it is no JSON even so.
pub(crate) fn parse(text: &str) -> Result<Value, serde_json::Error> {
    serde_json::from_str(text).or_else(|error| match mend_surrogates(text) {
        Cow::Borrowed(_) => Err(error),
        Cow::Owned(mended) => serde_json::from_str(&mended),
    })
}

/// Puts U+FFFD in the place of each escaped surrogate without its other half; all else stays as
/// it is, to the byte.
pub(crate) fn mend_surrogates(text: &str) -> Cow<'_, str> {
    let mut mended = String::new();
    let mut copied = 0;
    let mut at = 0;
    while let Some(found) = text[at..].find('\\') {
        at += found;
        match escaped_unit(&text[at..]) {
            Some(0xD800..=0xDBFF) if follows_low(&text[at + ESCAPE..]) => at += 2 * ESCAPE,
            Some(0xD800..=0xDFFF) => {
                mended.push_str(&text[copied..at]);
                mended.push_str("\\ufffd");
                at += ESCAPE;
                copied = at;
            }
            Some(_) => at += ESCAPE,
            // Some other escape: the backslash and the character behind it.
            None => at += 1 + text[at + 1..].chars().next().map_or(0, char::len_utf8),
        }
    }
    if copied == 0 {
        return Cow::Borrowed(text);
    }
    mended.push_str(&text[copied..]);
    Cow::Owned(mended)
}

/// The length of `\uXXXX`.
const ESCAPE: usize = 6;

/// The UTF-16 unit of the escape that `text` begins with.
fn escaped_unit(text: &str) -> Option<u16> {
    let digits = text.strip_prefix("\\u")?.get(..4)?;
    let all_hex = digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    all_hex.then(|| u16::from_str_radix(digits, 16).ok())?
}

fn follows_low(text: &str) -> bool {
    matches!(escaped_unit(text), Some(0xDC00..=0xDFFF))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    #[test]
    fn half_an_emoji_costs_one_character_and_not_the_document() {
        for (text, wanted) in [
            (r#""a\ud83d""#, json!("a\u{fffd}")),
            (r#""\udc00b""#, json!("\u{fffd}b")),
            (r#""\ud83d\ud83d\ude00""#, json!("\u{fffd}😀")),
            (r#""\uD83D\uDE00\u0041""#, json!("😀A")),
            (r#""\ud83dx\ude00""#, json!("\u{fffd}x\u{fffd}")),
            (r#""\ud83d\n""#, json!("\u{fffd}\n")),
            // An escaped backslash and then plain letters, beside a real half.
            (r#"["\\ud83d", "\ud83d"]"#, json!(["\\ud83d", "\u{fffd}"])),
        ] {
            assert_eq!(parse(text).unwrap(), wanted, "{text}");
        }
        assert!(parse(r#"{"a": "#).is_err());
        assert!(parse(r#""\ud83"#).is_err());
    }

    #[test]
    fn what_has_no_half_is_left_alone() {
        // A repair that ran before the first parse once changed the contents of files.
        for text in [
            r#"{"content":"a}{b </tool_call> ```json {\"x\":1,}  \\ud83d \u00e9 \ud83d\ude00"}"#,
            "\\",
            "\\u12",
            "固\\固",
            "",
        ] {
            assert!(matches!(mend_surrogates(text), Cow::Borrowed(_)), "{text}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_survived_and_mending_twice_is_mending_once(
            text in r#"(\\|u|d83d|\\ude00|\\ud83d|固|"|x){0,12}"#
        ) {
            let once = mend_surrogates(&text).into_owned();
            prop_assert_eq!(mend_surrogates(&once).into_owned(), once.clone());
        }
    }
}
