//! What DeepSpeed's ops ask for besides torch and the toolkit: libaio, cuFile, CUTLASS, nccl.h, oneCCL, and the builders' own files.
//!
//! All candidates: which of them a compiler, a linker or DeepSpeed's search takes depends on the environment and is the model's.

use super::raw::{HostPath, Raw};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::Path;

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct OpsFacts {
    /// Folders that compilers search by themselves, those that exist.
    #[serde(default)]
    pub default_includes: Vec<HostPath>,
    /// Folders that the linker searches by itself, those that exist.
    #[serde(default)]
    pub default_libs: Vec<HostPath>,
    /// Each of [`HEADERS`] in every folder where one could be.
    #[serde(default)]
    pub headers: Vec<Header>,
    /// Each file that `-l` of [`LIBRARIES`] could find.
    #[serde(default)]
    pub libraries: Vec<LinkName>,
    /// Folders of DeepSpeed's search for CUTLASS that hold something of it.
    #[serde(default)]
    pub cutlass: Vec<CutlassPlace>,
    /// `CC` with which an interpreter was built, by its `base_prefix`: distutils compiles with it.
    #[serde(default)]
    pub python_cc: Vec<(HostPath, Raw)>,
    /// The builders of each DeepSpeed.
    #[serde(default)]
    pub builders: Vec<Builders>,
}

/// Headers that ops include and that neither torch nor the toolkit brings as a rule.
pub const HEADERS: &[&str] = &["libaio.h", "nccl.h", "oneapi/ccl.hpp", "cufile.h"];

/// What DeepSpeed's own tests link.
pub const LIBRARIES: &[&str] = &["aio", "cufile"];

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Header {
    /// Of [`HEADERS`].
    pub name: String,
    /// The folder that would have to be on the include path.
    pub folder: HostPath,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinkName {
    /// Of [`LIBRARIES`].
    pub library: String,
    /// `/usr/lib/x86_64-linux-gnu/libaio.so`
    pub path: HostPath,
    /// A linker would take it: not for a name with a version behind it (`libaio.so.1`), nor for a link to nothing.
    pub linkable: bool,
    /// Version nodes that it defines: `LIBAIO_0.5`. None in a static library.
    #[serde(default)]
    pub nodes: Vec<String>,
}

/// A folder that may hold CUTLASS.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CutlassPlace {
    pub path: HostPath,
    /// It has a folder `include`.
    #[serde(default)]
    pub include: bool,
    /// `include/cutlass/cutlass.h`
    #[serde(default)]
    pub header_in_include: bool,
    /// `cutlass/cutlass.h`
    #[serde(default)]
    pub header: bool,
    /// It has a folder `tools/util/include`.
    #[serde(default)]
    pub utilities: bool,
    /// The same beside it.
    #[serde(default)]
    pub utilities_beside: bool,
    /// Whether its CHANGELOG.md names 3.1.0, where it has one: all that DeepSpeed looks at.
    #[serde(default)]
    pub log_names_3_1_0: Option<bool>,
}

/// Each a list of folders, in the order of DeepSpeed's search (`_candidate_cutlass_paths` of op_builder/evoformer_attn.py, 0.19.1 on).
pub const CUTLASS_PREFIXES: &[&str] =
    &["CUTLASS_ROOT", "CUTLASS_HOME", "CONDA_PREFIX", "VIRTUAL_ENV", "CMAKE_PREFIX_PATH", "CUDA_HOME", "CUDA_PATH"];
pub const CUTLASS_INCLUDES: &[&str] = &["CPATH", "CPLUS_INCLUDE_PATH", "C_INCLUDE_PATH"];
pub const CUTLASS_PLACES: &[&str] = &["/usr/local/cutlass", "/opt/cutlass", "/usr/local", "/usr"];

/// The builders of one DeepSpeed: `op_builder/*.py`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Builders {
    /// Of [`DeepSpeed`](super::torch::DeepSpeed).
    pub deepspeed: HostPath,
    pub folder: HostPath,
    /// By the path in the folder (`cpu/adam.py`): FNV-1a of the content, 64 bits, in hexadecimal digits.
    #[serde(default)]
    pub files: BTreeMap<String, String>,
    /// The extension modules below the package, where setup.py noted a pre-built op.
    #[serde(default)]
    pub modules: Vec<HostPath>,
}

impl OpsFacts {
    pub fn header<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a Header> {
        self.headers.iter().filter(move |header| header.name == name)
    }

    pub fn library<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a LinkName> {
        self.libraries.iter().filter(move |library| library.library == name)
    }

    pub fn cutlass(&self, path: &Path) -> Option<&CutlassPlace> {
        self.cutlass.iter().find(|place| *place.path == *path)
    }

    pub fn builders(&self, deepspeed: &Path) -> Option<&Builders> {
        self.builders.iter().find(|builders| *builders.deepspeed == *deepspeed)
    }
}

/// FNV-1a, 64 bits: told apart are files that people edit, not files that someone forges.
pub fn digest(bytes: &[u8]) -> String {
    let hash = bytes.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3));
    format!("{hash:016x}")
}

#[cfg(test)]
mod tests {
    #[test]
    fn digests() {
        // The test vectors of the hash's authors.
        assert_eq!(super::digest(b""), "cbf29ce484222325");
        assert_eq!(super::digest(b"foobar"), "85944171f73967e8");
    }
}
