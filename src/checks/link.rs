//! Headers and libraries that builds need from the toolkit, where builds look for them.

use super::remedy::{as_root, best_toolkit, install_toolkit, overlay, pip_toolkit, system, use_toolkit};
use super::toolkit::picked;
use super::{Case, Check, Judgement, Verdict};
use crate::facts::raw::HostPath;
use crate::facts::toolkit::{Layout, LibFolder, LibFolderKind, Toolkit};
use crate::finding::{Evidence, Finding, Fix, Severity};
use crate::knowledge::schema::host::Family;
use crate::model::overlay as model;
use crate::text::join;
use crate::version::CudaVersion;
use std::path::Path;

pub const CHECKS: &[Check] = &[
    Check { id: "conda-targets-layout", run: targets_layout },
    Check { id: "missing-cuda-headers", run: headers },
    Check { id: "linker-cannot-find-cuda-lib", run: libraries },
    Check { id: "libcuda-not-found-at-link", run: libcuda },
];

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

fn in_variable(case: &Case<'_>, names: &[&str], is: impl Fn(&Path) -> bool) -> bool {
    names.iter().any(|name| case.facts.env.entries(name).iter().any(|entry| is(entry)))
}

pub const INCLUDE_VARIABLES: &[&str] = &["CPATH", "CPLUS_INCLUDE_PATH"];

/// conda puts headers and libraries under `targets/<arch>`, where nvcc looks and torch does not.
fn targets_layout(case: &Case<'_>) -> Judgement {
    let toolkit = match picked(case)? {
        Ok(toolkit) => toolkit,
        Err(verdict) => return Ok(verdict),
    };
    let torch_sees =
        |header: &str| toolkit.includes.iter().any(|folder| folder.searched_by_torch && folder.headers.iter().any(|name| name == header));
    let include = toolkit.includes.iter().find(|folder| {
        !folder.searched_by_torch
            && folder.path.to_string().contains("/targets/")
            && folder.headers.iter().any(|name| name == "cuda_runtime_api.h")
    });
    let lib = toolkit.libs.iter().find(|folder| folder.kind == LibFolderKind::Targets && has(folder, "cudart"));
    let include =
        include.filter(|folder| !torch_sees("cuda_runtime_api.h") && !in_variable(case, INCLUDE_VARIABLES, |entry| folder.is(entry)));
    let lib =
        lib.filter(|folder| !linker_finds(case, toolkit, "cudart") && !in_variable(case, &["LIBRARY_PATH"], |entry| folder.is(entry)));
    let (what, then) = match (&include, &lib) {
        (None, None) => return Ok(Verdict::Pass),
        (Some(_), Some(_)) => (
            "headers and libraries",
            "the host compiler stops with `cuda_runtime_api.h: No such file or directory`, the linker with `cannot find -lcudart`",
        ),
        (Some(_), None) => ("headers", "the host compiler stops with `fatal error: cuda_runtime_api.h: No such file or directory`"),
        (None, Some(_)) => ("libraries", "the link stops with `cannot find -lcudart`"),
    };
    let mut finding = Finding::error(
        "conda-targets-layout",
        format!("the toolkit in `{}` has its {what} under `targets`, where torch does not look", toolkit.root),
    )
    .about(toolkit.root.to_string())
    .then(then);
    if let Some(folder) = include {
        finding = finding.seen(Evidence::new("headers", "cuda_runtime_api.h").at(&folder.path)).fix(Fix::prepend(
            "CPATH",
            &folder.path,
            "the compilers search it",
        ));
    }
    if let Some(folder) = lib {
        finding = finding.seen(Evidence::new("libraries", "libcudart.so").at(&folder.path)).fix(Fix::prepend(
            "LIBRARY_PATH",
            &folder.path,
            "the linker searches it",
        ));
    }
    let overlay = overlay(toolkit, "the same without variables for compilers: a CUDA_HOME of links");
    let overlay = overlay.map(|fix| fix.or(1).curing_of("conda-targets-layout", toolkit.root.to_string()));
    Ok(Verdict::found(overlay.into_iter().fold(finding, Finding::fix)))
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

/// The packages that hold what is missing, by the start of the header's name.
struct Package {
    stem: &'static str,
    /// The extra of NVIDIA's Python package `cuda-toolkit` that brings it, from CUDA 13 on.
    part: &'static str,
    /// NVIDIA's own Python package of it.
    pip: &'static str,
    /// In NVIDIA's deb and rpm repositories and on conda.
    dev: &'static str,
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

fn package_of(header: &str) -> Option<&'static Package> {
    PACKAGES.iter().find(|package| header.starts_with(package.stem))
}

fn packages(case: &Case<'_>, toolkit: &Toolkit, missing: &[&str]) -> Vec<Fix> {
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

fn has(folder: &LibFolder, library: &str) -> bool {
    let name = format!("lib{library}.so");
    folder.files.contains(&name)
}

/// A static library serves `-lNAME` too.
fn serves(folder: &LibFolder, library: &str) -> bool {
    has(folder, library) || folder.files.contains(&format!("lib{library}.a"))
}

/// Whether `-lNAME` is found: the folder that torch passes, LIBRARY_PATH, the compiler's own folders.
fn linker_finds(case: &Case<'_>, toolkit: &Toolkit, library: &str) -> bool {
    let name = format!("lib{library}.so");
    let passed = toolkit.torch_lib().is_some_and(|folder| serves(folder, library));
    let default = toolkit.libs.iter().any(|folder| folder.kind == LibFolderKind::Distribution && serves(folder, library));
    let named = case.facts.env.entries("LIBRARY_PATH");
    let loader = case.facts.loader.value();
    let known = |folder: &Path| {
        let of_toolkit = case.toolkits().iter().flat_map(|toolkit| &toolkit.libs).any(|lib| lib.is(folder) && serves(lib, library));
        of_toolkit || loader.is_some_and(|loader| loader.at(folder, &name).is_some())
    };
    passed
        || default
        || named.iter().any(|folder| known(folder))
        || loader.is_some_and(|loader| loader.default_folders.iter().any(|folder| known(folder)))
}

/// The first of these variables that asks DeepSpeed to pre-build.
fn asked<'n>(case: &Case<'_>, names: &[&'n str]) -> Option<&'n str> {
    names.iter().copied().find(|name| case.facts.env.text(name).is_some_and(|value| value != "0"))
}

/// Libraries that a build links beside libcudart, and for whom. DeepSpeed's host ops linked them until 0.19.7.
fn linked(case: &Case<'_>) -> Vec<(&'static str, Severity, &'static str)> {
    let mut all = vec![("cudart", Severity::Error, "every CUDA extension")];
    let old = case.deepspeed().ok().flatten().is_some_and(|deepspeed| !deepspeed.version.at_least(&[0, 19, 7]));
    if old {
        const OPS: [&str; 4] = ["DS_BUILD_OPS", "DS_BUILD_CPU_ADAM", "DS_BUILD_CPU_ADAGRAD", "DS_BUILD_CPU_LION"];
        let severity = if asked(case, &OPS).is_some() { Severity::Error } else { Severity::Warning };
        all.push(("curand", severity, "DeepSpeed's cpu_adam, cpu_adagrad and cpu_lion (offload)"));
        all.push(("cublas", severity, "DeepSpeed's cpu_adam, cpu_adagrad and cpu_lion (offload)"));
    }
    all
}

fn libraries(case: &Case<'_>) -> Judgement {
    let toolkit = match picked(case)? {
        Ok(toolkit) => toolkit,
        Err(verdict) => return Ok(verdict),
    };
    if toolkit.nvcc.get("nvcc")?.is_none() {
        return Ok(Verdict::not_applicable("no nvcc in the toolkit"));
    }
    case.facts.loader.get("libraries")?;
    let missing: Vec<_> = linked(case).into_iter().filter(|(library, ..)| !linker_finds(case, toolkit, library)).collect();
    let Some((first, severity, who)) = missing.first().copied() else { return Ok(Verdict::Pass) };
    let names: Vec<String> = missing.iter().map(|(library, ..)| format!("`lib{library}.so`")).collect();
    let passed = toolkit.torch_lib().map_or_else(|| toolkit.root.join("lib64"), |folder| folder.path.clone());
    let mut finding = Finding::new(
        "linker-cannot-find-cuda-lib",
        severity,
        format!("the linker finds no {} for the toolkit in `{}`", join(&names), toolkit.root),
    )
    .about(toolkit.root.to_string())
    .seen(Evidence::new("-L", passed.to_string()).said_by("what torch passes"))
    .then(format!("the link of {who} stops with `cannot find -l{first}`; LD_LIBRARY_PATH does not help, LIBRARY_PATH does"));
    let elsewhere = |library: &str| toolkit.libs.iter().find(|folder| folder.kind != LibFolderKind::Stubs && has(folder, library));
    let linked = overlay(toolkit, "a CUDA_HOME of links with the names that the linker looks for")
        .filter(|_| missing.iter().all(|(library, ..)| model::has_library(case.facts, case.python().ok().flatten(), toolkit, library)))
        .map(|fix| fix.curing_of("linker-cannot-find-cuda-lib", toolkit.root.to_string()));
    // Variables alone come first where they do.
    let by_variable = missing.iter().all(|(library, ..)| elsewhere(library).is_some());
    let by_hand = u8::from(linked.is_some() && !by_variable);
    if !by_variable && let Some(fix) = linked.clone() {
        finding = finding.fix(fix);
    }
    for (library, ..) in &missing {
        let versioned = toolkit.libs.iter().filter(|folder| folder.kind != LibFolderKind::Stubs).find_map(|folder| {
            let start = format!("lib{library}.so.");
            folder.files.iter().find(|file| file.starts_with(&start)).map(|file| (folder, file))
        });
        finding = match (elsewhere(library), versioned) {
            (Some(folder), _) => finding
                .seen(Evidence::new("found", format!("lib{library}.so")).at(&folder.path))
                .fix(Fix::prepend("LIBRARY_PATH", &folder.path, "the linker searches it").or(by_hand)),
            (None, Some((folder, file))) => {
                let link = folder.path.join(format!("lib{library}.so"));
                // Only the folder that torch passes is searched by itself.
                let finding = finding.seen(Evidence::new("only", file.clone()).at(&folder.path)).fix(
                    Fix::run(["ln", "-s", file, &link.to_string()], "the name that the linker looks for")
                        .or(by_hand)
                        .curing_of("linker-cannot-find-cuda-lib", toolkit.root.to_string()),
                );
                if folder.path == passed {
                    finding
                } else {
                    finding.fix(Fix::prepend("LIBRARY_PATH", &folder.path, "the linker searches it").or(by_hand))
                }
            }
            (None, None) => match development_package(case, toolkit, library) {
                Some(fix) => finding.fix(fix.or(by_hand)),
                None => finding.fix(Fix::advice(format!("install the development files of {library} for this toolkit")).or(by_hand)),
            },
        };
    }
    if by_variable && let Some(fix) = linked {
        finding = finding.fix(fix.or(1));
    }
    Ok(Verdict::found(finding))
}

fn development_package(case: &Case<'_>, toolkit: &Toolkit, library: &str) -> Option<Fix> {
    let release = toolkit.release()?;
    let stem = if library == "cudart" { "cuda" } else { library };
    let package = PACKAGES.iter().find(|package| package.stem == stem)?.dev;
    let fix = match toolkit.layout {
        Layout::Conda => {
            Fix::run(["conda", "install", "-y", "-c", "conda-forge", package, &format!("cuda-version={release}")], "into this environment")
        }
        Layout::Nvidia if system(case) == Some(Family::Debian) => as_root(
            case,
            ["apt-get", "install", "-y", &format!("{package}-{}-{}", release.major, release.minor)],
            "from NVIDIA's repository",
        ),
        _ => return None,
    };
    Some(fix.curing_of("linker-cannot-find-cuda-lib", toolkit.root.to_string()))
}

/// async_io and gds link `-lcuda`: asked only where one of them is to be built.
fn libcuda(case: &Case<'_>) -> Judgement {
    let toolkit = match picked(case)? {
        Ok(toolkit) => toolkit,
        Err(verdict) => return Ok(verdict),
    };
    if case.deepspeed()?.is_none() {
        return Ok(Verdict::not_applicable("no DeepSpeed"));
    }
    let Some(asked) = asked(case, &["DS_BUILD_OPS", "DS_BUILD_AIO", "DS_BUILD_GDS"]) else {
        return Ok(Verdict::not_applicable("neither async_io nor gds is asked for"));
    };
    case.facts.loader.get("libraries")?;
    if linker_finds(case, toolkit, "cuda") {
        return Ok(Verdict::Pass);
    }
    let mut finding = Finding::error("libcuda-not-found-at-link", "the linker finds no `libcuda.so`, which async_io and gds link")
        .seen(Evidence::new(asked, case.facts.env.text(asked).unwrap_or_default()).said_by("environment"))
        .then("the build stops after minutes with `cannot find -lcuda`");
    finding = match toolkit.stubs().filter(|folder| has(folder, "cuda")) {
        Some(stubs) => finding.seen(Evidence::new("stub", "libcuda.so").at(&stubs.path)).fix(Fix::prepend(
            "LIBRARY_PATH",
            &stubs.path,
            "for linking only; never on LD_LIBRARY_PATH",
        )),
        None => {
            let advice = Fix::advice("install the toolkit's driver stubs (`cuda-driver-dev`) and put their folder on LIBRARY_PATH");
            let driver = model::driver(case.facts);
            match driver.and_then(|driver| Some((driver, overlay(toolkit, "a CUDA_HOME of links, the driver's own library among them")?))) {
                Some((driver, fix)) => finding
                    .seen(Evidence::new("only", "libcuda.so.1").at(driver))
                    .fix(fix.curing("libcuda-not-found-at-link"))
                    .fix(advice.or(1)),
                None => finding.fix(advice),
            }
        }
    };
    Ok(Verdict::found(finding))
}
