//! Masks bytes that come in pieces, cut anywhere.

use crate::secret::mask::{Found, MARK, Mask};

/// A stream from which secrets are taken out. What it gives does not depend on where the pieces
/// were cut; it holds back at most as many bytes as the longest secret has.
#[derive(Debug)]
pub struct MaskStream {
    mask: Mask,
    /// What may be the beginning of a secret.
    held: Vec<u8>,
    /// How many of the next bytes belong to secrets that were found.
    covered: usize,
    /// Whether the last byte that was dealt with was covered: the mark stands already.
    marked: bool,
}

impl MaskStream {
    pub(super) fn new(mask: Mask) -> Self {
        MaskStream {
            mask,
            held: Vec::new(),
            covered: 0,
            marked: false,
        }
    }

    /// Takes the next piece and adds to `out` what can be told by now.
    pub fn push(&mut self, piece: &[u8], out: &mut Vec<u8>) {
        if self.mask.is_empty() {
            out.extend_from_slice(piece);
            return;
        }
        if self.held.is_empty() {
            let rest = self.advance(piece, true, out);
            self.held.extend_from_slice(&piece[rest..]);
        } else {
            let mut held = std::mem::take(&mut self.held);
            held.extend_from_slice(piece);
            let rest = self.advance(&held, true, out);
            held.drain(..rest);
            self.held = held;
        }
    }

    /// Adds to `out` what was held back: nothing more comes.
    pub fn finish(mut self, out: &mut Vec<u8>) {
        let held = std::mem::take(&mut self.held);
        self.advance(&held, false, out);
    }

    /// Deals with as many bytes as it can and tells how many.
    ///
    /// Every byte that lies in any secret is covered, so that of two that overlap none shows its
    /// rest; a run of covered bytes becomes one mark.
    fn advance(&mut self, bytes: &[u8], goes_on: bool, out: &mut Vec<u8>) -> usize {
        let mut at = 0;
        while at < bytes.len() {
            if self.covered == 0 {
                let plain = self.mask.candidate(&bytes[at..]);
                let plain = plain.unwrap_or(bytes.len() - at);
                if plain > 0 {
                    out.extend_from_slice(&bytes[at..at + plain]);
                    self.marked = false;
                    at += plain;
                    continue;
                }
            }
            match self.mask.at(&bytes[at..], goes_on) {
                Found::Open => return at,
                Found::Secret(length) => self.covered = self.covered.max(length),
                Found::Nothing => {}
            }
            if self.covered == 0 {
                out.push(bytes[at]);
                self.marked = false;
            } else {
                self.covered -= 1;
                if !self.marked {
                    out.extend_from_slice(MARK.as_bytes());
                    self.marked = true;
                }
            }
            at += 1;
        }
        at
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn in_pieces(mask: &Mask, bytes: &[u8], cuts: &[usize]) -> Vec<u8> {
        let mut stream = mask.stream();
        let mut out = Vec::new();
        let mut rest = bytes;
        for cut in cuts {
            let (piece, behind) = rest.split_at((*cut).min(rest.len()));
            stream.push(piece, &mut out);
            rest = behind;
        }
        stream.push(rest, &mut out);
        stream.finish(&mut out);
        out
    }

    #[test]
    fn a_secret_that_is_cut_anywhere_is_hidden() {
        let mask = Mask::of(["tok123456789"]);
        let text = b"echo pre-tok123456789-post dG9rMTIzNDU2Nzg5";
        for cut in 0..text.len() {
            let out = in_pieces(&mask, text, &[cut]);
            assert_eq!(out, b"echo pre-[masked]-post [masked]", "{cut}");
        }
        let single: Vec<usize> = vec![1; text.len()];
        let out = in_pieces(&mask, text, &single);
        assert_eq!(out, b"echo pre-[masked]-post [masked]");
    }

    #[test]
    fn what_only_begins_like_a_secret_is_given_back() {
        let mask = Mask::of(["tok123456789"]);
        assert_eq!(in_pieces(&mask, b"tok12345678", &[3, 3]), b"tok12345678");
    }

    proptest! {
        // Few letters make secrets, beginnings of them and overlaps frequent.
        #[test]
        fn the_cuts_change_nothing_and_no_secret_is_left(
            values in prop::collection::vec("[ab]{8,10}1", 1..4),
            text in "[ab1]{0,80}",
            cuts in prop::collection::vec(0_usize..9, 0..20),
        ) {
            let mask = Mask::of(&values);
            let whole = in_pieces(&mask, text.as_bytes(), &[]);
            prop_assert_eq!(&in_pieces(&mask, text.as_bytes(), &cuts), &whole);
            let whole = String::from_utf8(whole).unwrap();
            prop_assert_eq!(mask.text(&text), &*whole);
            for value in &values {
                prop_assert!(!whole.contains(value), "{} in {}", value, whole);
            }
            // What is not covered is kept, in its order.
            let mut left = text.as_str();
            for part in whole.split(MARK) {
                let at = left.find(part).expect("a part of the text");
                left = &left[at + part.len()..];
            }
        }
    }
}
