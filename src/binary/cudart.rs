//! Which CUDA release a libcudart is of. No string in it says so.

use super::elf::{Elf, ElfError};
use super::read::{ReadAt, read_vec};
use super::scan::section;
use crate::facts::elf::Machine;
use crate::version::{CudaVersion, Dotted};

/// A libcudart's code has half a megabyte.
const MOST_CODE: u64 = 32 << 20;

/// How much is known of the release.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CudartRelease {
    /// What `cudaRuntimeGetVersion` answers.
    Exact(CudaVersion),
    /// It exports a function that this release was the first to have.
    AtLeast(CudaVersion),
}

/// The first release that exports a function. Read from the libraries of 11.7 to 13.5; 12.6, 12.9 and 13.5 add nothing.
const FIRST_WITH: [(CudaVersion, &str); 13] = [
    (CudaVersion::new(13, 4), "cudaMemGetLocationInfo"),
    (CudaVersion::new(13, 3), "cudaSubgridCreate"),
    (CudaVersion::new(13, 2), "cudaFuncGetParamCount"),
    (CudaVersion::new(13, 1), "cudaGreenCtxCreate"),
    (CudaVersion::new(13, 0), "cudaLogsCurrent"),
    (CudaVersion::new(12, 8), "cudaLibraryLoadData"),
    (CudaVersion::new(12, 5), "cudaGetDriverEntryPointByVersion"),
    (CudaVersion::new(12, 4), "cudaFuncGetParamInfo"),
    (CudaVersion::new(12, 3), "cudaGraphConditionalHandleCreate"),
    (CudaVersion::new(12, 2), "cudaGraphAddNode"),
    (CudaVersion::new(12, 1), "cudaGetKernel"),
    (CudaVersion::new(12, 0), "cudaInitDevice"),
    (CudaVersion::new(11, 8), "cudaLaunchKernelExC"),
];

/// The release of a libcudart, from its code; where that has another shape than all known ones, from what it exports.
///
/// # Errors
/// See [`ElfError`].
pub fn cudart_release(file: &dyn ReadAt) -> Result<Option<CudartRelease>, ElfError> {
    let elf = Elf::open(file)?;
    if let Some(version) = release_in_code(&elf)? {
        return Ok(Some(CudartRelease::Exact(version)));
    }
    Ok(release_by_symbols(&elf)?.map(CudartRelease::AtLeast))
}

/// The number that `cudaRuntimeGetVersion` stores, when all places that store such a number agree.
fn release_in_code(elf: &Elf<'_>) -> Result<Option<CudaVersion>, ElfError> {
    let part = section(elf, ".text")?;
    let code = read_vec(elf.file(), part.range.start, part.range.end - part.range.start, MOST_CODE)?;
    let numbers: Vec<u32> = match elf.machine() {
        Machine::X86_64 => stored_on_x86_64(&code).collect(),
        Machine::AARCH64 => stored_on_aarch64(&code).collect(),
        _ => return Ok(None),
    };
    let mut found = numbers.into_iter().filter(|n| (8000..20_000).contains(n) && n.is_multiple_of(10));
    let first = found.next();
    Ok(first.filter(|first| found.all(|n| n == *first)).map(CudaVersion::from_macro))
}

/// Constants stored through the first argument: `mov dword [rdi], imm32`.
fn stored_on_x86_64(code: &[u8]) -> impl Iterator<Item = u32> {
    memchr::memmem::find_iter(code, b"\xc7\x07").filter_map(|at| {
        let bytes: [u8; 4] = code.get(at + 2..at + 6)?.try_into().ok()?;
        Some(u32::from_le_bytes(bytes))
    })
}

/// Constants of 16 bits (`movz wN, #imm`) that one of the next three instructions stores (`str wN, [xM]`).
fn stored_on_aarch64(code: &[u8]) -> impl Iterator<Item = u32> {
    let word = |bytes: &[u8]| bytes.try_into().map(u32::from_le_bytes).unwrap_or(0);
    code.windows(16).step_by(4).filter_map(move |window| {
        let (first, next) = window.split_at(4);
        let first = word(first);
        let register = first & 31;
        let is_store = |bytes: &[u8]| word(bytes) & 0xffff_fc1f == 0xb900_0000 | register;
        (first & 0xffe0_0000 == 0x5280_0000 && next.chunks_exact(4).any(is_store)).then_some((first >> 5) & 0xffff)
    })
}

fn release_by_symbols(elf: &Elf<'_>) -> Result<Option<CudaVersion>, ElfError> {
    for (version, name) in FIRST_WITH {
        if elf.symbol(name)?.is_some() {
            return Ok(Some(version));
        }
    }
    Ok(None)
}

/// The release in the name of a real file: `libcudart.so.12.4.127`, not the SONAME `libcudart.so.11.0`.
pub fn release_in_name(name: &str) -> Option<Dotted> {
    super::release_in_name(name, "libcudart.so.").filter(|version| version.parts.len() >= 3)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names() {
        assert_eq!(release_in_name("libcudart.so.12.4.127").map(|v| v.text).as_deref(), Some("12.4.127"));
        for name in ["libcudart.so", "libcudart.so.12", "libcudart.so.11.0", "libcudart.so.12.4.x", "libcudart-80664282.so.10.2"] {
            assert_eq!(release_in_name(name), None, "{name}");
        }
    }

    #[test]
    fn the_table_goes_from_new_to_old() {
        assert!(FIRST_WITH.is_sorted_by(|a, b| a.0 > b.0));
    }
}
