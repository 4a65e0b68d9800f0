//! Shared libraries that some search of the dynamic loader could meet: every copy, with what its own file says.

pub mod needs;
mod places;
mod release;
mod system;

use super::Notes;
use crate::binary::ReadAt;
use crate::binary::elf::summarise;
use crate::facts::elf::ElfFacts;
use crate::facts::loader::{FAMILIES, Library, LoaderFacts};
use crate::facts::observed::Observed;
use crate::facts::python::Interpreter;
use crate::facts::source::Source;
use crate::host::{Entry, Host, Kind, Meta};
use crate::version::Dotted;
use std::collections::HashMap;
use std::path::{Path, PathBuf};

/// `toolkits` are the folders that CUDA_HOME could name.
pub fn collect(host: &dyn Host, toolkits: &[PathBuf], pythons: &[Interpreter], notes: &mut Notes) -> Observed<LoaderFacts> {
    let system = system::look(host);
    let folders = places::folders(host, &system.default_folders, toolkits, pythons);
    let mut search = Search { host, pythons, files: HashMap::new(), listed: HashMap::new(), found: Vec::new(), at: HashMap::new() };
    for (folder, source) in folders {
        search.folder(&folder, source, notes);
    }
    for entry in system.cache.value().into_iter().flatten().filter(|entry| entry.exists) {
        let name = entry.path.file_name().and_then(|name| name.to_str()).unwrap_or_default().to_owned();
        search.file(&entry.path.0, &name, None, Source::LdCache);
    }
    Observed::seen(LoaderFacts {
        cache: system.cache,
        default_folders: system.default_folders.into_iter().map(Into::into).collect(),
        libraries: search.found,
        preload: system.preload,
        names: Default::default(),
    })
}

/// The family of a library by its file name: `libcudart.so`, `libcudart.so.12.4.127`.
fn family(name: &str) -> Option<&'static str> {
    FAMILIES.iter().find(|(_, start)| name.strip_prefix(start).is_some_and(is_version)).map(|(family, _)| *family)
}

/// Nothing, or `.12.4.127`: what a SONAME or a linker's name can have; not `.bak`, not `.a`.
fn is_version(rest: &str) -> bool {
    rest.is_empty()
        || rest
            .strip_prefix('.')
            .is_some_and(|rest| rest.split('.').all(|part| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit())))
}

/// What one file holds, under whichever names it is found.
#[derive(Debug, Clone)]
struct Content {
    size: u64,
    elf: Observed<ElfFacts>,
    release: Option<Dotted>,
    release_from: &'static str,
}

struct Search<'a> {
    host: &'a dyn Host,
    pythons: &'a [Interpreter],
    /// By device and inode: links and hard links are read once.
    files: HashMap<(u64, u64), Content>,
    /// Names of libraries in a folder, by device and inode: `/lib64` and `/usr/lib64` are listed once.
    listed: HashMap<(u64, u64), Vec<Entry>>,
    found: Vec<Library>,
    at: HashMap<PathBuf, usize>,
}

impl Search<'_> {
    fn folder(&mut self, folder: &Path, source: Source, notes: &mut Notes) {
        let Ok(meta) = self.host.metadata(folder) else { return };
        if meta.kind != Kind::Folder {
            return;
        }
        let key = (meta.device, meta.inode);
        if !self.listed.contains_key(&key) {
            let mut entries = self.host.list(folder).unwrap_or_else(|error| {
                notes.push(format!("`{}` cannot be listed: {error}", folder.display()));
                Vec::new()
            });
            entries.retain(|entry| entry.name.to_str().is_some_and(|name| family(name).is_some()));
            self.listed.insert(key, entries);
        }
        let entries = self.listed.get(&key).cloned().unwrap_or_default();
        if entries.is_empty() {
            return;
        }
        let real = self.host.real_path(folder).unwrap_or_else(|_| folder.to_owned());
        for entry in entries {
            let name = entry.name.to_string_lossy().into_owned();
            let real = (entry.kind != Kind::Link).then(|| real.join(&name));
            self.file(&folder.join(&name), &name, real, source.clone());
        }
    }

    /// `real`: where that is known already.
    fn file(&mut self, path: &Path, name: &str, real: Option<PathBuf>, source: Source) {
        let Some(family) = family(name) else { return };
        if let Some(known) = self.at.get(path).and_then(|at| self.found.get_mut(*at)) {
            if !known.sources.contains(&source) {
                known.sources.push(source);
            }
            return;
        }
        let (real, content) = match self.host.metadata(path) {
            Ok(meta) => {
                let real = real.or_else(|| self.host.real_path(path).ok()).unwrap_or_else(|| path.to_owned());
                let content = self.content(family, &real, &meta);
                (real, content)
            }
            Err(error) => (path.to_owned(), self.unreadable(path, &error)),
        };
        self.at.insert(path.to_owned(), self.found.len());
        self.found.push(Library {
            family: family.to_owned(),
            name: name.to_owned(),
            path: path.into(),
            real: real.into(),
            sources: vec![source],
            size: content.size,
            elf: content.elf,
            release: content.release,
            release_from: content.release_from.to_owned(),
        });
    }

    fn content(&mut self, family: &'static str, real: &Path, meta: &Meta) -> Content {
        let key = (meta.device, meta.inode);
        if let Some(known) = self.files.get(&key) {
            return known.clone();
        }
        let opened = super::open(self.host, real);
        let elf = match &opened {
            _ if meta.kind == Kind::Folder => Observed::failed("a folder, not a file"),
            Ok(file) => match summarise(file) {
                Ok(facts) => Observed::seen(facts),
                Err(error) => Observed::failed(error.to_string()),
            },
            Err(error) => Observed::failed(error.to_string()),
        };
        let file = opened.ok().filter(|_| elf.value().is_some());
        let (release, release_from) =
            release::of(self.host, self.pythons, family, real, meta, file.as_ref().map(|file| file as &dyn ReadAt));
        let content = Content { size: meta.len, elf, release, release_from };
        self.files.insert(key, content.clone());
        content
    }

    /// The loader goes past a link that leads nowhere as if it were not there.
    fn unreadable(&self, path: &Path, error: &std::io::Error) -> Content {
        let elf = match self.host.read_link(path) {
            Ok(target) if error.kind() == std::io::ErrorKind::NotFound => Observed::absent([target.display().to_string()]),
            _ => Observed::failed(error.to_string()),
        };
        Content { size: 0, elf, release: None, release_from: "" }
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, clippy::disallowed_methods)]
mod tests {
    use super::*;
    use crate::host::{Environment, Rooted};
    use std::fs;
    use std::os::unix::fs::symlink;

    #[test]
    fn names_of_families() {
        assert_eq!(family("libcudart.so.12.4.127"), Some("cudart"));
        assert_eq!(family("libcublasLt.so"), Some("cublasLt"));
        for other in ["libcudart.so.12.bak", "libcudart_static.a", "libcufftw.so.11", "libnvrtc.alt.so.12", "libcuda.so.", "libcuda.so.1."]
        {
            assert_eq!(family(other), None, "{other}");
        }
    }

    #[test]
    fn bad_files_are_facts() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        fs::create_dir_all(at("l/libcuda.so.1")).unwrap();
        fs::create_dir_all(at("m")).unwrap();
        fs::write(at("l/libcudart.so.12"), "").unwrap();
        fs::write(at("l/libnccl.so.2"), "/* GNU ld script */").unwrap();
        fs::write(at("l/libcublas.so.12"), b"\x7fELF\x02\x01\x01").unwrap();
        symlink("gone.so", at("l/libcurand.so.10")).unwrap();
        symlink("libcufft.so.11", at("l/libcufft.so.11")).unwrap();
        symlink("../l/libnccl.so.2", at("m/libnccl.so")).unwrap();
        symlink("l", at("n")).unwrap();
        let env: Environment = [("LD_LIBRARY_PATH".into(), "/none:/l;/m:/l/:/n".into())].into();
        let host = Rooted::new(dir.path(), env).unwrap();
        let facts = collect(&host, &[], &[], &mut Vec::new()).value().cloned().unwrap();
        let of = |path: &str| facts.libraries.iter().find(|library| *library.path == *Path::new(path)).unwrap();
        for (path, word) in [
            ("/l/libcuda.so.1", "folder"),
            ("/l/libcudart.so.12", "empty"),
            ("/l/libnccl.so.2", "not an ELF"),
            ("/l/libcublas.so.12", "cut short"),
            ("/l/libcufft.so.11", "symbolic links"),
        ] {
            assert!(matches!(&of(path).elf, Observed::Failed { why } if why.contains(word)), "{:?}", of(path).elf);
        }
        assert_eq!(of("/l/libcurand.so.10").elf, Observed::absent(["gone.so"]));
        assert_eq!(*of("/m/libnccl.so").real, *Path::new("/l/libnccl.so.2"));
        assert_eq!(of("/m/libnccl.so").sources, [Source::entry("LD_LIBRARY_PATH", 3)]);
        assert_eq!(of("/l/libnccl.so.2").sources, [Source::entry("LD_LIBRARY_PATH", 2), Source::entry("LD_LIBRARY_PATH", 4)]);
        assert_eq!(*of("/n/libnccl.so.2").real, *Path::new("/l/libnccl.so.2"));
        assert!(facts.cache.is_absent());
    }
}
