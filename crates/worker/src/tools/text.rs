//! Which encoding a file's bytes are in, and text that can be read out of them.
//!
//! Bytes are never put through a decoder and back: a file in another encoding, or one that is
//! partly damaged, must come out of an edit with every other byte as it was.

use std::borrow::Cow;

use encoding_rs::{GBK, WINDOWS_1252};

const UTF8_BOM: &[u8] = b"\xef\xbb\xbf";
const UTF16_LE_BOM: &[u8] = b"\xff\xfe";
const UTF16_BE_BOM: &[u8] = b"\xfe\xff";

/// How the bytes of a text are to be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Encoding {
    /// UTF-8, valid throughout.
    Utf8,
    /// UTF-8 with some bytes in between that are none.
    BrokenUtf8,
    /// UTF-16, low byte first, known by its mark.
    Utf16Le,
    /// UTF-16, high byte first, known by its mark.
    Utf16Be,
    /// GBK or GB 18030, guessed.
    Gbk,
    /// Some encoding of one byte a character; shown as Windows-1252, which gives each byte one.
    SingleByte,
}

impl Encoding {
    /// What a model is told; nothing for plain UTF-8.
    pub(crate) fn remark(self) -> Option<&'static str> {
        match self {
            Encoding::Utf8 => None,
            Encoding::BrokenUtf8 => Some("UTF-8 with invalid bytes, shown as \u{fffd}"),
            Encoding::Utf16Le => Some("UTF-16 LE"),
            Encoding::Utf16Be => Some("UTF-16 BE"),
            Encoding::Gbk => Some("GBK"),
            Encoding::SingleByte => Some("not UTF-8, shown as Latin-1"),
        }
    }
}

/// A text's bytes parted into its mark and the rest, with its encoding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Recognised<'a> {
    /// How `body` is to be read.
    pub(crate) encoding: Encoding,
    /// The byte order mark, if any.
    pub(crate) mark: &'a [u8],
    /// What follows it.
    pub(crate) body: &'a [u8],
}

/// Finds out how a text is encoded. `whole` says whether `bytes` is all of it; the start of a
/// longer text may end inside a character.
pub(crate) fn recognise(bytes: &[u8], whole: bool) -> Recognised<'_> {
    for (mark, encoding) in [
        (UTF16_LE_BOM, Encoding::Utf16Le),
        (UTF16_BE_BOM, Encoding::Utf16Be),
    ] {
        if let Some(body) = bytes.strip_prefix(mark) {
            return Recognised {
                encoding,
                mark,
                body,
            };
        }
    }
    let (mark, body) = match bytes.strip_prefix(UTF8_BOM) {
        Some(body) => (UTF8_BOM, body),
        None => (&[][..], bytes),
    };
    Recognised {
        encoding: encoding_of(body, whole),
        mark,
        body,
    }
}

fn encoding_of(body: &[u8], whole: bool) -> Encoding {
    let mut invalid = 0_usize;
    let mut wide = 0_usize;
    let mut seen = 0_usize;
    for chunk in body.utf8_chunks() {
        wide += chunk.valid().chars().filter(|c| !c.is_ascii()).count();
        seen += chunk.valid().len() + chunk.invalid().len();
        let cut_at_the_end = !whole && seen == body.len() && chunk.invalid().len() < 4;
        if !chunk.invalid().is_empty() && !cut_at_the_end {
            invalid += 1;
        }
    }
    if invalid == 0 {
        Encoding::Utf8
    } else if wide > invalid {
        Encoding::BrokenUtf8
    } else if looks_like_gbk(body, whole) {
        Encoding::Gbk
    } else {
        Encoding::SingleByte
    }
}

/// Whether bytes are valid GBK and mostly characters of daily use. Accented text of one byte a
/// character is sometimes valid GBK as well, but then its pairs end in ASCII letters.
fn looks_like_gbk(body: &[u8], whole: bool) -> bool {
    let (mut pairs, mut common) = (0_usize, 0_usize);
    let mut rest = body;
    while let Some((length, kind)) = gbk_character(rest) {
        match kind {
            GbkCharacter::Ascii => {}
            GbkCharacter::Common => (pairs, common) = (pairs + 1, common + 1),
            GbkCharacter::Rare => pairs += 1,
        }
        rest = &rest[length..];
    }
    let ended = rest.is_empty() || (!whole && rest.len() < 4);
    ended && pairs > 0 && common * 10 >= pairs * 9
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum GbkCharacter {
    Ascii,
    Common,
    Rare,
}

/// Length and kind of the GB 18030 character at the start of `bytes`; none when there is none.
fn gbk_character(bytes: &[u8]) -> Option<(usize, GbkCharacter)> {
    match bytes {
        [0..=0x7f, ..] => Some((1, GbkCharacter::Ascii)),
        // The rows of GB 2312: punctuation, full-width forms, and the usual ideographs.
        [0xa1..=0xa3 | 0xb0..=0xf7, 0xa1..=0xfe, ..] => Some((2, GbkCharacter::Common)),
        [0x81..=0xfe, 0x40..=0x7e | 0x80..=0xfe, ..] => Some((2, GbkCharacter::Rare)),
        [0x81..=0xfe, 0x30..=0x39, 0x81..=0xfe, 0x30..=0x39, ..] => Some((4, GbkCharacter::Rare)),
        _ => None,
    }
}

/// The places at which characters of a GBK text begin, its end included.
pub(crate) fn gbk_boundaries(bytes: &[u8]) -> Vec<bool> {
    let mut starts = vec![false; bytes.len() + 1];
    let mut at = 0;
    while at < bytes.len() {
        starts[at] = true;
        at += gbk_character(&bytes[at..]).map_or(1, |(length, _)| length);
    }
    starts[bytes.len()] = true;
    starts
}

/// The bytes as text, whatever they hold. Bytes that mean nothing show as U+FFFD.
pub(crate) fn decode(encoding: Encoding, bytes: &[u8]) -> Cow<'_, str> {
    match encoding {
        Encoding::Utf8 | Encoding::BrokenUtf8 => String::from_utf8_lossy(bytes),
        Encoding::Gbk => GBK.decode_without_bom_handling(bytes).0,
        Encoding::SingleByte => WINDOWS_1252.decode_without_bom_handling(bytes).0,
        Encoding::Utf16Le => Cow::Owned(decode_utf16(bytes, u16::from_le_bytes)),
        Encoding::Utf16Be => Cow::Owned(decode_utf16(bytes, u16::from_be_bytes)),
    }
}

fn decode_utf16(bytes: &[u8], unit: fn([u8; 2]) -> u16) -> String {
    let (pairs, rest) = bytes.as_chunks::<2>();
    let units = pairs.iter().map(|pair| unit(*pair));
    let mut text: String = char::decode_utf16(units)
        .map(|c| c.unwrap_or(char::REPLACEMENT_CHARACTER))
        .collect();
    if !rest.is_empty() {
        text.push(char::REPLACEMENT_CHARACTER);
    }
    text
}

/// A text in the bytes of an encoding, or its first character that the encoding does not have.
pub(crate) fn encode(encoding: Encoding, text: &str) -> Result<Vec<u8>, char> {
    match encoding {
        Encoding::Utf8 | Encoding::BrokenUtf8 => Ok(text.as_bytes().to_vec()),
        Encoding::Utf16Le => Ok(text.encode_utf16().flat_map(u16::to_le_bytes).collect()),
        Encoding::Utf16Be => Ok(text.encode_utf16().flat_map(u16::to_be_bytes).collect()),
        Encoding::Gbk => encode_with(GBK, text),
        Encoding::SingleByte => encode_with(WINDOWS_1252, text),
    }
}

fn encode_with(encoding: &'static encoding_rs::Encoding, text: &str) -> Result<Vec<u8>, char> {
    let mut encoded = Vec::with_capacity(text.len());
    let mut buffer = [0; 4];
    for c in text.chars() {
        let (bytes, _, unmappable) = encoding.encode(c.encode_utf8(&mut buffer));
        if unmappable {
            return Err(c);
        }
        encoded.extend_from_slice(&bytes);
    }
    Ok(encoded)
}

/// A piece of text of unknown encoding that need not be written back.
pub(crate) fn readable(bytes: &[u8]) -> Cow<'_, str> {
    match std::str::from_utf8(bytes) {
        Ok(text) => Cow::Borrowed(text),
        Err(_) if looks_like_gbk(bytes, true) => decode(Encoding::Gbk, bytes),
        Err(_) => String::from_utf8_lossy(bytes),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn encoding(bytes: &[u8]) -> Encoding {
        recognise(bytes, true).encoding
    }

    #[test]
    fn encodings_are_told_apart() {
        assert_eq!(encoding(b""), Encoding::Utf8);
        assert_eq!(encoding("x = '好'\n".as_bytes()), Encoding::Utf8);
        assert_eq!(encoding(b"caf\xe9\nx=1\n"), Encoding::SingleByte);
        assert_eq!(
            encoding(b"\xe9t\xe9 d\xe9j\xe0 vu \xe0 No\xebl\n"),
            Encoding::SingleByte
        );
        assert_eq!(encoding(b"\xc4\xe3\xba\xc3\nx=1\n"), Encoding::Gbk);
        assert_eq!(encoding(b"\xff\xfex\0\n\0"), Encoding::Utf16Le);
        assert_eq!(encoding(b"\xfe\xff\0x\0\n"), Encoding::Utf16Be);
        let mut broken = "好好好".as_bytes().to_vec();
        broken.push(0xff);
        assert_eq!(encoding(&broken), Encoding::BrokenUtf8);
    }

    #[test]
    fn the_start_of_a_text_may_end_inside_a_character() {
        let text = "ab好".as_bytes();
        assert_eq!(recognise(&text[..4], false).encoding, Encoding::Utf8);
        assert_eq!(recognise(&text[..3], false).encoding, Encoding::Utf8);
        assert_eq!(recognise(&text[..3], true).encoding, Encoding::SingleByte);
        assert_eq!(recognise(b"\xc4\xe3\xba", false).encoding, Encoding::Gbk);
    }

    #[test]
    fn a_mark_is_parted_from_the_text() {
        let recognised = recognise(b"\xef\xbb\xbfx=1\n", true);
        assert_eq!(recognised.mark, UTF8_BOM);
        assert_eq!(recognised.body, b"x=1\n");
    }

    #[test]
    fn what_can_be_encoded_comes_back() {
        let table = [
            (Encoding::Utf8, "好 🌍"),
            (Encoding::Utf16Le, "好 🌍"),
            (Encoding::Utf16Be, "好 🌍"),
            (Encoding::Gbk, "你好, x"),
            (Encoding::SingleByte, "café “x”"),
        ];
        for (encoding, text) in table {
            let bytes = encode(encoding, text).unwrap();
            assert_eq!(decode(encoding, &bytes), text, "{encoding:?}");
        }
        assert_eq!(encode(Encoding::SingleByte, "a好"), Err('好'));
        assert_eq!(encode(Encoding::Gbk, "a🌍"), Err('🌍'));
    }

    #[test]
    fn every_single_byte_has_a_character_of_its_own() {
        let all: Vec<u8> = (0..=255).collect();
        let text = decode(Encoding::SingleByte, &all).into_owned();
        assert_eq!(encode(Encoding::SingleByte, &text), Ok(all));
    }

    #[test]
    fn characters_of_two_bytes_are_not_entered_in_the_middle() {
        // 0x7c, the second byte of the pair, is a vertical bar by itself.
        assert_eq!(
            gbk_boundaries(b"a\x8c\x7c|"),
            [true, true, false, true, true]
        );
    }
}
