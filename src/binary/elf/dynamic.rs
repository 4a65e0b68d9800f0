//! The dynamic section: what a file needs, where it looks, which versions it defines and needs.

use super::{Elf, ElfError, Result, text};
use crate::binary::read::read_up_to;
use crate::facts::elf::VersionNeed;
use goblin::elf::dynamic::{self, Dyn, Dynamic as Entries};
use goblin::elf::program_header::{PT_DYNAMIC, ProgramHeader};
use goblin::elf::section_header::{SHT_GNU_VERDEF, SHT_GNU_VERNEED, SectionHeader};
use goblin::elf::symver::{VerdefSection, VerneedSection};
use std::cell::RefCell;

/// The longest dynamic section that is read: 4096 entries of 16 bytes. Real ones have some forty.
const MOST_DYNAMIC_BYTES: u64 = 64 << 10;
/// More names than this in the version tables make a file malformed. glibc defines about fifty, libstdc++ about sixty.
const MOST_VERSIONS: usize = 4096;
/// PATH_MAX: no longer name can be opened.
const LONGEST_NAME: u64 = 4096;
/// Room for a list of paths.
const LONGEST_PATH_LIST: u64 = 64 << 10;
const VER_FLG_BASE: u16 = 1;
const VER_FLG_WEAK: u16 = 2;

/// The decoded entries of a dynamic section, with its string table.
pub struct Dynamic {
    entries: Vec<Dyn>,
    strings: Option<Strings>,
}

/// Where the dynamic string table lies in the file, and the part of it read last: needed names are neighbours.
struct Strings {
    offset: u64,
    size: u64,
    window: RefCell<(u64, Vec<u8>)>,
}

impl Elf<'_> {
    /// The dynamic section, or `None` for a file without one (an object, a static executable).
    pub fn dynamic(&self) -> Result<Option<&Dynamic>> {
        if let Some(dynamic) = self.dynamic.get() {
            return Ok(dynamic.as_ref());
        }
        let dynamic = self.read_dynamic()?;
        Ok(self.dynamic.get_or_init(|| dynamic).as_ref())
    }

    fn read_dynamic(&self) -> Result<Option<Dynamic>> {
        const WHAT: &str = "the dynamic section";
        let Some(segment) = self.segment(PT_DYNAMIC) else { return Ok(None) };
        // The loader finds it by address; the offset is only a copy of that. Split-off debug files have the one without the other.
        let Some((offset, rest)) = self.offset_of(segment.p_vaddr) else {
            return Err(ElfError::Malformed("the dynamic section is in no loaded segment"));
        };
        let size = segment.p_memsz.min(rest);
        let bytes = self.read(WHAT, offset, size, MOST_DYNAMIC_BYTES)?;
        let here = ProgramHeader { p_type: PT_DYNAMIC, p_offset: 0, p_filesz: bytes.len() as u64, ..ProgramHeader::new() };
        let entries = match Entries::parse(&bytes, &[here], self.ctx) {
            Ok(Some(parsed)) => parsed.dyns,
            Ok(None) | Err(_) => return Err(ElfError::Malformed(WHAT)),
        };
        let mut dynamic = Dynamic { entries, strings: None };
        if let (Some(address), Some(size)) = (dynamic.value(dynamic::DT_STRTAB), dynamic.value(dynamic::DT_STRSZ)) {
            let (offset, rest) = self.offset_of(address).ok_or(ElfError::Malformed("address of the dynamic string table"))?;
            dynamic.strings = Some(Strings { offset, size: size.min(rest), window: RefCell::default() });
        }
        Ok(Some(dynamic))
    }

    /// A name of the dynamic string table.
    fn name(&self, dynamic: &Dynamic, at: u64) -> Result<String> {
        self.string(dynamic, at, LONGEST_NAME)
    }

    fn string(&self, dynamic: &Dynamic, at: u64, longest: u64) -> Result<String> {
        const WHAT: &str = "the dynamic string table";
        let strings = dynamic.strings.as_ref().ok_or(ElfError::Malformed("no dynamic string table"))?;
        if at >= strings.size {
            return Err(ElfError::Malformed("name outside the dynamic string table"));
        }
        let mut window = strings.window.borrow_mut();
        let cached = |window: &(u64, Vec<u8>)| {
            let from = usize::try_from(at.checked_sub(window.0)?).ok()?;
            let rest = window.1.get(from..)?;
            Some(text(rest.get(..memchr::memchr(0, rest)?)?))
        };
        if let Some(name) = cached(&window) {
            return Ok(name);
        }
        let size = longest.min(strings.size - at);
        let start = strings.offset.saturating_add(at);
        *window = (at, read_up_to(self.file, start, size)?);
        if let Some(name) = cached(&window) {
            return Ok(name);
        }
        if (window.1.len() as u64) < size {
            return Err(super::cut_short(WHAT, start.saturating_add(size), self.file));
        }
        Err(ElfError::Malformed("name without an end in the dynamic string table"))
    }

    /// Whether the string at this place of the dynamic string table is `name`.
    pub(super) fn is_named(&self, dynamic: &Dynamic, at: u64, name: &str) -> Result<bool> {
        const WHAT: &str = "the dynamic string table";
        let strings = dynamic.strings.as_ref().ok_or(ElfError::Malformed("no dynamic string table"))?;
        let size = name.len() as u64 + 1;
        if at.saturating_add(size) > strings.size {
            return Ok(false);
        }
        let bytes = self.read(WHAT, strings.offset.saturating_add(at), size, size)?;
        Ok(bytes.strip_suffix(b"\0") == Some(name.as_bytes()))
    }

    /// DT_NEEDED, in the order in which the loader loads.
    pub fn needed(&self) -> Result<Vec<String>> {
        let Some(dynamic) = self.dynamic()? else { return Ok(Vec::new()) };
        dynamic.values(dynamic::DT_NEEDED).map(|at| self.name(dynamic, at)).collect()
    }

    pub fn soname(&self) -> Result<Option<String>> {
        let Some(dynamic) = self.dynamic()? else { return Ok(None) };
        dynamic.value(dynamic::DT_SONAME).map(|at| self.name(dynamic, at)).transpose()
    }

    /// DT_RPATH, split at the colons and otherwise as written.
    pub fn rpath(&self) -> Result<Option<Vec<String>>> {
        self.search_path(dynamic::DT_RPATH)
    }

    /// DT_RUNPATH, split at the colons and otherwise as written.
    pub fn runpath(&self) -> Result<Option<Vec<String>>> {
        self.search_path(dynamic::DT_RUNPATH)
    }

    fn search_path(&self, tag: u64) -> Result<Option<Vec<String>>> {
        let Some(dynamic) = self.dynamic()? else { return Ok(None) };
        let Some(at) = dynamic.value(tag) else { return Ok(None) };
        let path = self.string(dynamic, at, LONGEST_PATH_LIST)?;
        Ok(Some(path.split(':').map(str::to_owned).collect()))
    }

    /// DT_FLAGS_1, 0 where there is none.
    pub fn flags_1(&self) -> Result<u64> {
        Ok(self.dynamic()?.and_then(|dynamic| dynamic.value(dynamic::DT_FLAGS_1)).unwrap_or(0))
    }

    /// The version nodes this file defines, without the base node, which is the file's own name.
    pub fn version_definitions(&self) -> Result<Vec<String>> {
        const WHAT: &str = "the version definitions";
        let Some((dynamic, offset, rest, count)) = self.version_table(dynamic::DT_VERDEF, dynamic::DT_VERDEFNUM)? else {
            return Ok(Vec::new());
        };
        self.in_growing_windows(WHAT, offset, rest, |bytes| {
            let table = section(SHT_GNU_VERDEF, bytes, count);
            let Ok(Some(table)) = VerdefSection::parse(bytes, &[table], self.ctx) else { return Ok(None) };
            let (mut names, mut seen) = (Vec::new(), 0);
            for definition in table.iter() {
                seen += 1;
                if seen > MOST_VERSIONS {
                    return Err(ElfError::Malformed(WHAT));
                }
                // The first of the names is the node's own, the others are its parents.
                let Some(name) = definition.iter().next() else { return Ok(None) };
                if definition.vd_flags & VER_FLG_BASE == 0 {
                    names.push(self.name(dynamic, name.vda_name as u64)?);
                }
            }
            Ok((seen as u64 == count).then_some(names))
        })
    }

    /// The version nodes this file needs, by library, in the order of the table.
    pub fn version_needs(&self) -> Result<Vec<VersionNeed>> {
        const WHAT: &str = "the needed versions";
        let Some((dynamic, offset, rest, count)) = self.version_table(dynamic::DT_VERNEED, dynamic::DT_VERNEEDNUM)? else {
            return Ok(Vec::new());
        };
        self.in_growing_windows(WHAT, offset, rest, |bytes| {
            let table = section(SHT_GNU_VERNEED, bytes, count);
            let Ok(Some(table)) = VerneedSection::parse(bytes, &[table], self.ctx) else { return Ok(None) };
            let (mut needs, mut seen) = (Vec::new(), 0);
            for library in table.iter() {
                let mut need = VersionNeed { library: self.name(dynamic, library.vn_file as u64)?, versions: Vec::new(), weak: Vec::new() };
                let mut names = 0;
                for version in library.iter() {
                    (names, seen) = (names + 1, seen + 1);
                    if seen > MOST_VERSIONS {
                        return Err(ElfError::Malformed(WHAT));
                    }
                    let list = if version.vna_flags & VER_FLG_WEAK == 0 { &mut need.versions } else { &mut need.weak };
                    list.push(self.name(dynamic, version.vna_name as u64)?);
                }
                if names != library.vn_cnt {
                    return Ok(None);
                }
                needs.push(need);
                if needs.len() > MOST_VERSIONS {
                    return Err(ElfError::Malformed(WHAT));
                }
            }
            Ok((needs.len() as u64 == count).then_some(needs))
        })
    }

    /// Where a version table lies: the dynamic section, offset, bytes to the end of the segment, number of entries.
    fn version_table(&self, table: u64, number: u64) -> Result<Option<(&Dynamic, u64, u64, u64)>> {
        let Some(dynamic) = self.dynamic()? else { return Ok(None) };
        let (Some(address), Some(count)) = (dynamic.value(table), dynamic.value(number)) else { return Ok(None) };
        if count == 0 {
            return Ok(None);
        }
        let (offset, rest) = self.offset_of(address).ok_or(ElfError::Malformed("address of a version table"))?;
        Ok(Some((dynamic, offset, rest, count)))
    }

    /// The dynamic section gives no size for the version tables, only the number of their entries: a small window is tried
    /// first, and `parse` answers `None` when the table goes on behind it.
    fn in_growing_windows<T>(&self, what: &'static str, offset: u64, rest: u64, parse: impl Fn(&[u8]) -> Result<Option<T>>) -> Result<T> {
        for window in [8 << 10, 1 << 20] {
            let bytes = read_up_to(self.file, offset, rest.min(window))?;
            if let Some(table) = parse(&bytes)? {
                return Ok(table);
            }
            if (bytes.len() as u64) < rest.min(window) {
                return Err(super::cut_short(what, offset.saturating_add(rest.min(window)), self.file));
            }
        }
        Err(ElfError::Malformed(what))
    }
}

impl Dynamic {
    /// Where the string table lies in the file, and its length in bytes.
    pub(super) fn strings_at(&self) -> Option<(u64, u64)> {
        self.strings.as_ref().map(|strings| (strings.offset, strings.size))
    }

    /// The value of the first entry with this tag.
    pub fn value(&self, tag: u64) -> Option<u64> {
        self.values(tag).next()
    }

    /// The values of all entries with this tag, in order.
    pub fn values(&self, tag: u64) -> impl Iterator<Item = u64> + '_ {
        self.entries.iter().filter(move |entry| entry.d_tag == tag).map(|entry| entry.d_val)
    }
}

/// goblin reads version tables by section header; the loader, and we, find them by the dynamic section.
fn section(kind: u32, bytes: &[u8], count: u64) -> SectionHeader {
    let count = u32::try_from(count).unwrap_or(u32::MAX);
    SectionHeader { sh_type: kind, sh_size: bytes.len() as u64, sh_info: count, ..SectionHeader::new() }
}
