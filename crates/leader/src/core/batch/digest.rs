//! SHA-256 as people compare it: 64 hexadecimal digits.

use sha2::{Digest, Sha256};

/// A digest that is being made, piece by piece.
#[derive(Debug, Clone, Default)]
pub struct Summing(Sha256);

impl Summing {
    /// Takes the next piece.
    pub fn add(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// The digest of all pieces.
    pub fn finish(self) -> String {
        let mut text = String::with_capacity(64);
        for byte in self.0.finalize() {
            for half in [byte >> 4, byte & 15] {
                text.extend(char::from_digit(half.into(), 16));
            }
        }
        text
    }
}

/// The digest of some pieces, each told apart from the next.
pub fn of_parts(parts: &[&[u8]]) -> String {
    let mut sum = Summing::default();
    for (at, part) in parts.iter().enumerate() {
        if at > 0 {
            sum.add(&[0]);
        }
        sum.add(part);
    }
    sum.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_digest_is_that_of_fips_180_4() {
        assert_eq!(
            of_parts(&[b"abc"]),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
        );
        assert_ne!(of_parts(&[b"ab", b"c"]), of_parts(&[b"a", b"bc"]));
    }
}
