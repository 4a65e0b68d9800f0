//! The release number inside a Python program, for installations whose files do not tell it.

use super::layout::Series;
use crate::binary::read::read_up_to;
use crate::host::Host;
use crate::version::Dotted;
use std::path::Path;

/// Statically linked programs have up to 30 MB.
const CAP: u64 = 64 << 20;
const BLOCK: u64 = 1 << 20;
/// Longer than any `\03.11.10rc2+\0`.
const OVERLAP: u64 = 32;

/// `PY_VERSION` is a string of its own: NUL, `3.11.7`, NUL. A program that only starts its library does not have it.
pub fn release(host: &dyn Host, real: &Path, prefix: Option<&Path>, series: Series) -> Option<Dotted> {
    let library = prefix.map(|prefix| prefix.join(format!("lib/lib{}.so.1.0", series.folder())));
    [Some(real.to_owned()), library].into_iter().flatten().find_map(|path| {
        let file = crate::collect::open(host, &path).ok()?;
        let mut at = 0;
        while at < CAP {
            let block = read_up_to(&file, at, BLOCK).ok()?;
            if let Some(found) = scan(&block, series) {
                return Some(found);
            }
            if (block.len() as u64) < BLOCK {
                return None;
            }
            at += BLOCK - OVERLAP;
        }
        None
    })
}

fn scan(block: &[u8], series: Series) -> Option<Dotted> {
    let start = format!("\0{}.{}.", series.major, series.minor);
    memchr::memmem::find_iter(block, start.as_bytes()).find_map(|at| {
        let text = block.get(at + 1..)?;
        let text = std::str::from_utf8(text.get(..memchr::memchr(0, text.get(..16).unwrap_or(text))?)?).ok()?;
        let patch = text.get(start.len() - 1..)?;
        let digits = patch.len() - patch.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        (digits > 0).then(|| text.get(..start.len() - 1 + digits))??.parse().ok()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_release_stands_alone_between_nuls() {
        let series = Series { major: 3, minor: 11, free_threaded: false };
        let scan = |bytes: &[u8]| scan(bytes, series).map(|version| version.text);
        assert_eq!(scan(b"\x003.11.\x00x\x003.11.7+\x00"), Some("3.11.7".into()));
        assert_eq!(scan(b"\x003.11.2\x00"), Some("3.11.2".into()));
        assert_eq!(scan(b"lib/python3.11.2\x00\x003.11.x\x00\x003.11.4"), None);
    }
}
