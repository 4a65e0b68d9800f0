//! Conditions of `#if`: integers, `defined`, and object-like macros.

use std::cell::Cell;

/// Parentheses and macros nested deeper than this are not followed.
const DEEPEST: u32 = 32;
/// Tokens that one run may look at: macros that double at each level would go on for ever. host_config.h takes about a thousand.
const MOST_TOKENS: u32 = 20_000;
/// Replacements longer than this many bytes are not followed.
const LONGEST_REPLACEMENT: usize = 256;

/// Object-like macros: name and replacement, none where that is not known. A dozen: a list is faster than a map.
pub struct Macros<'t> {
    list: Vec<(&'t str, Option<&'t str>)>,
    tokens_left: Cell<u32>,
}

impl<'t> Macros<'t> {
    pub fn new(macros: impl IntoIterator<Item = (&'t str, Option<&'t str>)>) -> Self {
        Self { list: macros.into_iter().collect(), tokens_left: Cell::new(MOST_TOKENS) }
    }

    fn get(&self, name: &str) -> Option<Option<&'t str>> {
        self.list.iter().find(|(known, _)| *known == name).map(|(_, value)| *value)
    }

    pub fn remove(&mut self, name: &str) {
        self.list.retain(|(known, _)| *known != name);
    }

    pub fn insert(&mut self, name: &'t str, value: Option<&'t str>) {
        self.remove(name);
        self.list.push((name, value));
    }
}

/// The value of an expression; none where it is not known.
pub type Value = Option<i64>;

pub fn is_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

pub fn evaluate(tokens: &[&str], macros: &Macros<'_>, depth: u32) -> Value {
    let mut expression = Expression { rest: tokens, macros, depth, senseless: false };
    let value = expression.binary(0);
    if expression.rest.is_empty() && !expression.senseless { value } else { None }
}

/// Words, numbers and operators; none where the text has something else.
pub fn tokens(text: &str) -> Option<Vec<&str>> {
    const OPERATORS: [&str; 17] = ["&&", "||", "==", "!=", "<=", ">=", "<<", ">>", "<", ">", "!", "(", ")", "+", "-", "*", "/"];
    let mut tokens = Vec::new();
    let mut rest = text.trim();
    while let Some(first) = rest.chars().next() {
        let length = if is_word(first) {
            rest.find(|c| !is_word(c)).unwrap_or(rest.len())
        } else {
            OPERATORS.iter().find(|op| rest.starts_with(**op))?.len()
        };
        let (token, after) = rest.split_at(length);
        tokens.push(token);
        rest = after.trim_start();
    }
    Some(tokens)
}

struct Expression<'t> {
    rest: &'t [&'t str],
    macros: &'t Macros<'t>,
    depth: u32,
    /// It is no expression, so that not even a known operand says anything.
    senseless: bool,
}

/// Operators that bind equally tight, from loose to tight.
const LEVELS: [&[&str]; 7] = [&["||"], &["&&"], &["==", "!="], &["<", ">", "<=", ">="], &["<<", ">>"], &["+", "-"], &["*", "/"]];

impl<'t> Expression<'t> {
    fn next(&mut self) -> Option<&'t str> {
        let left = self.macros.tokens_left.get().checked_sub(1)?;
        self.macros.tokens_left.set(left);
        let (first, rest) = self.rest.split_first()?;
        self.rest = rest;
        Some(first)
    }

    fn accept(&mut self, token: &str) -> bool {
        self.rest.first() == Some(&token) && self.next().is_some()
    }

    fn binary(&mut self, level: usize) -> Value {
        let Some(operators) = LEVELS.get(level) else { return self.unary() };
        let mut left = self.binary(level + 1);
        while let Some(operator) = self.rest.first().copied().filter(|token| operators.contains(token)) {
            self.next()?;
            let right = self.binary(level + 1);
            left = apply(operator, left, right);
        }
        left
    }

    fn unary(&mut self) -> Value {
        self.depth += 1;
        let value = if self.depth > DEEPEST { None } else { self.operand() };
        self.depth -= 1;
        value
    }

    fn operand(&mut self) -> Value {
        let Some(token) = self.next() else { return self.give_up() };
        match token {
            "!" => self.unary().map(|value| i64::from(value == 0)),
            "-" => self.unary()?.checked_neg(),
            "+" => self.unary(),
            "(" => {
                let value = self.binary(0);
                if self.accept(")") { value } else { self.give_up() }
            }
            "defined" => {
                let name = if self.accept("(") {
                    let name = self.next();
                    if self.accept(")") { name } else { None }
                } else {
                    self.next()
                };
                // A macro whose value is not known may not be there at all.
                let Some(name) = name.filter(|name| name.starts_with(is_word)) else { return self.give_up() };
                self.macros.get(name).map_or(Some(0), |value| value.map(|_| 1))
            }
            word => match word.chars().next() {
                Some(digit) if digit.is_ascii_digit() => number(word),
                Some(letter) if is_word(letter) => self.name(word),
                _ => self.give_up(),
            },
        }
    }

    /// A name that is no macro counts as 0, as the standard says. One with arguments is not followed.
    fn name(&mut self, name: &str) -> Value {
        if self.accept("(") {
            return self.skip_arguments();
        }
        match self.macros.get(name) {
            None => Some(0),
            Some(None) => None,
            Some(Some(value)) if value.len() > LONGEST_REPLACEMENT => None,
            Some(Some(value)) => evaluate(&tokens(value)?, self.macros, self.depth + 1),
        }
    }

    fn skip_arguments(&mut self) -> Value {
        let mut open = 1;
        while open > 0 {
            match self.next() {
                Some("(") => open += 1,
                Some(")") => open -= 1,
                Some(_) => {}
                None => return self.give_up(),
            }
        }
        None
    }

    fn give_up(&mut self) -> Value {
        self.senseless = true;
        None
    }
}

/// Unknown operands make the result unknown, unless the other one settles it.
fn apply(operator: &str, left: Value, right: Value) -> Value {
    let truth = |value: bool| Some(i64::from(value));
    match operator {
        "&&" if left == Some(0) || right == Some(0) => return Some(0),
        "||" if left.is_some_and(|v| v != 0) || right.is_some_and(|v| v != 0) => return Some(1),
        _ => {}
    }
    let (left, right) = (left?, right?);
    match operator {
        "&&" => truth(left != 0 && right != 0),
        "||" => truth(left != 0 || right != 0),
        "==" => truth(left == right),
        "!=" => truth(left != right),
        "<" => truth(left < right),
        ">" => truth(left > right),
        "<=" => truth(left <= right),
        ">=" => truth(left >= right),
        "<<" => u32::try_from(right).ok().and_then(|by| left.checked_shl(by)),
        ">>" => u32::try_from(right).ok().and_then(|by| left.checked_shr(by)),
        "+" => left.checked_add(right),
        "-" => left.checked_sub(right),
        "*" => left.checked_mul(right),
        "/" => left.checked_div(right),
        _ => None,
    }
}

fn number(word: &str) -> Value {
    let digits = word.trim_end_matches(['u', 'U', 'l', 'L']);
    match digits.strip_prefix("0x").or_else(|| digits.strip_prefix("0X")) {
        Some(hex) => i64::from_str_radix(hex, 16).ok(),
        None if digits.len() > 1 && digits.starts_with('0') => i64::from_str_radix(digits, 8).ok(),
        None => digits.parse().ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(text: &str) -> Value {
        let macros = [("A", Some("3")), ("B", Some("A")), ("LOOP", Some("LOOP")), ("EMPTY", Some("")), ("WHO", None)];
        evaluate(&tokens(text)?, &Macros::new(macros), 0)
    }

    #[test]
    fn expressions() {
        for (text, expected) in [
            ("1 + 2 * 3 == 7", 1),
            ("A > 2 && B <= 3", 1),
            ("!defined(A) || defined NOT_THERE", 0),
            ("NOT_THERE", 0),
            ("0x10UL >> 2 == 4", 1),
            ("010 == 8", 1),
            ("-A < 0", 1),
            ("(A == 3) && (!(B > 4))", 1),
            ("0 && WHO", 0),
            ("1 || WHO", 1),
            ("10 / 3", 3),
            ("0 && F(1) || 1", 1),
            ("1 || F((1))", 1),
            ("(0 && F(1)) == 0", 1),
        ] {
            assert_eq!(value(text), Some(expected), "{text}");
        }
        let deep = format!("{}1{}", "(".repeat(100_000), ")".repeat(100_000));
        let unfit = [
            "",
            "A >",
            "A B",
            "(A",
            "WHO",
            "defined(WHO)",
            "LOOP",
            "EMPTY",
            "F(1)",
            "A ? 1 : 0",
            "1 / 0",
            "A # 2",
            "0 && F(1",
            "0 && )",
            "1 || (2",
            "0 && (",
            "1 || defined",
            "1 || 2 3",
            &deep,
        ];
        for text in unfit {
            assert_eq!(value(text), None, "{text:.20}");
        }
    }
}
