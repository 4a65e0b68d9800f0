//! Paths as programs make them out of the environment: homes, relative names, `..`.

use crate::binary::FileAt;
use crate::host::Host;
use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Component, Path, PathBuf};

/// The home folder: HOME, else that of the user in `/etc/passwd`, as `os.path.expanduser` has it. `None` for a tree without HOME.
pub fn home(host: &dyn Host) -> Option<PathBuf> {
    if let Some(home) = host.var("HOME").filter(|home| !home.is_empty()) {
        return Some(home.into());
    }
    let uid = host.system()?.uid().to_string();
    let users = host.read(Path::new("/etc/passwd"), 1 << 20).ok()?;
    users.split(|b| *b == b'\n').find_map(|line| {
        let mut fields = line.split(|b| *b == b':').skip(2);
        let found = fields.next()? == uid.as_bytes();
        let home = fields.nth(2).filter(|home| !home.is_empty())?;
        found.then(|| PathBuf::from(OsStr::from_bytes(home)))
    })
}

/// The path from the root on: a relative one counts from the current folder. `None` when that is not known.
pub fn absolute(host: &dyn Host, path: &Path) -> Option<PathBuf> {
    if path.is_absolute() { Some(normal(path)) } else { Some(normal(&host.cwd()?.join(path))) }
}

/// Without `.` and `..`, by the text alone, as `os.path.normpath` does it.
pub fn normal(path: &Path) -> PathBuf {
    let mut out = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => {
                out.pop();
            }
            Component::CurDir => {}
            other => out.push(other),
        }
    }
    out
}

/// The entries of a list variable as absolute paths with their number from 1; an empty entry is the current folder.
pub fn entries(host: &dyn Host, name: &str, separators: &[u8]) -> Vec<(usize, PathBuf)> {
    let Some(value) = host.var(name).filter(|value| !value.is_empty()) else { return Vec::new() };
    let parts = value.as_bytes().split(|b| separators.contains(b));
    parts.enumerate().filter_map(|(at, entry)| Some((at + 1, absolute(host, Path::new(OsStr::from_bytes(entry)))?))).collect()
}

/// A regular file for the binary readers.
///
/// # Errors
/// As [`Host::open`].
pub fn open(host: &dyn Host, path: &Path) -> io::Result<FileAt<File>> {
    let file = host.open(path)?;
    let length = file.metadata()?.len();
    Ok(FileAt::new(file, length))
}

/// The nearest folder at or above the path that exists.
pub fn nearest_folder(host: &dyn Host, path: &Path) -> Option<PathBuf> {
    path.ancestors().find(|above| host.is_folder(above)).map(Path::to_owned)
}

#[cfg(test)]
#[expect(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::host::{Environment, Rooted};

    #[test]
    fn dots_are_taken_out_by_text() {
        for (from, to) in [("/a/./b/../c", "/a/c"), ("/../x", "/x"), ("/a/b/..", "/a"), ("/", "/")] {
            assert_eq!(normal(Path::new(from)), Path::new(to));
        }
    }

    #[test]
    fn a_tree_has_no_current_folder_and_no_user() {
        let dir = tempfile::tempdir().unwrap();
        let env: Environment = [("LIST".into(), "/a::b:/c/../d".into())].into();
        let host = Rooted::new(dir.path(), env).unwrap();
        assert_eq!(entries(&host, "LIST", b":"), [(1, "/a".into()), (4, "/d".into())]);
        assert_eq!(home(&host), None);
        assert_eq!(nearest_folder(&host, Path::new("/x/y")), Some("/".into()));
    }
}
