//! Looking one symbol up by name, the way the loader does: through the hash table, without reading the symbol table.

use super::{Dynamic, Elf, ElfError, Result};
use goblin::elf::dynamic::{DT_GNU_HASH, DT_HASH, DT_SYMTAB};
use goblin::elf::sym::{self, Sym};

/// A walk through a hash chain stops here. The longest chain of a real library has some twenty links.
pub(super) const LONGEST_CHAIN: u32 = 4096;

/// A symbol that the file defines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Symbol {
    /// Address, before relocation.
    pub value: u64,
    /// Bytes.
    pub size: u64,
    pub function: bool,
    pub weak: bool,
}

struct Table<'e> {
    dynamic: &'e Dynamic,
    symbols: u64,
    name: &'e str,
}

impl Elf<'_> {
    /// The definition of a dynamic symbol; `None` when the file does not export the name. Symbol versions are not looked at.
    ///
    /// # Errors
    /// When the tables contradict the file; a file with neither hash table is an error too, as nothing can be said then.
    pub fn symbol(&self, name: &str) -> Result<Option<Symbol>> {
        let Some(dynamic) = self.dynamic()? else { return Ok(None) };
        let Some(address) = dynamic.value(DT_SYMTAB) else { return Ok(None) };
        let (symbols, _) = self.offset_of(address).ok_or(ElfError::Malformed("address of the symbol table"))?;
        let table = Table { dynamic, symbols, name };
        let place = |tag| match dynamic.value(tag) {
            None => Ok(None),
            Some(address) => self.offset_of(address).map(|(at, _)| Some(at)).ok_or(ElfError::Malformed("address of the hash table")),
        };
        if let Some(at) = place(DT_GNU_HASH)? {
            self.by_gnu_hash(&table, at)
        } else if let Some(at) = place(DT_HASH)? {
            self.by_sysv_hash(&table, at)
        } else {
            Err(ElfError::Malformed("no hash table"))
        }
    }

    fn by_gnu_hash(&self, table: &Table<'_>, at: u64) -> Result<Option<Symbol>> {
        const WHAT: &str = "DT_GNU_HASH";
        let word = |index: u64| self.read_u32(WHAT, at.saturating_add(index.saturating_mul(4)));
        let head = self.read(WHAT, at, 16, 16)?;
        let mut head = head.chunks_exact(4).map(|c| self.u32([c[0], c[1], c[2], c[3]]));
        let (Some(buckets), Some(first), Some(bloom), Some(shift)) = (head.next(), head.next(), head.next(), head.next()) else {
            return Err(ElfError::Malformed(WHAT));
        };
        if buckets == 0 || bloom == 0 || !bloom.is_power_of_two() {
            return Err(ElfError::Malformed(WHAT));
        }
        let hash = gnu_hash(table.name);
        let bits = u32::from(self.class_bits());
        // The filter is made of words of the file's class, counted here in units of four bytes behind the four of the head.
        let per_word = u64::from(bits / 32);
        let filter_at = 4 + u64::from((hash / bits) % bloom) * per_word;
        let filter = if bits == 64 {
            let (a, b) = (word(filter_at)?, word(filter_at + 1)?);
            let (low, high) = if self.is_little_endian() { (a, b) } else { (b, a) };
            u64::from(high) << 32 | u64::from(low)
        } else {
            u64::from(word(filter_at)?)
        };
        let second = hash.checked_shr(shift).unwrap_or(0);
        let wanted = 1_u64 << (hash % bits) | 1_u64 << (second % bits);
        if filter & wanted != wanted {
            return Ok(None);
        }
        let buckets_at = 4 + u64::from(bloom) * per_word;
        let mut index = word(buckets_at + u64::from(hash % buckets))?;
        if index == 0 {
            return Ok(None);
        }
        let chains_at = buckets_at + u64::from(buckets);
        for _ in 0..LONGEST_CHAIN {
            let position = index.checked_sub(first).ok_or(ElfError::Malformed(WHAT))?;
            let link = word(chains_at + u64::from(position))?;
            if link | 1 == hash | 1
                && let Some(symbol) = self.symbol_if_named(table, index)?
            {
                return Ok(Some(symbol));
            }
            // The lowest bit marks the end of a chain.
            if link & 1 == 1 {
                return Ok(None);
            }
            index = index.checked_add(1).ok_or(ElfError::Malformed(WHAT))?;
        }
        Err(ElfError::Malformed(WHAT))
    }

    fn by_sysv_hash(&self, table: &Table<'_>, at: u64) -> Result<Option<Symbol>> {
        const WHAT: &str = "DT_HASH";
        // Alpha and 64-bit s390 alone use words of eight bytes here.
        let word = |index: u64| self.read_u32(WHAT, at.saturating_add(index.saturating_mul(4)));
        let (buckets, links) = (word(0)?, word(1)?);
        if buckets == 0 {
            return Err(ElfError::Malformed(WHAT));
        }
        let mut index = word(2 + u64::from(sysv_hash(table.name) % buckets))?;
        for _ in 0..links.min(LONGEST_CHAIN) {
            if index == 0 {
                return Ok(None);
            }
            if let Some(symbol) = self.symbol_if_named(table, index)? {
                return Ok(Some(symbol));
            }
            index = word(2 + u64::from(buckets) + u64::from(index))?;
        }
        if index == 0 { Ok(None) } else { Err(ElfError::Malformed(WHAT)) }
    }

    /// Whether the symbol of this number has this name and is defined here.
    pub(super) fn defines(&self, index: u32, name: &str) -> Result<bool> {
        let Some(dynamic) = self.dynamic()? else { return Ok(false) };
        let Some(address) = dynamic.value(DT_SYMTAB) else { return Ok(false) };
        let (symbols, _) = self.offset_of(address).ok_or(ElfError::Malformed("address of the symbol table"))?;
        self.symbol_if_named(&Table { dynamic, symbols, name }, index).map(|found| found.is_some())
    }

    /// The symbol at this index, when it has the name that is looked for and the file defines it.
    fn symbol_if_named(&self, table: &Table<'_>, index: u32) -> Result<Option<Symbol>> {
        const WHAT: &str = "the symbol table";
        let size: u64 = if self.ctx.is_big() { 24 } else { 16 };
        let bytes = self.read(WHAT, table.symbols.saturating_add(size * u64::from(index)), size, size)?;
        let parsed = Sym::parse(&bytes, 0, 1, self.ctx).map_err(|_| ElfError::Malformed(WHAT))?;
        let Some(symbol) = parsed.first() else { return Err(ElfError::Malformed(WHAT)) };
        if symbol.st_shndx == 0 || !self.is_named(table.dynamic, symbol.st_name as u64, table.name)? {
            return Ok(None);
        }
        Ok(Some(Symbol {
            value: symbol.st_value,
            size: symbol.st_size,
            function: matches!(symbol.st_type(), sym::STT_FUNC | sym::STT_GNU_IFUNC),
            weak: symbol.st_bind() == sym::STB_WEAK,
        }))
    }
}

/// The hash of the System V ABI.
fn sysv_hash(name: &str) -> u32 {
    name.bytes().fold(0_u32, |hash, byte| {
        let hash = (hash << 4).wrapping_add(byte.into());
        let high = hash & 0xf000_0000;
        (hash ^ (high >> 24)) & !high
    })
}

/// The hash of DT_GNU_HASH.
pub(super) fn gnu_hash(name: &str) -> u32 {
    name.bytes().fold(5381_u32, |hash, byte| hash.wrapping_mul(33).wrapping_add(byte.into()))
}
