//! Files that are small and whole, and made to be endless: tables that point at each other's bytes, and more of everything than anybody has.

use crate::util::trial;
use ds_doctor::binary::elf::{Elf, summarise};
use ds_doctor::binary::fatbin::{FatbinError, Places, Stream, device_code};
use ds_doctor::binary::inspect::{Depth, Magic, binary};
use ds_doctor::facts::raw::HostPath;
use libtest_mimic::Trial;
use std::time::{Duration, Instant};

/// In a build for tests on a busy machine. Without a bound each of these takes minutes or gigabytes.
const MOST: Duration = Duration::from_secs(20);

pub fn trials() -> Vec<Trial> {
    vec![
        trial("binary::bombs::names_of_symbols_that_lie_in_each_other", overlapping_names),
        trial("binary::bombs::names_of_sections_without_an_end", endless_names),
        trial("binary::bombs::sections_that_share_their_containers", shared_containers),
        trial("binary::bombs::a_stream_of_empty_containers", empty_containers),
        trial("binary::bombs::a_chain_without_an_end", endless_chain),
    ]
}

/// A file of 64 bits, little-endian: its header, these program headers, what follows.
struct Made {
    bytes: Vec<u8>,
}

impl Made {
    fn new() -> Self {
        let mut bytes = vec![0; 64];
        bytes[..7].copy_from_slice(b"\x7fELF\x02\x01\x01");
        let mut made = Self { bytes };
        made.put(16, &[3, 0, 62, 0, 1, 0, 0, 0]);
        made.put(52, &[64, 0, 56, 0, 0, 0, 64, 0]);
        made
    }

    fn put(&mut self, at: usize, bytes: &[u8]) {
        self.bytes[at..at + bytes.len()].copy_from_slice(bytes);
    }

    /// Puts bytes at the end; where they begin.
    fn add(&mut self, bytes: &[u8]) -> u64 {
        self.bytes.resize(self.bytes.len().next_multiple_of(16), 0);
        let at = self.bytes.len();
        self.bytes.extend_from_slice(bytes);
        at as u64
    }

    /// All of it is loaded at the address of its offset; the dynamic section has these.
    fn dynamic(&mut self, entries: &[(u64, u64)]) {
        let bytes: Vec<u8> =
            entries.iter().chain(&[(0, 0)]).flat_map(|(tag, value)| [tag.to_le_bytes(), value.to_le_bytes()].concat()).collect();
        let (at, size) = (self.add(&bytes), bytes.len() as u64);
        let header = |kind: u32, at: u64, size: u64| {
            let words = [at, at, at, size, size, 8].map(u64::to_le_bytes).concat();
            [&kind.to_le_bytes()[..], &4_u32.to_le_bytes(), &words].concat()
        };
        let all = self.bytes.len() as u64 + 200;
        let table = [header(1, 0, all), header(2, at, size)].concat();
        let at = self.add(&table);
        self.bytes.resize(all as usize, 0);
        self.put(32, &at.to_le_bytes());
        self.put(56, &2_u16.to_le_bytes());
    }

    /// So many sections, all of this place and with the name behind the first byte of these, which they are named from.
    fn sections(&mut self, count: usize, place: (u64, u64), names: &[u8]) {
        let names = (self.add(names), names.len() as u64);
        let section = |(at, size): (u64, u64)| {
            [&1_u32.to_le_bytes()[..], &1_u32.to_le_bytes(), &[0; 16], &at.to_le_bytes(), &size.to_le_bytes(), &[0; 24]].concat()
        };
        let mut table = [0; 64].to_vec();
        table[32..40].copy_from_slice(&(count as u64 + 2).to_le_bytes());
        table[40..44].copy_from_slice(&1_u32.to_le_bytes());
        table.extend(section(names));
        (0..count).for_each(|_| table.extend(section(place)));
        let at = self.add(&table);
        self.put(40, &at.to_le_bytes());
        // More than sixteen bits hold: the numbers stand in the first section.
        self.put(62, &0xffff_u16.to_le_bytes());
    }
}

fn in_time<T>(run: impl FnOnce() -> T) -> T {
    let start = Instant::now();
    let answer = run();
    assert!(start.elapsed() < MOST, "{:?}", start.elapsed());
    answer
}

fn overlapping_names() {
    let mut made = Made::new();
    let mut names = vec![b'a'; 0xffff];
    names[0] = 0;
    names.push(0);
    let strings = made.add(&names);
    // The name of each begins a byte behind that of the one before.
    let symbols: Vec<u8> =
        (0..300_000_u32).flat_map(|n| [&(1 + n % 60_000).to_le_bytes()[..], &[0x10, 0, 0, 0], &[0; 16]].concat()).collect();
    let symbols = made.add(&symbols);
    let hash = made.add(&[1_u32, 300_000, 0].map(u32::to_le_bytes).concat());
    made.dynamic(&[(5, strings), (10, names.len() as u64), (6, symbols), (11, 24), (4, hash)]);
    let bytes = made.bytes.as_slice();
    let elf = Elf::open(&bytes).unwrap();
    let why = in_time(|| elf.imports()).unwrap_err().to_string();
    assert!(why.contains("lie in each other"), "{why}");
    in_time(|| binary(&bytes, &HostPath::new("/x.so"), Some("x.so"), Magic::Elf, Depth::Symbols)).unwrap();
}

fn endless_names() {
    let mut made = Made::new();
    made.sections(150_000, (0, 0), &vec![b'x'; 6 << 20]);
    let bytes = made.bytes.as_slice();
    in_time(|| {
        assert_eq!(Elf::open(&bytes).unwrap().section(".rodata").unwrap(), None);
        assert!(device_code(&bytes).unwrap().is_none());
        let _ = summarise(&bytes);
    });
}

/// A container of 16 bytes that holds nothing.
const EMPTY: [u8; 16] = [0x50, 0xed, 0x55, 0xba, 1, 0, 16, 0, 0, 0, 0, 0, 0, 0, 0, 0];

fn shared_containers() {
    let mut made = Made::new();
    let containers = EMPTY.repeat(1 << 14);
    let place = (made.add(&containers), containers.len() as u64);
    made.sections(60_000, place, b"\0.nv_fatbin\0");
    let bytes = made.bytes.as_slice();
    assert!(matches!(in_time(|| device_code(&bytes)), Err(FatbinError::TooMany)));
    let places = Places::of(&Elf::open(&bytes).unwrap()).unwrap();
    let streamed = in_time(|| {
        let mut stream = Stream::new(bytes.len() as u64);
        bytes.chunks(1 << 16).for_each(|chunk| stream.feed(chunk));
        stream.finish(&places)
    });
    assert!(matches!(streamed, Err(FatbinError::TooMany)), "{streamed:?}");
}

fn empty_containers() {
    let block = EMPTY.repeat(1 << 12);
    let (blocks, length) = (320, 320 * block.len() as u64);
    let streamed = in_time(|| {
        let mut stream = Stream::new(length);
        (0..blocks).for_each(|_| stream.feed(&block));
        stream.finish(&Places::raw(length))
    });
    assert!(matches!(streamed, Err(FatbinError::TooMany)), "{streamed:?}");
}

fn endless_chain() {
    let mut made = Made::new();
    let strings = made.add(b"\0x\0");
    let symbols = made.add(&[0; 48]);
    // One bucket, whose chain has no link with the mark of an end.
    let mut words = vec![1_u32, 1, 1, 0, u32::MAX, u32::MAX, 1];
    words.resize(2 << 20, 0);
    let hash = made.add(&words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<u8>>());
    made.dynamic(&[(5, strings), (10, 3), (6, symbols), (11, 24), (0x6fff_fef5, hash)]);
    let bytes = made.bytes.as_slice();
    let elf = Elf::open(&bytes).unwrap();
    in_time(|| {
        assert!(elf.exports().is_err());
        assert!(elf.symbol("x").is_err());
    });
}
