//! Looking many symbols up in one file: its DT_GNU_HASH is read once, and the symbol and string tables only where the hash fits.

use super::symbols::LONGEST_CHAIN;
use super::{Elf, ElfError, Result};
use goblin::elf::dynamic::{DT_GNU_HASH, DT_HASH};

/// libtorch_cpu's hash table has half a megabyte.
const MOST_HASH_BYTES: u64 = 16 << 20;

/// The hash table of a file, in memory.
#[derive(Debug)]
pub struct Exports {
    gnu: Option<Gnu>,
}

#[derive(Debug)]
struct Gnu {
    first: u32,
    shift: u32,
    /// Words of the file's class.
    bloom: Vec<u64>,
    buckets: Vec<u32>,
    /// From the symbol `first` on.
    chains: Vec<u32>,
    bits: u32,
}

impl Exports {
    /// # Errors
    /// When the table contradicts the file.
    pub fn read(elf: &Elf<'_>) -> Result<Self> {
        const WHAT: &str = "DT_GNU_HASH";
        let none = Ok(Self { gnu: None });
        let Some(dynamic) = elf.dynamic()? else { return none };
        let Some(address) = dynamic.value(DT_GNU_HASH) else { return none };
        let (at, rest) = elf.offset_of(address).ok_or(ElfError::Malformed("address of the hash table"))?;
        let [buckets, first, bloom, shift] = [0, 4, 8, 12].map(|more| elf.read_u32(WHAT, at.saturating_add(more)));
        let (buckets, first, bloom, shift) = (buckets?, first?, bloom?, shift?);
        if buckets == 0 || bloom == 0 || !bloom.is_power_of_two() {
            return Err(ElfError::Malformed(WHAT));
        }
        let bits = u32::from(elf.class_bits());
        let word = u64::from(bits / 8);
        let (filter, table) = (u64::from(bloom) * word, u64::from(buckets) * 4);
        let head = elf.read(WHAT, at.saturating_add(16), filter.saturating_add(table), MOST_HASH_BYTES)?;
        let (filter, table) = head.split_at_checked(usize::try_from(filter).unwrap_or(usize::MAX)).ok_or(ElfError::Malformed(WHAT))?;
        let u32s = |bytes: &[u8]| bytes.chunks_exact(4).map(|c| elf.u32([c[0], c[1], c[2], c[3]])).collect::<Vec<u32>>();
        let words = u32s(filter);
        let bloom = if bits == 32 {
            words.into_iter().map(u64::from).collect()
        } else {
            let join = |pair: &[u32]| {
                let (a, b) = (u64::from(pair[0]), u64::from(pair[1]));
                if elf.is_little_endian() { b << 32 | a } else { a << 32 | b }
            };
            words.chunks_exact(2).map(join).collect()
        };
        let buckets = u32s(table);
        let chains = match buckets.iter().copied().max() {
            Some(highest) if highest >= first && highest > 0 => {
                let start = at.saturating_add(16 + head.len() as u64);
                let most = rest.saturating_sub(16 + head.len() as u64) / 4;
                Self::chains(elf, start, u64::from(highest - first), most)?
            }
            _ => Vec::new(),
        };
        Ok(Self { gnu: Some(Gnu { first, shift, bloom, buckets, chains, bits }) })
    }

    /// Up to the end of the chain that holds the link `highest`.
    fn chains(elf: &Elf<'_>, start: u64, highest: u64, most: u64) -> Result<Vec<u32>> {
        const WHAT: &str = "DT_GNU_HASH";
        let mut count = highest.saturating_add(64).min(most);
        loop {
            let bytes = elf.read(WHAT, start, count.saturating_mul(4), MOST_HASH_BYTES)?;
            let links: Vec<u32> = bytes.chunks_exact(4).map(|c| elf.u32([c[0], c[1], c[2], c[3]])).collect();
            let from = usize::try_from(highest).unwrap_or(usize::MAX);
            if let Some(end) = links.get(from..).and_then(|last| last.iter().position(|link| link & 1 == 1)) {
                return Ok(links.into_iter().take(from + end + 1).collect());
            }
            if count >= most {
                return Err(ElfError::Malformed(WHAT));
            }
            count = count.saturating_mul(2).min(most);
        }
    }

    /// Whether the file defines this dynamic symbol.
    ///
    /// # Errors
    /// When the tables contradict the file.
    pub fn has(&self, elf: &Elf<'_>, name: &str) -> Result<bool> {
        let Some(gnu) = &self.gnu else {
            // Files without either table export nothing by name.
            let hashed = elf.dynamic()?.is_some_and(|dynamic| dynamic.value(DT_HASH).is_some());
            return if hashed { Ok(elf.symbol(name)?.is_some()) } else { Ok(false) };
        };
        for index in gnu.candidates(name) {
            if elf.defines(index, name)? {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

impl Gnu {
    /// Numbers of the symbols whose hash is that of the name.
    fn candidates(&self, name: &str) -> impl Iterator<Item = u32> {
        let hash = super::symbols::gnu_hash(name);
        self.start(hash).into_iter().flat_map(move |start| {
            let links = self.chains.get((start - self.first) as usize..).unwrap_or_default();
            let links = links.get(..LONGEST_CHAIN as usize).unwrap_or(links);
            let end = links.iter().position(|link| link & 1 == 1).map_or(links.len(), |end| end + 1);
            let here = links.iter().take(end).zip(start..);
            here.filter(move |(link, _)| **link | 1 == hash | 1).map(|(_, index)| index)
        })
    }

    fn start(&self, hash: u32) -> Option<u32> {
        let word = self.bloom.get(((hash / self.bits) as usize) & (self.bloom.len().wrapping_sub(1)))?;
        let second = hash.checked_shr(self.shift).unwrap_or(0);
        let wanted = 1_u64 << (hash % self.bits) | 1_u64 << (second % self.bits);
        if word & wanted != wanted {
            return None;
        }
        let buckets = u32::try_from(self.buckets.len()).ok().filter(|number| *number > 0)?;
        self.buckets.get((hash % buckets) as usize).copied().filter(|start| *start >= self.first && *start > 0)
    }
}
