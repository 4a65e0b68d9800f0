//! One log against the signatures: one pass, in a memory that does not grow with it.
//!
//! Almost no line of a log means anything. So the bytes are searched for the words of which each pattern needs one, all at once and
//! before lines are even told apart; only the lines that hold one are freed of colours and prefixes and tried.

use super::read::{Match, Outcome, Reader, Role};
use super::sieve::Sieve;
use crate::facts::log::ErrorLine;
use crate::knowledge::schema::shape::{Captures, Hit, stands};
use crate::knowledge::schema::signatures::{Context, Place, Signature};
use memchr::{memchr_iter, memchr2, memrchr, memrchr2};

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
/// So many lines are looked at for nothing before it is worth to look for fewer words.
const WASTED: usize = 500;

/// The lines of one signature so far.
#[derive(Debug, Clone, Default)]
struct Seen {
    decisive: Vec<Sighted>,
    context: Vec<Around>,
}

/// The lines of one context so far.
#[derive(Debug, Clone)]
struct Around {
    hits: Vec<Hit>,
    /// More such lines matter.
    awake: bool,
    /// Its words are among those that are looked for.
    sought: bool,
    /// One line is as good as another: it captures nothing, and may stand at any distance.
    alike: bool,
    place: Place,
}

impl Around {
    fn of(signature: &Signature) -> Vec<Self> {
        let chained = signature.context.iter().filter(|context| context.place == Place::After).count() > 1;
        let around = |context: &Context| {
            let alike = context.within.is_none() && !context.pattern.contains("(?<") && !chained;
            let awake = context.place != Place::After;
            Self { hits: Vec::new(), awake, sought: awake, alike, place: context.place }
        };
        signature.context.iter().map(around).collect()
    }
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
    english: Vec<u8>,
    todo: Vec<(usize, Role)>,
    /// The words that are looked for now, where they are not those of the beginning.
    sieve: Option<Sieve>,
    /// Lines that held a word which nobody wants any more.
    wasted: usize,
}

impl<'r, 'a> Scan<'r, 'a> {
    pub(super) fn new(reader: &'r Reader<'a>) -> Self {
        Self {
            reader,
            buffer: vec![0; BLOCK + OVERLAP],
            filled: 0,
            fresh: 0,
            inside: false,
            newlines: 0,
            bytes: 0,
            seen: reader.all.iter().map(|(signature, _)| Seen { decisive: Vec::new(), context: Around::of(signature) }).collect(),
            errors: Vec::new(),
            line: Vec::new(),
            english: Vec::new(),
            todo: Vec::new(),
            sieve: None,
            wasted: 0,
        }
    }

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
            let around: Vec<Vec<Hit>> = seen.context.iter().map(|around| around.hits.clone()).collect();
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
        while let Some((start, stop)) = self.sieve.as_ref().unwrap_or(&self.reader.triggers).find(data, at) {
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
        if self.wasted > WASTED {
            self.choose_words();
        }
    }

    /// Looks for the words that are still wanted.
    fn choose_words(&mut self) {
        self.seen.iter_mut().flat_map(|seen| &mut seen.context).for_each(|around| around.sought = around.awake);
        let sought = |at: usize, role: Role| match role {
            Role::Context(which) => self.seen.get(at).and_then(|seen| seen.context.get(which)).is_some_and(|around| around.sought),
            _ => true,
        };
        self.sieve = Some(self.reader.sieve(sought));
        self.wasted = 0;
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
        let (line, mut english) = (std::mem::take(&mut self.line), std::mem::take(&mut self.english));
        let mut todo = std::mem::take(&mut self.todo);
        reader.wants(&line, &mut todo, &mut english);
        let read = if english.is_empty() { &line } else { &english };
        let (mut known, mut useful, mut woken) = (false, false, false);
        for (at, role) in &todo {
            let (matched, wakes) = self.attempt(*at, *role, number, read, &line);
            known |= matched == Some(true);
            useful |= matched.is_some();
            woken |= wakes;
        }
        if !known && todo.iter().any(|(_, role)| *role == Role::Error) {
            reader.errors.look(read, &line, number, &mut self.errors);
        }
        (self.line, self.english, self.todo) = (line, english, todo);
        self.wasted += usize::from(!useful);
        if woken {
            self.choose_words();
        }
    }

    /// Whether the line, as it is `read`, is a decisive one of this signature, `None` where nobody wants to know; and whether other words are
    /// to be looked for now. `line` is kept.
    fn attempt(&mut self, at: usize, role: Role, number: usize, read: &[u8], line: &[u8]) -> (Option<bool>, bool) {
        let (Some(shape), Some(seen)) = (self.reader.shape(at), self.seen.get_mut(at)) else { return (None, false) };
        match role {
            Role::Decisive => {
                let Some(captures) = shape.decisive(read) else { return (Some(false), false) };
                seen.decisive(shape.has_context(), captures, number, line);
                (Some(true), seen.wake())
            }
            Role::Context(which) if seen.context.get(which).is_some_and(|around| around.awake) => {
                if let Some(captures) = shape.context(which, read) {
                    seen.context(which, captures, number);
                }
                (Some(false), false)
            }
            Role::Context(_) => (None, false),
            Role::Error | Role::Foreign => (Some(false), false),
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
        let decided = self.decisive.iter().map(|one| one.hit.line).max();
        let Some(around) = self.context.get_mut(which) else { return };
        // Until there is a decisive line, the last lines are those near the one that may come.
        if around.hits.len() == LINES && decided.is_none() {
            around.hits.remove(0);
        }
        if around.hits.len() < LINES {
            around.hits.push(Hit { line: number, captures });
        }
        let enough = match around.place {
            Place::Before => true,
            // One of them may be the decisive line itself.
            Place::Anywhere => around.hits.len() > 1,
            Place::After => decided.is_some_and(|line| line < number),
        };
        around.awake &= !(around.alike && enough);
    }

    /// After a decisive line what has to stand after it is looked for, again or for the first time. Whether its words are not sought yet.
    fn wake(&mut self) -> bool {
        let after = self.context.iter_mut().filter(|around| around.place == Place::After && !around.awake);
        after.fold(false, |unsought, around| {
            around.awake = true;
            unsought || !around.sought
        })
    }
}

fn count(bytes: &[u8]) -> usize {
    memchr_iter(b'\n', bytes).count()
}
