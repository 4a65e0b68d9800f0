//! Paths as programs make them out of the environment: homes, `..`, folders that do not exist yet.

use crate::host::Host;
use std::ffi::OsStr;
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
    fn a_tree_has_no_user() {
        let dir = tempfile::tempdir().unwrap();
        let host = Rooted::new(dir.path(), Environment::new()).unwrap();
        assert_eq!(home(&host), None);
        assert_eq!(nearest_folder(&host, Path::new("/x/y")), Some("/".into()));
    }
}
