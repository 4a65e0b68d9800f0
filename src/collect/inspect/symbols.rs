//! Which file, of those that the loader would ask, has a symbol.

use crate::binary::FileAt;
use crate::binary::elf::{Elf, Exports, fingerprint};
use crate::facts::raw::HostPath;
use crate::host::Host;
use std::collections::{HashMap, HashSet};
use std::fs::File;

/// Libraries that have been asked, each opened once.
pub struct Symbols<'a> {
    host: &'a dyn Host,
    /// What members of a wheel offer, by the path at which they would be installed.
    members: HashMap<HostPath, &'a HashSet<u64>>,
    files: HashMap<HostPath, Result<Library, String>>,
}

struct Library {
    file: FileAt<File>,
    exports: Exports,
    /// Answers so far, by fingerprint: files of one environment ask for the same names.
    asked: HashMap<u64, bool>,
}

impl<'a> Symbols<'a> {
    pub fn new(host: &'a dyn Host) -> Self {
        Self { host, members: HashMap::new(), files: HashMap::new() }
    }

    /// A file that is not on the machine.
    pub fn plan(&mut self, path: HostPath, exports: &'a HashSet<u64>) {
        self.members.insert(path, exports);
    }

    /// The names that none of these files defines.
    ///
    /// # Errors
    /// A file that cannot be asked: nobody knows then.
    pub fn missing<'n>(&mut self, names: impl IntoIterator<Item = &'n str>, scope: &[HostPath]) -> Result<Vec<&'n str>, String> {
        let mut left: Vec<&str> = names.into_iter().collect();
        for path in scope {
            if left.is_empty() {
                break;
            }
            if let Some(exports) = self.members.get(path) {
                left.retain(|name| !exports.contains(&fingerprint(name)));
                continue;
            }
            let library = self.files.entry(path.clone()).or_insert_with(|| open(self.host, path));
            let library = library.as_mut().map_err(|why| why.clone())?;
            library.take(&mut left).map_err(|error| format!("`{path}`: {error}"))?;
        }
        Ok(left)
    }
}

fn open(host: &dyn Host, path: &HostPath) -> Result<Library, String> {
    let file = crate::collect::open(host, path).map_err(|error| format!("`{path}`: {error}"))?;
    let exports = Elf::open(&file).and_then(|elf| Exports::read(&elf)).map_err(|error| format!("`{path}`: {error}"))?;
    Ok(Library { file, exports, asked: HashMap::new() })
}

impl Library {
    /// Takes out the names that this library defines.
    fn take(&mut self, left: &mut Vec<&str>) -> Result<(), crate::binary::elf::ElfError> {
        let elf = Elf::open(&self.file)?;
        let mut failure = None;
        left.retain(|name| {
            let print = fingerprint(name);
            let has = match self.asked.get(&print) {
                Some(known) => *known,
                None => match self.exports.has(&elf, name) {
                    Ok(has) => {
                        self.asked.insert(print, has);
                        has
                    }
                    Err(error) => {
                        failure.get_or_insert(error);
                        false
                    }
                },
            };
            !has
        });
        failure.map_or(Ok(()), Err)
    }
}
