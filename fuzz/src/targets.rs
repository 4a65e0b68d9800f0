//! What each fuzz target does with its bytes. `tests/it/fuzz.rs` includes this file too, and runs it over the corpus.

use ds_doctor::binary::elf::{Elf, summarise};
use ds_doctor::binary::fatbin::{Places, Stream, device_code};
use ds_doctor::binary::hostconfig::host_compilers;
use ds_doctor::binary::inspect::{Depth, Magic, binary};
use ds_doctor::binary::ldcache::LdCache;
use ds_doctor::binary::releases::{header_release, version_json, version_txt};
use ds_doctor::binary::sparse::Keeper;
use ds_doctor::binary::zip::Zip;
use ds_doctor::binary::{compiler, cudart, driver, nccl, nvcc, torch};
use ds_doctor::facts::device_code::DeviceCode;
use ds_doctor::facts::inspect::WheelName;
use ds_doctor::facts::raw::HostPath;
use ds_doctor::knowledge::Knowledge;
use ds_doctor::logs::{Outcome, Reader, text};
use std::io::Read as _;

/// Takes any bytes, and must not panic.
pub type Target = fn(&[u8]);

/// By name, as `cargo fuzz run` and the folders of the corpus have them.
pub const ALL: [(&str, Target); 7] =
    [("elf", elf), ("fatbin", fatbin), ("hostconfig", hostconfig), ("ldcache", ldcache), ("logs", logs), ("wheel", wheel), ("zip", zip)];

/// Any bytes as an ELF file, asked everything that the doctor asks of one.
pub fn elf(bytes: &[u8]) {
    let _ = summarise(&bytes);
    if let Ok(elf) = Elf::open(&bytes) {
        let _ = elf.symbol("malloc");
        let _ = elf.section(".rodata");
    }
    let _ = nvcc::nvcc_strings(&bytes);
    let _ = compiler::compiler_strings(&bytes);
    let _ = cudart::cudart_release(&bytes);
    let _ = driver::release_in_strings(&bytes);
    let _ = nccl::nccl_release(&bytes);
    let _ = torch::arch_list(&bytes);
    let _ = torch::cxx11_abi(&bytes);
}

/// Any bytes as a file with device code, read by position and as a stream, which must agree.
pub fn fatbin(bytes: &[u8]) {
    let read = device_code(&bytes);
    if let Ok(Some(code)) = &read {
        let text = serde_json::to_string(code).expect("plain values");
        assert_eq!(serde_json::from_str::<DeviceCode>(&text).ok().as_ref(), Some(code));
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
    if let (Ok(Some(read)), Ok(Some(streamed)), false) = (read, streamed, bytes.starts_with(b"!<arch>") || places.is_empty()) {
        assert_eq!(read.entries, streamed.entries);
    }
}

/// Any text as `host_config.h`, as a header with a release, and as a version file.
pub fn hostconfig(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    // Without this text a header is turned down at once.
    let _ = host_compilers(&format!("{text}\n#if 0\n#error unsupported GNU version\n#endif\n"));
    let _ = header_release(&bytes, "CUDA_VERSION");
    let _ = (version_json(&text), version_txt(&text));
}

/// Any bytes as the loader's cache.
pub fn ldcache(bytes: &[u8]) {
    if let Ok(cache) = LdCache::read(bytes) {
        let _ = (cache.entries().filter(|e| e.is_libc6() && e.abi().is_some()).count(), cache.generator());
    }
}

/// Any bytes as a log: unpacked, decoded, read whole and in pieces. Where lines end nothing depends on how the bytes arrive.
pub fn logs(bytes: &[u8]) {
    /// An archive of a few bytes can hold gigabytes.
    const MOST: u64 = 4 << 20;
    thread_local! {
        // One for the whole run: making a reader takes longer than most inputs do.
        static READER: Reader<'static> = Reader::new(Box::leak(Box::new(Knowledge::embedded())));
    }
    fn told(outcome: &Outcome<'_>) -> Vec<(String, usize)> {
        outcome.matches.iter().map(|one| (one.signature.name.to_string(), one.number)).collect()
    }
    READER.with(|reader| {
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
}

/// Any bytes as a wheel; and as the texts and the library in a good one.
pub fn wheel(bytes: &[u8]) {
    let path = HostPath::new("/x-1.0-py3-none-any.whl");
    let _ = ds_doctor::binary::wheel::wheel(&bytes, &path, Depth::Symbols, &|_| {});
    if let Some(magic) = Magic::of(bytes) {
        let _ = binary(&bytes, &path, Some("x/x.so"), magic, Depth::Symbols);
    }
    let mut keeper = Keeper::new(bytes.len() as u64);
    bytes.chunks(100).for_each(|chunk| keeper.push(chunk));
    let sparse = keeper.finish();
    let _ = binary(&sparse, &path, Some("x/x.so"), Magic::Elf, Depth::Symbols);
    if let Ok(name) = std::str::from_utf8(bytes) {
        let _ = WheelName::parse(name).and_then(|name| name.glibc());
    }
}

/// Any bytes as a zip file, each of its members read to the end.
pub fn zip(bytes: &[u8]) {
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
}
