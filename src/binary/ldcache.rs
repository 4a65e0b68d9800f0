//! The loader's cache, `/etc/ld.so.cache`: which file a SONAME has in the folders that ldconfig knows.
//!
//! Three layouts are read: the one of glibc 2.32 and later (`glibc-ld.so.cache1.1` at the start), the older one that carries it
//! behind a libc5-style table (`ld.so-1.7.0`), and that table alone. Source: glibc, `sysdeps/generic/dl-cache.h`.

use super::read::{ReadAt, read_vec};
use crate::facts::elf::Machine;
use std::borrow::Cow;
use std::io;

/// Larger files are refused. A cache of ten thousand libraries has about one megabyte.
const MOST_BYTES: u64 = 16 << 20;
/// PATH_MAX: longer names cannot be opened.
const LONGEST_NAME: usize = 4096;
const OLD_MAGIC: &[u8] = b"ld.so-1.7.0";
const NEW_MAGIC: &[u8] = b"glibc-ld.so.cache1.1";
const OLD_ENTRY: usize = 12;
const NEW_HEADER: usize = 48;
const NEW_ENTRY: usize = 24;
const EXTENSION_MAGIC: u32 = 0xeaa4_2174;
const EXTENSION_GENERATOR: u32 = 0;
const EXTENSION_HWCAPS: u32 = 1;

#[derive(Debug, thiserror::Error)]
pub enum LdCacheError {
    #[error("not a loader cache")]
    NotACache,
    #[error("damaged loader cache: {0}")]
    Malformed(&'static str),
    #[error(transparent)]
    Io(#[from] io::Error),
}

use LdCacheError::Malformed;

/// A cache whose tables have been checked.
pub struct LdCache {
    bytes: Vec<u8>,
    big_endian: bool,
    /// Offset of the table that is used, from the start of the file.
    entries_at: usize,
    count: usize,
    /// What the offsets of names count from.
    names_from: usize,
    new_layout: bool,
    /// Offsets of the names of glibc-hwcaps subfolders, by the index that entries use.
    hwcaps: Vec<u32>,
    generator: Option<(usize, usize)>,
}

/// One library of the cache.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LdCacheEntry<'c> {
    pub soname: Cow<'c, str>,
    pub path: Cow<'c, str>,
    /// The kind of library and its ABI, as stored: [`LdCacheEntry::abi`] explains it.
    pub flags: u32,
    pub hwcap: Hwcap<'c>,
}

/// What a processor must offer before the loader takes the entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Hwcap<'c> {
    Any,
    /// A glibc-hwcaps subfolder: `x86-64-v3`.
    Subfolder(Cow<'c, str>),
    /// The bit mask that glibc before 2.37 compares with the processor; later ones skip such entries.
    Mask(u64),
}

/// The ABI of a cached library.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Abi {
    pub machine: Machine,
    pub class_bits: u8,
}

impl LdCacheEntry<'_> {
    /// The ABI where the flags name one. `None` for the others (MIPS, SPARC, x32, LoongArch and so on) and for the plain flags of 32-bit x86 and
    /// 64-bit files of systems with a single ABI.
    pub fn abi(&self) -> Option<Abi> {
        let (machine, class_bits) = match self.flags & 0xff00 {
            0x0300 => (Machine::X86_64, 64),
            0x0400 => (Machine::S390, 64),
            0x0500 => (Machine::PPC64, 64),
            0x0900 | 0x0b00 => (Machine::ARM, 32),
            0x0a00 => (Machine::AARCH64, 64),
            0x0f00 | 0x1000 => (Machine::RISCV, 64),
            _ => return None,
        };
        Some(Abi { machine, class_bits })
    }

    /// Whether this is a library for glibc, the only kind made since the nineties.
    pub fn is_libc6(&self) -> bool {
        self.flags & 0xff == 3
    }
}

impl LdCache {
    /// Reads the cache and checks that every name lies inside it.
    ///
    /// # Errors
    /// [`LdCacheError::NotACache`] for other files, an empty one among them; [`LdCacheError::Malformed`] for a damaged one.
    pub fn read(file: &(impl ReadAt + ?Sized)) -> Result<Self, LdCacheError> {
        Self::parse(read_vec(file, 0, file.len(), MOST_BYTES)?)
    }

    fn parse(bytes: Vec<u8>) -> Result<Self, LdCacheError> {
        let cache = if bytes.starts_with(NEW_MAGIC) {
            Self::at_new_table(bytes, 0)?
        } else if bytes.starts_with(OLD_MAGIC) {
            Self::at_old_table(bytes)?
        } else {
            return Err(LdCacheError::NotACache);
        };
        for index in 0..cache.count {
            cache.entry(index).ok_or(Malformed("an entry points outside the file"))?;
        }
        Ok(cache)
    }

    fn at_old_table(bytes: Vec<u8>) -> Result<Self, LdCacheError> {
        const COUNT_AT: usize = 12;
        let header = COUNT_AT + 4;
        // This table carries no byte order; the count fits the file in one of the two only.
        let fits = |big: bool| {
            let count = number(&bytes, COUNT_AT, big)? as usize;
            let end = count.checked_mul(OLD_ENTRY)?.checked_add(header)?;
            (end <= bytes.len()).then_some((big, count, end))
        };
        let (big_endian, count, end) = fits(false).or_else(|| fits(true)).ok_or(Malformed("number of libraries"))?;
        // The newer table follows at the next multiple of its alignment: 8, and 4 on 32-bit x86.
        let embedded = [8, 4].into_iter().map(|align: usize| end.next_multiple_of(align));
        for at in embedded {
            if bytes.get(at..).is_some_and(|rest| rest.starts_with(NEW_MAGIC)) {
                return Self::at_new_table(bytes, at);
            }
        }
        Ok(Self { bytes, big_endian, entries_at: header, count, names_from: end, new_layout: false, hwcaps: Vec::new(), generator: None })
    }

    fn at_new_table(bytes: Vec<u8>, base: usize) -> Result<Self, LdCacheError> {
        let count_at = base + NEW_MAGIC.len();
        let fits = |big: bool| {
            let count = number(&bytes, count_at, big)? as usize;
            let end = count.checked_mul(NEW_ENTRY)?.checked_add(base + NEW_HEADER)?;
            (end <= bytes.len()).then_some((big, count))
        };
        let (big_endian, count) = match bytes.get(count_at + 8).map(|flags| flags & 3) {
            // glibc before 2.33 leaves the byte order unset.
            Some(0) => fits(false).or_else(|| fits(true)),
            Some(2) => fits(false),
            Some(3) => fits(true),
            _ => None,
        }
        .ok_or(Malformed("number of libraries"))?;
        let mut cache = Self {
            bytes,
            big_endian,
            entries_at: base + NEW_HEADER,
            count,
            names_from: base,
            new_layout: true,
            hwcaps: Vec::new(),
            generator: None,
        };
        match cache.number(count_at + 12).ok_or(Malformed("header"))? as usize {
            0 => {}
            extensions => cache.read_extensions(extensions).ok_or(Malformed("extensions"))?,
        }
        Ok(cache)
    }

    /// The directory of extensions. Its offset, and those in it, count from the start of the file even where the table does not
    /// start there; the offsets of hwcap names count from the table, like all names (seen in files made with `ldconfig -c compat`).
    fn read_extensions(&mut self, at: usize) -> Option<()> {
        if self.number(at)? != EXTENSION_MAGIC {
            return None;
        }
        let count = self.number(at.checked_add(4)?)? as usize;
        // glibc knows two.
        for index in 0..count.min(64) {
            let here = at.checked_add(8 + index * 16)?;
            let (tag, offset, size) = (self.number(here)?, self.number(here + 8)? as usize, self.number(here + 12)? as usize);
            let end = offset.checked_add(size)?;
            match tag {
                EXTENSION_GENERATOR => {
                    self.bytes.get(offset..end)?;
                    self.generator = Some((offset, end));
                }
                EXTENSION_HWCAPS => {
                    self.bytes.get(offset..end)?;
                    self.hwcaps = (offset..end).step_by(4).filter_map(|at| self.number(at)).collect();
                }
                _ => {}
            }
        }
        Some(())
    }

    /// All entries, in the order of the cache: by name from last to first, better processors first.
    pub fn entries(&self) -> impl Iterator<Item = LdCacheEntry<'_>> {
        (0..self.count).filter_map(|index| self.entry(index))
    }

    /// The entries for one SONAME. The loader takes the first whose ABI is its own and whose processor is there.
    pub fn find<'c>(&'c self, soname: &'c str) -> impl Iterator<Item = LdCacheEntry<'c>> {
        self.entries().filter(move |entry| entry.soname == soname)
    }

    /// The ldconfig that wrote the cache, as it names itself (glibc 2.33 and later).
    pub fn generator(&self) -> Option<Cow<'_, str>> {
        let (from, to) = self.generator?;
        self.bytes.get(from..to).map(String::from_utf8_lossy)
    }

    fn entry(&self, index: usize) -> Option<LdCacheEntry<'_>> {
        let size = if self.new_layout { NEW_ENTRY } else { OLD_ENTRY };
        let at = self.entries_at.checked_add(index.checked_mul(size)?)?;
        let flags = self.number(at)?;
        let soname = self.name(self.number(at + 4)?)?;
        let path = self.name(self.number(at + 8)?)?;
        let hwcap = if self.new_layout { self.hwcap(at + 16)? } else { Hwcap::Any };
        Some(LdCacheEntry { soname, path, flags, hwcap })
    }

    fn hwcap(&self, at: usize) -> Option<Hwcap<'_>> {
        let (a, b) = (self.number(at)?, self.number(at + 4)?);
        let (low, high) = if self.big_endian { (b, a) } else { (a, b) };
        // Bit 62 says that the low half is an index; the ten bits above that half hold the processor's level.
        Some(match high & !0x3ff {
            0x4000_0000 => Hwcap::Subfolder(self.name(*self.hwcaps.get(low as usize)?)?),
            _ if high == 0 && low == 0 => Hwcap::Any,
            _ => Hwcap::Mask(u64::from(high) << 32 | u64::from(low)),
        })
    }

    fn name(&self, at: u32) -> Option<Cow<'_, str>> {
        let rest = self.bytes.get(self.names_from.checked_add(at as usize)?..)?;
        let rest = rest.get(..LONGEST_NAME).unwrap_or(rest);
        Some(String::from_utf8_lossy(rest.get(..memchr::memchr(0, rest)?)?))
    }

    fn number(&self, at: usize) -> Option<u32> {
        number(&self.bytes, at, self.big_endian)
    }
}

fn number(bytes: &[u8], at: usize, big_endian: bool) -> Option<u32> {
    let four: [u8; 4] = bytes.get(at..at.checked_add(4)?)?.try_into().ok()?;
    Some(if big_endian { u32::from_be_bytes(four) } else { u32::from_le_bytes(four) })
}

#[cfg(test)]
#[expect(clippy::unwrap_used)]
mod tests {
    use super::*;

    struct Builder {
        big: bool,
        names: Vec<u8>,
        names_at: u32,
    }

    impl Builder {
        fn n(&self, value: u32) -> [u8; 4] {
            if self.big { value.to_be_bytes() } else { value.to_le_bytes() }
        }
        fn name(&mut self, name: &str) -> [u8; 4] {
            let at = self.names_at + self.names.len() as u32;
            self.names.extend_from_slice(name.as_bytes());
            self.names.push(0);
            self.n(at)
        }
    }

    /// A new-layout cache with one plain entry and one in a glibc-hwcaps subfolder.
    fn new_cache(big: bool) -> Vec<u8> {
        let mut b = Builder { big, names: Vec::new(), names_at: (NEW_HEADER + 2 * NEW_ENTRY) as u32 };
        let (soname, plain, fast, hwcap) =
            (b.name("liba.so.1"), b.name("/lib/liba.so.1"), b.name("/lib/v3/liba.so.1"), b.name("x86-64-v3"));
        while !b.names.len().is_multiple_of(4) {
            b.names.push(0);
        }
        let extensions = b.names_at + b.names.len() as u32;
        let mut bytes = NEW_MAGIC.to_vec();
        bytes.extend(b.n(2));
        bytes.extend(b.n(b.names.len() as u32));
        bytes.extend([if big { 3 } else { 2 }, 0, 0, 0]);
        bytes.extend(b.n(extensions));
        bytes.extend([0; 12]);
        for (path, high, flags) in [(fast, 0x4000_0000, 0x0303), (plain, 0, 0x0a03)] {
            bytes.extend(b.n(flags));
            bytes.extend(soname);
            bytes.extend(path);
            bytes.extend([0; 4]);
            let (low, high) = (b.n(0), b.n(high));
            bytes.extend(if big { [high, low] } else { [low, high] }.concat());
        }
        bytes.extend_from_slice(&b.names);
        bytes.extend(b.n(EXTENSION_MAGIC));
        bytes.extend(b.n(1));
        for word in [EXTENSION_HWCAPS, 0, extensions + 24, 4] {
            bytes.extend(b.n(word));
        }
        bytes.extend(hwcap);
        bytes
    }

    #[test]
    fn both_byte_orders() {
        for big in [false, true] {
            let cache = LdCache::read(new_cache(big).as_slice()).unwrap();
            let found: Vec<_> = cache.find("liba.so.1").map(|e| (e.path.into_owned(), e.hwcap)).collect();
            let fast = ("/lib/v3/liba.so.1".to_owned(), Hwcap::Subfolder("x86-64-v3".into()));
            assert_eq!(found, [fast, ("/lib/liba.so.1".to_owned(), Hwcap::Any)], "big endian: {big}");
            let abis: Vec<_> = cache.entries().map(|e| e.abi().unwrap()).collect();
            assert_eq!(abis, [Abi { machine: Machine::X86_64, class_bits: 64 }, Abi { machine: Machine::AARCH64, class_bits: 64 }]);
        }
    }

    #[test]
    fn other_files_and_cut_files_are_told_apart() {
        let whole = new_cache(false);
        assert!(matches!(LdCache::read(b"".as_slice()), Err(LdCacheError::NotACache)));
        assert!(matches!(LdCache::read(b"\x7fELF".as_slice()), Err(LdCacheError::NotACache)));
        for length in NEW_MAGIC.len()..whole.len() {
            assert!(matches!(LdCache::read(&whole[..length]), Err(Malformed(_))), "{length} bytes");
        }
    }

    #[test]
    fn a_huge_count_is_refused() {
        let mut bytes = new_cache(false);
        bytes[20..24].copy_from_slice(&u32::MAX.to_le_bytes());
        assert!(matches!(LdCache::read(bytes.as_slice()), Err(Malformed("number of libraries"))));
    }
}
