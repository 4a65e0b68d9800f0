//! Which release a libnccl is, and with which CUDA it was compiled.

use super::elf::{Elf, ElfError};
use super::read::ReadAt;
use super::scan::{scan, section};
use crate::version::{CudaVersion, Dotted};
use std::ops::ControlFlow;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NcclRelease {
    /// `2.28.9`
    pub version: Dotted,
    pub cuda: Option<CudaVersion>,
}

/// From the text that NCCL prints at its start, `NCCL version 2.28.9+cuda13.0`.
///
/// # Errors
/// See [`ElfError`].
pub fn nccl_release(file: &dyn ReadAt) -> Result<Option<NcclRelease>, ElfError> {
    const TEXT: &str = "NCCL version ";
    let elf = Elf::open(file)?;
    let mut release = None;
    scan(file, section(&elf, ".rodata")?.range, &[TEXT.as_bytes()], |hit| {
        release = hit.text_after(TEXT).and_then(parse);
        if release.is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })?;
    Ok(release)
}

fn parse(text: &str) -> Option<NcclRelease> {
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (version, rest) = text.split_at(end);
    let version: Dotted = version.parse().ok()?;
    let cuda = rest.strip_prefix("+cuda").or_else(|| rest.strip_prefix(" compiled with CUDA "));
    (version.parts.len() >= 3).then(|| NcclRelease { version, cuda: cuda.and_then(|c| c.trim_end().parse().ok()) })
}

/// The release in the name of a real file: `libnccl.so.2.27.5`.
pub fn release_in_name(name: &str) -> Option<Dotted> {
    super::release_in_name(name, "libnccl.so.").filter(|version| version.parts.len() >= 3)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts() {
        let read = |text| parse(text).map(|r| (r.version.text, r.cuda));
        assert_eq!(read("2.28.9+cuda13.0"), Some(("2.28.9".to_owned(), Some(CudaVersion::new(13, 0)))));
        assert_eq!(read("2.28.9 compiled with CUDA 12.4\n"), Some(("2.28.9".to_owned(), Some(CudaVersion::new(12, 4)))));
        assert_eq!(read("2.14.3"), Some(("2.14.3".to_owned(), None)));
        assert_eq!(read("mismatch with remote peer"), None);
    }
}
