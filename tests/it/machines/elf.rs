//! Writes small ELF files: what the loader and the doctor read of a real one (header, segments, dynamic section, versions, exported names,
//! read-only strings, sections), and no code that could run. Checked against readelf by the trials.

/// One file to be.
#[derive(Debug, Clone)]
pub struct Elf {
    /// `e_machine`: 62 is x86-64, 183 is aarch64.
    pub machine: u16,
    pub interpreter: Option<String>,
    pub soname: Option<String>,
    pub needed: Vec<String>,
    pub rpath: Option<String>,
    pub runpath: Option<String>,
    /// Names of exported functions.
    pub exports: Vec<String>,
    /// Version nodes defined, the base node (the SONAME) left out.
    pub defines: Vec<String>,
    /// Library and the version nodes needed of it.
    pub needs: Vec<(String, Vec<String>)>,
    /// NUL-terminated strings, one after the other.
    pub strings: Vec<u8>,
    pub code: Vec<u8>,
    /// The content of `.nv_fatbin`.
    pub device_code: Vec<u8>,
}

pub const X86_64: u16 = 62;
pub const AARCH64: u16 = 183;

impl Elf {
    pub fn library(machine: u16, soname: &str) -> Self {
        let mut elf = Self::empty(machine);
        elf.soname = Some(soname.to_owned());
        elf.needed = vec!["libc.so.6".to_owned()];
        elf.code = vec![0xc3; 16];
        elf
    }

    /// A program; `loader` is its interpreter.
    pub fn program(machine: u16, loader: &str) -> Self {
        let mut elf = Self::library(machine, "");
        elf.soname = None;
        elf.interpreter = Some(loader.to_owned());
        elf
    }

    fn empty(machine: u16) -> Self {
        Self {
            machine,
            interpreter: None,
            soname: None,
            needed: Vec::new(),
            rpath: None,
            runpath: None,
            exports: Vec::new(),
            defines: Vec::new(),
            needs: Vec::new(),
            strings: Vec::new(),
            code: Vec::new(),
            device_code: Vec::new(),
        }
    }

    /// Adds strings to `.rodata`, each NUL-terminated.
    pub fn say<S: AsRef<str>>(mut self, strings: impl IntoIterator<Item = S>) -> Self {
        for string in strings {
            self.strings.extend_from_slice(string.as_ref().as_bytes());
            self.strings.push(0);
        }
        self
    }

    pub fn bytes(&self) -> Vec<u8> {
        Writer::new(self).write()
    }
}

#[derive(Default)]
struct Names(Vec<u8>);

impl Names {
    fn add(&mut self, name: &str) -> u32 {
        if self.0.is_empty() {
            self.0.push(0);
        }
        let at = self.0.len() as u32;
        self.0.extend_from_slice(name.as_bytes());
        self.0.push(0);
        at
    }
}

struct Section {
    name: &'static str,
    kind: u32,
    flags: u64,
    offset: usize,
    size: usize,
    link: u32,
    info: u32,
    entry: u64,
}

struct Writer<'e> {
    elf: &'e Elf,
    out: Vec<u8>,
    names: Names,
    sections: Vec<Section>,
}

const HEADER: usize = 64;
const SEGMENT: usize = 56;
const ALLOC: u64 = 2;
/// Index of `.dynstr`, which other sections link to: the first section written.
const DYNSTR: u32 = 1;
const DYNSYM: u32 = 2;

impl<'e> Writer<'e> {
    fn new(elf: &'e Elf) -> Self {
        Self { elf, out: Vec::new(), names: Names::default(), sections: Vec::new() }
    }

    fn section(&mut self, name: &'static str, kind: u32, flags: u64, bytes: &[u8]) -> usize {
        while !self.out.len().is_multiple_of(8) {
            self.out.push(0);
        }
        let offset = self.out.len();
        self.out.extend_from_slice(bytes);
        self.sections.push(Section { name, kind, flags, offset, size: bytes.len(), link: 0, info: 0, entry: 0 });
        offset
    }

    fn last(&mut self, link: u32, info: u32, entry: u64) {
        let section = self.sections.last_mut().unwrap();
        (section.link, section.info, section.entry) = (link, info, entry);
    }

    fn write(mut self) -> Vec<u8> {
        let elf = self.elf;
        let segments = 2 + usize::from(elf.interpreter.is_some());
        self.out = vec![0; HEADER + segments * SEGMENT];

        // All names first, so that the string table can come first.
        let soname = elf.soname.as_deref().filter(|name| !name.is_empty()).map(|name| self.names.add(name));
        let needed: Vec<u32> = elf.needed.iter().map(|name| self.names.add(name)).collect();
        let rpath = elf.rpath.as_deref().map(|path| self.names.add(path));
        let runpath = elf.runpath.as_deref().map(|path| self.names.add(path));
        let mut exports = elf.exports.clone();
        let buckets = exports.len().max(1) as u32;
        exports.sort_by_key(|name| gnu_hash(name) % buckets);
        let symbols: Vec<u32> = exports.iter().map(|name| self.names.add(name)).collect();
        let (definitions, definition_count) = self.definitions(soname);
        let (needs, need_count) = self.needs();
        let strings = self.names.0.clone();

        let dynstr = self.section(".dynstr", 3, ALLOC, &strings);
        let mut table = vec![0; 24];
        for name in &symbols {
            table.extend_from_slice(&name.to_le_bytes());
            table.extend_from_slice(&[0x12, 0]);
            // The section of the code: its index does not matter, only that the name is defined.
            table.extend_from_slice(&5_u16.to_le_bytes());
            table.extend_from_slice(&[0; 16]);
        }
        let dynsym = self.section(".dynsym", 11, ALLOC, &table);
        self.last(DYNSTR, 1, 24);
        let hash = gnu_table(&exports, buckets);
        let hash = self.section(".gnu.hash", 0x6fff_fff6, ALLOC, &hash);
        self.last(DYNSYM, 0, 0);
        let rodata = if elf.strings.is_empty() { vec![0] } else { [&[0], &elf.strings[..]].concat() };
        self.section(".rodata", 1, ALLOC, &rodata);
        self.section(".text", 1, ALLOC | 4, &elf.code);
        if !elf.device_code.is_empty() {
            self.section(".nv_fatbin", 1, ALLOC, &elf.device_code);
        }
        let mut versions = None;
        if definition_count + need_count > 0 {
            let mut ids = vec![0_u8, 0];
            ids.extend(symbols.iter().flat_map(|_| 1_u16.to_le_bytes()));
            versions = Some(self.section(".gnu.version", 0x6fff_ffff, ALLOC, &ids));
            self.last(DYNSYM, 0, 2);
        }
        let mut entries: Vec<(u64, u64)> = needed.iter().map(|name| (1, u64::from(*name))).collect();
        entries.extend(soname.map(|name| (14, u64::from(name))));
        entries.extend(rpath.map(|name| (15, u64::from(name))));
        entries.extend(runpath.map(|name| (29, u64::from(name))));
        entries.extend([(0x6fff_fef5, hash as u64), (5, dynstr as u64), (6, dynsym as u64), (10, strings.len() as u64), (11, 24)]);
        entries.extend(versions.map(|at| (0x6fff_fff0, at as u64)));
        if definition_count > 0 {
            let at = self.section(".gnu.version_d", 0x6fff_fffd, ALLOC, &definitions);
            self.last(DYNSTR, definition_count, 0);
            entries.extend([(0x6fff_fffc, at as u64), (0x6fff_fffd, definition_count.into())]);
        }
        if need_count > 0 {
            let at = self.section(".gnu.version_r", 0x6fff_fffe, ALLOC, &needs);
            self.last(DYNSTR, need_count, 0);
            entries.extend([(0x6fff_fffe, at as u64), (0x6fff_ffff, need_count.into())]);
        }
        entries.push((0, 0));
        let interpreter = elf.interpreter.as_ref().map(|path| {
            let bytes = [path.as_bytes(), b"\0"].concat();
            (self.section(".interp", 1, ALLOC, &bytes), bytes.len())
        });
        let bytes: Vec<u8> = entries.iter().flat_map(|(tag, value)| [tag.to_le_bytes(), value.to_le_bytes()].concat()).collect();
        let dynamic = self.section(".dynamic", 6, ALLOC | 1, &bytes);
        self.last(DYNSTR, 0, 16);
        let loaded = self.out.len();
        self.segments(loaded, (dynamic, bytes.len()), interpreter);
        self.section_table();
        self.out
    }

    fn definitions(&mut self, soname: Option<u32>) -> (Vec<u8>, u32) {
        if self.elf.defines.is_empty() {
            return (Vec::new(), 0);
        }
        let base = self.elf.soname.clone().unwrap_or_default();
        let base_name = soname.unwrap_or(0);
        let mut nodes = vec![(base, base_name, 1_u16)];
        for name in &self.elf.defines {
            let at = self.names.add(name);
            nodes.push((name.clone(), at, 0));
        }
        let mut out = Vec::new();
        for (index, (name, at, flags)) in nodes.iter().enumerate() {
            let last = index + 1 == nodes.len();
            for half in [1, *flags, index as u16 + 1, 1] {
                out.extend_from_slice(&half.to_le_bytes());
            }
            for word in [sysv_hash(name), 20, if last { 0 } else { 28 }, *at, 0] {
                out.extend_from_slice(&word.to_le_bytes());
            }
        }
        (out, nodes.len() as u32)
    }

    fn needs(&mut self) -> (Vec<u8>, u32) {
        let mut out = Vec::new();
        let mut other = 0x100_u16;
        let all = self.elf.needs.clone();
        for (index, (library, versions)) in all.iter().enumerate() {
            let file = self.names.add(library);
            let size = 16 + 16 * versions.len() as u32;
            for half in [1, versions.len() as u16] {
                out.extend_from_slice(&half.to_le_bytes());
            }
            for word in [file, 16, if index + 1 == all.len() { 0 } else { size }] {
                out.extend_from_slice(&word.to_le_bytes());
            }
            for (at, version) in versions.iter().enumerate() {
                let name = self.names.add(version);
                out.extend_from_slice(&sysv_hash(version).to_le_bytes());
                for half in [0, other] {
                    out.extend_from_slice(&half.to_le_bytes());
                }
                other += 1;
                for word in [name, if at + 1 == versions.len() { 0 } else { 16 }] {
                    out.extend_from_slice(&word.to_le_bytes());
                }
            }
        }
        (out, all.len() as u32)
    }

    fn segments(&mut self, loaded: usize, dynamic: (usize, usize), interpreter: Option<(usize, usize)>) {
        let mut table = Vec::new();
        let mut add = |kind: u32, flags: u32, offset: usize, size: usize, align: u64| {
            table.extend_from_slice(&kind.to_le_bytes());
            table.extend_from_slice(&flags.to_le_bytes());
            for word in [offset, offset, offset, size, size] {
                table.extend_from_slice(&(word as u64).to_le_bytes());
            }
            table.extend_from_slice(&align.to_le_bytes());
        };
        // The loader wants PT_INTERP before PT_LOAD.
        if let Some((at, size)) = interpreter {
            add(3, 4, at, size, 1);
        }
        add(1, 5, 0, loaded, 4096);
        add(2, 6, dynamic.0, dynamic.1, 8);
        self.out[HEADER..HEADER + table.len()].copy_from_slice(&table);
    }

    fn section_table(&mut self) {
        let mut names = Names::default();
        let mut at: Vec<u32> = self.sections.iter().map(|section| names.add(section.name)).collect();
        at.push(names.add(".shstrtab"));
        let bytes = names.0.clone();
        self.section(".shstrtab", 3, 0, &bytes);
        while !self.out.len().is_multiple_of(8) {
            self.out.push(0);
        }
        let start = self.out.len();
        let mut table = vec![0; 64];
        for (section, name) in self.sections.iter().zip(&at) {
            table.extend_from_slice(&name.to_le_bytes());
            table.extend_from_slice(&section.kind.to_le_bytes());
            let address = if section.flags & ALLOC == 0 { 0 } else { section.offset };
            for word in [section.flags, address as u64, section.offset as u64, section.size as u64] {
                table.extend_from_slice(&word.to_le_bytes());
            }
            table.extend_from_slice(&section.link.to_le_bytes());
            table.extend_from_slice(&section.info.to_le_bytes());
            for word in [8_u64, section.entry] {
                table.extend_from_slice(&word.to_le_bytes());
            }
        }
        self.out.extend_from_slice(&table);
        let count = self.sections.len() as u16 + 1;
        let segments = 2 + u16::from(self.elf.interpreter.is_some());
        let mut head = b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0".to_vec();
        for half in [3, self.elf.machine] {
            head.extend_from_slice(&half.to_le_bytes());
        }
        head.extend_from_slice(&1_u32.to_le_bytes());
        for word in [0, HEADER as u64, start as u64] {
            head.extend_from_slice(&word.to_le_bytes());
        }
        head.extend_from_slice(&0_u32.to_le_bytes());
        for half in [HEADER as u16, SEGMENT as u16, segments, 64, count, count - 1] {
            head.extend_from_slice(&half.to_le_bytes());
        }
        self.out[..HEADER].copy_from_slice(&head);
    }
}

fn gnu_table(exports: &[String], buckets: u32) -> Vec<u8> {
    const SHIFT: u32 = 6;
    let mut filter = 0_u64;
    let mut first = vec![0_u32; buckets as usize];
    let mut chain = Vec::new();
    for (index, name) in exports.iter().enumerate() {
        let hash = gnu_hash(name);
        filter |= 1 << (hash % 64) | 1 << ((hash >> SHIFT) % 64);
        let bucket = (hash % buckets) as usize;
        if first[bucket] == 0 {
            first[bucket] = index as u32 + 1;
        }
        let ends = exports.get(index + 1).is_none_or(|next| gnu_hash(next) % buckets != hash % buckets);
        chain.push(hash & !1 | u32::from(ends));
    }
    let mut out = Vec::new();
    for word in [buckets, 1, 1, SHIFT] {
        out.extend_from_slice(&word.to_le_bytes());
    }
    out.extend_from_slice(&filter.to_le_bytes());
    out.extend(first.iter().chain(&chain).flat_map(|word| word.to_le_bytes()));
    out
}

fn gnu_hash(name: &str) -> u32 {
    name.bytes().fold(5381_u32, |hash, byte| hash.wrapping_mul(33).wrapping_add(byte.into()))
}

fn sysv_hash(name: &str) -> u32 {
    name.bytes().fold(0_u32, |hash, byte| {
        let hash = (hash << 4).wrapping_add(byte.into());
        let high = hash & 0xf000_0000;
        (hash ^ (high >> 24)) & !high
    })
}
