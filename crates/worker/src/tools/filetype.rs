//! Whether bytes are a text, and what they are when they are none.

/// What a file of these first bytes is, in words; none for a text.
pub(crate) fn binary_kind(start: &[u8]) -> Option<&'static str> {
    let has_nul = start.contains(&0);
    if has_nul && is_utf16_with_mark(start) {
        return None;
    }
    // A text may begin with letters that some format begins with, too.
    let certainly_no_text = has_nul
        || std::str::from_utf8(start).is_err_and(|error| {
            // An error at the very end is a character that was cut off.
            error.error_len().is_some()
        });
    let known = SIGNATURES
        .iter()
        .find(|signature| signature.fits(start))
        .filter(|signature| certainly_no_text || !signature.printable());
    match known {
        Some(signature) => Some(signature.name),
        None if has_nul && looks_like_utf16(start) => {
            Some("probably UTF-16 text without a byte order mark; iconv can convert it")
        }
        None => has_nul.then_some("of an unknown type"),
    }
}

#[derive(Debug)]
struct Signature {
    offset: usize,
    bytes: &'static [u8],
    name: &'static str,
}

impl Signature {
    const fn new(bytes: &'static [u8], name: &'static str) -> Self {
        Signature::at(0, bytes, name)
    }

    const fn at(offset: usize, bytes: &'static [u8], name: &'static str) -> Self {
        Signature {
            offset,
            bytes,
            name,
        }
    }

    fn fits(&self, start: &[u8]) -> bool {
        start
            .get(self.offset..)
            .is_some_and(|rest| rest.starts_with(self.bytes))
    }

    fn printable(&self) -> bool {
        self.bytes.iter().all(|byte| (0x20..0x7f).contains(byte))
    }
}

const SIGNATURES: &[Signature] = &[
    Signature::new(b"\x89PNG\r\n\x1a\n", "PNG image"),
    Signature::new(b"\xff\xd8\xff", "JPEG image"),
    Signature::new(b"GIF8", "GIF image"),
    Signature::at(8, b"WEBP", "WebP image"),
    Signature::at(8, b"WAVE", "WAV audio"),
    Signature::at(4, b"ftyp", "MP4 or similar media"),
    Signature::new(b"\x1aE\xdf\xa3", "Matroska or WebM media"),
    Signature::new(b"OggS", "Ogg media"),
    Signature::new(b"ID3", "MP3 audio"),
    Signature::new(b"%PDF-", "PDF document"),
    Signature::new(
        b"PK\x03\x04",
        "ZIP archive, or a document or package made of one",
    ),
    Signature::new(b"\x1f\x8b", "gzip archive"),
    Signature::new(b"BZh", "bzip2 archive"),
    Signature::new(b"\xfd7zXZ\0", "xz archive"),
    Signature::new(b"\x28\xb5\x2f\xfd", "zstd archive"),
    Signature::new(b"7z\xbc\xaf\x27\x1c", "7z archive"),
    Signature::at(257, b"ustar", "tar archive"),
    Signature::new(b"\x7fELF", "ELF executable or library"),
    Signature::new(b"\0asm", "WebAssembly module"),
    Signature::new(b"\xca\xfe\xba\xbe", "Java class or Mach-O executable"),
    Signature::new(b"SQLite format 3\0", "SQLite database"),
    Signature::new(b"wOF", "font"),
    Signature::new(b"\0\x01\0\0\0", "font"),
];

fn is_utf16_with_mark(start: &[u8]) -> bool {
    start.starts_with(b"\xff\xfe") || start.starts_with(b"\xfe\xff")
}

/// Plain text in UTF-16 has a NUL in nearly every second byte, always on the same side.
fn looks_like_utf16(start: &[u8]) -> bool {
    let (pairs, _) = start.as_chunks::<2>();
    let one_side = |side: usize| {
        pairs
            .iter()
            .filter(|pair| pair[side] == 0 && pair[1 - side] != 0)
            .count()
            * 10
            >= pairs.len() * 9
    };
    // A few bytes say nothing.
    pairs.len() >= 4 && (one_side(0) || one_side(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_texts_whatever_letters_they_begin_with() {
        for text in [
            &b""[..],
            b"plain",
            b"GIF8 is a format",
            b"ID3 tags",
            b"%PDF-1.4 is how they begin",
            "好".as_bytes(),
            b"caf\xe9\n",
            b"\xc4\xe3\xba\xc3\n",
            b"\xff\xfex\0\n\0",
            &"ab好".as_bytes()[..4],
        ] {
            assert_eq!(binary_kind(text), None, "{text:?}");
        }
    }

    #[test]
    fn what_is_no_text_is_named() {
        let mut tar = vec![b'a'; 600];
        tar[100..257].fill(0);
        tar[257..262].copy_from_slice(b"ustar");
        for (bytes, name) in [
            (&b"\x89PNG\r\n\x1a\n\0\0"[..], "PNG image"),
            (b"GIF89a\x01\0\xff", "GIF image"),
            (b"%PDF-1.4\n%\xe2\xe3\xcf\xd3\n", "PDF document"),
            (b"RIFF\x10\0\0\0WEBPVP8 ", "WebP image"),
            (b"\x1f\x8b\x08", "gzip archive"),
            (b"\x7fELF\x02", "ELF executable or library"),
            (tar.as_slice(), "tar archive"),
            (b"a\0b", "of an unknown type"),
            (
                b"h\0e\0l\0l\0o\0",
                "probably UTF-16 text without a byte order mark; iconv can convert it",
            ),
        ] {
            assert_eq!(binary_kind(bytes), Some(name));
        }
    }
}
