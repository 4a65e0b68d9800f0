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
    let words: Option<Vec<Vec<String>>> = all.literals()?.iter().map(|literal| best(literal.as_bytes())).collect();
    once(words?.concat())
}

/// The longest word; `error:` where nothing better is there, which healthy output does not hold.
fn best(literal: &[u8]) -> Option<Vec<String>> {
    let word = longest(literal);
    let common = word.as_ref().is_none_or(|word| rarity(word.as_bytes()) < SHORTEST);
    let is_error = literal.windows(6).any(|part| part == b"rror: ");
    // A colour may end right after the word.
    if common && is_error { Some(["rror: ", "rror\u{1b}["].map(ToOwned::to_owned).into()) } else { word.map(|word| vec![word]) }
}

fn once(mut words: Vec<String>) -> Option<Vec<String>> {
    words.sort();
    words.dedup();
    (!words.is_empty()).then_some(words)
}

/// The best word of a text that stands in a line as it is.
pub fn longest_of(text: &str) -> Option<String> {
    longest(text.as_bytes())
}

fn longest(literal: &[u8]) -> Option<String> {
    let inside = |byte: &u8| byte.is_ascii_alphanumeric() || !byte.is_ascii() || b"_ .,+=/-()[]<>@\\".contains(byte);
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
    "/lib",
    "lib/",
    "linux",
    "gnu",
    "command",
    "Command",
    "site-packages",
    "packages/",
    "deepspeed",
    "eepspeed",
    "op_builder",
    "missing",
    "require",
    "setup.py",
    "egg_info",
    "where",
    "which",
    "compil",
    "install",
    "setuptools",
    "bdist_wheel",
    "triton",
    "deprecated",
    "expression",
    "ninja",
];

/// Its length, without the common words in it; each of several that stand together counts a little.
fn rarity(word: &[u8]) -> usize {
    let text = String::from_utf8_lossy(word);
    let several = text.trim().contains(' ');
    let of = |part: &str| {
        let rest = COMMON.iter().fold(part.to_owned(), |rest, common| rest.replace(common, ""));
        if rest.is_empty() && several { 2 } else { rest.len() }
    };
    text.split_whitespace().map(of).sum()
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
        assert_eq!(words(r"/lib(?:64)?/gcc/\S+\(\d+\): error: "), ["rror\u{1b}[", "rror: "]);
    }

    #[test]
    fn none_where_nothing_is_sure() {
        assert_eq!(needed(r"^\d+$"), None);
        assert_eq!(needed("(?:abcd)*"), None);
        assert_eq!(needed("abcdef|x"), None);
    }
}
