//! ELF files, read lazily: the header and the program headers at once, everything else when it is asked for.
//!
//! goblin decodes the single structures; it is never given the whole file, because its full parse of a torch library takes a
//! hundred milliseconds and as many megabytes.

mod dynamic;
mod exports;
mod imports;
mod summary;
mod symbols;

pub use dynamic::Dynamic;
pub use exports::Exports;
pub use imports::{Import, fingerprint};
pub use summary::summarise;
pub use symbols::Symbol;

use super::read::{ReadAt, read_exact_at, read_up_to, read_vec};
use crate::facts::elf::{ElfKind, Machine, Truncated};
use goblin::container::{Container, Ctx};
use goblin::elf::header::{self, Header};
use goblin::elf::program_header::{self, ProgramHeader};
use goblin::elf::section_header::{self, SectionHeader};
use std::cell::OnceCell;
use std::io;
use std::ops::Range;

/// The longest table of sections that is read: 262,144 entries of 64 bytes. `-ffunction-sections` objects have a few thousand.
const MOST_SECTION_BYTES: u64 = 16 << 20;
/// A section with a longer name counts as one without: none that is looked for has one.
const LONGEST_SECTION_NAME: usize = 256;
/// Names of sections take some hundred bytes.
const NAMES_OF_SECTIONS: u64 = 64 << 10;

/// Why an ELF file, or a part of it, cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum ElfError {
    #[error("not an ELF file")]
    NotElf,
    #[error("the file is empty")]
    Empty,
    #[error("a pointer of Git LFS, and not the file itself")]
    Pointer,
    /// The file ends before `what`.
    #[error("the file is cut short: {what} would end at byte {expected}, and the file ends at byte {actual}")]
    CutShort { what: &'static str, expected: u64, actual: u64 },
    /// `what` contradicts itself or the format.
    #[error("damaged ELF file: {0}")]
    Malformed(&'static str),
    #[error(transparent)]
    Io(#[from] io::Error),
}

type Result<T> = std::result::Result<T, ElfError>;

/// A section's place in the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Section {
    /// Bytes from the start of the file.
    pub offset: u64,
    /// Bytes. For a section without content in the file ([`Section::in_file`]) the size it takes in memory.
    pub size: u64,
    pub address: u64,
    /// False for NOBITS (`.bss`, and every section of a split-off debug file).
    pub in_file: bool,
}

impl Section {
    fn of(header: &SectionHeader) -> Self {
        Self {
            offset: header.sh_offset,
            size: header.sh_size,
            address: header.sh_addr,
            in_file: header.sh_type != section_header::SHT_NOBITS,
        }
    }

    /// Its bytes in the file; empty where it has none.
    pub fn range(&self) -> std::ops::Range<u64> {
        let size = if self.in_file { self.size } else { 0 };
        self.offset..self.offset.saturating_add(size)
    }
}

/// An opened ELF file.
pub struct Elf<'a> {
    file: &'a dyn ReadAt,
    header: Header,
    ctx: Ctx,
    segments: Vec<ProgramHeader>,
    sections: OnceCell<Sections>,
    dynamic: OnceCell<Option<Dynamic>>,
}

struct Sections {
    headers: Vec<SectionHeader>,
    names: Vec<u8>,
}

impl<'a> Elf<'a> {
    /// Reads the header and the program headers: two small reads.
    ///
    /// # Errors
    /// [`ElfError::Empty`], [`ElfError::NotElf`], and the others when one of the two tables is not whole.
    pub fn open(file: &'a dyn ReadAt) -> Result<Self> {
        let start = read_up_to(file, 0, 64)?;
        match start.get(..4) {
            Some(magic) if magic == header::ELFMAG => {}
            _ if start.is_empty() => return Err(ElfError::Empty),
            _ => return Err(ElfError::NotElf),
        }
        let (container, whole) = match start.get(header::EI_CLASS) {
            Some(&header::ELFCLASS32) => (Container::Little, 52),
            Some(&header::ELFCLASS64) => (Container::Big, 64),
            Some(_) => return Err(ElfError::Malformed("unknown class")),
            None => return Err(cut_short("the header", 64, file)),
        };
        if start.len() < whole {
            return Err(cut_short("the header", whole as u64, file));
        }
        let header = goblin::elf::Elf::parse_header(&start).map_err(|_| ElfError::Malformed("header"))?;
        let endian = header.endianness().map_err(|_| ElfError::Malformed("unknown byte order"))?;
        let ctx = Ctx::new(container, endian);
        let mut elf = Self { file, header, ctx, segments: Vec::new(), sections: OnceCell::new(), dynamic: OnceCell::new() };
        elf.segments = elf.read_segments()?;
        Ok(elf)
    }

    fn read_segments(&self) -> Result<Vec<ProgramHeader>> {
        let count = self.header.e_phnum;
        if count == 0 || self.header.e_phoff == 0 {
            return Ok(Vec::new());
        }
        let entry = ProgramHeader::size(self.ctx) as u64;
        if u64::from(self.header.e_phentsize) != entry {
            return Err(ElfError::Malformed("size of a program header"));
        }
        let size = entry * u64::from(count);
        let bytes = self.read("the program headers", self.header.e_phoff, size, size)?;
        ProgramHeader::parse(&bytes, 0, count.into(), self.ctx).map_err(|_| ElfError::Malformed("program headers"))
    }

    pub fn machine(&self) -> Machine {
        Machine(self.header.e_machine)
    }

    pub fn kind(&self) -> ElfKind {
        match self.header.e_type {
            header::ET_REL => ElfKind::Relocatable,
            header::ET_EXEC => ElfKind::Executable,
            header::ET_DYN => ElfKind::Shared,
            header::ET_CORE => ElfKind::Core,
            _ => ElfKind::Other,
        }
    }

    /// 32 or 64.
    pub fn class_bits(&self) -> u8 {
        if self.ctx.is_big() { 64 } else { 32 }
    }

    pub fn is_little_endian(&self) -> bool {
        self.ctx.is_little_endian()
    }

    /// `e_ident`, for who needs the OS ABI and its version.
    pub fn ident(&self) -> &[u8; 16] {
        &self.header.e_ident
    }

    /// `e_flags`.
    pub fn flags(&self) -> u32 {
        self.header.e_flags
    }

    pub fn file(&self) -> &'a dyn ReadAt {
        self.file
    }

    /// Whether the headers speak of bytes behind the end of the file. A copy or download that was interrupted shows here first,
    /// because linkers put the section table last.
    pub fn truncated(&self) -> Option<Truncated> {
        let actual = self.file.len();
        let end_of = |p: &ProgramHeader| p.p_offset.saturating_add(p.p_filesz);
        let loaded = self.segments.iter().filter(|p| p.p_type == program_header::PT_LOAD && p.p_filesz > 0).map(end_of).max();
        let table = u64::from(self.header.e_shnum) * SectionHeader::size(self.ctx) as u64;
        let table = if self.header.e_shoff == 0 { 0 } else { self.header.e_shoff.saturating_add(table) };
        let loaded = loaded.unwrap_or(0);
        let expected = loaded.max(table);
        (expected > actual).then_some(Truncated { expected, actual, segments: loaded > actual })
    }

    /// The path in PT_INTERP.
    pub fn interpreter(&self) -> Result<Option<String>> {
        let Some(segment) = self.segment(program_header::PT_INTERP) else { return Ok(None) };
        // PATH_MAX; a longer interpreter cannot be opened.
        let bytes = self.read("PT_INTERP", segment.p_offset, segment.p_filesz, 4096)?;
        Ok(Some(text(&bytes)))
    }

    fn segment(&self, kind: u32) -> Option<&ProgramHeader> {
        self.segments.iter().find(|p| p.p_type == kind)
    }

    /// What there is to read without the code: the first segment, up to `first` bytes; the others that are not executable and have `others`
    /// bytes at most; the dynamic section; the section table.
    pub(super) fn parts(&self, first: u64, others: u64) -> Vec<Range<u64>> {
        let range = |offset: u64, size: u64| offset..offset.saturating_add(size);
        let loaded = self.segments.iter().filter(|p| p.p_type == program_header::PT_LOAD && p.p_filesz > 0);
        let mut parts: Vec<Range<u64>> = loaded
            .enumerate()
            .filter(|(at, p)| *at == 0 || (p.p_filesz <= others && p.p_flags & program_header::PF_X == 0))
            .map(|(at, p)| range(p.p_offset, if at == 0 { p.p_filesz.min(first) } else { p.p_filesz }))
            .collect();
        parts.extend(self.segment(program_header::PT_DYNAMIC).map(|p| range(p.p_offset, p.p_filesz.min(1 << 16))));
        let table = u64::from(self.header.e_shnum) * SectionHeader::size(self.ctx) as u64;
        // The names of the sections lie before the table, as linkers write it.
        parts
            .push(self.header.e_shoff.saturating_sub(NAMES_OF_SECTIONS)..self.header.e_shoff.saturating_add(table.min(MOST_SECTION_BYTES)));
        parts
    }

    /// Where in the file a loaded address comes from, and how many bytes of its segment follow.
    pub(super) fn offset_of(&self, address: u64) -> Option<(u64, u64)> {
        self.segments.iter().filter(|p| p.p_type == program_header::PT_LOAD).find_map(|p| {
            let into = address.checked_sub(p.p_vaddr)?;
            let rest = p.p_filesz.checked_sub(into).filter(|rest| *rest > 0)?;
            Some((p.p_offset.checked_add(into)?, rest))
        })
    }

    /// The section of this name, or `None` where there is none or the file has no section table.
    ///
    /// # Errors
    /// When the section table is cut off or contradicts the file: then nothing is known about sections.
    pub fn section(&self, name: &str) -> Result<Option<Section>> {
        let sections = self.sections()?;
        Ok(sections.headers.iter().find(|s| sections.name(s) == Some(name.as_bytes())).map(Section::of))
    }

    /// All sections that have a name, with it, in the order of the table.
    ///
    /// # Errors
    /// As for [`Elf::section`].
    pub fn named_sections(&self) -> Result<impl Iterator<Item = (&[u8], Section)>> {
        let sections = self.sections()?;
        Ok(sections.headers.iter().filter_map(|s| Some((sections.name(s)?, Section::of(s)))))
    }

    /// The parts of the file that are loaded: the address, and the range of the file.
    pub(super) fn loaded(&self) -> impl Iterator<Item = (u64, std::ops::Range<u64>)> {
        let loads = self.segments.iter().filter(|p| p.p_type == program_header::PT_LOAD && p.p_filesz > 0);
        loads.map(|p| (p.p_vaddr, p.p_offset..p.p_offset.saturating_add(p.p_filesz)))
    }

    /// Whether the file has a section table at all: `strip` keeps it, `sstrip` and packers do not.
    pub fn has_sections(&self) -> bool {
        self.header.e_shoff != 0
    }

    fn sections(&self) -> Result<&Sections> {
        if let Some(sections) = self.sections.get() {
            return Ok(sections);
        }
        let sections = self.read_sections()?;
        Ok(self.sections.get_or_init(|| sections))
    }

    fn read_sections(&self) -> Result<Sections> {
        const WHAT: &str = "the section table";
        let start = self.header.e_shoff;
        if start == 0 {
            return Ok(Sections { headers: Vec::new(), names: Vec::new() });
        }
        let entry = SectionHeader::size(self.ctx) as u64;
        if u64::from(self.header.e_shentsize) != entry {
            return Err(ElfError::Malformed("size of a section header"));
        }
        let parse =
            |bytes: &[u8], count: usize| SectionHeader::parse_from(bytes, 0, count, self.ctx).map_err(|_| ElfError::Malformed(WHAT));
        let mut count = u64::from(self.header.e_shnum);
        let mut names_at = usize::from(self.header.e_shstrndx);
        // Numbers too large for their 16 bits are kept in the first section header.
        if count == 0 || self.header.e_shstrndx == section_header::SHN_XINDEX as u16 {
            let first = parse(&self.read(WHAT, start, entry, entry)?, 1)?;
            let Some(first) = first.first() else { return Err(ElfError::Malformed(WHAT)) };
            if count == 0 {
                count = first.sh_size;
            }
            if self.header.e_shstrndx == section_header::SHN_XINDEX as u16 {
                names_at = first.sh_link as usize;
            }
        }
        if count == 0 {
            return Ok(Sections { headers: Vec::new(), names: Vec::new() });
        }
        let size = count.checked_mul(entry).ok_or(ElfError::Malformed(WHAT))?;
        let bytes = self.read(WHAT, start, size, MOST_SECTION_BYTES)?;
        let headers = parse(&bytes, bytes.len() / SectionHeader::size(self.ctx))?;
        let names = match headers.get(names_at) {
            Some(table) if names_at != 0 && table.sh_type != section_header::SHT_NOBITS => {
                self.read("the names of the sections", table.sh_offset, table.sh_size, MOST_SECTION_BYTES)?
            }
            _ => Vec::new(),
        };
        Ok(Sections { headers, names })
    }

    /// Reads `size` bytes that the file's own structures point at.
    fn read(&self, what: &'static str, offset: u64, size: u64, cap: u64) -> Result<Vec<u8>> {
        read_vec(self.file, offset, size, cap).map_err(|e| self.error(what, offset, size, e))
    }

    /// A small integer of the file's byte order.
    fn read_u32(&self, what: &'static str, offset: u64) -> Result<u32> {
        let mut bytes = [0; 4];
        read_exact_at(self.file, offset, &mut bytes).map_err(|e| self.error(what, offset, 4, e))?;
        Ok(self.u32(bytes))
    }

    fn u32(&self, bytes: [u8; 4]) -> u32 {
        if self.is_little_endian() { u32::from_le_bytes(bytes) } else { u32::from_be_bytes(bytes) }
    }

    fn error(&self, what: &'static str, offset: u64, size: u64, e: io::Error) -> ElfError {
        match e.kind() {
            io::ErrorKind::UnexpectedEof => cut_short(what, offset.saturating_add(size), self.file),
            io::ErrorKind::FileTooLarge => ElfError::Malformed(what),
            _ => ElfError::Io(e),
        }
    }
}

impl Sections {
    fn name(&self, section: &SectionHeader) -> Option<&[u8]> {
        let rest = self.names.get(section.sh_name..)?;
        let rest = rest.get(..LONGEST_SECTION_NAME).unwrap_or(rest);
        rest.get(..memchr::memchr(0, rest)?)
    }
}

fn cut_short(what: &'static str, expected: u64, file: &dyn ReadAt) -> ElfError {
    ElfError::CutShort { what, expected, actual: file.len() }
}

/// The bytes before the first NUL, as text.
fn text(bytes: &[u8]) -> String {
    let end = memchr::memchr(0, bytes).unwrap_or(bytes.len());
    String::from_utf8_lossy(bytes.get(..end).unwrap_or_default()).into_owned()
}
