//! What became of a trial build: the kernels compiled, linked and loaded with the programs, flags and order of a torch extension.

use super::kernel::Execution;
use super::observed::Observed;
use super::raw::{HostPath, Raw};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;

/// One trial of the toolchain. Absent in a snapshot where nvcc is; `Skipped` where nobody asked.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Probe {
    /// CUDA_HOME as torch takes it.
    pub toolkit: HostPath,
    pub targets: Targets,
    /// In the order of the build. Compiling the CUDA and the host half goes on side by side.
    pub steps: Vec<Step>,
    /// The folder of sources and results, where it was kept.
    #[serde(default)]
    pub folder: Option<HostPath>,
    /// The programs and flags had been tried before, unchanged: compiling and linking were taken from the cache.
    #[serde(default)]
    pub cached: bool,
    /// What was done otherwise than a run of torch would, and why.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    /// The kernels run on the GPUs. Skipped where the build did not get there, or nothing shows a driver.
    #[serde(default)]
    pub execution: Observed<Execution>,
    /// The load average of the last minute, where something was not done in its time: on a busy machine that says nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub load: Option<f64>,
    /// One for each op that was asked for.
    #[serde(default)]
    pub ops: Observed<Vec<OpTrial>>,
}

/// Which device code was asked for.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Targets {
    /// `sm_90`, `compute_90`; empty: what this nvcc compiles for by itself.
    pub list: Vec<String>,
    /// Who says so: `TORCH_CUDA_ARCH_LIST`, `the visible GPUs`, `nvcc's default`.
    pub from: String,
}

/// One step of the build.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Step {
    pub name: StepName,
    /// What was run; none for loading, which a child of this program does.
    #[serde(default)]
    pub command: Option<Command>,
    pub outcome: Outcome,
    /// Milliseconds, as it was when it was really done.
    pub millis: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum StepName {
    /// nvcc on the `.cu` half.
    Compile,
    /// The C++ compiler on the host half.
    HostCompile,
    Link,
    /// Every symbol bound, in a child process.
    Load,
}

impl fmt::Display for StepName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Compile => "compile",
            Self::HostCompile => "host compile",
            Self::Link => "link",
            Self::Load => "load",
        })
    }
}

/// A command as a person can repeat it: `cd FOLDER; NAME=VALUE… WORD…`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Command {
    pub argv: Vec<Raw>,
    pub cwd: HostPath,
    /// What was set on top of the environment that is judged.
    #[serde(default)]
    pub env: BTreeMap<String, Raw>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "is", rename_all = "kebab-case")]
pub enum Outcome {
    Passed,
    Failed(Box<Failure>),
    /// Not done, because an earlier step failed; or by choice, with the reason.
    NotReached {
        why: String,
    },
}

/// Why a step failed, in the program's own words and in ours.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Failure {
    pub ended: End,
    /// The first line that tells of an error, control characters kept; empty where the program said nothing.
    pub line: String,
    /// The beginning of its output.
    pub output: String,
    /// What a signature makes of it; `None`: no signature knows it.
    #[serde(default)]
    pub meaning: Option<Meaning>,
}

/// How a program ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "how", rename_all = "kebab-case")]
pub enum End {
    Exit {
        code: i32,
    },
    Signal {
        signal: i32,
    },
    /// Seconds it was given.
    TimedOut {
        limit: f64,
    },
    NotStarted {
        why: String,
    },
    /// It ended well and did not do what it should: no object file, a library that does not load.
    NoResult,
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exit { code } => write!(f, "exit code {code}"),
            Self::Signal { signal } => write!(f, "killed by signal {signal}"),
            Self::TimedOut { limit } => write!(f, "not done after {limit} s"),
            Self::NotStarted { why } => write!(f, "could not be started: {why}"),
            Self::NoResult => f.write_str("no result"),
        }
    }
}

/// A known failure.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Meaning {
    /// Of the problem table.
    pub id: String,
    /// Of the signature that matched.
    pub signature: String,
    /// What its pattern caught: `library` = `cudart`.
    #[serde(default)]
    pub captures: BTreeMap<String, String>,
}

/// One DeepSpeed op: the headers it includes compile, its libraries link.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct OpTrial {
    /// `fused_adam`
    pub op: String,
    pub steps: Vec<Step>,
}

impl Probe {
    pub fn step(&self, name: StepName) -> Option<&Step> {
        self.steps.iter().find(|step| step.name == name)
    }

    /// Compiled, linked and loaded.
    pub fn proven(&self) -> bool {
        !self.steps.is_empty() && self.steps.iter().all(|step| step.outcome == Outcome::Passed)
    }

    /// A step was not done in its time, and none failed for another reason.
    pub fn is_undecided(&self) -> bool {
        let mut failures = self.steps.iter().filter_map(Step::failure).peekable();
        failures.peek().is_some() && failures.all(Failure::is_undecided)
    }

    /// Of its ops those that are [undecided](OpTrial::is_undecided).
    pub fn undecided_ops(&self) -> usize {
        self.ops.value().map_or(0, |ops| ops.iter().filter(|tried| tried.is_undecided()).count())
    }
}

impl Failure {
    /// A program that was stopped at its limit may be slow as well as broken.
    pub fn is_undecided(&self) -> bool {
        matches!(self.ended, End::TimedOut { .. })
    }
}

impl Step {
    pub fn failure(&self) -> Option<&Failure> {
        match &self.outcome {
            Outcome::Failed(failure) => Some(failure),
            Outcome::Passed | Outcome::NotReached { .. } => None,
        }
    }
}

impl OpTrial {
    pub fn passed(&self) -> bool {
        self.steps.iter().all(|step| step.outcome == Outcome::Passed)
    }

    /// The step that speaks for the op: the first that failed for a reason, else the first that was not done in its time.
    pub fn failure(&self) -> Option<(&Step, &Failure)> {
        let failed = || self.steps.iter().filter_map(|step| Some((step, step.failure()?)));
        failed().find(|(_, failure)| !failure.is_undecided()).or_else(|| failed().next())
    }

    /// Neither shown to work nor to fail.
    pub fn is_undecided(&self) -> bool {
        self.failure().is_some_and(|(_, failure)| failure.is_undecided())
    }
}
