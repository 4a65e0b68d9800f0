//! The variables that matter, and what the places they name are.

mod table;

pub use table::{Shape, VARIABLES, Variable, row_of};

use super::{Notes, search};
use crate::facts::env::{EnvFacts, LocalKind, LocalModule, NamedPlace, PlaceState};
use crate::facts::raw::Raw;
use crate::facts::secret::{secret_name, secret_value};
use crate::host::{Host, Kind};
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// As many links in a row as the kernel follows.
const MAX_LINKS: usize = 40;

/// Variables of [`VARIABLES`] and the state of every place they name. Values that may hold a secret are left out, with a note.
pub fn collect(host: &dyn Host, notes: &mut Notes) -> EnvFacts {
    let (facts, places) = variables(host, notes);
    EnvFacts { modules: modules(host), places: states(host, places), ..facts }
}

/// The variables, and of the places the one that no variable names.
pub fn for_lists(host: &dyn Host, notes: &mut Notes) -> EnvFacts {
    let (facts, _) = variables(host, notes);
    EnvFacts { places: states(host, BTreeSet::from([PathBuf::from(FALLBACK)])), ..facts }
}

/// torch falls back on it, whatever it is.
const FALLBACK: &str = "/usr/local/cuda";

/// The variables, and the places they name.
fn variables(host: &dyn Host, notes: &mut Notes) -> (EnvFacts, BTreeSet<PathBuf>) {
    let mut facts = EnvFacts { cwd: host.cwd().map(Into::into), ..EnvFacts::default() };
    let mut places = BTreeSet::from([PathBuf::from(FALLBACK)]);
    for (name, value) in host.env() {
        // Every name of the table is ASCII, so one that is not UTF-8 is none of them.
        let Some((name, row)) = name.to_str().and_then(|name| Some((name, table::row_of(name)?))) else { continue };
        if secret_name(name) || secret_value(&value.to_string_lossy()) {
            notes.push(format!("the value of `{name}` may hold a secret and was left out"));
            continue;
        }
        facts.vars.insert(name.to_owned(), Raw(value.clone()));
        places.extend(named_by(value, row.shape));
    }
    (facts, places)
}

fn states(host: &dyn Host, places: BTreeSet<PathBuf>) -> Vec<NamedPlace> {
    places.into_iter().filter_map(|path| Some(NamedPlace { state: state(host, &path)?, path: path.into() })).collect()
}

/// Packages whose place nothing else should take.
const PACKAGES: [&str; 4] = ["deepspeed", "setuptools", "torch", "triton"];

/// In the order in which Python looks: the current folder, then PYTHONPATH.
fn modules(host: &dyn Host) -> Vec<LocalModule> {
    let cwd = host.cwd().map(|folder| (None, folder));
    let named = search::entries(host, "PYTHONPATH").into_iter().map(|entry| (Some(entry.index), entry.path));
    let folders: Vec<(Option<usize>, PathBuf)> = cwd.into_iter().chain(named).collect();
    let look = |(entry, folder): &(Option<usize>, PathBuf), name: &str| {
        let (file, package) = (folder.join(format!("{name}.py")), folder.join(name));
        let (path, is) = if host.is_file(&package.join("__init__.py")) {
            (package, LocalKind::Package)
        } else if host.is_file(&file) {
            (file, LocalKind::File)
        } else {
            return None;
        };
        Some(LocalModule { name: name.to_owned(), path: path.into(), is, entry: *entry })
    };
    folders.iter().flat_map(|folder| PACKAGES.iter().filter_map(move |name| look(folder, name))).collect()
}

fn named_by(value: &OsStr, shape: Shape) -> Vec<PathBuf> {
    let path = |bytes: &[u8]| PathBuf::from(OsStr::from_bytes(bytes));
    let bytes = value.as_bytes();
    match shape {
        Shape::Paths => bytes.split(|b| *b == b':').filter(|entry| !entry.is_empty()).map(path).collect(),
        // A name without a slash is searched for as libraries are.
        Shape::Libraries => {
            let entries = bytes.split(|b| *b == b':' || b.is_ascii_whitespace());
            entries.filter(|entry| entry.contains(&b'/')).map(path).collect()
        }
        Shape::Path if bytes.is_empty() => Vec::new(),
        Shape::Path => vec![path(bytes)],
        // A path with a space in it, or a command line: both readings are looked up.
        Shape::Program => {
            let first = bytes.split(u8::is_ascii_whitespace).find(|word| !word.is_empty()).unwrap_or_default();
            let mut found: Vec<PathBuf> = [bytes, first].into_iter().filter(|text| text.contains(&b'/')).map(path).collect();
            found.dedup();
            found
        }
        Shape::Text => Vec::new(),
    }
}

/// What is at a path; `None` for a relative one where there is no current folder to start from.
fn state(host: &dyn Host, path: &Path) -> Option<PlaceState> {
    let at = search::absolute(host, path)?;
    Some(match host.metadata(&at) {
        // `..` needs the permission to enter, as every file in it does.
        Ok(meta) if meta.kind == Kind::Folder => match host.metadata(&at.join("..")) {
            Err(error) if error.kind() == ErrorKind::PermissionDenied => unreadable(host, &at, &error),
            _ => PlaceState::Folder,
        },
        Ok(_) => PlaceState::File,
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => match dangling(host, &at) {
            Some(target) => PlaceState::Dangling { target: target.into() },
            None => PlaceState::Missing,
        },
        Err(error) => unreadable(host, &at, &error),
    })
}

fn unreadable(host: &dyn Host, path: &Path, error: &std::io::Error) -> PlaceState {
    let closed = if error.kind() == ErrorKind::PermissionDenied { closed(host, path) } else { None };
    let why = match closed {
        Some(folder) => format!("{}: `{}` is closed to this user", reason(error), folder.display()),
        None => reason(error),
    };
    PlaceState::Unreadable { why }
}

/// The folder on the way to a path that may not be entered.
fn closed(host: &dyn Host, path: &Path) -> Option<PathBuf> {
    let denied = |path: &Path| host.link_metadata(path).is_err_and(|error| error.kind() == ErrorKind::PermissionDenied);
    let mut at = path.to_owned();
    for _ in 0..MAX_LINKS {
        let mut way: Vec<&Path> = at.ancestors().collect();
        way.reverse();
        let first = way.into_iter().find(|part| denied(&part.join("..")))?;
        let Ok(target) = host.read_link(first) else { return Some(first.to_owned()) };
        let rest = at.strip_prefix(first).ok()?;
        at = first.parent()?.join(target).join(rest);
    }
    None
}

/// Where a chain of links ends, when the path is a link; asked when the end is known not to be there.
fn dangling(host: &dyn Host, path: &Path) -> Option<PathBuf> {
    let mut at = path.to_owned();
    for step in 0..MAX_LINKS {
        match host.link_metadata(&at) {
            Ok(meta) if meta.kind == Kind::Link => {}
            _ => return (step > 0).then_some(at),
        }
        let target = host.read_link(&at).ok()?;
        at = at.parent()?.join(target);
    }
    None
}

/// The system's word for an error, without the number.
pub(super) fn reason(error: &std::io::Error) -> String {
    let text = error.to_string();
    match text.split_once(" (os error") {
        Some((words, _)) => words.to_lowercase(),
        None => text,
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, clippy::disallowed_methods)]
mod tests {
    use super::*;
    use crate::host::{Environment, Rooted};
    use std::ffi::OsString;
    use std::fs;
    use std::os::unix::ffi::OsStringExt;
    use std::os::unix::fs::symlink;

    fn look(dir: &Path, vars: &[(&str, &str)]) -> (EnvFacts, Notes) {
        let env: Environment = vars.iter().map(|(name, value)| (name.into(), value.into())).collect();
        let mut notes = Notes::new();
        (collect(&Rooted::new(dir, env).unwrap(), &mut notes), notes)
    }

    #[test]
    fn places_are_what_they_are() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("usr/local/cuda-12.4/bin")).unwrap();
        fs::create_dir_all(dir.path().join("etc/alternatives")).unwrap();
        fs::write(dir.path().join("usr/file"), "x").unwrap();
        symlink("/etc/alternatives/cuda", dir.path().join("usr/local/cuda")).unwrap();
        symlink("/usr/local/cuda-11.0", dir.path().join("etc/alternatives/cuda")).unwrap();
        symlink("../local/loop", dir.path().join("usr/local/loop")).unwrap();
        let (facts, notes) = look(
            dir.path(),
            &[
                ("CUDA_HOME", "/usr/local/cuda"),
                ("LD_LIBRARY_PATH", "/usr/local/cuda-12.4::/none:/usr/file:/usr/local/loop:/usr/file/x:/usr/local/cuda-12.4/"),
                ("CC", "/usr/file -m64"),
                ("LD_PRELOAD", "libfoo.so /usr/none.so:/usr/file"),
                ("OTHER", "/usr/file"),
            ],
        );
        assert!(notes.is_empty(), "{notes:?}");
        let state = |path: &str| facts.state(Path::new(path));
        assert_eq!(state("/usr/local/cuda"), Some(&PlaceState::Dangling { target: "/usr/local/cuda-11.0".into() }));
        assert_eq!(state("/usr/local/cuda-12.4"), Some(&PlaceState::Folder));
        assert_eq!(state("/none"), Some(&PlaceState::Missing));
        assert_eq!(state("/usr/file"), Some(&PlaceState::File));
        assert_eq!(state("/usr/file/x"), Some(&PlaceState::Missing));
        assert_eq!(state("/usr/file -m64"), Some(&PlaceState::Missing));
        assert!(matches!(state("/usr/local/loop"), Some(PlaceState::Unreadable { why }) if why.contains("symbolic links")));
        assert_eq!(facts.places.len(), 8, "{:?}", facts.places);
        assert!(facts.get("OTHER").is_none());
    }

    #[test]
    fn what_may_hide_a_package() {
        let dir = tempfile::tempdir().unwrap();
        let put = |path: &str| {
            let at = dir.path().join(path);
            fs::create_dir_all(at.parent().unwrap()).unwrap();
            fs::write(at, "").unwrap();
        };
        ["a/torch.py", "a/triton/readme", "b/deepspeed/__init__.py", "b/deepspeed.py"].into_iter().for_each(put);
        let (facts, _) = look(dir.path(), &[("PYTHONPATH", "/a:/none:/b")]);
        let found = |module: &LocalModule| (module.name.clone(), module.path.to_string(), module.is, module.entry);
        assert_eq!(
            facts.modules.iter().map(found).collect::<Vec<_>>(),
            [
                ("torch".to_owned(), "/a/torch.py".to_owned(), LocalKind::File, Some(1)),
                ("deepspeed".to_owned(), "/b/deepspeed".to_owned(), LocalKind::Package, Some(3)),
            ]
        );
    }

    #[test]
    fn secrets_stay_outside() {
        let dir = tempfile::tempdir().unwrap();
        let (facts, notes) = look(
            dir.path(),
            &[
                ("CUDA_API_KEY", "short"),
                ("PIP_CONSTRAINT", "https://me:word@example.org/c.txt"),
                ("DS_TOKENIZER", "x"),
                ("CUDA_VISIBLE_DEVICES", "0,1"),
                ("GITHUB_TOKEN", "ghp_0123456789abcdefghij0123456789abcdef"),
            ],
        );
        assert_eq!(facts.vars.keys().collect::<Vec<_>>(), ["CUDA_VISIBLE_DEVICES"]);
        assert_eq!(notes.len(), 3, "{notes:?}");
        assert!(notes.iter().all(|note| !note.contains("word") && !note.contains("short")), "{notes:?}");
    }

    #[test]
    fn other_bytes_than_utf8_survive() {
        let dir = tempfile::tempdir().unwrap();
        let value = OsString::from_vec(b"/opt/\xff/bin:/usr/bin".to_vec());
        let env: Environment = [(OsString::from("PATH"), value.clone()), (OsString::from_vec(b"CUDA_\xfe".to_vec()), "x".into())].into();
        let facts = collect(&Rooted::new(dir.path(), env).unwrap(), &mut Notes::new());
        assert_eq!(facts.get("PATH"), Some(value.as_os_str()));
        assert_eq!(facts.places.len(), 3);
        assert_eq!(facts.vars.len(), 1);
    }
}
