//! What a line must hold to match a pattern: words to look for in gigabytes before any pattern is tried.

use regex_syntax::ParserBuilder;
use regex_syntax::hir::{Hir, HirKind};

/// Shorter ones are met in too many lines.
const SHORTEST: usize = 4;

/// Words of which every line that the pattern matches holds at least one; `None`: there are no such words.
///
/// A word ends where tools begin to colour: at quotes, colons and brackets. So it stands in one piece in coloured output too.
pub fn needed(pattern: &str) -> Option<Vec<String>> {
    let hir = ParserBuilder::new().unicode(false).utf8(false).build().parse(pattern).ok()?;
    of(&hir)
}

fn of(hir: &Hir) -> Option<Vec<String>> {
    match hir.kind() {
        HirKind::Literal(literal) => longest(&literal.0).map(|word| vec![word]),
        HirKind::Capture(capture) => of(&capture.sub),
        HirKind::Repetition(repetition) if repetition.min > 0 => of(&repetition.sub),
        HirKind::Concat(parts) => parts.iter().filter_map(of).max_by_key(|words| worth(words)),
        HirKind::Alternation(parts) => {
            let all: Option<Vec<Vec<String>>> = parts.iter().map(of).collect();
            let mut words = all?.concat();
            words.sort();
            words.dedup();
            Some(words)
        }
        HirKind::Repetition(_) | HirKind::Empty | HirKind::Class(_) | HirKind::Look(_) => None,
    }
}

fn longest(literal: &[u8]) -> Option<String> {
    let inside = |byte: &u8| byte.is_ascii_alphanumeric() || b"_ .,+=/-".contains(byte);
    let pieces = literal.split(|byte| !inside(byte)).map(<[u8]>::trim_ascii).filter(|piece| piece.len() >= SHORTEST);
    let piece = pieces.max_by_key(|piece| rarity(piece))?;
    std::str::from_utf8(piece).ok().map(ToOwned::to_owned)
}

/// A set is as good as its most common word, and the fewer the better.
fn worth(words: &[String]) -> (usize, std::cmp::Reverse<usize>) {
    (words.iter().map(|word| rarity(word.as_bytes())).min().unwrap_or(0), std::cmp::Reverse(words.len()))
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
        assert_eq!(words("(?:cannot find|unable to find library) -lcufile"), ["-lcufile"]);
        assert_eq!(words(r"fatal error: '?(?<h>libaio\.h)'?: No such"), ["libaio.h"]);
        assert_eq!(words("(?:Cannot fork|Resource temporarily unavailable)"), ["Cannot fork", "Resource temporarily unavailable"]);
        assert_eq!(words("(?:undefined symbol: )?cuInit+"), ["cuIni"]);
    }

    #[test]
    fn none_where_nothing_is_sure() {
        assert_eq!(needed(r"^\d+$"), None);
        assert_eq!(needed("(?:abcd)*"), None);
        assert_eq!(needed("abcdef|x"), None);
        assert_eq!(needed("(?i)error"), None);
    }
}
