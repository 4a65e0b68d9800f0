//! The only door to the machine. Everything that is read, listed or run goes through [`Host`], so that the same collectors look at
//! this machine and at a file tree.

mod child;
mod files;
pub mod interrupt;
mod live;
mod remembered;
mod rooted;
mod scratch;

pub use child::{Ended, Invocation, Outcome, run_child};
pub use live::Live;
pub use remembered::Remembered;
pub use rooted::Rooted;
pub use scratch::{Scratch, Store};

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

/// The environment that is judged.
pub type Environment = BTreeMap<OsString, OsString>;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    File,
    Folder,
    Link,
    /// Device, FIFO, socket: never opened.
    Other,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    pub name: OsString,
    /// Of the entry itself: a link is a [`Kind::Link`].
    pub kind: Kind,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Meta {
    pub kind: Kind,
    pub len: u64,
    /// Seconds since 1970.
    pub modified: i64,
    pub device: u64,
    pub inode: u64,
    pub mode: u32,
    pub uid: u32,
}

impl Meta {
    pub fn executable(&self) -> bool {
        self.kind == Kind::File && self.mode & 0o111 != 0
    }
}

/// Bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Space {
    pub free: u64,
    pub size: u64,
}

/// What only a running machine can tell.
pub trait System: Sync {
    /// `uname -r` and `uname -m`.
    fn uname(&self) -> (String, String);
    fn uid(&self) -> u32;
    /// CPUs this process may use.
    fn cpus(&self) -> usize;
    fn space(&self, path: &Path) -> io::Result<Space>;
    /// Whether this user may create files in the folder.
    fn may_write(&self, path: &Path) -> bool;
    fn run(&self, what: &Invocation) -> Outcome;
}

pub trait Host: Sync {
    fn env(&self) -> &Environment;

    fn var(&self, name: &str) -> Option<&OsStr> {
        self.env().get(OsStr::new(name)).map(OsString::as_os_str)
    }

    fn cwd(&self) -> Option<PathBuf>;

    /// The folder whose tree is looked at; `None` on the machine itself.
    fn root(&self) -> Option<&Path>;

    /// What can be asked beside files; `None` for a tree: such facts are `Skipped`.
    fn system(&self) -> Option<&dyn System>;

    /// The whole file, refused when longer than `cap` bytes. Links are followed; only regular files are opened.
    ///
    /// # Errors
    /// As the system says; `InvalidData` when too long or not a regular file.
    fn read(&self, path: &Path, cap: u64) -> io::Result<Vec<u8>>;

    /// A regular file, to be read by position, and its length in bytes.
    ///
    /// # Errors
    /// As the system says; `InvalidData` when it is not a regular file.
    fn open(&self, path: &Path) -> io::Result<(File, u64)>;

    /// Entries of a folder, sorted by name, `.` and `..` left out.
    ///
    /// # Errors
    /// As the system says.
    fn list(&self, path: &Path) -> io::Result<Vec<Entry>>;

    /// Of what the path leads to, links followed.
    ///
    /// # Errors
    /// As the system says: `NotFound` for a dangling link too.
    fn metadata(&self, path: &Path) -> io::Result<Meta>;

    /// Of the last component itself.
    ///
    /// # Errors
    /// As the system says.
    fn link_metadata(&self, path: &Path) -> io::Result<Meta>;

    /// The text of a symbolic link.
    ///
    /// # Errors
    /// As the system says.
    fn read_link(&self, path: &Path) -> io::Result<PathBuf>;

    /// The path with all links resolved, as seen from inside the tree.
    ///
    /// # Errors
    /// As the system says.
    fn real_path(&self, path: &Path) -> io::Result<PathBuf>;

    /// Paths below a folder, at most `depth` levels, links not followed, folders before their contents, sorted. Of a folder that cannot be
    /// listed the error stands in place of its contents.
    fn walk(&self, path: &Path, depth: usize) -> Vec<(PathBuf, io::Result<Kind>)>;

    /// The text of a small file (1 MiB at most), other bytes than UTF-8 replaced.
    ///
    /// # Errors
    /// As [`Host::read`].
    fn read_text(&self, path: &Path) -> io::Result<String> {
        self.read(path, 1 << 20).map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
    }

    fn is_file(&self, path: &Path) -> bool {
        self.metadata(path).is_ok_and(|meta| meta.kind == Kind::File)
    }

    fn is_folder(&self, path: &Path) -> bool {
        self.metadata(path).is_ok_and(|meta| meta.kind == Kind::Folder)
    }

    fn exists(&self, path: &Path) -> bool {
        self.metadata(path).is_ok()
    }
}
