//! The libraries that certain files need, directly or through others: every copy that the loader's search for them could meet.
//!
//! The families of [`FAMILIES`](crate::facts::loader::FAMILIES) are always looked for; what else a file needs is known only when it is
//! asked about.

use super::{family, places, system};
use crate::binary::elf::summarise;
use crate::collect::open;
use crate::facts::elf::ElfFacts;
use crate::facts::loader::{CacheEntry, Library, LoaderFacts};
use crate::facts::observed::Observed;
use crate::facts::raw::HostPath;
use crate::host::{Host, Kind};
use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};
use std::path::{Path, PathBuf};

/// More libraries than any process loads: a tree of files that need each other without end stops here.
const MOST: usize = 4096;

/// Adds to `facts` what these files need: libraries, entries of the cache, and the names themselves. A file that does not exist on the
/// machine (a member of a wheel, where it would be installed) is a library like any other.
pub fn widen(host: &dyn Host, facts: &mut LoaderFacts, files: &[(HostPath, ElfFacts)], planned: &[Library]) {
    let cache = system::cached(host, |_| true);
    let mut of_name: HashMap<&str, Vec<&CacheEntry>> = HashMap::new();
    for entry in cache.value().into_iter().flatten() {
        of_name.entry(&entry.soname).or_default().push(entry);
    }
    let mut search = Search {
        host,
        known: facts.libraries.iter().map(|library| library.path.0.clone()).collect(),
        tried: HashSet::new(),
        folders: Vec::new(),
        names: facts.names.clone(),
        queue: VecDeque::new(),
        found: Vec::new(),
    };
    for library in planned {
        if search.known.insert(library.path.0.clone()) {
            search.found.push(library.clone());
        }
    }
    let variable = places::of_variable(host, "LD_LIBRARY_PATH").into_iter().map(|(folder, _)| folder);
    for folder in variable.chain(facts.default_folders.iter().map(|folder| folder.0.clone())) {
        search.folder(folder);
    }
    search.queue.extend(files.iter().cloned());
    let mut entries: Vec<CacheEntry> = Vec::new();
    while let Some((path, elf)) = search.queue.pop_front() {
        let origin = path.parent().unwrap_or(Path::new("/")).to_owned();
        for folder in places::search_path(&origin, elf.rpath.iter().chain(&elf.runpath).flatten()) {
            search.folder(folder);
        }
        for name in elf.needed.iter().filter(|name| !name.contains('/')) {
            if !search.names.insert(name.clone()) {
                continue;
            }
            for entry in of_name.get(name.as_str()).into_iter().flatten().filter(|entry| entry.exists) {
                search.file(&entry.path.0, name);
                if family(name).is_none() {
                    entries.push((*entry).clone());
                }
            }
            for folder in search.folders.clone() {
                search.file(&folder.join(name), name);
            }
            // Copies that are known already bring needs of their own.
            let known = facts.libraries.iter().filter(|library| library.name == *name);
            search.queue.extend(known.filter_map(|library| Some((library.path.clone(), library.elf.value()?.clone()))));
            let planned = planned.iter().filter(|library| library.name == *name);
            search.queue.extend(planned.filter_map(|library| Some((library.path.clone(), library.elf.value()?.clone()))));
        }
    }
    facts.names = search.names;
    facts.libraries.extend(search.found);
    if let Some(known) = facts.cache.value_mut() {
        entries.retain(|entry| !known.contains(entry));
        known.extend(entries);
    }
}

struct Search<'a> {
    host: &'a dyn Host,
    known: HashSet<PathBuf>,
    tried: HashSet<PathBuf>,
    folders: Vec<PathBuf>,
    names: BTreeSet<String>,
    queue: VecDeque<(HostPath, ElfFacts)>,
    found: Vec<Library>,
}

impl Search<'_> {
    fn folder(&mut self, folder: PathBuf) {
        if self.folders.contains(&folder) {
            return;
        }
        for name in self.names.clone() {
            self.file(&folder.join(&name), &name);
        }
        self.folders.push(folder);
    }

    fn file(&mut self, path: &Path, name: &str) {
        if self.found.len() >= MOST || !self.tried.insert(path.to_owned()) || self.known.contains(path) {
            return;
        }
        let Ok(meta) = self.host.metadata(path) else { return };
        let elf = match open(self.host, path) {
            _ if meta.kind == Kind::Folder => Observed::failed("a folder, not a file"),
            Ok(file) => summarise(&file).map_or_else(|error| Observed::failed(error.to_string()), Observed::seen),
            Err(error) => Observed::failed(error.to_string()),
        };
        if let Some(elf) = elf.value() {
            self.queue.push_back((path.into(), elf.clone()));
        }
        self.known.insert(path.to_owned());
        self.found.push(Library {
            family: family(name).unwrap_or_default().to_owned(),
            name: name.to_owned(),
            path: path.into(),
            real: self.host.real_path(path).unwrap_or_else(|_| path.to_owned()).into(),
            sources: Vec::new(),
            size: meta.len,
            elf,
            release: None,
            release_from: String::new(),
        });
    }
}
