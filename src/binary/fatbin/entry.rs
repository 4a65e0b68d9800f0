//! The header of one entry.

use super::{Result, malformed};
use crate::facts::device_code::{CodeTarget, Kind};
use crate::version::{Capability, Isa, Suffix, Target};

/// The part of an entry's header that is always there.
pub const SIZE: usize = 64;
/// A header with the source file's name, the options and the members of a group: those that exist have some hundred bytes.
const MOST_HEADER: u32 = 64 << 10;

const KIND_GROUP: u16 = 0x100;
const FLAG_LZ4: u64 = 1 << 13;
const FLAG_ZSTD: u64 = 1 << 15;
const FLAG_SPECIFIC: u64 = 1 << 20;
const FLAG_FAMILY: u64 = 1 << 21;

/// One piece of device code, as its header describes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry {
    pub target: CodeTarget,
    pub isa: Option<Isa>,
    pub compressed: bool,
    /// Bytes in the file, without padding; 0 for a member of a group, whose bytes are the group's.
    pub stored: u64,
    pub unpacked: u64,
}

/// What follows the fixed part of a header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    /// Bytes of the whole header: the payload starts behind it.
    pub header: u64,
    /// Bytes of the payload, padding included: the next entry starts behind it.
    pub payload: u64,
    pub content: Content,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Content {
    One(Entry),
    /// Entries packed together (CUDA 13.4 and later): the rest of the header describes them.
    Group {
        compressed: bool,
        stored: u64,
    },
}

/// Little-endian numbers at fixed places of `bytes`; 0 behind their end, which the callers rule out by asking for whole headers.
struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    fn array<const N: usize>(&self, at: usize) -> [u8; N] {
        let bytes = at.checked_add(N).and_then(|end| self.0.get(at..end));
        bytes.and_then(|bytes| bytes.try_into().ok()).unwrap_or([0; N])
    }

    fn u16(&self, at: usize) -> u16 {
        u16::from_le_bytes(self.array(at))
    }

    fn u32(&self, at: usize) -> u32 {
        u32::from_le_bytes(self.array(at))
    }

    fn u64(&self, at: usize) -> u64 {
        u64::from_le_bytes(self.array(at))
    }
}

/// Reads the first [`SIZE`] bytes of an entry at `at` in the file, with `room` bytes to the end of its container.
pub fn shape(bytes: &[u8; SIZE], at: u64, room: u64) -> Result<Shape> {
    let fields = Fields(bytes);
    let header = fields.u32(4);
    let payload = fields.u64(8);
    if (header as usize) < SIZE || header > MOST_HEADER {
        return malformed("the size of an entry's header", at);
    }
    if u64::from(header).checked_add(payload).is_none_or(|size| size > room) {
        return malformed("an entry that ends behind its container", at);
    }
    let flags = fields.u64(40);
    let compressed = flags & (FLAG_LZ4 | FLAG_ZSTD) != 0;
    let stored = match fields.u32(16) {
        0 => payload,
        exact => u64::from(exact).min(payload),
    };
    let content = if fields.u16(0) == KIND_GROUP {
        Content::Group { compressed, stored }
    } else {
        let unpacked = Some(fields.u64(56)).filter(|size| compressed && *size > 0).unwrap_or(stored);
        Content::One(entry(&fields, at, compressed, stored, unpacked)?)
    };
    Ok(Shape { header: header.into(), payload, content })
}

fn entry(fields: &Fields<'_>, at: u64, compressed: bool, stored: u64, unpacked: u64) -> Result<Entry> {
    let kind = match fields.u16(0) {
        1 => Kind::Ptx,
        2 => Kind::Sass,
        8 => Kind::Lto,
        other => Kind::Other(other),
    };
    let flags = fields.u64(40);
    let target = CodeTarget::new(kind, target(fields.u32(28), flags & FLAG_SPECIFIC != 0, flags & FLAG_FAMILY != 0, at)?);
    let isa = (kind == Kind::Ptx).then(|| Isa { major: fields.u16(26), minor: fields.u16(24) });
    Ok(Entry { target, isa, compressed, stored, unpacked })
}

/// A target from the number in `sm_90` and the two marks.
pub fn target(sm: u32, specific: bool, family: bool, at: u64) -> Result<Target> {
    // Two to four digits: what can be written and read again.
    if !(10..=9999).contains(&sm) {
        return malformed("no GPU has this number", at);
    }
    let suffix = match (specific, family) {
        (true, _) => Some(Suffix::Specific),
        (false, true) => Some(Suffix::Family),
        (false, false) => None,
    };
    Ok(Target { capability: Capability::from_sm(sm), suffix })
}

/// The members of a group, from its whole header at `at` in the file.
pub fn members(header: &[u8], compressed: bool, at: u64) -> Result<Vec<Entry>> {
    let fields = Fields(header);
    let (count, area) = (fields.u32(SIZE), fields.u32(SIZE + 4) as usize);
    let end = SIZE.saturating_add(area).min(header.len());
    let mut next = SIZE + 8;
    let mut entries = Vec::new();
    for _ in 0..count {
        let Some(bytes) = next.checked_add(SIZE).filter(|whole| *whole <= end).and_then(|whole| header.get(next..whole)) else {
            return malformed("a group with fewer members than it says", at);
        };
        let member = Fields(bytes);
        entries.push(entry(&member, at, compressed, 0, member.u64(8))?);
        // A member with options has them, and their NUL, behind the fixed part.
        next = match member.u32(20) as usize {
            0 => next + SIZE,
            options => {
                let length = Fields(header).u32(next.saturating_add(options).saturating_add(4)) as usize;
                let size = options.saturating_add(8).saturating_add(length).saturating_add(1);
                next.saturating_add(size.checked_next_multiple_of(8).unwrap_or(usize::MAX).max(SIZE))
            }
        };
    }
    Ok(entries)
}
