//! In which forms a value shows itself: as it is, and as common tools write it.

use std::collections::BTreeSet;
use std::fmt::Write as _;

const BASE64: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// Every form of a value that is looked for: plain, inside a JSON text, percent-encoded, in
/// hexadecimal, and in base64 (RFC 4648, both alphabets) wherever in a longer text it stands.
///
/// Of base64 only those characters are taken that the value alone decides: the first and the last
/// may hold bits of its neighbours.
pub(super) fn forms(value: &str) -> BTreeSet<Vec<u8>> {
    let mut forms = BTreeSet::from([value.as_bytes().to_vec()]);
    let quoted = serde_json::Value::from(value).to_string();
    forms.insert(quoted.as_bytes()[1..quoted.len() - 1].to_vec());
    for upper in [true, false] {
        forms.insert(hexadecimal(value, upper).into_bytes());
        forms.insert(percent(value, upper).into_bytes());
    }
    for ahead in 0..3 {
        let text = base64_inside(value.as_bytes(), ahead);
        let url_safe = text.replace('+', "-").replace('/', "_");
        forms.extend([text.into_bytes(), url_safe.into_bytes()]);
    }
    forms
}

fn hexadecimal(value: &str, upper: bool) -> String {
    let mut text = String::new();
    for byte in value.bytes() {
        push_hex(&mut text, byte, upper);
    }
    text
}

fn push_hex(text: &mut String, byte: u8, upper: bool) {
    // Writing to a String does not fail.
    let _: std::fmt::Result = match upper {
        true => write!(text, "{byte:02X}"),
        false => write!(text, "{byte:02x}"),
    };
}

/// All but the unreserved characters of RFC 3986 as `%XX`.
fn percent(value: &str, upper: bool) -> String {
    let mut text = String::new();
    for byte in value.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                text.push(char::from(byte));
            }
            _ => {
                text.push('%');
                push_hex(&mut text, byte, upper);
            }
        }
    }
    text
}

/// The characters that stand for `value` alone when `ahead` bytes (0, 1 or 2) stand before it in
/// its group of three.
fn base64_inside(value: &[u8], ahead: usize) -> String {
    let mut bytes = vec![0; ahead];
    bytes.extend_from_slice(value);
    // With `ahead` bytes before it, the value has a part in this many characters that it shares.
    let first = (ahead * 8).div_ceil(6);
    let last = bytes.len() * 8 / 6;
    (first..last)
        .map(|at| {
            let bit = at * 6;
            let byte = |index: usize| u16::from(bytes.get(index).copied().unwrap_or(0));
            let pair = byte(bit / 8) << 8 | byte(bit / 8 + 1);
            let six = pair >> (10 - bit % 8) & 0x3f;
            char::from(BASE64[usize::from(six)])
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn has(value: &str, form: &str) -> bool {
        forms(value).contains(form.as_bytes())
    }

    #[test]
    fn a_value_is_known_as_common_tools_write_it() {
        // Made by `base64`, `xxd -p`, `jq -R .` and `urllib.parse.quote`.
        assert!(has("tok123456789", "tok123456789"));
        assert!(has("tok123456789", "dG9rMTIzNDU2Nzg5"));
        assert!(has("tok123456789", "746f6b313233343536373839"));
        assert!(has("p\"w\\d/?&=12", r#"p\"w\\d/?&=12"#));
        assert!(has("p\"w\\d/?&=12", "p%22w%5Cd%2F%3F%26%3D12"));
        assert!(has("p\"w\\d/?&=12", "p%22w%5cd%2f%3f%26%3d12"));
    }

    #[test]
    fn base64_is_known_wherever_the_value_stands_in_the_text() {
        // `printf user:tok123456789 | base64` and so on, one byte more ahead each time.
        for text in [
            "eHRvazEyMzQ1Njc4OQ==",
            "eHh0b2sxMjM0NTY3ODk=",
            "eHh4dG9rMTIzNDU2Nzg5",
            "eHh4eHRvazEyMzQ1Njc4OWFi",
        ] {
            let known = forms("tok123456789");
            let found = known
                .iter()
                .filter_map(|form| std::str::from_utf8(form).ok())
                .any(|form| text.contains(form));
            assert!(found, "{text}");
        }
        assert!(has("\u{fb}\u{ff}\u{fe}>>>???", "w7vDv8O-Pj4-Pz8_"));
    }
}
