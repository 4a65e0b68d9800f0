//! Damaged files: no reader may panic, run on, or read much more than the file holds, whatever the bytes are.

use super::sample::library;
use super::{files_of, tool};
use crate::util::{trial, trial_with};
use ds_doctor::binary::ReadAt;
use ds_doctor::binary::elf::{Elf, summarise};
use ds_doctor::binary::hostconfig::host_compilers;
use ds_doctor::binary::ldcache::LdCache;
use ds_doctor::binary::releases::{header_release, version_json, version_txt};
use ds_doctor::binary::{compiler, cudart, driver, nccl, nvcc, torch};
use libtest_mimic::Trial;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use std::cell::Cell;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Bytes with some of them replaced and the end cut off, read without a copy, and a count of what is read.
#[derive(Debug)]
struct Damaged<'b> {
    bytes: &'b [u8],
    patches: &'b [(usize, u8)],
    length: usize,
    read: Cell<u64>,
}

impl ReadAt for Damaged<'_> {
    fn len(&self) -> u64 {
        self.length as u64
    }
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> std::io::Result<usize> {
        let n = self.bytes.get(..self.length).unwrap().read_at(offset, buf)?;
        for (place, value) in self.patches {
            if let Some(byte) = (*place as u64).checked_sub(offset).and_then(|at| buf[..n].get_mut(at as usize)) {
                *byte = *value;
            }
        }
        self.read.set(self.read.get() + n as u64);
        Ok(n)
    }
}

/// Everything that can be asked of an ELF file.
fn ask_elf(file: &dyn ReadAt) {
    let _ = summarise(file).map(|facts| serde_json::to_string(&facts).unwrap());
    if let Ok(elf) = Elf::open(file) {
        for name in ["alpha", "missing", "malloc", ""] {
            let _ = elf.symbol(name);
        }
        let _ = elf.section(".rodata");
    }
    let _ = nvcc::nvcc_strings(file);
    let _ = nvcc::program_release(file);
    let _ = compiler::compiler_strings(file);
    let _ = cudart::cudart_release(file);
    let _ = driver::release_in_strings(file);
    let _ = nccl::nccl_release(file);
    let _ = torch::arch_list(file);
    let _ = torch::cxx11_abi(file);
}

fn ask_cache(file: &dyn ReadAt) {
    if let Ok(cache) = LdCache::read(file) {
        let _ = (cache.entries().filter(|e| e.is_libc6() && e.abi().is_some()).count(), cache.generator());
    }
}

/// Damages `bytes` in many ways: most patches hit the first `dense` bytes, where the tables are, and are values that hurt.
fn damage(bytes: &[u8], dense: usize, cases: u32, ask: impl Fn(&dyn ReadAt)) {
    let place = prop_oneof![3 => 0..dense.min(bytes.len()), 1 => 0..bytes.len()];
    let value = prop_oneof![Just(0xff), Just(0), Just(0x7f), Just(0x80), Just(1), any::<u8>()];
    let patches = proptest::collection::vec((place, value), 0..12);
    let length = prop_oneof![3 => Just(bytes.len()), 1 => 0..=bytes.len()];
    let mut runner = TestRunner::new(Config { cases, failure_persistence: None, ..Config::default() });
    let result = runner.run(&(patches, length), |(patches, length)| {
        let file = Damaged { bytes, patches: &patches, length, read: Cell::new(0) };
        let begin = Instant::now();
        ask(&file);
        prop_assert!(begin.elapsed() < Duration::from_secs(5), "{:?}", begin.elapsed());
        prop_assert!(file.read.get() < 64 * bytes.len() as u64 + (64 << 20), "{} bytes read", file.read.get());
        Ok(())
    });
    if let Err(e) = result {
        panic!("{e}");
    }
}

/// A text with words replaced, doubled or dropped, and cut off.
fn damage_text(text: &str, ask: impl Fn(&str)) {
    let words: Arc<[&str]> = text.split_inclusive(' ').collect();
    let word = prop_oneof![
        Just("(((("),
        Just("#define A A\n"),
        Just("__GNUC__"),
        Just("\\\n"),
        Just("/*"),
        Just("#if "),
        Just("99999999999999999999"),
        Just("\u{e9}\""),
        Just("\n#endif\n"),
        Just("")
    ];
    let edits = proptest::collection::vec((0..words.len(), word), 0..8);
    let mut runner = TestRunner::new(Config { cases: 200, failure_persistence: None, ..Config::default() });
    let result = runner.run(&(edits, 0..=words.len()), |(edits, length)| {
        let mut edited = words.to_vec();
        for (place, word) in edits {
            edited[place] = word;
        }
        let text: String = edited[..length].concat();
        let begin = Instant::now();
        ask(&text);
        prop_assert!(begin.elapsed() < Duration::from_secs(5), "{:?}", begin.elapsed());
        Ok(())
    });
    if let Err(e) = result {
        panic!("{e}");
    }
}

const HEADER: &str = "#if defined(__CUDACC__)\n/* check */\n#if !__NV_NO_HOST_COMPILER_CHECK\n#if defined(__GNUC__)\n\
    #if __GNUC__ > 13\n#error -- unsupported GNU version! can't be later than 13\n#endif /* __GNUC__ > 13 */\n\
    #if defined(__clang__) && !defined(__APPLE__)\n#if (__clang_major__ >= 18) || (__clang_major__ < 3) || \\\n\
    ((__clang_major__ == 3) && (__clang_minor__ < 3))\n#error -- unsupported clang version!\n#endif\n#endif\n#endif\n#endif\n#endif\n";

pub fn trials() -> Vec<Trial> {
    vec![
        trial("binary::damaged::samples_of_every_class_and_byte_order", || {
            for (wide, big) in [(true, false), (true, true), (false, false), (false, true)] {
                let bytes = library(wide, big);
                damage(&bytes, bytes.len(), 400, ask_elf);
            }
        }),
        trial_with("binary::damaged::a_real_program", tool("ls"), |ls| {
            let bytes = std::fs::read(ls).unwrap();
            damage(&bytes, 8192, 150, ask_elf);
        }),
        trial("binary::damaged::a_real_loader_cache", || {
            // The real one where there is one; the layouts themselves are tested beside the reader.
            let bytes = std::fs::read("/etc/ld.so.cache").unwrap_or_else(|_| b"glibc-ld.so.cache1.1".to_vec());
            damage(&bytes, 512, 150, ask_cache);
        }),
        trial("binary::damaged::files_of_other_kinds", || {
            for file in files_of("/etc").into_iter().take(50).filter_map(|path| std::fs::read(path).ok()) {
                ask_elf(&file.as_slice());
                ask_cache(&file.as_slice());
                let text = String::from_utf8_lossy(&file);
                assert_eq!(host_compilers(&text), Default::default());
            }
        }),
        trial("binary::damaged::headers_and_version_files", || {
            assert!(host_compilers(HEADER).gcc.unwrap().max == Some(13) && host_compilers(HEADER).clang.unwrap().max == Some(17));
            damage_text(HEADER, |text| {
                let read = host_compilers(text);
                // Damage may hide a limit, but it must not turn a lower limit into a range that makes no sense.
                for limits in [read.gcc, read.clang].into_iter().flatten() {
                    assert!(limits.min.is_none_or(|min| limits.max.is_none_or(|max| min <= max)));
                }
            });
            damage_text("#define CUDA_VERSION 12040 /* x */\n#define CUDART_VERSION  12040\n", |text| {
                let _ = header_release(&text.as_bytes(), "CUDA_VERSION").unwrap();
            });
            damage_text("{ \"cuda\" : { \"name\" : \"CUDA SDK\" , \"version\" : \"12.4.1\" } }", |text| drop(version_json(text)));
            damage_text("CUDA Version 10.2.89\n", |text| drop(version_txt(text)));
        }),
    ]
}
