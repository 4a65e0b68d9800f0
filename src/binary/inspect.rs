//! One file to what it says of itself: form, needs, symbols, device code.

use super::elf::{Elf, ElfError, summarise};
use super::fatbin;
use super::read::{ReadAt, read_up_to};
use crate::facts::device_code::DeviceCode;
use crate::facts::elf::{ElfKind, Machine};
use crate::facts::inspect::{Binary, Form, Wanted};
use crate::facts::observed::Observed;
use crate::facts::raw::HostPath;

/// The first bytes of an archive of objects and of a bare fat binary.
const ARCHIVE: &[u8] = b"!<arch>\n";
const FATBIN: [u8; 4] = 0xBA55_ED50_u32.to_le_bytes();
const ELF: &[u8] = b"\x7fELF";

/// What the first bytes of a file say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Magic {
    Elf,
    Archive,
    Fatbin,
    Zip,
}

impl Magic {
    /// `None`: nothing that can be looked into.
    pub fn of(start: &[u8]) -> Option<Self> {
        match start {
            _ if start.starts_with(ELF) => Some(Self::Elf),
            _ if start.starts_with(ARCHIVE) => Some(Self::Archive),
            _ if start.starts_with(&FATBIN) => Some(Self::Fatbin),
            _ if start.starts_with(b"PK\x03\x04") || start.starts_with(b"PK\x05\x06") => Some(Self::Zip),
            _ => None,
        }
    }

    /// # Errors
    /// Those of the file.
    pub fn of_file(file: &dyn ReadAt) -> std::io::Result<Option<Self>> {
        Ok(Self::of(&read_up_to(file, 0, 8)?))
    }
}

/// How much of a file is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Depth {
    /// What its headers say: form, needs, device code.
    Headers,
    /// Its dynamic symbols too.
    Symbols,
}

/// A file that can be read at any place. `name`: its path, or its name in a wheel.
///
/// # Errors
/// When its header cannot be read: then nothing is known of it. What fails after that is a fact.
pub fn binary(file: &dyn ReadAt, path: &HostPath, member: Option<&str>, magic: Magic, depth: Depth) -> Result<Binary, ElfError> {
    let mut found = match magic {
        Magic::Elf => of_elf(file, path, member, depth)?,
        _ => empty(path, member, file.len(), magic),
    };
    found.device_code = observed(fatbin::device_code(file));
    Ok(found)
}

/// The same without device code, which the caller has read otherwise.
///
/// # Errors
/// As [`binary`].
pub fn of_elf(file: &dyn ReadAt, path: &HostPath, member: Option<&str>, depth: Depth) -> Result<Binary, ElfError> {
    let elf = Elf::open(file)?;
    let mut found = Binary { form: form(&elf)?, ..empty(path, member, file.len(), Magic::Elf) };
    found.elf = match summarise(file) {
        Ok(facts) => Observed::seen(facts),
        Err(error) => Observed::failed(error.to_string()),
    };
    found.stripped = elf.stripped().ok().flatten();
    if found.is_loaded() && depth == Depth::Headers {
        found.imports = Observed::skipped("not asked for");
    } else if found.is_loaded() {
        found.imports = match elf.imports() {
            Ok(imports) => Observed::seen(imports.into_iter().map(|import| Wanted { name: import.name, weak: import.weak }).collect()),
            Err(error) => Observed::failed(error.to_string()),
        };
        let name = found.file_name();
        let module = name.split('.').next().unwrap_or_default();
        found.python = python_tag(&name);
        found.module = elf.symbol(&format!("PyInit_{module}")).is_ok_and(|found| found.is_some());
        if member.is_some() {
            found.exports = elf.exports().unwrap_or_default();
        }
    }
    Ok(found)
}

/// What [`fatbin::device_code`] answered, as a fact.
pub fn observed(code: Result<Option<DeviceCode>, fatbin::FatbinError>) -> Observed<DeviceCode> {
    match code {
        Ok(Some(code)) => Observed::seen(code),
        Ok(None) => Observed::absent(["sections of device code"]),
        Err(error) => Observed::failed(error.to_string()),
    }
}

/// A file that begins like an ELF file and cannot be read.
pub fn broken(path: &HostPath, member: Option<&str>, size: u64, error: &ElfError) -> Binary {
    let why = error.to_string();
    Binary {
        elf: Observed::failed(why.clone()),
        device_code: Observed::failed(why.clone()),
        imports: Observed::failed(why),
        ..empty(path, member, size, Magic::Elf)
    }
}

/// Whether a file of this name is one for the loader: `_C.so`, `libcudart.so.12.4.127`.
pub fn is_library(name: &str) -> bool {
    let versions = |rest: &str| rest.bytes().all(|b| b.is_ascii_digit() || b == b'.');
    name.ends_with(".so") || name.split_once(".so.").is_some_and(|(_, rest)| versions(rest))
}

/// Why a file with the name of a library is none, from its first bytes, which are those of no binary. `None`: a text, as the linker's
/// scripts are, which have such names by right.
pub fn no_library(start: &[u8]) -> Option<ElfError> {
    match start {
        [] => Some(ElfError::Empty),
        _ if start.starts_with(b"version https://git-lfs") => Some(ElfError::Pointer),
        _ if start.contains(&0) => Some(ElfError::NotElf),
        _ => None,
    }
}

/// Of which only the form is known.
pub fn empty(path: &HostPath, member: Option<&str>, size: u64, magic: Magic) -> Binary {
    let form = match magic {
        Magic::Archive => Form::Archive,
        Magic::Fatbin => Form::Fatbin,
        Magic::Elf | Magic::Zip => Form::Library,
    };
    Binary {
        path: path.clone(),
        member: member.map(str::to_owned),
        size,
        form,
        elf: Observed::absent(["an ELF header"]),
        stripped: None,
        python: None,
        module: false,
        device_code: Observed::default(),
        imports: Observed::absent(["a dynamic section"]),
        exports: Default::default(),
    }
}

fn form(elf: &Elf<'_>) -> Result<Form, ElfError> {
    Ok(match elf.kind() {
        _ if elf.machine() == Machine::CUDA => Form::Cubin,
        ElfKind::Relocatable => Form::Object,
        ElfKind::Executable => Form::Executable,
        // A position-independent program has a loader; so has libc.so.6, which can be run.
        ElfKind::Shared if elf.interpreter()?.is_some() && elf.soname()?.is_none() => Form::Executable,
        _ => Form::Library,
    })
}

/// `cpython-311-x86_64-linux-gnu` of `_C.cpython-311-x86_64-linux-gnu.so`, `abi3` of `_C.abi3.so`.
fn python_tag(name: &str) -> Option<String> {
    let tag = name.strip_suffix(".so")?.rsplit_once('.')?.1;
    (tag == "abi3" || tag.starts_with("cpython-") || tag.starts_with("pypy")).then(|| tag.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_of_modules() {
        assert_eq!(python_tag("_C.cpython-311-x86_64-linux-gnu.so").as_deref(), Some("cpython-311-x86_64-linux-gnu"));
        assert_eq!(python_tag("bits.abi3.so").as_deref(), Some("abi3"));
        for none in ["libc10.so", "libx.1.so", "fused_adam.so", "x.cpython-311.so.1"] {
            assert_eq!(python_tag(none), None, "{none}");
        }
    }

    #[test]
    fn what_is_named_like_a_library_and_is_none() {
        for name in ["_C.cpython-311-x86_64-linux-gnu.so", "libcudart.so.12.4.127", "x.so"] {
            assert!(is_library(name), "{name}");
        }
        for name in ["x.so.bak", "x.so.12.py", "so", "x.a"] {
            assert!(!is_library(name), "{name}");
        }
        assert!(matches!(no_library(b""), Some(ElfError::Empty)));
        assert!(matches!(no_library(&[0; 64]), Some(ElfError::NotElf)));
        assert!(matches!(no_library(b"version https://git-lfs.github.com/spec/v1\noid"), Some(ElfError::Pointer)));
        assert!(no_library(b"/* GNU ld script */\nGROUP ( /lib/libc.so.6 )").is_none());
    }

    #[test]
    fn first_bytes() {
        assert_eq!(Magic::of(b"\x7fELF\x02"), Some(Magic::Elf));
        assert_eq!(Magic::of(b"\x50\xed\x55\xba\x01"), Some(Magic::Fatbin));
        assert_eq!(Magic::of(b"#!/bin/sh"), None);
        assert_eq!(Magic::of(b""), None);
    }
}
