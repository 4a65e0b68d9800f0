//! A file tree taken for a machine: a container's root file system, an unpacked image, a test machine. Absolute links stay inside it,
//! `..` does not leave it, and nothing in it is executed.

use super::{Entry, Environment, Host, Kind, Meta, System, files};
use rustix::fs::{Mode, OFlags, ResolveFlags};
use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};
use std::path::{Component, Path, PathBuf};

/// As many links in one path as the kernel follows.
const MAX_LINKS: usize = 40;

#[derive(Debug)]
pub struct Rooted {
    root: PathBuf,
    handle: OwnedFd,
    env: Environment,
}

impl Rooted {
    /// # Errors
    /// When the folder cannot be opened.
    pub fn new(root: &Path, env: Environment) -> io::Result<Self> {
        let root = files::canonical(root)?;
        let handle = rustix::fs::open(&root, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
        Ok(Self { root, handle, env })
    }

    /// The real path of what the path leads to.
    fn resolve(&self, path: &Path) -> io::Result<PathBuf> {
        self.resolve_by_kernel(path, OFlags::PATH | OFlags::CLOEXEC)
    }

    /// The real path of the last component itself.
    fn resolve_link(&self, path: &Path) -> io::Result<PathBuf> {
        match (path.parent(), path.file_name()) {
            (Some(parent), Some(name)) => Ok(self.resolve(parent)?.join(name)),
            _ => self.resolve(path),
        }
    }

    fn resolve_by_kernel(&self, path: &Path, flags: OFlags) -> io::Result<PathBuf> {
        let inside = path.strip_prefix("/").unwrap_or(path);
        let inside = if inside.as_os_str().is_empty() { Path::new(".") } else { inside };
        match rustix::fs::openat2(&self.handle, inside, flags, Mode::empty(), ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS) {
            Ok(found) => {
                files::read_link(Path::new(&format!("/proc/self/fd/{}", found.as_fd().as_raw_fd()))).or_else(|_| self.resolve_by_walk(path))
            }
            // Old kernels and strict container runtimes do not have openat2.
            Err(rustix::io::Errno::NOSYS | rustix::io::Errno::PERM) => self.resolve_by_walk(path),
            Err(error) => Err(error.into()),
        }
    }

    fn resolve_by_walk(&self, path: &Path) -> io::Result<PathBuf> {
        let mut left: Vec<OsString> = parts(path).rev().collect();
        let mut done: Vec<OsString> = Vec::new();
        let mut links = 0;
        while let Some(part) = left.pop() {
            if part == ".." {
                done.pop();
                continue;
            }
            let here = self.root.join(done.iter().collect::<PathBuf>()).join(&part);
            if files::link_metadata(&here)?.kind != Kind::Link {
                done.push(part);
                continue;
            }
            links += 1;
            if links > MAX_LINKS {
                return Err(rustix::io::Errno::LOOP.into());
            }
            let target = files::read_link(&here)?;
            if target.is_absolute() {
                done.clear();
            }
            left.extend(parts(&target).rev());
        }
        Ok(self.root.join(done.iter().collect::<PathBuf>()))
    }

    fn inside(&self, real: &Path) -> PathBuf {
        Path::new("/").join(real.strip_prefix(&self.root).unwrap_or(real))
    }
}

/// The components that are names or `..`.
fn parts(path: &Path) -> impl DoubleEndedIterator<Item = OsString> + '_ {
    path.components().filter_map(|component| match component {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some("..".into()),
        _ => None,
    })
}

impl Host for Rooted {
    fn env(&self) -> &Environment {
        &self.env
    }

    fn cwd(&self) -> Option<PathBuf> {
        None
    }

    fn root(&self) -> Option<&Path> {
        Some(&self.root)
    }

    fn system(&self) -> Option<&dyn System> {
        None
    }

    fn read(&self, path: &Path, cap: u64) -> io::Result<Vec<u8>> {
        files::read(&self.resolve(path)?, cap)
    }

    fn open(&self, path: &Path) -> io::Result<(File, u64)> {
        files::open(&self.resolve(path)?)
    }

    fn list(&self, path: &Path) -> io::Result<Vec<Entry>> {
        files::list(&self.resolve(path)?)
    }

    fn metadata(&self, path: &Path) -> io::Result<Meta> {
        files::link_metadata(&self.resolve(path)?)
    }

    fn link_metadata(&self, path: &Path) -> io::Result<Meta> {
        files::link_metadata(&self.resolve_link(path)?)
    }

    fn read_link(&self, path: &Path) -> io::Result<PathBuf> {
        files::read_link(&self.resolve_link(path)?)
    }

    fn real_path(&self, path: &Path) -> io::Result<PathBuf> {
        self.resolve(path).map(|real| self.inside(&real))
    }

    fn walk(&self, path: &Path, depth: usize) -> Vec<(PathBuf, io::Result<Kind>)> {
        let real = match self.resolve(path) {
            Ok(real) => real,
            Err(error) => return vec![(path.to_owned(), Err(error))],
        };
        files::walk(&real, depth).into_iter().map(|(below, kind)| (path.join(below), kind)).collect()
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, clippy::disallowed_methods)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;

    fn tree() -> (tempfile::TempDir, Rooted) {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        fs::create_dir_all(at("usr/local/cuda-12.4/bin")).unwrap();
        fs::create_dir_all(at("etc/alternatives")).unwrap();
        fs::write(at("usr/local/cuda-12.4/bin/nvcc"), "x").unwrap();
        symlink("/usr/local/cuda-12.4", at("etc/alternatives/cuda")).unwrap();
        symlink("/etc/alternatives/cuda", at("usr/local/cuda")).unwrap();
        symlink("../../../../../../etc/passwd", at("usr/escape")).unwrap();
        symlink("loop", at("usr/loop")).unwrap();
        let host = Rooted::new(dir.path(), Environment::new()).unwrap();
        (dir, host)
    }

    #[test]
    fn absolute_links_stay_inside() {
        let (_dir, host) = tree();
        assert_eq!(host.real_path(Path::new("/usr/local/cuda/bin/nvcc")).unwrap(), Path::new("/usr/local/cuda-12.4/bin/nvcc"));
        assert_eq!(host.read(Path::new("/usr/local/cuda/bin/nvcc"), 10).unwrap(), b"x");
        assert_eq!(host.read_link(Path::new("/usr/local/cuda")).unwrap(), Path::new("/etc/alternatives/cuda"));
        assert_eq!(host.link_metadata(Path::new("/usr/local/cuda")).unwrap().kind, Kind::Link);
        assert_eq!(host.metadata(Path::new("/usr/local/cuda")).unwrap().kind, Kind::Folder);
        assert_eq!(host.real_path(Path::new("/")).unwrap(), Path::new("/"));
    }

    #[test]
    fn nothing_leaves_the_tree() {
        let (_dir, host) = tree();
        assert_eq!(host.read(Path::new("/usr/escape"), 10).unwrap_err().kind(), io::ErrorKind::NotFound);
        assert!(host.metadata(Path::new("/usr/loop")).is_err());
        assert_eq!(host.real_path(Path::new("/../../usr")).unwrap(), Path::new("/usr"));
    }

    #[test]
    fn the_walk_agrees_with_the_kernel() {
        let (_dir, host) = tree();
        for path in ["/", "/usr/local/cuda/bin/nvcc", "/usr/local/../local/cuda", "/none", "/usr/loop", "/usr/escape"] {
            let path = Path::new(path);
            assert_eq!(host.resolve(path).ok(), host.resolve_by_walk(path).ok(), "{}", path.display());
        }
    }

    #[test]
    fn a_fifo_is_not_opened() {
        let (dir, host) = tree();
        rustix::fs::mknodat(rustix::fs::CWD, dir.path().join("fifo"), rustix::fs::FileType::Fifo, Mode::RUSR, 0).unwrap();
        assert_eq!(host.read(Path::new("/fifo"), 10).unwrap_err().kind(), io::ErrorKind::InvalidData);
    }
}
