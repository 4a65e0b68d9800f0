//! Words for people: counting, joining, and making text from outside safe to print.

use std::borrow::Cow;
use std::fmt::Write as _;

/// `1 toolkit`, `3 toolkits`
pub fn count(number: usize, noun: &str) -> String {
    if number == 1 { format!("1 {noun}") } else { format!("{number} {noun}s") }
}

/// `a`, `a and b`, `a, b and c`
pub fn join<S: AsRef<str>>(items: &[S]) -> String {
    match items {
        [] => String::new(),
        [one] => one.as_ref().to_owned(),
        [most @ .., last] => {
            let most: Vec<&str> = most.iter().map(AsRef::as_ref).collect();
            format!("{} and {}", most.join(", "), last.as_ref())
        }
    }
}

/// Control characters (terminal escapes, newlines, bidirectional overrides) shown as escapes, so that a path or a compiler's words
/// cannot move the cursor or forge a line.
pub fn clean(text: &str) -> Cow<'_, str> {
    let hostile = |c: char| c.is_control() || matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    if !text.contains(hostile) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        match c {
            '\n' => out.push_str("\\n"),
            '\t' => out.push_str("\\t"),
            '\r' => out.push_str("\\r"),
            c if hostile(c) => {
                let _ = write!(out, "\\u{{{:x}}}", u32::from(c));
            }
            c => out.push(c),
        }
    }
    Cow::Owned(out)
}

/// Bytes as people read them: `512 MiB`, `7.6 GiB`.
pub fn bytes(number: u64) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut value = number as f64;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    if unit == 0 || value >= 100.0 || value.fract() < 0.05 {
        format!("{value:.0} {}", UNITS[unit])
    } else {
        format!("{value:.1} {}", UNITS[unit])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counting_and_joining() {
        assert_eq!(count(1, "toolkit"), "1 toolkit");
        assert_eq!(count(0, "toolkit"), "0 toolkits");
        assert_eq!(join(&["a", "b", "c"]), "a, b and c");
    }

    #[test]
    fn escapes_cannot_reach_the_terminal() {
        assert_eq!(clean("/usr/local/cuda"), "/usr/local/cuda");
        assert_eq!(clean("a\x1b[2Jb\n"), "a\\u{1b}[2Jb\\n");
        assert_eq!(clean("x\u{202e}y"), "x\\u{202e}y");
    }

    #[test]
    fn sizes() {
        assert_eq!(bytes(64 << 20), "64 MiB");
        assert_eq!(bytes(1536 << 20), "1.5 GiB");
        assert_eq!(bytes(12), "12 B");
    }
}
