//! The folders packages are imported from, in order, and what an editable install adds to them. Source: Lib/site.py of CPython 3.11 and
//! Debian's changes to it.

use super::layout::{Layout, Series};
use crate::collect::{literal, place, search};
use crate::facts::python::EnvironmentKind;
use crate::host::{Entry, Host, Kind};
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

/// A folder of `sys.path`, with what lies in it.
#[derive(Debug, Clone)]
pub struct Folder {
    pub path: PathBuf,
    pub entries: Vec<Entry>,
}

impl Folder {
    pub fn has(&self, name: &str) -> bool {
        self.entries.binary_search_by(|entry| entry.name.as_os_str().cmp(OsStr::new(name))).is_ok()
    }
}

#[derive(Debug, Clone, Default)]
pub struct Site {
    pub folders: Vec<Folder>,
    /// Package to folder, from the import hooks that setuptools writes for editable installs; asked after all folders.
    pub mapped: BTreeMap<String, PathBuf>,
    /// Folders that were named and are not there.
    pub looked: Vec<PathBuf>,
    /// How many of the folders come from PYTHONPATH.
    named: usize,
    seen: Vec<(u64, u64)>,
}

/// Where a package lies that `import NAME` would find, were no file on PYTHONPATH in front of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Module {
    /// A folder with `__init__.py`.
    Package(PathBuf),
    /// `torch.py`, which hides a package of that name.
    File(PathBuf),
    /// A folder without `__init__.py`, such as a removed package leaves behind.
    Hollow(PathBuf),
}

/// A path file names a few folders; one with more lines than this is something else.
const MOST_LINES: usize = 1000;

impl Site {
    pub fn build(host: &dyn Host, layout: &Layout) -> Self {
        let mut site = Self::default();
        for entry in search::entries(host, "PYTHONPATH") {
            site.push(host, &place::normal(&entry.path));
        }
        site.named = site.folders.len();
        let Some(series) = layout.series else { return site };
        let venv = layout.kind == EnvironmentKind::Venv;
        if venv {
            for folder in packages_of(&layout.prefix, layout, series, false) {
                site.add(host, &folder);
            }
        }
        if layout.system_packages {
            if let Some(user) = user_site(host, series) {
                site.add(host, &user);
            }
            if let Some(base) = &layout.base {
                for folder in packages_of(&base.prefix, layout, series, true) {
                    site.add(host, &folder);
                }
            }
        }
        site
    }

    /// `sys.path.append`: no path files are read.
    fn push(&mut self, host: &dyn Host, path: &Path) -> bool {
        let Ok(meta) = host.metadata(path) else {
            self.looked.push(path.to_owned());
            return false;
        };
        // Archives on sys.path hold no compiled packages.
        if meta.kind != Kind::Folder || self.seen.contains(&(meta.device, meta.inode)) {
            return false;
        }
        self.seen.push((meta.device, meta.inode));
        self.folders.push(Folder { path: path.to_owned(), entries: host.list(path).unwrap_or_default() });
        true
    }

    /// `site.addsitedir`: the folder, then what its path files name, in the order of their names.
    fn add(&mut self, host: &dyn Host, path: &Path) {
        if !self.push(host, path) {
            return;
        }
        let Some(folder) = self.folders.last() else { return };
        let is_pth = |entry: &&Entry| entry.name.as_bytes().ends_with(b".pth") && !entry.name.as_bytes().starts_with(b".");
        let files: Vec<PathBuf> = folder.entries.iter().filter(is_pth).map(|entry| path.join(&entry.name)).collect();
        for file in files {
            let Ok(bytes) = host.read(&file, 1 << 20) else { continue };
            let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(&bytes);
            for line in bytes.split(|b| *b == b'\n').take(MOST_LINES) {
                self.path_line(host, path, line);
            }
        }
    }

    fn path_line(&mut self, host: &dyn Host, folder: &Path, line: &[u8]) {
        let text = line.trim_ascii_end();
        if text.is_empty() || text.starts_with(b"#") {
            return;
        }
        if text.starts_with(b"import ") || text.starts_with(b"import\t") {
            let module =
                text.get(7..).unwrap_or_default().split(|b| !b.is_ascii_alphanumeric() && *b != b'_').find(|word| !word.is_empty());
            if let Some(module) = module.filter(|module| module.starts_with(b"__editable__")) {
                self.editable(host, &folder.join(format!("{}.py", String::from_utf8_lossy(module))));
            }
            return;
        }
        self.push(host, &place::normal(&folder.join(OsStr::from_bytes(text))));
    }

    /// `MAPPING` of a finder that setuptools wrote.
    fn editable(&mut self, host: &dyn Host, finder: &Path) {
        let Ok(text) = host.read_text(finder) else { return };
        let literal::Binding::Value(mapping) = literal::binding(&text, "MAPPING") else { return };
        for (name, folder) in mapping.pairs() {
            if let (Some(name), Some(folder)) = (name.text(), folder.text()) {
                self.mapped.entry(name.to_owned()).or_insert_with(|| PathBuf::from(folder));
            }
        }
    }

    /// Source of the order: PEP 420, `FileFinder.find_spec`, and setuptools appending its finder to `sys.meta_path`.
    pub fn module(&self, host: &dyn Host, name: &str) -> Option<Module> {
        let (mut hollow, mut named) = (None, None);
        for (at, folder) in self.folders.iter().enumerate() {
            if folder.has(name) {
                let package = folder.path.join(name);
                if host.is_file(&package.join("__init__.py")) {
                    return Some(Module::Package(package));
                }
                if hollow.is_none() && host.is_folder(&package) {
                    hollow = Some(Module::Hollow(package));
                }
            }
            let file = format!("{name}.py");
            if folder.has(&file) {
                let file = Module::File(folder.path.join(file));
                // What it hides is installed all the same; that it hides it is a fact of the environment.
                if at >= self.named {
                    return named.or(Some(file));
                }
                named = named.or(Some(file));
            }
        }
        let mapped = self.mapped.get(name).filter(|folder| host.is_file(&folder.join("__init__.py")));
        mapped.map(|folder| Module::Package(folder.clone())).or(named).or(hollow)
    }
}

/// `site.getsitepackages`. Debian and Fedora give the Python in `/usr` folders of its own for what pip installs.
fn packages_of(prefix: &Path, layout: &Layout, series: Series, base: bool) -> Vec<PathBuf> {
    let folder = series.folder();
    let site = |lib: &str| prefix.join(lib).join(&folder).join("site-packages");
    let libdir = layout.base.as_ref().map_or("lib", |base| base.libdir);
    let mut folders = Vec::new();
    if base && prefix == Path::new("/usr") {
        if libdir == "lib" {
            folders.push(Path::new("/usr/local/lib").join(&folder).join("dist-packages"));
            folders.push("/usr/lib/python3/dist-packages".into());
            folders.push(Path::new("/usr/lib").join(&folder).join("dist-packages"));
        } else {
            folders.push(Path::new("/usr/local/lib64").join(&folder).join("site-packages"));
            folders.push(Path::new("/usr/local/lib").join(&folder).join("site-packages"));
        }
    }
    if libdir != "lib" {
        folders.push(site(libdir));
    }
    folders.push(site("lib"));
    folders
}

/// `site.getusersitepackages`, where it is not turned off.
fn user_site(host: &dyn Host, series: Series) -> Option<PathBuf> {
    if host.var("PYTHONNOUSERSITE").is_some_and(|value| !value.is_empty()) {
        return None;
    }
    let base = match search::variable(host, "PYTHONUSERBASE") {
        Some(base) => base,
        None => place::home(host)?.join(".local"),
    };
    Some(base.join("lib").join(series.folder()).join("site-packages"))
}
