//! Which toolkit torch finds, and whether it is the one that was meant.

use super::remedy::{best_toolkit, install_toolkit, usable, use_toolkit};
use super::{Case, Check, Judgement, Verdict};
use crate::facts::env::PlaceState;
use crate::facts::observed::Missing;
use crate::facts::raw::HostPath;
use crate::facts::source::Source;
use crate::facts::toolkit::{Layout, LibFolderKind, Toolkit};
use crate::finding::{Evidence, Finding, Fix, Severity};
use crate::model::cuda_home::FoundBy;
use crate::model::search;
use crate::text::{count, join};
use std::collections::BTreeMap;
use std::path::Path;

pub const CHECKS: &[Check] = &[
    Check { id: "no-nvcc", run: no_nvcc },
    Check { id: "cuda-home-unset", run: unset },
    Check { id: "path-nvcc-differs-from-cuda-home", run: differs },
    Check { id: "multiple-toolkits-path-order", run: order },
    Check { id: "distro-nvcc-usr-bin", run: distribution },
    Check { id: "cuda-env-not-read", run: not_read },
];

pub const NOT_ASKED: &str = "building is not asked for";

/// Building CUDA code matters here: it is asked for, and torch is a CUDA build or nvcc is required.
fn wants_cuda_build(case: &Case<'_>) -> Result<Result<(), Verdict>, Missing> {
    if !case.purpose.builds() {
        return Ok(Err(Verdict::not_applicable(NOT_ASKED)));
    }
    if case.requires("nvcc") {
        return Ok(Ok(()));
    }
    Ok(match case.torch()? {
        Some(torch) if torch.cuda.is_some() => Ok(()),
        Some(_) => Err(Verdict::not_applicable("this torch is not built for CUDA")),
        None => Err(Verdict::not_applicable("no torch")),
    })
}

/// The variable that torch's lookup takes, with its value.
pub fn deciding_variable<'a>(case: &Case<'a>) -> Option<(&'static str, &'a Path)> {
    let name = match case.cuda_home().by {
        FoundBy::CudaHome => "CUDA_HOME",
        FoundBy::CudaPath => "CUDA_PATH",
        _ => return None,
    };
    case.facts.env.get(name).map(|value| (name, Path::new(value)))
}

/// The steps to a toolkit that works, or how to get one.
pub fn towards_a_toolkit(case: &Case<'_>, id: &'static str) -> Vec<Fix> {
    match best_toolkit(case, true).or_else(|| best_toolkit(case, false)) {
        Some(toolkit) => use_toolkit(case, toolkit),
        // What is installed goes where torch looks by itself, so a variable that names another place must go.
        None => {
            let mut fixes: Vec<Fix> = install_toolkit(case, id).into_iter().map(|fix| fix.curing("no-nvcc")).collect();
            if let Some((name, _)) = deciding_variable(case) {
                fixes.insert(0, Fix::unset(name, "torch then looks for nvcc on PATH and in /usr/local/cuda").review());
            }
            fixes
        }
    }
}

fn no_nvcc(case: &Case<'_>) -> Judgement {
    if let Err(verdict) = wants_cuda_build(case)? {
        return Ok(verdict);
    }
    let toolkits = case.facts.toolkits.get("toolkit")?.map_or(&[][..], Vec::as_slice);
    if toolkits.iter().any(|toolkit| !toolkit.nvcc.is_absent()) || search::which(case.facts, "nvcc").is_some() {
        return Ok(Verdict::Pass);
    }
    // The toolkit may lie in the very folder that nobody could look into.
    if let Some((name, path)) = deciding_variable(case)
        && let Some(PlaceState::Unreadable { why }) = case.facts.env.state(path)
    {
        return Err(Missing { topic: "toolkit", why: format!("{name}: {why}"), failed: true });
    }
    let torch = case.torch()?;
    let mut finding = match torch.and_then(|torch| torch.cuda) {
        Some(cuda) => Finding::error(
            "no-nvcc",
            format!("there is no `nvcc` on this machine, and CUDA ops cannot be built without the toolkit of CUDA {cuda}"),
        ),
        None => Finding::error("no-nvcc", "there is no `nvcc` on this machine"),
    };
    if let Some(torch) = torch {
        finding = finding.seen(super::torch::shown(torch));
    }
    for toolkit in toolkits {
        let release = toolkit.release().map(|release| format!("of CUDA {release}, ")).unwrap_or_default();
        finding = finding.seen(Evidence::new("runtime files", format!("{release}no nvcc")).at(&toolkit.root).from(&first_source(toolkit)));
    }
    let finding = finding
        .seen(Evidence::new("looked", "CUDA_HOME, CUDA_PATH, PATH, /usr/local/cuda*, /opt, /usr, conda and Python packages"))
        .then("setup builds stop with `CUDA_HOME environment variable is not set` or `CUDA was not found on the system`; what torch brings from PyPI runs, but has no compiler");
    Ok(Verdict::found(install_toolkit(case, "no-nvcc").into_iter().fold(finding, Finding::fix)))
}

fn first_source(toolkit: &Toolkit) -> Source {
    toolkit.sources.first().cloned().unwrap_or(Source::UsualPlace)
}

fn unset(case: &Case<'_>) -> Judgement {
    if let Err(verdict) = wants_cuda_build(case)? {
        return Ok(verdict);
    }
    case.facts.toolkits.get("toolkit")?;
    let home = case.cuda_home();
    if home.gate.is_some() || home.by != FoundBy::Nothing {
        return Ok(Verdict::Pass);
    }
    let with_nvcc: Vec<&Toolkit> = case.toolkits().iter().filter(|toolkit| toolkit.nvcc.value().is_some()).collect();
    if with_nvcc.is_empty() {
        return Ok(Verdict::not_applicable("no toolkit"));
    }
    let mut finding = Finding::error(
        "cuda-home-unset",
        format!(
            "torch finds no CUDA toolkit, though {} here",
            if with_nvcc.len() == 1 { "one is".to_owned() } else { format!("{} are", with_nvcc.len()) }
        ),
    );
    for toolkit in with_nvcc {
        let release = toolkit.release().map_or("of unknown release".to_owned(), |release| release.to_string());
        finding = finding.seen(Evidence::new("toolkit", release).at(&toolkit.root).from(&first_source(toolkit)));
    }
    let finding = finding
        .seen(Evidence::new("looked", "CUDA_HOME, CUDA_PATH, nvcc on PATH, /usr/local/cuda").said_by("torch's lookup"))
        .then("setup builds stop with `CUDA_HOME environment variable is not set`, DeepSpeed with `CUDA_HOME does not exist, unable to compile CUDA op(s)`");
    Ok(Verdict::found(towards_a_toolkit(case, "cuda-home-unset").into_iter().fold(finding, Finding::fix)))
}

fn differs(case: &Case<'_>) -> Judgement {
    if !case.purpose.builds() {
        return Ok(Verdict::not_applicable(NOT_ASKED));
    }
    let Some(toolkit) = case.toolkit()? else { return Ok(Verdict::not_applicable("torch finds no toolkit")) };
    let Some(hit) = search::which(case.facts, "nvcc") else { return Ok(Verdict::not_applicable("no nvcc on PATH")) };
    let Some(nvcc) = toolkit.nvcc.get("nvcc")? else { return Ok(Verdict::not_applicable("no nvcc in the toolkit that torch finds")) };
    let seen = case
        .toolkits()
        .iter()
        .find(|toolkit| toolkit.nvcc.value().is_some_and(|nvcc| nvcc.path == hit.program.path || nvcc.program == hit.program.real));
    if nvcc.program == hit.program.real || nvcc.path == hit.program.path || seen.is_some_and(|seen| seen.real == toolkit.real) {
        return Ok(Verdict::Pass);
    }
    let (used, shown) = (toolkit.release(), seen.and_then(Toolkit::release));
    if used.is_some() && used == shown {
        return Ok(Verdict::Pass);
    }
    let release =
        |release: Option<_>| release.map_or("of unknown release".to_owned(), |release: crate::version::CudaVersion| release.to_string());
    let wanted = case.torch()?.and_then(|torch| torch.cuda);
    let mut finding = Finding::warning(
        "path-nvcc-differs-from-cuda-home",
        format!("`nvcc` on PATH is CUDA {}, but builds run the nvcc of CUDA {}", release(shown), release(used)),
    )
    .seen(Evidence::new("nvcc on PATH", release(shown)).at(&hit.program.path).from(&hit.source()))
    .seen({
        let source = case.cuda_home().by.source();
        let evidence = Evidence::new("nvcc of the build", release(used)).at(&nvcc.path);
        source.map_or(evidence.clone(), |source| evidence.from(&source))
    })
    .then("`nvcc --version` shows another compiler than the one torch and DeepSpeed build with");
    if let Some(torch) = case.torch()? {
        finding = finding.seen(super::torch::shown(torch));
    }
    // The one that fits torch is the one to take; where neither or both do, the person has to say.
    let better = match wanted {
        Some(wanted) if shown == Some(wanted) => seen,
        Some(wanted) if used == Some(wanted) => Some(toolkit),
        Some(wanted) if used.map(|used| used.major) != Some(wanted.major) && shown.map(|shown| shown.major) == Some(wanted.major) => seen,
        Some(wanted) if used.map(|used| used.major) == Some(wanted.major) && shown.map(|shown| shown.major) != Some(wanted.major) => {
            Some(toolkit)
        }
        _ => None,
    };
    let fixes = match better.filter(|toolkit| usable(toolkit)).or_else(|| best_toolkit(case, true)) {
        Some(toolkit) => use_toolkit(case, toolkit),
        None => vec![Fix::advice("set `CUDA_HOME` to the toolkit that is meant and put its `bin` first on PATH")],
    };
    Ok(Verdict::found(fixes.into_iter().fold(finding, Finding::fix)))
}

/// The toolkits that PATH, CUDA_HOME and LD_LIBRARY_PATH lead to, by real folder.
fn order(case: &Case<'_>) -> Judgement {
    if case.torch()?.is_none() {
        return Ok(Verdict::not_applicable("no torch"));
    }
    case.facts.toolkits.get("toolkit")?;
    let mut named: BTreeMap<&HostPath, Vec<(Source, &Toolkit, HostPath)>> = BTreeMap::new();
    if let (Some(toolkit), Some(source)) = (case.cuda_home().toolkit, case.cuda_home().by.source()) {
        named.entry(&toolkit.real).or_default().push((source, toolkit, toolkit.root.clone()));
    }
    if let Some(hit) = search::which(case.facts, "nvcc")
        && let Some(toolkit) = case
            .toolkits()
            .iter()
            .find(|toolkit| toolkit.nvcc.value().is_some_and(|nvcc| nvcc.path == hit.program.path || nvcc.program == hit.program.real))
    {
        named.entry(&toolkit.real).or_default().push((hit.source(), toolkit, hit.program.path.clone()));
    }
    for (index, entry) in case.facts.env.entries("LD_LIBRARY_PATH").iter().enumerate() {
        let owner = case.toolkits().iter().find(|toolkit| {
            toolkit.layout != Layout::Distribution
                && toolkit.libs.iter().any(|folder| folder.kind != LibFolderKind::Stubs && folder.is(entry) && !folder.files.is_empty())
        });
        if let Some(toolkit) = owner {
            named.entry(&toolkit.real).or_default().push((Source::entry("LD_LIBRARY_PATH", index + 1), toolkit, HostPath::new(entry)));
        }
    }
    let releases: std::collections::BTreeSet<_> = named.values().flatten().filter_map(|(_, toolkit, _)| toolkit.release()).collect();
    if releases.len() < 2 {
        return Ok(Verdict::Pass);
    }
    let words: Vec<String> = releases.iter().map(|release| format!("CUDA {release}")).collect();
    let mut finding = Finding::warning(
        "multiple-toolkits-path-order",
        format!("the variables name {} at once: {}", count(releases.len(), "toolkit"), join(&words)),
    );
    for (source, toolkit, path) in named.values().flatten() {
        let release = toolkit.release().map(|release| release.to_string()).unwrap_or_default();
        finding = finding.seen(Evidence::new("CUDA", release).at(path).from(source));
    }
    let finding = finding.then("code is compiled against one release and may load the libraries of another");
    let mut fixes = Vec::new();
    let keep = best_toolkit(case, true).or(case.cuda_home().toolkit);
    if let Some(keep) = keep {
        if case.cuda_home().toolkit.is_none_or(|toolkit| toolkit.real != keep.real) || search::which(case.facts, "nvcc").is_some() {
            fixes.extend(use_toolkit(case, keep));
        }
        for (source, toolkit, path) in named.values().flatten() {
            if matches!(source, Source::Entry { name, .. } if name == "LD_LIBRARY_PATH") && toolkit.real != keep.real {
                fixes.push(Fix::remove("LD_LIBRARY_PATH", path, "another release"));
            }
        }
    }
    Ok(Verdict::found(fixes.into_iter().fold(finding, Finding::fix)))
}

/// A layout that works by itself: worth knowing, no fault. What is really missing in it is told by the checks of headers and libraries.
fn distribution(case: &Case<'_>) -> Judgement {
    if !case.purpose.builds() {
        return Ok(Verdict::not_applicable(NOT_ASKED));
    }
    let Some(toolkit) = case.toolkit()? else { return Ok(Verdict::not_applicable("torch finds no toolkit")) };
    if toolkit.layout != Layout::Distribution || toolkit.nvcc.value().is_none() {
        return Ok(Verdict::Pass);
    }
    let finding = Finding::new(
        "distro-nvcc-usr-bin",
        Severity::Info,
        format!(
            "builds use the distribution's CUDA {}, with `{}` as CUDA_HOME",
            toolkit.release().map(|r| r.to_string()).unwrap_or_default(),
            toolkit.root
        ),
    )
    .seen(Evidence::new("toolkit", "distribution package").at(&toolkit.root).from(&first_source(toolkit)))
    .then("headers and libraries are where the compiler looks by itself; its wrapper picks a gcc that fits");
    Ok(Verdict::found(finding))
}

/// Only where it was meant to choose: it names another toolkit than the one torch finds.
fn not_read(case: &Case<'_>) -> Judgement {
    if let Err(verdict) = wants_cuda_build(case)? {
        return Ok(verdict);
    }
    case.facts.toolkits.get("toolkit")?;
    let home = case.cuda_home();
    // A module system sets several at once; where the one that counts is set too, the others do no harm.
    if matches!(home.by, FoundBy::CudaHome | FoundBy::CudaPath) {
        return Ok(Verdict::Pass);
    }
    let torch = case.torch()?;
    let mut findings = Vec::new();
    for row in case.know.mistaken_variables().filter(|row| row.mistaken_for.as_deref() == Some("CUDA_HOME")) {
        let name = row.name.as_ref();
        if torch.is_some_and(|torch| case.know.torch_reads(name, &torch.version) == Some(true)) {
            continue;
        }
        let Some(value) = case.facts.env.path(name) else { continue };
        // Some of them name the program rather than the folder.
        let program = search::which(case.facts, value).map(|hit| &hit.program.real);
        let meant = case.toolkits().iter().find(|toolkit| {
            let nvcc = toolkit.nvcc.value();
            *toolkit.root == *value
                || *toolkit.real == *value
                || *toolkit.root.join("bin") == *value
                || nvcc.is_some_and(|nvcc| *nvcc.path == *value || program.is_some_and(|program| *program == nvcc.program))
        });
        if meant.zip(home.toolkit).is_some_and(|(meant, found)| meant.real == found.real) {
            continue;
        }
        // A command line, or a compiler that is no nvcc, was not meant for torch.
        let folder = matches!(case.facts.env.state(value), Some(PlaceState::Folder | PlaceState::Missing | PlaceState::Dangling { .. }));
        if meant.is_none() && (!folder || value.to_string_lossy().contains(char::is_whitespace)) {
            continue;
        }
        let shown = HostPath::new(value);
        let found = home.toolkit.map_or("none".to_owned(), |toolkit| format!("`{}`", toolkit.root));
        let mut finding =
            Finding::warning("cuda-env-not-read", format!("`{name}` is `{shown}`, which torch does not read: it finds {found}"))
                .about(name)
                .seen(Evidence::new(name, shown.to_string()).said_by(row.effect.as_ref()))
                .then("the build uses another toolkit than the one named, or none");
        let wanted = torch.and_then(|torch| torch.cuda);
        let found_fits = wanted.is_some() && home.toolkit.and_then(Toolkit::release) == wanted;
        let meant_fits = meant.and_then(Toolkit::release).zip(wanted).is_none_or(|(meant, wanted)| meant.major == wanted.major);
        if found_fits && meant.and_then(Toolkit::release) != wanted || !meant_fits {
            let unset = Fix::unset(name, "it names a toolkit that is not of torch's release");
            // CMake may need it.
            finding = finding.fix(if row.read_by.is_empty() { unset } else { unset.review() });
        } else if let Some(meant) = meant.filter(|toolkit| usable(toolkit)) {
            finding = finding.fix(Fix::set("CUDA_HOME", meant.root.0.clone(), format!("the toolkit that {name} names")));
        } else {
            finding = finding.fix(Fix::advice(format!("if `{shown}` is the toolkit that is meant, set `CUDA_HOME` to it")));
        }
        findings.push(finding);
    }
    Ok(Verdict::of(findings))
}
