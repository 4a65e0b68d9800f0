//! Device code in bytes that pass by once.

use super::entry::{self, Content};
use super::places::{Places, Wrapper};
use super::tally::{Found, Tally};
use super::walk::{ALIGNMENT, Container, HEADER, MOST_PADDING};
use super::{Budget, FatbinError, MAGIC, MOST_ENTRIES, MOST_HEADERS, Result, malformed};
use crate::binary::elf::ElfError;
use crate::facts::device_code::DeviceCode;
use memchr::memmem;
use std::ops::Range;

/// Bytes that are looked through at a time.
const BLOCK: usize = 64 << 10;
/// What is kept of a block for the next one: what begins in it and is not whole. A multiple of the alignment, below [`Wrapper::SIZE`].
const SEAM: usize = 16;
/// Candidates that are followed at once. Real ones come one after the other, some hundred in a block at most.
const MOST_OPEN: usize = 1024;
/// As many as an ELF file's section for them may hold.
const MOST_WRAPPERS: usize = 43_690;

/// Reads the device code of a file whose bytes come in order and cannot be read again.
///
/// Only the section table, which comes last, says where device code lies. So everything that looks like a container is followed as it
/// passes and kept with its place; [`Stream::finish`] then takes those that the section table confirms. Headers only are kept: at most
/// 262,144 entries of 56 bytes, 16 MB; 0.2 MB for torch's largest library.
#[derive(Debug)]
pub struct Stream {
    /// Bytes of the file.
    length: u64,
    /// The bytes from `base` on that are still looked at; `base` is a multiple of 8.
    buffer: Vec<u8>,
    base: u64,
    /// What begins before this and is shorter than the block has been seen.
    seen: u64,
    open: Vec<Candidate>,
    /// Containers, and what looks like one to its end: where each starts and ends.
    whole: Vec<(Range<u64>, Found)>,
    wrappers: Vec<(u64, Wrapper)>,
    entries: u64,
    headers: u64,
    too_many: bool,
}

/// What looks like a container, as far as it has passed.
#[derive(Debug)]
struct Candidate {
    range: Range<u64>,
    /// Where the next header begins.
    next: u64,
    /// Its bytes as far as they have come, and how many are needed.
    bytes: Vec<u8>,
    needed: usize,
    found: Found,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Waits,
    Whole,
    /// It is none.
    Broken,
}

impl Stream {
    /// `length`: bytes of the whole file.
    pub fn new(length: u64) -> Self {
        Self {
            length,
            buffer: Vec::with_capacity(BLOCK + SEAM),
            base: 0,
            seen: 0,
            open: Vec::new(),
            whole: Vec::new(),
            wrappers: Vec::new(),
            entries: 0,
            headers: 0,
            too_many: false,
        }
    }

    /// Takes the next bytes of the file, as many as there are.
    pub fn feed(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let (fill, rest) = bytes.split_at(bytes.len().min((BLOCK + SEAM).saturating_sub(self.buffer.len())));
            self.buffer.extend_from_slice(fill);
            bytes = rest;
            if self.buffer.len() >= BLOCK + SEAM {
                self.block();
                let done = self.buffer.len() - SEAM;
                self.buffer.drain(..done);
                self.base = self.base.saturating_add(done as u64);
            }
        }
    }

    /// Looks through what is in the buffer.
    fn block(&mut self) {
        let end = self.base.saturating_add(self.buffer.len() as u64);
        if !self.too_many {
            self.candidates();
            self.find_wrappers();
            self.follow();
        }
        self.seen = end;
    }

    /// Places in the buffer at which `magic` begins and `size` bytes are there for the first time.
    fn starts(&self, magic: &[u8], size: usize) -> Vec<(u64, usize)> {
        let places = memmem::find_iter(&self.buffer, magic).map(|index| (self.base.saturating_add(index as u64), index));
        let whole = |(at, index): &(u64, usize)| {
            at % ALIGNMENT == 0 && index.saturating_add(size) <= self.buffer.len() && at.saturating_add(size as u64) > self.seen
        };
        places.filter(whole).collect()
    }

    fn candidates(&mut self) {
        for (at, index) in self.starts(&MAGIC, HEADER) {
            let bytes = self.buffer.get(index..index + HEADER).and_then(|bytes| bytes.try_into().ok());
            let Some(Ok(Some(header))) = bytes.map(|bytes| Container::parse(bytes, at)) else { continue };
            // An empty container has no header of an entry, and is kept all the same.
            self.headers += 1;
            let range = at..at.saturating_add(header.whole());
            if range.end > self.length {
                continue;
            }
            if self.open.len() >= MOST_OPEN {
                self.too_many = true;
                return;
            }
            let next = at.saturating_add(header.header);
            self.open.push(Candidate { range, next, bytes: Vec::new(), needed: entry::SIZE, found: Found::default() });
        }
    }

    fn find_wrappers(&mut self) {
        for (at, index) in self.starts(&Wrapper::MAGIC, Wrapper::SIZE) {
            let Some(wrapper) = self.buffer.get(index..index + Wrapper::SIZE).and_then(Wrapper::parse) else { continue };
            if self.wrappers.len() >= MOST_WRAPPERS {
                self.too_many = true;
                return;
            }
            self.wrappers.push((at, wrapper));
        }
    }

    fn follow(&mut self) {
        for mut candidate in std::mem::take(&mut self.open) {
            match candidate.follow(&self.buffer, self.base, &mut self.headers) {
                State::Waits => self.open.push(candidate),
                State::Whole => {
                    self.entries += candidate.found.entries.len() as u64;
                    self.whole.push((candidate.range, candidate.found));
                }
                State::Broken => {}
            }
        }
        self.too_many |= self.entries > MOST_ENTRIES || self.headers > MOST_HEADERS;
    }

    /// All bytes have passed, and the section table says where device code lies.
    ///
    /// # Errors
    /// As [`device_code`](super::device_code) on the same bytes; and [`FatbinError::TooMany`] where more looked like device code than is
    /// followed.
    pub fn finish(mut self, places: &Places) -> Result<Option<DeviceCode>> {
        self.block();
        if self.seen < self.length {
            return Err(ElfError::CutShort { what: "the file", expected: self.length, actual: self.seen }.into());
        }
        if places.is_empty() {
            return Ok(None);
        }
        if self.too_many {
            return Err(FatbinError::TooMany);
        }
        self.whole.sort_by_key(|(range, _)| range.start);
        let (mut tally, mut budget) = (Tally::default(), Budget::default());
        for range in &places.whole {
            self.region(range, false, &mut tally, &mut budget)?;
        }
        for range in &places.relocatable {
            self.region(range, true, &mut tally, &mut budget)?;
        }
        for range in &places.unnamed {
            let mut done = range.start;
            for (place, found) in self.whole.iter().filter(|(place, _)| place.end <= range.end) {
                if place.start >= done {
                    tally.container(place.start, false, found)?;
                    done = place.end;
                }
            }
        }
        let within = |at: &u64| places.wrappers.iter().any(|range| range.contains(at));
        let wrappers: Vec<Wrapper> = self.wrappers.iter().filter(|(at, _)| within(at)).map(|(_, wrapper)| *wrapper).collect();
        Ok(tally.finish(&wrappers, places))
    }

    /// Counts the containers that fill `range`. What only looked like one lies within another.
    fn region(&self, range: &Range<u64>, relocatable: bool, tally: &mut Tally, budget: &mut Budget) -> Result<()> {
        if range.end > self.length {
            return Err(ElfError::CutShort { what: "the device code", expected: range.end, actual: self.length }.into());
        }
        let mut done = range.start;
        let first = self.whole.partition_point(|(place, _)| place.start < range.start);
        for (place, found) in self.whole.iter().skip(first) {
            budget.take(1)?;
            if place.start >= range.end || place.start > done.saturating_add(MOST_PADDING) {
                break;
            }
            if place.start >= done && place.end <= range.end {
                tally.container(place.start, relocatable, found)?;
                done = place.end;
            }
        }
        if range.end > done.saturating_add(MOST_PADDING) {
            return malformed("a container was expected", done);
        }
        Ok(())
    }
}

impl Candidate {
    /// Takes what it needs of the bytes from `base` on.
    fn follow(&mut self, bytes: &[u8], base: u64, headers: &mut u64) -> State {
        while self.next < self.range.end {
            let at = self.next.saturating_add(self.bytes.len() as u64);
            let from = at.checked_sub(base).and_then(|index| usize::try_from(index).ok());
            let there = from.and_then(|from| bytes.get(from..)).unwrap_or_default();
            let missing = self.needed.saturating_sub(self.bytes.len());
            self.bytes.extend_from_slice(there.get(..missing).unwrap_or(there));
            if self.bytes.len() < self.needed {
                return State::Waits;
            }
            *headers += 1;
            if *headers > MOST_HEADERS || self.header().is_err() {
                return State::Broken;
            }
        }
        State::Whole
    }

    /// Reads the header that is there: the fixed part, or the whole of a group's.
    fn header(&mut self) -> Result<()> {
        let at = self.next;
        let Some(first) = self.bytes.first_chunk::<{ entry::SIZE }>() else { return malformed("an entry's header", at) };
        let shape = entry::shape(first, at, self.range.end.saturating_sub(at))?;
        match shape.content {
            Content::One(entry) => self.found.entries.push(entry),
            Content::Group { .. } if (self.bytes.len() as u64) < shape.header => {
                self.needed = usize::try_from(shape.header).unwrap_or(usize::MAX);
                return Ok(());
            }
            Content::Group { compressed, stored } => {
                self.found.grouped = self.found.grouped.saturating_add(stored);
                self.found.entries.extend(entry::members(&self.bytes, compressed, at)?);
            }
        }
        self.next = at.saturating_add(shape.header).saturating_add(shape.payload);
        self.needed = entry::SIZE;
        self.bytes.clear();
        Ok(())
    }
}
