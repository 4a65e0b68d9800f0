//! Everything known about one machine, as one file.

use super::cache::CacheFacts;
use super::compiler::Compiler;
use super::env::EnvFacts;
use super::gpu::GpuFacts;
use super::host::HostFacts;
use super::loader::LoaderFacts;
use super::log::Log;
use super::nccl::Nccl;
use super::observed::Observed;
use super::ops::OpsFacts;
use super::probe::Probe;
use super::program::Program;
use super::python::Interpreter;
use super::raw::HostPath;
use super::toolkit::Toolkit;
use serde::{Deserialize, Serialize};

/// The number of the shape. Raised when a reader of the old shape would misunderstand the new one; new optional fields do not raise it.
pub const SCHEMA: u32 = 1;

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Snapshot {
    pub schema: u32,
    /// `ds-doctor 0.1.0`
    pub tool: String,
    /// Seconds since 1970.
    pub taken: i64,
    /// Names of people, hosts and homes have been replaced: exports made from it would not fit the machine.
    #[serde(default)]
    pub redacted: bool,
    pub subject: Subject,
    #[serde(default)]
    pub env: EnvFacts,
    #[serde(default)]
    pub host: HostFacts,
    #[serde(default)]
    pub programs: Vec<Program>,
    #[serde(default)]
    pub toolkits: Observed<Vec<Toolkit>>,
    #[serde(default)]
    pub compilers: Observed<Vec<Compiler>>,
    #[serde(default)]
    pub loader: Observed<LoaderFacts>,
    /// Every candidate; which one pip would use is computed.
    #[serde(default)]
    pub pythons: Observed<Vec<Interpreter>>,
    #[serde(default)]
    pub cache: Observed<CacheFacts>,
    /// What DeepSpeed's ops ask for besides torch and the toolkit.
    #[serde(default)]
    pub ops: Observed<OpsFacts>,
    #[serde(default)]
    pub gpu: GpuFacts,
    /// Only where the test was asked for. Absent: there is no libnccl.
    #[serde(default)]
    pub nccl: Observed<Nccl>,
    /// A trial build; `Skipped` unless it was asked for.
    #[serde(default = "not_asked", skip_serializing_if = "Observed::is_skipped")]
    pub probe: Observed<Probe>,
    /// What was seen in logs that were judged with these facts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub logs: Vec<Log>,
    /// Things met on the way that are no fact of a topic: a folder that could not be listed, a name that is not UTF-8.
    #[serde(default)]
    pub notes: Vec<String>,
}

fn not_asked<T>() -> Observed<T> {
    Observed::skipped("not asked for")
}

/// What was looked at.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Subject {
    #[default]
    Machine,
    /// A file tree, nothing executed.
    Tree { root: HostPath },
}
