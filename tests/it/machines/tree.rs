//! A file tree under construction. Links are followed inside the tree, as on the machine itself: nothing is ever written outside.

use super::elf::{AARCH64, Elf, X86_64};
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Component, Path, PathBuf};

pub struct Tree {
    root: PathBuf,
    /// `e_machine` of its programs.
    pub machine: u16,
    /// The loader that its programs name.
    pub loader: &'static str,
}

impl Tree {
    pub fn new(root: &Path, aarch64: bool, musl: bool) -> Self {
        let (machine, loader) = match (aarch64, musl) {
            (false, false) => (X86_64, "/lib64/ld-linux-x86-64.so.2"),
            (true, false) => (AARCH64, "/lib/ld-linux-aarch64.so.1"),
            (false, true) => (X86_64, "/lib/ld-musl-x86_64.so.1"),
            (true, true) => (AARCH64, "/lib/ld-musl-aarch64.so.1"),
        };
        Self { root: root.to_owned(), machine, loader }
    }

    /// `x86_64-linux-gnu`
    pub fn triple(&self) -> &'static str {
        if self.machine == AARCH64 { "aarch64-linux-gnu" } else { "x86_64-linux-gnu" }
    }

    pub fn library(&self, soname: &str) -> Elf {
        Elf::library(self.machine, soname)
    }

    pub fn program(&self) -> Elf {
        Elf::program(self.machine, self.loader)
    }

    /// Where a path of the machine lies outside, all links but a last one followed inside the tree.
    pub fn at(&self, path: &str) -> PathBuf {
        assert!(path.starts_with('/'), "`{path}` is not absolute");
        let mut left: Vec<String> = parts(Path::new(path));
        let mut done: Vec<String> = Vec::new();
        let mut links = 0;
        while let Some(part) = left.pop() {
            if part == ".." {
                done.pop();
                continue;
            }
            let here = self.root.join(done.join("/")).join(&part);
            match fs::read_link(&here) {
                Ok(target) if !left.is_empty() => {
                    links += 1;
                    assert!(links < 40, "`{path}` goes round in links");
                    if target.is_absolute() {
                        done.clear();
                    }
                    left.extend(parts(&target));
                }
                _ => done.push(part),
            }
        }
        self.root.join(done.join("/"))
    }

    /// As [`Tree::at`], a last link followed too.
    pub fn real(&self, path: &str) -> PathBuf {
        self.at(&format!("{path}/below")).parent().unwrap().to_owned()
    }

    fn place(&self, path: &str) -> PathBuf {
        let at = self.at(path);
        if let Some(parent) = at.parent() {
            fs::create_dir_all(parent).unwrap_or_else(|e| panic!("`{path}`: {e}"));
        }
        // A file over a link replaces the link.
        if fs::symlink_metadata(&at).is_ok_and(|meta| meta.is_symlink()) {
            fs::remove_file(&at).unwrap();
        }
        at
    }

    pub fn file(&self, path: &str, bytes: impl AsRef<[u8]>) {
        let at = self.place(path);
        fs::write(&at, bytes).unwrap_or_else(|e| panic!("`{path}`: {e}"));
    }

    pub fn exec(&self, path: &str, bytes: impl AsRef<[u8]>) {
        self.file(path, bytes);
        self.mode(path, 0o755);
    }

    /// A program without anything to say.
    pub fn plain(&self, path: &str) {
        self.exec(path, self.program().bytes());
    }

    pub fn mode(&self, path: &str, mode: u32) {
        fs::set_permissions(self.real(path), fs::Permissions::from_mode(mode)).unwrap_or_else(|e| panic!("`{path}`: {e}"));
    }

    pub fn link(&self, path: &str, target: &str) {
        let at = self.place(path);
        let _ = fs::remove_file(&at);
        symlink(target, &at).unwrap_or_else(|e| panic!("`{path}` -> `{target}`: {e}"));
    }

    pub fn folder(&self, path: &str) {
        let at = self.place(path);
        fs::create_dir_all(&at).unwrap_or_else(|e| panic!("`{path}`: {e}"));
    }

    pub fn exists(&self, path: &str) -> bool {
        fs::symlink_metadata(self.at(path)).is_ok()
    }

    /// Takes away a file, a link or a folder; `*` at the end stands for any rest of the name. Panics where there is nothing to take.
    pub fn remove(&self, path: &str) {
        let (folder, name) = path.rsplit_once('/').unwrap();
        let mut gone = 0;
        if let Some(start) = name.strip_suffix('*') {
            for entry in fs::read_dir(self.real(folder)).unwrap_or_else(|e| panic!("`{path}`: {e}")) {
                let entry = entry.unwrap();
                if entry.file_name().to_string_lossy().starts_with(start) {
                    remove(&entry.path());
                    gone += 1;
                }
            }
        } else if self.exists(path) {
            remove(&self.at(path));
            gone = 1;
        }
        assert!(gone > 0, "nothing to take away at `{path}`");
    }

    /// Leaves the first half of a file.
    pub fn cut(&self, path: &str) {
        let file = fs::OpenOptions::new().write(true).open(self.real(path)).unwrap_or_else(|e| panic!("`{path}`: {e}"));
        let half = file.metadata().unwrap().len() / 2;
        file.set_len(half).unwrap();
    }

    /// Seconds since 1970.
    pub fn time(&self, path: &str, seconds: u64) {
        let file = fs::OpenOptions::new().write(true).open(self.real(path)).unwrap_or_else(|e| panic!("`{path}`: {e}"));
        file.set_modified(std::time::UNIX_EPOCH + std::time::Duration::from_secs(seconds)).unwrap();
    }
}

/// The names of a path, the last first.
fn parts(path: &Path) -> Vec<String> {
    let name = |part: Component<'_>| match part {
        Component::Normal(name) => Some(name.to_str().unwrap().to_owned()),
        Component::ParentDir => Some("..".to_owned()),
        _ => None,
    };
    path.components().rev().filter_map(name).collect()
}

fn remove(path: &Path) {
    if fs::symlink_metadata(path).unwrap().is_dir() { fs::remove_dir_all(path).unwrap() } else { fs::remove_file(path).unwrap() }
}
