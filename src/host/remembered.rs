//! A host that puts each question about a path to the machine once. For one look at it: what changes meanwhile is not seen.

use super::{Entry, Environment, Host, Kind, Meta, System};
use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Component, Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// Folders and links in one path; what has more, a circle of links too, is left to the system.
const DEEPEST: usize = 100;

pub struct Remembered<'a> {
    host: &'a dyn Host,
    metadata: Answers<Meta>,
    link_metadata: Answers<Meta>,
    real_path: Answers<PathBuf>,
}

impl<'a> Remembered<'a> {
    pub fn new(host: &'a dyn Host) -> Self {
        Self { host, metadata: Answers::default(), link_metadata: Answers::default(), real_path: Answers::default() }
    }

    /// The real path of an absolute one. A machine's paths share most of their folders, and each folder is asked for its link once; a tree
    /// has the kernel resolve the whole path inside it, and needs no help.
    fn resolve(&self, path: &Path, depth: usize) -> io::Result<PathBuf> {
        self.real_path.get(path, || {
            if depth == DEEPEST || self.host.root().is_some() {
                return self.host.real_path(path);
            }
            let Some(parent) = path.parent() else { return Ok(path.to_owned()) };
            let above = self.resolve(parent, depth + 1)?;
            let name = match path.components().next_back() {
                Some(Component::Normal(name)) => name,
                // `..`: the other components are gone from a path that was taken apart.
                _ => return self.folder(above).map(|above| above.parent().unwrap_or(&above).to_owned()),
            };
            let here = above.join(name);
            match self.host.read_link(&here) {
                Ok(target) => {
                    let real = self.resolve(&above.join(&target), depth + 1)?;
                    if asks_for_a_folder(&target) { self.folder(real) } else { Ok(real) }
                }
                // It is there, and no link.
                Err(error) if error.raw_os_error() == Some(rustix::io::Errno::INVAL.raw_os_error()) => Ok(here),
                Err(error) => Err(error),
            }
        })
    }

    fn folder(&self, path: PathBuf) -> io::Result<PathBuf> {
        if self.is_folder(&path) { Ok(path) } else { Err(rustix::io::Errno::NOTDIR.into()) }
    }
}

/// A slash or a dot at the end.
fn asks_for_a_folder(path: &Path) -> bool {
    let bytes = path.as_os_str().as_bytes();
    bytes.ends_with(b"/") || bytes.ends_with(b"/.")
}

impl Host for Remembered<'_> {
    fn env(&self) -> &Environment {
        self.host.env()
    }

    fn cwd(&self) -> Option<PathBuf> {
        self.host.cwd()
    }

    fn root(&self) -> Option<&Path> {
        self.host.root()
    }

    fn system(&self) -> Option<&dyn System> {
        self.host.system()
    }

    fn read(&self, path: &Path, cap: u64) -> io::Result<Vec<u8>> {
        self.host.read(path, cap)
    }

    fn open(&self, path: &Path) -> io::Result<(File, u64)> {
        self.host.open(path)
    }

    fn list(&self, path: &Path) -> io::Result<Vec<Entry>> {
        self.host.list(path)
    }

    fn metadata(&self, path: &Path) -> io::Result<Meta> {
        self.metadata.get(path, || self.host.metadata(path))
    }

    fn link_metadata(&self, path: &Path) -> io::Result<Meta> {
        self.link_metadata.get(path, || self.host.link_metadata(path))
    }

    fn read_link(&self, path: &Path) -> io::Result<PathBuf> {
        self.host.read_link(path)
    }

    fn real_path(&self, path: &Path) -> io::Result<PathBuf> {
        // A relative path starts from elsewhere.
        if path.is_absolute() && !asks_for_a_folder(path) { self.resolve(path, 0) } else { self.host.real_path(path) }
    }

    fn walk(&self, path: &Path, depth: usize) -> Vec<(PathBuf, io::Result<Kind>)> {
        self.host.walk(path, depth)
    }
}

/// Answers by path, errors too. Two threads that ask at once may both put the question: they get the same answer.
struct Answers<T>(Mutex<HashMap<PathBuf, Result<T, Trouble>>>);

impl<T> Default for Answers<T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

/// What is kept of an [`io::Error`], which cannot be copied.
#[derive(Clone)]
struct Trouble {
    number: Option<i32>,
    kind: io::ErrorKind,
    words: String,
}

impl From<&io::Error> for Trouble {
    fn from(error: &io::Error) -> Self {
        let number = error.raw_os_error();
        Self { number, kind: error.kind(), words: if number.is_none() { error.to_string() } else { String::new() } }
    }
}

impl From<Trouble> for io::Error {
    fn from(trouble: Trouble) -> Self {
        trouble.number.map_or_else(|| Self::new(trouble.kind, trouble.words), Self::from_raw_os_error)
    }
}

impl<T: Clone> Answers<T> {
    fn get(&self, path: &Path, ask: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
        if let Some(known) = self.0.lock().unwrap_or_else(PoisonError::into_inner).get(path) {
            return known.clone().map_err(Into::into);
        }
        let answer = ask();
        let kept = answer.as_ref().map(T::clone).map_err(Trouble::from);
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(path.to_owned(), kept);
        answer
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, clippy::disallowed_methods)]
mod tests {
    use super::*;
    use crate::host::{Live, Rooted};
    use std::fs;
    use std::os::unix::fs::symlink;

    /// Paths of every odd kind.
    fn tree() -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        fs::create_dir_all(at("a/b/c")).unwrap();
        fs::create_dir_all(at("d")).unwrap();
        fs::write(at("a/b/file"), "x").unwrap();
        symlink("../a/b", at("d/up")).unwrap();
        symlink(at("d/up/c/../file"), at("d/absolute")).unwrap();
        symlink("none", at("d/dangling")).unwrap();
        symlink("self", at("d/self")).unwrap();
        symlink("pong", at("d/ping")).unwrap();
        symlink("ping", at("d/pong")).unwrap();
        symlink("..", at("d/dots")).unwrap();
        symlink("file/", at("a/b/slash")).unwrap();
        for step in 0..30 {
            let target = if step == 0 { "file".to_owned() } else { format!("chain{}", step - 1) };
            symlink(target, at(&format!("a/b/chain{step}"))).unwrap();
        }
        dir
    }

    const PATHS: &[&str] = &[
        "",
        "a",
        "a/b/",
        "a/b/file",
        "a/b/file/",
        "a/b/file/.",
        "a/b/file/x",
        "a/b/file/..",
        "a/b/none/..",
        "a/./b//c",
        "d/up/file",
        "d/up/../b/c",
        "d/absolute",
        "d/dangling",
        "d/dangling/x",
        "d/self",
        "d/self/x",
        "d/ping",
        "d/dots/d/dots/a",
        "a/b/slash",
        "a/b/chain0",
        "a/b/chain29",
        "../../../../../../../../..",
    ];

    #[test]
    fn real_paths_are_those_of_the_system() {
        let dir = tree();
        let live = Live::with_env(Environment::new());
        let host = Remembered::new(&live);
        let kind = |answer: io::Result<PathBuf>| answer.map_err(|error| error.kind());
        // Twice: the second time from memory. And whatever was asked before.
        for path in PATHS.iter().chain(PATHS.iter().rev()) {
            let path = dir.path().join(path);
            assert_eq!(kind(host.real_path(&path)), kind(live.real_path(&path)), "{path:?}");
        }
        assert_eq!(host.real_path(Path::new("/")).unwrap(), Path::new("/"));
        let long = dir.path().join("a/../".repeat(100_000));
        assert_eq!(kind(host.real_path(&long)), kind(live.real_path(&long)));
        assert_eq!(kind(host.real_path(Path::new("src/../src"))), kind(live.real_path(Path::new("src/../src"))));
    }

    #[test]
    fn a_tree_answers_as_before() {
        let dir = tree();
        let rooted = Rooted::new(dir.path(), Environment::new()).unwrap();
        let host = Remembered::new(&rooted);
        for path in PATHS.iter().chain(PATHS) {
            let path = Path::new("/").join(path);
            let words = |answer: io::Result<PathBuf>| answer.map_err(|error| error.to_string());
            assert_eq!(words(host.real_path(&path)), words(rooted.real_path(&path)), "{path:?}");
            let words = |answer: io::Result<Meta>| answer.map_err(|error| error.to_string());
            assert_eq!(words(host.metadata(&path)), words(rooted.metadata(&path)), "{path:?}");
            assert_eq!(words(host.link_metadata(&path)), words(rooted.link_metadata(&path)), "{path:?}");
        }
    }

    #[test]
    fn one_look_sees_no_change() {
        let dir = tree();
        let live = Live::with_env(Environment::new());
        let host = Remembered::new(&live);
        let file = dir.path().join("a/b/file");
        assert!(host.is_file(&file));
        fs::remove_file(&file).unwrap();
        assert!(host.is_file(&file) && !live.is_file(&file) && !Remembered::new(&live).is_file(&file));
    }
}
