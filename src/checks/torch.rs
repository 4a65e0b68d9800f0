//! torch against the toolkit: no torch, a torch without CUDA, versions that do not go together.

use super::lookup::NOT_ASKED;
use super::remedy::{best_toolkit, install_toolkit, pip_install, use_toolkit};
use super::{Case, Check, Judgement, Verdict};
use crate::facts::gpu::GpuFacts;
use crate::facts::torch::Torch;
use crate::finding::{Evidence, Finding, Fix};
use crate::model::assume::is_assumed;
use crate::model::build::{self, BuildPath, Checker, VersionCheck};
use crate::text::join;
use crate::version::CudaVersion;

pub const CHECKS: &[Check] = &[
    Check { id: "torch-not-found", run: not_found },
    Check { id: "rocm-torch", run: rocm },
    Check { id: "cpu-only-torch", run: cpu_only },
    Check { id: "torch-nvcc-mismatch-major", run: major },
    Check { id: "torch-nvcc-mismatch-minor", run: minor },
];

/// An assumed torch has no files.
pub fn shown(torch: &Torch) -> Evidence {
    let cuda = torch.cuda.map(|cuda| format!(", CUDA {cuda}")).unwrap_or_default();
    let evidence = Evidence::new("torch", format!("{}{cuda}", torch.version));
    if is_assumed(&torch.path) { evidence.said_by("--assume") } else { evidence.at(&torch.path).said_by("torch/version.py") }
}

/// Absence alone is no fault: DeepSpeed without torch is, and whatever was asked for by name.
fn not_found(case: &Case<'_>) -> Judgement {
    if case.torch()?.is_some() {
        return Ok(Verdict::Pass);
    }
    let deepspeed = case.deepspeed()?;
    if deepspeed.is_none() && !case.requires("torch") {
        return Ok(Verdict::not_applicable("nothing here needs torch"));
    }
    let (place, path) = match case.python()? {
        Some(python) => (format!("`{}`", python.path), Some(&python.path)),
        None => ("the environment that is judged".to_owned(), None),
    };
    let mut finding = Finding::error("torch-not-found", format!("there is no torch in {place}"));
    if let Some(path) = path {
        finding = finding.seen(Evidence::new("python", "").at(path));
    }
    if let Some(deepspeed) = deepspeed {
        finding = finding.seen(Evidence::new("deepspeed", deepspeed.version.to_string()).at(&deepspeed.path));
    }
    // Another environment may have it.
    let elsewhere = case.facts.pythons.value().into_iter().flatten().find(|python| python.torch.value().is_some());
    finding = finding.then(
        "`import deepspeed` and every pre-build stop: `Unable to pre-compile ops without torch installed`, `No module named 'torch'`",
    );
    finding = match elsewhere {
        Some(other) => finding
            .seen(Evidence::new("torch", other.torch.value().map(|torch| torch.version.to_string()).unwrap_or_default()).at(&other.path))
            .fix(
                Fix::prepend(
                    "PATH",
                    &crate::facts::raw::HostPath::new(other.path.parent().unwrap_or(&other.path)),
                    "the environment that has torch",
                )
                .review(),
            ),
        None => finding.fix(pip_install(case, ["torch"], "for CUDA as PyPI builds it").curing("torch-not-found")),
    };
    Ok(Verdict::found(finding))
}

/// NVIDIA is what this machine has or what is asked for.
fn nvidia(case: &Case<'_>) -> bool {
    let gpu: &GpuFacts = &case.facts.gpu;
    gpu.driver_seen()
        || gpu.pci.value().is_some_and(|gpus| !gpus.is_empty())
        || case.toolkits().iter().any(|toolkit| toolkit.nvcc.value().is_some())
        || case.requires("gpu")
        || case.requires("nvcc")
}

fn rocm(case: &Case<'_>) -> Judgement {
    let Some(torch) = case.torch()? else { return Ok(Verdict::not_applicable("no torch")) };
    let Some(hip) = &torch.hip else { return Ok(Verdict::Pass) };
    if !nvidia(case) {
        return Ok(Verdict::not_applicable("nothing here is NVIDIA's"));
    }
    let finding = Finding::error("rocm-torch", format!("torch {} is built for ROCm {hip}, on a machine for CUDA", torch.version))
        .seen(shown(torch))
        .then("no CUDA op can be built or run with it")
        .fix(pip_install(case, ["--force-reinstall", "torch"], "the CUDA build of PyPI").curing("rocm-torch"));
    Ok(Verdict::found(finding))
}

fn cpu_only(case: &Case<'_>) -> Judgement {
    let Some(torch) = case.torch()? else { return Ok(Verdict::not_applicable("no torch")) };
    if torch.cuda.is_some() || torch.hip.is_some() {
        return Ok(Verdict::Pass);
    }
    if !nvidia(case) {
        return Ok(Verdict::not_applicable("nothing here asks for CUDA"));
    }
    let finding = Finding::error("cpu-only-torch", format!("torch {} is built without CUDA", torch.version))
        .seen(shown(torch))
        .then(
            "`torch.cuda.is_available()` is False whatever the driver, and CUDA ops are not built: torch does not even look for a toolkit",
        )
        .fix(
            pip_install(case, ["--force-reinstall", "torch"], "PyPI's build for Linux has CUDA; an index URL that ends in /cpu has not")
                .curing("cpu-only-torch"),
        );
    Ok(Verdict::found(finding))
}

struct Pair<'a> {
    torch: &'a Torch,
    built_for: CudaVersion,
    nvcc: CudaVersion,
}

/// torch and the nvcc that it would run.
fn pair<'a>(case: &Case<'a>) -> Result<Result<Pair<'a>, Verdict>, crate::facts::observed::Missing> {
    if !case.purpose.builds() {
        return Ok(Err(Verdict::not_applicable(NOT_ASKED)));
    }
    let Some(torch) = case.torch()? else { return Ok(Err(Verdict::not_applicable("no torch"))) };
    let Some(built_for) = torch.cuda else { return Ok(Err(Verdict::not_applicable("this torch is not built for CUDA"))) };
    let Some(toolkit) = case.toolkit()? else { return Ok(Err(Verdict::not_applicable("torch finds no toolkit"))) };
    if toolkit.nvcc.get("nvcc")?.is_none() {
        return Ok(Err(Verdict::not_applicable("no nvcc in the toolkit that torch finds")));
    }
    let Some(nvcc) = toolkit.release() else { return Ok(Err(Verdict::not_applicable("the release of nvcc is not known"))) };
    Ok(Ok(Pair { torch, built_for, nvcc }))
}

/// Which builds stop, and with what words.
fn stopped(case: &Case<'_>, torch: &Torch) -> Vec<(BuildPath, Checker, String)> {
    let deepspeed = case.deepspeed().ok().flatten();
    BuildPath::ALL
        .into_iter()
        .filter(|path| *path != BuildPath::Prebuild || deepspeed.is_some())
        .filter_map(|path| match build::version_check(path, case.facts, case.know, case.cuda_home(), torch, deepspeed)? {
            VersionCheck::Stops { by, message } => Some((path, by, message)),
            _ => None,
        })
        .collect()
}

fn name(path: BuildPath) -> &'static str {
    match path {
        BuildPath::Setup => "setup builds",
        BuildPath::Prebuild => "DeepSpeed's pre-build",
        BuildPath::Jit => "JIT builds",
    }
}

/// Builds that stop with the same words in one clause.
fn consequence(stops: &[(BuildPath, Checker, String)]) -> String {
    let mut clauses: Vec<(Vec<&str>, &str)> = Vec::new();
    for (path, _, message) in stops {
        match clauses.iter_mut().find(|(_, words)| words == message) {
            Some((paths, _)) => paths.push(name(*path)),
            None => clauses.push((vec![name(*path)], message)),
        }
    }
    let clauses = clauses.into_iter().map(|(paths, words)| {
        let verb = if paths.len() == 1 && !paths[0].ends_with('s') { "stops" } else { "stop" };
        format!("{} {verb} with `{words}`", join(&paths))
    });
    clauses.collect::<Vec<_>>().join("; ")
}

fn evidence(case: &Case<'_>, pair: &Pair<'_>, finding: Finding) -> Finding {
    let mut nvcc = Evidence::new("nvcc", pair.nvcc.to_string());
    if let Some(seen) = case.nvcc().ok().flatten() {
        nvcc = Evidence::new("nvcc", seen.version.as_ref().map_or(pair.nvcc.to_string(), ToString::to_string)).at(&seen.path);
    }
    if let Some(source) = case.cuda_home().by.source() {
        nvcc = nvcc.from(&source);
    }
    finding.seen(nvcc).seen(shown(pair.torch))
}

/// The toolkit of torch's release where it is on the machine; else how to get it, or a torch for this toolkit.
fn cures(case: &Case<'_>, pair: &Pair<'_>, id: &'static str) -> Vec<Fix> {
    let fits = |release: Option<CudaVersion>| {
        release.is_some_and(|release| if id.ends_with("major") { release.major == pair.built_for.major } else { release == pair.built_for })
    };
    if let Some(best) = best_toolkit(case, true).filter(|toolkit| fits(toolkit.release())) {
        return use_toolkit(case, best);
    }
    let mut fixes = install_toolkit(case, id);
    let next = fixes.iter().map(|fix| fix.choice).max().unwrap_or(0).saturating_add(1);
    fixes.push(Fix::advice(format!("install a torch that is built for CUDA {} ({})", pair.nvcc, pair.nvcc.tag())).or(next));
    fixes
}

fn major(case: &Case<'_>) -> Judgement {
    const ID: &str = "torch-nvcc-mismatch-major";
    let pair = match pair(case)? {
        Ok(pair) => pair,
        Err(verdict) => return Ok(verdict),
    };
    if pair.nvcc.major == pair.built_for.major {
        return Ok(Verdict::Pass);
    }
    let stops = stopped(case, pair.torch);
    let mut then = consequence(&stops);
    if !stops.iter().any(|(path, ..)| *path == BuildPath::Jit) {
        let soname =
            case.know.toolkit(pair.nvcc).map_or_else(|| format!("libcudart.so.{}", pair.nvcc.major), |row| row.cudart_soname.to_string());
        then.push_str(&format!("; JIT builds check nothing and fail later, for want of `{soname}`"));
    }
    let finding = Finding::error(ID, format!("`nvcc` is CUDA {} but torch was built for CUDA {}", pair.nvcc, pair.built_for)).then(then);
    let finding = evidence(case, &pair, finding);
    Ok(Verdict::found(cures(case, &pair, ID).into_iter().fold(finding, Finding::fix)))
}

/// Harmless, except where DeepSpeed's table has no row for the pair.
fn minor(case: &Case<'_>) -> Judgement {
    const ID: &str = "torch-nvcc-mismatch-minor";
    let pair = match pair(case)? {
        Ok(pair) => pair,
        Err(verdict) => return Ok(verdict),
    };
    if pair.nvcc.major != pair.built_for.major || pair.nvcc == pair.built_for {
        return Ok(Verdict::Pass);
    }
    let title = format!("`nvcc` is CUDA {} and torch was built for CUDA {}", pair.nvcc, pair.built_for);
    let stops = stopped(case, pair.torch);
    if stops.is_empty() {
        let finding = Finding::info(ID, title).then("setup builds print a warning and go on; code of one major fits the other minors");
        return Ok(Verdict::found(evidence(case, &pair, finding)));
    }
    let finding = evidence(case, &pair, Finding::error(ID, title).then(consequence(&stops)));
    let mut finding = cures(case, &pair, ID).into_iter().fold(finding, Finding::fix);
    if stops.iter().all(|(_, by, _)| *by == Checker::DeepSpeed) {
        let next = finding.fixes.iter().map(|fix| fix.choice).max().unwrap_or(0).saturating_add(1);
        let advice = "DeepSpeed's check can be skipped for one build with `DS_SKIP_CUDA_CHECK=1`: minors of one major do fit each other";
        finding = finding.fix(Fix::advice(advice).or(next));
    }
    Ok(Verdict::found(finding))
}
