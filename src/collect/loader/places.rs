//! The folders in which libraries are looked for, in the order of the searches that meet them.

use crate::collect::place;
use crate::facts::python::{EnvironmentKind, Interpreter};
use crate::facts::source::Source;
use crate::facts::torch::Torch;
use crate::host::{Host, Kind};
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

/// Where drivers are put that are not the distribution's: WSL, NVIDIA's container runtime on Kubernetes nodes, NixOS, Jetson.
const DRIVER_PLACES: &[&str] = &[
    "/usr/lib/wsl/lib",
    "/usr/local/nvidia/lib64",
    "/usr/local/nvidia/lib",
    "/run/opengl-driver/lib",
    "/usr/lib/aarch64-linux-gnu/tegra",
    "/usr/lib/aarch64-linux-gnu/nvidia",
];

pub fn folders(host: &dyn Host, default: &[PathBuf], toolkits: &[PathBuf], pythons: &[Interpreter]) -> Vec<(PathBuf, Source)> {
    let mut found = of_variable(host, "LD_LIBRARY_PATH");
    // The linker's: a name that serves `-lcudart` may lie there alone.
    found.extend(of_variable(host, "LIBRARY_PATH"));
    for python in pythons {
        of_python(host, python, &mut found);
    }
    found.extend(default.iter().map(|folder| (folder.clone(), Source::DefaultFolder)));
    for root in roots(host, toolkits) {
        of_toolkit(host, &root, &mut found);
    }
    found.extend(DRIVER_PLACES.iter().map(|folder| (PathBuf::from(folder), Source::UsualPlace)));
    let mut seen = BTreeSet::new();
    found.retain(|(folder, source)| seen.insert((folder.clone(), source.clone())));
    found
}

/// Entries of a list of library folders. In LD_LIBRARY_PATH `;` separates as `:` does, and an entry with `$` (`$ORIGIN`, `$LIB`) means
/// another folder to every program.
pub(super) fn of_variable(host: &dyn Host, name: &str) -> Vec<(PathBuf, Source)> {
    let Some(value) = host.var(name).filter(|value| !value.is_empty()) else { return Vec::new() };
    let loader = name == "LD_LIBRARY_PATH";
    let separates = |byte: &u8| *byte == b':' || (loader && *byte == b';');
    let entries = value.as_bytes().split(separates).enumerate().filter(|(_, entry)| !loader || !entry.contains(&b'$'));
    let absolute = |entry: &[u8]| crate::collect::search::absolute(host, Path::new(OsStr::from_bytes(entry)));
    entries.filter_map(|(at, entry)| Some((place::normal(&absolute(entry)?), Source::entry(name, at + 1)))).collect()
}

fn of_python(host: &dyn Host, python: &Interpreter, found: &mut Vec<(PathBuf, Source)>) {
    // What the program itself says counts for everything it loads: conda's and many others' have an RPATH to their `lib`.
    if let (Some(elf), Some(folder)) = (python.elf.value(), python.real.parent()) {
        let source = Source::Beside { path: python.real.clone() };
        found.extend(search_path(folder, elf.rpath.iter().chain(&elf.runpath).flatten()).map(|folder| (folder, source.clone())));
    }
    if python.kind == EnvironmentKind::Conda || host.is_folder(&python.base_prefix.join("conda-meta")) {
        found.push((python.base_prefix.join("lib").0, Source::Conda { prefix: python.base_prefix.clone() }));
    }
    if let Some(torch) = python.torch.value() {
        of_torch(torch, found);
    }
    for site in &python.site {
        let nvidia = site.join("nvidia");
        for entry in host.list(&nvidia).unwrap_or_default().iter().filter(|entry| entry.kind != Kind::File) {
            found.push((nvidia.join(&entry.name).join("lib").0, Source::Pip { site: site.clone() }));
        }
    }
}

fn of_torch(torch: &Torch, found: &mut Vec<(PathBuf, Source)>) {
    let lib = torch.path.join("lib");
    let source = Source::Beside { path: torch.path.clone() };
    found.push((lib.0.clone(), source.clone()));
    let mut entries: BTreeSet<&String> = BTreeSet::new();
    for elf in torch.libs.values() {
        entries.extend(elf.rpath.iter().chain(&elf.runpath).flatten());
    }
    found.extend(search_path(&lib, entries).map(|folder| (folder, source.clone())));
}

/// The folders that RPATH or RUNPATH entries of a file in `origin` name.
pub(super) fn search_path<'e>(origin: &Path, entries: impl IntoIterator<Item = &'e String>) -> impl Iterator<Item = PathBuf> {
    let origin = origin.to_string_lossy().into_owned();
    entries.into_iter().filter_map(move |entry| {
        let entry = entry.replace("${ORIGIN}", &origin).replace("$ORIGIN", &origin);
        let path = place::normal(Path::new(&entry));
        (path.is_absolute() && !entry.contains('$')).then_some(path)
    })
}

/// The toolkits, and what else lies beside them: an image for running programs has a CUDA folder without a compiler.
fn roots(host: &dyn Host, toolkits: &[PathBuf]) -> Vec<PathBuf> {
    let local = Path::new("/usr/local");
    let entries = host.list(local).unwrap_or_default();
    let usual = entries.iter().filter(|entry| entry.name.as_bytes().starts_with(b"cuda")).map(|entry| local.join(&entry.name));
    let mut roots: Vec<PathBuf> = toolkits.to_vec();
    roots.extend(usual);
    // The distribution's own toolkit lies in the default folders.
    roots.retain(|root| root != Path::new("/usr") && root != Path::new("/"));
    let mut seen = BTreeSet::new();
    roots.retain(|root| seen.insert(root.clone()));
    roots
}

fn of_toolkit(host: &dyn Host, root: &Path, found: &mut Vec<(PathBuf, Source)>) {
    let source = Source::Beside { path: root.into() };
    let mut libs = vec![root.join("lib64"), root.join("lib")];
    let targets = root.join("targets");
    libs.extend(host.list(&targets).unwrap_or_default().iter().map(|target| targets.join(&target.name).join("lib")));
    let stubs: Vec<PathBuf> = libs.iter().map(|lib| lib.join("stubs")).collect();
    // NGC images keep the compatibility driver one level deeper.
    let compat = ["compat", "compat/lib", "compat/lib.real"].map(|folder| root.join(folder));
    found.extend(libs.into_iter().chain(stubs).chain(compat).map(|folder| (folder, source.clone())));
}
