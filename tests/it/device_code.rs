//! Device code: what the reader says against a listing of every entry, against itself on a stream, and against cuobjdump.

mod cuobjdump;

use crate::util::{lab, trial, trial_with};
use ds_doctor::binary::elf::Elf;
use ds_doctor::binary::fatbin::{Places, Stream, device_code};
use ds_doctor::binary::read::{FileAt, ReadAt};
use ds_doctor::facts::device_code::DeviceCode;
use libtest_mimic::Trial;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};

pub fn trials() -> Vec<Trial> {
    let mut trials = vec![trial("device_code::samples_of_four_toolkits", samples), trial("device_code::a_stream_says_the_same", streamed)];
    trials.push(trial("device_code::damaged_bytes", damaged));
    trials.push(trial_with("device_code::torchs_list_is_what_its_code_says", torch(), torchs_list));
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

/// Pseudo-random numbers, the same in every run (xorshift).
struct Dice(u64);

impl Dice {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % limit.max(1) as u64) as usize
    }
}

/// Bytes changed, numbers made huge, ends cut off, parts doubled: an answer or an error, and the same by position and by stream.
fn damaged() {
    let rounds: usize = std::env::var("DS_DOCTOR_ROUNDS").map_or(400, |rounds| rounds.parse().unwrap());
    let mut dice = Dice(0x9e37_79b9_7f4a_7c15);
    for file in seeds() {
        let whole = std::fs::read(&file).unwrap();
        // Where the structures are: in front, behind, and at every container.
        let marks: Vec<usize> = memchr::memmem::find_iter(&whole, &0xBA55_ED50_u32.to_le_bytes()).collect();
        for round in 0..rounds {
            let mut bytes = whole.clone();
            for _ in 0..=dice.below(3) {
                let near = match dice.below(4) {
                    0 => dice.below(64),
                    1 => whole.len() - 1 - dice.below(2048.min(whole.len())),
                    _ => marks[dice.below(marks.len())] + dice.below(200),
                };
                let at = near.min(bytes.len().saturating_sub(1));
                match dice.below(6) {
                    0 => bytes.truncate(at),
                    1 => {
                        let end = (at + 8).min(bytes.len());
                        bytes[at..end].fill(0xff);
                    }
                    2 => {
                        let part = bytes[at..(at + 4096).min(bytes.len())].to_vec();
                        bytes.splice(at..at, part);
                    }
                    _ if !bytes.is_empty() => bytes[at] = dice.below(256) as u8,
                    _ => {}
                }
            }
            agree(&bytes, &format!("{} round {round}", file.display()));
        }
    }
}

fn agree(bytes: &[u8], what: &str) {
    let Ok(read) = device_code(&bytes) else { return };
    let places = match Elf::open(&bytes) {
        Ok(elf) => Places::of(&elf).unwrap(),
        Err(_) => Places::raw(bytes.len() as u64),
    };
    let mut stream = Stream::new(bytes.len() as u64);
    bytes.chunks(1000).for_each(|chunk| stream.feed(chunk));
    match stream.finish(&places) {
        Ok(streamed) => assert_eq!(streamed, read, "{what}"),
        Err(error) => panic!("{what}: the stream says {error}, and by position there is {read:?}"),
    }
}

/// A file that counts what is read of it.
struct Counted(FileAt<File>, Cell<u64>, Cell<u64>);

impl ReadAt for Counted {
    fn len(&self) -> u64 {
        self.0.len()
    }
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> std::io::Result<usize> {
        let read = self.0.read_at(offset, buf)?;
        self.1.set(self.1.get() + 1);
        self.2.set(self.2.get() + read as u64);
        Ok(read)
    }
}

fn torch() -> Result<PathBuf, String> {
    lab("torch-venv/lib/python3.11/site-packages/torch/lib")
}

/// The list in libtorch_python.so, against the containers of the library with the kernels; and what telling it costs.
fn torchs_list(folder: PathBuf) {
    let stated = ds_doctor::binary::torch::arch_list(&open(&folder.join("libtorch_python.so"))).unwrap().unwrap();
    let file = Counted(open(&folder.join("libtorch_cuda.so")), Cell::new(0), Cell::new(0));
    let code = device_code(&file).unwrap().unwrap();
    assert_eq!((code.containers(), code.entries), (444, 2789));
    let listed: Vec<String> = code.listed().map(|(target, _)| target.to_string()).collect();
    assert_eq!(listed, stated);
    let partial: Vec<String> = code.partial().map(|(target, held)| format!("{target} {}", held.containers)).collect();
    assert!(partial.contains(&"sm_89 1".to_owned()), "{partial:?}");
    // A header for each entry and container, and the section table: a thousandth of the file.
    let (reads, bytes) = (file.1.get(), file.2.get());
    assert!(reads < 3_400 && bytes < 400 << 10, "{reads} reads, {bytes} bytes");
}
