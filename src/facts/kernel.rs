//! What loading and running the probe's kernels showed. Everything was tried in a child process; what became of that is told too.

use super::gpu::{Library, Status};
use super::raw::HostPath;
use crate::version::{Capability, CudaVersion};
use serde::{Deserialize, Serialize};
use std::fmt;

/// The probe's library, loaded with every symbol bound.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Loaded {
    /// The files that the loader took for it, the CUDA runtime among them: `libcudart.so.13.0.96`. Links resolved, in no order.
    pub libraries: Vec<HostPath>,
}

impl Loaded {
    /// The CUDA runtime that it is bound to.
    pub fn runtime(&self) -> Option<&HostPath> {
        self.libraries.iter().find(|path| path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"libcudart.so")))
    }
}

/// Why a child gave no answer to its question.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "fault", rename_all = "kebab-case")]
pub enum Fault {
    /// The loader could not find or bind everything: its own words.
    NotLoaded { words: String },
    /// A signal ended it. `at` is what it was doing, `stderr` the last that was said.
    Crashed { signal: i32, at: Option<String>, stderr: String },
    /// It did not end in time and was killed.
    TimedOut { seconds: f32, at: Option<String>, stderr: String },
    /// Anything else: it could not be started, or ended without a word.
    Unanswered { why: String },
}

/// The kernels run on the GPUs that a program sees, CUDA_VISIBLE_DEVICES applied by the driver itself.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Execution {
    /// The random input is made from it: a run can be repeated.
    pub seed: u64,
    /// What asking the driver for all GPUs gave.
    pub listing: Listing,
    /// One for each GPU, in CUDA's order.
    pub devices: Vec<DeviceRun>,
}

/// The driver, asked for its GPUs in a child.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "is", rename_all = "kebab-case")]
pub enum Listing {
    Listed {
        library: Library,
        /// What the driver serves.
        cuda: Option<CudaVersion>,
    },
    /// A call of the driver failed. The GPUs that NVML knows were then tried one by one, unless the code says that it is in vain.
    Failed {
        library: Library,
        cuda: Option<CudaVersion>,
        failed: CallFailed,
    },
    Fault(Fault),
}

/// One GPU, or one MIG instance.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Gpu {
    /// CUDA's number, among those that are visible.
    pub ordinal: u32,
    pub name: Option<String>,
    /// `GPU-` or `MIG-` and a UUID.
    pub uuid: Option<String>,
    pub capability: Option<Capability>,
    /// GB/s (10^9 bytes) that its memory is made for: two transfers a clock on the whole bus. None where the driver does not tell.
    pub bandwidth: Option<f64>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct DeviceRun {
    pub gpu: Gpu,
    /// In the order in which they were tried.
    pub ways: Vec<WayRun>,
}

/// How the kernels got to the GPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Way {
    /// As an extension does: the built library, through the libcudart that it is bound to.
    Runtime,
    /// The same kernels as machine code (SASS), through the driver's own interface.
    Cubin,
    /// The same kernels as PTX, which the driver compiles for this GPU.
    Ptx,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct WayRun {
    pub way: Way,
    pub outcome: Outcome,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "is", rename_all = "kebab-case")]
pub enum Outcome {
    Ran(Ran),
    /// Nothing could be started: which call failed before the first kernel.
    Failed {
        failed: CallFailed,
    },
    /// Another program has the GPU, or its memory; it was left alone.
    Busy {
        why: String,
    },
    Skipped {
        why: String,
    },
    Fault(Fault),
}

/// The kernels were started.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Ran {
    pub kernels: Vec<KernelResult>,
    /// GB/s (10^9 bytes), read and written together, of a copy within the GPU's memory.
    pub bandwidth: Option<f64>,
    /// The CUDA runtime's own release, where it was used.
    pub runtime: Option<CudaVersion>,
    /// What was loaded: the runtime's file, the cubin or the PTX.
    pub loaded: Option<HostPath>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct KernelResult {
    /// `vector-add`
    pub name: String,
    pub verdict: KernelVerdict,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "is", rename_all = "kebab-case")]
pub enum KernelVerdict {
    Passed,
    /// It ran to its end, and `wrong` of its values differ from the reference; the first of them.
    Wrong {
        wrong: u64,
        of: u64,
        index: u64,
        expected: String,
        got: String,
    },
    Failed {
        failed: CallFailed,
    },
    Skipped {
        why: String,
    },
}

/// A call of the CUDA runtime or of the driver that answered with an error. Both use the same numbers where it matters.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallFailed {
    /// `cuInit`
    pub call: String,
    pub status: Status,
    /// What else was said: the log of the driver's PTX compiler.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub words: Option<String>,
}

impl Way {
    pub const ALL: [Self; 3] = [Self::Runtime, Self::Cubin, Self::Ptx];
}

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Runtime => "runtime",
            Self::Cubin => "cubin",
            Self::Ptx => "PTX",
        })
    }
}

impl fmt::Display for CallFailed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} answered {}", self.call, self.status)
    }
}

impl DeviceRun {
    pub fn way(&self, way: Way) -> Option<&Outcome> {
        self.ways.iter().find(|run| run.way == way).map(|run| &run.outcome)
    }

    /// Every kernel that this GPU has gave the right values, as an extension runs them, and in no other way a wrong one. That a cubin or
    /// PTX was refused does not matter then: it may be of another target, or newer than the driver can compile.
    pub fn proven(&self) -> bool {
        let fits = |run: &WayRun| match &run.outcome {
            Outcome::Ran(ran) => ran.passed(),
            Outcome::Skipped { .. } => true,
            Outcome::Failed { .. } => run.way != Way::Runtime,
            Outcome::Busy { .. } | Outcome::Fault(_) => false,
        };
        matches!(self.way(Way::Runtime), Some(Outcome::Ran(_))) && self.ways.iter().all(fits)
    }

    pub fn busy(&self) -> Option<&str> {
        self.ways.iter().find_map(|run| match &run.outcome {
            Outcome::Busy { why } => Some(why.as_str()),
            _ => None,
        })
    }
}

impl Ran {
    /// No kernel failed, and not all were skipped.
    pub fn passed(&self) -> bool {
        let fine = |verdict: &KernelVerdict| matches!(verdict, KernelVerdict::Passed | KernelVerdict::Skipped { .. });
        self.kernels.iter().all(|kernel| fine(&kernel.verdict)) && self.kernels.iter().any(|kernel| kernel.verdict == KernelVerdict::Passed)
    }
}
