//! Any bytes as a log: unpacked, decoded, read whole and in pieces. Where lines end nothing depends on how the bytes arrive.
#![no_main]

use ds_doctor::knowledge::Knowledge;
use ds_doctor::logs::{Outcome, Reader, text};
use libfuzzer_sys::fuzz_target;
use std::io::Read as _;

/// An archive of a few bytes can hold gigabytes.
const MOST: u64 = 4 << 20;

fn told(outcome: &Outcome<'_>) -> Vec<(String, usize)> {
    outcome.matches.iter().map(|one| (one.signature.name.to_string(), one.number)).collect()
}

fuzz_target!(|bytes: &[u8]| {
    let know = Knowledge::embedded();
    let Ok(reader) = Reader::new(&know) else { return };
    let whole = reader.read(bytes);
    let mut scan = reader.scan();
    bytes.chunks(7).for_each(|piece| scan.feed(piece));
    let pieces = scan.finish();
    if bytes.len() < 4096 {
        assert_eq!(told(&whole), told(&pieces));
        assert_eq!(whole.lines, pieces.lines);
    }
    let mut out = Vec::new();
    if let Ok(unpacked) = text(bytes) {
        let _ = unpacked.take(MOST).read_to_end(&mut out);
        reader.read(&out);
    }
});
