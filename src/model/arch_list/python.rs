//! How Python's `int` and its exceptions behave, as far as an arch list can show it.

use super::{Refusal, Refuser};

/// Python's `int(text)`: blanks around, a sign, underscores between digits, and full-width digits are taken.
pub fn int(text: &str) -> Option<i64> {
    let text = text.trim();
    let (sign, digits) = match text.strip_prefix(['-', '+']) {
        Some(digits) => (if text.starts_with('-') { -1 } else { 1 }, digits),
        None => (1, text),
    };
    let mut value: i64 = 0;
    let mut after_digit = false;
    for c in digits.chars() {
        if c == '_' && after_digit {
            after_digit = false;
            continue;
        }
        value = value.checked_mul(10)?.checked_add(digit(c)?)?;
        after_digit = true;
    }
    after_digit.then_some(sign * value)
}

fn digit(c: char) -> Option<i64> {
    let ascii = match c {
        '\u{ff10}'..='\u{ff19}' => char::from_u32(u32::from(c) - 0xff10 + 0x30)?,
        c => c,
    };
    ascii.to_digit(10).map(i64::from)
}

/// # Errors
/// `ValueError`, in Python's words.
pub fn int_of(item: &str, text: &str) -> Result<i64, Refusal> {
    let refuse = || refusal(item, format!("ValueError: invalid literal for int() with base 10: {}", repr(text)));
    int(text).ok_or_else(refuse)
}

pub fn index_error(item: &str, of: &str) -> Refusal {
    refusal(item, format!("IndexError: {of} index out of range"))
}

fn refusal(item: &str, message: String) -> Refusal {
    Refusal { item: item.to_owned(), by: Refuser::DeepSpeed, message }
}

/// Python's `repr` of a text, as far as printable characters and the usual control characters go.
fn repr(text: &str) -> String {
    let quote = if text.contains('\'') && !text.contains('"') { '"' } else { '\'' };
    let mut out = String::from(quote);
    for c in text.chars() {
        match c {
            '\t' => out.push_str("\\t"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            c if c == quote || c == '\\' => out.extend(['\\', c]),
            c if c.is_ascii_control() => out.push_str(&format!("\\x{:02x}", u32::from(c))),
            c => out.push(c),
        }
    }
    out.push(quote);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers() {
        for (text, value) in [("8", 8), (" 8\t", 8), ("08", 8), ("+8", 8), ("-8", -8), ("8_0", 80), ("８", 8)] {
            assert_eq!(int(text), Some(value), "{text}");
        }
        for text in ["", "+", "8.0", "0a", "_8", "8_", "8__0", "Ampere", "99999999999999999999"] {
            assert_eq!(int(text), None, "{text}");
        }
    }

    #[test]
    fn words() {
        assert_eq!(repr("it's"), "\"it's\"");
        assert_eq!(repr("0a"), "'0a'");
        assert_eq!(repr("0\t8\u{1}"), "'0\\t8\\x01'");
    }
}
