//! CUDA toolkits, whole or in part, each as the folder that `CUDA_HOME` would name.

use super::observed::Observed;
use super::raw::HostPath;
use super::source::Source;
use crate::version::{CudaVersion, Dotted, Target};
use serde::{Deserialize, Serialize};
use std::path::Path;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Toolkit {
    /// The folder as found, links not resolved: what `CUDA_HOME` would be set to.
    pub root: HostPath,
    pub real: HostPath,
    /// Every way it was found.
    pub sources: Vec<Source>,
    pub layout: Layout,
    pub nvcc: Observed<Nvcc>,
    /// Every release number stated by one of its files.
    #[serde(default)]
    pub stated: Vec<Stated>,
    /// The parts nvcc needs to compile, present or not.
    #[serde(default)]
    pub parts: Vec<Part>,
    /// `$root/include` first, then the others that exist (`targets/*/include`, `include/cccl`, `math_libs`).
    #[serde(default)]
    pub includes: Vec<IncludeFolder>,
    #[serde(default)]
    pub libs: Vec<LibFolder>,
    /// From its own `crt/host_config.h`.
    #[serde(default)]
    pub host_limits: Observed<HostLimits>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Layout {
    /// NVIDIA's runfile, deb or rpm: `bin`, `include`, `lib64`.
    Nvidia,
    /// Debian's and Ubuntu's own packages: root is `/usr`.
    Distribution,
    Conda,
    HpcSdk,
    /// `site-packages/nvidia/cu13`
    Pip,
    /// A folder of links that `ds-doctor overlay` has made.
    Overlay,
    /// Something that a variable names and that has no known shape.
    Unknown,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Nvcc {
    /// `$root/bin/nvcc`
    pub path: HostPath,
    /// The compiler program itself, behind links and wrapper scripts, where it could be followed.
    pub program: HostPath,
    pub kind: NvccKind,
    /// `13.0.88`
    pub version: Option<Dotted>,
    /// Targets read from the program; empty when they could not be read.
    #[serde(default)]
    pub targets: Vec<Target>,
    /// Whether this nvcc reads `NVCC_CCBIN` (12.5 and later); unknown for a wrapper that could not be followed.
    pub reads_nvcc_ccbin: Option<bool>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "is", rename_all = "kebab-case")]
pub enum NvccKind {
    Program,
    /// The distribution's script in front of its own nvcc.
    DistributionScript,
    /// ccache, sccache or a script; `runs` is what it starts, where that could be read, found or not.
    Wrapper {
        by: String,
        runs: Option<HostPath>,
        found: bool,
    },
    /// A file that cannot be nvcc: 0 bytes, cut short, another machine's, text without a first line.
    Broken {
        why: String,
    },
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Stated {
    pub what: StatedBy,
    pub version: Dotted,
    pub path: HostPath,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum StatedBy {
    Nvcc,
    Ptxas,
    Cicc,
    /// `CUDA_VERSION` in cuda.h
    CudaHeader,
    /// `CUDART_VERSION` in cuda_runtime_api.h
    RuntimeHeader,
    /// The real name of the libcudart beside it
    Cudart,
    VersionJson,
    VersionTxt,
}

/// One thing nvcc cannot compile without: `cicc`, `ptxas`, `cudafe++`, `fatbinary`, `nvlink`, `crt/host_config.h`…
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Part {
    pub name: String,
    /// Where it is; `None` when it is in none of the places nvcc looks: those its profile names, then PATH.
    pub path: Option<HostPath>,
    /// Why it cannot work although it is there: 0 bytes, cut short, no execute permission.
    #[serde(default)]
    pub broken: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct IncludeFolder {
    /// As builds name it: `$root/include`, also where that is a link.
    pub path: HostPath,
    /// Its other names: `$root/targets/x86_64-linux/include`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub also: Vec<HostPath>,
    /// Whether a torch build has it on its include path (`$CUDA_HOME/include`, or a compiler default).
    pub searched_by_torch: bool,
    /// Whether this nvcc adds it by itself (nvcc.profile).
    pub searched_by_nvcc: bool,
    /// Those of [`HEADERS`] that are there.
    #[serde(default)]
    pub headers: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LibFolder {
    /// As builds name it: `$root/lib64`, also where that is a link.
    pub path: HostPath,
    /// Its other names: `$root/targets/x86_64-linux/lib`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub also: Vec<HostPath>,
    pub kind: LibFolderKind,
    /// File names of CUDA libraries, versioned and not: `libcudart.so`, `libcudart.so.12.4.127`, `libcudart_static.a`. Links to nothing are in `broken`.
    #[serde(default)]
    pub files: Vec<String>,
    /// Names that a linker meets and cannot open: links to nothing, and files of 0 bytes.
    #[serde(default)]
    pub broken: Vec<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LibFolderKind {
    Lib64,
    Lib,
    /// `targets/x86_64-linux/lib`
    Targets,
    Stubs,
    /// The distribution's multiarch folder, a linker default.
    Distribution,
    /// The HPC SDK's `math_libs`.
    MathLibs,
}

/// What `crt/host_config.h` refuses.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostLimits {
    pub path: HostPath,
    /// Highest gcc major that is let through.
    pub gcc_max: Option<u32>,
    /// Highest clang major that is let through.
    pub clang_max: Option<u32>,
}

/// Headers that torch's own headers or a DeepSpeed op include from the toolkit.
pub const HEADERS: &[&str] = &[
    "cooperative_groups.h",
    "cub/cub.cuh",
    "cublasLt.h",
    "cublas_v2.h",
    "cuda.h",
    "cuda/std/cassert",
    "cuda_bf16.h",
    "cuda_fp16.h",
    "cuda_profiler_api.h",
    "cuda_runtime.h",
    "cuda_runtime_api.h",
    "cufile.h",
    "curand.h",
    "curand_kernel.h",
    "cusolverDn.h",
    "cusolver_common.h",
    "cusparse.h",
    "mma.h",
    "nccl.h",
    "nv/target",
    "nvrtc.h",
    "nvtx3/nvToolsExt.h",
    "thrust/version.h",
];

/// The file in an overlay that says what it is made of.
pub const OVERLAY_MANIFEST: &str = ".ds-doctor-overlay.json";

impl IncludeFolder {
    /// Whether this is a name of the folder.
    pub fn is(&self, path: &Path) -> bool {
        *self.path == *path || self.also.iter().any(|name| **name == *path)
    }
}

impl LibFolder {
    /// Whether this is a name of the folder.
    pub fn is(&self, path: &Path) -> bool {
        *self.path == *path || self.also.iter().any(|name| **name == *path)
    }
}

impl Toolkit {
    /// The release of its nvcc, else the one its files state. The compiler comes first because it is what torch and DeepSpeed ask.
    pub fn release(&self) -> Option<CudaVersion> {
        let nvcc = self.nvcc.value().and_then(|nvcc| nvcc.version.as_ref());
        let version = nvcc.or_else(|| self.stated.first().map(|stated| &stated.version))?;
        Some(CudaVersion::new(version.major(), version.minor()))
    }

    /// The folder that a torch build passes with `-L`: `lib64`, or `lib` only where `lib64` is not there.
    pub fn torch_lib(&self) -> Option<&LibFolder> {
        let of = |kind| self.libs.iter().find(|folder| folder.kind == kind);
        of(LibFolderKind::Lib64).or_else(|| of(LibFolderKind::Lib))
    }

    pub fn stubs(&self) -> Option<&LibFolder> {
        self.libs.iter().find(|folder| folder.kind == LibFolderKind::Stubs)
    }

    pub fn part(&self, name: &str) -> Option<&Part> {
        self.parts.iter().find(|part| part.name == name)
    }
}
