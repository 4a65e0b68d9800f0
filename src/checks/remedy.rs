//! Cures that several checks share: which toolkit to take instead, how to switch to it, how to install what is missing.

use super::Case;
use crate::facts::python::EnvironmentKind;
use crate::facts::toolkit::{Layout, NvccKind, Toolkit};
use crate::finding::Fix;
use crate::model::search;
use crate::text::count;
use crate::version::CudaVersion;
use std::cmp::Reverse;

/// A toolkit that could be built with: an nvcc that is one, and no part of it missing.
pub fn usable(toolkit: &Toolkit) -> bool {
    let nvcc = toolkit.nvcc.value();
    let works = nvcc.is_some_and(|nvcc| match &nvcc.kind {
        NvccKind::Program | NvccKind::DistributionScript => true,
        NvccKind::Wrapper { found, .. } => *found,
        NvccKind::Broken { .. } => false,
    });
    works && toolkit.parts.iter().all(|part| part.path.is_some())
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
            Layout::Nvidia => 0,
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
    let number = case.toolkits().iter().map(|toolkit| &toolkit.real).collect::<std::collections::BTreeSet<_>>().len();
    let why = if number > 1 { format!("one of {} on this machine", count(number, "toolkit")) } else { String::new() };
    let mut fixes = vec![Fix::set("CUDA_HOME", toolkit.root.0.clone(), why)];
    let on_path = search::which(case.facts, "nvcc").map(|hit| hit.program.real.clone());
    let nvcc = toolkit.nvcc.value();
    let already = nvcc.is_some_and(|nvcc| on_path.as_ref().is_some_and(|real| *real == nvcc.program || *real == nvcc.path));
    // /usr/bin is on every PATH, and putting it in front would reorder everything else.
    if !already && toolkit.layout != Layout::Distribution {
        fixes.push(Fix::prepend("PATH", &toolkit.root.join("bin"), "so that `nvcc` is the same one"));
    }
    fixes
}

/// How to get a toolkit of torch's release here. `id` is the finding that it cures.
pub fn install_toolkit(case: &Case<'_>, id: &'static str) -> Vec<Fix> {
    let cuda = case.torch().ok().flatten().and_then(|torch| torch.cuda);
    let Some(cuda) = cuda else {
        return vec![Fix::advice("install the CUDA toolkit of the release that torch will be built for").curing(id)];
    };
    let mut fixes = Vec::new();
    let conda = case.python().ok().flatten().is_some_and(|python| python.kind == EnvironmentKind::Conda);
    if conda {
        let (channel, package) = if cuda.major >= 12 {
            ("conda-forge".to_owned(), format!("cuda-toolkit={cuda}"))
        } else {
            (format!("nvidia/label/cuda-{cuda}.0"), "cuda-toolkit".to_owned())
        };
        fixes.push(Fix::run(["conda", "install", "-y", "-c", &channel, &package], "into this environment").curing(id));
    }
    if case.facts.host.container.is_some() {
        let image =
            format!("start from the devel image of CUDA {cuda} (`nvidia/cuda:{cuda}…-devel-…`); runtime and base images have no nvcc");
        let advice = Fix::advice(image).curing(id);
        fixes.push(if fixes.is_empty() { advice } else { advice.or(1) });
    }
    let package = format!("cuda-toolkit-{}-{}", cuda.major, cuda.minor);
    let system = match family(case) {
        Some("debian") => Fix::run_as_root(["apt-get", "install", "-y", &package], "from NVIDIA's repository for this system"),
        Some("fedora") => Fix::run_as_root(["dnf", "install", "-y", &package], "from NVIDIA's repository for this system"),
        Some("suse") => Fix::run_as_root(["zypper", "install", "-y", &package], "from NVIDIA's repository for this system"),
        _ => Fix::advice(format!("install NVIDIA's CUDA toolkit {cuda}; the driver need not be touched")),
    };
    let next = u8::try_from(fixes.len()).unwrap_or(u8::MAX);
    fixes.push(system.curing(id).or(next));
    fixes
}

/// The distribution's family by its packages: `debian`, `fedora`, `suse`, `arch`, `alpine`.
pub fn family(case: &Case<'_>) -> Option<&'static str> {
    let os = case.facts.host.os.value()?;
    let like = |name: &str| os.id == name || os.id_like.iter().any(|id| id == name);
    let families: [(&str, &[&str]); 5] = [
        ("debian", &["debian", "ubuntu"]),
        ("fedora", &["fedora", "rhel", "centos", "rocky", "almalinux", "amzn", "ol"]),
        ("suse", &["suse", "opensuse", "sles"]),
        ("arch", &["arch"]),
        ("alpine", &["alpine"]),
    ];
    families.into_iter().find(|(_, names)| names.iter().any(|name| like(name))).map(|(family, _)| family)
}
