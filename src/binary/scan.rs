//! Finding byte patterns in a part of a file, a chunk at a time.

use super::elf::{Elf, ElfError};
use super::read::{ReadAt, read_exact_at};
use memchr::memmem;
use std::io;
use std::ops::{ControlFlow, Range};

/// Bytes before a match and from its start on that a visitor sees, where the range has so many.
pub const CONTEXT: usize = 1024;
/// Bytes read at first, in which the headers of CUDA say their release, and then again and again: no more than the processor's own memory
/// keeps at hand.
const FIRST: usize = 32 << 10;
const CHUNK: usize = 64 << 10;
/// Without a section table the whole file is searched, up to here: the largest program that is asked, `cicc`, has 60 MB.
const MOST_WITHOUT_SECTIONS: u64 = 96 << 20;

/// The part of a file in which to search.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part {
    pub range: Range<u64>,
    /// Whether what is sought can be nowhere else: a search in vain then proves that it is not there.
    pub complete: bool,
}

/// The content of one section; the whole file, up to a limit, where it has no section table.
///
/// # Errors
/// [`ElfError::CutShort`] when the section ends behind the file; [`ElfError::Malformed`] when there are sections, but none of this
/// name.
pub fn section(elf: &Elf<'_>, name: &str) -> Result<Part, ElfError> {
    let length = elf.file().len();
    if !elf.has_sections() {
        return Ok(Part { range: 0..length.min(MOST_WITHOUT_SECTIONS), complete: length <= MOST_WITHOUT_SECTIONS });
    }
    match elf.section(name)? {
        Some(section) if section.in_file => {
            let end = section.offset.saturating_add(section.size);
            if end > length {
                return Err(ElfError::CutShort { what: "a section", expected: end, actual: length });
            }
            Ok(Part { range: section.offset..end, complete: true })
        }
        _ => Err(ElfError::Malformed("an expected section is not there")),
    }
}

/// One match.
#[derive(Debug, Clone, Copy)]
pub struct Hit<'b> {
    /// Which of the needles.
    pub needle: usize,
    /// Position in the file.
    pub offset: u64,
    /// Up to [`CONTEXT`] bytes before the match; fewer at the start of the range.
    pub before: &'b [u8],
    /// From the start of the match on, up to [`CONTEXT`] bytes.
    pub at: &'b [u8],
}

impl<'b> Hit<'b> {
    /// Whether the match starts a NUL-terminated string.
    pub fn starts_a_string(&self) -> bool {
        self.before.last().is_none_or(|byte| *byte == 0)
    }

    /// From the start of the match to the next NUL, where that is near and the bytes are ASCII.
    pub fn text(&self) -> Option<&'b str> {
        let text = self.at.get(..memchr::memchr(0, self.at)?)?;
        text.is_ascii().then(|| std::str::from_utf8(text).ok()).flatten()
    }

    /// The text behind the needle, to the next NUL.
    pub fn text_after(&self, needle: &str) -> Option<&'b str> {
        self.text()?.get(needle.len()..)
    }
}

/// Calls `visit` for every match of every needle until it breaks. Matches of one needle come in order of position.
pub fn scan(file: &dyn ReadAt, range: Range<u64>, needles: &[&[u8]], mut visit: impl FnMut(Hit<'_>) -> ControlFlow<()>) -> io::Result<()> {
    let finders: Vec<_> = needles.iter().map(memmem::Finder::new).collect();
    let end = range.end.min(file.len());
    // The buffer holds the bytes from `base` on; matches that start before `done` have been reported.
    let (mut base, mut buffer, mut done) = (range.start, Vec::new(), range.start);
    while done < end {
        let next = base.saturating_add(buffer.len() as u64);
        let chunk = if next == range.start { FIRST } else { CHUNK };
        let fresh = usize::try_from(end.saturating_sub(next)).unwrap_or(chunk).min(chunk);
        let kept = buffer.len();
        buffer.resize(kept + fresh, 0);
        read_exact_at(file, next, buffer.get_mut(kept..).unwrap_or_default())?;
        let filled = base.saturating_add(buffer.len() as u64);
        // A match is reported once all of its context is there.
        let settled = if filled >= end { end } else { filled.saturating_sub(CONTEXT as u64).max(done) };
        for (needle, finder) in finders.iter().enumerate() {
            let from = (done - base) as usize;
            let area = buffer.get(from..).unwrap_or_default();
            for place in finder.find_iter(area) {
                let place = from + place;
                let offset = base + place as u64;
                if offset >= settled {
                    break;
                }
                let before = buffer.get(place.saturating_sub(CONTEXT)..place).unwrap_or_default();
                let at = buffer.get(place..(place + CONTEXT).min(buffer.len())).unwrap_or_default();
                if visit(Hit { needle, offset, before, at }).is_break() {
                    return Ok(());
                }
            }
        }
        done = settled;
        let keep_from = done.saturating_sub(CONTEXT as u64).max(base);
        buffer.drain(..(keep_from - base) as usize);
        base = keep_from;
    }
    Ok(())
}

#[cfg(test)]
#[expect(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn positions(bytes: &[u8], range: Range<u64>, needle: &[u8]) -> Vec<u64> {
        let mut found = Vec::new();
        scan(&bytes, range, &[needle], |hit| {
            assert!(hit.at.starts_with(needle));
            let whole = (bytes.len() - hit.offset as usize).min(CONTEXT);
            assert_eq!(hit.at, &bytes[hit.offset as usize..hit.offset as usize + whole]);
            assert_eq!(hit.before.len(), CONTEXT.min(hit.offset as usize));
            found.push(hit.offset);
            ControlFlow::Continue(())
        })
        .unwrap();
        found
    }

    #[test]
    fn every_match_is_found_once_wherever_the_chunks_end() {
        let edges = [FIRST, FIRST + CHUNK, FIRST + 2 * CHUNK].into_iter().flat_map(|edge| [edge - CONTEXT, edge, edge + CONTEXT]);
        for around in edges.chain([CONTEXT]) {
            for shift in 0..12 {
                let mut bytes = vec![b'.'; FIRST + 2 * CHUNK + 2 * CONTEXT];
                let place = around + shift - 6;
                bytes[place..place + 6].copy_from_slice(b"needle");
                bytes[3..9].copy_from_slice(b"needle");
                assert_eq!(positions(&bytes, 0..bytes.len() as u64, b"needle"), [3, place as u64]);
            }
        }
    }

    #[test]
    fn only_the_range_is_searched() {
        let bytes = b"needle needle needle".as_slice();
        let mut found = Vec::new();
        scan(&bytes, 1..19, &[b"needle"], |hit| {
            found.push((hit.offset, hit.before.len(), hit.at.len()));
            ControlFlow::Continue(())
        })
        .unwrap();
        assert_eq!(found, [(7, 6, 12)]);
        assert_eq!(positions(bytes, 0..u64::MAX, b"needle").len(), 3);
        assert_eq!(positions(bytes, 100..200, b"needle").len(), 0);
        let mut calls = 0;
        scan(&bytes, 0..20, &[b"needle"], |_| {
            calls += 1;
            ControlFlow::Break(())
        })
        .unwrap();
        assert_eq!(calls, 1);
    }
}
