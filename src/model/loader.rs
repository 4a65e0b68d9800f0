//! Which file the dynamic loader gives for a name, in a process where Python has imported torch.

use crate::facts::raw::HostPath;
use crate::facts::snapshot::Snapshot;
use crate::facts::torch::Torch;

/// What the loader answers for a name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    Found {
        path: HostPath,
        via: Via,
    },
    /// Nowhere on the search; the process dies with `cannot open shared object file`.
    NotFound,
    /// The facts do not tell.
    Unknown {
        why: String,
    },
}

/// How the loader came to a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Via {
    /// DT_RPATH or DT_RUNPATH of this object.
    Rpath {
        of: HostPath,
    },
    Runpath {
        of: HostPath,
    },
    /// The entry of LD_LIBRARY_PATH, counted from 1.
    LibraryPath {
        entry: usize,
    },
    Cache,
    DefaultFolder,
    /// torch opens this file by path (`_preload_cuda_deps`).
    Preload,
    /// A library of this name was loaded before, by this path.
    Loaded,
}

/// The file torch's own libraries get for this SONAME: `libcudart.so.12`.
pub fn torch_gets(facts: &Snapshot, torch: &Torch, soname: &str) -> Answer {
    let _ = (facts, torch, soname);
    Answer::Unknown { why: "not modelled yet".to_owned() }
}

/// The file an extension without a RUNPATH gets for this name once torch is imported.
pub fn extension_gets(facts: &Snapshot, torch: &Torch, soname: &str) -> Answer {
    let _ = (facts, torch, soname);
    Answer::Unknown { why: "not modelled yet".to_owned() }
}
