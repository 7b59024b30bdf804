//! The bytes of a page as text: its type, its charset, and for HTML its main text as Markdown.

use encoding_rs::{Encoding, UTF_8};

use super::html;
use crate::tools::limits;

/// What a page turned out to be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Readable {
    /// Empty where the page says none.
    pub(super) title: String,
    /// Markdown, or the text as it is.
    pub(super) text: String,
}

/// Which part of a page is wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Part {
    /// The main text, or all of it where little of it is main text.
    Main,
    /// All of it.
    Full,
}

/// How the bytes are to be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Html,
    Text,
}

/// Makes a page readable. It blocks, for HTML up to some hundred milliseconds.
///
/// # Errors
/// In words, when it is no text.
pub(super) fn readable(
    content_type: &str,
    body: &[u8],
    address: &str,
    part: Part,
) -> Result<Readable, String> {
    let mime = content_type.split(';').next().unwrap_or_default().trim();
    let kind = kind_of(&mime.to_ascii_lowercase(), body)
        .ok_or_else(|| format!("is `{mime}`, {} bytes, and no text", body.len()))?;
    let text = decode(content_type, body);
    Ok(match kind {
        Kind::Html => html::read(&text, address, part),
        Kind::Text => Readable {
            title: String::new(),
            text,
        },
    })
}

fn kind_of(mime: &str, body: &[u8]) -> Option<Kind> {
    let looks_like_html = || {
        let start = &body[..body.len().min(limits::WEB_SNIFF_BYTES)];
        let start = String::from_utf8_lossy(start).to_ascii_lowercase();
        let start = start.trim_start_matches(|c: char| c.is_whitespace() || c == '\u{feff}');
        start.starts_with("<!doctype html") || start.starts_with("<html")
    };
    let is_binary = || body[..body.len().min(limits::WEB_SNIFF_BYTES)].contains(&0);
    match mime {
        "text/html" | "application/xhtml+xml" => Some(Kind::Html),
        "" | "text/plain" if looks_like_html() => Some(Kind::Html),
        "" => (!is_binary()).then_some(Kind::Text),
        "application/json"
        | "application/xml"
        | "application/javascript"
        | "application/x-yaml"
        | "application/yaml"
        | "application/toml" => Some(Kind::Text),
        other if other.starts_with("text/") => Some(Kind::Text),
        other if other.ends_with("+json") || other.ends_with("+xml") => Some(Kind::Text),
        _ => None,
    }
}

/// The charset is, in this order, that of a byte order mark, of the header, of a `<meta>` at the
/// start of the page, else UTF-8 where the bytes are, else windows-1252, as browsers do.
fn decode(content_type: &str, body: &[u8]) -> String {
    let named = charset(content_type)
        .or_else(|| meta_charset(&body[..body.len().min(limits::WEB_SNIFF_BYTES)]))
        .and_then(|label| Encoding::for_label(label.as_bytes()));
    let guessed = || match std::str::from_utf8(body) {
        Ok(_) => UTF_8,
        // A body that was cut ends inside a character; what is UTF-8 has others before.
        Err(error) if error.error_len().is_none() && !body[..error.valid_up_to()].is_ascii() => {
            UTF_8
        }
        Err(_) => encoding_rs::WINDOWS_1252,
    };
    let (text, ..) = named.unwrap_or_else(guessed).decode(body);
    text.into_owned()
}

/// The value of `charset=` in a content type or a tag.
fn charset(text: &str) -> Option<String> {
    let lower = text.to_ascii_lowercase();
    let at = lower.find("charset")?;
    let value = lower[at + "charset".len()..]
        .trim_start()
        .strip_prefix('=')?;
    let value = value.trim_start().trim_start_matches(['"', '\'']);
    let end = value
        .find(|c: char| c.is_whitespace() || "\"';>/".contains(c))
        .unwrap_or(value.len());
    (end > 0).then(|| value[..end].to_owned())
}

fn meta_charset(start: &[u8]) -> Option<String> {
    let start = String::from_utf8_lossy(start).to_ascii_lowercase();
    start
        .split("<meta")
        .skip(1)
        .find_map(|tag| charset(tag.split('>').next().unwrap_or_default()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(content_type: &str, body: &[u8]) -> Result<String, String> {
        readable(content_type, body, "https://example.org/", Part::Full).map(|page| page.text)
    }

    #[test]
    fn a_charset_is_found_wherever_it_is_said() {
        let gbk = b"\xc4\xe3\xba\xc3";
        let page = |meta: &str| {
            [
                b"<html><head>",
                meta.as_bytes(),
                b"</head><body><p>",
                &gbk[..],
                b"</p></body></html>",
            ]
            .concat()
        };
        for (content_type, body) in [
            ("text/plain; charset=GBK", gbk.to_vec()),
            ("text/plain;charset=\"gb2312\"", gbk.to_vec()),
            ("text/html", page("<meta charset=\"gbk\">")),
            (
                "text/html",
                page("<meta http-equiv='Content-Type' content='text/html; charset=gb2312'>"),
            ),
            ("text/plain", "你好".as_bytes().to_vec()),
            (
                "text/plain; charset=iso-8859-1",
                b"\xef\xbb\xbf\xe4\xbd\xa0\xe5\xa5\xbd".to_vec(),
            ),
            ("text/plain", b"\xff\xfe\x60\x4f\x7d\x59".to_vec()),
        ] {
            let told = text(content_type, &body).unwrap();
            assert_eq!(told.trim(), "你好", "{content_type}");
        }
        assert_eq!(text("text/plain", b"caf\xe9"), Ok("café".to_owned()));
        let cut = &"文文".as_bytes()[..5];
        assert_eq!(text("text/plain", cut), Ok("文\u{fffd}".to_owned()));
        assert_eq!(
            text("text/plain; charset=none-such", b"abc"),
            Ok("abc".to_owned())
        );
    }

    #[test]
    fn what_is_no_text_is_refused_with_its_type() {
        for (content_type, body) in [
            ("application/pdf", &b"%PDF"[..]),
            ("image/png", b"\x89PNG"),
            ("application/octet-stream", b"abc"),
            ("", b"\x00\x01"),
        ] {
            let why = text(content_type, body).unwrap_err();
            assert!(
                why.contains(content_type) && why.contains("no text"),
                "{why}"
            );
        }
        for (content_type, body) in [
            ("application/json", "{\"a\":1}"),
            ("application/feed+xml", "<feed/>"),
            ("text/markdown", "# x"),
            ("", "plain"),
        ] {
            assert_eq!(text(content_type, body.as_bytes()), Ok(body.to_owned()));
        }
    }

    #[test]
    fn html_is_known_by_its_look_where_nothing_is_said() {
        let page = b" \n<!DOCTYPE html><html><body><p>Hello <b>you</b></p><script>x()</script></body></html>";
        for content_type in ["", "text/plain"] {
            let told = text(content_type, page).unwrap();
            assert_eq!(told.trim(), "Hello **you**", "{content_type}");
        }
    }
}
