//! The readers of bytes against the tools that read the same bytes: readelf, ldconfig, gcc, nvcc.

mod bombs;
mod damaged;
mod elf;
mod headers;
mod ldcache;
mod sample;
mod strings;

use ds_doctor::binary::ReadAt;
use libtest_mimic::Trial;
use std::cell::Cell;
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;

pub fn trials() -> Vec<Trial> {
    [elf::trials(), ldcache::trials(), headers::trials(), strings::trials(), damaged::trials(), bombs::trials()]
        .into_iter()
        .flatten()
        .collect()
}

/// A file read by position that counts what it costs.
struct Counted {
    file: fs::File,
    length: u64,
    reads: Cell<u64>,
    bytes: Cell<u64>,
}

impl Counted {
    fn open(path: impl AsRef<Path>) -> Self {
        let file = fs::File::open(path).unwrap();
        let length = file.metadata().unwrap().len();
        Self { file, length, reads: Cell::new(0), bytes: Cell::new(0) }
    }
}

impl ReadAt for Counted {
    fn len(&self) -> u64 {
        self.length
    }
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> std::io::Result<usize> {
        let n = self.file.read_at(buf, offset)?;
        self.reads.set(self.reads.get() + 1);
        self.bytes.set(self.bytes.get() + n as u64);
        Ok(n)
    }
}

/// A program of this machine that a test compares with; the reason to skip where it is missing.
fn tool(name: &str) -> Result<PathBuf, String> {
    let folders = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&folders).chain(["/usr/sbin".into(), "/sbin".into()]).map(|d| d.join(name)).find(|p| p.is_file());
    found.ok_or_else(|| format!("no `{name}`"))
}

/// What a tool prints, in the C locale. Tools that complain about one of many files still print the others.
fn printed(tool: &Path, args: &[&str], files: &[PathBuf]) -> String {
    let output = Command::new(tool).args(args).args(files).env("LC_ALL", "C").output().unwrap();
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Regular files of a folder, sorted, without links.
fn files_of(folder: &str) -> Vec<PathBuf> {
    let mut files: Vec<_> =
        fs::read_dir(folder).into_iter().flatten().map(|e| e.unwrap().path()).filter(|p| !p.is_symlink() && p.is_file()).collect();
    files.sort();
    files
}
