//! Static libraries: `ar` archives, read member by member. Names of members are never looked at, except to leave out the index.

use super::{Budget, FatbinError, MOST_ENTRIES, Result, of_file};
use crate::binary::elf::ElfError;
use crate::binary::read::{ReadAt, read_exact_at};
use crate::facts::device_code::DeviceCode;
use std::io;

pub const MAGIC: &[u8] = b"!<arch>\n";
/// A member's header: name 16, time 12, owner 6, group 6, mode 8, size 10, end 2, all text.
const HEADER: usize = 60;

/// A part of a file as a file.
struct Part<'a> {
    file: &'a dyn ReadAt,
    start: u64,
    size: u64,
}

impl ReadAt for Part<'_> {
    fn len(&self) -> u64 {
        self.size
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<usize> {
        let rest = usize::try_from(self.size.saturating_sub(offset)).unwrap_or(usize::MAX);
        let most = buf.len().min(rest);
        match buf.get_mut(..most) {
            Some(buf) => self.file.read_at(self.start.saturating_add(offset), buf),
            None => Ok(0),
        }
    }
}

/// What all members hold. Members that are no binaries (texts, bitcode) hold nothing.
pub fn device_code(file: &dyn ReadAt, budget: &mut Budget) -> Result<Option<DeviceCode>> {
    let mut sum: Option<DeviceCode> = None;
    let mut at = MAGIC.len() as u64;
    while file.len().saturating_sub(at) >= HEADER as u64 {
        let mut header = [0; HEADER];
        read_exact_at(file, at, &mut header)?;
        let Some(size) = header.get(48..58).and_then(number).filter(|_| header.ends_with(b"`\n")) else {
            return Err(FatbinError::Archive { what: "the header of a member", at });
        };
        let start = at.saturating_add(HEADER as u64);
        if size > file.len().saturating_sub(start) {
            return Err(FatbinError::Archive { what: "a member that ends behind the file", at });
        }
        match of_file_without_archives(&Part { file, start, size }, budget) {
            Ok(None) | Err(FatbinError::Unknown | FatbinError::Elf(ElfError::Empty)) => {}
            Ok(Some(code)) => sum.get_or_insert_default().absorb(&code),
            Err(error) => return Err(error),
        }
        if sum.as_ref().is_some_and(|sum| sum.entries > MOST_ENTRIES) {
            return Err(FatbinError::TooMany);
        }
        // Members start at even places.
        at = start.saturating_add(size).saturating_add(size % 2);
    }
    Ok(sum)
}

/// An archive in an archive is not looked into: nobody makes them, and they could be nested without end.
fn of_file_without_archives(part: &Part<'_>, budget: &mut Budget) -> Result<Option<DeviceCode>> {
    let mut start = [0; MAGIC.len()];
    let read = part.read_at(0, &mut start)?;
    if read == MAGIC.len() && start == MAGIC { Ok(None) } else { of_file(part, budget) }
}

fn number(text: &[u8]) -> Option<u64> {
    std::str::from_utf8(text).ok()?.trim_end().parse().ok()
}
