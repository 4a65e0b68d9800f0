//! As much of the C preprocessor as it takes to see whether a header reaches an `#error` for a given compiler.
//!
//! What it does not understand it answers with "unknown", never with a guess.

use std::cell::Cell;

/// Parentheses and macros nested deeper than this are not followed.
const DEEPEST: u32 = 32;
/// Headers with more directives are not evaluated; host_config.h has about two hundred.
const MOST_DIRECTIVES: usize = 1024;
/// Tokens that one run may look at: macros that double at each level would go on for ever. host_config.h takes about a thousand.
const MOST_TOKENS: u32 = 20_000;
/// Replacements longer than this many bytes are not followed.
const LONGEST_REPLACEMENT: usize = 256;

/// What a header makes of a set of macros.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// No `#error` is reached.
    Accepted,
    /// An `#error` is reached.
    Refused,
    /// It depends on something that is not understood.
    Unknown,
}

/// The text of a header without comments and with continued lines joined.
pub struct Clean(String);

impl Clean {
    pub fn new(text: &str) -> Self {
        Self(without_comments(&text.replace("\\\r\n", " ").replace("\\\n", " ")))
    }
}

/// The directives of a header, up to its last `#error`.
pub struct Header<'t> {
    directives: Vec<Directive<'t>>,
    whole: bool,
}

#[derive(Debug)]
enum Directive<'t> {
    If(Condition<'t>),
    Elif(Condition<'t>),
    Else,
    Endif,
    /// Name, and replacement; none for a macro with parameters.
    Define(&'t str, Option<&'t str>),
    Undef(&'t str),
    Error(&'t str),
}

/// The tokens of a condition; none where it has something that is not understood.
type Condition<'t> = Option<Vec<&'t str>>;

/// Object-like macros: name and replacement, none where that is not known. A dozen: a list is faster than a map.
struct Macros<'t> {
    list: Vec<(&'t str, Option<&'t str>)>,
    tokens_left: Cell<u32>,
}

impl<'t> Macros<'t> {
    fn new(macros: impl IntoIterator<Item = (&'t str, Option<&'t str>)>) -> Self {
        Self { list: macros.into_iter().collect(), tokens_left: Cell::new(MOST_TOKENS) }
    }

    fn get(&self, name: &str) -> Option<Option<&'t str>> {
        self.list.iter().find(|(known, _)| *known == name).map(|(_, value)| *value)
    }

    fn remove(&mut self, name: &str) {
        self.list.retain(|(known, _)| *known != name);
    }

    fn insert(&mut self, name: &'t str, value: Option<&'t str>) {
        self.remove(name);
        self.list.push((name, value));
    }
}

/// The value of an expression; none where it is not known.
type Value = Option<i64>;

impl<'t> Header<'t> {
    pub fn parse(text: &'t Clean) -> Self {
        let mut directives: Vec<_> = text.0.lines().filter_map(directive).take(MOST_DIRECTIVES + 1).collect();
        let mut depth = 0_i64;
        let mut balanced = true;
        for directive in &directives {
            depth += match directive {
                Directive::If(_) => 1,
                Directive::Endif => -1,
                _ => 0,
            };
            balanced &= depth >= 0;
        }
        let whole = balanced && depth == 0 && directives.len() <= MOST_DIRECTIVES;
        let last = directives.iter().rposition(|d| matches!(d, Directive::Error(_)));
        directives.truncate(last.map_or(0, |last| last + 1));
        Self { whole, directives }
    }

    /// Whether some `#error`, reached or not, has this text.
    pub fn has_error_with(&self, text: &str) -> bool {
        self.directives.iter().any(|d| matches!(d, Directive::Error(message) if message.contains(text)))
    }

    /// Runs through the header with these macros defined. A header that was cut off is unknown.
    pub fn run<'m>(&self, macros: impl IntoIterator<Item = (&'m str, &'m str)>) -> Outcome
    where
        't: 'm,
    {
        if !self.whole {
            return Outcome::Unknown;
        }
        let mut macros = Macros::new(macros.into_iter().map(|(name, value)| (name, Some(value))));
        let mut branches: Vec<Branch> = Vec::new();
        let mut maybe_refused = false;
        for directive in &self.directives {
            let here = branches.last().map_or(Taken::Yes, |branch| branch.now);
            match directive {
                Directive::If(condition) => {
                    let wanted = if here == Taken::No { Taken::No } else { taken(condition, &macros) };
                    branches.push(Branch { outside: here, now: wanted.within(here), before: wanted });
                }
                Directive::Elif(condition) => {
                    if let Some(branch) = branches.last_mut() {
                        let wanted = if branch.before == Taken::Yes { Taken::No } else { taken(condition, &macros) };
                        branch.enter(wanted);
                    }
                }
                Directive::Else => {
                    if let Some(branch) = branches.last_mut() {
                        branch.enter(Taken::Yes);
                    }
                }
                Directive::Endif => drop(branches.pop()),
                _ if here == Taken::No => {}
                Directive::Error(_) if here == Taken::Yes => return Outcome::Refused,
                Directive::Error(_) => maybe_refused = true,
                Directive::Define(name, value) => {
                    macros.insert(name, value.filter(|_| here == Taken::Yes));
                }
                Directive::Undef(name) if here == Taken::Yes => {
                    macros.remove(name);
                }
                Directive::Undef(name) => {
                    macros.insert(name, None);
                }
            }
        }
        if maybe_refused { Outcome::Unknown } else { Outcome::Accepted }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Taken {
    Yes,
    No,
    Maybe,
}

impl Taken {
    fn within(self, outside: Self) -> Self {
        match (outside, self) {
            (Self::No, _) | (_, Self::No) => Self::No,
            (Self::Yes, inside) => inside,
            (Self::Maybe, _) => Self::Maybe,
        }
    }
}

struct Branch {
    outside: Taken,
    /// The part between this directive and the next of the same `#if`.
    now: Taken,
    /// Whether one of the parts so far was taken, as far as it depends on their conditions.
    before: Taken,
}

impl Branch {
    /// Goes on to the next part, which is wanted so far as no part before it was taken.
    fn enter(&mut self, wanted: Taken) {
        let free = match self.before {
            Taken::Yes => Taken::No,
            Taken::No => Taken::Yes,
            Taken::Maybe => Taken::Maybe,
        };
        self.now = wanted.within(free).within(self.outside);
        self.before = match (self.before, wanted) {
            (Taken::Yes, _) | (_, Taken::Yes) => Taken::Yes,
            (Taken::No, Taken::No) => Taken::No,
            _ => Taken::Maybe,
        };
    }
}

fn taken(condition: &Condition<'_>, macros: &Macros<'_>) -> Taken {
    match condition.as_ref().and_then(|tokens| evaluate(tokens, macros, 0)) {
        Some(0) => Taken::No,
        Some(_) => Taken::Yes,
        None => Taken::Maybe,
    }
}

/// Comments become blanks. Quotes hold within a line only: the text of an `#error` may have a lone one.
fn without_comments(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars().peekable();
    let mut quoted = false;
    while let Some(c) = chars.next() {
        match (c, chars.peek()) {
            ('\n', _) => quoted = false,
            ('"', _) => quoted = !quoted,
            ('\\', Some(_)) if quoted => {
                out.push(c);
                out.extend(chars.next());
                continue;
            }
            ('/', Some('*')) if !quoted => {
                chars.next();
                let mut last = ' ';
                for c in chars.by_ref() {
                    if last == '*' && c == '/' {
                        break;
                    }
                    if c == '\n' {
                        out.push(c);
                    }
                    last = c;
                }
                out.push(' ');
                continue;
            }
            ('/', Some('/')) if !quoted => {
                while chars.next_if(|c| *c != '\n').is_some() {}
                continue;
            }
            _ => {}
        }
        out.push(c);
    }
    out
}

fn directive(line: &str) -> Option<Directive<'_>> {
    let line = line.trim_start().strip_prefix('#')?.trim_start();
    let (word, rest) = line.split_at(line.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(line.len()));
    let rest = rest.trim();
    let (name, after) = rest.split_at(rest.find(|c| !is_word(c)).unwrap_or(rest.len()));
    Some(match word {
        "if" => Directive::If(tokens(rest)),
        "ifdef" => Directive::If(Some(vec!["defined", name])),
        "ifndef" => Directive::If(Some(vec!["!", "defined", name])),
        "elif" => Directive::Elif(tokens(rest)),
        "else" => Directive::Else,
        "endif" => Directive::Endif,
        "error" => Directive::Error(rest),
        "undef" => Directive::Undef(name),
        "define" => Directive::Define(name, (!after.starts_with('(')).then(|| after.trim())),
        _ => return None,
    })
}

fn is_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

fn evaluate(tokens: &[&str], macros: &Macros<'_>, depth: u32) -> Value {
    let mut expression = Expression { rest: tokens, macros, depth };
    let value = expression.binary(0);
    if expression.rest.is_empty() { value } else { None }
}

/// Words, numbers and operators; none where the text has something else.
fn tokens(text: &str) -> Option<Vec<&str>> {
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
        match self.next()? {
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
                let name = name?;
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
        if self.rest.first() == Some(&"(") {
            return self.give_up();
        }
        match self.macros.get(name) {
            None => Some(0),
            Some(None) => None,
            Some(Some(value)) if value.len() > LONGEST_REPLACEMENT => None,
            Some(Some(value)) => evaluate(&tokens(value)?, self.macros, self.depth + 1),
        }
    }

    fn give_up(&mut self) -> Value {
        self.rest = &[];
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
        ] {
            assert_eq!(value(text), Some(expected), "{text}");
        }
        let deep = format!("{}1{}", "(".repeat(100_000), ")".repeat(100_000));
        let unfit = ["", "A >", "A B", "(A", "WHO", "defined(WHO)", "LOOP", "EMPTY", "F(1)", "A ? 1 : 0", "1 / 0", "A # 2", &deep];
        for text in unfit {
            assert_eq!(value(text), None, "{text:.20}");
        }
    }

    #[test]
    fn macros_that_explode_are_given_up() {
        let mut text = String::new();
        for i in 0..30 {
            text.push_str(&format!("#define M{i} M{} + M{}\n", i + 1, i + 1));
        }
        text.push_str("#if M0\n#error no\n#endif\n");
        assert_eq!(Header::parse(&Clean::new(&text)).run([]), Outcome::Unknown);
    }

    #[test]
    fn branches() {
        let run = |text: &str| Header::parse(&Clean::new(text)).run([("A", "3")]);
        use Outcome::{Accepted, Refused, Unknown};
        for (text, expected) in [
            ("", Accepted),
            ("#error no", Refused),
            ("/* #error no */ // #error no\n# if 0\n#error no\n#endif", Accepted),
            ("#if A > \\\n 3\n#error no\n#endif", Accepted),
            ("#ifdef A\n#ifndef B\n# error it's no\n#endif\n#endif", Refused),
            ("#if A == 1\n#elif A == 3\n#else\n#error no\n#endif", Accepted),
            ("#if A == 1\n#elif A == 2\n#else\n#error no\n#endif", Refused),
            ("#define A 4\n#if A == 4\n#error no\n#endif", Refused),
            ("#undef A\n#ifdef A\n#error no\n#endif", Accepted),
            ("#define F(x) x\n#if F(1)\n#error no\n#endif", Unknown),
            ("#if __has_include(<x>)\n#error no\n#else\n#define C 1\n#endif", Unknown),
            ("#if __has_include(<x>)\n#define C 1\n#endif\n#ifdef C\n#error no\n#endif", Unknown),
            ("#if __has_include(<x>)\n#elif A\n#else\n#error no\n#endif", Accepted),
            ("#if 0\n#if __has_include(<x>)\n#error no\n#endif\n#endif", Accepted),
            ("#if A > 3\n#error no\n", Unknown),
            ("#endif\n#if 1", Unknown),
        ] {
            assert_eq!(run(text), expected, "{text}");
        }
    }
}
