//! Small shared libraries of every class and byte order, as no machine has them all.

/// Appends numbers in the class and byte order of a file.
struct Writer {
    bytes: Vec<u8>,
    wide: bool,
    big: bool,
}

impl Writer {
    fn number(&mut self, value: u64, bytes: usize) {
        let value = value.to_be_bytes();
        let mut value = value[8 - bytes..].to_vec();
        if !self.big {
            value.reverse();
        }
        self.bytes.extend(value);
    }
    fn half(&mut self, value: u64) {
        self.number(value, 2);
    }
    fn word(&mut self, value: u64) {
        self.number(value, 4);
    }
    /// An address or offset.
    fn address(&mut self, value: u64) {
        self.number(value, if self.wide { 8 } else { 4 });
    }
    fn here(&mut self) -> u64 {
        while !self.bytes.len().is_multiple_of(16) {
            self.bytes.push(0);
        }
        self.bytes.len() as u64
    }
}

/// The strings of a file, and their offsets.
struct Strings(Vec<u8>);

impl Strings {
    fn add(&mut self, text: &str) -> u64 {
        let at = self.0.len() as u64;
        self.0.extend(text.bytes());
        self.0.push(0);
        at
    }
}

pub const EXPORTS: [&str; 3] = ["alpha", "beta", "a_rather_long_name_of_a_function"];

fn sysv_hash(name: &str) -> u64 {
    name.bytes().fold(0, |hash, byte| {
        let hash = (hash << 4) + u64::from(byte);
        (hash ^ ((hash & 0xf000_0000) >> 24)) & 0x0fff_ffff
    })
}

/// A library `libsample.so.3` with two needs, a RUNPATH, one defined version `SAMPLE_1.2` with a parent, needs of three versions of
/// which one is weak, the symbols of [`EXPORTS`] at 0x100, 0x200, 0x300 and an undefined one, in a SysV hash table of one bucket.
pub fn library(wide: bool, big: bool) -> Vec<u8> {
    let mut w = Writer { bytes: Vec::new(), wide, big };
    let (ehsize, phsize, shsize) = if wide { (64, 56, 64) } else { (52, 32, 40) };
    let (headers, mut strings) = (ehsize + 3 * phsize, Strings(vec![0]));
    w.bytes.resize(headers, 0);

    let interp = w.here();
    w.bytes.extend(b"/lib/ld.so.7\0");
    let interp_size = w.bytes.len() as u64 - interp;

    let symtab = w.here();
    let symbols = [("", 0, 0), ("missing", 0, 0)].into_iter().chain(EXPORTS.iter().zip(1..).map(|(name, n)| (*name, n * 0x100, 1)));
    for (name, value, section) in symbols {
        let at = if name.is_empty() { 0 } else { strings.add(name) };
        w.word(at);
        let info = if name.is_empty() { 0 } else { 0x12 };
        if wide {
            w.bytes.extend([info, 0]);
            w.half(section);
            w.number(value, 8);
            w.number(16, 8);
        } else {
            w.word(value);
            w.word(16);
            w.bytes.extend([info, 0]);
            w.half(section);
        }
    }

    // One bucket, a chain from the last symbol down to the second.
    let hash = w.here();
    let count = EXPORTS.len() as u64 + 2;
    for value in [1, count, count - 1, 0].into_iter().chain(0..count - 1) {
        w.word(value);
    }

    let verneed = w.here();
    let libc = strings.add("libc.so.6");
    w.half(1);
    w.half(3);
    for value in [libc, 16, 0] {
        w.word(value);
    }
    for (name, flags, next) in [("GLIBC_2.4", 0, 16), ("GLIBC_2.17", 0, 16), ("GLIBC_2.99", 2, 0)] {
        w.word(sysv_hash(name));
        w.half(flags);
        w.half(5);
        let at = strings.add(name);
        w.word(at);
        w.word(next);
    }

    let verdef = w.here();
    let soname = strings.add("libsample.so.3");
    let (version, parent) = (strings.add("SAMPLE_1.2"), strings.add("SAMPLE_1.1"));
    for (flags, index, names, hash, next) in [(1, 1, vec![soname], 0, 28), (0, 2, vec![version, parent], sysv_hash("SAMPLE_1.2"), 0)] {
        for value in [1, flags, index, names.len() as u64] {
            w.half(value);
        }
        for value in [hash, 20, next] {
            w.word(value);
        }
        for (i, name) in names.iter().enumerate() {
            w.word(*name);
            w.word(if i + 1 < names.len() { 8 } else { 0 });
        }
    }

    let (needed, more) = (libc, strings.add("libcudart.so.12"));
    let runpath = strings.add("$ORIGIN/../lib:/opt/x");
    let strtab = w.here();
    w.bytes.extend(&strings.0);
    let dynamic = w.here();
    let entries = [
        (1, needed),
        (1, more),
        (14, soname),
        (29, runpath),
        (4, hash),
        (5, strtab),
        (10, strings.0.len() as u64),
        (6, symtab),
        (11, if wide { 24 } else { 16 }),
        (0x6fff_fffb, 0x800),
        (0x6fff_fffe, verneed),
        (0x6fff_ffff, 1),
        (0x6fff_fffc, verdef),
        (0x6fff_fffd, 2),
        (0, 0),
    ];
    for (tag, value) in entries {
        w.address(tag);
        w.address(value);
    }
    let end = w.bytes.len() as u64;

    let names = w.here();
    w.bytes.extend(b"\0.dynamic\0.shstrtab\0.dynstr\0.none\0");
    let names_size = w.bytes.len() as u64 - names;
    let sections = w.here();
    let word_pair = if wide { 16 } else { 8 };
    let rows: [(u64, u64, u64, u64, u64, u64, u64); 5] = [
        (0, 0, 0, 0, 0, 0, 0),
        (1, 6, dynamic, dynamic, end - dynamic, 3, word_pair),
        (10, 3, 0, names, names_size, 0, 0),
        (20, 3, strtab, strtab, strings.0.len() as u64, 0, 0),
        (28, 8, 0x10000, dynamic, 0x5000, 0, 0),
    ];
    for (name, kind, address, offset, size, link, entry) in rows {
        w.word(name);
        w.word(kind);
        w.address(0);
        w.address(address);
        w.address(offset);
        w.address(size);
        w.word(link);
        w.word(0);
        w.address(1);
        w.address(entry);
    }
    assert_eq!(w.bytes.len() as u64, sections + 5 * shsize);

    let body = std::mem::take(&mut w.bytes);
    w.bytes.extend(b"\x7fELF");
    w.bytes.extend([if wide { 2 } else { 1 }, if big { 2 } else { 1 }, 1]);
    w.bytes.resize(16, 0);
    let machine = match (wide, big) {
        (true, false) => 62,
        (true, true) => 21,
        (false, false) => 3,
        (false, true) => 20,
    };
    w.half(3);
    w.half(machine);
    w.word(1);
    for value in [0, ehsize as u64, sections] {
        w.address(value);
    }
    w.word(0);
    for value in [ehsize as u64, phsize as u64, 3, shsize, 5, 2] {
        w.half(value);
    }
    for (kind, offset, size) in [(1, 0, end), (2, dynamic, end - dynamic), (3, interp, interp_size)] {
        w.word(kind);
        if wide {
            w.word(4);
        }
        for value in [offset, offset, offset, size, size] {
            w.address(value);
        }
        if !wide {
            w.word(4);
        }
        w.address(16);
    }
    let written = w.bytes.len();
    assert_eq!(written, headers);
    w.bytes.extend(&body[written..]);
    w.bytes
}
