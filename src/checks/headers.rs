//! The headers that torch's own headers include, where the compilers look for them.

use super::link::{INCLUDE_VARIABLES, in_variable};
use super::remedy::{as_root, best_toolkit, install_toolkit, overlay, pip_toolkit, system, use_toolkit};
use super::toolkit::picked;
use super::{Case, Check, Judgement, Verdict};
use crate::facts::raw::HostPath;
use crate::facts::toolkit::{Layout, Toolkit};
use crate::finding::{Evidence, Finding, Fix};
use crate::knowledge::schema::host::Family;
use crate::model::overlay as model;
use crate::text::join;
use crate::version::CudaVersion;

pub const CHECKS: &[Check] = &[Check { id: "missing-cuda-headers", run: headers }];

/// What every `.cu` file that includes `ATen/cuda/CUDAContext.h` needs. Source: the include chains of torch 2.5 and 2.15.
const CORE: &[&str] = &[
    "cuda.h",
    "cuda_runtime.h",
    "cuda_runtime_api.h",
    "cuda_fp16.h",
    "cuda_bf16.h",
    "cublas_v2.h",
    "cublasLt.h",
    "cusparse.h",
    "cusolverDn.h",
    "cusolver_common.h",
];

/// CUDA 10 has no such header, and torch for it asks for none.
const BF16_SINCE: CudaVersion = CudaVersion::new(11, 0);

/// `cuda_fp16.h` includes it from here on, and it is a part of its own (CCCL).
const NV_TARGET_SINCE: CudaVersion = CudaVersion::new(12, 0);

fn reachable(toolkit: &Toolkit, header: &str) -> bool {
    toolkit
        .includes
        .iter()
        .any(|folder| (folder.searched_by_torch || folder.searched_by_nvcc) && folder.headers.iter().any(|name| name == header))
}

/// A folder of this toolkit that has the header and that nothing searches.
fn hidden_in<'a>(toolkit: &'a Toolkit, header: &str) -> Option<&'a HostPath> {
    toolkit
        .includes
        .iter()
        .find(|folder| !folder.searched_by_torch && !folder.searched_by_nvcc && folder.headers.iter().any(|name| name == header))
        .map(|folder| &folder.path)
}

fn headers(case: &Case<'_>) -> Judgement {
    let toolkit = match picked(case)? {
        Ok(toolkit) => toolkit,
        Err(verdict) => return Ok(verdict),
    };
    let Some(torch) = case.torch()? else { return Ok(Verdict::not_applicable("no torch")) };
    if torch.cuda.is_none() {
        return Ok(Verdict::not_applicable("this torch is not built for CUDA"));
    }
    if toolkit.nvcc.get("nvcc")?.is_none() {
        return Ok(Verdict::not_applicable("no nvcc in the toolkit"));
    }
    let before_bf16 = toolkit.release().is_some_and(|release| release < BF16_SINCE);
    let core = CORE.iter().copied().filter(|header| !(before_bf16 && *header == "cuda_bf16.h"));
    let target = toolkit.release().is_some_and(|release| release >= NV_TARGET_SINCE).then_some("nv/target");
    let missing: Vec<&str> = core.chain(target).filter(|header| !reachable(toolkit, header) && !found_by_variable(case, header)).collect();
    let Some(first) = missing.first() else { return Ok(Verdict::Pass) };
    let names: Vec<String> = missing.iter().map(|name| format!("`{name}`")).collect();
    let include = toolkit.root.join("include");
    let mut finding = Finding::error(
        "missing-cuda-headers",
        format!("the toolkit in `{}` lacks {}, which torch's headers include", toolkit.root, join(&names)),
    )
    .about(toolkit.root.to_string())
    .seen(Evidence::new("looked for", names.len().to_string() + if names.len() == 1 { " header" } else { " headers" }).at(&include))
    .then(format!("every op that includes `ATen/cuda/CUDAContext.h` stops with `fatal error: {first}: No such file or directory`"));
    if let Some(folder) = hidden_in(toolkit, first) {
        finding = finding.seen(Evidence::new(*first, "in a folder that is not searched").at(folder)).fix(Fix::prepend(
            "CPATH",
            folder,
            "the compilers search it",
        ));
        return Ok(Verdict::found(finding));
    }
    let whole =
        best_toolkit(case, true).filter(|other| other.real != toolkit.real && missing.iter().all(|header| reachable(other, header)));
    let linked = overlay(
        toolkit,
        "a CUDA_HOME of links to this toolkit and to the headers of torch's own NVIDIA packages, which are of its release",
    )
    .filter(|_| missing.iter().all(|header| package_has_header(case, toolkit, header)))
    .map(|fix| fix.curing_of("missing-cuda-headers", toolkit.root.to_string()));
    let first = u8::from(linked.is_some());
    let fixes: Vec<Fix> = match (whole, linked) {
        (Some(other), linked) => use_toolkit(case, other).into_iter().chain(linked.map(|fix| fix.or(1))).collect(),
        (None, linked) => {
            let others = packages(case, toolkit, &missing).into_iter().map(|fix| Fix { choice: fix.choice + first, ..fix });
            linked.into_iter().chain(others).collect()
        }
    };
    Ok(Verdict::found(fixes.into_iter().fold(finding, Finding::fix)))
}

/// Whether an overlay would have the header, from the packages of the chosen Python.
fn package_has_header(case: &Case<'_>, toolkit: &Toolkit, header: &str) -> bool {
    let package = package_of(header).map(|package| package.pip);
    case.python().ok().flatten().is_some_and(|python| model::has_header(case.facts, python, toolkit, header, package))
}

/// A folder of CPATH that belongs to some toolkit and has the header.
fn found_by_variable(case: &Case<'_>, header: &str) -> bool {
    case.toolkits()
        .iter()
        .flat_map(|toolkit| &toolkit.includes)
        .any(|folder| folder.headers.iter().any(|name| name == header) && in_variable(case, INCLUDE_VARIABLES, |entry| folder.is(entry)))
}

/// The packages that hold a part of a toolkit, by the start of its header's name.
pub struct Package {
    stem: &'static str,
    /// The extra of NVIDIA's Python package `cuda-toolkit` that brings it, from CUDA 13 on.
    part: &'static str,
    /// NVIDIA's own Python package of it.
    pip: &'static str,
    /// In NVIDIA's deb and rpm repositories and on conda.
    pub dev: &'static str,
}

const PACKAGES: &[Package] = &[
    Package { stem: "cublas", part: "cublas", pip: "nvidia-cublas", dev: "libcublas-dev" },
    Package { stem: "cusparse", part: "cusparse", pip: "nvidia-cusparse", dev: "libcusparse-dev" },
    Package { stem: "cusolver", part: "cusolver", pip: "nvidia-cusolver", dev: "libcusolver-dev" },
    Package { stem: "curand", part: "curand", pip: "nvidia-curand", dev: "libcurand-dev" },
    Package { stem: "cuda_profiler_api", part: "profiler", pip: "nvidia-cuda-profiler-api", dev: "cuda-profiler-api" },
    Package { stem: "nv/target", part: "cccl", pip: "nvidia-cuda-cccl", dev: "cuda-cccl" },
    Package { stem: "cuda", part: "cudart", pip: "nvidia-cuda-runtime", dev: "cuda-cudart-dev" },
];

pub fn package_of(header: &str) -> Option<&'static Package> {
    PACKAGES.iter().find(|package| header.starts_with(package.stem))
}

pub(super) fn packages(case: &Case<'_>, toolkit: &Toolkit, missing: &[&str]) -> Vec<Fix> {
    const ID: &str = "missing-cuda-headers";
    let Some(release) = toolkit.release() else { return install_toolkit(case, ID) };
    let rows: Vec<&Package> = PACKAGES
        .iter()
        .filter(|row| missing.iter().filter_map(|header| package_of(header)).any(|package| package.stem == row.stem))
        .collect();
    match toolkit.layout {
        Layout::Pip => {
            let parts: Vec<&str> = rows.iter().map(|row| row.part).collect();
            vec![pip_toolkit(case, toolkit, release, &parts, ID)]
        }
        Layout::Conda => {
            let names = rows.iter().map(|row| row.dev.to_owned());
            let argv = ["conda", "install", "-y", "-c", "conda-forge"]
                .map(ToOwned::to_owned)
                .into_iter()
                .chain(names)
                .chain([format!("cuda-version={release}")]);
            vec![Fix::run(argv, "into this environment").curing(ID)]
        }
        _ if system(case) == Some(Family::Debian) && toolkit.layout == Layout::Nvidia => {
            let names = rows.iter().map(|row| format!("{}-{}-{}", row.dev, release.major, release.minor));
            let argv = ["apt-get", "install", "-y"].map(ToOwned::to_owned).into_iter().chain(names);
            {
                let argv: Vec<String> = argv.collect();
                vec![as_root(case, argv.iter().map(String::as_str), "from NVIDIA's repository").curing(ID)]
            }
        }
        _ => install_toolkit(case, ID),
    }
}
