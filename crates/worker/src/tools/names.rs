//! How file names are shown to a model, and read back.
//!
//! A name is shown as it is, but for what a model could not copy: bytes that are no UTF-8,
//! control and invisible characters, blanks other than the plain one, and the backslash. Each
//! byte of those becomes `\xNN`, so `bad\xff.txt` and `a\x0ab` name files that can be used again
//! as shown. In a path that comes from a model `\xNN` is read back; any other backslash is itself.

use std::ffi::{OsStr, OsString};
use std::fmt::Write as _;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

/// A path as a model can copy it.
pub(crate) fn show(path: &Path) -> String {
    let bytes = path.as_os_str().as_bytes();
    if bytes.is_empty() {
        return ".".to_owned();
    }
    let mut shown = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        for c in chunk.valid().chars() {
            if is_plain(c) {
                shown.push(c);
            } else {
                let mut buffer = [0; 4];
                push_escaped(&mut shown, c.encode_utf8(&mut buffer).as_bytes());
            }
        }
        push_escaped(&mut shown, chunk.invalid());
    }
    shown
}

/// The bytes that a model's path means.
pub(crate) fn read(text: &str) -> OsString {
    let bytes = text.as_bytes();
    let mut read = Vec::with_capacity(bytes.len());
    let mut rest = bytes;
    while let [first, after @ ..] = rest {
        if let Some((byte, behind)) = escaped_byte(rest) {
            read.push(byte);
            rest = behind;
        } else {
            read.push(*first);
            rest = after;
        }
    }
    OsString::from_vec(read)
}

/// Whether a name is shown unchanged.
fn is_plain(c: char) -> bool {
    c == ' ' || !(c == '\\' || c.is_control() || c.is_whitespace() || is_invisible(c))
}

/// Characters without a glyph that are neither control nor blank: joiners, direction marks, tags.
fn is_invisible(c: char) -> bool {
    matches!(u32::from(c),
        0xAD | 0x34F | 0x61C | 0x115F | 0x1160 | 0x17B4 | 0x17B5 | 0x180B..=0x180F
        | 0x200B..=0x200F | 0x202A..=0x202E | 0x2060..=0x206F | 0x3164 | 0xFE00..=0xFE0F
        | 0xFEFF | 0xFFA0 | 0xFFF9..=0xFFFB | 0xE0000..=0xE0FFF)
}

fn push_escaped(shown: &mut String, bytes: &[u8]) {
    for byte in bytes {
        // Writing to a String does not fail.
        let _: std::fmt::Result = write!(shown, "\\x{byte:02x}");
    }
}

fn escaped_byte(bytes: &[u8]) -> Option<(u8, &[u8])> {
    match bytes {
        [b'\\', b'x', high, low, rest @ ..] => {
            let digit = |byte: u8| char::from(byte).to_digit(16);
            let value = digit(*high)? * 16 + digit(*low)?;
            Some((u8::try_from(value).ok()?, rest))
        }
        _ => None,
    }
}

/// Whether a name holds a byte that no file name can hold.
pub(crate) fn has_nul(name: &OsStr) -> bool {
    name.as_bytes().contains(&0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_can_be_used_again_as_it_is_shown() {
        let names: [(&[u8], &str); 9] = [
            (b"plain name-1.txt", "plain name-1.txt"),
            (b"bad\xff.txt", "bad\\xff.txt"),
            (b"a\nb", "a\\x0ab"),
            (b"-rf", "-rf"),
            (b"back\\slash", "back\\x5cslash"),
            (b"lit\\xff", "lit\\x5cxff"),
            ("\u{feff}".as_bytes(), "\\xef\\xbb\\xbf"),
            ("\u{3000}".as_bytes(), "\\xe3\\x80\\x80"),
            ("\u{6587}\u{4ef6}.txt".as_bytes(), "\u{6587}\u{4ef6}.txt"),
        ];
        for (bytes, shown) in names {
            let name = OsStr::from_bytes(bytes);
            assert_eq!(show(Path::new(name)), shown);
            assert_eq!(read(shown), name);
        }
    }

    #[test]
    fn a_backslash_that_starts_no_escape_is_itself() {
        for text in ["a\\b", "\\x", "\\x4", "\\xg0", "\\\\x", "end\\"] {
            assert_eq!(read(text), OsString::from(text), "{text}");
        }
        assert_eq!(read("\\x41\\x4A"), OsString::from("AJ"));
    }

    #[test]
    fn every_byte_comes_back() {
        let all: Vec<u8> = (1..=255).collect();
        let name = OsString::from_vec(all);
        assert_eq!(read(&show(Path::new(&name))), name);
    }

    #[test]
    fn the_workspace_itself_has_a_name() {
        assert_eq!(show(Path::new("")), ".");
    }
}
