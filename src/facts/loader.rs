//! Shared libraries that torch, the ops and the driver need: every copy that some search could meet.

use super::elf::ElfFacts;
use super::observed::Observed;
use super::raw::HostPath;
use super::source::Source;
use crate::version::Dotted;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct LoaderFacts {
    /// Entries of `/etc/ld.so.cache` for the families of [`FAMILIES`], in the loader's order, of this machine's class.
    #[serde(default)]
    pub cache: Observed<Vec<CacheEntry>>,
    /// The loader's own default folders here.
    #[serde(default)]
    pub default_folders: Vec<HostPath>,
    #[serde(default)]
    pub libraries: Vec<Library>,
    /// Paths in `/etc/ld.so.preload`.
    #[serde(default)]
    pub preload: Vec<HostPath>,
    /// Names beyond the families of which every copy that these files' searches could meet is listed too: what an inspected file needs.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub names: BTreeSet<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CacheEntry {
    pub soname: String,
    pub path: HostPath,
    /// The file is there.
    pub exists: bool,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Library {
    /// One of [`FAMILIES`]: `cudart`.
    pub family: String,
    /// The name in its folder, as a search meets it: `libcudart.so.12`.
    pub name: String,
    pub path: HostPath,
    pub real: HostPath,
    pub sources: Vec<Source>,
    /// Bytes of the real file.
    pub size: u64,
    pub elf: Observed<ElfFacts>,
    /// The exact release, where the file tells: `12.4.127` from its name, `12.4` from its code.
    #[serde(default)]
    pub release: Option<Dotted>,
    /// `file name`, `code`, `package`.
    #[serde(default)]
    pub release_from: String,
}

/// Libraries that are looked for: family and the start of the file name.
pub const FAMILIES: &[(&str, &str)] = &[
    ("cudart", "libcudart.so"),
    ("cublas", "libcublas.so"),
    ("cublasLt", "libcublasLt.so"),
    ("cudnn", "libcudnn.so"),
    ("cufft", "libcufft.so"),
    ("cufile", "libcufile.so"),
    ("cupti", "libcupti.so"),
    ("curand", "libcurand.so"),
    ("cusolver", "libcusolver.so"),
    ("cusparse", "libcusparse.so"),
    ("nccl", "libnccl.so"),
    ("nvjitlink", "libnvJitLink.so"),
    ("nvrtc", "libnvrtc.so"),
    ("nvtx", "libnvToolsExt.so"),
    ("cuda", "libcuda.so"),
    ("nvidia-ml", "libnvidia-ml.so"),
    ("stdc++", "libstdc++.so"),
    ("aio", "libaio.so"),
];

impl LoaderFacts {
    pub fn of(&self, family: &str) -> impl Iterator<Item = &Library> {
        self.libraries.iter().filter(move |library| library.family == family)
    }

    /// The library that lies in this folder under this name.
    pub fn at(&self, folder: &std::path::Path, name: &str) -> Option<&Library> {
        let path = folder.join(name);
        self.libraries.iter().find(|library| *library.path == path)
    }
}
