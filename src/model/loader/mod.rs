//! Which file the dynamic loader gives for a name, in a process where Python has imported torch.
//!
//! The rules are glibc's (`_dl_map_object` of elf/dl-load.c): a library that is loaded already answers to its name; else DT_RPATH of the
//! object that asks and of those that loaded it, up to the program, unless it has a DT_RUNPATH; LD_LIBRARY_PATH; its own DT_RUNPATH;
//! the cache; the default folders. Files for another machine are passed over, a file that is no ELF file ends the search.
//!
//! Known are only libraries of the families in [`FAMILIES`], torch's own, and what the facts were widened by for a file. Subfolders for CPU levels (`glibc-hwcaps`) are not modelled,
//! nor what modules imported before torch have loaded.
//!
//! [`FAMILIES`]: crate::facts::loader::FAMILIES

mod opening;
mod path;
mod torch;

pub use opening::{Need, Opening};

use crate::facts::elf::{ElfFacts, Machine};
use crate::facts::loader::{FAMILIES, LoaderFacts};
use crate::facts::observed::{Missing, Observed};
use crate::facts::python::{EnvironmentKind, Interpreter};
use crate::facts::raw::HostPath;
use crate::facts::snapshot::Snapshot;
use crate::facts::torch::Torch;
use std::borrow::Cow;
use std::collections::{HashMap, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// What the loader answers for a name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    Found {
        path: HostPath,
        via: Via,
    },
    /// The first file of that name on the search is one that the loader refuses, and it does not look further: `file too short`,
    /// `invalid ELF header`.
    Refused {
        path: HostPath,
        via: Via,
        why: String,
    },
    /// Nowhere on the search: `cannot open shared object file`. `no_cache`: there is no `/etc/ld.so.cache`, as in a file tree that no
    /// `ldconfig` has run in; one made later could change the answer.
    NotFound {
        no_cache: bool,
    },
    /// The facts do not tell.
    Unknown {
        why: String,
    },
}

impl Answer {
    pub fn path(&self) -> Option<&HostPath> {
        match self {
            Self::Found { path, .. } => Some(path),
            _ => None,
        }
    }
}

/// How the loader came to a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Via {
    /// An entry of the DT_RPATH of this object.
    Rpath {
        of: HostPath,
    },
    /// An entry of the DT_RUNPATH of this object.
    Runpath {
        of: HostPath,
    },
    /// The entry of LD_LIBRARY_PATH, counted from 1.
    LibraryPath {
        entry: usize,
    },
    Cache,
    DefaultFolder,
    /// LD_PRELOAD or `/etc/ld.so.preload`.
    Preloaded,
    /// Opened by its path: by torch (`_preload_cuda_deps`), by Python, or because the name is a path.
    ByPath,
}

/// A name that something needs and the loader does not find or refuses, or that cannot be judged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unmet {
    pub name: String,
    pub by: HostPath,
    pub answer: Answer,
}

impl Unmet {
    /// Not only unknown: the process cannot go on.
    pub fn is_certain(&self) -> bool {
        !matches!(self.answer, Answer::Unknown { .. })
    }
}

/// A process in which this Python has imported torch: what is loaded, in order.
#[derive(Debug, Clone)]
pub struct Process<'a> {
    facts: &'a Snapshot,
    loader: &'a LoaderFacts,
    /// Known files by path without `.` and `..`.
    files: Arc<HashMap<PathBuf, File<'a>>>,
    machine: Option<(Machine, u8)>,
    objects: Vec<Object<'a>>,
    unmet: Vec<Unmet>,
}

#[derive(Debug, Clone)]
struct File<'a> {
    path: HostPath,
    real: HostPath,
    elf: Result<&'a ElfFacts, &'a str>,
}

/// A loaded file.
#[derive(Debug, Clone)]
struct Object<'a> {
    path: HostPath,
    real: HostPath,
    /// Names it was asked for by.
    names: Vec<String>,
    elf: Option<Cow<'a, ElfFacts>>,
    /// The object that had it loaded; none for the program.
    loader: Option<usize>,
    via: Via,
}

/// The place of the program in [`Process::objects`].
const PROGRAM: usize = 0;

impl<'a> Process<'a> {
    /// # Errors
    /// [`Missing`] where the libraries of this machine are not known at all.
    pub fn importing(facts: &'a Snapshot, python: &Interpreter, torch: &'a Torch) -> Result<Option<Self>, Missing> {
        let Some(mut process) = Self::started(facts, python, Some(torch))? else { return Ok(None) };
        process.import(&python.site, torch);
        Ok(Some(process))
    }

    /// The same before anything is imported.
    ///
    /// # Errors
    /// As [`Process::importing`].
    pub fn started(facts: &'a Snapshot, python: &Interpreter, torch: Option<&'a Torch>) -> Result<Option<Self>, Missing> {
        Self::of_program(facts, &python.real, program_elf(facts, python), torch)
    }

    /// A process of any program: its real path, and what its own file says.
    ///
    /// # Errors
    /// As [`Process::importing`].
    pub fn of_program(
        facts: &'a Snapshot,
        program: &HostPath,
        elf: Option<ElfFacts>,
        torch: Option<&'a Torch>,
    ) -> Result<Option<Self>, Missing> {
        let Some(loader) = facts.loader.get("loader")? else { return Ok(None) };
        let mut files = HashMap::new();
        for library in &loader.libraries {
            let elf = match &library.elf {
                Observed::Seen { value } => Ok(value),
                Observed::Failed { why } | Observed::Skipped { why } => Err(why.as_str()),
                Observed::Absent { .. } => continue,
            };
            files.insert(path::tidy(&library.path), File { path: library.path.clone(), real: library.real.clone(), elf });
        }
        for (name, elf) in torch.iter().flat_map(|torch| &torch.libs) {
            let file = torch.map(|torch| torch.path.join("lib").join(name)).unwrap_or_default();
            files.insert(path::tidy(&file), File { path: file.clone(), real: file, elf: Ok(elf) });
        }
        let machine = torch
            .and_then(|torch| torch.libs.values().next())
            .map(|elf| (elf.machine, elf.class_bits))
            .or_else(|| machine_of(facts.host.machine.value()?));
        let own = Object {
            path: program.clone(),
            real: program.clone(),
            names: Vec::new(),
            elf: elf.map(Cow::Owned),
            loader: None,
            via: Via::ByPath,
        };
        let mut process = Self { facts, loader, files: Arc::new(files), machine, objects: vec![own], unmet: Vec::new() };
        process.preload();
        Ok(Some(process))
    }

    /// Imports torch in this process; `site`: the folders that packages are imported from.
    pub fn import(&mut self, site: &[HostPath], torch: &'a Torch) {
        self.import_torch(site, torch);
    }

    /// The file that answers to the name in this process for torch's own libraries, the later `dlopen` calls among them.
    pub fn torch_gets(&self, name: &str) -> Answer {
        let asks = |start: &str| self.objects.iter().position(|o| o.path.file_name().is_some_and(|n| n == start));
        let asker = ["libtorch_cuda.so", "libtorch_cpu.so", "libtorch_global_deps.so"].into_iter().find_map(asks).unwrap_or(PROGRAM);
        self.answer(name, asker)
    }

    /// The file that an extension without RPATH and RUNPATH gets.
    pub fn extension_gets(&self, name: &str) -> Answer {
        self.answer(name, PROGRAM)
    }

    /// The file that an extension at this path gets.
    pub fn object_gets(&self, path: &HostPath, elf: &'a ElfFacts, name: &str) -> Answer {
        let mut process = self.clone();
        let object = Object {
            path: path.clone(),
            real: path.clone(),
            names: Vec::new(),
            elf: Some(Cow::Borrowed(elf)),
            loader: Some(PROGRAM),
            via: Via::ByPath,
        };
        process.objects.push(object);
        process.answer(name, process.objects.len() - 1)
    }

    /// What torch's import needs and does not get. Not empty: the import fails, unless torch goes on by itself.
    pub fn unmet(&self) -> &[Unmet] {
        &self.unmet
    }

    /// The machine and class of the files that this process can load, where they are known.
    pub const fn machine(&self) -> Option<(Machine, u8)> {
        self.machine
    }

    /// Everything that is loaded and known: the path and how it was found.
    pub fn loaded(&self) -> impl Iterator<Item = (&HostPath, &Via)> {
        self.objects.iter().skip(1).map(|object| (&object.path, &object.via))
    }

    fn answer(&self, name: &str, asker: usize) -> Answer {
        match self.loaded_as(name) {
            Some(at) => match self.objects.get(at) {
                Some(object) => Answer::Found { path: object.path.clone(), via: object.via.clone() },
                None => Answer::NotFound { no_cache: false },
            },
            None if !self.in_scope(name) => Answer::Unknown { why: format!("`{name}` is not among the libraries that are looked for") },
            None => self.search(name, asker),
        }
    }

    fn in_scope(&self, name: &str) -> bool {
        in_scope(self.loader, name)
    }

    /// A loaded object answers to the names it was asked for by, its path and its SONAME.
    fn loaded_as(&self, name: &str) -> Option<usize> {
        self.objects.iter().skip(1).position(|object| object.answers_to(name)).map(|at| at + 1)
    }

    /// Loads by name and, in breadth, what that needs. The place of the object; `None` where something is not found or refused: then nothing
    /// of it stays, and [`Process::unmet`] says what. (The loader stops at the first; all are noted here.)
    fn open(&mut self, name: &str, asker: usize) -> Option<usize> {
        let (objects, unmet) = (self.objects.len(), self.unmet.len());
        let first = self.map(name, asker, None)?;
        let mut queue = VecDeque::from([first]);
        while let Some(at) = queue.pop_front() {
            let needed = self.objects.get(at).and_then(|object| object.elf.as_ref()).map(|elf| elf.needed.clone()).unwrap_or_default();
            let loader = self.loader;
            for name in needed.iter().filter(|name| in_scope(loader, name)) {
                let before = self.objects.len();
                if let Some(new) = self.map(name, at, None)
                    && new >= before
                {
                    queue.push_back(new);
                }
            }
        }
        if self.unmet.iter().skip(unmet).any(Unmet::is_certain) {
            self.objects.truncate(objects);
            return None;
        }
        Some(first)
    }

    /// Maps one file, or finds it mapped.
    fn map(&mut self, name: &str, asker: usize, via: Option<Via>) -> Option<usize> {
        if let Some(at) = self.loaded_as(name) {
            return Some(at);
        }
        let by_path = name.contains('/');
        let answer = if by_path { self.at(Path::new(name), || Via::ByPath) } else { Some(self.search(name, asker)) };
        match answer {
            Some(Answer::Found { path, via: found_via }) => {
                let file = self.files.get(&path::tidy(&path)).cloned();
                let real = file.as_ref().map_or_else(|| path.clone(), |file| file.real.clone());
                // The loader knows a file again by device and inode.
                if let Some(at) = self.objects.iter().skip(1).position(|object| object.real == real) {
                    let object = self.objects.get_mut(at + 1)?;
                    object.names.push(name.to_owned());
                    return Some(at + 1);
                }
                let elf = file.and_then(|file| file.elf.ok()).map(Cow::Borrowed);
                let via = via.unwrap_or(found_via);
                self.objects.push(Object { path, real, names: vec![name.to_owned()], elf, loader: Some(asker), via });
                Some(self.objects.len() - 1)
            }
            answer => {
                let answer = answer.unwrap_or(Answer::NotFound { no_cache: false });
                let by = self.objects.get(asker).map(|object| object.path.clone()).unwrap_or_default();
                let unmet = Unmet { name: name.to_owned(), by, answer };
                if !self.unmet.contains(&unmet) {
                    self.unmet.push(unmet);
                }
                None
            }
        }
    }

    /// LD_PRELOAD (blanks or colons between), then `/etc/ld.so.preload`. What is not found is passed over with a message.
    fn preload(&mut self) {
        let value = self.facts.env.text("LD_PRELOAD").unwrap_or_default();
        let named: Vec<String> = value.split([':', ' ']).filter(|name| !name.is_empty()).map(str::to_owned).collect();
        let listed = self.loader.preload.iter().map(|path| path.to_string());
        for name in named.into_iter().chain(listed).collect::<Vec<_>>() {
            let (path, _) = self.expand(PROGRAM, &name);
            let known = path.contains('/') || self.in_scope(&path);
            if known {
                self.map(&path, PROGRAM, Some(Via::Preloaded));
            }
        }
        self.unmet.clear();
    }
}

impl Object<'_> {
    fn answers_to(&self, name: &str) -> bool {
        let soname = self.elf.as_ref().and_then(|elf| elf.soname.as_deref());
        soname == Some(name) || self.names.iter().any(|known| known == name) || *self.path == *Path::new(name)
    }
}

/// Whether the facts hold every copy of this library.
fn in_scope(loader: &LoaderFacts, name: &str) -> bool {
    if loader.names.contains(name) {
        return true;
    }
    let own = ["libtorch", "libc10", "libcaffe2", "libshm"].iter().any(|start| name.starts_with(start));
    own || FAMILIES.iter().any(|(_, start)| name.strip_prefix(start).is_some_and(|rest| rest.is_empty() || rest.starts_with('.')))
}

fn machine_of(uname: &str) -> Option<(Machine, u8)> {
    match uname {
        "x86_64" => Some((Machine::X86_64, 64)),
        "aarch64" => Some((Machine::AARCH64, 64)),
        _ => None,
    }
}

/// What is known of the interpreter's own file: conda builds every Python with a DT_RPATH to its `lib`, which is how its libstdc++ comes
/// in front of the system's and of LD_LIBRARY_PATH. A virtual environment of it runs the same file.
fn program_elf(facts: &Snapshot, python: &Interpreter) -> Option<ElfFacts> {
    let all = facts.pythons.value().map(Vec::as_slice).unwrap_or_default();
    let conda = |one: &Interpreter| one.kind == EnvironmentKind::Conda;
    let from_conda = conda(python) || all.iter().any(|other| conda(other) && other.real == python.real);
    from_conda.then(|| ElfFacts { rpath: Some(vec!["$ORIGIN/../lib".to_owned()]), ..ElfFacts::default() })
}

#[cfg(test)]
#[expect(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::facts::loader::{CacheEntry, Library};

    fn library(path: &str, elf: ElfFacts) -> Library {
        let name = path.rsplit('/').next().unwrap();
        let family = FAMILIES.iter().find(|(_, start)| name.starts_with(&format!("{start}."))).unwrap().0;
        let elf = ElfFacts { machine: Machine::X86_64, class_bits: 64, soname: Some(name.to_owned()), ..elf };
        Library {
            family: family.to_owned(),
            name: name.to_owned(),
            path: path.into(),
            real: path.into(),
            sources: Vec::new(),
            size: 1,
            elf: Observed::seen(elf),
            release: None,
            release_from: String::new(),
        }
    }

    fn machine(libraries: &[&str], cache: Observed<Vec<CacheEntry>>) -> Snapshot {
        let loader = LoaderFacts {
            cache,
            default_folders: vec!["/usr/lib".into()],
            libraries: libraries.iter().map(|path| library(path, ElfFacts::default())).collect(),
            ..LoaderFacts::default()
        };
        Snapshot { loader: Observed::seen(loader), ..Snapshot::default() }
    }

    fn cached(paths: &[&str]) -> Observed<Vec<CacheEntry>> {
        let entry = |path: &&str| CacheEntry { soname: path.rsplit('/').next().unwrap().to_owned(), path: (*path).into(), exists: true };
        Observed::seen(paths.iter().map(entry).collect())
    }

    fn python(real: &str, kind: &str) -> Interpreter {
        let text = format!(
            r#"{{"path": "{real}", "real": "{real}", "sources": [], "version": "3.11", "kind": "{kind}", "prefix": "/", "base_prefix": "/"}}"#
        );
        serde_json::from_str(&text).unwrap()
    }

    fn gets(facts: &Snapshot, python: &Interpreter, name: &str) -> Answer {
        Process::started(facts, python, None).unwrap().unwrap().extension_gets(name)
    }

    const STDCXX: &str = "libstdc++.so.6";

    #[test]
    fn condas_python_brings_its_own_libstdcxx() {
        let all = ["/conda/lib/libstdc++.so.6", "/x/libstdc++.so.6", "/usr/lib/libstdc++.so.6"];
        let mut facts = machine(&all, cached(&["/usr/lib/libstdc++.so.6"]));
        facts.env.set("LD_LIBRARY_PATH", "/x");
        let path = |python: &Interpreter| gets(&facts, python, STDCXX).path().unwrap().to_string();
        assert_eq!(path(&python("/conda/bin/python3.11", "conda")), "/conda/lib/libstdc++.so.6");
        assert_eq!(path(&python("/usr/bin/python3.11", "system")), "/x/libstdc++.so.6");
        let mut venv = facts.clone();
        venv.pythons = Observed::seen(vec![python("/conda/bin/python3.11", "conda")]);
        let answer = gets(&venv, &python("/conda/bin/python3.11", "venv"), STDCXX);
        assert_eq!(answer.path().unwrap(), &HostPath::new("/conda/lib/libstdc++.so.6"), "the file that runs is conda's");
    }

    #[test]
    fn without_a_cache() {
        let system = python("/usr/bin/python3", "system");
        let none = machine(&["/x/libcudart.so.12"], Observed::absent(["/etc/ld.so.cache"]));
        assert_eq!(gets(&none, &system, "libcudart.so.12"), Answer::NotFound { no_cache: true });
        let default = machine(&["/usr/lib/libcudart.so.12"], Observed::absent(["/etc/ld.so.cache"]));
        assert!(matches!(gets(&default, &system, "libcudart.so.12"), Answer::Found { via: Via::DefaultFolder, .. }));
        let unread = machine(&[], Observed::failed("of a form that is not known"));
        assert!(matches!(gets(&unread, &system, "libcudart.so.12"), Answer::Unknown { .. }));
        assert!(matches!(gets(&none, &system, "libz.so.1"), Answer::Unknown { .. }), "no family");
    }

    #[test]
    fn entries_are_counted_and_dead_ones_passed() {
        let system = python("/usr/bin/python3", "system");
        let mut facts = machine(&["/b/libcudart.so.12", "/usr/lib/libcudart.so.12"], cached(&["/usr/lib/libcudart.so.12"]));
        facts.env.set("LD_LIBRARY_PATH", "/a::/b");
        let answer = gets(&facts, &system, "libcudart.so.12");
        assert_eq!(answer, Answer::Found { path: "/b/libcudart.so.12".into(), via: Via::LibraryPath { entry: 3 } });
        facts.env.set("LD_LIBRARY_PATH", "");
        assert!(matches!(gets(&facts, &system, "libcudart.so.12"), Answer::Found { via: Via::Cache, .. }));
    }

    #[test]
    fn preloaded_libraries_answer_first() {
        let system = python("/usr/bin/python3", "system");
        let mut facts = machine(&["/b/libcudart.so.12", "/a/libcudart.so.12"], cached(&["/a/libcudart.so.12"]));
        facts.env.set("LD_PRELOAD", "/none.so /b/libcudart.so.12");
        let answer = gets(&facts, &system, "libcudart.so.12");
        assert_eq!(answer, Answer::Found { path: "/b/libcudart.so.12".into(), via: Via::Preloaded });
    }

    #[test]
    fn an_old_torch_is_helped_by_its_own_preloading() {
        let site = "/site/nvidia";
        let kit = [format!("{site}/cublas/lib/libcublas.so.11"), format!("{site}/cudnn/lib/libcudnn.so.8")];
        let facts = machine(&kit.each_ref().map(String::as_str), cached(&[]));
        let needs = |needed: &[&str]| ElfFacts {
            machine: Machine::X86_64,
            class_bits: 64,
            needed: needed.iter().map(|name| (*name).to_owned()).collect(),
            ..ElfFacts::default()
        };
        let mut torch: Torch = serde_json::from_str(r#"{"path": "/site/torch", "version": "1.13.1", "cuda": "11.7"}"#).unwrap();
        torch.libs.insert("libtorch_global_deps.so".to_owned(), needs(&["libcublas.so.11", "libcudnn.so.8"]));
        torch.libs.insert("libtorch_python.so".to_owned(), needs(&["libcublas.so.11"]));
        let mut python = python("/usr/bin/python3", "system");
        python.site = vec!["/site".into()];
        let process = Process::importing(&facts, &python, &torch).unwrap().unwrap();
        assert!(!process.import_fails(), "{:?}", process.unmet());
        let answer = process.torch_gets("libcublas.so.11");
        assert_eq!(answer, Answer::Found { path: kit[0].as_str().into(), via: Via::ByPath });
        torch.version = "2.1.0".parse().unwrap();
        let process = Process::importing(&facts, &python, &torch).unwrap().unwrap();
        assert!(process.import_fails(), "2.x asks for libnvrtc and others too");
        assert_eq!(process.unmet()[0].name, "libcublas.so.11");
    }
}
