//! Pure judgement: facts, models and knowledge in, verdicts out. One file per topic, joined by the registry.

mod arch;
mod buildtools;
mod cache;
mod cache_folder;
mod case;
mod compiler;
mod compiler_fixes;
mod compiler_limits;
mod compiler_named;
mod cub;
mod cuda_home;
mod deepspeed;
mod device_code;
mod driver;
mod driver_libs;
mod driver_nodes;
mod driver_release;
mod folders;
pub mod gate;
mod gpu;
mod headers;
pub mod inspect;
pub mod inspect_cache;
mod judge;
pub mod kernel;
mod link;
mod loader;
mod loader_families;
mod loader_impostor;
mod loader_order;
mod loader_path;
mod loader_versions;
pub mod log;
mod log_facts;
mod log_fixes;
mod lookup;
mod nccl;
mod ninja;
mod ops;
mod ops_fixes;
pub mod ops_report;
pub mod ops_wheel;
mod precedence;
pub mod probe;
mod proof;
mod python;
mod registry;
mod remedy;
#[cfg(test)]
mod sample;
mod setuptools;
pub mod summary;
mod system;
mod toolkit;
mod torch;

pub use cache::cache;
pub use case::{Case, OpsOf, Purpose};
pub use judge::{Judged, Undecided, judge};
pub use precedence::{RULES, explains, fold};
pub use proof::{Plan, Step, after, prove, prove_after};
pub use registry::{CHECKS, check};
pub use remedy::best_toolkit;

use crate::facts::observed::Missing;
use crate::finding::{Finding, ProblemId};

/// One question about a machine. Its severity, topic and summary stand in the problem table under the same id.
#[derive(Debug)]
pub struct Check {
    pub id: ProblemId,
    pub run: fn(&Case<'_>) -> Judgement,
}

/// `Err` when a fact the question needs is not known: the check is undecided, never passed.
pub type Judgement = Result<Verdict, Missing>;

#[derive(Debug)]
pub enum Verdict {
    Pass,
    Found(Vec<Finding>),
    /// The question does not arise here: no DeepSpeed, not asked to build…
    NotApplicable(String),
}

impl Verdict {
    pub fn found(finding: Finding) -> Self {
        Self::Found(vec![finding])
    }

    /// `Pass` when there is nothing.
    pub fn of(findings: Vec<Finding>) -> Self {
        if findings.is_empty() { Self::Pass } else { Self::Found(findings) }
    }

    pub fn not_applicable(why: impl Into<String>) -> Self {
        Self::NotApplicable(why.into())
    }
}
