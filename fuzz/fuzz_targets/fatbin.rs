//! Any bytes as a file with device code, read by position and as a stream, which must agree.
#![no_main]

use ds_doctor::binary::elf::Elf;
use ds_doctor::binary::fatbin::{Places, Stream, device_code};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let read = device_code(&bytes);
    if let Ok(Some(code)) = &read {
        let text = serde_json::to_string(code).expect("plain values");
        assert_eq!(serde_json::from_str::<ds_doctor::facts::device_code::DeviceCode>(&text).ok().as_ref(), Some(code));
        assert!(code.listed().count() <= code.targets.len() && code.compressed <= code.entries);
    }
    let places = match Elf::open(&bytes) {
        Ok(elf) => Places::of(&elf).unwrap_or_default(),
        Err(_) => Places::raw(bytes.len() as u64),
    };
    let mut stream = Stream::new(bytes.len() as u64);
    bytes.chunks(1 + bytes.first().map_or(0, |byte| usize::from(*byte))).for_each(|chunk| stream.feed(chunk));
    let streamed = stream.finish(&places);
    // Cubins and archives are read by position alone.
    if let (Ok(read), Ok(streamed), false) = (read, streamed, bytes.starts_with(b"!<arch>") || places.is_empty()) {
        if let (Some(read), Some(streamed)) = (read, streamed) {
            assert_eq!(read.entries, streamed.entries);
        }
    }
});
