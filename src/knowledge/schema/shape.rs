//! A signature's patterns, ready to match, and whether the lines that they match stand as the signature asks.

use super::Fault;
use super::signatures::{Context, Place, Signature};
use regex::bytes::{Regex, RegexBuilder};
use std::collections::BTreeMap;

/// What named groups caught.
pub type Captures = BTreeMap<String, String>;

/// A line that one pattern matched.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hit {
    /// Counted from any fixed line.
    pub line: usize,
    pub captures: Captures,
}

/// The compiled patterns of a signature.
pub struct Shape {
    patterns: Vec<Regex>,
    context: Vec<Regex>,
}

impl Shape {
    /// # Errors
    /// A pattern that is no regular expression.
    pub fn new(signature: &Signature) -> Result<Self, Fault> {
        let patterns = signature.patterns.iter().map(|pattern| compile("patterns", pattern)).collect::<Result<_, _>>()?;
        let context = signature.context.iter().map(|context| compile("context", &context.pattern)).collect::<Result<_, _>>()?;
        Ok(Self { patterns, context })
    }

    /// What the decisive line captures; `None`: it is not one.
    pub fn decisive(&self, line: &[u8]) -> Option<Captures> {
        self.patterns.iter().find_map(|pattern| capture(pattern, line))
    }

    /// What a line captures as the context of this number.
    pub fn context(&self, number: usize, line: &[u8]) -> Option<Captures> {
        capture(self.context.get(number)?, line)
    }

    pub fn has_context(&self) -> bool {
        !self.context.is_empty()
    }

    /// Whether the pattern of this number matches.
    pub fn matches(&self, number: usize, line: &[u8]) -> bool {
        self.patterns.get(number).is_some_and(|pattern| pattern.is_match(line))
    }

    /// The names of all groups.
    pub fn groups(&self) -> Vec<&str> {
        self.patterns.iter().chain(&self.context).flat_map(|pattern| pattern.capture_names().flatten()).collect()
    }
}

fn compile(key: &'static str, pattern: &str) -> Result<Regex, Fault> {
    RegexBuilder::new(pattern).unicode(false).build().map_err(|error| Fault::new(key, error.to_string()))
}

fn capture(pattern: &Regex, line: &[u8]) -> Option<Captures> {
    let found = pattern.captures(line)?;
    let named = pattern.capture_names().flatten();
    let text = |name: &str| found.name(name).map(|part| String::from_utf8_lossy(part.as_bytes()).into_owned());
    Some(named.filter_map(|name| Some((name.to_owned(), text(name)?))).collect())
}

/// Whether a decisive line has the context that it needs: all that was captured then. `around`: the lines of each context.
pub fn stands(context: &[Context], hit: &Hit, around: &[Vec<Hit>]) -> Option<Captures> {
    let mut caught = hit.captures.clone();
    let mut last = hit.line;
    for (context, lines) in context.iter().zip(around) {
        let near = |away: usize| context.within.is_none_or(|most| u32::try_from(away).is_ok_and(|away| away <= most));
        let fits = |other: &&Hit| {
            let placed = match context.place {
                Place::Before => other.line < hit.line && near(hit.line - other.line),
                Place::After => other.line > last && near(other.line - last),
                Place::Anywhere => other.line != hit.line && near(other.line.abs_diff(hit.line)),
            };
            placed && other.captures.iter().all(|(name, text)| caught.get(name).is_none_or(|known| known == text))
        };
        match lines.iter().filter(fits).min_by_key(|other| other.line.abs_diff(hit.line)) {
            Some(_) if context.absent => return None,
            None if !context.absent => return None,
            None => {}
            Some(found) => {
                caught.extend(found.captures.clone());
                if context.place == Place::After {
                    last = found.line;
                }
            }
        }
    }
    Some(caught)
}
