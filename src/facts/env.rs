//! The environment variables that builds and loads read, and what the folders they name are.

use super::raw::{HostPath, Raw};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct EnvFacts {
    /// Only variables on the list of those that matter, and none that can hold a secret.
    #[serde(default)]
    pub vars: BTreeMap<String, Raw>,
    #[serde(default)]
    pub cwd: Option<HostPath>,
    /// Every folder (or file) named by a path variable, once.
    #[serde(default)]
    pub places: Vec<NamedPlace>,
    /// Modules in the current folder and on PYTHONPATH that bear the name of a package which builds and runs import.
    #[serde(default)]
    pub modules: Vec<LocalModule>,
}

/// A module that Python may import in the place of an installed package.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LocalModule {
    /// `deepspeed`
    pub name: String,
    pub path: HostPath,
    pub is: LocalKind,
    /// The entry of PYTHONPATH that it lies in, counted from 1; `None`: the current folder.
    #[serde(default)]
    pub entry: Option<usize>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LocalKind {
    /// `deepspeed.py`
    File,
    /// A folder with `__init__.py`; one without hides nothing.
    Package,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct NamedPlace {
    pub path: HostPath,
    pub state: PlaceState,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "is", rename_all = "kebab-case")]
pub enum PlaceState {
    Folder,
    File,
    Missing,
    /// A symbolic link whose target is not there.
    Dangling {
        target: HostPath,
    },
    Unreadable {
        why: String,
    },
}

/// What a value was meant to be: without the blanks and line ends around it, and without one pair of quotes, which shells drop and other
/// readers of files with variables keep. `None` where nothing stands around it.
pub fn unwrapped(value: &OsStr) -> Option<&OsStr> {
    let mut inner = value.as_bytes().trim_ascii();
    if let [b'"', quoted @ .., b'"'] | [b'\'', quoted @ .., b'\''] = inner {
        inner = quoted.trim_ascii();
    }
    (!inner.is_empty() && inner.len() < value.len()).then(|| OsStr::from_bytes(inner))
}

impl EnvFacts {
    /// The value, also when it is empty.
    pub fn get(&self, name: &str) -> Option<&OsStr> {
        self.vars.get(name).map(|raw| raw.0.as_os_str())
    }

    /// The value where it is not empty: most readers treat empty as unset.
    pub fn filled(&self, name: &str) -> Option<&OsStr> {
        self.get(name).filter(|value| !value.is_empty())
    }

    /// [`EnvFacts::filled`] as text; other bytes are replaced, so for reading words and numbers only.
    pub fn text(&self, name: &str) -> Option<String> {
        self.filled(name).map(|value| value.to_string_lossy().into_owned())
    }

    pub fn path(&self, name: &str) -> Option<&Path> {
        self.filled(name).map(Path::new)
    }

    /// The entries of a list variable in order, empty ones included (they mean the current folder). Unset or empty: none.
    pub fn entries(&self, name: &str) -> Vec<PathBuf> {
        match self.filled(name) {
            Some(value) => value.as_bytes().split(|b| *b == b':').map(|e| PathBuf::from(OsStr::from_bytes(e))).collect(),
            None => Vec::new(),
        }
    }

    pub fn state(&self, path: &Path) -> Option<&PlaceState> {
        self.places.iter().find(|place| &*place.path == path).map(|place| &place.state)
    }

    pub fn set(&mut self, name: &str, value: impl Into<Raw>) {
        self.vars.insert(name.to_owned(), value.into());
    }

    pub fn unset(&mut self, name: &str) {
        self.vars.remove(name);
    }
}
