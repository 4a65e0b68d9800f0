//! The exact release of a library, from the first of its name, the package it came with, and its own code.

use crate::binary::cudart::{CudartRelease, cudart_release};
use crate::binary::driver::release_in_strings;
use crate::binary::nccl::nccl_release;
use crate::binary::read::ReadAt;
use crate::facts::loader::FAMILIES;
use crate::facts::python::{Interpreter, Package};
use crate::host::{Host, Meta};
use crate::version::Dotted;
use std::path::Path;

/// NVIDIA's packages on PyPI, without the `-cu12` that most have at the end.
const PACKAGES: &[(&str, &str)] = &[
    ("cudart", "nvidia-cuda-runtime"),
    ("cublas", "nvidia-cublas"),
    ("cublasLt", "nvidia-cublas"),
    ("cudnn", "nvidia-cudnn"),
    ("cufft", "nvidia-cufft"),
    ("cufile", "nvidia-cufile"),
    ("cupti", "nvidia-cuda-cupti"),
    ("curand", "nvidia-curand"),
    ("cusolver", "nvidia-cusolver"),
    ("cusparse", "nvidia-cusparse"),
    ("nccl", "nvidia-nccl"),
    ("nvjitlink", "nvidia-nvjitlink"),
    ("nvrtc", "nvidia-cuda-nvrtc"),
    ("nvtx", "nvidia-nvtx"),
];

/// The release and what tells it: `file name`, `package`, `code`. `file` is given where it is ELF.
pub fn of(
    host: &dyn Host,
    pythons: &[Interpreter],
    family: &str,
    real: &Path,
    meta: &Meta,
    file: Option<&dyn ReadAt>,
) -> (Option<Dotted>, &'static str) {
    if let Some(version) = in_name(family, real) {
        return (Some(version), "file name");
    }
    if let Some(version) = of_package(host, pythons, family, real, meta) {
        return (Some(version), "package");
    }
    let told = file.and_then(|file| in_code(family, file));
    if told.is_some() { (told, "code") } else { (None, "") }
}

/// Three numbers or more: two are a SONAME (`libcudart.so.11.0`, WSL's `libcuda.so.1.1`).
fn in_name(family: &str, real: &Path) -> Option<Dotted> {
    let (_, start) = FAMILIES.iter().find(|(name, _)| *name == family)?;
    let version: Dotted = real.file_name()?.to_str()?.strip_prefix(start)?.strip_prefix('.')?.parse().ok()?;
    // A driver's release has two where it has no patch: `libcuda.so.550.54`.
    let enough = if matches!(family, "cuda" | "nvidia-ml") && version.major() > 99 { 2 } else { 3 };
    (version.parts.len() >= enough).then_some(version)
}

fn of_package(host: &dyn Host, pythons: &[Interpreter], family: &str, real: &Path, meta: &Meta) -> Option<Dotted> {
    let (_, stem) = PACKAGES.iter().find(|(name, _)| *name == family)?;
    let folder = real.parent()?;
    let is_nvidia = folder.ends_with("lib") && folder.parent()?.parent()?.ends_with("nvidia");
    let site = is_nvidia.then(|| folder.parent()?.parent()?.parent())??;
    // `nvidia/cu13` is shared by the packages of CUDA 13; before, each had a folder of its own.
    let joint = folder.parent()?.file_name()?.to_str()?.strip_prefix("cu").filter(|number| number.bytes().all(|b| b.is_ascii_digit()));
    let fits = |package: &&Package| {
        let Some(suffix) = package.name.strip_prefix(stem) else { return false };
        match (suffix.strip_prefix("-cu"), joint) {
            (Some(number), Some(joint)) => number == joint,
            (Some(number), None) => number.bytes().all(|b| b.is_ascii_digit()),
            (None, joint) => suffix.is_empty() && joint.is_some(),
        }
    };
    let mut own: Vec<&Package> = Vec::new();
    for python in pythons {
        let same_site = |package: &&Package| *package.site == *site || host.real_path(&package.site).is_ok_and(|real| real == site);
        for package in python.packages.iter().filter(fits).filter(same_site) {
            if !own.iter().any(|known| known.name == package.name && known.version.text == package.version.text) {
                own.push(package);
            }
        }
    }
    match own.as_slice() {
        [] => None,
        [one] => Some(one.version.clone()),
        // The wheels for CUDA 12 and 13 write over each other; the one whose list has this size wrote last.
        several => {
            let mut fitting = several.iter().filter(|package| lists(host, package, real, site, meta.len));
            let first = fitting.next()?;
            fitting.next().is_none().then(|| first.version.clone())
        }
    }
}

/// Whether the package's RECORD names the file with this size.
fn lists(host: &dyn Host, package: &Package, real: &Path, site: &Path, size: u64) -> bool {
    let folder = site.join(format!("{}-{}.dist-info", package.name.replace('-', "_"), package.version));
    let Ok(text) = host.read_text(&folder.join("RECORD")) else { return false };
    let Ok(name) = real.strip_prefix(site) else { return false };
    let line = text.lines().find_map(|line| line.strip_prefix(name.to_str()?)?.strip_prefix(','));
    line.and_then(|line| line.rsplit(',').next()?.trim().parse::<u64>().ok()) == Some(size)
}

fn in_code(family: &str, file: &dyn ReadAt) -> Option<Dotted> {
    match family {
        "cudart" => match cudart_release(file).ok()?? {
            CudartRelease::Exact(version) => version.to_string().parse().ok(),
            CudartRelease::AtLeast(_) => None,
        },
        "nccl" => Some(nccl_release(file).ok()??.version),
        "cuda" | "nvidia-ml" => release_in_strings(file).ok()?,
        _ => None,
    }
}
