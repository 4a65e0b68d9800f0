//! torch's extension cache: its roots, what was built in them, and the locks in them.

use super::{library_facts, lock, place, search};
use crate::facts::cache::{CacheFacts, CacheRoot, CachedLibrary, CachedObject, CachedOp, Lock};
use crate::facts::observed::Observed;
use crate::facts::raw::HostPath;
use crate::facts::source::Source;
use crate::host::{Entry, Host, Kind};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

pub fn collect(host: &dyn Host, notes: &mut Vec<String>) -> Observed<CacheFacts> {
    let mut roots: Vec<CacheRoot> = places(host).into_iter().map(|(path, source)| root(host, path, source, notes)).collect();
    if roots.is_empty() {
        return Observed::failed("the home folder is not known");
    }
    let locks = roots.iter_mut().flat_map(|root| &mut root.ops).filter_map(|op| op.lock.as_mut());
    lock::judge(host, &mut locks.collect::<Vec<&mut Lock>>());
    Observed::seen(CacheFacts { roots })
}

/// The folder in use first, then those that exist beside it.
pub fn places(host: &dyn Host) -> Vec<(PathBuf, Source)> {
    let mut found = possible(host);
    let mut first = true;
    found.retain(|(path, _)| std::mem::take(&mut first) || host.is_folder(path));
    found
}

/// The folder in use first, then those that would be in use without its variable. Source: `_get_build_directory` and
/// `_appdirs.user_cache_dir` of torch.
pub fn possible(host: &dyn Host) -> Vec<(PathBuf, Source)> {
    let mut found: Vec<(PathBuf, Source)> = Vec::new();
    // An empty value is the current folder to torch, not "unset".
    let named = |name: &str| host.var(name).and_then(|value| search::absolute(host, Path::new(value)));
    if let Some(path) = named("TORCH_EXTENSIONS_DIR") {
        found.push((path, Source::variable("TORCH_EXTENSIONS_DIR")));
    }
    if let Some(path) = named("XDG_CACHE_HOME") {
        found.push((path.join("torch_extensions"), Source::variable("XDG_CACHE_HOME")));
    }
    if let Some(home) = place::home(host) {
        found.push((home.join(".cache/torch_extensions"), Source::UsualPlace));
    }
    found.dedup_by(|a, b| a.0 == b.0);
    found
}

fn root(host: &dyn Host, path: PathBuf, source: Source, notes: &mut Vec<String>) -> CacheRoot {
    let exists = host.is_folder(&path);
    let writable = match host.system() {
        None => Observed::skipped("who will write there is not known"),
        Some(system) => match place::nearest_folder(host, &path) {
            Some(folder) => Observed::seen(system.may_write(&folder)),
            None => Observed::failed("no folder above it exists"),
        },
    };
    let (mut ops, mut folders) = (Vec::new(), Vec::new());
    if exists {
        for entry in list(host, &path, notes) {
            let folder = path.join(&entry.name);
            match entry.name.to_str().filter(|name| is_tag(name)) {
                Some(tag) => {
                    let below = list(host, &folder, notes);
                    ops.extend(below.iter().filter_map(|entry| op(host, folder.join(&entry.name), Some(tag))));
                    folders.push(folder.into());
                }
                None => ops.extend(op(host, folder, None)),
            }
        }
    }
    folders.extend(ops.iter().map(|op| op.path.clone()));
    folders.retain(|folder: &HostPath| host.system().is_some_and(|system| !system.may_write(folder)));
    CacheRoot { path: path.into(), source, exists, writable, closed: folders, ops }
}

fn list(host: &dyn Host, folder: &Path, notes: &mut Vec<String>) -> Vec<Entry> {
    match host.list(folder) {
        Ok(mut entries) => {
            entries.retain(|entry| entry.kind == Kind::Folder);
            entries
        }
        Err(error) => {
            notes.push(format!("`{}` cannot be listed: {error}", folder.display()));
            Vec::new()
        }
    }
}

/// `py311_cu130`, `py39_cpu`, `py312_rocm62`.
fn is_tag(name: &str) -> bool {
    let Some((python, build)) = name.strip_prefix("py").and_then(|rest| rest.split_once('_')) else { return false };
    python.starts_with(|c: char| c.is_ascii_digit()) && ["cpu", "cu", "rocm", "hip", "xpu"].iter().any(|start| build.starts_with(start))
}

/// A folder in which ninja has worked, or is about to.
fn op(host: &dyn Host, path: PathBuf, tag: Option<&str>) -> Option<CachedOp> {
    let entries = host.list(&path).ok()?;
    let is_library = |entry: &&Entry| entry.name.as_bytes().ends_with(b".so");
    let has = |name: &str| entries.iter().any(|entry| entry.name == OsStr::new(name));
    if !has("build.ninja") && !has("lock") && !entries.iter().any(|entry| is_library(&entry)) {
        return None;
    }
    let modified = |name: &OsStr| host.metadata(&path.join(name)).ok().filter(|meta| meta.kind == Kind::File).map(|meta| meta.modified);
    // A changed source gets a library of its own, `name_v1.so`.
    let built = entries.iter().filter(is_library).filter_map(|entry| modified(&entry.name)).max();
    let lock = modified(OsStr::new("lock")).map(|modified| Lock { path: path.join("lock").into(), modified, in_use: Observed::default() });
    let ninja = has("build.ninja").then(|| host.read_text(&path.join("build.ninja")).ok()).flatten();
    let name = path.file_name()?.to_string_lossy().into_owned();
    Some(CachedOp {
        name,
        tag: tag.map(str::to_owned),
        built,
        torch_path: ninja.as_deref().and_then(torch_in),
        libraries: entries.iter().filter(is_library).filter_map(|entry| library(host, &path, entry)).collect(),
        objects: ninja.as_deref().map(|ninja| objects(host, &path, ninja)).unwrap_or_default(),
        lock,
        path: path.into(),
    })
}

fn library(host: &dyn Host, folder: &Path, entry: &Entry) -> Option<CachedLibrary> {
    let name = entry.name.to_str()?.to_owned();
    let (elf, device) = library_facts(host, &folder.join(&name));
    Some(CachedLibrary { name, elf, device })
}

/// From the lines `build op.o: compile /path/op.cpp`.
fn objects(host: &dyn Host, folder: &Path, ninja: &str) -> Vec<CachedObject> {
    let modified = |path: &Path| host.metadata(path).ok().map(|meta| meta.modified);
    let line = |line: &str| {
        let (object, source) = line.strip_prefix("build ")?.split_once(": compile ")?;
        let (object, source) = (unescape(object.trim()), unescape(source.trim()));
        let made = modified(&folder.join(&object))?;
        Some(CachedObject { name: object, made, outdated: modified(&folder.join(source)).is_none_or(|source| source > made) })
    };
    ninja.lines().filter_map(line).collect()
}

/// ninja's `$` escapes.
fn unescape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        out.push(if c == '$' { chars.next().unwrap_or('$') } else { c });
    }
    out
}

/// torch from the include flags of the compile line: `-isystem /…/torch/include`.
fn torch_in(ninja: &str) -> Option<HostPath> {
    let flags = ninja.lines().filter(|line| line.contains("torch/include") && line.contains('='));
    flags.flat_map(words).find_map(|word| {
        let path = word.strip_prefix("-I").or_else(|| word.strip_prefix("-isystem")).unwrap_or(&word);
        let torch = path.strip_suffix("/include").filter(|path| path.starts_with('/') && path.ends_with("/torch"))?;
        Some(HostPath::new(torch))
    })
}

/// The words of a flags line: ninja's escapes, then the shell's quotes.
fn words(line: &str) -> Vec<String> {
    let value = line.split_once('=').map_or("", |(_, value)| value).trim();
    let text = unescape(value);
    shlex::split(&text).unwrap_or_else(|| text.split_whitespace().map(str::to_owned).collect())
}

#[cfg(test)]
#[expect(clippy::unwrap_used, clippy::disallowed_methods)]
mod tests {
    use super::*;
    use crate::host::{Environment, Rooted};
    use std::fs;

    #[test]
    fn include_flags() {
        let new = "cxx = c++\n\ncommon_cflags = -DX=\\\"_gcc\\\" -isystem /v/lib/python3.11/site-packages/torch/include \
                   -isystem /v/lib/python3.11/site-packages/torch/include/torch/csrc/api/include -fPIC\n";
        assert_eq!(torch_in(new), Some("/v/lib/python3.11/site-packages/torch".into()));
        assert_eq!(torch_in("cflags = -I/a/torch/include"), Some("/a/torch".into()));
        assert_eq!(torch_in("cflags = '-I/my env/torch/include'"), Some("/my env/torch".into()));
        assert_eq!(torch_in(r"cflags = -isystem /my\$ env/torch/include"), Some("/my env/torch".into()));
        assert_eq!(torch_in("cflags = -I/usr/include"), None);
        assert_eq!(torch_in("\0 = torch/include '"), None);
    }

    #[test]
    fn tags() {
        for tag in ["py311_cu130", "py313t_cu128", "py39_cpu"] {
            assert!(is_tag(tag), "{tag}");
        }
        for other in ["fused_adam", "pyx_cu", "py_cu", "py311"] {
            assert!(!is_tag(other), "{other}");
        }
    }

    #[test]
    fn objects_that_a_build_would_keep() {
        let dir = tempfile::tempdir().unwrap();
        let put = |name: &str, time: u64| {
            let path = dir.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, "").unwrap();
            let time = std::time::UNIX_EPOCH + std::time::Duration::from_secs(time);
            fs::File::options().write(true).open(&path).unwrap().set_modified(time).unwrap();
        };
        for (name, time) in [("a.o", 20), ("b.o", 20), ("c.cuda.o", 20), ("d.o", 20)] {
            put(&format!("op/{name}"), time);
        }
        for (name, time) in [("a b.cpp", 10), ("b.cpp", 30), ("c.cu", 10)] {
            put(&format!("src/{name}"), time);
        }
        let host = Rooted::new(dir.path(), Environment::new()).unwrap();
        let ninja = "build a.o: compile /src/a$ b.cpp\nbuild b.o: compile /src/b.cpp\nbuild c.cuda.o: cuda_compile /src/c.cu\n\
                     build d.o: compile /src/gone.cpp\nbuild e.o: compile /src/b.cpp\nbuild x.so: link a.o b.o\n";
        let found = objects(&host, Path::new("/op"), ninja);
        let found: Vec<_> = found.iter().map(|object| (object.name.as_str(), object.made, object.outdated)).collect();
        assert_eq!(found, [("a.o", 20, false), ("b.o", 20, true), ("d.o", 20, true)]);
    }

    #[test]
    fn roots_and_ops_of_a_tree() {
        let dir = tempfile::tempdir().unwrap();
        let put = |name: &str| {
            let path = dir.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "").unwrap();
        };
        put("h/.cache/torch_extensions/py311_cu130/fused_adam/build.ninja");
        put("h/.cache/torch_extensions/py311_cu130/fused_adam/lock");
        put("h/.cache/torch_extensions/old_op/old_op.so");
        put("h/.cache/torch_extensions/not_an_op/readme");
        let env: Environment = [("HOME".into(), "/h".into()), ("TORCH_EXTENSIONS_DIR".into(), "/ext".into())].into();
        let host = Rooted::new(dir.path(), env).unwrap();
        let facts = collect(&host, &mut Vec::new());
        let roots = &facts.value().unwrap().roots;
        assert_eq!(
            roots.iter().map(|r| (r.path.to_string(), r.exists)).collect::<Vec<_>>(),
            [("/ext".to_owned(), false), ("/h/.cache/torch_extensions".to_owned(), true)]
        );
        let ops: Vec<_> =
            roots[1].ops.iter().map(|op| (op.name.as_str(), op.tag.as_deref(), op.built.is_some(), op.lock.is_some())).collect();
        assert_eq!(ops, [("old_op", None, true, false), ("fused_adam", Some("py311_cu130"), false, true)]);
        assert!(matches!(roots[1].ops[1].lock.as_ref().unwrap().in_use, Observed::Skipped { .. }));
    }
}
