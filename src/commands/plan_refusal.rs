//! Why a plan is refused: the root cause with what cures it, and not what follows from it.

use crate::checks::ops_report::{Reason, Row};
use crate::checks::{Case, explains, judge};
use crate::finding::{Finding, Fix};
use crate::model::assume::is_assumed;
use crate::model::ops::{Can, Scene};
use crate::model::plan::Lack;
use crate::model::search;
use crate::render::human::fix_line;
use crate::render::plan::{Plan, Refusal};

/// What no op can be built without: an interpreter with torch in it, and for CUDA ops a torch for CUDA.
///
/// `cuda`: GPUs are named, or ops that only the CUDA set has.
pub fn root(case: &Case<'_>, scene: &Scene<'_>, cuda: bool) -> Option<Refusal> {
    let id = match scene.torch {
        None if scene.python.is_none_or(|python| is_assumed(&python.path)) => {
            return Some(Refusal {
                id: "torch-not-found",
                says: "there is no Python on PATH, and so no torch".to_owned(),
                fixes: vec!["activate the environment that has torch, or name its interpreter with `--python PATH`".to_owned()],
            });
        }
        None => "torch-not-found",
        Some(torch) if cuda && torch.hip.is_some() => "rocm-torch",
        Some(torch) if cuda && torch.cuda.is_none() => "cpu-only-torch",
        Some(_) => return None,
    };
    // Another environment that was meant, a file that hides torch: the finding that it is folded under speaks.
    let judged = judge(case, &|_| true);
    let found = judged.findings.iter().find(|finding| finding.id == id || find(&finding.folded, id).is_some());
    let says = match (found, scene.torch) {
        (Some(finding), _) => finding.title.clone(),
        (None, Some(torch)) => format!("torch {} is built without CUDA, and CUDA ops are asked for", torch.version),
        (None, None) => "no torch is installed, and every builder imports it".to_owned(),
    };
    let fixes = match found {
        Some(finding) => finding.fixes.iter().map(fix_line).collect(),
        None => vec!["install the CUDA build of torch".to_owned()],
    };
    Some(Refusal { id: found.map_or(id, |finding| finding.id), says, fixes })
}

/// The finding of this id, folded or not.
fn find<'f>(findings: &'f [Finding], id: &str) -> Option<&'f Finding> {
    findings.iter().find_map(|finding| if finding.id == id { Some(finding) } else { find(&finding.folded, id) })
}

/// What keeps each of these ops from being built.
pub fn common<'r>(rows: &[&'r Row<'_, '_>]) -> Vec<&'r Reason> {
    let Some((first, rest)) = rows.split_first() else { return Vec::new() };
    let each = |reason: &&Reason| rest.iter().all(|row| row.prebuild.why.iter().any(|other| other.id == reason.id));
    if rows.iter().any(|row| row.prebuild.can != Can::No) { Vec::new() } else { first.prebuild.why.iter().filter(each).collect() }
}

/// An op's reason; where the whole machine has the problem, its cures and not that the op can be left out.
pub fn add(plan: &mut Plan, reason: &Reason, findings: &[Finding]) {
    let leaves = |fix: &Fix| fix.title.starts_with("leave ");
    let general = find(findings, reason.id).filter(|finding| reason.fixes.iter().all(leaves) && !finding.fixes.is_empty());
    let fixes = general.map_or(&reason.fixes, |finding| &finding.fixes).iter().map(fix_line).collect();
    add_words(plan, reason.id, reason.says.clone(), fixes);
}

pub fn add_words(plan: &mut Plan, id: &'static str, says: String, fixes: Vec<String>) {
    // Header, library and test of one package are missing together.
    let same = |known: &Refusal| known.id == id && (known.says == says || (known.fixes == fixes && !fixes.is_empty()));
    if !plan.refused.iter().any(same) {
        plan.refused.push(Refusal { id, says, fixes });
    }
}

/// Takes out what follows from another.
pub fn fold(plan: &mut Plan) {
    let ids: Vec<&str> = plan.refused.iter().map(|one| one.id).collect();
    plan.refused.retain(|one| !ids.iter().any(|cause| *cause != one.id && explains(cause, one.id)));
}

/// No program that makes a wheel.
pub fn lack(case: &Case<'_>, scene: &Scene<'_>, lack: &Lack) -> Refusal {
    let python = crate::model::plan::interpreter(scene);
    let uv = search::which(case.facts, "uv").is_some();
    let install = |package: &str| match uv {
        true => format!("uv pip install --python {python} {package}"),
        false => format!("{python} -m pip install {package}"),
    };
    match lack {
        Lack::Pip => Refusal {
            id: "ds-op-incompatible",
            says: format!("the environment of `{python}` has no pip, which makes the wheel"),
            fixes: vec![if uv { install("pip") } else { format!("{python} -m ensurepip") }],
        },
        Lack::Wheel { setuptools } => Refusal {
            id: "python-distutils-setuptools",
            says: format!("setuptools {setuptools} leaves the making of wheels to the package wheel, which is not installed"),
            fixes: vec![install("wheel")],
        },
    }
}
