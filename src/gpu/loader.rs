//! Opening a driver library and saying which file that was.
#![expect(unsafe_code, reason = "dlopen and dlsym")]
#![expect(clippy::disallowed_methods, reason = "runs in the worker, which looks at its own memory map")]

use super::protocol::Trouble;
use crate::facts::gpu::Library;
use crate::facts::raw::HostPath;
use crate::version::Dotted;
use libloading::os::unix;
use std::error::Error;
use std::mem::ManuallyDrop;
use std::path::{Path, PathBuf};

/// A driver library that stays open until the process ends: unloading one has hung and crashed, and threads of it may still run.
pub struct Loaded {
    handle: ManuallyDrop<unix::Library>,
    pub asked: String,
    /// The file behind the name. None when it cannot be told.
    pub path: Option<PathBuf>,
}

/// Opens `name` (searched for) or an absolute path. `known` is a function of the library, used to find the file it came from.
pub fn open(name: &str, known: &str) -> Result<Loaded, Trouble> {
    // RTLD_LOCAL: its symbols must not take the place of others. RTLD_LAZY, as libcudart opens it: a function that is missing but never
    // called does no harm.
    // SAFETY: the library's initialisers run. They are foreign code, which is why this process exists.
    let opened = unsafe { unix::Library::open(Some(name), unix::RTLD_LAZY | unix::RTLD_LOCAL) };
    let handle = match opened {
        Ok(handle) => ManuallyDrop::new(handle),
        Err(e) => {
            let why = words(&e);
            // The loader names the file that it could not open; another name than ours is a missing dependency of a file that is there.
            let absent = why.contains("No such file or directory") && why.starts_with(&format!("{name}:"));
            return Err(if absent { Trouble::NotFound(why) } else { Trouble::Unusable(why) });
        }
    };
    let mut loaded = Loaded { handle, asked: name.to_owned(), path: None };
    loaded.path = loaded.address(known).and_then(|address| {
        let maps = std::fs::read_to_string("/proc/self/maps").ok()?;
        mapped_file(&maps, address)
    });
    Ok(loaded)
}

/// Opens a library by its path, every symbol bound now; with `global` for those that are loaded later to use too, as torch loads CUDA's.
pub fn bind(path: &Path, global: bool) -> Result<Loaded, Trouble> {
    let flags = unix::RTLD_NOW | if global { unix::RTLD_GLOBAL } else { unix::RTLD_LOCAL };
    // SAFETY: the library's initialisers run. They are foreign code, which is why this process exists.
    match unsafe { unix::Library::open(Some(path), flags) } {
        Ok(handle) => Ok(Loaded { handle: ManuallyDrop::new(handle), asked: path.display().to_string(), path: Some(path.to_owned()) }),
        Err(e) => Err(Trouble::Unusable(words(&e))),
    }
}

/// The shared libraries that are mapped into this process.
pub fn mapped() -> Vec<PathBuf> {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
    let mut found: Vec<PathBuf> = maps.lines().filter_map(|line| line.find('/').map(|at| PathBuf::from(&line[at..]))).collect();
    found.retain(|path| path.file_name().is_some_and(|name| name.to_string_lossy().contains(".so")));
    found.sort();
    found.dedup();
    found
}

impl Loaded {
    /// A function of the library.
    ///
    /// # Safety
    /// `T` must be a function pointer of the type that the library gives this symbol.
    pub unsafe fn function<T: Copy>(&self, name: &str) -> Result<T, Trouble> {
        // SAFETY: the caller vouches for the type; the handle is never closed, so the pointer stays valid.
        match unsafe { self.handle.get::<T>(name.as_bytes()) } {
            Ok(symbol) => Ok(*symbol),
            Err(_) => Err(Trouble::Unusable(format!("{} has no function {name}", self.shown()))),
        }
    }

    fn address(&self, symbol: &str) -> Option<usize> {
        // SAFETY: the address is only looked at, never called or read through.
        let symbol = unsafe { self.handle.get::<*const ()>(symbol.as_bytes()) }.ok()?;
        Some(symbol.into_raw() as usize)
    }

    pub fn shown(&self) -> String {
        self.path.as_deref().map_or_else(|| self.asked.clone(), |p| p.display().to_string())
    }

    pub fn fact(&self) -> Library {
        let version = self.path.as_deref().and_then(version_in_name);
        Library { asked: self.asked.clone(), path: self.path.clone().map(HostPath), version }
    }
}

/// The innermost cause: libloading's own text says only `dlopen failed`, the loader's words are in the source.
fn words(error: &libloading::Error) -> String {
    error.source().map_or_else(|| error.to_string(), ToString::to_string)
}

/// The file mapped at `address`, from the text of `/proc/self/maps`.
fn mapped_file(maps: &str, address: usize) -> Option<PathBuf> {
    maps.lines().find_map(|line| {
        let (range, rest) = line.split_once(' ')?;
        let (low, high) = range.split_once('-')?;
        let within = usize::from_str_radix(low, 16).ok()? <= address && address < usize::from_str_radix(high, 16).ok()?;
        let path = &rest[rest.find('/')?..];
        (within && !path.ends_with(" (deleted)")).then(|| PathBuf::from(path))
    })
}

/// Driver libraries carry their release in the name of the file: `libcuda.so.550.144.03`. A mere SONAME (`libcuda.so.1`) says nothing.
fn version_in_name(path: &Path) -> Option<Dotted> {
    let (_, version) = path.file_name()?.to_str()?.split_once(".so.")?;
    let version: Dotted = version.parse().ok()?;
    (version.parts.len() > 1).then_some(version)
}

#[cfg(test)]
#[expect(clippy::unwrap_used, clippy::panic)]
mod tests {
    use super::*;

    #[test]
    fn the_file_behind_an_address() {
        let maps = "55d0c0000000-55d0c0001000 r--p 00000000 08:01 1 /usr/bin/x\n\
                    7f00a0000000-7f00a0010000 r-xp 00001000 08:01 42                         /opt/a b/libcuda.so.550.54\n\
                    7f00b0000000-7f00b0001000 rw-p 00000000 00:00 0 \n\
                    7f00c0000000-7f00c0001000 r-xp 00000000 08:01 7 /tmp/gone.so (deleted)\n";
        assert_eq!(mapped_file(maps, 0x7f00_a000_0008).unwrap(), Path::new("/opt/a b/libcuda.so.550.54"));
        for nowhere in [0x7f00_a001_0000, 0x7f00_b000_0000, 0x7f00_c000_0000, 0] {
            assert_eq!(mapped_file(maps, nowhere), None, "{nowhere:x}");
        }
        assert_eq!(mapped_file("rubbish\n-\n1-2 /\n", 5), None);
    }

    #[test]
    fn release_in_a_file_name() {
        assert_eq!(version_in_name(Path::new("/x/libnvidia-ml.so.535.261.03")).unwrap().to_string(), "535.261.03");
        for name in ["/x/libcuda.so.1", "/x/libcuda.so", "/x/libcuda.so.one.two", "/"] {
            assert!(version_in_name(Path::new(name)).is_none(), "{name}");
        }
    }

    #[test]
    fn absent_and_unusable_are_told_apart() {
        assert!(matches!(open("libno-such-library.so.1", "f"), Err(Trouble::NotFound(_))));
        let folder = tempfile::tempdir().unwrap();
        let junk = folder.path().join("libjunk.so.1");
        std::fs::write(&junk, "not a library").unwrap();
        match open(junk.to_str().unwrap(), "f") {
            Err(Trouble::Unusable(why)) => assert!(why.contains("file too short") || why.contains("invalid ELF header"), "{why}"),
            _ => panic!("junk was opened"),
        }
    }
}
