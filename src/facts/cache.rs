//! torch's extension cache: its possible roots, the ops built in them, and their locks.

use super::device_code::DeviceCode;
use super::elf::ElfFacts;
use super::observed::Observed;
use super::raw::HostPath;
use super::source::Source;
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct CacheFacts {
    /// `TORCH_EXTENSIONS_DIR`, `$XDG_CACHE_HOME/torch_extensions`, `~/.cache/torch_extensions`: each that exists or would be made.
    #[serde(default)]
    pub roots: Vec<CacheRoot>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CacheRoot {
    pub path: HostPath,
    pub source: Source,
    pub exists: bool,
    /// The user can write here, or in the nearest folder above that exists; absent `Skipped` under a root or snapshot.
    #[serde(default)]
    pub writable: Observed<bool>,
    /// Folders of a tag or an op that exist and that the user cannot write.
    #[serde(default)]
    pub closed: Vec<HostPath>,
    #[serde(default)]
    pub ops: Vec<CachedOp>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CachedOp {
    /// `.../py311_cu130/fused_adam`
    pub path: HostPath,
    pub name: String,
    /// `py311_cu130`; `None` directly under `TORCH_EXTENSIONS_DIR`.
    pub tag: Option<String>,
    /// Seconds since 1970 of the built library, where there is one.
    pub built: Option<i64>,
    /// From build.ninja: the folder of the torch it was built against.
    #[serde(default)]
    pub torch_path: Option<HostPath>,
    /// The objects of build.ninja that the C++ compiler makes. torch's headers are no dependencies of theirs (`-MMD` leaves out what
    /// comes by `-isystem`), as they are of nvcc's.
    #[serde(default)]
    pub objects: Vec<CachedObject>,
    /// The built libraries: `fused_adam.so`, and one for each changed source (`fused_adam_v1.so`).
    #[serde(default)]
    pub libraries: Vec<CachedLibrary>,
    #[serde(default)]
    pub lock: Option<Lock>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CachedLibrary {
    pub name: String,
    #[serde(default)]
    pub elf: Observed<ElfFacts>,
    /// Absent: the library has none.
    #[serde(default)]
    pub device: Observed<DeviceCode>,
}

impl CachedOp {
    /// What a process imports: it counts its builds from the first.
    pub fn library(&self) -> Option<&CachedLibrary> {
        self.libraries.iter().find(|library| library.name.strip_suffix(".so") == Some(&self.name))
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CachedObject {
    /// `fused_adam_frontend.o`
    pub name: String,
    /// Seconds since 1970.
    pub made: i64,
    /// Its source is newer or gone: the next build does not keep it.
    #[serde(default)]
    pub outdated: bool,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Lock {
    pub path: HostPath,
    /// Seconds since 1970.
    pub modified: i64,
    /// Whether a living process works in the folder (has the lock or a file of the folder open, or it as its current folder):
    /// judged only on a local file system with this machine's processes visible.
    #[serde(default)]
    pub in_use: Observed<bool>,
}
