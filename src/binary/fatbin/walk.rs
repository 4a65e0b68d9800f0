//! Chains of containers, read by position.

use super::entry::{self, Content};
use super::tally::{Found, Tally};
use super::{FatbinError, MAGIC, MOST_ENTRIES, Result, malformed};
use crate::binary::elf::ElfError;
use crate::binary::read::{ReadAt, read_exact_at, read_vec};
use crate::binary::scan::scan;
use std::ops::{ControlFlow, Range};

/// Bytes of a container's header.
pub const HEADER: usize = 16;
/// Containers start at multiples of this.
pub const ALIGNMENT: u64 = 8;
/// Zero bytes that may lie between two containers: what a linker adds for alignment.
pub const MOST_PADDING: u64 = 64;

/// A container's header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Container {
    /// Where its entries begin, counted from its own start.
    pub header: u64,
    /// Bytes of its entries.
    pub size: u64,
}

impl Container {
    /// From the bytes at `at` in the file; `None` where they do not begin with the magic number.
    pub fn parse(bytes: [u8; HEADER], at: u64) -> Result<Option<Self>> {
        let [m0, m1, m2, m3, v0, v1, h0, h1, size @ ..] = bytes;
        if [m0, m1, m2, m3] != MAGIC {
            return Ok(None);
        }
        if u16::from_le_bytes([v0, v1]) != 1 {
            return malformed("a container of an unknown version", at);
        }
        let header = u16::from_le_bytes([h0, h1]);
        if usize::from(header) < HEADER {
            return malformed("the size of a container's header", at);
        }
        Ok(Some(Self { header: header.into(), size: u64::from_le_bytes(size) }))
    }

    /// Bytes in all.
    pub fn whole(&self) -> u64 {
        self.header.saturating_add(self.size)
    }
}

/// Counts the containers that fill `range` of the file.
pub fn region(file: &dyn ReadAt, range: Range<u64>, relocatable: bool, tally: &mut Tally) -> Result<()> {
    if range.end > file.len() {
        return Err(ElfError::CutShort { what: "the device code", expected: range.end, actual: file.len() }.into());
    }
    let mut at = range.start;
    let mut padding = 0;
    while range.end.saturating_sub(at) >= HEADER as u64 {
        let mut bytes = [0; HEADER];
        read_exact_at(file, at, &mut bytes)?;
        match Container::parse(bytes, at)? {
            Some(found) => {
                let end = at.saturating_add(found.whole());
                tally.container(at, relocatable, &container(file, at, found, range.end, &mut MOST_ENTRIES.clone())?)?;
                at = end;
                padding = 0;
            }
            None if bytes.starts_with(&[0; ALIGNMENT as usize]) && padding < MOST_PADDING => {
                at += ALIGNMENT;
                padding += ALIGNMENT;
            }
            None => return malformed("a container was expected", at),
        }
    }
    Ok(())
}

/// Counts what looks like a container anywhere in `range` and is one to its end: for files that do not say where theirs are.
pub fn search(file: &dyn ReadAt, range: Range<u64>, tally: &mut Tally) -> Result<()> {
    // Bytes can be laid so that every candidate is a long chain that breaks at its end.
    let mut budget = MOST_ENTRIES;
    let (limit, mut done) = (range.end.min(file.len()), range.start);
    let mut outcome = Ok(());
    scan(file, range, &[&MAGIC], |hit| {
        let at = hit.offset;
        if at % ALIGNMENT != 0 || at < done {
            return ControlFlow::Continue(());
        }
        let bytes = hit.at.get(..HEADER).and_then(|bytes| bytes.try_into().ok());
        let Some(Ok(Some(header))) = bytes.map(|bytes| Container::parse(bytes, at)) else { return ControlFlow::Continue(()) };
        match container(file, at, header, limit, &mut budget) {
            Ok(found) => {
                done = at.saturating_add(header.whole());
                outcome = tally.container(at, false, &found);
            }
            Err(FatbinError::Malformed { .. }) => {}
            Err(error) => outcome = Err(error),
        }
        if outcome.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    })?;
    outcome
}

/// The entries of the container at `start`, which must end at or before `limit`. Each header that is read takes from `budget`.
fn container(file: &dyn ReadAt, start: u64, header: Container, limit: u64, budget: &mut u64) -> Result<Found> {
    let end = start.saturating_add(header.whole());
    if end > limit {
        return malformed("a container that ends behind its section", start);
    }
    let mut found = Found::default();
    let mut at = start.saturating_add(header.header);
    while at < end {
        *budget = budget.checked_sub(1).ok_or(FatbinError::TooMany)?;
        let room = end - at;
        if room < entry::SIZE as u64 {
            return malformed("entries that do not fill their container", at);
        }
        let mut bytes = [0; entry::SIZE];
        read_exact_at(file, at, &mut bytes)?;
        let shape = entry::shape(&bytes, at, room)?;
        match shape.content {
            Content::One(entry) => found.entries.push(entry),
            Content::Group { compressed, stored } => {
                found.grouped = found.grouped.saturating_add(stored);
                let header = read_vec(file, at, shape.header, shape.header)?;
                let members = entry::members(&header, compressed, at)?;
                *budget = budget.checked_sub(members.len() as u64).ok_or(FatbinError::TooMany)?;
                found.entries.extend(members);
            }
        }
        at = at.saturating_add(shape.header).saturating_add(shape.payload);
    }
    Ok(found)
}
