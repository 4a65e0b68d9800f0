//! Plain file work on real paths, shared by the live and the rooted host.
#![expect(clippy::disallowed_methods, reason = "the host is the door to the file system")]

use super::{Entry, Kind, Meta};
use std::ffi::OsString;
use std::fs::{self, File, FileType, OpenOptions};
use std::io::{self, Read as _};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

fn kind(of: FileType) -> Kind {
    if of.is_file() {
        Kind::File
    } else if of.is_dir() {
        Kind::Folder
    } else if of.is_symlink() {
        Kind::Link
    } else {
        debug_assert!(of.is_block_device() || of.is_char_device() || of.is_fifo() || of.is_socket());
        Kind::Other
    }
}

fn meta(of: &fs::Metadata) -> Meta {
    Meta {
        kind: kind(of.file_type()),
        len: of.len(),
        modified: of.mtime(),
        device: of.dev(),
        inode: of.ino(),
        mode: of.mode(),
        uid: of.uid(),
    }
}

pub fn metadata(path: &Path) -> io::Result<Meta> {
    fs::metadata(path).map(|m| meta(&m))
}

pub fn link_metadata(path: &Path) -> io::Result<Meta> {
    fs::symlink_metadata(path).map(|m| meta(&m))
}

pub fn read_link(path: &Path) -> io::Result<PathBuf> {
    fs::read_link(path)
}

pub fn canonical(path: &Path) -> io::Result<PathBuf> {
    fs::canonicalize(path)
}

/// Looks before it opens, since opening a device can act on it, and opens without blocking, since a FIFO would wait for a writer.
pub fn open(path: &Path) -> io::Result<(File, u64)> {
    let refuse = || io::Error::new(io::ErrorKind::InvalidData, "not a regular file");
    if !fs::metadata(path)?.is_file() {
        return Err(refuse());
    }
    let file = OpenOptions::new().read(true).custom_flags(rustix::fs::OFlags::NONBLOCK.bits() as i32).open(path)?;
    let meta = file.metadata()?;
    if meta.is_file() { Ok((file, meta.len())) } else { Err(refuse()) }
}

pub fn read(path: &Path, cap: u64) -> io::Result<Vec<u8>> {
    let (file, length) = open(path)?;
    let mut bytes = Vec::with_capacity(usize::try_from(length.min(cap).min(1 << 16)).unwrap_or(0));
    // Files of /proc say length 0, so the cap is held while reading.
    file.take(cap + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > cap {
        return Err(io::Error::new(io::ErrorKind::InvalidData, format!("longer than {cap} bytes")));
    }
    Ok(bytes)
}

pub fn list(path: &Path) -> io::Result<Vec<Entry>> {
    let mut entries = Vec::new();
    for entry in fs::read_dir(path)? {
        let entry = entry?;
        entries.push(Entry { name: entry.file_name(), kind: kind(entry.file_type()?) });
    }
    entries.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(entries)
}

/// Paths relative to `path`.
pub fn walk(path: &Path, depth: usize) -> Vec<(PathBuf, io::Result<Kind>)> {
    let below = |whole: &Path| whole.strip_prefix(path).unwrap_or(whole).to_owned();
    walkdir::WalkDir::new(path)
        .min_depth(1)
        .max_depth(depth)
        .follow_links(false)
        .sort_by_file_name()
        .into_iter()
        .map(|entry| match entry {
            Ok(entry) => (below(entry.path()), Ok(kind(entry.file_type()))),
            Err(error) => (below(error.path().unwrap_or(path)), Err(error.into())),
        })
        .collect()
}

/// The process's own environment.
pub fn environment() -> super::Environment {
    std::env::vars_os().collect::<std::collections::BTreeMap<OsString, OsString>>()
}

pub fn current_dir() -> Option<PathBuf> {
    std::env::current_dir().ok()
}
