//! A file that streams by once, and of which only the parts are kept that the loader would look at.

use super::elf::Elf;
use super::read::ReadAt;
use std::io;
use std::ops::Range;

/// Of the first segment, which has the symbols of most files, and in all: libtorch_cpu needs 28 MiB.
const MOST_OF_FIRST: u64 = 32 << 20;
const MOST_OF_OTHERS: u64 = 16 << 20;
/// What is kept of one file, whatever it says of itself.
pub const MOST_KEPT: u64 = 64 << 20;
/// The headers lie in these first bytes.
const HEAD: usize = 64 << 10;
/// Where the names of the sections lie is said at the very end of a file; they are known by their own name among them, and so much around
/// it is kept, of so many places at most.
const NAMES: &[u8] = b"\0.shstrtab\0";
const AROUND: usize = 64 << 10;
const MOST_NAMES: usize = 16;

/// Takes the bytes as they come.
pub struct Keeper {
    seen: u64,
    length: u64,
    head: Vec<u8>,
    plan: Option<Vec<Range<u64>>>,
    parts: Vec<(u64, Vec<u8>)>,
    /// The last bytes that went by.
    tail: Vec<u8>,
    names: usize,
}

impl Keeper {
    /// `length` in bytes, of the whole file.
    pub fn new(length: u64) -> Self {
        Self { seen: 0, length, head: Vec::new(), plan: None, parts: Vec::new(), tail: Vec::new(), names: 0 }
    }

    pub fn push(&mut self, chunk: &[u8]) {
        if self.plan.is_none() {
            self.head.extend_from_slice(chunk);
            self.seen = self.seen.saturating_add(chunk.len() as u64);
            if self.head.len() >= HEAD {
                self.decide();
            }
            return;
        }
        self.look_for_names(chunk);
        self.take(self.seen, chunk);
        self.seen = self.seen.saturating_add(chunk.len() as u64);
    }

    fn look_for_names(&mut self, chunk: &[u8]) {
        // The seam between two chunks is looked at first, then the chunk.
        let seam = NAMES.len() - 1;
        let before = self.tail.len().saturating_sub(seam);
        let joint: Vec<u8> = self.tail.iter().skip(before).chain(chunk.iter().take(seam)).copied().collect();
        let base = self.seen - (self.tail.len() - before) as u64;
        let mut found: Vec<u64> = memchr::memmem::find_iter(&joint, NAMES).map(|at| base + at as u64).collect();
        found.extend(memchr::memmem::find_iter(chunk, NAMES).map(|at| self.seen + at as u64));
        for at in found {
            if self.names == MOST_NAMES {
                break;
            }
            self.names += 1;
            // What went by already, and what is to come.
            let start = self.seen - self.tail.len() as u64;
            let from = at.saturating_sub(AROUND as u64);
            if from < self.seen {
                let kept = self.tail.get(usize::try_from(from.saturating_sub(start)).unwrap_or(0)..).unwrap_or_default();
                self.parts.push((from.max(start), kept.to_vec()));
            }
            self.plan.get_or_insert_default().push(from.max(self.seen)..at.saturating_add(AROUND as u64));
        }
        self.tail.extend_from_slice(chunk);
        // Not at every small piece.
        if self.tail.len() > 2 * AROUND {
            self.tail.drain(..self.tail.len() - AROUND);
        }
    }

    fn decide(&mut self) {
        let head = std::mem::take(&mut self.head);
        self.plan = Some(plan(&head, self.length));
        // All of it again, now that it is known what is wanted.
        self.seen = 0;
        self.look_for_names(&head);
        self.take(0, &head);
        self.seen = head.len() as u64;
    }

    fn take(&mut self, at: u64, chunk: &[u8]) {
        let end = at.saturating_add(chunk.len() as u64);
        for range in self.plan.iter().flatten() {
            let (from, to) = (range.start.max(at), range.end.min(end));
            if from >= to {
                continue;
            }
            let Some(piece) = chunk.get((from - at) as usize..(to - at) as usize) else { continue };
            match self.parts.iter_mut().find(|(start, bytes)| *start + bytes.len() as u64 == from) {
                Some((_, bytes)) => bytes.extend_from_slice(piece),
                None => self.parts.push((from, piece.to_vec())),
            }
        }
    }

    /// The file with holes.
    pub fn finish(mut self) -> Sparse {
        if self.plan.is_none() {
            self.decide();
        }
        Sparse { length: self.seen, parts: self.parts }
    }
}

/// The parts of a file that starts like this: its first segment, the small ones that are no code, the dynamic section, the section table.
fn plan(head: &[u8], length: u64) -> Vec<Range<u64>> {
    let mut wanted: Vec<Range<u64>> = std::iter::once(0..(HEAD as u64).min(length)).collect();
    if let Ok(elf) = Elf::open(&head) {
        wanted.extend(elf.parts(MOST_OF_FIRST, MOST_OF_OTHERS));
    }
    wanted.retain(|range| range.start < range.end && range.start < length);
    wanted.sort_by_key(|range| (range.start, range.end));
    let mut merged: Vec<Range<u64>> = Vec::new();
    for range in wanted {
        match merged.last_mut() {
            Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
            _ => merged.push(range),
        }
    }
    let mut left = MOST_KEPT;
    for range in &mut merged {
        range.end = range.end.min(range.start.saturating_add(left));
        left -= range.end - range.start;
    }
    merged
}

/// What was kept.
pub struct Sparse {
    length: u64,
    parts: Vec<(u64, Vec<u8>)>,
}

impl ReadAt for Sparse {
    fn len(&self) -> u64 {
        self.length
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<usize> {
        if offset >= self.length || buf.is_empty() {
            return Ok(0);
        }
        for (start, bytes) in &self.parts {
            if let Some(into) = offset.checked_sub(*start).filter(|into| *into < bytes.len() as u64) {
                let rest = bytes.get(into as usize..).unwrap_or_default();
                return rest.read_at(0, buf);
            }
        }
        Err(io::Error::new(io::ErrorKind::Unsupported, format!("byte {offset} is not among the parts that are kept of a large member")))
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::binary::elf::summarise;

    #[test]
    fn a_program_that_streamed_by_reads_like_the_file() {
        #[expect(clippy::disallowed_methods)]
        let whole = std::fs::read("/proc/self/exe").unwrap();
        for step in [1000, 65_536, 1 << 20, usize::MAX] {
            let mut keeper = Keeper::new(whole.len() as u64);
            for chunk in whole.chunks(step.min(whole.len())) {
                keeper.push(chunk);
            }
            let sparse = keeper.finish();
            let kept: usize = sparse.parts.iter().map(|(_, bytes)| bytes.len()).sum();
            assert!(kept < whole.len(), "{kept} of {}", whole.len());
            assert_eq!(summarise(&sparse).unwrap(), summarise(&whole.as_slice()).unwrap());
            let imports = |file: &dyn ReadAt| Elf::open(file).unwrap().imports().unwrap();
            assert_eq!(imports(&sparse), imports(&whole.as_slice()));
            assert!(imports(&sparse).iter().any(|import| import.name == "malloc" && !import.weak));
            let section = |file: &dyn ReadAt| Elf::open(file).unwrap().section(".rodata").unwrap();
            assert_eq!(section(&sparse), section(&whole.as_slice()));
            assert!(section(&sparse).is_some());
        }
    }

    #[test]
    fn a_hole_is_no_end() {
        let sparse = Sparse { length: 100, parts: vec![(0, vec![1; 10]), (50, vec![2; 10])] };
        let mut buf = [0; 4];
        assert_eq!(sparse.read_at(52, &mut buf).unwrap(), 4);
        assert_eq!(sparse.read_at(100, &mut buf).unwrap(), 0);
        assert_eq!(sparse.read_at(20, &mut buf).unwrap_err().kind(), io::ErrorKind::Unsupported);
    }
}
