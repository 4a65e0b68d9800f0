//! The facts of one file.

use super::{Elf, Result};
use crate::binary::read::ReadAt;
use crate::facts::elf::ElfFacts;
use goblin::elf::dynamic::DF_1_NODEFLIB;

/// What the dynamic loader would learn of a file.
///
/// A file that is cut short somewhere the loader looks is an error; one that only lacks its tail gives facts with
/// [`ElfFacts::truncated`] set.
///
/// # Errors
/// See [`super::ElfError`].
pub fn summarise(file: &dyn ReadAt) -> Result<ElfFacts> {
    let elf = Elf::open(file)?;
    Ok(ElfFacts {
        machine: elf.machine(),
        class_bits: elf.class_bits(),
        little_endian: elf.is_little_endian(),
        kind: elf.kind(),
        interpreter: elf.interpreter()?,
        soname: elf.soname()?,
        needed: elf.needed()?,
        rpath: elf.rpath()?,
        runpath: elf.runpath()?,
        nodeflib: elf.flags_1()? & DF_1_NODEFLIB != 0,
        version_definitions: elf.version_definitions()?,
        version_needs: elf.version_needs()?,
        truncated: elf.truncated(),
    })
}
