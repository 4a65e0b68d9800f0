//! Many words looked for at once, faster than an automaton can step.
//!
//! An automaton takes one dependent load a byte. Here every second position is looked at alone: the four bytes there, hashed, are one bit of
//! a table that stays in the second cache, and no look waits for the one before. A word of five letters or more has four of its bytes at an
//! even position wherever it stands, so none is missed (one of four letters is known by the last three of them and any byte after); what the
//! table lets through is compared.

use std::collections::HashSet;

/// A word that has four of its bytes at an even position wherever it stands.
const FIVE: usize = 5;
const BITS: u32 = 20;
/// Positions that are looked at before the first question whether one was a hit.
const STEPS: usize = 32;
const STRIDE: usize = 2 * STEPS;

pub struct Sieve {
    table: Box<[u8; 1 << (BITS - 3)]>,
    /// Four bytes, the word that has them, and where in it. In order.
    grams: Vec<(u32, usize, usize)>,
    words: Vec<Vec<u8>>,
}

impl Sieve {
    /// Words of fewer than four bytes are never found, and one of four not where it ends the text.
    pub fn new<'w>(words: impl IntoIterator<Item = &'w str>) -> Self {
        let words: Vec<Vec<u8>> = words.into_iter().map(|word| word.as_bytes().to_vec()).collect();
        let mut grams = Vec::new();
        let common: HashSet<&[u8]> = COMMON.split_whitespace().map(str::as_bytes).collect();
        // Whether one of its two places would stop the search again and again.
        let is_common = |window: &[u8]| [window.get(..4), window.get(1..)].into_iter().flatten().any(|part| common.contains(part));
        for (number, word) in words.iter().enumerate() {
            if let [_, b, c, d] = *word.as_slice() {
                grams.extend(gram(word, 0).map(|gram| (gram, number, 0)));
                grams.extend((0..=u8::MAX).map(|after| (u32::from_le_bytes([b, c, d, after]), number, 1)));
                continue;
            }
            // Five bytes hold the two positions of which one is even; those that stand out most.
            let windows = word.windows(FIVE).enumerate();
            let Some((at, _)) = windows.max_by_key(|(at, window)| (!is_common(window), outstanding(window), usize::MAX - at)) else {
                continue;
            };
            for offset in [at, at + 1] {
                grams.extend(gram(word, offset).map(|gram| (gram, number, offset)));
            }
        }
        grams.sort_unstable();
        let mut table = Box::new([0u8; 1 << (BITS - 3)]);
        for (gram, ..) in &grams {
            let (byte, bit) = place(*gram);
            if let Some(byte) = table.get_mut(byte) {
                *byte |= 1 << bit;
            }
        }
        Self { table, grams, words }
    }

    /// Where a word stands that ends after `from`, as its start and end; not before another on an earlier line.
    pub fn find(&self, text: &[u8], from: usize) -> Option<(usize, usize)> {
        let mut at = from & !1;
        while let Some(block) = text.get(at..).and_then(<[u8]>::first_chunk::<{ STRIDE + 2 }>) {
            let mut any = 0;
            for step in 0..STEPS {
                let gram = u32::from_le_bytes([block[2 * step], block[2 * step + 1], block[2 * step + 2], block[2 * step + 3]]);
                let (byte, bit) = place(gram);
                any |= self.table[byte] >> bit;
            }
            if any & 1 != 0
                && let Some(found) = (at..at + STRIDE).step_by(2).find_map(|at| self.at(text, at))
            {
                return Some(found);
            }
            at += STRIDE;
        }
        (at..text.len()).step_by(2).find_map(|at| self.at(text, at))
    }

    /// A word that has its four bytes here.
    fn at(&self, text: &[u8], at: usize) -> Option<(usize, usize)> {
        let here = gram(text, at)?;
        let (byte, bit) = place(here);
        if self.table.get(byte)? >> bit & 1 == 0 {
            return None;
        }
        let first = self.grams.partition_point(|(gram, ..)| *gram < here);
        let mut same = self.grams.get(first..)?.iter().take_while(|(gram, ..)| *gram == here);
        same.find_map(|(_, word, offset)| {
            let (start, word) = (at.checked_sub(*offset)?, self.words.get(*word)?);
            text.get(start..)?.starts_with(word).then_some((start, start + word.len()))
        })
    }
}

fn gram(text: &[u8], at: usize) -> Option<u32> {
    text.get(at..)?.first_chunk::<4>().map(|four| u32::from_le_bytes(*four))
}

/// Byte and bit of the table.
const fn place(gram: u32) -> (usize, u32) {
    let hash = gram.wrapping_mul(0x9e37_79b1) >> (32 - BITS);
    ((hash >> 3) as usize, hash & 7)
}

/// Four letters that any build prints thousands of times.
const COMMON: &str = "buil uild dist istu 86_6 6_64 x86_ pack acka ckag tati ilde clud nclu incl modu odul dule comm omma comp ompi reat crea \
    find ytho pyth thon core cuda uda_ file impo mpor port ames name able lock torc orch ribu bute trib attr acce ccel \
    warn arni ning erro rror from tion atio nsta inst stal ssio sion vers ersi oper pera eque requ emen lder fold dire rect ecto sour ourc \
    flag link libr ibra rary fail aile argu rgum load oadi unkn know nown supp uppo appl ring ator ment cess proc roce chec heck exec ecut \
    time type tall ends ense ctor func unct ctio ould coul unab able open read writ size";

/// How rare bytes like these are where nothing is wrong: small letters are everywhere, `e` and blanks most of all.
fn outstanding(window: &[u8]) -> u32 {
    let of = |byte: &u8| match byte {
        b' ' | b'e' | b't' | b'i' | b'n' | b'o' | b'a' | b'r' | b's' | b'/' | b'.' | b'_' => 0,
        b'a'..=b'z' => 2,
        b'-' | b'0'..=b'9' => 3,
        _ => 4,
    };
    window.iter().map(of).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn words_are_found_at_every_place() {
        let sieve = Sieve::new(["-lcudart", "rror:", "Killed", "crt/"]);
        for before in 0..200 {
            for word in ["-lcudart", "rror:", "Killed", "crt/"] {
                let text = format!("{}{word}{}\n", "x".repeat(before), "y".repeat(before % 7));
                assert_eq!(sieve.find(text.as_bytes(), 0), Some((before, before + word.len())), "{before} {word}");
            }
        }
        assert_eq!(sieve.find(b"rror", 0), None);
        assert_eq!(sieve.find(b"", 0), None);
    }

    proptest! {
        #[test]
        fn as_a_plain_search(text in "[a-d]{0,300}", words in proptest::collection::vec("[a-d]{4,7}", 1..6)) {
            let text = format!("{text}\n");
            let sieve = Sieve::new(words.iter().map(String::as_str));
            let plain = words.iter().any(|word| text.contains(word.as_str()));
            prop_assert_eq!(sieve.find(text.as_bytes(), 0).is_some(), plain);
        }
    }
}
