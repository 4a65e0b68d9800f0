//! Cures that several checks share: which toolkit to take instead, how to switch to it, how to install what is missing.

use super::Case;
use crate::facts::python::EnvironmentKind;
use crate::facts::source::Source;
use crate::facts::toolkit::{Layout, NvccKind, Toolkit};
use crate::finding::{Fix, ProblemId};
use crate::knowledge::host::Wanted;
use crate::knowledge::schema::host::{Family, Need};
use crate::model::assume::is_assumed;
use crate::model::search;
use crate::text::count;
use crate::version::CudaVersion;
use std::cmp::Reverse;
use std::fmt::Display;

/// A toolkit that could be built with: an nvcc that is one, and no part of it missing.
pub fn usable(toolkit: &Toolkit) -> bool {
    let nvcc = toolkit.nvcc.value();
    let works = nvcc.is_some_and(|nvcc| match &nvcc.kind {
        NvccKind::Program | NvccKind::DistributionScript => true,
        NvccKind::Wrapper { found, .. } => *found,
        NvccKind::Broken { .. } => false,
    });
    works && toolkit.parts.iter().all(|part| part.path.is_some() && part.broken.is_none())
}

/// The usable toolkit that fits torch best: its own release, else the nearest minor of its major. With `same_major` no other is offered.
pub fn best_toolkit<'a>(case: &Case<'a>, same_major: bool) -> Option<&'a Toolkit> {
    let wanted = case.torch().ok().flatten().and_then(|torch| torch.cuda);
    let fits = |release: Option<CudaVersion>| match (wanted, release) {
        (Some(wanted), Some(release)) => !same_major || release.major == wanted.major,
        (Some(_), None) => !same_major,
        (None, _) => true,
    };
    let rank = |toolkit: &&'a Toolkit| {
        let release = toolkit.release();
        let (major, minor) = match (wanted, release) {
            (Some(wanted), Some(release)) => (wanted.major == release.major, wanted.minor.abs_diff(release.minor)),
            _ => (false, u32::MAX),
        };
        let layout = match toolkit.layout {
            Layout::Nvidia | Layout::Overlay => 0,
            Layout::Distribution | Layout::Conda => 1,
            Layout::HpcSdk => 2,
            Layout::Pip | Layout::Unknown => 3,
        };
        // A root that names its release stays right when `/usr/local/cuda` is pointed elsewhere.
        let named = release.is_some_and(|release| toolkit.root.to_string().ends_with(&release.to_string()));
        (Reverse(major), minor, layout, Reverse(release), Reverse(named))
    };
    case.toolkits().iter().filter(|toolkit| usable(toolkit) && fits(toolkit.release())).min_by_key(rank)
}

/// The steps that make torch, and a person typing `nvcc`, use this toolkit.
pub fn use_toolkit(case: &Case<'_>, toolkit: &Toolkit) -> Vec<Fix> {
    let number = case
        .toolkits()
        .iter()
        .filter(|toolkit| usable(toolkit))
        .map(|toolkit| &toolkit.real)
        .collect::<std::collections::BTreeSet<_>>()
        .len();
    let why = if number > 1 { format!("one of {} on this machine", count(number, "toolkit")) } else { String::new() };
    let mut fixes = vec![Fix::set("CUDA_HOME", toolkit.root.0.clone(), why)];
    let on_path = search::which(case.facts, "nvcc").map(|hit| hit.program.real.clone());
    let nvcc = toolkit.nvcc.value();
    let already = nvcc.is_some_and(|nvcc| on_path.as_ref().is_some_and(|real| *real == nvcc.program || *real == nvcc.path));
    // CUDA_HOME is enough for torch and DeepSpeed; PATH matters where it leads to another nvcc. /usr/bin is on every PATH, and putting it in
    // front would reorder everything else.
    if on_path.is_some() && !already && toolkit.layout != Layout::Distribution {
        fixes.push(Fix::prepend("PATH", &toolkit.root.join("bin"), "so that `nvcc` is the same one"));
    }
    fixes
}

/// `ds-doctor overlay create`, where an overlay of this toolkit can be made. What it then cures the finding has to say.
pub fn overlay(toolkit: &Toolkit, title: &str) -> Option<Fix> {
    let linkable = !matches!(toolkit.layout, Layout::Distribution | Layout::Overlay)
        && usable(toolkit)
        && toolkit.nvcc.value().is_some_and(|nvcc| nvcc.kind == NvccKind::Program);
    linkable.then(|| Fix::run(["ds-doctor", "overlay", "create"], title))
}

/// How to get a toolkit of torch's release here. `id` is the finding that it cures.
pub fn install_toolkit(case: &Case<'_>, id: &'static str) -> Vec<Fix> {
    let cuda = case.torch().ok().flatten().and_then(|torch| torch.cuda);
    let Some(cuda) = cuda else {
        return vec![Fix::advice("install the CUDA toolkit of the release that torch will be built for").curing(id)];
    };
    let mut fixes = install(case, Need::Toolkit, &Wanted { cuda: Some(cuda), ..Wanted::default() }, id);
    if case.facts.host.container.is_some() {
        let image =
            format!("start from the devel image of CUDA {cuda} (`nvidia/cuda:{cuda}.…-devel-…`): runtime and base images have no nvcc");
        fixes.insert(0, Fix::advice(image).curing(id));
    }
    if fixes.is_empty() {
        fixes.push(Fix::advice(format!("install NVIDIA's CUDA toolkit {cuda}; the driver need not be touched")).curing(id));
    }
    choices(fixes)
}

/// Each fix an alternative to those before it.
fn choices(fixes: Vec<Fix>) -> Vec<Fix> {
    fixes.into_iter().zip(0..).map(|(fix, choice)| fix.or(choice)).collect()
}

/// The commands that install a thing here, the fitting package manager first: conda's in a conda environment, else the system's.
pub fn install(case: &Case<'_>, need: Need, wanted: &Wanted<'_>, id: &'static str) -> Vec<Fix> {
    let python = case.python().ok().flatten();
    let conda = python.is_some_and(|python| python.kind == EnvironmentKind::Conda);
    let families = [conda.then_some(Family::Conda), system(case)];
    let fixes = families.into_iter().flatten().filter_map(|family| {
        let install = case.know.install(family, need, wanted)?;
        let words = install.command.split_whitespace();
        let title = install.condition.map(|condition| format!("where {condition}")).unwrap_or_default();
        let fix = if family == Family::Conda { Fix::run(words, "into this environment") } else { as_root(case, words, title) };
        Some(fix.curing(id))
    });
    choices(fixes.collect())
}

/// With `sudo` only for somebody who is not root.
pub fn as_root<'w>(case: &Case<'_>, words: impl IntoIterator<Item = &'w str>, title: impl Into<String>) -> Fix {
    if case.facts.host.root.value() == Some(&true) { Fix::run(words, title) } else { Fix::run_as_root(words, title) }
}

/// `python -m pip install …` of the interpreter that is judged; with uv where the environment has no pip.
pub fn pip_install<S: Into<String>>(case: &Case<'_>, packages: impl IntoIterator<Item = S>, title: impl Into<String>) -> Fix {
    let python = case.python().ok().flatten();
    let named = python.filter(|python| !is_assumed(&python.path));
    let path = named.map_or("python3".to_owned(), |python| python.path.to_string());
    let without_pip = python.is_some_and(|python| !python.packages.is_empty() && python.package("pip").is_none());
    let start: Vec<String> = if without_pip && search::which(case.facts, "uv").is_some() {
        ["uv", "pip", "install", "--python", &path].map(ToOwned::to_owned).into()
    } else {
        [&path, "-m", "pip", "install"].map(ToOwned::to_owned).into()
    };
    Fix::run(start.into_iter().chain(packages.into_iter().map(Into::into)), title)
}

/// Parts of NVIDIA's compiler or libraries as Python packages of one release. `parts` are extras of its package `cuda-toolkit`, whose
/// every release pins them (PyPI's metadata of 13.0.2); the copy that is installed stays what it is, since torch pins it.
///
/// What `pip install --target` filled takes no more: pip leaves the folder `nvidia` alone or, with `--upgrade`, replaces all of it.
pub fn pip_toolkit(case: &Case<'_>, toolkit: &Toolkit, release: impl Display, parts: &[&str], cures: ProblemId) -> Fix {
    let python = case.python().ok().flatten();
    let installed = python.and_then(|python| python.package("cuda-toolkit"));
    let version = installed.map_or_else(|| format!("{release}.*"), |package| package.version.to_string());
    let wanted = format!("cuda-toolkit[{}]=={version}", parts.join(","));
    let imported = |source: &Source| matches!(source, Source::Pip { site } if python.is_some_and(|python| python.site.contains(site)));
    if toolkit.sources.iter().any(imported) {
        return pip_install(case, [wanted], "all parts of one release").curing(cures);
    }
    let path = python.map_or("python3".to_owned(), |python| python.path.to_string());
    Fix::advice(format!(
        "`{}` is not in the environment of `{path}`: have all of it there (`{path} -m pip install 'cuda-toolkit[nvcc,crt,nvvm,cudart,cccl,cublas,cusparse,cusolver,curand]=={version}'`) and set CUDA_HOME to its `nvidia/cu13`, or make that folder anew with all packages in one command, since `pip install --target` adds nothing to a folder that is there",
        toolkit.root
    ))
}

/// Who installs packages on this system.
pub fn system(case: &Case<'_>) -> Option<Family> {
    let os = case.facts.host.os.value()?;
    case.know.family(&os.id, os.id_like.iter().map(String::as_str))
}
