//! torch and DeepSpeed as installed, read from their files.

use super::device_code::DeviceCode;
use super::elf::ElfFacts;
use super::observed::Observed;
use super::raw::HostPath;
use crate::version::{CudaVersion, Dotted};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Torch {
    /// The package's folder.
    pub path: HostPath,
    /// `2.6.0+cu124`, from version.py.
    pub version: Dotted,
    /// `torch.version.cuda`; `None` for builds without CUDA.
    pub cuda: Option<CudaVersion>,
    /// `torch.version.hip`
    #[serde(default)]
    pub hip: Option<String>,
    #[serde(default)]
    pub git_version: Option<String>,
    /// The C++11 ABI of its libraries.
    #[serde(default)]
    pub cxx11_abi: Observed<bool>,
    /// `sm_80`, `compute_90`: what `torch.cuda.get_arch_list()` answers.
    #[serde(default)]
    pub arch_list: Observed<Vec<String>>,
    /// `libcudart.so.12`, from NEEDED of its libraries.
    #[serde(default)]
    pub cudart: Option<String>,
    /// The NCCL its package metadata asks for: package name and version.
    #[serde(default)]
    pub nccl: Option<(String, Dotted)>,
    /// `Requires-Dist` lines about triton, setuptools and nvidia packages, as name and specifier.
    #[serde(default)]
    pub requires: Vec<(String, String)>,
    /// What its own libraries need and where they search: `libtorch_cuda.so`, `libtorch_python.so`, `libc10_cuda.so`…
    #[serde(default)]
    pub libs: BTreeMap<String, ElfFacts>,
    /// Libraries of its own that cannot be read (cut short, empty, not ELF), and why.
    #[serde(default)]
    pub broken: BTreeMap<String, String>,
    /// Seconds since 1970: when this torch was installed. The later time of version.py and of its package's RECORD, since uv links
    /// files that are older than the environment.
    #[serde(default)]
    pub installed: Option<i64>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DeepSpeed {
    pub path: HostPath,
    pub version: Dotted,
    /// `git_version_info_installed.py`; absent in a source checkout.
    #[serde(default)]
    pub built: Observed<InstalledOps>,
    /// A checkout or editable install rather than a wheel.
    #[serde(default)]
    pub editable: bool,
    /// The libraries of the ops that were built with it; looked for only where `built` names such ops.
    #[serde(default)]
    pub binaries: Vec<PrebuiltOp>,
}

/// `deepspeed/ops/adam/fused_adam_op.cpython-311-x86_64-linux-gnu.so`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PrebuiltOp {
    /// `fused_adam_op`: the last part of the module's name.
    pub module: String,
    pub path: HostPath,
    #[serde(default)]
    pub elf: Observed<ElfFacts>,
    /// Absent: the library has none.
    #[serde(default)]
    pub device: Observed<DeviceCode>,
}

/// What setup.py wrote down when the wheel was built.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct InstalledOps {
    #[serde(default)]
    pub ops: BTreeMap<String, bool>,
    #[serde(default)]
    pub accelerator: Option<String>,
    /// major.minor; `0.0` when torch was not there.
    #[serde(default)]
    pub torch: Option<String>,
    #[serde(default)]
    pub cuda: Option<String>,
}

impl Torch {
    /// A build from source (NGC): torch itself skips its compiler checks for `2.6.0a0+abc123`. Source: `_is_binary_build` and
    /// `BUILT_FROM_SOURCE_VERSION_PATTERN` of torch/utils/cpp_extension.py.
    pub fn built_from_source(&self) -> bool {
        let Some((number, local)) = self.version.text.split_once('+') else { return false };
        let word = |text: &str| !text.is_empty() && text.chars().all(|c| c.is_alphanumeric() || c == '_');
        let mut parts = number.splitn(3, '.');
        let (Some(major), Some(minor), Some(rest)) = (parts.next(), parts.next(), parts.next()) else { return false };
        let digits = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
        let after = rest.trim_start_matches(|c: char| c.is_ascii_digit());
        digits(major)
            && digits(minor)
            && after.len() < rest.len()
            && word(after)
            && local.starts_with(|c: char| c.is_alphanumeric() || c == '_')
    }
}
