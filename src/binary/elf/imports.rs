//! What a file asks of others and offers them: its dynamic symbols.

use super::symbols::LONGEST_CHAIN;
use super::{Elf, ElfError, Result};
use crate::binary::read::{read_up_to, read_vec};
use goblin::elf::dynamic::{DF_1_NOW, DF_BIND_NOW, DT_BIND_NOW, DT_FLAGS, DT_GNU_HASH, DT_HASH, DT_SYMTAB};
use goblin::elf::section_header::{SHT_DYNSYM, SHT_NOBITS, SHT_SYMTAB};
use goblin::elf::sym::{self, Sym};
use std::collections::HashSet;

/// The longest symbol table that is read: 2.8 million entries of 24 bytes. libtorch_cpu has 80 thousand.
const MOST_SYMBOL_BYTES: u64 = 64 << 20;
/// Names are read through a window of so many bytes; no longer name is a symbol.
const WINDOW: u64 = 64 << 10;
/// Bytes of the names of one file's symbols: libtorch_cpu has 20 MB. Names that lie in each other can have any number.
const MOST_NAME_BYTES: usize = 128 << 20;

/// A dynamic symbol that this file wants from another.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Import {
    pub name: String,
    /// The loader goes on without a weak one.
    pub weak: bool,
}

impl Elf<'_> {
    /// The dynamic symbols that this file does not define, sorted by name, each once.
    ///
    /// # Errors
    /// When the tables contradict the file, or nothing tells how long the symbol table is.
    pub fn imports(&self) -> Result<Vec<Import>> {
        let mut imports = Vec::new();
        let wanted = |symbol: &Sym| symbol.st_shndx == 0 && symbol.st_name != 0 && is_visible(symbol);
        self.dynamic_symbols(true, wanted, |name, symbol| {
            imports.push(Import { name: name.to_owned(), weak: symbol.st_bind() == sym::STB_WEAK });
        })?;
        imports.sort();
        // Of two entries of one name the strong one counts: it sorts first.
        imports.dedup_by(|later, first| later.name == first.name);
        Ok(imports)
    }

    /// Fingerprints ([`fingerprint`]) of the dynamic symbols that this file defines.
    ///
    /// # Errors
    /// As [`Elf::imports`].
    pub fn exports(&self) -> Result<HashSet<u64>> {
        let mut exports = HashSet::new();
        let wanted = |symbol: &Sym| symbol.st_shndx != 0 && symbol.st_name != 0 && is_visible(symbol);
        self.dynamic_symbols(false, wanted, |name, _| {
            exports.insert(fingerprint(name));
        })?;
        Ok(exports)
    }

    /// Whether every symbol is bound when the file is loaded, whoever loads it (`-z now`).
    ///
    /// # Errors
    /// When the dynamic section cannot be read.
    pub fn binds_at_once(&self) -> Result<bool> {
        let Some(dynamic) = self.dynamic()? else { return Ok(false) };
        let flags = dynamic.value(DT_FLAGS).unwrap_or(0);
        Ok(dynamic.value(DT_BIND_NOW).is_some() || flags & DF_BIND_NOW != 0 || self.flags_1()? & DF_1_NOW != 0)
    }

    /// Whether `strip` has taken the symbol table away; `None` for a file without a section table.
    ///
    /// # Errors
    /// When the section table cannot be read.
    pub fn stripped(&self) -> Result<Option<bool>> {
        if !self.has_sections() {
            return Ok(None);
        }
        let sections = self.sections()?;
        Ok(Some(!sections.headers.iter().any(|section| section.sh_type == SHT_SYMTAB)))
    }

    fn dynamic_symbols(&self, unhashed: bool, wanted: impl Fn(&Sym) -> bool, mut visit: impl FnMut(&str, &Sym)) -> Result<()> {
        const WHAT: &str = "the dynamic symbols";
        let Some(dynamic) = self.dynamic()? else { return Ok(()) };
        let Some(address) = dynamic.value(DT_SYMTAB) else { return Ok(()) };
        let (offset, rest) = self.offset_of(address).ok_or(ElfError::Malformed("address of the symbol table"))?;
        let count = self.symbol_count(address, unhashed)?;
        let entry: u64 = if self.ctx.is_big() { 24 } else { 16 };
        let size = count.saturating_mul(entry).min(rest);
        let bytes = read_vec(self.file, offset, size, MOST_SYMBOL_BYTES).map_err(|error| self.error(WHAT, offset, size, error))?;
        let symbols = Sym::parse(&bytes, 0, bytes.len() / entry as usize, self.ctx).map_err(|_| ElfError::Malformed(WHAT))?;
        let mut symbols: Vec<Sym> = symbols.into_iter().filter(wanted).collect();
        symbols.sort_by_key(|symbol| symbol.st_name);
        let (start, length) = dynamic.strings_at().ok_or(ElfError::Malformed("no dynamic string table"))?;
        let mut window: (u64, Vec<u8>) = (0, Vec::new());
        let mut left = MOST_NAME_BYTES;
        for symbol in &symbols {
            let at = symbol.st_name as u64;
            if at >= length {
                return Err(ElfError::Malformed("name outside the dynamic string table"));
            }
            let found = text_at(&window, at);
            let name = match found {
                Some(name) => name,
                None => {
                    let position = start.saturating_add(at);
                    let bytes = read_up_to(self.file, position, WINDOW.min(length - at))
                        .map_err(|error| self.error(WHAT, position, WINDOW, error))?;
                    window = (at, bytes);
                    text_at(&window, at).ok_or(ElfError::Malformed("name without an end in the dynamic string table"))?
                }
            };
            left = left.checked_sub(name.len()).ok_or(ElfError::Malformed("names of symbols that lie in each other"))?;
            if let Ok(name) = std::str::from_utf8(name) {
                visit(name, symbol);
            }
        }
        Ok(())
    }

    /// How many entries the table has. What is not defined stands before everything in DT_GNU_HASH, which is all that `unhashed` asks for.
    fn symbol_count(&self, address: u64, unhashed: bool) -> Result<u64> {
        const WHAT: &str = "DT_GNU_HASH";
        let Some(dynamic) = self.dynamic()? else { return Ok(0) };
        let place = |tag| dynamic.value(tag).and_then(|address| self.offset_of(address));
        if let Some((at, _)) = place(DT_HASH) {
            return self.read_u32("DT_HASH", at.saturating_add(4)).map(u64::from);
        }
        let gnu = place(DT_GNU_HASH);
        if let Some((at, _)) = gnu.filter(|_| unhashed)
            && self.has_hashed_symbols(at)?
        {
            return self.read_u32(WHAT, at.saturating_add(4)).map(u64::from);
        }
        // The loader needs no length; the section table has it.
        if let Ok(sections) = self.sections()
            && let Some(table) = sections.headers.iter().find(|section| section.sh_type == SHT_DYNSYM && section.sh_addr == address)
            && table.sh_type != SHT_NOBITS
        {
            let entry: u64 = if self.ctx.is_big() { 24 } else { 16 };
            return Ok(table.sh_size / entry);
        }
        match gnu {
            Some((at, rest)) => self.last_hashed(at, rest),
            None => Err(ElfError::Malformed("nothing tells the number of dynamic symbols")),
        }
    }

    /// A linker writes one bucket of zero where nothing is exported; the number of the first symbol means nothing then.
    fn has_hashed_symbols(&self, at: u64) -> Result<bool> {
        let (buckets, first) = self.buckets(at)?;
        Ok(first > 0 && buckets.iter().any(|bucket| *bucket != 0))
    }

    fn buckets(&self, at: u64) -> Result<(Vec<u32>, u32)> {
        const WHAT: &str = "DT_GNU_HASH";
        let [number, first, bloom] = [0, 4, 8].map(|more| self.read_u32(WHAT, at.saturating_add(more)));
        let (number, first, bloom) = (u64::from(number?), first?, u64::from(bloom?));
        let words = bloom.saturating_mul(u64::from(self.class_bits() / 8));
        let start = at.saturating_add(16).saturating_add(words);
        let bytes = self.read(WHAT, start, number.saturating_mul(4), MOST_SYMBOL_BYTES)?;
        Ok((bytes.chunks_exact(4).map(|c| self.u32([c[0], c[1], c[2], c[3]])).collect(), first))
    }

    /// One more than the highest symbol in the table: the end of the chain of the highest bucket.
    fn last_hashed(&self, at: u64, rest: u64) -> Result<u64> {
        const WHAT: &str = "DT_GNU_HASH";
        let (buckets, first) = self.buckets(at)?;
        let Some(highest) = buckets.iter().copied().max().filter(|highest| *highest >= first && *highest > 0) else {
            return Err(ElfError::Malformed("nothing tells the number of dynamic symbols"));
        };
        let bloom = u64::from(self.read_u32(WHAT, at.saturating_add(8))?).saturating_mul(u64::from(self.class_bits() / 8));
        let chains = at.saturating_add(16).saturating_add(bloom).saturating_add(buckets.len() as u64 * 4);
        let mut index = u64::from(highest);
        let end = at.saturating_add(rest);
        loop {
            let link = chains.saturating_add((index - u64::from(first)).saturating_mul(4));
            if link >= end || index - u64::from(highest) > u64::from(LONGEST_CHAIN) {
                return Err(ElfError::Malformed(WHAT));
            }
            index += 1;
            if self.read_u32(WHAT, link)? & 1 == 1 {
                return Ok(index);
            }
        }
    }
}

/// Local symbols, sections and files take no part in the search.
fn is_visible(symbol: &Sym) -> bool {
    symbol.st_bind() != sym::STB_LOCAL && !matches!(symbol.st_type(), sym::STT_SECTION | sym::STT_FILE)
}

fn text_at(window: &(u64, Vec<u8>), at: u64) -> Option<&[u8]> {
    let from = usize::try_from(at.checked_sub(window.0)?).ok()?;
    let rest = window.1.get(from..)?;
    rest.get(..memchr::memchr(0, rest)?)
}

/// FNV-1a, 64 bits: two of a million names collide once in ten million files.
pub fn fingerprint(name: &str) -> u64 {
    name.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}
