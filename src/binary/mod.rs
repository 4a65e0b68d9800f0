//! Bytes to facts: ELF files, the loader's cache, version texts inside programs, CUDA's headers.
//!
//! Everything reads by position through [`ReadAt`]: a file of a gigabyte costs a few small reads, and a header that claims more
//! than the file holds costs nothing.

pub mod elf;
pub mod ldcache;
pub mod read;

pub use read::ReadAt;
