//! A line as the tool wrote it: without what terminals, build systems and launchers put round it.

use regex::bytes::{Regex, RegexBuilder};

/// What stands in front of a tool's own words.
pub struct Prefixes {
    pattern: Option<Regex>,
}

/// Each is met at the beginning of a line, in any order and number.
const PREFIXES: &[&str] = &[
    // pip's and uv's frames and indentation, pytest's mark of an exception.
    r"[ \t]+",
    r"(?:\xe2[\x94\x95\x96][\x80-\xbf]|\xc3\x97|\xe2\x86\xb3)+[> ]*",
    r"E {3,}",
    // docker: `#12 3.456 `, compose's `service-1  | `.
    r"#\d+ (?:\d+\.\d+ )?",
    r"[\w.-]+-\d+ +\| ",
    // GitHub Actions, GitLab, Jenkins: a time, then a mark.
    r"\[?\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)?\]? ?(?:\d\d[OE][ +])?",
    r"##\[\w+\]",
    // Ranks: torchrun, SLURM's --label, mpirun, ray.
    r"\[(?:rank|default)\d+\]:? ?",
    r"\d+: ",
    r"\[\d+,\d+\]<std(?:out|err)>: ?",
    r"\(\w+ pid=\d+(?:, ip=[\d.]+)?\) ",
];

impl Prefixes {
    pub fn new() -> Self {
        let any = PREFIXES.iter().map(|prefix| format!("(?:{prefix})")).collect::<Vec<_>>().join("|");
        Self { pattern: RegexBuilder::new(&format!("^(?:{any})+")).unicode(false).build().ok() }
    }

    /// Writes the tool's own words of `line` into `out`.
    pub fn strip(&self, line: &[u8], out: &mut Vec<u8>) {
        out.clear();
        plain(line, out);
        let prefix = self.pattern.as_ref().and_then(|pattern| pattern.find(out)).map_or(0, |found| found.end());
        out.drain(..prefix);
        out.truncate(out.trim_ascii_end().len());
    }
}

/// Without escape sequences and control characters; typographic quotes become plain ones.
fn plain(line: &[u8], out: &mut Vec<u8>) {
    let mut rest = line;
    while let Some((first, after)) = rest.split_first() {
        rest = match (*first, after) {
            (0x1b, _) => after.get(sequence(after)..).unwrap_or_default(),
            // A byte-order mark.
            (0xef, [0xbb, 0xbf, after @ ..]) => after,
            (0xe2, [0x80, 0x98..=0x9b, after @ ..]) => {
                out.push(b'\'');
                after
            }
            (0xe2, [0x80, 0x9c..=0x9f, after @ ..]) => {
                out.push(b'"');
                after
            }
            (0xc2, [0xab | 0xbb, after @ ..]) => {
                out.push(b'"');
                after
            }
            // A blank that does not break, which French puts before colons.
            (0xc2, [0xa0, after @ ..]) | (0xe2, [0x80, 0xaf, after @ ..]) => {
                out.push(b' ');
                after
            }
            (b'\t', _) => {
                out.push(b' ');
                after
            }
            (0..0x20 | 0x7f, _) => after,
            (byte, _) => {
                out.push(byte);
                after
            }
        };
    }
}

/// How many bytes after ESC belong to the sequence. ECMA-48: `[ … final`, `] … BEL or ESC \`, `( B`, or one byte.
fn sequence(after: &[u8]) -> usize {
    match after.first() {
        Some(b'[') => after.iter().skip(1).position(|byte| (0x40..=0x7e).contains(byte)).map_or(after.len(), |at| at + 2),
        Some(b']') => {
            let end = after.iter().position(|byte| matches!(byte, 7 | 0x1b));
            end.map_or(after.len(), |at| if after.get(at) == Some(&0x1b) { at + 2 } else { at + 1 }.min(after.len()))
        }
        Some(b'(' | b')' | b'#' | b' ') => after.len().min(2),
        Some(_) => 1,
        None => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stripped(line: &str) -> String {
        let mut out = Vec::new();
        Prefixes::new().strip(line.as_bytes(), &mut out);
        String::from_utf8_lossy(&out).into_owned()
    }

    #[test]
    fn colours_go() {
        assert_eq!(
            stripped("\u{1b}[01m\u{1b}[Kcc1plus:\u{1b}[m\u{1b}[K \u{1b}[01;31m\u{1b}[Kfatal error: \u{1b}[m\u{1b}[Kx"),
            "cc1plus: fatal error: x"
        );
        assert_eq!(stripped("\u{1b}]8;;http://x\u{1b}\\link\u{1b}]8;;\u{7}\u{1b}(B end\u{8}"), "link end");
        assert_eq!(stripped("a\u{1b}"), "a");
        assert_eq!(stripped("a\u{1b}["), "a");
    }

    #[test]
    fn prefixes_go() {
        for line in [
            "#12 3.456   ninja: build stopped",
            "2026-11-29T14:43:51.1234567Z ##[error]ninja: build stopped",
            "[rank0]: ninja: build stopped",
            "0: ninja: build stopped",
            "      \u{2502}   ninja: build stopped",
            "\u{00d7} ninja: build stopped",
            "\u{2570}\u{2500}> ninja: build stopped",
            "  \u{251c}\u{2500}\u{25b6} ninja: build stopped",
            "[1,0]<stderr>:ninja: build stopped",
            "(RayWorker pid=12, ip=10.0.0.1) ninja: build stopped\r",
            "trainer-1  | ninja: build stopped",
            "E   ninja: build stopped",
        ] {
            assert_eq!(stripped(line), "ninja: build stopped", "{line}");
        }
        assert_eq!(stripped("Error: x"), "Error: x");
    }

    #[test]
    fn quotes_are_plain() {
        assert_eq!(stripped("kann \u{201e}x\u{201c} nicht; \u{2018}y\u{2019}; \u{ab}z\u{bb}"), "kann \"x\" nicht; 'y'; \"z\"");
    }
}
