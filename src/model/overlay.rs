//! What an overlay of links would be made from: NVIDIA's Python packages that hold what a toolkit lacks, a gcc that its nvcc takes, the
//! driver's library.

use super::build::BuildPath;
use super::cuda_home::cuda_home;
use super::host_compiler::{ChosenBy, nvcc_host};
use super::search;
use crate::facts::compiler::{Compiler, Family, Language};
use crate::facts::python::Interpreter;
use crate::facts::raw::HostPath;
use crate::facts::snapshot::Snapshot;
use crate::facts::source::Source;
use crate::facts::toolkit::{Layout, LibFolder, LibFolderKind, Toolkit};
use crate::facts::torch::Torch;
use crate::knowledge::Knowledge;
use crate::version::Dotted;
use std::path::Path;

/// Folders of NVIDIA's packages (`nvidia/cu13`, `nvidia/cuda_runtime`) that this Python imports, of the toolkit's very release, and that
/// are not the toolkit itself.
pub fn packages<'a>(facts: &'a Snapshot, python: &Interpreter, toolkit: &Toolkit) -> Vec<&'a Toolkit> {
    let Some(release) = toolkit.release() else { return Vec::new() };
    let all = facts.toolkits.value().map_or(&[][..], Vec::as_slice);
    let imported =
        |other: &Toolkit| other.sources.iter().any(|source| matches!(source, Source::Pip { site } if python.site.contains(site)));
    all.iter()
        .filter(|other| other.layout == Layout::Pip && other.real != toolkit.real && other.release() == Some(release) && imported(other))
        .collect()
}

/// Whether the packages have the header: by the folder that was looked at (CUDA 13), else, before CUDA 13, by the name of the package that
/// brings it (`nvidia-cublas`).
pub fn has_header(facts: &Snapshot, python: &Interpreter, toolkit: &Toolkit, header: &str, package: Option<&str>) -> bool {
    let all = packages(facts, python, toolkit);
    // The folders that compilers search anyway are listed with every toolkit.
    let own = |package: &&Toolkit| package.includes.iter().find(|folder| folder.is(&package.root.join("include"))).cloned();
    let seen = all.iter().filter_map(own).any(|folder| folder.headers.iter().any(|name| name == header));
    let major = toolkit.release().map(|release| release.major).filter(|major| *major < 13);
    let named = package.zip(major).is_some_and(|(package, major)| python.package(&format!("{package}-cu{major}")).is_some());
    seen || (!all.is_empty() && named)
}

/// Whether an overlay would have `lib{library}.so`: under that name or with a version, in the toolkit or in packages.
pub fn has_library(facts: &Snapshot, python: Option<&Interpreter>, toolkit: &Toolkit, library: &str) -> bool {
    let start = format!("lib{library}.so");
    let is = |name: &str| name.strip_prefix(&start).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'));
    let own = |folder: &&LibFolder| !matches!(folder.kind, LibFolderKind::Stubs | LibFolderKind::Distribution);
    if toolkit.libs.iter().filter(own).flat_map(|folder| &folder.files).any(|name| is(name)) {
        return true;
    }
    let packages = python.map(|python| packages(facts, python, toolkit)).unwrap_or_default();
    let libraries = facts.loader.value().map_or(&[][..], |loader| loader.libraries.as_slice());
    packages.iter().any(|package| {
        let beside = package.real.parent().filter(|folder| folder.ends_with("nvidia"));
        package.libs.iter().filter(own).flat_map(|folder| &folder.files).any(|name| is(name))
            || beside.is_some_and(|nvidia| libraries.iter().any(|known| is(&known.name) && known.real.starts_with(nvidia)))
    })
}

/// The newest g++ of a major from `least` to `most` that can compile and has its gcc beside it, by a name that is not below the folder.
pub fn newest_gcc<'a>(facts: &'a Snapshot, least: u32, most: u32, not_below: &Path) -> Option<(&'a Compiler, HostPath, HostPath)> {
    let all = facts.compilers.value().map_or(&[][..], Vec::as_slice);
    let fits = |version: &Dotted| (least..=most).contains(&version.major());
    all.iter()
        .filter(|compiler| compiler.family == Family::Gcc && compiler.language == Language::Cxx && compiler.cc1plus != Some(false))
        .filter(|compiler| compiler.version.as_ref().is_some_and(fits))
        .filter_map(|compiler| {
            let names = compiler.paths.iter().chain([&compiler.real]).filter(|path| !path.starts_with(not_below));
            let beside = |gxx: &HostPath| Some((sibling(gxx).filter(|gcc| search::program_at(facts, gcc).is_some())?, gxx.clone()));
            let (gcc, gxx) = names.into_iter().find_map(beside)?;
            Some((compiler, gcc, gxx))
        })
        .max_by(|a, b| a.0.version.cmp(&b.0.version))
}

/// `/usr/bin/gcc-12` for `/usr/bin/g++-12`.
pub fn sibling(gxx: &Path) -> Option<HostPath> {
    let name = gxx.file_name()?.to_str()?;
    name.contains("g++").then(|| HostPath::new(gxx.with_file_name(name.replacen("g++", "gcc", 1))))
}

/// The driver's `libcuda.so.1`, which can stand for the stub when linking.
pub fn driver(facts: &Snapshot) -> Option<&HostPath> {
    let loader = facts.loader.value()?;
    let of_driver = |source: &Source| matches!(source, Source::LdCache | Source::DefaultFolder);
    loader.of("cuda").find(|library| library.name == "libcuda.so.1" && library.sources.iter().any(of_driver)).map(|library| &library.path)
}

/// Which gcc nvcc is to run from an overlay.
#[derive(Debug, Clone, PartialEq)]
pub enum Gcc {
    /// What it finds by itself will do.
    Fine(Dotted),
    /// What it finds will not do, or lies in the toolkit's `bin`: this one is put where only nvcc looks.
    Taken { gcc: HostPath, gxx: HostPath, version: Option<Dotted>, why: String },
    /// What it finds will not do, and there is no other.
    None { why: String },
    /// Not known what it finds: a launcher, another compiler.
    Unknown,
}

/// The gcc for a toolkit's nvcc where no variable names one. `not_below`: a folder whose links are not to be linked to.
pub fn gcc(facts: &Snapshot, know: &Knowledge, torch: Option<&Torch>, toolkit: &Toolkit, not_below: &Path) -> Gcc {
    let mut plain = facts.clone();
    for name in ["CC", "NVCC_CCBIN", "NVCC_PREPEND_FLAGS", "NVCC_APPEND_FLAGS"] {
        plain.env.unset(name);
    }
    plain.env.set("CUDA_HOME", toolkit.root.0.clone());
    let table = || know.max_gcc(toolkit.nvcc.value()?.version.as_ref()?);
    let Some(most) = toolkit.host_limits.value().and_then(|limits| limits.gcc_max).or_else(table) else { return Gcc::Unknown };
    let least = torch.and_then(|torch| know.torch_headers(&torch.version)).and_then(|row| row.min_gcc).unwrap_or(0);
    let home = cuda_home(&plain, know, None);
    let Some(found) = nvcc_host(&plain, know, &home, BuildPath::Jit) else { return Gcc::Unknown };
    let version = found.compiler.filter(|compiler| compiler.family == Family::Gcc).and_then(|compiler| compiler.version.clone());
    let why = match (&version, found.found) {
        (Some(version), _) if (least..=most).contains(&version.major()) => {
            let own = found.program.filter(|_| found.by == ChosenBy::ToolkitBin);
            let beside = own.and_then(|program| Some((program.path.clone(), gxx_beside(&plain, &program.path)?)));
            return match beside {
                Some((gcc, gxx)) => {
                    let why = "it lies in the toolkit's `bin`, where it would hide the shell's own from everybody".to_owned();
                    Gcc::Taken { gcc, gxx, version: Some(version.clone()), why }
                }
                None => Gcc::Fine(version.clone()),
            };
        }
        (Some(version), _) if version.major() > most => format!("nvcc takes gcc {most} at most, and would run gcc {version}"),
        (Some(version), _) => format!("torch's headers need gcc {least}, and nvcc would run gcc {version}"),
        (None, Some(false)) => "nvcc finds no `gcc`".to_owned(),
        (None, _) => return Gcc::Unknown,
    };
    match newest_gcc(facts, least, most, not_below) {
        Some((compiler, gcc, gxx)) => Gcc::Taken { gcc, gxx, version: compiler.version.clone(), why },
        None => Gcc::None { why },
    }
}

fn gxx_beside(facts: &Snapshot, gcc: &Path) -> Option<HostPath> {
    let name = gcc.file_name()?.to_str()?;
    let gxx = HostPath::new(gcc.with_file_name(name.replacen("gcc", "g++", 1)));
    search::program_at(facts, &gxx).is_some().then_some(gxx)
}

/// Folders beside `nvidia/cu13` whose packages are not part of it.
pub const BESIDE_WHOLE: &[&str] = &["cudnn", "cusparselt", "nccl"];

/// Folders below `nvidia` of the packages of CUDA 11 and 12, of which each holds one part.
pub const COMPONENTS: &[&str] = &[
    "cublas",
    "cuda_cccl",
    "cuda_cupti",
    "cuda_nvrtc",
    "cuda_profiler_api",
    "cuda_runtime",
    "cudnn",
    "cufft",
    "cufile",
    "curand",
    "cusolver",
    "cusparse",
    "cusparselt",
    "nccl",
    "nvjitlink",
    "nvtx",
];
