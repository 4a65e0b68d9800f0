//! What `is_compatible` of an op answers, and what its build asks for beforehand.

use super::{Decision, NvccFound, Obstacle, Scene, Stage, cutlass};
use crate::facts::observed::Missing;
use crate::facts::ops::{LinkName, OpsFacts};
use crate::knowledge::schema::deepspeed::DeepSpeedTrait;
use crate::knowledge::schema::ops::{CudaGate, Op, OpGate, Platform};
use crate::model::host_compiler::shell_words;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

pub fn gate(scene: &Scene<'_>, op: &Op) -> Decision {
    let mut all = Decision::default();
    let Some(torch) = scene.torch else {
        all.obstacles.push(Obstacle::new("torch-not-found", Stage::Refused, "no torch is installed, and every builder imports it"));
        return all;
    };
    let Some(gate) = scene.know.op_gate(op, &scene.deepspeed.version) else { return all };
    let version = torch.version.semver();
    if let Some(range) = gate.torch.as_ref().filter(|range| !range.contain(&version)) {
        let says = format!("{} takes torch {}, and this one is {}", op.op, range.0, torch.version);
        all.obstacles.push(Obstacle::new("ds-op-incompatible", Stage::Refused, says).seen(
            "torch",
            torch.version.to_string(),
            Some(&torch.path),
            "",
        ));
    }
    if let Some(range) = gate.torch_at_build.as_ref().filter(|range| !range.contain(&version)) {
        let says =
            format!("{}'s builder dies of a `ValueError` with a torch outside {}, and this one is {}", op.op, range.0, torch.version);
        all.obstacles.push(Obstacle::new("ds-op-incompatible", Stage::Dies, says).seen(
            "torch",
            torch.version.to_string(),
            Some(&torch.path),
            "",
        ));
    }
    if !gate.platforms.is_empty() && !gate.platforms.contains(&Platform::Linux) {
        all.obstacles.push(Obstacle::new("ds-op-incompatible", Stage::Refused, format!("{} is not built on Linux", op.op)));
    }
    for found in gpu(scene, op, gate) {
        all.add(found);
    }
    all.add(Ok(triton(scene, op, gate)));
    if gate.cuda_home == Some(true) && scene.home.value.is_none() {
        let says = format!("{} is not built without CUDA_HOME, and torch finds none", op.op);
        all.obstacles.push(Obstacle::new(scene.no_nvcc_id(), Stage::Refused, says));
    } else {
        for function in gate.functions.iter() {
            if let Some((library, name)) = function.split_once(':') {
                all.add(link_test(scene, op, library, name));
            }
        }
    }
    if let Some(way) = gate.cutlass {
        all.add(cutlass::find(scene, way).map(|found| found.err()));
    }
    for module in gate.imports.iter() {
        all.add(Ok(import(scene, op, module)));
    }
    all
}

/// The gate that looks at the GPU and then at CUDA's releases.
fn gpu(scene: &Scene<'_>, op: &Op, gate: &OpGate) -> Vec<Result<Option<Obstacle>, Missing>> {
    if gate.capability.is_none() && gate.cuda11.is_none() {
        return Vec::new();
    }
    let ignores = match op.op.as_ref() {
        "evoformer_attn" => DeepSpeedTrait::IgnoresDetectionForEvoformer,
        _ => DeepSpeedTrait::IgnoresDetection,
    };
    if scene.facts.env.filled("DS_IGNORE_CUDA_DETECTION").is_some() && scene.does(ignores) {
        return Vec::new();
    }
    let gpus = match &scene.gpus {
        Ok(gpus) => gpus,
        Err(missing) => return vec![Err(missing.clone())],
    };
    let (Some(device), true) = (gpus.first(), scene.gpu()) else { return Vec::new() };
    let release = match scene.nvcc() {
        Ok(NvccFound::Release(release)) => release,
        Ok(NvccFound::NoHome | NvccFound::NoNvcc) => {
            let says = format!("{} asks nvcc for its release where there is a GPU, and torch's CUDA_HOME has no nvcc", op.op);
            return vec![Ok(Some(Obstacle::new(scene.no_nvcc_id(), Stage::Raises, says)))];
        }
        Err(missing) => return vec![Err(missing)],
    };
    // Since 0.19.3 the capability is read where the process has a CUDA context already: not by setup.py, not by ds_report.
    let reads = !scene.does(DeepSpeedTrait::CapabilityOnlyWithContext);
    let Some(capability) = device.capability else {
        let why = "the capability of GPU 0 is not known".to_owned();
        return if reads { vec![Err(Missing { topic: "gpu", why, failed: false })] } else { Vec::new() };
    };
    let name = device.name.clone().unwrap_or_else(|| "GPU 0".to_owned());
    let mut found = Vec::new();
    if let Some(least) = gate.capability.filter(|least| reads && capability.major < *least) {
        let says = format!("{} is for GPUs of capability {least}.0 and newer, and GPU 0 ({name}) has {capability}", op.op);
        found.push(Ok(Some(Obstacle::new("gpu-too-old-for-software", Stage::Refused, says).seen(name, capability.to_string(), None, ""))));
    }
    let asked = match gate.cuda11 {
        Some(CudaGate::Ampere) => reads && capability.major >= 8,
        Some(CudaGate::Gpu) => true,
        None => false,
    };
    let torch = scene.torch.and_then(|torch| torch.cuda);
    if asked && (release.major < 11 || torch.is_some_and(|cuda| cuda.major < 11)) {
        let built = torch.map(|cuda| cuda.to_string()).unwrap_or_default();
        let says = format!("{} takes CUDA 11 and newer on this GPU, and nvcc is {release}, torch built for {built}", op.op);
        found.push(Ok(Some(Obstacle::new("ds-op-incompatible", Stage::Refused, says))));
    }
    found
}

fn triton(scene: &Scene<'_>, op: &Op, gate: &OpGate) -> Option<Obstacle> {
    if gate.triton.is_empty() {
        return None;
    }
    let taken = gate.triton.iter().map(|release| release.0.as_ref()).collect::<Vec<_>>().join(", ");
    let python = scene.python?;
    let Some(package) = python.package("triton").or_else(|| python.package("pytorch-triton")) else {
        let says = format!("{} of DeepSpeed {} needs triton ({taken}), which is not installed", op.op, scene.deepspeed.version);
        return Some(Obstacle::new("triton-version", Stage::Refused, says));
    };
    let release = package.version.major_minor();
    if gate.triton.iter().any(|taken| *taken.0 == *release) {
        return None;
    }
    let says =
        format!("{} of DeepSpeed {} takes triton {taken} only, and {} is installed", op.op, scene.deepspeed.version, package.version);
    Some(Obstacle::new("triton-version", Stage::Refused, says).seen("triton", package.version.to_string(), Some(&package.site), ""))
}

/// Modules that a builder imports while it builds.
fn import(scene: &Scene<'_>, op: &Op, module: &str) -> Option<Obstacle> {
    let package = match module {
        "dskernels" => "deepspeed-kernels",
        other => other,
    };
    if scene.python.is_some_and(|python| python.package(package).is_some()) {
        return None;
    }
    let says = format!("{} links what the Python package {package} brings, which is not installed", op.op);
    Some(Obstacle::new("ds-kernels-missing", Stage::Dies, says))
}

/// DeepSpeed's test: a C program that calls the function must link with the C compiler that Python was built with, or `CC`.
fn link_test(scene: &Scene<'_>, op: &Op, library: &str, function: &str) -> Result<Option<Obstacle>, Missing> {
    let facts = scene.facts;
    let Some(ops) = facts.ops.get("ops")? else { return Ok(None) };
    let (missing, hidden) = match library {
        "aio" => ("libaio-missing", "libaio-not-detected"),
        _ => ("cufile-missing", "cufile-missing"),
    };
    let test = format!("DeepSpeed's test of {}, which links `{function}` with `-l{library}`", op.op);
    if let Some(cc) = cc(scene, ops).first().filter(|word| is_cpp(word)) {
        let says = format!(
            "{test}, is a C program, and `CC` names the C++ compiler `{}`, in which the call has another name",
            cc.to_string_lossy()
        );
        let value = cc.to_string_lossy().into_owned();
        return Ok(Some(Obstacle::new(hidden, Stage::Refused, says).seen("CC", value, None, "environment")));
    }
    let mut folders: Vec<PathBuf> = flagged(facts.env.get("LDFLAGS"), "-L");
    if library == "cufile" {
        folders.extend(["", "lib64"].iter().filter_map(|below| scene.home.join(below)).map(|folder| folder.0));
    }
    folders.extend(facts.env.entries("LIBRARY_PATH"));
    folders.extend(ops.default_libs.iter().map(|folder| folder.0.clone()));
    if let Some(found) = ops.library(library).find(|name| name.linkable && in_one_of(&name.path, &folders)) {
        return Ok(too_old(op, found, function));
    }
    if library == "cufile" && in_toolkits(scene, "libcufile.so", &folders) {
        return Ok(None);
    }
    if let Some(elsewhere) = ops.library(library).find(|name| name.linkable) {
        let folder = elsewhere.path.parent().map(crate::facts::raw::HostPath::new);
        let says = format!("{test}, does not look where lib{library} is");
        let mut obstacle = Obstacle::new(hidden, Stage::Refused, says).seen(format!("lib{library}"), "", Some(&elsewhere.path), "");
        obstacle.helps = folder.map(|folder| ("LIBRARY_PATH", folder));
        return Ok(Some(obstacle));
    }
    let mut obstacle = Obstacle::new(missing, Stage::Refused, format!("{test}, finds no `lib{library}.so`"));
    if let Some(runtime) = ops.library(library).next() {
        obstacle.says = format!("{test}, finds no `lib{library}.so`: only the library for running is installed");
        obstacle = obstacle.seen("only", "", Some(&runtime.path), "");
    }
    Ok(Some(obstacle))
}

/// `io_pgetevents` came with the node LIBAIO_0.5, in libaio 0.3.112.
fn too_old(op: &Op, found: &LinkName, function: &str) -> Option<Obstacle> {
    let versioned = found.nodes.iter().any(|node| node.starts_with("LIBAIO_"));
    if function != "io_pgetevents" || !versioned || found.nodes.iter().any(|node| node == "LIBAIO_0.5") {
        return None;
    }
    let says = format!("{} asks for `{function}`, which came with libaio 0.3.112, and the installed one is older", op.op);
    Some(Obstacle::new("libaio-too-old", Stage::Refused, says).seen("libaio", found.nodes.join(" "), Some(&found.path), "version nodes"))
}

/// A name that a linker takes in a folder of some toolkit.
pub fn in_toolkits(scene: &Scene<'_>, name: &str, folders: &[PathBuf]) -> bool {
    let all = scene.facts.toolkits.value().map_or(&[][..], Vec::as_slice);
    let mut libs = all.iter().flat_map(|toolkit| &toolkit.libs);
    libs.any(|lib| lib.files.iter().any(|file| file == name) && folders.iter().any(|folder| lib.is(folder)))
}

pub fn in_one_of(path: &Path, folders: &[PathBuf]) -> bool {
    path.parent().is_some_and(|parent| folders.iter().any(|folder| folder == parent))
}

fn cc(scene: &Scene<'_>, ops: &OpsFacts) -> Vec<OsString> {
    let named = scene.facts.env.filled("CC").map(shell_words).filter(|words| !words.is_empty());
    let built = || {
        let base = &scene.python?.base_prefix;
        let (_, words) = ops.python_cc.iter().find(|(prefix, _)| prefix == base)?;
        Some(shell_words(words))
    };
    named.or_else(built).unwrap_or_else(|| vec!["cc".into()])
}

fn is_cpp(word: &OsStr) -> bool {
    let name = Path::new(word).file_name().unwrap_or(word).to_string_lossy().into_owned();
    let stem = name.split('-').filter(|part| part.contains("++")).count();
    stem > 0
}

/// The folders of a flag such as `-L` in a variable.
pub fn flagged(value: Option<&OsStr>, flag: &str) -> Vec<PathBuf> {
    let words = value.map(shell_words).unwrap_or_default();
    let mut found = Vec::new();
    let mut words = words.iter().map(|word| word.to_string_lossy());
    while let Some(word) = words.next() {
        match word.strip_prefix(flag) {
            Some("") => found.extend(words.next().map(|path| PathBuf::from(path.as_ref()))),
            Some(path) => found.push(path.into()),
            None => {}
        }
    }
    found
}
