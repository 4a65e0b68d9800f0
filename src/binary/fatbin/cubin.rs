//! A cubin that is a file of its own: an ELF file for the GPU.

use super::entry::{Entry, target};
use super::places::Places;
use super::tally::{Found, Tally};
use super::{FatbinError, Result, malformed};
use crate::binary::elf::Elf;
use crate::binary::read::read_vec;
use crate::facts::device_code::{CodeTarget, DeviceCode};
use goblin::elf::header::{EI_ABIVERSION, EI_OSABI};

/// A note in which ptxas of CUDA 13 and later writes its own version and flags.
const TOOL_NOTE: &str = ".note.nv.tkinfo";
/// Those that exist have some hundred bytes.
const MOST_NOTE: u64 = 64 << 10;

/// Source of the fields: cubins of nvcc 11.2 to 13.5.
pub fn device_code(elf: &Elf<'_>) -> Result<DeviceCode> {
    let flags = elf.flags();
    let of = |index: usize| elf.ident().get(index).copied();
    let (sm, specific, family) = match (of(EI_OSABI), of(EI_ABIVERSION)) {
        // CUDA 12.9 and before.
        (Some(0x33), _) => (flags & 0xff, flags & (1 << 11) != 0, false),
        (Some(0x41), _) => {
            let sm = (flags >> 8) & 0xff;
            // CUDA 12.8 and 12.9 have a bit for it, CUDA 13 has the flags of ptxas in a note.
            let suffix = suffix(elf, sm)?;
            (sm, suffix == Some(b'a') || suffix.is_none() && flags & (1 << 3) != 0, suffix == Some(b'f'))
        }
        _ => return malformed("a cubin of an unknown ABI", 0),
    };
    let size = elf.file().len();
    let target = CodeTarget::sass(target(sm, specific, family, 0)?);
    let entry = Entry { target, isa: None, compressed: false, stored: size, unpacked: size };
    let mut tally = Tally::default();
    tally.container(0, false, &Found { entries: vec![entry], grouped: 0 })?;
    tally.finish(&[], &Places::default()).ok_or(FatbinError::Unknown)
}

/// The letter behind the target in ptxas's own flags, `-arch sm_90a`; a NUL where the target has none.
fn suffix(elf: &Elf<'_>, sm: u32) -> Result<Option<u8>> {
    let Some(range) = elf.section(TOOL_NOTE)?.map(|section| section.range()) else { return Ok(None) };
    let size = range.end.saturating_sub(range.start);
    let note = read_vec(elf.file(), range.start, size, MOST_NOTE)?;
    let name = format!("-arch sm_{sm}");
    let after = memchr::memmem::find(&note, name.as_bytes()).and_then(|at| note.get(at + name.len()));
    Ok(after.map(|letter| if letter.is_ascii_alphabetic() { *letter } else { 0 }))
}
