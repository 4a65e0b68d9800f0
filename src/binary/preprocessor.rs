//! As much of the C preprocessor as it takes to see whether a header reaches an `#error` for a given compiler.
//!
//! What it does not understand it answers with "unknown", never with a guess.

mod expression;

use expression::{Macros, evaluate, is_word, tokens};

/// Headers with more directives are not evaluated; host_config.h has about two hundred.
const MOST_DIRECTIVES: usize = 1024;

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

#[cfg(test)]
mod tests {
    use super::*;

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
