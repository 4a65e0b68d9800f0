//! Device code inside files: what `cuobjdump -lelf -lptx` lists, from the headers alone.
//!
//! nvcc's "fat binary" is a chain of containers, each a header of 16 bytes and a chain of entries, each a header and a payload (a cubin, a
//! PTX text). Nothing is unpacked: a header says the kind, the target and the sizes. All numbers are little-endian.
//!
//! * [`device_code`] reads a file by position: a small read for each entry, however large the payloads are.
//! * [`Stream`] takes the bytes of a file once, in order, as they come out of a decompressor.

mod archive;
mod cubin;
mod entry;
mod places;
mod stream;
mod tally;
mod walk;

pub use places::Places;
pub use stream::Stream;

use super::elf::{Elf, ElfError};
use super::read::{ReadAt, read_up_to};
use crate::facts::device_code::DeviceCode;
use crate::facts::elf::Machine;
use std::io;
use tally::Tally;

/// What begins a container.
const MAGIC: [u8; 4] = 0xBA55_ED50_u32.to_le_bytes();
/// The most entries that are counted in one file: some hundred times what torch's largest library has. Each takes 64 bytes of the file.
const MOST_ENTRIES: u64 = 1 << 18;
/// Headers that are read in one file, empty containers, padding and what turns out to be none counted in. Sections can overlap, and then
/// a file has more of them than its size says.
const MOST_HEADERS: u64 = 4 * MOST_ENTRIES;

/// Why the device code of a file cannot be told.
#[derive(Debug, thiserror::Error)]
pub enum FatbinError {
    #[error("neither an ELF file, nor a fat binary, nor an archive")]
    Unknown,
    /// The bytes at `at` contradict the format or each other.
    #[error("damaged device code at byte {at}: {what}")]
    Malformed { what: &'static str, at: u64 },
    #[error("more device code than is counted: {MOST_ENTRIES} pieces")]
    TooMany,
    #[error("damaged archive at byte {at}: {what}")]
    Archive { what: &'static str, at: u64 },
    #[error(transparent)]
    Elf(#[from] ElfError),
    #[error(transparent)]
    Io(#[from] io::Error),
}

type Result<T> = std::result::Result<T, FatbinError>;

fn malformed<T>(what: &'static str, at: u64) -> Result<T> {
    Err(FatbinError::Malformed { what, at })
}

/// The device code of a library, program or object file, a `.cubin`, a `.fatbin`, or an archive of objects. `None`: a file of such a form
/// that has none.
///
/// Time and reads grow with the number of entries; memory with the number of different sets of targets.
///
/// # Errors
/// See [`FatbinError`]. Bytes that only look like device code, outside the sections for it, are no error and do not count.
pub fn device_code(file: &dyn ReadAt) -> Result<Option<DeviceCode>> {
    of_file(file, &mut Budget::default())
}

/// What is left of [`MOST_HEADERS`].
struct Budget(u64);

impl Default for Budget {
    fn default() -> Self {
        Self(MOST_HEADERS)
    }
}

impl Budget {
    fn take(&mut self, headers: u64) -> Result<()> {
        self.0 = self.0.checked_sub(headers).ok_or(FatbinError::TooMany)?;
        Ok(())
    }
}

fn of_file(file: &dyn ReadAt, budget: &mut Budget) -> Result<Option<DeviceCode>> {
    let start = read_up_to(file, 0, archive::MAGIC.len() as u64)?;
    if start.starts_with(archive::MAGIC) {
        return archive::device_code(file, budget);
    }
    if start.starts_with(&MAGIC) {
        let mut tally = Tally::default();
        walk::region(file, 0..file.len(), false, &mut tally, budget)?;
        return Ok(tally.finish(&[], &Places::default()));
    }
    match Elf::open(file) {
        Ok(elf) => of_elf(&elf, budget),
        Err(ElfError::NotElf) => Err(FatbinError::Unknown),
        Err(error) => Err(error.into()),
    }
}

fn of_elf(elf: &Elf<'_>, budget: &mut Budget) -> Result<Option<DeviceCode>> {
    if elf.machine() == Machine::CUDA {
        return cubin::device_code(elf).map(Some);
    }
    let places = Places::of(elf)?;
    let mut tally = Tally::default();
    for range in &places.whole {
        walk::region(elf.file(), range.clone(), false, &mut tally, budget)?;
    }
    for range in &places.relocatable {
        walk::region(elf.file(), range.clone(), true, &mut tally, budget)?;
    }
    for range in &places.unnamed {
        walk::search(elf.file(), range.clone(), &mut tally, budget)?;
    }
    let wrappers = places.read_wrappers(elf.file())?;
    Ok(tally.finish(&wrappers, &places))
}
