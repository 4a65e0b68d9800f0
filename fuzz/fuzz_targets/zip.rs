//! Any bytes as a zip file, each of its members read to the end.
#![no_main]

use ds_doctor::binary::zip::Zip;
use libfuzzer_sys::fuzz_target;
use std::io::Read as _;

fuzz_target!(|bytes: &[u8]| {
    let Ok(mut zip) = Zip::open(&bytes) else { return };
    for member in zip.members().to_vec() {
        let _ = zip.whole(&member, 1 << 16);
        // What is larger is read a piece at a time, as large members of a wheel are.
        let Ok(mut reader) = zip.read(&member) else { continue };
        let mut chunk = [0; 4096];
        let mut left = 256;
        while left > 0 && reader.read(&mut chunk).is_ok_and(|read| read > 0) {
            left -= 1;
        }
    }
});
