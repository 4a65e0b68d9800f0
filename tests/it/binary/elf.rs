//! Dynamic sections, versions and symbols against readelf, on this machine's own programs and libraries.

use super::sample::{EXPORTS, library};
use super::{Counted, files_of, printed, tool};
use crate::util::{trial, trial_with};
use ds_doctor::binary::elf::{Elf, ElfError, summarise};
use ds_doctor::facts::elf::VersionNeed;
use libtest_mimic::Trial;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

#[derive(Debug, Default, PartialEq)]
struct Dump {
    machine: String,
    needed: Vec<String>,
    soname: Option<String>,
    rpath: Option<String>,
    runpath: Option<String>,
    interpreter: Option<String>,
    definitions: Vec<String>,
    needs: Vec<VersionNeed>,
}

/// What one `readelf -hldVW` says of several files, by file.
fn parse_readelf(text: &str) -> BTreeMap<PathBuf, Dump> {
    let mut all = BTreeMap::new();
    let mut dump = Dump::default();
    let mut file = None;
    let bracket = |line: &str| line.split_once('[').and_then(|(_, r)| r.rsplit_once(']')).map(|(name, _)| name.to_owned());
    let after = |line: &str, key: &str| line.split_once(key).map(|(_, r)| r.split("  ").next().unwrap().trim().to_owned());
    for line in text.lines() {
        if let Some(path) = line.strip_prefix("File: ") {
            if let Some(file) = file.replace(PathBuf::from(path)) {
                all.insert(file, std::mem::take(&mut dump));
            }
        } else if let Some(machine) = line.trim_start().strip_prefix("Machine:") {
            dump.machine = machine.trim().to_owned();
        } else if line.contains("[Requesting program interpreter: ") {
            dump.interpreter = after(line, "interpreter: ").map(|l| l.trim_end_matches(']').to_owned());
        } else if line.contains("(NEEDED)") {
            dump.needed.extend(bracket(line));
        } else if line.contains("(SONAME)") {
            dump.soname = bracket(line);
        } else if line.contains("(RPATH)") {
            dump.rpath = bracket(line);
        } else if line.contains("(RUNPATH)") {
            dump.runpath = bracket(line);
        } else if line.contains("Rev: ") {
            if !line.contains("Flags: BASE") {
                dump.definitions.extend(after(line, "Name: "));
            }
        } else if line.contains("Version: ") && line.contains("File: ") {
            dump.needs.push(VersionNeed { library: after(line, "File: ").unwrap(), versions: Vec::new(), weak: Vec::new() });
        } else if line.contains("  Name: ") && line.contains("Flags: ") {
            let need = dump.needs.last_mut().unwrap();
            let list = if line.contains("WEAK") { &mut need.weak } else { &mut need.versions };
            list.extend(after(line, "Name: "));
        }
    }
    all.extend(file.map(|file| (file, dump)));
    all
}

/// ELF files of this machine: up to `most` of each folder.
fn system_files(most: usize) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for folder in ["/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64", "/usr/bin", "/usr/lib/gcc/x86_64-linux-gnu/12"]
    {
        let elf = files_of(folder)
            .into_iter()
            .filter(|p| matches!(std::fs::File::open(p).map(|_| Elf::open(&Counted::open(p)).is_ok()), Ok(true)));
        files.extend(elf.take(most));
    }
    files
}

fn agree(files: &[PathBuf], readelf: &Path) {
    let dumps = parse_readelf(&printed(readelf, &["-hldVW"], files));
    assert_eq!(dumps.len(), files.len());
    let mut with_versions = 0;
    for (path, dump) in dumps {
        let facts = summarise(&Counted::open(&path)).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        let ours = Dump {
            machine: dump.machine.clone(),
            needed: facts.needed,
            soname: facts.soname,
            rpath: facts.rpath.map(|p| p.join(":")),
            runpath: facts.runpath.map(|p| p.join(":")),
            interpreter: facts.interpreter,
            definitions: facts.version_definitions,
            needs: facts.version_needs,
        };
        with_versions += usize::from(!ours.needs.is_empty());
        assert_eq!(ours, dump, "{}", path.display());
        assert_eq!(facts.truncated, None, "{}", path.display());
        let name = match dump.machine.as_str() {
            "Advanced Micro Devices X86-64" => "x86-64",
            "AArch64" => "aarch64",
            "Intel 80386" => "x86",
            other => panic!("{other}"),
        };
        assert_eq!(facts.machine.to_string(), name);
    }
    assert!(with_versions * 2 > files.len(), "only {with_versions} of {} files need versions", files.len());
}

/// Our own samples of both classes and byte orders: readelf is the judge of the samples, and of what we read in them.
fn samples_agree(readelf: &Path) {
    for (wide, big) in [(true, false), (true, true), (false, false), (false, true)] {
        let bytes = library(wide, big);
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), &bytes).unwrap();
        let text = printed(readelf, &["-hldVW"], &[file.path().into()]);
        let dump = parse_readelf(&format!("File: x\n{text}")).remove(Path::new("x")).unwrap();
        let facts = summarise(&bytes.as_slice()).unwrap();
        assert_eq!((facts.class_bits, facts.little_endian), (if wide { 64 } else { 32 }, !big));
        assert!(facts.nodeflib && text.contains("NODEFLIB"), "{text}");
        assert_eq!(facts.needed, dump.needed);
        assert_eq!((facts.soname, facts.interpreter), (dump.soname, dump.interpreter));
        assert_eq!(facts.runpath.unwrap().join(":"), dump.runpath.unwrap());
        assert_eq!(facts.truncated, None);
        // readelf looks for the version tables by section, and these have none.
        assert_eq!(facts.version_definitions, ["SAMPLE_1.2"]);
        let need = |v: &[&str]| v.iter().map(|v| (*v).to_owned()).collect();
        let versions =
            VersionNeed { library: "libc.so.6".to_owned(), versions: need(&["GLIBC_2.4", "GLIBC_2.17"]), weak: need(&["GLIBC_2.99"]) };
        assert_eq!(facts.version_needs, [versions]);
        let file = bytes.as_slice();
        let elf = Elf::open(&file).unwrap();
        for (name, value) in EXPORTS.iter().zip([0x100, 0x200, 0x300]) {
            let symbol = elf.symbol(name).unwrap().unwrap();
            assert_eq!((symbol.value, symbol.size, symbol.function, symbol.weak), (value, 16, true, false));
        }
        assert_eq!((elf.symbol("missing").unwrap(), elf.symbol("alph").unwrap(), elf.symbol("alphabet").unwrap()), (None, None, None));
        let dynamic = elf.section(".dynamic").unwrap().unwrap();
        assert!(text.contains(&format!("Dynamic section at offset {:#x}", dynamic.offset)), "{text}");
        assert!(dynamic.in_file && !elf.section(".none").unwrap().unwrap().in_file);
        assert_eq!(elf.section(".text").unwrap(), None);
    }
}

fn symbols_agree(file: &str, readelf: &Path) {
    let text = printed(readelf, &["--dyn-syms", "-W"], &[file.into()]);
    let (mut defined, mut undefined) = (BTreeMap::<_, BTreeSet<_>>::new(), BTreeSet::new());
    for line in text.lines() {
        let words: Vec<_> = line.split_whitespace().collect();
        let &[_, value, size, kind, bind, _, index, name, ..] = words.as_slice() else { continue };
        let name = name.split('@').next().unwrap();
        let (Ok(value), false) = (u64::from_str_radix(value, 16), bind == "LOCAL") else { continue };
        let size = size.strip_prefix("0x").map_or_else(|| size.parse().unwrap(), |hex| u64::from_str_radix(hex, 16).unwrap());
        if index == "UND" {
            undefined.insert(name);
        } else {
            defined.entry(name).or_default().insert((value, size, matches!(kind, "FUNC" | "IFUNC"), bind == "WEAK"));
        }
    }
    assert!(defined.len() > 20, "{file}: {} symbols", defined.len());
    let opened = Counted::open(file);
    let elf = Elf::open(&opened).unwrap();
    for (name, places) in &defined {
        let symbol = elf.symbol(name).unwrap().unwrap_or_else(|| panic!("{file}: {name} not found"));
        assert!(places.contains(&(symbol.value, symbol.size, symbol.function, symbol.weak)), "{file}: {name}: {symbol:?} {places:?}");
    }
    for name in undefined.difference(&defined.keys().copied().collect()) {
        assert_eq!(elf.symbol(name).unwrap(), None, "{file}: {name}");
    }
    for name in ["", "no_such_symbol", "_ZN3c106detail14torchCheckFailEPKcS2_jRKSs"] {
        assert_eq!(elf.symbol(name).unwrap(), None, "{file}: {name}");
    }
}

pub fn trials() -> Vec<Trial> {
    vec![
        trial_with("binary::elf::system_files_read_as_readelf_reads_them", tool("readelf"), |readelf| agree(&system_files(300), &readelf)),
        trial_with("binary::elf::symbols_are_found_where_readelf_finds_them", tool("readelf"), |readelf| {
            for name in ["libc.so.6", "libm.so.6", "libstdc++.so.6", "libz.so.1", "libgcc_s.so.1"] {
                if let Some(path) = ["/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64"]
                    .iter()
                    .map(|folder| format!("{folder}/{name}"))
                    .find(|path| Path::new(path).exists())
                {
                    symbols_agree(&path, &readelf);
                }
            }
        }),
        trial_with("binary::elf::both_classes_and_byte_orders", tool("readelf"), |readelf| samples_agree(&readelf)),
        trial("binary::elf::a_file_costs_a_few_small_reads", || {
            let exe = Counted::open(std::env::current_exe().unwrap());
            summarise(&exe).unwrap();
            assert!(exe.reads.get() <= 20 && exe.bytes.get() < 64 << 10, "{} reads, {} bytes", exe.reads.get(), exe.bytes.get());
        }),
        trial("binary::elf::every_way_to_cut_a_file_short_is_named", || {
            let whole = std::fs::read("/proc/self/exe").unwrap();
            assert!(matches!(summarise(&b"".as_slice()), Err(ElfError::Empty)));
            assert!(matches!(summarise(&b"#!/bin/sh\n".as_slice()), Err(ElfError::NotElf)));
            for length in [4, 16, 63, 64, 100, 1000, 5000] {
                let cut = &whole[..length];
                assert!(matches!(summarise(&cut), Err(ElfError::CutShort { .. })), "{length}: {:?}", summarise(&cut));
            }
            let cut = &whole[..whole.len() - 1];
            let truncated = summarise(&cut).unwrap().truncated.unwrap();
            assert_eq!((truncated.actual, truncated.expected, truncated.segments), (whole.len() as u64 - 1, whole.len() as u64, false));
        }),
    ]
}
