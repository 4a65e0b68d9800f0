//! What a line must hold to match a pattern: words to look for in gigabytes before any pattern is tried.

use regex_syntax::ParserBuilder;
use regex_syntax::hir::literal::{ExtractKind, Extractor};
use regex_syntax::hir::{Hir, HirKind};
use std::cmp::Reverse;

/// Shorter ones are met in too many lines.
const SHORTEST: usize = 4;

/// Words of which every line that the pattern matches holds at least one; `None`: there are no such words.
///
/// A word ends where tools begin to colour: at quotes and colons. So it stands in one piece in coloured output too.
pub fn needed(pattern: &str) -> Option<Vec<String>> {
    let hir = ParserBuilder::new().unicode(false).utf8(false).build().parse(pattern).ok()?;
    of(&hir)
}

fn of(hir: &Hir) -> Option<Vec<String>> {
    let below = match hir.kind() {
        HirKind::Capture(capture) => of(&capture.sub),
        HirKind::Repetition(repetition) if repetition.min > 0 => of(&repetition.sub),
        HirKind::Alternation(parts) => parts.iter().map(of).collect::<Option<Vec<_>>>().and_then(|all| once(all.concat())),
        HirKind::Concat(parts) => {
            // What stands here or further back, read together with what follows: `cu(?:fft|pti)` as `cufft` and `cupti`.
            let rest = (1..parts.len()).filter_map(|at| beginnings(&Hir::concat(parts.get(at..)?.to_vec())));
            parts.iter().filter_map(of).chain(rest).max_by_key(|words| worth(words))
        }
        _ => None,
    };
    [beginnings(hir), below].into_iter().flatten().max_by_key(|words| worth(words))
}

/// The best word of each way in which a match can begin.
fn beginnings(hir: &Hir) -> Option<Vec<String>> {
    let all = Extractor::new().kind(ExtractKind::Prefix).extract(hir);
    let words: Option<Vec<String>> = all.literals()?.iter().map(|literal| longest(literal.as_bytes())).collect();
    once(words?)
}

fn once(mut words: Vec<String>) -> Option<Vec<String>> {
    words.sort();
    words.dedup();
    (!words.is_empty()).then_some(words)
}

fn longest(literal: &[u8]) -> Option<String> {
    let inside = |byte: &u8| byte.is_ascii_alphanumeric() || !byte.is_ascii() || b"_ .,+=/-()[]<>@".contains(byte);
    let pieces = literal.split(|byte| !inside(byte)).map(trimmed).filter(|piece| piece.len() >= SHORTEST);
    let piece = pieces.max_by_key(|piece| rarity(piece))?;
    std::str::from_utf8(piece).ok().map(ToOwned::to_owned)
}

/// A blank at the edge may be on the other side of a colour; it stays where the rest would be too short.
fn trimmed(piece: &[u8]) -> &[u8] {
    let inner = piece.trim_ascii();
    if inner.len() >= SHORTEST { inner } else { piece }
}

/// A set is as good as its most common word, and of sets that are rare enough the smallest is best.
fn worth(words: &[String]) -> (usize, Reverse<usize>, usize) {
    const RARE: usize = 10;
    let rarest = words.iter().map(|word| rarity(word.as_bytes())).min().unwrap_or(0);
    (rarest.min(RARE), Reverse(words.len()), rarest)
}

/// What healthy builds print all the time.
const COMMON: &[&str] = &[
    "error",
    "Error",
    "warning",
    "Warning",
    "include",
    "torch",
    "python",
    "deepspeed",
    "nvidia",
    "cuda",
    "CUDA",
    "version",
    "files",
    "file",
    "build",
    "from",
    "lib64",
    "gcc",
    "nvcc",
    "import",
    "Failed",
    "failed",
    "usr/",
];

/// Its length, without the common words in it.
fn rarity(word: &[u8]) -> usize {
    let mut text = String::from_utf8_lossy(word).into_owned();
    for common in COMMON {
        text = text.replace(common, "");
    }
    text.trim().len()
}

#[cfg(test)]
mod tests {
    use super::needed;

    fn words(pattern: &str) -> Vec<String> {
        needed(pattern).unwrap_or_default()
    }

    #[test]
    fn words_that_a_matching_line_holds() {
        assert_eq!(words("cannot find -l(?<library>cudart|curand)"), ["cannot find -l"]);
        let both = ["cannot find -lcudnn", "unable to find library -lcudnn"];
        assert_eq!(words("(?:cannot find|unable to find library) -lcudnn"), both);
        assert_eq!(words(r"fatal error: '?(?<h>libaio\.h)'?: No such"), ["libaio.h"]);
        assert_eq!(words("(?:Cannot fork|Resource temporarily unavailable)"), ["Cannot fork", "Resource temporarily unavailable"]);
        assert_eq!(words("(?:undefined symbol: )?cuInit+"), ["cuInit"]);
        assert_eq!(words(r"\bcu(?:fft|fftXt|pti)\w*\.h"), ["cufft", "cufftXt", "cupti"]);
    }

    #[test]
    fn none_where_nothing_is_sure() {
        assert_eq!(needed(r"^\d+$"), None);
        assert_eq!(needed("(?:abcd)*"), None);
        assert_eq!(needed("abcdef|x"), None);
    }
}
