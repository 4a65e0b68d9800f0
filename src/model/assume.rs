//! A machine as it would be with other GPUs, torch, DeepSpeed or CUDA: what `--gpu` and `--assume` make of a snapshot.

use crate::facts::env::{NamedPlace, PlaceState};
use crate::facts::gpu::Device;
use crate::facts::observed::Observed;
use crate::facts::program::{Program, ProgramKind};
use crate::facts::python::Interpreter;
use crate::facts::raw::HostPath;
use crate::facts::snapshot::Snapshot;
use crate::facts::source::Source;
use crate::facts::toolkit::{HEADERS, HostLimits, IncludeFolder, Layout, LibFolder, LibFolderKind, Nvcc, NvccKind, Toolkit};
use crate::facts::torch::{DeepSpeed, Torch};
use crate::knowledge::Knowledge;
use crate::knowledge::gpu::GpuMatch;
use crate::version::{Capability, CudaVersion, Dotted, Target};
use std::path::Path;

/// A name and how many of it: `h100*8`.
///
/// # Errors
/// A name that no table knows, or that means several products; the nearest names are in the words.
pub fn gpu(text: &str, know: &Knowledge) -> Result<(String, Capability, usize), String> {
    let (name, number) = match text.rsplit_once('*') {
        Some((name, number)) => {
            let count: usize = number
                .trim()
                .parse()
                .ok()
                .filter(|n| (1..=1024).contains(n))
                .ok_or_else(|| format!("--gpu `{text}`: `{number}` is no number of GPUs"))?;
            (name.trim(), count)
        }
        None => (text.trim(), 1),
    };
    if let Some(capability) = know.capability(name) {
        return Ok((format!("GPU of capability {capability}"), capability, number));
    }
    match know.gpu(name) {
        GpuMatch::One { name, capability } => Ok((name.into_owned(), capability, number)),
        GpuMatch::Several { note, .. } => Err(format!("--gpu `{name}` means several products: {note}")),
        GpuMatch::Unknown { near } if near.is_empty() => {
            Err(format!("--gpu `{name}` is no GPU that the tables know; a capability such as 9.0 is understood too"))
        }
        GpuMatch::Unknown { near } => Err(format!("--gpu `{name}` is no GPU that the tables know; near it: {}", near.join(", "))),
    }
}

/// Replaces the GPUs of the machine by these. None given: nothing changes.
///
/// # Errors
/// As [`gpu`].
pub fn gpus(facts: &mut Snapshot, know: &Knowledge, texts: &[String]) -> Result<(), String> {
    if texts.is_empty() {
        return Ok(());
    }
    let mut devices = Vec::new();
    for text in texts {
        let (name, capability, number) = gpu(text, know)?;
        for _ in 0..number {
            let index = u32::try_from(devices.len()).unwrap_or(u32::MAX);
            devices.push(Device { index, name: Some(name.clone()), capability: Some(capability), ..Device::default() });
        }
    }
    facts.gpu.devices = Observed::seen(devices);
    // A mask of this machine says nothing about GPUs of another.
    facts.env.unset("CUDA_VISIBLE_DEVICES");
    facts.env.unset("NVIDIA_VISIBLE_DEVICES");
    Ok(())
}

/// `torch=2.6.0+cu124`, `deepspeed=0.16.9`, `cuda=12.4` in the interpreter that is judged.
///
/// # Errors
/// A name that cannot be assumed, or a version that is none.
pub fn software(facts: &mut Snapshot, know: &Knowledge, pairs: &[String]) -> Result<(), String> {
    for pair in pairs {
        let (name, version) = pair.split_once('=').ok_or_else(|| format!("--assume `{pair}` is not NAME=VERSION"))?;
        let version: Dotted = version.parse().map_err(|error| format!("--assume {name}: {error}"))?;
        match name.trim() {
            "torch" => {
                let torch = torch(version, know);
                change_python(facts, |python| python.torch = Observed::seen(torch));
            }
            "deepspeed" => {
                let path = HostPath::new("/assumed/deepspeed");
                let built = Observed::absent(["not built here"]);
                let deepspeed = DeepSpeed { path, version, built, editable: false, binaries: Vec::new() };
                change_python(facts, |python| python.deepspeed = Observed::seen(deepspeed));
            }
            "cuda" => {
                let cuda: CudaVersion = version.text.parse().map_err(|error| format!("--assume cuda: {error}"))?;
                toolkit(facts, know, cuda, version);
            }
            other => return Err(format!("--assume `{other}`: only torch, deepspeed and cuda can be assumed")),
        }
    }
    Ok(())
}

/// Puts a DeepSpeed that is not installed in the place of the one that is.
pub fn deepspeed(facts: &mut Snapshot, deepspeed: DeepSpeed) {
    change_python(facts, |python| python.deepspeed = Observed::seen(deepspeed));
}

/// Where assumed things would lie.
const NOWHERE: &str = "/assumed";

/// Whether this is the place of something that is only assumed.
pub fn is_assumed(path: &Path) -> bool {
    path.starts_with(NOWHERE)
}

fn said(option: &str) -> Source {
    Source::Option { name: option.to_owned() }
}

/// Changes the interpreter that is judged; one is made up where there is none.
fn change_python(facts: &mut Snapshot, change: impl FnOnce(&mut Interpreter)) {
    let chosen = super::python::chosen(facts).interpreter.map(|interpreter| interpreter.path.clone());
    let mut pythons = facts.pythons.value().cloned().unwrap_or_default();
    let at = chosen.and_then(|path| pythons.iter().position(|interpreter| interpreter.path == path));
    match at.and_then(|at| pythons.get_mut(at)) {
        Some(interpreter) => change(interpreter),
        None => {
            let mut interpreter = Interpreter {
                sources: vec![said("--assume")],
                torch: Observed::absent(["not assumed"]),
                deepspeed: Observed::absent(["not assumed"]),
                ..Interpreter::default()
            };
            interpreter.path = HostPath::new(NOWHERE).join("bin/python3");
            change(&mut interpreter);
            pythons.push(interpreter);
        }
    }
    facts.pythons = Observed::seen(pythons);
}

/// As its wheel would be: CUDA from the `+cuNNN` of the version, else that of PyPI's wheel.
fn torch(version: Dotted, know: &Knowledge) -> Torch {
    let local = version.local().map(ToOwned::to_owned);
    let cuda = match local.as_deref() {
        Some(local) => CudaVersion::from_tag(local),
        None => know.torch_release(&version).map(|release| release.default_cuda),
    };
    let code = cuda.and_then(|cuda| know.torch_code(&version, cuda));
    const UNKNOWN: &str = "assumed, and no table knows this build";
    Torch {
        path: HostPath::new(NOWHERE).join("torch"),
        cuda,
        hip: local.as_deref().and_then(|local| local.strip_prefix("rocm")).map(ToOwned::to_owned),
        cxx11_abi: cuda.and_then(|cuda| know.torch_cxx11_abi(&version, cuda)).map_or_else(|| Observed::skipped(UNKNOWN), Observed::seen),
        arch_list: code.map_or_else(
            || Observed::skipped(UNKNOWN),
            |code| {
                let sass = code.sass.iter().map(|target| target.sm());
                Observed::seen(sass.chain(code.ptx.map(Target::compute)).collect())
            },
        ),
        cudart: cuda.and_then(|cuda| know.toolkit(cuda)).map(|row| row.cudart_soname.to_string()),
        version,
        ..Torch::default()
    }
}

/// A whole toolkit of this release, which the build would use.
fn toolkit(facts: &mut Snapshot, know: &Knowledge, cuda: CudaVersion, version: Dotted) {
    let root = HostPath::new(NOWHERE).join(format!("cuda-{cuda}"));
    let row = know.toolkit(cuda);
    let nvcc = Nvcc {
        path: root.join("bin/nvcc"),
        program: root.join("bin/nvcc"),
        kind: NvccKind::Program,
        version: Some(version),
        targets: row.map(|row| row.targets.to_vec()).unwrap_or_default(),
        reads_nvcc_ccbin: Some(cuda >= CudaVersion::new(12, 5)),
    };
    let lib = |kind, folder: &str, files: &[&str]| LibFolder {
        path: root.join(folder),
        also: Vec::new(),
        kind,
        files: files.iter().map(|name| (*name).to_owned()).collect(),
        broken: Vec::new(),
    };
    let libraries: Vec<String> = ["cudart", "cublas", "cublasLt", "curand", "cusolver", "cusparse", "cufft", "cufile", "nvrtc"]
        .iter()
        .map(|name| format!("lib{name}.so"))
        .collect();
    let libraries: Vec<&str> = libraries.iter().map(String::as_str).collect();
    let headers = HEADERS.iter().filter(|name| **name != "nccl.h").map(|name| (*name).to_owned()).collect();
    let assumed = Toolkit {
        root: root.clone(),
        real: root.clone(),
        sources: vec![said("--assume")],
        layout: Layout::Nvidia,
        nvcc: Observed::seen(nvcc),
        stated: Vec::new(),
        parts: Vec::new(),
        includes: vec![IncludeFolder {
            path: root.join("include"),
            also: Vec::new(),
            searched_by_torch: true,
            searched_by_nvcc: true,
            headers,
        }],
        libs: vec![lib(LibFolderKind::Lib64, "lib64", &libraries), lib(LibFolderKind::Stubs, "lib64/stubs", &["libcuda.so"])],
        host_limits: row.map_or_else(
            || Observed::skipped("assumed, and no table knows this release"),
            |row| {
                let path = HostPath::new("rules/cuda.toml");
                Observed::seen(HostLimits { path, gcc_max: Some(row.max_gcc), clang_max: Some(row.max_clang) })
            },
        ),
    };
    let mut toolkits = facts.toolkits.value().cloned().unwrap_or_default();
    toolkits.retain(|toolkit| toolkit.root != root);
    toolkits.push(assumed);
    facts.toolkits = Observed::seen(toolkits);
    let nvcc = root.join("bin/nvcc");
    facts.programs.push(Program { name: "nvcc".to_owned(), path: nvcc.clone(), real: nvcc, kind: ProgramKind::Elf });
    facts.env.places.push(NamedPlace { path: root.clone(), state: PlaceState::Folder });
    facts.env.set("CUDA_HOME", root.0.into_os_string());
    let bin = HostPath::new(NOWHERE).join(format!("cuda-{cuda}/bin"));
    let mut path = bin.0.into_os_string();
    if let Some(rest) = facts.env.filled("PATH") {
        path.push(":");
        path.push(rest);
    }
    facts.env.set("PATH", path);
}
