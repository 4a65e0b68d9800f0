//! What CUDA's own programs say in their strings, without being run.

use super::elf::{Elf, ElfError};
use super::read::ReadAt;
use super::scan::{Hit, scan, section};
use crate::version::{Dotted, Target};
use std::collections::BTreeSet;
use std::ops::{ControlFlow, Range};

const RELEASE: &str = "release ";
const TARGET: &str = "compute_";
const CCBIN: &str = "NVCC_CCBIN";

/// The strings of an nvcc program.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NvccStrings {
    /// `13.0.88`; none in a program that is not nvcc.
    pub version: Option<Dotted>,
    /// What it can compile for, sorted: each `compute_NN`, `compute_NNa` and `compute_NNf` that is a string of its own.
    pub targets: Vec<Target>,
    /// Whether it reads the variable NVCC_CCBIN (12.5 and later); none where that cannot be said.
    pub reads_nvcc_ccbin: Option<bool>,
}

/// Reads an nvcc program's strings.
///
/// # Errors
/// [`ElfError::NotElf`] for the wrapper scripts that stand in for nvcc; the others for a damaged program.
pub fn nvcc_strings(file: &dyn ReadAt) -> Result<NvccStrings, ElfError> {
    let elf = Elf::open(file)?;
    let part = section(&elf, ".rodata")?;
    let (mut version, mut targets, mut ccbin) = (None, BTreeSet::new(), false);
    scan(file, part.range, &[RELEASE.as_bytes(), TARGET.as_bytes(), CCBIN.as_bytes()], |hit| {
        match hit.needle {
            0 => version = version.take().or_else(|| release(&hit)),
            1 => targets.extend(target(&hit)),
            _ => ccbin |= hit.starts_a_string() && hit.text() == Some(CCBIN),
        }
        ControlFlow::Continue(())
    })?;
    // Without nvcc's release text the program is something else, and what it lacks says nothing.
    let reads_nvcc_ccbin = (version.is_some() && (ccbin || part.complete)).then_some(ccbin);
    Ok(NvccStrings { version, targets: targets.into_iter().collect(), reads_nvcc_ccbin })
}

/// The release of any of CUDA's programs (nvcc, ptxas, cicc, cudafe++, nvlink, fatbinary), from the text that `--version` prints.
///
/// # Errors
/// As [`nvcc_strings`].
pub fn program_release(file: &dyn ReadAt) -> Result<Option<Dotted>, ElfError> {
    let elf = Elf::open(file)?;
    let range = section(&elf, ".rodata")?.range;
    let mut version = None;
    for part in likely_first(range) {
        scan(file, part, &[RELEASE.as_bytes()], |hit| {
            version = release(&hit);
            if version.is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })?;
        if version.is_some() {
            break;
        }
    }
    Ok(version)
}

/// The whole range in pieces that overlap, those first in which the text has been seen: near the start in most programs, at 70 to 83 of
/// 100 in cicc (11.8 to 13.5), whose strings are 12 MB.
fn likely_first(range: Range<u64>) -> [Range<u64>; 4] {
    const NEAR: u64 = 512 << 10;
    const TEXT: u64 = 128;
    let length = range.end.saturating_sub(range.start);
    let at = |hundredths: u64| range.start + length / 100 * hundredths;
    let near = range.start + NEAR.min(length);
    let from = |start: u64| start.saturating_sub(TEXT).max(range.start);
    [range.start..near, from(at(68))..at(85), from(near)..at(68).max(near), from(at(85))..range.end]
}

/// `13.0.88` of `release 13.0, V13.0.88`.
fn release(hit: &Hit<'_>) -> Option<Dotted> {
    let (short, long) = hit.text_after(RELEASE)?.split_once(", V")?;
    let long = long.split(|c: char| !c.is_ascii_digit() && c != '.').next()?;
    let long: Dotted = long.parse().ok()?;
    (long.parts.len() >= 3 && short == long.major_minor()).then_some(long)
}

fn target(hit: &Hit<'_>) -> Option<Target> {
    let number = hit.text_after(TARGET)?;
    let digits = number.strip_suffix(['a', 'f']).unwrap_or(number);
    let whole = hit.starts_a_string() && digits.len() >= 2 && digits.bytes().all(|b| b.is_ascii_digit());
    whole.then(|| number.parse().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pieces_cover_the_whole() {
        for range in [0..0, 5..6, 100..100_000, 7..3_000_000, 4096..12_000_000] {
            let mut pieces = likely_first(range.clone()).to_vec();
            pieces.sort_by_key(|piece| piece.start);
            let mut covered = range.start;
            for piece in pieces {
                assert!(piece.start <= covered && piece.end <= range.end, "{range:?}: {piece:?}");
                covered = covered.max(piece.end);
            }
            assert_eq!(covered, range.end, "{range:?}");
        }
    }
}
