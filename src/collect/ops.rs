//! What DeepSpeed's ops ask for besides torch and the toolkit, wherever a compiler, a linker or DeepSpeed's own search could meet it.

mod builders;
mod cutlass;

pub use builders::source;
pub use cutlass::place;

use super::search;
use crate::binary::elf::summarise;
use crate::facts::ops::{HEADERS, Header, LIBRARIES, LinkName, OpsFacts};
use crate::facts::python::Interpreter;
use crate::facts::raw::{HostPath, Raw};
use crate::host::{Host, Kind};
use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

/// Folders of the multiarch systems, of which a machine has one at most.
const TRIPLETS: &[&str] = &["x86_64-linux-gnu", "aarch64-linux-gnu", "powerpc64le-linux-gnu", "riscv64-linux-gnu"];

pub fn collect(host: &dyn Host, pythons: &[Interpreter]) -> OpsFacts {
    let default_includes = default_includes(host);
    let default_libs = default_libs(host);
    let mut includes: Vec<PathBuf> = default_includes.iter().map(|folder| folder.0.clone()).collect();
    let mut libs: Vec<PathBuf> = default_libs.iter().map(|folder| folder.0.clone()).collect();
    for name in ["CPATH", "C_INCLUDE_PATH", "CPLUS_INCLUDE_PATH"] {
        includes.extend(search::entries(host, name).into_iter().map(|entry| entry.path));
    }
    libs.extend(search::entries(host, "LIBRARY_PATH").into_iter().map(|entry| entry.path));
    includes.extend(["CFLAGS", "CPPFLAGS"].iter().flat_map(|name| flagged(host, name, b"-I")));
    libs.extend(flagged(host, "LDFLAGS", b"-L"));
    for prefix in prefixes(host, pythons) {
        includes.push(prefix.join("include"));
        libs.push(prefix.join("lib"));
    }
    for site in pythons.iter().flat_map(|python| &python.site) {
        let nvidia = site.join("nvidia");
        for entry in host.list(&nvidia).unwrap_or_default().iter().filter(|entry| entry.kind != Kind::File) {
            includes.push(nvidia.join(&entry.name).join("include").0);
        }
    }
    OpsFacts {
        headers: headers(host, includes),
        libraries: libraries(host, libs),
        cutlass: cutlass::collect(host, pythons),
        python_cc: pythons.iter().filter_map(|python| Some((python.base_prefix.clone(), python_cc(host, python)?))).collect(),
        builders: pythons.iter().filter_map(|python| builders::of_package(host, python.deepspeed.value()?)).collect(),
        default_includes,
        default_libs,
    }
}

fn default_includes(host: &dyn Host) -> Vec<HostPath> {
    let multiarch = TRIPLETS.iter().map(|triplet| format!("/usr/include/{triplet}"));
    ["/usr/local/include".to_owned()].into_iter().chain(multiarch).chain(["/usr/include".to_owned()]).filter_map(folder(host)).collect()
}

/// As GNU ld has them, of both the multiarch and the `lib64` systems.
fn default_libs(host: &dyn Host) -> Vec<HostPath> {
    let mut all = Vec::new();
    for base in ["/usr/local/lib", "/lib", "/usr/lib"] {
        all.extend(TRIPLETS.iter().map(|triplet| format!("{base}/{triplet}")));
        all.extend([format!("{base}64"), base.to_owned()]);
    }
    all.into_iter().filter_map(folder(host)).collect()
}

fn folder(host: &dyn Host) -> impl Fn(String) -> Option<HostPath> + '_ {
    |path| host.is_folder(Path::new(&path)).then(|| HostPath::new(path))
}

/// The folders of `-I` or `-L` in a variable of flags.
fn flagged(host: &dyn Host, name: &str, flag: &[u8]) -> Vec<PathBuf> {
    let Some(value) = host.var(name) else { return Vec::new() };
    let words = shlex::bytes::Shlex::new(value.as_bytes()).collect::<Vec<_>>();
    let mut found = Vec::new();
    let mut words = words.iter();
    while let Some(word) = words.next() {
        let Some(rest) = word.strip_prefix(flag) else { continue };
        let path = if rest.is_empty() { words.next().map(Vec::as_slice) } else { Some(rest) };
        found.extend(path.and_then(|path| search::absolute(host, Path::new(OsStr::from_bytes(path)))));
    }
    found
}

/// Environments whose `include` and `lib` are on a path only when something puts them there.
fn prefixes(host: &dyn Host, pythons: &[Interpreter]) -> BTreeSet<PathBuf> {
    let conda = search::variable(host, "CONDA_PREFIX");
    let own = pythons.iter().filter(|python| host.is_folder(&python.base_prefix.join("conda-meta")));
    conda.into_iter().chain(own.map(|python| python.base_prefix.0.clone())).collect()
}

fn once(folders: Vec<PathBuf>) -> Vec<PathBuf> {
    let mut seen = BTreeSet::new();
    folders.into_iter().filter(|folder| seen.insert(folder.clone())).collect()
}

fn headers(host: &dyn Host, folders: Vec<PathBuf>) -> Vec<Header> {
    let found = once(folders).into_iter().flat_map(|folder| {
        let there = HEADERS.iter().filter(|name| host.is_file(&folder.join(name))).copied().collect::<Vec<_>>();
        there.into_iter().map(move |name| Header { name: name.to_owned(), folder: folder.clone().into() })
    });
    found.collect()
}

fn libraries(host: &dyn Host, folders: Vec<PathBuf>) -> Vec<LinkName> {
    let mut found = Vec::new();
    for folder in once(folders) {
        for library in LIBRARIES {
            let shared = format!("lib{library}.so");
            let fixed = format!("lib{library}.a");
            let names = host.list(&folder).unwrap_or_default().into_iter().map(|entry| entry.name);
            let ours = |name: &OsString| name.to_str().is_some_and(|name| name.starts_with(&shared) || name == fixed);
            for name in names.filter(ours) {
                let path = folder.join(&name);
                let there = host.is_file(&path);
                let linkable = there && (name == *shared || name == *fixed);
                let nodes = super::open(host, &path).ok().and_then(|file| summarise(&file).ok()).map(|elf| elf.version_definitions);
                found.push(LinkName { library: (*library).to_owned(), path: path.into(), linkable, nodes: nodes.unwrap_or_default() });
            }
        }
    }
    found
}

/// Source: `sysconfig._init_posix` of Python 3.8 to 3.14, which reads `_sysconfigdata_*.py`, written one entry a line.
fn python_cc(host: &dyn Host, python: &Interpreter) -> Option<Raw> {
    let version = python.version.as_ref()?;
    let folder = python.base_prefix.join(format!("lib/python{}.{}", version.parts.first()?, version.parts.get(1)?));
    let mut names = host.list(&folder).ok()?.into_iter().map(|entry| entry.name);
    let name = names.find(|name| name.to_string_lossy().starts_with("_sysconfigdata_"))?;
    let text = host.read_text(&folder.join(name)).ok()?;
    let (_, rest) = text.split_once("'CC': '")?;
    rest.split('\'').next().filter(|words| !words.is_empty()).map(Raw::from)
}

#[cfg(test)]
#[expect(clippy::unwrap_used, clippy::disallowed_methods)]
mod tests {
    use super::*;
    use crate::host::Rooted;
    use std::fs;
    use std::os::unix::fs::symlink;

    fn tree(files: &[&str]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for file in files {
            let path = root.path().join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "").unwrap();
        }
        root
    }

    #[test]
    fn what_compilers_and_linkers_could_meet() {
        let root = tree(&["usr/include/libaio.h", "opt/x/include/nccl.h", "opt/x/lib/libaio.a", "usr/lib/x86_64-linux-gnu/libaio.so.1"]);
        symlink("nowhere", root.path().join("usr/lib/libaio.so")).unwrap();
        let env = [("CFLAGS", "-O2 -I /opt/x/include"), ("LDFLAGS", "-L/opt/x/lib")];
        let env = env.into_iter().map(|(name, value)| (name.into(), value.into())).collect();
        let host = Rooted::new(root.path(), env).unwrap();
        let facts = collect(&host, &[]);
        let folders = |name| facts.header(name).map(|header| header.folder.to_string()).collect::<Vec<_>>();
        assert_eq!(folders("libaio.h"), ["/usr/include"]);
        assert_eq!(folders("nccl.h"), ["/opt/x/include"]);
        let mut names: Vec<(String, bool)> = facts.library("aio").map(|name| (name.path.to_string(), name.linkable)).collect();
        names.sort();
        let expected = [("/opt/x/lib/libaio.a", true), ("/usr/lib/libaio.so", false), ("/usr/lib/x86_64-linux-gnu/libaio.so.1", false)];
        assert_eq!(names, expected.map(|(path, linkable)| (path.to_owned(), linkable)));
        assert!(facts.default_libs.iter().any(|folder| folder.to_string() == "/usr/lib/x86_64-linux-gnu"));
    }
}
