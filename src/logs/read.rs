//! The lines of an output against the signatures: one pass, in a memory that does not grow with it.
//!
//! Almost no line of a log means anything. So the bytes are searched for the words of which each pattern needs one, all at once and
//! before lines are even told apart; only the lines that hold one are freed of colours and prefixes and tried.

use super::errors::Errors;
use super::normal::Prefixes;
use super::sieve::Sieve;
use crate::facts::log::{ErrorLine, Log, Sighting};
use crate::facts::probe::Meaning;
use crate::facts::raw::HostPath;
use crate::knowledge::Knowledge;
use crate::knowledge::schema::shape::{Captures, Hit, Shape, stands};
use crate::knowledge::schema::signatures::{Kind, Signature, Tool};
use crate::knowledge::schema::{List, Str};
use aho_corasick::AhoCorasick;
use memchr::{memchr_iter, memchr2, memrchr, memrchr2};
use std::borrow::Cow;
use std::cell::OnceCell;
use std::collections::BTreeMap;

/// What is read at once.
const BLOCK: usize = 256 << 10;
/// Of a longer line only the surroundings of what was found are looked at: command lines of a build can have hundreds of kilobytes.
const BEFORE: usize = 4 << 10;
const AFTER: usize = 12 << 10;
/// Of a line without end so much is kept for what lies across two blocks.
const OVERLAP: usize = BEFORE;
/// Further back no word begins that ends in what is new.
const LONGEST_WORD: usize = 256;
/// What is kept of a line.
const SHOWN: usize = 1 << 10;
/// So many different sightings of one signature are kept; the rest is counted.
const SIGHTINGS: usize = 16;
/// So many lines of one context, and of a signature that has a context.
const LINES: usize = 200;

/// The signatures, ready to read with. Making one takes about a millisecond; a pattern is compiled when a line holds its words.
pub struct Reader<'a> {
    all: Vec<(&'a Signature, OnceCell<Option<Shape>>)>,
    /// Words of which every line that could matter holds one: as few as do.
    triggers: Sieve,
    /// All words, and which signatures want them as what.
    words: AhoCorasick,
    wanted_by: Vec<Vec<(usize, Role)>>,
    prefixes: Prefixes,
    errors: Errors,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Role {
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
    /// # Errors
    /// Words that no automaton can be made of: too many.
    pub fn new(know: &'a Knowledge) -> Result<Self, String> {
        Self::of(know, |_| true)
    }

    /// Only the signatures of these tools.
    ///
    /// # Errors
    /// As [`Reader::new`].
    pub fn of(know: &'a Knowledge, wanted: impl Fn(Tool) -> bool) -> Result<Self, String> {
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
        let words = AhoCorasick::new(table.keys()).map_err(|error| error.to_string())?;
        // A word that holds another one need not be looked for: who finds the shorter finds the longer too.
        let holds_another = |word: &str| words.find_overlapping_iter(word).any(|other| other.len() < word.len());
        let triggers = Sieve::new(table.keys().map(String::as_str).filter(|word| !holds_another(word)));
        Ok(Self {
            triggers,
            words,
            wanted_by: table.into_values().collect(),
            all: all.into_iter().map(|signature| (signature, OnceCell::new())).collect(),
            prefixes: Prefixes::new(),
            errors,
        })
    }

    /// Begins to read one log.
    pub fn scan(&self) -> Scan<'_, 'a> {
        Scan {
            reader: self,
            buffer: vec![0; BLOCK + OVERLAP],
            filled: 0,
            fresh: 0,
            inside: false,
            newlines: 0,
            bytes: 0,
            seen: self.all.iter().map(|_| Seen::default()).collect(),
            errors: Vec::new(),
            line: Vec::new(),
            todo: Vec::new(),
        }
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

    fn shape(&self, at: usize) -> Option<&Shape> {
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

/// The lines of one signature so far.
#[derive(Debug, Clone, Default)]
struct Seen {
    decisive: Vec<Sighted>,
    context: Vec<Vec<Hit>>,
}

#[derive(Debug, Clone)]
struct Sighted {
    hit: Hit,
    text: String,
    times: usize,
}

/// One log being read.
pub struct Scan<'r, 'a> {
    reader: &'r Reader<'a>,
    buffer: Vec<u8>,
    filled: usize,
    /// What lies before has been searched; it is kept for what lies across.
    fresh: usize,
    /// The buffer begins inside a line.
    inside: bool,
    /// Before the buffer.
    newlines: usize,
    bytes: u64,
    seen: Vec<Seen>,
    errors: Vec<ErrorLine>,
    line: Vec<u8>,
    todo: Vec<(usize, Role)>,
}

impl<'a> Scan<'_, 'a> {
    /// Room for more of the log; never empty.
    pub fn space(&mut self) -> &mut [u8] {
        self.buffer.get_mut(self.filled..).unwrap_or_default()
    }

    /// So many bytes have been written into [`Scan::space`].
    pub fn advance(&mut self, number: usize) {
        self.filled = (self.filled + number).min(self.buffer.len());
        self.bytes += number as u64;
        let new = self.buffer.get(self.fresh..self.filled).unwrap_or_default();
        match memrchr(b'\n', new) {
            Some(at) => {
                let end = self.fresh + at + 1;
                self.search(end, false);
                self.drop_front(end, 0);
            }
            None if self.filled == self.buffer.len() => {
                self.search(self.filled, true);
                self.drop_front(self.filled, OVERLAP);
            }
            None => {}
        }
    }

    pub fn feed(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let space = self.space();
            let number = bytes.len().min(space.len());
            let (now, later) = bytes.split_at(number);
            if let Some(space) = space.get_mut(..number) {
                space.copy_from_slice(now);
            }
            self.advance(number);
            bytes = later;
        }
    }

    /// Bytes so far.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// What was found. A last line without an end counts too.
    pub fn finish(mut self) -> Outcome<'a> {
        // The last line ends here; there is always room.
        if let Some(end) = self.buffer.get_mut(self.filled) {
            *end = b'\n';
        }
        self.search((self.filled + 1).min(self.buffer.len()), false);
        let partial = self.inside || self.buffer.get(..self.filled).and_then(<[u8]>::last).is_some_and(|last| *last != b'\n');
        let lines = self.newlines + count(self.buffer.get(..self.filled).unwrap_or_default()) + usize::from(partial);
        let mut matches: Vec<Match<'a>> = Vec::new();
        for ((signature, _), seen) in self.reader.all.iter().zip(&self.seen) {
            let mut around = seen.context.clone();
            around.resize(signature.context.len(), Vec::new());
            for one in &seen.decisive {
                let Some(captures) = stands(&signature.context, &one.hit, &around) else { continue };
                let same = |known: &&mut Match<'a>| known.signature.name == signature.name && known.captures == captures;
                match matches.iter_mut().find(same) {
                    Some(known) => known.times += one.times,
                    None => matches.push(Match { signature, number: one.hit.line, line: one.text.clone(), captures, times: one.times }),
                }
            }
        }
        matches.sort_by_key(|one| one.number);
        self.errors.sort_by_key(|one| one.line);
        Outcome { matches, errors: self.errors, lines, bytes: self.bytes }
    }

    fn drop_front(&mut self, end: usize, keep: usize) {
        let from = end.saturating_sub(keep);
        self.newlines += count(self.buffer.get(..from).unwrap_or_default());
        self.inside = from > 0 && self.buffer.get(from - 1).is_some_and(|last| *last != b'\n');
        self.buffer.copy_within(from..self.filled, 0);
        self.filled -= from;
        self.fresh = end - from;
    }

    /// Looks at what is new before `end`. `open`: the last line goes on after it.
    fn search(&mut self, end: usize, open: bool) {
        let buffer = std::mem::take(&mut self.buffer);
        let data = buffer.get(..end).unwrap_or_default();
        let (mut at, mut counted, mut number) = (self.fresh.saturating_sub(LONGEST_WORD), 0, self.newlines + 1);
        while let Some((start, stop)) = self.reader.triggers.find(data, at) {
            if stop <= self.fresh {
                at = stop;
                continue;
            }
            let line_start = memrchr2(b'\n', b'\r', data.get(..start).unwrap_or_default()).map_or(0, |at| at + 1);
            let line_end = memchr2(b'\n', b'\r', data.get(stop..).unwrap_or_default()).map_or(end, |at| stop + at);
            number += count(data.get(counted..line_start).unwrap_or_default());
            counted = line_start;
            let from = line_start.max(start.saturating_sub(BEFORE));
            let to = line_end.min(start + AFTER);
            let begins = from == line_start && !(self.inside && line_start == 0);
            let ends = to == line_end && !(open && line_end == end);
            self.candidate(number, data.get(from..to).unwrap_or_default(), begins, ends);
            at = to.max(stop);
        }
        self.buffer = buffer;
    }

    /// A line that holds a word. A mark stands for what was cut off, so that no pattern takes the cut for the line's edge.
    fn candidate(&mut self, number: usize, raw: &[u8], begins: bool, ends: bool) {
        const CUT: &[u8] = "\u{2026}".as_bytes();
        let reader = self.reader;
        reader.prefixes.strip(raw, &mut self.line);
        if !begins {
            self.line.splice(0..0, CUT.iter().copied());
        }
        if !ends {
            self.line.extend_from_slice(CUT);
        }
        let line = std::mem::take(&mut self.line);
        let mut todo = std::mem::take(&mut self.todo);
        todo.clear();
        for found in reader.words.find_overlapping_iter(&line) {
            for want in reader.wanted_by.get(found.pattern().as_usize()).map_or(&[][..], Vec::as_slice) {
                if !todo.contains(want) {
                    todo.push(*want);
                }
            }
        }
        let mut known = false;
        for (at, role) in &todo {
            known |= self.attempt(*at, *role, number, &line);
        }
        if !known && todo.iter().any(|(_, role)| *role == Role::Error) {
            reader.errors.look(&line, number, &mut self.errors);
        }
        self.line = line;
        self.todo = todo;
    }

    /// Whether the line is a decisive one of this signature.
    fn attempt(&mut self, at: usize, role: Role, number: usize, line: &[u8]) -> bool {
        if role == Role::Error {
            return false;
        }
        let (Some(shape), Some(seen)) = (self.reader.shape(at), self.seen.get_mut(at)) else { return false };
        match role {
            Role::Decisive => {
                let Some(captures) = shape.decisive(line) else { return false };
                seen.decisive(shape.has_context(), captures, number, line);
                true
            }
            Role::Context(which) => {
                if let Some(captures) = shape.context(which, line) {
                    seen.context(which, captures, number);
                }
                false
            }
            Role::Error => false,
        }
    }
}

impl Seen {
    fn decisive(&mut self, in_context: bool, captures: Captures, number: usize, line: &[u8]) {
        // Where the surroundings count, lines with the same captures are not the same.
        let (alike, most) =
            if in_context { (None, LINES) } else { (self.decisive.iter().position(|one| one.hit.captures == captures), SIGHTINGS) };
        if let Some(known) = alike.and_then(|at| self.decisive.get_mut(at)) {
            known.times += 1;
        } else if self.decisive.len() < most {
            let text = String::from_utf8_lossy(line.get(..line.len().min(SHOWN)).unwrap_or_default()).trim().to_owned();
            self.decisive.push(Sighted { hit: Hit { line: number, captures }, text, times: 1 });
        }
    }

    fn context(&mut self, which: usize, captures: Captures, number: usize) {
        if self.context.len() <= which {
            self.context.resize(which + 1, Vec::new());
        }
        if let Some(lines) = self.context.get_mut(which).filter(|lines| lines.len() < LINES) {
            lines.push(Hit { line: number, captures });
        }
    }
}

fn count(bytes: &[u8]) -> usize {
    memchr_iter(b'\n', bytes).count()
}

/// The first line that tells of an error, whoever wrote it; else the last line that is not empty.
pub fn first_error(output: &[u8]) -> String {
    let lines = || output.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii).filter(|line| !line.is_empty());
    let tells = |line: &&[u8]| {
        let lower = line.get(..line.len().min(AFTER)).unwrap_or_default().to_ascii_lowercase();
        let has = |word: &str| memchr::memmem::find(&lower, word.as_bytes()).is_some();
        ["error:", "error :", "fatal:", "fatal :", "fatal   :", "cannot find", "undefined reference", "undefined symbol", "not found"]
            .into_iter()
            .any(has)
            || has("no such file")
            || has("no space left")
            || has("permission denied")
            || has("killed")
    };
    let line = lines().find(tells).or_else(|| lines().next_back()).unwrap_or_default();
    String::from_utf8_lossy(line.get(..line.len().min(2048)).unwrap_or_default()).into_owned()
}

#[cfg(test)]
#[expect(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::knowledge::schema::signatures::example;

    fn cause(output: &str) -> Option<(String, String)> {
        let know = Knowledge::embedded();
        let reader = Reader::new(&know).unwrap();
        reader.cause(output.as_bytes()).map(|found| (found.signature.id.to_string(), found.line))
    }

    #[test]
    fn every_example_is_known_by_its_own_signature_alone() {
        let know = Knowledge::embedded();
        let reader = Reader::new(&know).unwrap();
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
        output.extend(vec![b'x'; AFTER + 10]);
        output.extend(b"\r\n/usr/bin/ld: cannot find -lcudart\r\n");
        let know = Knowledge::embedded();
        let found = Reader::new(&know).unwrap().cause(&output).unwrap();
        assert_eq!((found.number, found.line.as_str()), (3, "/usr/bin/ld: cannot find -lcudart"));
        assert_eq!(found.signature.id, "linker-cannot-find-cuda-lib");
    }

    #[test]
    fn first_errors() {
        assert_eq!(first_error(b"note: x\na.cu(3): error: boom\nb.cu(4): error: more\n"), "a.cu(3): error: boom");
        assert_eq!(first_error(b"collect2\n\n last words \n\n"), "last words");
        assert_eq!(first_error(b""), "");
    }
}
