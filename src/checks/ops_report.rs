//! Every op of a release as `ops` and `plan` show it: what the model says of the op, and what is wrong with the whole machine.

use super::device_code::unserved;
use super::ops::evidence;
use super::ops_fixes::fixes;
use super::{Case, Judged};
use crate::facts::observed::Missing;
use crate::facts::probe::End;
use crate::finding::{Evidence, Finding, Fix, Severity};
use crate::model::ops::{Can, Compatible, Decision, Installed, Obstacle, OpState, Scene};

/// A reason as it is told.
#[derive(Debug, Clone)]
pub struct Reason {
    pub id: &'static str,
    pub says: String,
    pub evidence: Vec<Evidence>,
    pub fixes: Vec<Fix>,
}

/// One way to build, judged.
#[derive(Debug, Clone)]
pub struct Way {
    pub can: Can,
    pub why: Vec<Reason>,
    pub unknown: Vec<Missing>,
}

pub struct Row<'c, 'a> {
    pub state: &'c OpState<'a>,
    pub prebuild: Way,
    pub jit: Way,
    pub installed: Came,
    /// Why an installed op cannot be used.
    pub invalid: Vec<Reason>,
}

/// What came with the package, and whether it serves here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Came {
    No,
    Yes,
    /// It is there, and cannot be used.
    Invalid,
    Unknown,
}

/// Findings of the whole machine that keep every op from being built, in a pre-build and at first use.
const ALL: &[&str] = &[
    "torch-not-found",
    "module-shadowing",
    "missing-cxx-compiler",
    "cxx-env-var-malformed",
    "host-compiler-no-sysroot",
    "gcc-too-old-for-torch",
    "missing-python-h",
    "python-distutils-setuptools",
    "cxx11-abi-mismatch",
    "ds-import-needs-gpu",
    "tmpdir-broken",
    "disk-full-tmp",
];
/// Every op with CUDA code.
const CUDA: &[&str] = &[
    "gcc-too-new-for-nvcc",
    "clang-unsupported-by-nvcc",
    "toolkit-incomplete",
    "toolkit-mixed",
    "glibc-too-new-for-cuda-headers",
    "nvcc-too-old-for-cxx-standard",
    "conda-targets-layout",
];
/// A pre-build alone.
const PREBUILD: &[&str] = &["build-isolation", "gcc-rejected-by-torch"];
/// The build at first use alone.
const JIT: &[&str] = &["missing-ninja", "ninja-broken", "cache-permission", "spaces-in-path"];

/// The rows, in alphabetical order.
pub fn rows<'c, 'a>(case: &Case<'_>, scene: &Scene<'a>, states: &'c [OpState<'a>], judged: &Judged) -> Vec<Row<'c, 'a>> {
    let general = flat(&judged.findings);
    let way = |state: &OpState<'a>, decision: &Decision, own: &[&str]| {
        let mut why: Vec<Reason> = decision.obstacles.iter().map(|obstacle| reason(case, scene, state, obstacle)).collect();
        let source = state.build.is_some_and(|build| build.cpp + build.cu > 0);
        let cuda = state.build.is_some_and(|build| build.cu > 0);
        for finding in general.iter().filter(|finding| finding.severity == Severity::Error && source) {
            let holds = ALL.contains(&finding.id) || own.contains(&finding.id) || (cuda && CUDA.contains(&finding.id));
            if holds && !why.iter().any(|known| known.id == finding.id) {
                why.push(told(finding));
            }
        }
        // What was tried here is known better.
        why.extend(tried(case, &state.op.op).filter(|reason| !why.iter().any(|known| known.id == reason.id)));
        let can = if why.is_empty() { decision.can() } else { Can::No };
        Way { can, why, unknown: decision.unknown.clone() }
    };
    let row = |state: &'c OpState<'a>| {
        let (installed, invalid) = installed(case, scene, state);
        Row { prebuild: way(state, &state.prebuild, PREBUILD), jit: way(state, &state.jit, JIT), installed, invalid, state }
    };
    states.iter().map(row).collect()
}

/// What came with the package: by setup.py's notes, and by its code for the GPUs.
fn installed(case: &Case<'_>, scene: &Scene<'_>, state: &OpState<'_>) -> (Came, Vec<Reason>) {
    match &state.installed {
        Installed::No => (Came::No, Vec::new()),
        Installed::Unknown(_) => (Came::Unknown, Vec::new()),
        Installed::Invalid(why) => (Came::Invalid, why.iter().map(|obstacle| reason(case, scene, state, obstacle)).collect()),
        Installed::Yes => {
            let module = state.op.module.rsplit('.').next().unwrap_or_default();
            let mut found = Vec::new();
            for op in scene.deepspeed.binaries.iter().filter(|op| op.module == module) {
                match unserved(case, op) {
                    Ok(more) => found.extend(more.iter().map(told)),
                    Err(_) => return (Came::Unknown, Vec::new()),
                }
            }
            (if found.is_empty() { Came::Yes } else { Came::Invalid }, found)
        }
    }
}

/// Why the trial of an op failed; nothing where none was made or it did not come to an end.
fn tried(case: &Case<'_>, op: &str) -> Option<Reason> {
    let trial = case.facts.probe.value()?.ops.value()?.iter().find(|trial| trial.op == op)?;
    let (step, failure) = trial.failure()?;
    if failure.is_undecided() || matches!(failure.ended, End::Signal { .. }) {
        return None;
    }
    let known = failure.meaning.as_ref().and_then(|meaning| case.know.problem(&meaning.id));
    let says = format!("the trial of {op} stops at its {}: `{}`", step.name, failure.line);
    Some(Reason { id: known.map_or("probe-failed", |problem| problem.id), says, evidence: Vec::new(), fixes: Vec::new() })
}

fn told(finding: &Finding) -> Reason {
    Reason { id: finding.id, says: finding.title.clone(), evidence: finding.evidence.clone(), fixes: finding.fixes.clone() }
}

fn flat(findings: &[Finding]) -> Vec<&Finding> {
    findings.iter().flat_map(|finding| std::iter::once(finding).chain(flat(&finding.folded))).collect()
}

fn reason(case: &Case<'_>, scene: &Scene<'_>, state: &OpState<'_>, obstacle: &Obstacle) -> Reason {
    Reason {
        id: obstacle.id,
        says: obstacle.says.clone(),
        evidence: obstacle.seen.iter().map(evidence).collect(),
        fixes: fixes(case, scene, state.op, obstacle),
    }
}

/// Findings of `check` that concern the ops: of one that is asked for or installed, and what keeps all of them from being built.
///
/// `cuda`: CUDA ops may be meant; not so where `DS_ACCELERATOR` names the CPU.
pub fn concerns(id: &str, topic: Option<&str>, cuda: bool) -> bool {
    let among = |lists: &[&[&str]]| lists.iter().any(|list| list.contains(&id));
    topic == Some("deepspeed") || among(&[ALL, PREBUILD, JIT]) || (cuda && among(&[CUDA, OTHER]))
}

const OTHER: &[&str] = &[
    "no-nvcc",
    "cuda-home-unset",
    "cuda-home-wrong",
    "cuda-home-dangling",
    "cpu-only-torch",
    "rocm-torch",
    "torch-nvcc-mismatch-major",
    "torch-nvcc-mismatch-minor",
    "path-nvcc-differs-from-cuda-home",
    "missing-cuda-headers",
    "linker-cannot-find-cuda-lib",
    "libcuda-not-found-at-link",
    "arch-list-malformed",
    "nvcc-dropped-arch",
    "nvcc-too-old-for-gpu",
    "arch-list-unset-no-gpu",
    "conda-compiler-shadows-system-gcc",
    "no-kernel-image",
    "ptx-newer-than-driver",
];

/// What ds_report prints in its last column; of a test that fails, nothing: DeepSpeed before 0.19.5 dies of it.
pub fn compatible(answer: Compatible) -> Option<bool> {
    match answer {
        Compatible::Yes => Some(true),
        Compatible::No => Some(false),
        Compatible::Raises | Compatible::Unknown => None,
    }
}

/// Builders that are not those of the release, by their paths in `op_builder`. `None`: the release's own are not known, or the installed
/// ones could not be read.
pub fn changed_builders(scene: &Scene<'_>) -> Option<Vec<String>> {
    let known = scene.know.builder_files(&scene.deepspeed.version)?;
    let here = scene.facts.ops.value()?.builders(&scene.deepspeed.path)?;
    let known: Vec<(&str, &str)> = known.files.iter().filter_map(|file| file.split_once('=')).collect();
    let differs = |(name, digest): &(&str, &str)| here.files.get(*name).is_none_or(|own| own != digest);
    let mut changed: Vec<String> = known.iter().filter(|file| differs(file)).map(|(name, _)| (*name).to_owned()).collect();
    changed.extend(here.files.keys().filter(|name| !known.iter().any(|(known, _)| known == name)).cloned());
    changed.sort();
    Some(changed)
}
