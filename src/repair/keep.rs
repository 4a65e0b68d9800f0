//! Things of torch's extension cache taken out of the way: moved, not deleted, into a folder beside them, so that one `mv` undoes it.

use super::overlay::Trouble;
use super::writer::{self, Folder, Identity, Is};
use crate::facts::cache::{CachedOp, Lock};
use crate::facts::observed::Observed;
use std::ffi::{OsStr, OsString};
use std::io;
use std::path::{Path, PathBuf};

/// In the cache's root, so that a move stays on one file system. No op is looked for two levels below it.
pub const KEPT: &str = ".ds-doctor-kept";

/// One thing to be moved away.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Removal {
    /// The cache's root, links in its path resolved.
    pub root: PathBuf,
    /// Below the root.
    pub path: PathBuf,
    pub what: What,
    /// How it is known that it may go.
    pub why: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum What {
    /// A lock file, last changed at this second when it was judged.
    Lock { modified: i64 },
    /// All that was built of one op.
    Op,
}

/// From where to where something was moved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kept {
    pub from: PathBuf,
    pub to: PathBuf,
}

/// The removal of a lock that is proved stale; `None` where it does not lie below the root.
pub fn lock(root: &Path, real: PathBuf, lock: &Lock, why: String) -> Option<Removal> {
    let path = lock.path.strip_prefix(root).ok()?.to_owned();
    Some(Removal { root: real, path, what: What::Lock { modified: lock.modified }, why })
}

/// The removal of what was built of an op.
///
/// # Errors
/// When a build may be at work in it.
pub fn op(root: &Path, real: PathBuf, op: &CachedOp, why: String) -> Result<Option<Removal>, Trouble> {
    let held = op.lock.as_ref().is_some_and(|lock| !matches!(lock.in_use, Observed::Seen { value: false }));
    if held {
        return Err(Trouble::Refused(format!("`{}` has a lock, and it is not known that nobody holds it", op.path)));
    }
    let path = op.path.strip_prefix(root).ok().map(Path::to_owned);
    Ok(path.map(|path| Removal { root: real, path, what: What::Op, why }))
}

impl Removal {
    pub fn full(&self) -> PathBuf {
        self.root.join(&self.path)
    }

    /// Whether it is still what was judged, and this user's own: the open folder that holds it, and what it is.
    ///
    /// # Errors
    /// When it is not, or a folder holds something that is not torch's.
    pub fn check(&self) -> Result<(Folder, Identity), Trouble> {
        let io = |error| Trouble::Io { what: "move", path: self.full(), error };
        let refused = |why: &str| Err(Trouble::Refused(format!("`{}` is left alone: {why}", self.full().display())));
        let name = self.name()?;
        let folder = Folder::open(&self.root).and_then(|root| root.below(self.path.parent().unwrap_or(Path::new("")))).map_err(io)?;
        let identity = folder.identity(name).map_err(io)?;
        if identity.owner != writer::user() {
            return refused("it belongs to another user");
        }
        match self.what {
            What::Lock { modified } if identity.is == Is::File && identity.modified == modified => {}
            What::Lock { .. } => return refused("it is not the lock that was judged"),
            What::Op if identity.is == Is::Folder => {
                let inside = folder.child(name).map_err(io)?;
                for entry in inside.list().map_err(io)? {
                    let is = inside.identity(&entry).map_err(io)?.is;
                    if is != Is::File || !is_of_a_build(&entry) {
                        return refused(&format!("it holds `{}`, which no build of torch's makes", entry.display()));
                    }
                }
            }
            What::Op => return refused("it is no folder"),
        }
        Ok((folder, identity))
    }

    /// Moves it into [`KEPT`], below a folder of this name.
    ///
    /// # Errors
    /// As [`Removal::check`]; when the disk says no; when something else stood there at the last moment, which is then put back.
    pub fn carry_out(&self, stamp: &str) -> Result<Kept, Trouble> {
        let io = |error| Trouble::Io { what: "move", path: self.full(), error };
        let (folder, identity) = self.check()?;
        let name = self.name()?;
        let below = Path::new(KEPT).join(stamp).join(self.path.parent().unwrap_or(Path::new("")));
        let kept = Folder::open(&self.root).and_then(|root| root.make_below(&below)).map_err(io)?;
        folder.rename(name, &kept, name).map_err(io)?;
        let moved = kept.identity(name).map_err(io)?;
        if (moved.device, moved.inode) != (identity.device, identity.inode) {
            kept.rename(name, &folder, name).map_err(io)?;
            return Err(Trouble::Refused(format!("`{}` is left alone: it has changed meanwhile", self.full().display())));
        }
        Ok(Kept { from: self.full(), to: self.root.join(below).join(name) })
    }

    fn name(&self) -> Result<&OsStr, Trouble> {
        self.path.file_name().ok_or_else(|| Trouble::Io { what: "move", path: self.full(), error: io::ErrorKind::InvalidInput.into() })
    }
}

/// What torch, ninja and the compilers leave in an op's folder. Source: `_write_ninja_file`, `load_inline` and `FileBaton` of torch; ninja.
fn is_of_a_build(name: &OsString) -> bool {
    const NAMES: &[&str] = &[".ninja_deps", ".ninja_lock", ".ninja_log", "build.ninja", "cuda.cu", "lock", "main.cpp"];
    const ENDS: &[&str] = &[".o", ".o.d", ".d", ".so"];
    let Some(name) = name.to_str() else { return false };
    NAMES.contains(&name) || ENDS.iter().any(|end| name.len() > end.len() && name.ends_with(end))
}

#[cfg(test)]
#[expect(clippy::unwrap_used, clippy::disallowed_methods)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::{MetadataExt as _, symlink};

    struct Cache(tempfile::TempDir);

    impl Cache {
        fn new() -> Self {
            let cache = Self(tempfile::tempdir().unwrap());
            cache.put("py311_cu130/fused_adam/lock");
            cache.put("py311_cu130/fused_adam/build.ninja");
            cache
        }

        fn at(&self, name: &str) -> PathBuf {
            self.0.path().join(name)
        }

        fn put(&self, name: &str) {
            fs::create_dir_all(self.at(name).parent().unwrap()).unwrap();
            fs::write(self.at(name), "x").unwrap();
        }

        fn lock(&self) -> Removal {
            let path = PathBuf::from("py311_cu130/fused_adam/lock");
            let modified = fs::metadata(self.0.path().join(&path)).unwrap().mtime();
            Removal { root: self.0.path().to_owned(), path, what: What::Lock { modified }, why: String::new() }
        }

        fn op(&self) -> Removal {
            Removal { what: What::Op, path: "py311_cu130/fused_adam".into(), ..self.lock() }
        }
    }

    #[test]
    fn a_lock_is_moved_and_can_be_put_back() {
        let cache = Cache::new();
        let kept = cache.lock().carry_out("1").unwrap();
        assert_eq!(kept.from, cache.at("py311_cu130/fused_adam/lock"));
        assert_eq!(kept.to, cache.at(".ds-doctor-kept/1/py311_cu130/fused_adam/lock"));
        assert!(!kept.from.exists() && kept.to.exists() && cache.at("py311_cu130/fused_adam/build.ninja").exists());
        fs::rename(&kept.to, &kept.from).unwrap();
        assert!(cache.lock().check().is_ok());
    }

    #[test]
    fn what_changed_since_is_left_alone() {
        let cache = Cache::new();
        let judged = Removal { what: What::Lock { modified: 12 }, ..cache.lock() };
        assert!(judged.carry_out("1").unwrap_err().to_string().contains("not the lock that was judged"));
        let judged = cache.lock();
        fs::remove_file(judged.full()).unwrap();
        assert!(judged.carry_out("1").is_err(), "gone");
        symlink("/etc/passwd", judged.full()).unwrap();
        assert!(judged.carry_out("1").is_err(), "a link");
        assert!(judged.full().is_symlink() && !cache.at(KEPT).exists());
    }

    #[test]
    fn a_link_on_the_way_is_not_followed() {
        let cache = Cache::new();
        let judged = cache.lock();
        fs::rename(cache.at("py311_cu130"), cache.at("other")).unwrap();
        symlink(cache.at("other"), cache.at("py311_cu130")).unwrap();
        assert!(judged.carry_out("1").is_err());
        assert!(cache.at("other/fused_adam/lock").exists());
        // Nor one where the kept things go.
        let cache = Cache::new();
        fs::create_dir(cache.at("elsewhere")).unwrap();
        symlink(cache.at("elsewhere"), cache.at(KEPT)).unwrap();
        assert!(cache.lock().carry_out("1").is_err());
        assert!(cache.lock().full().exists());
    }

    #[test]
    fn only_folders_of_builds_are_moved() {
        let cache = Cache::new();
        for name in ["fused_adam.so", "a.cuda.o", "a.cuda.o.d", ".ninja_log", ".ninja_deps", "main.cpp"] {
            cache.put(&format!("py311_cu130/fused_adam/{name}"));
        }
        assert!(cache.op().check().is_ok());
        for foreign in ["notes.txt", "sub/a.o", ".so"] {
            cache.put(&format!("py311_cu130/fused_adam/{foreign}"));
            let first = foreign.split('/').next().unwrap();
            assert!(cache.op().carry_out("1").unwrap_err().to_string().contains(&format!("`{first}`")), "{foreign}");
            let path = cache.at(&format!("py311_cu130/fused_adam/{first}"));
            if path.is_dir() { fs::remove_dir_all(path).unwrap() } else { fs::remove_file(path).unwrap() }
        }
        let kept = cache.op().carry_out("1").unwrap();
        assert!(kept.to.join("fused_adam.so").exists() && !kept.from.exists());
    }
}
