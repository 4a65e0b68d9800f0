//! Device code: what the reader says against a listing of every entry, against itself on a stream, and against cuobjdump.

mod cuobjdump;

use crate::util::trial;
use ds_doctor::binary::elf::Elf;
use ds_doctor::binary::fatbin::{Places, Stream, device_code};
use ds_doctor::binary::read::{FileAt, ReadAt};
use ds_doctor::facts::device_code::DeviceCode;
use libtest_mimic::Trial;
use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};

pub fn trials() -> Vec<Trial> {
    let mut trials = vec![trial("device_code::samples_of_four_toolkits", samples), trial("device_code::a_stream_says_the_same", streamed)];
    trials.extend(cuobjdump::trials());
    trials
}

/// Small objects of CUDA 11.2 to 13.5, which are the fuzzer's seeds as well.
fn seeds() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus/fatbin");
    let mut files: Vec<PathBuf> = folder.read_dir().unwrap().map(|entry| entry.unwrap().path()).collect();
    files.retain(|path| path.extension().is_some());
    files.sort();
    files
}

fn open(path: &Path) -> FileAt<File> {
    let file = File::open(path).unwrap();
    let length = file.metadata().unwrap().len();
    FileAt::new(file, length)
}

fn read(path: &Path) -> DeviceCode {
    device_code(&open(path)).unwrap_or_else(|error| panic!("{}: {error}", path.display())).unwrap_or_default()
}

/// The same by a stream in chunks of this size.
fn stream(path: &Path, chunk: usize) -> DeviceCode {
    let bytes = std::fs::read(path).unwrap();
    let mut stream = Stream::new(bytes.len() as u64);
    bytes.chunks(chunk).for_each(|chunk| stream.feed(chunk));
    let file: &[u8] = &bytes;
    let places = if path.extension().is_some_and(|end| end == "fatbin") {
        Places::raw(file.len() as u64)
    } else {
        Places::of(&Elf::open(&file).unwrap()).unwrap()
    };
    stream.finish(&places).unwrap_or_else(|error| panic!("{}: {error}", path.display())).unwrap_or_default()
}

/// What `samples.tsv` says of a file: for each target its entries, its bytes as stored and unpacked, and its version of PTX.
#[derive(Debug, Default, PartialEq)]
struct Row {
    entries: u64,
    stored: u64,
    unpacked: u64,
    isa: Option<String>,
}

fn samples() {
    let table = include_str!("device_code/samples.tsv");
    let mut expected: BTreeMap<&str, BTreeMap<String, Row>> = BTreeMap::new();
    for line in table.lines().skip(1) {
        let fields: Vec<&str> = line.split('\t').collect();
        let [file, _, _, _, kind, target, version, _, _, payload, compressed, unpacked] = fields[..] else { panic!("{line}") };
        if kind == "concat" {
            continue;
        }
        let row = expected.entry(file).or_default().entry(target.to_owned()).or_default();
        row.entries += 1;
        // The members of a group have no bytes of their own, and the listing has no size for them.
        if let Ok(payload) = payload.parse::<u64>() {
            let stored = compressed.parse().ok().filter(|size| *size > 0).unwrap_or(payload);
            row.stored += stored;
            row.unpacked += unpacked.parse().ok().filter(|size| *size > 0).unwrap_or(stored);
        }
        row.isa = (kind == "ptx").then(|| version.to_owned());
    }
    let files = seeds();
    assert_eq!(files.len(), expected.len());
    for file in files {
        let name = file.file_name().unwrap().to_str().unwrap();
        let code = read(&file);
        let found: BTreeMap<String, Row> = code
            .targets
            .iter()
            .map(|(target, held)| {
                let grouped = held.stored == 0;
                let unpacked = if grouped { 0 } else { held.unpacked };
                let isa = held.isa.map(|isa| isa.to_string());
                (target.to_string(), Row { entries: held.entries, stored: held.stored, unpacked, isa })
            })
            .collect();
        assert_eq!(found, expected[name], "{name}");
    }
}

fn streamed() {
    for file in seeds() {
        let whole = read(&file);
        assert!(whole.entries > 0, "{}", file.display());
        for chunk in [1, 7, 64, 4096, 1 << 20] {
            assert_eq!(stream(&file, chunk), whole, "{} in chunks of {chunk}", file.display());
        }
        assert!(open(&file).len() < 32 << 10);
    }
}
