//! Chains of containers, read by position.

use super::entry::{self, Content};
use super::tally::{Found, Tally};
use super::{Budget, FatbinError, MAGIC, Result, malformed};
use crate::binary::elf::ElfError;
use crate::binary::read::{ReadAt, read_up_to, read_vec};
use crate::binary::scan::scan;
use std::io;
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

/// A container's header and that of its first entry lie side by side, and are read at once.
struct Ahead<'a> {
    file: &'a dyn ReadAt,
    at: u64,
    bytes: Vec<u8>,
}

impl<'a> Ahead<'a> {
    const SIZE: u64 = (HEADER + entry::SIZE) as u64;

    fn new(file: &'a dyn ReadAt) -> Self {
        Self { file, at: 0, bytes: Vec::new() }
    }

    fn read<const N: usize>(&mut self, at: u64) -> io::Result<[u8; N]> {
        if let Some(bytes) = self.held(at) {
            return Ok(bytes);
        }
        (self.at, self.bytes) = (at, read_up_to(self.file, at, Self::SIZE)?);
        self.held(at).ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
    }

    fn held<const N: usize>(&self, at: u64) -> Option<[u8; N]> {
        let from = usize::try_from(at.checked_sub(self.at)?).ok()?;
        self.bytes.get(from..)?.first_chunk().copied()
    }
}

/// Counts the containers that fill `range` of the file.
pub fn region(file: &dyn ReadAt, range: Range<u64>, relocatable: bool, tally: &mut Tally, budget: &mut Budget) -> Result<()> {
    if range.end > file.len() {
        return Err(ElfError::CutShort { what: "the device code", expected: range.end, actual: file.len() }.into());
    }
    let mut ahead = Ahead::new(file);
    let mut at = range.start;
    let mut padding = 0;
    while range.end.saturating_sub(at) >= HEADER as u64 {
        budget.take(1)?;
        let bytes = ahead.read::<HEADER>(at)?;
        match Container::parse(bytes, at)? {
            Some(found) => {
                let end = at.saturating_add(found.whole());
                tally.container(at, relocatable, &container(&mut ahead, at, found, range.end, budget)?)?;
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

/// Counts what looks like a container anywhere in `range` and is one to its end: for files that do not say where theirs are. Bytes can be
/// laid so that every candidate is a long chain that breaks at its end: hence the budget.
pub fn search(file: &dyn ReadAt, range: Range<u64>, tally: &mut Tally, budget: &mut Budget) -> Result<()> {
    let (limit, mut done) = (range.end.min(file.len()), range.start);
    let mut outcome = Ok(());
    scan(file, range, &[&MAGIC], |hit| {
        let at = hit.offset;
        if at % ALIGNMENT != 0 || at < done {
            return ControlFlow::Continue(());
        }
        let bytes = hit.at.get(..HEADER).and_then(|bytes| bytes.try_into().ok());
        let Some(Ok(Some(header))) = bytes.map(|bytes| Container::parse(bytes, at)) else { return ControlFlow::Continue(()) };
        match container(&mut Ahead::new(file), at, header, limit, budget) {
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
fn container(ahead: &mut Ahead<'_>, start: u64, header: Container, limit: u64, budget: &mut Budget) -> Result<Found> {
    let end = start.saturating_add(header.whole());
    if end > limit {
        return malformed("a container that ends behind its section", start);
    }
    let mut found = Found::default();
    let mut at = start.saturating_add(header.header);
    while at < end {
        budget.take(1)?;
        let room = end - at;
        if room < entry::SIZE as u64 {
            return malformed("entries that do not fill their container", at);
        }
        let bytes = ahead.read::<{ entry::SIZE }>(at)?;
        let shape = entry::shape(&bytes, at, room)?;
        match shape.content {
            Content::One(entry) => found.entries.push(entry),
            Content::Group { compressed, stored } => {
                found.grouped = found.grouped.saturating_add(stored);
                let header = read_vec(ahead.file, at, shape.header, shape.header)?;
                let members = entry::members(&header, compressed, at)?;
                budget.take(members.len() as u64)?;
                found.entries.extend(members);
            }
        }
        at = at.saturating_add(shape.header).saturating_add(shape.payload);
    }
    Ok(found)
}
