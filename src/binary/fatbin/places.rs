//! Where in an ELF file device code lies.

use super::Result;
use crate::binary::elf::Elf;
use crate::binary::read::{ReadAt, read_vec};
use std::ops::Range;

/// Containers that are loaded as they are, and results of a device link.
const WHOLE: &[u8] = b".nv_fatbin";
/// Containers of relocatable code, which stay in the library beside the result of their link.
const RELOCATABLE: &[u8] = b"__nv_relfatbin";
/// One [`Wrapper`] for each container that the runtime registers.
const WRAPPERS: &[u8] = b".nvFatBinSegment";

/// Linkers make four to six.
const MOST_LOADS: usize = 256;
/// Sections of one name: a library has one, an object with groups some.
const MOST_PLACES: usize = 4096;
/// 43,690 wrappers; torch's largest library has 444.
const MOST_WRAPPER_BYTES: u64 = 1 << 20;

/// Ranges of a file, in bytes from its start.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Places {
    pub whole: Vec<Range<u64>>,
    pub relocatable: Vec<Range<u64>>,
    /// The loaded parts of a file without a section table, somewhere in which there may be containers.
    pub unnamed: Vec<Range<u64>>,
    /// Of the section with the wrappers.
    pub wrappers: Vec<Range<u64>>,
    /// Where the loaded parts come from: address, and range of the file.
    loads: Vec<(u64, Range<u64>)>,
}

impl Places {
    /// From the section table, or the program headers where there is none.
    ///
    /// # Errors
    /// When the section table is cut off or contradicts the file.
    pub fn of(elf: &Elf<'_>) -> Result<Self> {
        let mut places = Self { loads: elf.loaded().take(MOST_LOADS).collect(), ..Self::default() };
        if !elf.has_sections() {
            places.unnamed = places.loads.iter().map(|(_, range)| range.clone()).collect();
            return Ok(places);
        }
        for (name, section) in elf.named_sections()? {
            let list = match name {
                WHOLE => &mut places.whole,
                RELOCATABLE => &mut places.relocatable,
                WRAPPERS => &mut places.wrappers,
                _ => continue,
            };
            if list.len() < MOST_PLACES {
                list.push(section.range());
            }
        }
        Ok(places)
    }

    /// Of a `.fatbin`, which is all containers.
    pub fn raw(length: u64) -> Self {
        Self { whole: std::iter::once(0..length).collect(), ..Self::default() }
    }

    /// Whether there can be device code at all.
    pub fn is_empty(&self) -> bool {
        [&self.whole, &self.relocatable, &self.unnamed].into_iter().flatten().all(Range::is_empty)
    }

    /// Reads the wrappers. Without a section for them there are none: every container then counts as one that is loaded as it is.
    pub(super) fn read_wrappers(&self, file: &dyn ReadAt) -> Result<Vec<Wrapper>> {
        let mut found = Vec::new();
        let mut left = MOST_WRAPPER_BYTES;
        for range in &self.wrappers {
            let size = range.end.saturating_sub(range.start).min(left);
            left -= size;
            let bytes = read_vec(file, range.start, size, MOST_WRAPPER_BYTES)?;
            found.extend(bytes.chunks_exact(Wrapper::SIZE).filter_map(Wrapper::parse));
        }
        Ok(found)
    }

    /// Where in the file the container of a wrapper lies; `None` where its address is left to the loader.
    pub(super) fn container_of(&self, wrapper: &Wrapper) -> Option<u64> {
        let address = Some(wrapper.address).filter(|address| *address != 0)?;
        self.loads.iter().find_map(|(start, range)| {
            let into = address.checked_sub(*start)?;
            range.start.checked_add(into).filter(|offset| range.contains(offset))
        })
    }
}

/// What the runtime knows of one container.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wrapper {
    /// The container is the result of a device link.
    pub linked: bool,
    /// Where the container is when it is loaded.
    pub address: u64,
}

impl Wrapper {
    /// Magic number, version, address of the container, address of what it was linked from.
    pub const SIZE: usize = 24;
    pub const MAGIC: [u8; 4] = 0x4662_43B1_u32.to_le_bytes();
    /// The version of one around the result of a device link.
    const LINKED: u32 = 2;

    /// `None` where the bytes are none.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let rest = bytes.strip_prefix(&Self::MAGIC)?;
        let (version, rest) = rest.split_first_chunk::<4>()?;
        let (address, _) = rest.split_first_chunk::<8>()?;
        Some(Self { linked: u32::from_le_bytes(*version) == Self::LINKED, address: u64::from_le_bytes(*address) })
    }
}
