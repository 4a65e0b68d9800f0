//! Libraries that builds need from the toolkit, where the linker looks for them.

use super::headers::package_of;
use super::remedy::{as_root, overlay, system};
use super::toolkit::picked;
use super::{Case, Check, Judgement, Verdict};
use crate::facts::toolkit::{Layout, LibFolder, LibFolderKind, Toolkit};
use crate::finding::{Evidence, Finding, Fix, Severity};
use crate::knowledge::schema::host::Family;
use crate::model::overlay as model;
use crate::text::join;
use std::path::Path;

pub const CHECKS: &[Check] = &[
    Check { id: "conda-targets-layout", run: targets_layout },
    Check { id: "linker-cannot-find-cuda-lib", run: libraries },
    Check { id: "libcuda-not-found-at-link", run: libcuda },
];

pub fn in_variable(case: &Case<'_>, names: &[&str], is: impl Fn(&Path) -> bool) -> bool {
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
        let name = format!("lib{library}.so");
        if let Some(folder) = toolkit.libs.iter().find(|folder| folder.broken.contains(&name)) {
            finding = finding.seen(Evidence::new("of no use", format!("{name}, which is empty or a link to nothing")).at(&folder.path));
        }
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
    let package = package_of(if library == "cudart" { "cuda" } else { library })?.dev;
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
