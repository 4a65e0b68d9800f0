//! The signatures made ready to read with, and what a log then holds.

use super::errors::Errors;
use super::languages::{Foreign, foreign};
use super::normal::Prefixes;
use super::scan::Scan;
use super::sieve::{Common, Sieve};
use crate::facts::log::{ErrorLine, Log, Sighting};
use crate::facts::probe::Meaning;
use crate::facts::raw::HostPath;
use crate::knowledge::Knowledge;
use crate::knowledge::schema::shape::Shape;
use crate::knowledge::schema::signatures::{Kind, Place, Signature, Tool};
use crate::knowledge::schema::{List, Str};
use std::borrow::Cow;
use std::cell::OnceCell;
use std::collections::BTreeMap;

/// The signatures, ready to read with. Making one takes some milliseconds; a pattern is compiled when a line holds its words.
pub struct Reader<'a> {
    pub(super) all: Vec<(&'a Signature, OnceCell<Option<Shape>>)>,
    /// Words of which every line that could matter at first holds one: as few as do.
    pub(super) triggers: Sieve,
    common: Common,
    keys: Vec<String>,
    /// All words, and which signatures want them as what.
    words: Sieve,
    wanted_by: Vec<Vec<(usize, Role)>>,
    foreign: Vec<Foreign<'a>>,
    pub(super) prefixes: Prefixes,
    pub(super) errors: Errors,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Role {
    /// A phrase of another language, by its number: it is put into English before anything is tried.
    Foreign,
    Decisive,
    Context(usize),
    /// A line that only looks like an error.
    Error,
}

/// A line that a signature knows.
#[derive(Debug, Clone)]
pub struct Match<'a> {
    pub signature: &'a Signature,
    /// Counted from 1.
    pub number: usize,
    /// Without colours and prefixes.
    pub line: String,
    pub captures: BTreeMap<String, String>,
    /// How many lines match with the same captures.
    pub times: usize,
}

impl Match<'_> {
    pub fn meaning(&self) -> Meaning {
        Meaning { id: self.signature.id.to_string(), signature: self.signature.name.to_string(), captures: self.captures.clone() }
    }
}

/// All that a log holds.
#[derive(Debug, Clone, Default)]
pub struct Outcome<'a> {
    /// In the order of lines.
    pub matches: Vec<Match<'a>>,
    /// The first error-like line of each tool.
    pub errors: Vec<ErrorLine>,
    pub lines: usize,
    pub bytes: u64,
}

impl Outcome<'_> {
    /// As a fact.
    pub fn log(self, name: HostPath, cut: Option<String>) -> Log {
        let sightings = self.matches.into_iter().map(|one| Sighting {
            signature: one.signature.name.to_string(),
            line: one.number,
            text: one.line,
            captures: one.captures,
            times: one.times,
        });
        Log { name, lines: self.lines, bytes: self.bytes, sightings: sightings.collect(), errors: self.errors, cut }
    }
}

impl<'a> Reader<'a> {
    pub fn new(know: &'a Knowledge) -> Self {
        Self::of(know, |_| true)
    }

    /// Only the signatures of these tools.
    pub fn of(know: &'a Knowledge, wanted: impl Fn(Tool) -> bool) -> Self {
        let all: Vec<&Signature> = know.signatures.signature.iter().filter(|signature| wanted(signature.tool)).collect();
        let errors = Errors::new();
        let mut table: BTreeMap<String, Vec<(usize, Role)>> = BTreeMap::new();
        for (at, signature) in all.iter().enumerate() {
            let roles = signature.patterns.iter().map(|_| Role::Decisive).chain((0..signature.context.len()).map(Role::Context));
            for (words, role) in words_of(signature).iter().zip(roles) {
                for word in words.iter() {
                    let wants = table.entry(word.to_string()).or_default();
                    if !wants.contains(&(at, role)) {
                        wants.push((at, role));
                    }
                }
            }
        }
        for word in errors.words() {
            table.entry((*word).to_owned()).or_default().push((0, Role::Error));
        }
        let foreign = foreign(&know.languages.phrase);
        for (at, phrase) in foreign.iter().enumerate() {
            table.entry(phrase.word.clone()).or_default().push((at, Role::Foreign));
        }
        let common = Common::new();
        let (keys, wanted_by): (Vec<String>, _) = table.into_iter().unzip();
        let words = Sieve::new(keys.iter().map(String::as_str), &common);
        let mut reader = Self {
            triggers: Sieve::new([], &common),
            common,
            keys,
            words,
            wanted_by,
            all: all.into_iter().map(|signature| (signature, OnceCell::new())).collect(),
            foreign,
            prefixes: Prefixes::new(),
            errors,
        };
        reader.triggers = reader.sieve(|at, role| reader.starts(at, role));
        reader
    }

    /// Whether a line is looked for from the beginning on: what has to stand after a decisive line is not, until there is one.
    fn starts(&self, at: usize, role: Role) -> bool {
        match (role, self.all.get(at)) {
            (Role::Context(which), Some((signature, _))) => {
                signature.context.get(which).is_some_and(|context| context.place != Place::After)
            }
            _ => true,
        }
    }

    /// Finds the words that somebody wants who is awake.
    pub(super) fn sieve(&self, awake: impl Fn(usize, Role) -> bool) -> Sieve {
        let wanted: Vec<bool> = self.wanted_by.iter().map(|wants| wants.iter().any(|(at, role)| awake(*at, *role))).collect();
        let is_wanted = |at: usize| wanted.get(at) == Some(&true);
        // A word that holds another one need not be looked for: who finds the shorter finds the longer too.
        let holds_another = |word: &str| {
            let mut holds = false;
            self.words.each(word.as_bytes(), |other| {
                holds |= is_wanted(other) && self.keys.get(other).is_some_and(|other| other.len() < word.len())
            });
            holds
        };
        let words = self.keys.iter().enumerate().filter(|(at, word)| is_wanted(*at) && !holds_another(word));
        Sieve::new(words.map(|(_, word)| word.as_str()), &self.common)
    }

    /// Begins to read one log.
    pub fn scan(&self) -> Scan<'_, 'a> {
        Scan::new(self)
    }

    /// All that an output in memory holds.
    pub fn read(&self, output: &[u8]) -> Outcome<'a> {
        let mut scan = self.scan();
        scan.feed(output);
        scan.finish()
    }

    /// The lines of an output that signatures know, in their order.
    pub fn matches(&self, output: &[u8]) -> Vec<Match<'a>> {
        self.read(output).matches
    }

    /// The line that names the cause.
    pub fn cause(&self, output: &[u8]) -> Option<Match<'a>> {
        let all = self.matches(output);
        let explained = |one: &Match<'_>| one.signature.after.iter().any(|name| all.iter().any(|other| other.signature.name == *name));
        let causes = all.iter().filter(|one| one.signature.kind() == Kind::Cause && !explained(one));
        causes.min_by_key(|one| (one.signature.rank(), one.number)).cloned()
    }

    /// What the words of a line say of it, and, where it is in another language, the line in English.
    pub(super) fn wants(&self, line: &[u8], todo: &mut Vec<(usize, Role)>, english: &mut Vec<u8>) {
        english.clear();
        self.collect(line, todo);
        let strange = todo.iter().take_while(|(_, role)| *role == Role::Foreign).count();
        if strange == 0 {
            return;
        }
        english.extend_from_slice(line);
        for (at, _) in todo.iter().take(strange) {
            if let Some(phrase) = self.foreign.get(*at) {
                phrase.replace(english);
            }
        }
        self.collect(english, todo);
        todo.retain(|(_, role)| *role != Role::Foreign);
    }

    fn collect(&self, line: &[u8], todo: &mut Vec<(usize, Role)>) {
        todo.clear();
        self.words.each(line, |word| todo.extend(self.wanted_by.get(word).into_iter().flatten()));
        todo.sort_unstable_by_key(|(at, role)| (*role, *at));
        todo.dedup();
    }

    pub(super) fn shape(&self, at: usize) -> Option<&Shape> {
        let (signature, shape) = self.all.get(at)?;
        // Every table is judged when it is read, so a pattern that does not compile is not met here.
        shape.get_or_init(|| Shape::new(signature).ok()).as_ref()
    }
}

/// The words of a signature: those that build.rs found, or those of a row of `--rules-dir`.
fn words_of(signature: &Signature) -> Cow<'_, [List<Str>]> {
    if !signature.words.is_empty() {
        return Cow::Borrowed(&signature.words);
    }
    let mut row = signature.clone();
    row.find_words();
    row.words
}

#[cfg(test)]
#[expect(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::knowledge::schema::signatures::example;

    fn cause(output: &str) -> Option<(String, String)> {
        let know = Knowledge::embedded();
        let reader = Reader::new(&know);
        reader.cause(output.as_bytes()).map(|found| (found.signature.id.to_string(), found.line))
    }

    #[test]
    fn every_example_is_known_by_its_own_signature_alone() {
        let know = Knowledge::embedded();
        let reader = Reader::new(&know);
        let mut wrong = Vec::new();
        for signature in know.signatures.signature.iter() {
            for text in signature.examples.iter() {
                let (lines, at) = example(text).unwrap();
                let output = lines.join("\n");
                let own = |one: &Match<'_>| one.signature.name == signature.name;
                let found = match signature.kind() {
                    Kind::Cause => reader.cause(output.as_bytes()),
                    // A cause may stand in the example too.
                    Kind::Consequence | Kind::Harmless => reader.read(output.as_bytes()).matches.into_iter().find(own),
                };
                let found = found.map(|found| (found.signature.name.to_string(), found.number));
                if found != Some((signature.name.to_string(), at + 1)) {
                    wrong.push(format!("{} is taken for {found:?}: {text}", signature.name));
                }
            }
        }
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    }

    #[test]
    fn every_id_is_a_problem_of_probes_or_logs() {
        let know = Knowledge::embedded();
        for signature in know.signatures.signature.iter() {
            let problem = know.problem(&signature.id);
            assert!(problem.is_some_and(|problem| problem.id == signature.id), "{}: {}", signature.name, signature.id);
            let seen = problem.map_or(&[][..], |problem| problem.seen_in);
            assert!(seen.contains(&"log") || seen.contains(&"probe"), "{}: its row does not say that logs show it", signature.id);
        }
    }

    #[test]
    fn the_cause_speaks_wherever_it_stands() {
        let log = "In file included from x.h:1:\n\
            nvcc warning : The -std=c++20 flag is not supported with the configured host compiler. Flag will be ignored.\n\
            a.h(3): error: #error libcu++ requires at least C++ 17. Define CCCL_IGNORE_DEPRECATED_CPP_DIALECT\n\
            /usr/bin/ld: cannot find -lcudart: No such file or directory\n";
        assert_eq!(cause(log).unwrap().0, "gcc-too-old-for-torch");
        assert_eq!(cause("all is well\n"), None);
    }

    #[test]
    fn bytes_and_long_lines_do_no_harm() {
        let mut output = vec![0xff, 0xfe, b'\n'];
        output.extend(vec![b'x'; 20_000]);
        output.extend(b"\r\n/usr/bin/ld: cannot find -lcudart\r\n");
        let know = Knowledge::embedded();
        let found = Reader::new(&know).cause(&output).unwrap();
        assert_eq!((found.number, found.line.as_str()), (3, "/usr/bin/ld: cannot find -lcudart"));
        assert_eq!(found.signature.id, "linker-cannot-find-cuda-lib");
    }
}
