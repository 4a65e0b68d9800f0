//! A build that passed is not done again as long as nothing that it was made from changes.

use crate::facts::probe::Step;
use crate::facts::snapshot::Snapshot;
use crate::host::{Host, Store};
use crate::model::build_flags::Toolchain;
use crate::model::cuda_home::CudaHome;
use crate::model::search;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

/// Variables that change what the programs do. PATH decides which ones run, the others what they read.
const VARIABLES: &[&str] = &[
    "CC",
    "CCACHE_DISABLE",
    "COMPILER_PATH",
    "CPATH",
    "CPLUS_INCLUDE_PATH",
    "CUDA_HOME",
    "CUDA_PATH",
    "CXX",
    "C_INCLUDE_PATH",
    "GCC_EXEC_PREFIX",
    "LD_LIBRARY_PATH",
    "LD_PRELOAD",
    "LD_RUN_PATH",
    "LIBRARY_PATH",
    "NVCC_APPEND_FLAGS",
    "NVCC_CCBIN",
    "NVCC_PREPEND_FLAGS",
    "PATH",
    "TMPDIR",
];

const RESULT: &str = "result.json";
pub const LIBRARY: &str = "probe.so";
/// A machine has few toolchains, with two entries each, of the kernels and of the ops; an entry is below a megabyte.
const MOST: usize = 32;

/// What the build is made from, as text: equal texts build equal libraries.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Key(String);

#[derive(Serialize, Deserialize)]
struct Kept {
    key: String,
    steps: Vec<Step>,
}

impl Key {
    pub fn new(
        host: &dyn Host,
        facts: &Snapshot,
        home: &CudaHome<'_>,
        chain: &Toolchain,
        more: &[OsString],
        sources: &[(&str, &[u8])],
    ) -> Self {
        let mut text = format!("{} {}\n", env!("CARGO_PKG_NAME"), env!("CARGO_PKG_VERSION"));
        // Writing into a String cannot fail.
        let _ = writeln!(
            text,
            "{:?}\n{:?}\n{:?}",
            chain.nvcc_command("a", "b", more),
            chain.cxx_command("a", "b", &[]),
            chain.link_command(&["a"], "b", &[])
        );
        for name in VARIABLES {
            let _ = writeln!(text, "{name} {:?}", host.var(name));
        }
        for (name, bytes) in sources {
            let _ = writeln!(text, "{name} {:016x}", fnv(bytes, FNV));
        }
        for path in files(facts, home, chain) {
            let state = host.metadata(&path).map(|meta| (meta.len, meta.modified, meta.device, meta.inode)).ok();
            let _ = writeln!(text, "{} {state:?}", path.display());
        }
        Self(text)
    }

    pub fn text(&self) -> &str {
        &self.0
    }

    /// A file name.
    pub fn name(&self) -> String {
        let bytes = self.0.as_bytes();
        format!("{:016x}{:016x}", fnv(bytes, FNV), fnv(bytes, !FNV))
    }
}

/// Programs, headers and libraries that the build takes; links are followed when they are looked at.
fn files(facts: &Snapshot, home: &CudaHome<'_>, chain: &Toolchain) -> BTreeSet<PathBuf> {
    let mut all = BTreeSet::new();
    let program = |word: &OsStr| match search::which(facts, word) {
        Some(hit) => hit.program.path.0.clone(),
        None => PathBuf::from(word),
    };
    all.extend(chain.nvcc.iter().chain(&chain.cxx).map(|word| program(word)));
    all.extend(["gcc", "g++", "ld", "as"].map(|name| program(OsStr::new(name))));
    all.extend(facts.env.get("CC").map(program));
    if let Some(kit) = home.toolkit {
        all.extend(kit.nvcc.value().map(|nvcc| nvcc.program.0.clone()));
        all.extend(kit.parts.iter().filter_map(|part| part.path.as_ref()).map(|path| path.0.clone()));
        all.extend(kit.host_limits.value().map(|limits| limits.path.0.clone()));
        for folder in &kit.includes {
            // A folder's time is that of the last header that came or went.
            all.insert(folder.path.0.clone());
            all.extend(["crt", "cccl", "cccl/nv", "nv", "cuda_runtime.h", "cuda_runtime_api.h"].map(|name| folder.path.0.join(name)));
        }
    }
    let named = facts.env.entries("LIBRARY_PATH");
    let folders = chain.libs.iter().map(|folder| folder.0.clone()).chain(named);
    all.extend(folders.flat_map(|folder| [folder.join("libcudart.so"), folder]));
    all
}

/// The steps of the build with this key, and its library.
pub fn load(store: &Store, key: &Key) -> Option<(Vec<Step>, PathBuf)> {
    let name = key.name();
    let kept: Kept = serde_json::from_slice(&store.read(&name, RESULT)?).ok()?;
    // Two keys of one name: the text decides.
    (kept.key == key.0).then(|| (kept.steps, store.path(&name).join(LIBRARY)))
}

/// Keeps a build that passed, with its images. A cache that cannot be written is no fault.
pub fn save(store: &Store, key: &Key, steps: &[Step], library: &Path, images: &[PathBuf]) -> Option<PathBuf> {
    let kept = Kept { key: key.0.clone(), steps: steps.to_vec() };
    let json = serde_json::to_vec(&kept).ok()?;
    let name = key.name();
    let images = images.iter().filter_map(|path| Some((path.file_name()?.to_str()?, path.as_path())));
    let files: Vec<(&str, &Path)> = images.chain([(LIBRARY, library)]).collect();
    store.save(&name, &files, &[(RESULT, &json)]).ok()?;
    trim(store);
    Some(store.path(&name).join(LIBRARY))
}

/// Entries beyond those of the last toolchains go.
pub fn trim(store: &Store) {
    store.trim(MOST);
}

const FNV: u64 = 0xcbf2_9ce4_8422_2325;

fn fnv(bytes: &[u8], start: u64) -> u64 {
    bytes.iter().fold(start, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}
