//! The loader's own side: its cache, its default folders, what it preloads.

use crate::binary::elf::{Elf, summarise};
use crate::binary::ldcache::{Hwcap, LdCache};
use crate::binary::read::read_vec;
use crate::binary::scan::section;
use crate::collect::host::programs;
use crate::collect::open;
use crate::facts::elf::{ElfFacts, Machine};
use crate::facts::loader::CacheEntry;
use crate::facts::observed::Observed;
use crate::facts::raw::HostPath;
use crate::host::Host;
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

pub struct System {
    pub cache: Observed<Vec<CacheEntry>>,
    pub default_folders: Vec<PathBuf>,
    pub preload: Vec<HostPath>,
}

pub fn look(host: &dyn Host) -> System {
    let program = programs().find_map(|path| summarise(&open(host, Path::new(path)).ok()?).ok());
    System { cache: cache(host, program.as_ref()), default_folders: default_folders(host, program.as_ref()), preload: preload(host) }
}

fn cache(host: &dyn Host, program: Option<&ElfFacts>) -> Observed<Vec<CacheEntry>> {
    entries(host, program, |soname| super::family(soname).is_some())
}

/// The entries of these names, for this machine's own programs.
pub fn cached(host: &dyn Host, wanted: impl Fn(&str) -> bool) -> Observed<Vec<CacheEntry>> {
    let program = programs().find_map(|path| summarise(&open(host, Path::new(path)).ok()?).ok());
    entries(host, program.as_ref(), wanted)
}

fn entries(host: &dyn Host, program: Option<&ElfFacts>, wanted: impl Fn(&str) -> bool) -> Observed<Vec<CacheEntry>> {
    const PATH: &str = "/etc/ld.so.cache";
    let file = match open(host, Path::new(PATH)) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Observed::absent([PATH]),
        Err(error) => return Observed::failed(format!("`{PATH}`: {error}")),
    };
    let cache = match LdCache::read(&file) {
        Ok(cache) => cache,
        Err(error) => return Observed::failed(format!("`{PATH}`: {error}")),
    };
    let own = program.map(|elf| (elf.machine, elf.class_bits));
    let named = [Machine::X86_64, Machine::AARCH64];
    let entries = cache.entries().filter(|entry| {
        // Entries for better processors are copies of the plain ones; none of these libraries is known to have any.
        wanted(&entry.soname)
            && entry.is_libc6()
            && entry.hwcap == Hwcap::Any
            && match (entry.abi(), own) {
                (Some(abi), Some(own)) => (abi.machine, abi.class_bits) == own,
                // 64-bit x86 and ARM always name their ABI.
                (None, Some((machine, _))) => !named.contains(&machine),
                (_, None) => true,
            }
    });
    let entries = entries.map(|entry| CacheEntry {
        exists: host.exists(Path::new(&*entry.path)),
        soname: entry.soname.into_owned(),
        path: HostPath::new(entry.path.into_owned()),
    });
    Observed::seen(entries.collect())
}

/// The folders that are built into the loader; those of the usual distributions where they cannot be read.
fn default_folders(host: &dyn Host, program: Option<&ElfFacts>) -> Vec<PathBuf> {
    let stated = program.and_then(|elf| elf.interpreter.as_deref()).and_then(|loader| built_in(host, Path::new(loader)));
    stated.unwrap_or_else(|| {
        let multiarch =
            ["x86_64-linux-gnu", "aarch64-linux-gnu"].into_iter().find(|name| host.is_folder(&Path::new("/usr/lib").join(name)));
        let folders = match multiarch {
            Some(name) => vec![format!("/lib/{name}"), format!("/usr/lib/{name}"), "/lib".to_owned(), "/usr/lib".to_owned()],
            None => ["/lib64", "/usr/lib64", "/lib", "/usr/lib"].map(str::to_owned).to_vec(),
        };
        folders.into_iter().map(PathBuf::from).collect()
    })
}

fn built_in(host: &dyn Host, loader: &Path) -> Option<Vec<PathBuf>> {
    /// glibc's loader has 50 KB of constants, musl's, which is the whole C library, 200.
    const MOST: u64 = 4 << 20;
    let file = open(host, loader).ok()?;
    let elf = Elf::open(&file).ok()?;
    let range = section(&elf, ".rodata").ok()?.range;
    folders_in(&read_vec(&file, range.start, range.end.checked_sub(range.start)?, MOST).ok()?)
}

/// glibc keeps its `system_dirs` as strings one behind the other, each with a slash at its end (elf/dl-load.c); musl one list with
/// colons (ldso/dynlink.c).
fn folders_in(constants: &[u8]) -> Option<Vec<PathBuf>> {
    let mut run: Vec<&[u8]> = Vec::new();
    let folder = |text: &[u8]| text.len() > 2 && text.starts_with(b"/") && text.ends_with(b"/");
    // The last string ends the last run.
    for text in constants.split(|b| *b == 0).chain([&b""[..]]) {
        if folder(text) {
            run.push(text);
            continue;
        }
        if run.len() > 1 && run.iter().any(|text| text.ends_with(b"/lib/") || text.ends_with(b"/lib64/")) {
            return Some(run.iter().map(|text| path(text.strip_suffix(b"/").unwrap_or(text))).collect());
        }
        run.clear();
    }
    let list = constants.split(|b| *b == 0).find(|text| text.starts_with(b"/lib:/"))?;
    Some(list.split(|b| *b == b':').map(path).collect())
}

fn path(text: &[u8]) -> PathBuf {
    OsStr::from_bytes(text).into()
}

/// Source of the form: ld.so(8), blanks or colons between, `#` begins a comment.
fn preload(host: &dyn Host) -> Vec<HostPath> {
    let Ok(bytes) = host.read(Path::new("/etc/ld.so.preload"), 1 << 16) else { return Vec::new() };
    let lines = bytes.split(|b| *b == b'\n').map(|line| line.split(|b| *b == b'#').next().unwrap_or_default());
    let words = lines.flat_map(|line| line.split(|b| b.is_ascii_whitespace() || *b == b':'));
    words.filter(|word| !word.is_empty()).map(|word| path(word).into()).collect()
}

#[cfg(test)]
#[expect(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn folders_built_into_loaders() {
        let glibc = b"x\0/etc/ld.so.cache\0/\0/lib/x86_64-linux-gnu/\0/usr/lib/x86_64-linux-gnu/\0/lib/\0/usr/lib/\0unexpected\0";
        let read: Vec<_> = folders_in(glibc).unwrap().into_iter().map(|p| p.display().to_string()).collect();
        assert_eq!(read, ["/lib/x86_64-linux-gnu", "/usr/lib/x86_64-linux-gnu", "/lib", "/usr/lib"]);
        assert_eq!(folders_in(b"\0/lib64/\0/usr/lib64/\0").unwrap().len(), 2);
        assert_eq!(folders_in(b"a\0/lib:/usr/local/lib:/usr/lib\0").unwrap().len(), 3);
        assert_eq!(folders_in(b"/proc/self/\0/sys/\0/lib"), None);
        assert_eq!(folders_in(b""), None);
    }
}
