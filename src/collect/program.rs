//! Programs by name, in every folder that some search could look through.

mod kind;
mod names;

pub use kind::Inspector;
pub use names::{Asked, asked, of_interest, stem};

use super::env::reason;
use super::{Notes, search};
use crate::facts::program::{Program, ProgramKind};
use crate::host::{Entry, Host, Kind};
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

/// Programs of interest in the folders of PATH, of the toolkits (given by their roots), of Python environments and in the usual
/// places, in that order. A folder that is named twice is listed once; a link to a folder is another name, so both are there.
pub fn collect(host: &dyn Host, toolkits: &[PathBuf], notes: &mut Notes) -> Vec<Program> {
    let asked = names::asked(host);
    let inspector = Inspector::new(host);
    let mut look = Look::new(host, &inspector, &asked);
    let mut folders = folders(host, toolkits);
    folders.extend(asked.paths.iter().filter(|path| host.is_folder(path)).cloned());
    let mut seen = BTreeSet::new();
    for folder in folders.into_iter().filter(|folder| seen.insert(folder.clone())) {
        look.folder(&folder, notes);
    }
    for path in &asked.paths {
        look.path(path);
    }
    look.found
}

/// Of each of the names the first that a search of PATH takes, and what it passes over; of those that PATH has not, what is in the usual
/// places.
pub fn named(host: &dyn Host, names: &[&str]) -> Vec<Program> {
    let (asked, inspector) = (names::Asked::default(), Inspector::new(host));
    let mut look = Look::new(host, &inspector, &asked);
    let path: Vec<PathBuf> = match host.var("PATH") {
        Some(_) => search::entries(host, "PATH").into_iter().map(|entry| entry.path).collect(),
        None => ["/bin", "/usr/bin"].map(PathBuf::from).into(),
    };
    for name in names {
        for folder in path.iter().map(PathBuf::as_path).chain(USUAL.map(Path::new)) {
            let at = folder.join(name);
            if let Ok(meta) = host.metadata(&at)
                && matches!(meta.kind, Kind::File | Kind::Folder)
                && let Ok(real) = host.real_path(&at)
            {
                look.add(at, real);
                if look.found.last().is_some_and(Program::found_by_search) {
                    break;
                }
            }
        }
    }
    look.found
}

const USUAL: [&str; 6] = ["/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"];

/// The folders to look through.
fn folders(host: &dyn Host, toolkits: &[PathBuf]) -> Vec<PathBuf> {
    let mut folders: Vec<PathBuf> = search::entries(host, "PATH").into_iter().map(|entry| entry.path).collect();
    folders.extend(toolkits.iter().flat_map(|root| [root.join("bin"), root.join("nvvm/bin")]));
    for (name, below) in [("VIRTUAL_ENV", "bin"), ("CONDA_PREFIX", "bin"), ("EBROOTGCC", "bin"), ("HOME", ".local/bin")] {
        folders.extend(search::variable(host, name).map(|path| path.join(below)));
    }
    folders.extend(host.cwd().map(|cwd| cwd.join(".venv/bin")));
    folders.extend(USUAL.iter().map(PathBuf::from));
    // Red Hat's newer and older compilers, each in a tree of its own.
    if let Ok(collections) = host.list(Path::new("/opt/rh")) {
        folders.extend(collections.iter().map(|entry| Path::new("/opt/rh").join(&entry.name).join("root/usr/bin")));
    }
    folders
}

struct Look<'a> {
    host: &'a dyn Host,
    inspector: &'a Inspector<'a>,
    asked: &'a names::Asked,
    /// By real folder: the entries of interest.
    listed: BTreeMap<PathBuf, Vec<Entry>>,
    /// By real file.
    kinds: BTreeMap<PathBuf, ProgramKind>,
    found: Vec<Program>,
}

impl<'a> Look<'a> {
    fn new(host: &'a dyn Host, inspector: &'a Inspector<'a>, asked: &'a names::Asked) -> Self {
        Self { host, inspector, asked, listed: BTreeMap::new(), kinds: BTreeMap::new(), found: Vec::new() }
    }

    fn folder(&mut self, folder: &Path, notes: &mut Notes) {
        let Ok(real) = self.host.real_path(folder) else { return };
        if !self.listed.contains_key(&real) {
            let entries = self.list(&real, notes);
            self.listed.insert(real.clone(), entries);
        }
        for entry in self.listed.get(&real).cloned().unwrap_or_default() {
            let path = folder.join(&entry.name);
            match entry.kind {
                Kind::Link => match self.host.real_path(&path) {
                    Ok(real) => self.add(path, real),
                    Err(error) => notes.push(format!("`{}` is a link that leads nowhere: {}", path.display(), reason(&error))),
                },
                Kind::Other => {}
                Kind::File | Kind::Folder => self.add(path, real.join(&entry.name)),
            }
        }
    }

    fn list(&self, folder: &Path, notes: &mut Notes) -> Vec<Entry> {
        match self.host.list(folder) {
            Ok(mut entries) => {
                entries.retain(|entry| self.wanted(&entry.name));
                entries
            }
            Err(error) => {
                if error.kind() != ErrorKind::NotADirectory {
                    notes.push(format!("`{}` cannot be listed: {}", folder.display(), reason(&error)));
                }
                // A folder that may be searched but not listed still serves every search.
                if error.kind() == ErrorKind::PermissionDenied { self.probe(folder) } else { Vec::new() }
            }
        }
    }

    fn probe(&self, folder: &Path) -> Vec<Entry> {
        let names = names::plain_names().iter().copied().chain(["python3", "pip3"]).chain(self.asked.names.iter().map(String::as_str));
        names.filter_map(|name| Some(Entry { name: name.into(), kind: self.host.link_metadata(&folder.join(name)).ok()?.kind })).collect()
    }

    fn wanted(&self, name: &OsStr) -> bool {
        name.to_str().is_some_and(|name| names::of_interest(name) || self.asked.names.contains(name))
    }

    /// A file that a variable names by its path.
    fn path(&mut self, path: &Path) {
        let real: io::Result<PathBuf> = self.host.real_path(path);
        if let Ok(real) = real
            && self.host.is_file(&real)
            && !self.found.iter().any(|program| *program.path == *path)
        {
            self.add(path.to_owned(), real);
        }
    }

    fn add(&mut self, path: PathBuf, real: PathBuf) {
        let Some(name) = path.file_name().map(|name| name.to_string_lossy().into_owned()) else { return };
        let kind = match self.kinds.get(&real) {
            Some(kind) => kind.clone(),
            None => {
                let kind = self.inspector.kind(&real);
                self.kinds.insert(real.clone(), kind.clone());
                kind
            }
        };
        self.found.push(Program { name, path: path.into(), real: real.into(), kind });
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, clippy::panic, clippy::disallowed_methods)]
mod tests {
    use super::*;
    use crate::host::{Environment, Rooted};
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};

    fn put(root: &Path, path: &str, bytes: &[u8], mode: u32) {
        let at = root.join(path);
        fs::create_dir_all(at.parent().unwrap()).unwrap();
        fs::write(&at, bytes).unwrap();
        fs::set_permissions(&at, fs::Permissions::from_mode(mode)).unwrap();
    }

    fn look(root: &Path, env: &[(&str, &str)]) -> (Vec<Program>, Notes) {
        let env: Environment = env.iter().map(|(name, value)| (name.into(), value.into())).collect();
        let mut notes = Notes::new();
        (collect(&Rooted::new(root, env).unwrap(), &["/opt/cuda".into()], &mut notes), notes)
    }

    fn kind<'a>(found: &'a [Program], path: &str) -> &'a ProgramKind {
        &found.iter().find(|program| &*program.path == Path::new(path)).unwrap_or_else(|| panic!("{path} in {found:#?}")).kind
    }

    #[test]
    fn every_kind_of_file() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path();
        let own = fs::read("/bin/sh").unwrap();
        put(root, "bin/sh", &own, 0o755);
        put(root, "lib64/ld-linux-x86-64.so.2", &own, 0o755);
        put(root, "lib/ld-linux-aarch64.so.1", &own, 0o755);
        put(root, "usr/bin/env", b"#!/bin/sh\n", 0o755);
        put(root, "usr/bin/gcc-12", &own, 0o755);
        symlink("gcc-12", root.join("usr/bin/gcc")).unwrap();
        symlink("none", root.join("usr/bin/clang")).unwrap();
        put(root, "usr/bin/cc", &own[..own.len() / 2], 0o755);
        let mut other = own.clone();
        other[18] ^= 0xff;
        put(root, "usr/bin/g++", &other, 0o755);
        put(root, "usr/bin/ninja", b"#!/usr/bin/env python3\nprint()\n", 0o755);
        put(root, "usr/bin/pip", b"#! /none/python3 -s\n", 0o755);
        put(root, "usr/bin/pip3", b"#!/bin/sh\r\n", 0o755);
        put(root, "usr/bin/ccache", b"", 0o755);
        put(root, "usr/bin/make", b"echo\n", 0o755);
        put(root, "usr/bin/cmake", &own, 0o644);
        put(root, "usr/bin/unrelated", &own, 0o755);
        fs::create_dir_all(root.join("usr/bin/nvcc")).unwrap();
        put(root, "opt/cuda/bin/nvcc", &own, 0o755);
        put(root, "opt/my/icpx", &own, 0o755);
        symlink("usr/bin", root.join("sbin")).unwrap();

        let (found, notes) = look(root, &[("PATH", "/usr/bin:/missing:/usr/bin/env:/usr/bin"), ("CXX", "/opt/my/icpx -O2")]);
        assert_eq!(*kind(&found, "/usr/bin/gcc"), ProgramKind::Elf);
        assert_eq!(&*found.iter().find(|p| p.name == "gcc").unwrap().real, Path::new("/usr/bin/gcc-12"));
        assert!(matches!(kind(&found, "/usr/bin/cc"), ProgramKind::Broken { why } if why.contains("cut short")));
        assert!(matches!(kind(&found, "/usr/bin/g++"), ProgramKind::Broken { why } if why.contains("system")));
        let script = |name: &str, found: bool| ProgramKind::Script { interpreter: name.into(), interpreter_found: found };
        assert_eq!(*kind(&found, "/usr/bin/ninja"), script("/usr/bin/env python3", false));
        assert_eq!(*kind(&found, "/usr/bin/pip"), script("/none/python3", false));
        assert_eq!(*kind(&found, "/usr/bin/pip3"), script("/bin/sh\r", false));
        assert!(matches!(kind(&found, "/usr/bin/ccache"), ProgramKind::Broken { why } if why.contains("empty")));
        assert!(matches!(kind(&found, "/usr/bin/make"), ProgramKind::Broken { why } if why.contains("#!")));
        assert_eq!(*kind(&found, "/usr/bin/cmake"), ProgramKind::NotExecutable);
        assert_eq!(*kind(&found, "/usr/bin/nvcc"), ProgramKind::Folder);
        assert_eq!(*kind(&found, "/opt/cuda/bin/nvcc"), ProgramKind::Elf);
        assert_eq!(*kind(&found, "/opt/my/icpx"), ProgramKind::Elf);
        assert_eq!(*kind(&found, "/sbin/gcc"), ProgramKind::Elf);
        assert!(!found.iter().any(|program| program.name == "unrelated" || program.name == "clang"));
        assert_eq!(found.iter().filter(|program| program.name == "gcc").count(), 2);
        assert!(notes.iter().any(|note| note.starts_with("`/usr/bin/clang` is a link that leads nowhere")), "{notes:?}");
    }

    #[test]
    fn a_script_whose_interpreter_is_on_path() {
        let dir = tempfile::tempdir().unwrap();
        put(dir.path(), "usr/bin/env", b"x", 0o755);
        put(dir.path(), "opt/py/bin/python3", b"x", 0o755);
        put(dir.path(), "usr/bin/ninja", b"#!/usr/bin/env -S python3 -E\n", 0o755);
        let (found, _) = look(dir.path(), &[("PATH", "/opt/py/bin")]);
        let ninja = ProgramKind::Script { interpreter: "/usr/bin/env python3".into(), interpreter_found: true };
        assert_eq!(*kind(&found, "/usr/bin/ninja"), ninja);
    }
}
