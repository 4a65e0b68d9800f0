//! DeepSpeed's single ops: what keeps one that is asked for from being built, and one that is installed from being used.

use super::ops_fixes::fixes;
use super::{Case, Check, Judgement, Verdict};
use crate::finding::{Evidence, Finding, Fix, ProblemId, Severity};
use crate::knowledge::schema::deepspeed::{AcceleratorKind, DeepSpeedTrait};
use crate::model::arch_list::{self, Format};
use crate::model::ops::{Installed, Obstacle, OpState, Scene, Seen, Stage, Wish, WishFault, ignored};
use crate::text::join;

pub const CHECKS: &[Check] = &[
    Check { id: "ds-op-source-broken", run: |case| of(case, "ds-op-source-broken") },
    Check { id: "ds-kernels-missing", run: |case| of(case, "ds-kernels-missing") },
    Check { id: "libaio-missing", run: |case| of(case, "libaio-missing") },
    Check { id: "libaio-not-detected", run: |case| of(case, "libaio-not-detected") },
    Check { id: "libaio-too-old", run: |case| of(case, "libaio-too-old") },
    Check { id: "cufile-missing", run: |case| of(case, "cufile-missing") },
    Check { id: "cutlass-missing", run: |case| of(case, "cutlass-missing") },
    Check { id: "nccl-header-missing", run: |case| of(case, "nccl-header-missing") },
    Check { id: "triton-version", run: |case| of(case, "triton-version") },
    Check { id: "ds-op-incompatible", run: incompatible },
    Check { id: "ds-build-flag-ignored", run: flag_ignored },
    Check { id: "ds-arch-list-leak", run: leak },
    Check { id: "prebuilt-ops-torch-changed", run: torch_changed },
];

/// What setup.py does with an op that is asked for and whose `is_compatible` says no.
fn dropped(scene: &Scene<'_>, state: &OpState<'_>) -> String {
    let op = &state.op.op;
    match (scene.does(DeepSpeedTrait::DropsIncompatibleOps), &state.wish) {
        (false, _) => format!("setup.py stops with `Unable to pre-compile {op}`"),
        (true, Wish::Own) => format!("setup.py leaves {op} out of the wheel without a word: `{}=1` is passed over", state.op.variable),
        (true, _) => format!("setup.py leaves {op} out of the wheel with a warning"),
    }
}

pub fn evidence(seen: &Seen) -> Evidence {
    let evidence = Evidence::new(&seen.what, &seen.value).said_by(&seen.source);
    match &seen.path {
        Some(path) => evidence.at(path),
        None => evidence,
    }
}

/// Whether an obstacle is a finding: the op is asked for, and not among all others that setup.py may pass over.
fn speaks(scene: &Scene<'_>, state: &OpState<'_>, obstacle: &Obstacle) -> bool {
    match state.wish {
        Wish::No => false,
        Wish::Own | Wish::For(_) => true,
        Wish::All => obstacle.stage == Stage::Dies || !scene.does(DeepSpeedTrait::DropsIncompatibleOps),
    }
}

fn finding(case: &Case<'_>, scene: &Scene<'_>, state: &OpState<'_>, obstacle: &Obstacle, id: ProblemId, severity: Severity) -> Finding {
    let then = match obstacle.stage {
        Stage::Refused => dropped(scene, state),
        Stage::Raises => "setup.py stops with the error of the test".to_owned(),
        Stage::Dies => format!("the build stops at {}", state.op.op),
    };
    let mut finding = Finding::new(id, severity, obstacle.says.clone()).about(state.op.op.to_string()).then(then);
    for seen in &obstacle.seen {
        finding = finding.seen(evidence(seen));
    }
    let by = match &state.wish {
        Wish::Own => state.op.variable.to_string(),
        Wish::All => "DS_BUILD_OPS".to_owned(),
        Wish::For(op) => format!("needed by {op}"),
        Wish::No => String::new(),
    };
    finding = finding.seen(Evidence::new("asked for", by).said_by("environment"));
    finding = finding.seen(Evidence::new("deepspeed", scene.deepspeed.version.to_string()).at(&scene.deepspeed.path));
    fixes(case, scene, state.op, obstacle).into_iter().fold(finding, Finding::fix)
}

const NOT_BUILT: &str = "no op is asked for";

/// The obstacles of one id, one finding for each op that meets it.
fn of(case: &Case<'_>, id: ProblemId) -> Judgement {
    if !case.purpose.builds() {
        return Ok(Verdict::not_applicable(super::lookup::NOT_ASKED));
    }
    if case.asked_ops().is_empty() {
        return Ok(Verdict::not_applicable(NOT_BUILT));
    }
    let Some((scene, states)) = case.ops()? else { return Ok(Verdict::not_applicable("no DeepSpeed")) };
    let mut found: Vec<Finding> = Vec::new();
    let mut unknown = None;
    for state in states.iter().filter(|state| state.wish.is_wanted()) {
        for obstacle in state.prebuild.obstacles.iter().filter(|obstacle| obstacle.id == id && speaks(scene, state, obstacle)) {
            // async_io and gds miss the same library.
            if !found.iter().any(|known| known.subject == *state.op.op) {
                found.push(finding(case, scene, state, obstacle, id, Severity::Error));
            }
        }
        unknown = unknown.or_else(|| state.prebuild.unknown.iter().find(|missing| missing.topic == "ops").cloned());
    }
    match unknown {
        Some(missing) if found.is_empty() => Err(missing),
        _ => Ok(Verdict::of(found)),
    }
}

/// What no other problem names.
const INCOMPATIBLE: &[&str] = &["ds-op-incompatible", "gpu-too-old-for-software"];

fn incompatible(case: &Case<'_>) -> Judgement {
    if !case.purpose.builds() || case.asked_ops().is_empty() {
        return Ok(Verdict::not_applicable(NOT_BUILT));
    }
    let Some((scene, states)) = case.ops()? else { return Ok(Verdict::not_applicable("no DeepSpeed")) };
    let mut found = Vec::new();
    for state in states.iter().filter(|state| state.wish.is_wanted()) {
        let mut obstacles =
            state.prebuild.obstacles.iter().filter(|obstacle| INCOMPATIBLE.contains(&obstacle.id) && speaks(scene, state, obstacle));
        if let Some(obstacle) = obstacles.next() {
            let severity = if obstacle.stage == Stage::Dies { Severity::Error } else { Severity::Warning };
            found.push(finding(case, scene, state, obstacle, "ds-op-incompatible", severity));
        }
    }
    Ok(Verdict::of(found))
}

fn flag_ignored(case: &Case<'_>) -> Judgement {
    const ID: ProblemId = "ds-build-flag-ignored";
    if !case.purpose.builds() || case.asked_ops().is_empty() {
        return Ok(Verdict::not_applicable(NOT_BUILT));
    }
    let Some((scene, _)) = case.ops()? else { return Ok(Verdict::not_applicable("no DeepSpeed")) };
    let version = &scene.deepspeed.version;
    let mut findings = Vec::new();
    for (name, fault) in ignored(scene) {
        let (title, then, fix) = match fault {
            // That the CPU set was taken for want of a GPU is a problem of its own.
            WishFault::OtherAccelerator { .. } if scene.accelerator == AcceleratorKind::Cpu && !scene.said => continue,
            WishFault::OtherAccelerator { op } => {
                let set = if scene.accelerator == AcceleratorKind::Cuda { "CUDA" } else { "CPU" };
                (
                    format!("`{name}` asks for {op}, which is not in the {set} op set that DeepSpeed {version} takes here"),
                    "it is passed over without a word",
                    Fix::unset(name, "the op is built for the other accelerator only"),
                )
            }
            WishFault::OtherRelease { op } => (
                format!("`{name}` asks for {op}, which DeepSpeed {version} does not have"),
                "it is passed over without a word",
                Fix::unset(name, "this release has no such op"),
            ),
            WishFault::Unknown { near } => {
                let fix = match &near {
                    Some(near) => {
                        let value = case.facts.env.text(name).unwrap_or_else(|| "1".to_owned());
                        Fix::set(near, value, format!("the variable that `{name}` is near to"))
                    }
                    None => Fix::unset(name, "no op goes by it"),
                };
                (format!("`{name}` is no variable of DeepSpeed's"), "nothing is pre-built for it, and nothing is said", fix.review())
            }
            WishFault::NotANumber => (
                format!("`{name}` is no whole number"),
                "setup.py stops with `ValueError: invalid literal for int()`",
                Fix::set(name, "1", "what was meant, probably").review(),
            ),
        };
        let severity = if then.starts_with("setup.py stops") { Severity::Error } else { Severity::Warning };
        let value = case.facts.env.text(name).unwrap_or_default();
        let mut fix = fix;
        fix = fix.curing_of(ID, name);
        findings.push(
            Finding::new(ID, severity, title)
                .about(name)
                .seen(Evidence::new(name, value).said_by("environment"))
                .seen(Evidence::new("deepspeed", version.to_string()).at(&scene.deepspeed.path))
                .then(then)
                .fix(fix),
        );
    }
    Ok(Verdict::of(findings))
}

fn leak(case: &Case<'_>) -> Judgement {
    if !case.purpose.builds() || case.asked_ops().is_empty() {
        return Ok(Verdict::not_applicable(NOT_BUILT));
    }
    let Some((scene, states)) = case.ops()? else { return Ok(Verdict::not_applicable("no DeepSpeed")) };
    let mut findings = Vec::new();
    let mut by: Vec<&str> = Vec::new();
    for state in states {
        if let Some(op) = state.archs.narrowed_by.as_deref().filter(|_| state.build.is_some_and(|build| build.cu > 0))
            && !by.contains(&op)
        {
            by.push(op);
        }
    }
    for op in by {
        let Some(narrows) = states.iter().find(|state| state.op.op == op) else { continue };
        let cut: Vec<&OpState<'_>> = states
            .iter()
            .filter(|state| state.archs.narrowed_by.as_deref() == Some(op) && state.build.is_some_and(|build| build.cu > 0))
            .collect();
        let names: Vec<String> = cut.iter().map(|state| state.op.op.to_string()).collect();
        let list = |items: &[arch_list::Item]| arch_list::print(items, Format::List);
        findings.push(
            Finding::warning(
                "ds-arch-list-leak",
                format!(
                    "{op} leaves {} of {} in the list, and DeepSpeed {} writes that back, so that {} built behind it {} without the rest",
                    list(&narrows.archs.kept),
                    list(&narrows.archs.list),
                    scene.deepspeed.version,
                    join(&names),
                    if names.len() == 1 { "is" } else { "are" },
                ),
            )
            .about(op)
            .seen(Evidence::new(op, list(&narrows.archs.kept)).said_by("its filter"))
            .seen(Evidence::new("deepspeed", scene.deepspeed.version.to_string()).at(&scene.deepspeed.path))
            .then("on the GPUs that were left out those ops fail with `no kernel image is available for execution on the device`")
            .fix(Fix::set(&narrows.op.variable, "0", format!("{op} in a build of its own")).review())
            .fix(Fix::advice(format!("set TORCH_CUDA_ARCH_LIST to what {op} takes too, where the older GPUs are not meant")).or(1)),
        );
    }
    Ok(Verdict::of(findings))
}

/// Pre-built ops that this torch, CUDA or accelerator does not use.
fn torch_changed(case: &Case<'_>) -> Judgement {
    const ID: ProblemId = "prebuilt-ops-torch-changed";
    let Some(deepspeed) = case.deepspeed()? else { return Ok(Verdict::not_applicable("no DeepSpeed")) };
    if !deepspeed.built.get("deepspeed")?.is_some_and(|built| built.ops.values().any(|built| *built)) {
        return Ok(Verdict::not_applicable("no op is pre-built"));
    }
    let Some((scene, states)) = case.ops()? else { return Ok(Verdict::not_applicable("no DeepSpeed")) };
    // Ops for CUDA on a machine without a GPU are there for another.
    let elsewhere = scene.accelerator == AcceleratorKind::Cpu
        && deepspeed.built.value().is_some_and(|built| built.accelerator.as_deref() == Some("cuda"));
    let mut invalid: Vec<(&OpState<'_>, &Obstacle)> = Vec::new();
    for state in states {
        if let Installed::Invalid(why) = &state.installed {
            invalid
                .extend(why.iter().filter(|one| one.id == ID && !(elsewhere && one.says.contains("accelerator"))).map(|one| (state, one)));
        }
    }
    let Some((_, first)) = invalid.first() else { return Ok(Verdict::Pass) };
    let mut names: Vec<String> = invalid.iter().map(|(state, _)| state.op.op.to_string()).collect();
    names.dedup();
    let by_accelerator = invalid.iter().all(|(_, one)| one.says.contains("accelerator"));
    let (severity, then) = if by_accelerator {
        (Severity::Warning, "DeepSpeed passes the pre-built ops over and compiles them at first use".to_owned())
    } else {
        (Severity::Error, "loading such an op stops with `PyTorch version mismatch!` or `CUDA version mismatch!`".to_owned())
    };
    let mut finding = Finding::new(ID, severity, format!("DeepSpeed's pre-built {}: {}", join(&names), first.says))
        .then(then)
        .seen(Evidence::new("deepspeed", scene.deepspeed.version.to_string()).at(&scene.deepspeed.path));
    for seen in &first.seen {
        finding = finding.seen(evidence(seen));
    }
    if let Some(torch) = scene.torch {
        finding = finding.seen(super::torch::shown(torch));
    }
    let variables: Vec<String> = states
        .iter()
        .filter(|state| names.iter().any(|name| *name == *state.op.op))
        .map(|state| format!("{}=1", state.op.variable))
        .collect();
    let again = format!(
        "build them anew: `{} pip install --no-build-isolation --no-cache-dir --force-reinstall --no-deps deepspeed=={}`; `ds-doctor plan` prints all of it",
        variables.join(" "),
        scene.deepspeed.version
    );
    Ok(Verdict::found(
        finding.fix(Fix::advice(again).curing(ID)).fix(Fix::advice("or go back to the torch that they were built for").curing(ID).or(1)),
    ))
}
