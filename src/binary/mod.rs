//! Bytes to facts: ELF files, the device code in them, wheels, the loader's cache, version texts inside programs, CUDA's headers.
//!
//! Everything reads by position through [`ReadAt`]: a file of a gigabyte costs a few small reads, and a header that claims more
//! than the file holds costs nothing.

pub mod compiler;
pub mod cudart;
pub mod driver;
pub mod elf;
pub mod fatbin;
pub mod hostconfig;
pub mod inspect;
pub mod ldcache;
pub mod nccl;
pub mod nvcc;
pub mod preprocessor;
pub mod read;
pub mod releases;
pub mod scan;
pub mod sparse;
pub mod torch;
pub mod wheel;
pub mod zip;

pub use read::{FileAt, ReadAt};

use crate::version::Dotted;

/// The dotted number behind `stem` in a file's name; nothing else may follow.
fn release_in_name(name: &str, stem: &str) -> Option<Dotted> {
    let rest = name.strip_prefix(stem)?;
    let plain = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
    rest.split('.').all(plain).then(|| rest.parse().ok()).flatten()
}
