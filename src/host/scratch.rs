//! The two places that a trial build writes to: a temporary folder, and the doctor's own cache folder.
#![expect(clippy::disallowed_methods, reason = "writes below the temporary folder and the doctor's cache, nowhere else")]

use super::interrupt;
use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

/// A temporary folder, removed in the end: when dropped, and when the run is interrupted.
#[derive(Debug)]
pub struct Scratch {
    path: PathBuf,
    kept: bool,
}

impl Scratch {
    /// In the folder given, which must exist.
    ///
    /// # Errors
    /// As the system says.
    pub fn new(parent: &Path) -> io::Result<Self> {
        let path = interrupt::folder(|| Ok(tempfile::Builder::new().prefix("ds-doctor-").tempdir_in(parent)?.keep()))?;
        Ok(Self { path, kept: false })
    }

    /// Where temporary files go: TMPDIR, else `/tmp`.
    ///
    /// # Errors
    /// As the system says.
    pub fn temporary() -> io::Result<Self> {
        Self::new(&std::env::temp_dir())
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Writes a file into it, making folders as needed.
    ///
    /// # Errors
    /// As the system says.
    pub fn write(&self, name: impl AsRef<Path>, bytes: &[u8]) -> io::Result<()> {
        let path = self.path.join(name);
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder)?;
        }
        fs::write(path, bytes)
    }

    /// It stays.
    pub fn keep(&mut self) {
        self.kept = true;
        interrupt::keep(&self.path);
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if !self.kept {
            interrupt::remove(&self.path);
            interrupt::keep(&self.path);
        }
    }
}

/// A folder of entries below the doctor's own cache, each a folder of files that is there whole or not at all.
#[derive(Debug, Clone)]
pub struct Store {
    folder: PathBuf,
}

impl Store {
    /// `folder` need not exist.
    pub fn new(folder: impl Into<PathBuf>) -> Self {
        Self { folder: folder.into() }
    }

    pub fn path(&self, entry: &str) -> PathBuf {
        self.folder.join(entry)
    }

    /// A file of an entry; `None` where there is none that can be read.
    pub fn read(&self, entry: &str, name: &str) -> Option<Vec<u8>> {
        fs::read(self.path(entry).join(name)).ok()
    }

    /// Puts an entry in place of what is there: files by name, copied or written.
    ///
    /// # Errors
    /// As the system says; nothing half done stays.
    pub fn save(&self, entry: &str, copied: &[(&str, &Path)], written: &[(&str, &[u8])]) -> io::Result<()> {
        fs::create_dir_all(&self.folder)?;
        let new = tempfile::Builder::new().prefix(".new-").tempdir_in(&self.folder)?;
        for (name, from) in copied {
            fs::copy(from, new.path().join(name))?;
        }
        for (name, bytes) in written {
            let mut file = fs::File::create(new.path().join(name))?;
            file.write_all(bytes)?;
        }
        let place = self.path(entry);
        // Somebody else's entry of the same name is as good as ours, but it may be a damaged one.
        if place.exists() {
            let old = tempfile::Builder::new().prefix(".old-").tempdir_in(&self.folder)?;
            fs::rename(&place, old.path().join("entry"))?;
        }
        fs::rename(new.keep(), &place)
    }

    /// Entries beyond the newest `most` go.
    pub fn trim(&self, most: usize) {
        let Ok(entries) = fs::read_dir(&self.folder) else { return };
        let mut entries: Vec<_> = entries
            .filter_map(Result::ok)
            .filter(|entry| !entry.file_name().as_encoded_bytes().starts_with(b"."))
            .filter_map(|entry| Some((entry.metadata().ok()?.modified().ok()?, entry.path())))
            .collect();
        entries.sort();
        let over = entries.len().saturating_sub(most);
        for (_, path) in entries.into_iter().take(over) {
            let _ = fs::remove_dir_all(path);
        }
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_scratch_folder_goes_unless_kept() {
        let parent = tempfile::tempdir().unwrap();
        let scratch = Scratch::new(parent.path()).unwrap();
        scratch.write("a/b.cu", b"x").unwrap();
        let path = scratch.path().to_owned();
        assert!(path.join("a/b.cu").is_file());
        drop(scratch);
        assert!(!path.exists());
        let mut scratch = Scratch::new(parent.path()).unwrap();
        scratch.keep();
        let path = scratch.path().to_owned();
        drop(scratch);
        assert!(path.is_dir());
    }

    #[test]
    fn entries_are_replaced_whole_and_trimmed() {
        let parent = tempfile::tempdir().unwrap();
        let store = Store::new(parent.path().join("deep/probe"));
        assert_eq!(store.read("one", "x"), None);
        let file = parent.path().join("file");
        fs::write(&file, b"library").unwrap();
        store.save("one", &[("so", &file)], &[("x", b"1")]).unwrap();
        store.save("one", &[], &[("x", b"2")]).unwrap();
        assert_eq!(store.read("one", "x").unwrap(), b"2");
        assert_eq!(store.read("one", "so"), None, "the old entry is gone whole");
        for number in 0..4 {
            store.save(&format!("n{number}"), &[], &[("x", b"3")]).unwrap();
        }
        store.trim(3);
        let names: Vec<_> = fs::read_dir(store.path("")).unwrap().collect();
        assert_eq!(names.len(), 3, "{names:?}");
    }
}
