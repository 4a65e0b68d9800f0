//! torch and DeepSpeed as their wheels unpack.

use super::fatbin::containers;
use super::machine::Machine;
use super::manifest::{DeepSpeed, Runtime, Torch};
use super::python::{metadata, of, package, series};
use super::release as cuda;
use ds_doctor::version::{CudaVersion, Dotted};

/// The first three numbers: `2.6.0`.
fn plain(version: &str) -> &str {
    version.split('+').next().unwrap()
}

pub fn install(m: &mut Machine<'_>, torch: &Torch) {
    let python = of(m, torch.python.as_deref());
    let site = if torch.user { format!("/root/.local/lib/python{}/site-packages", series(&python.version)) } else { python.site.clone() };
    let version: Dotted = torch.version.parse().unwrap();
    let local = version.local().map(str::to_owned);
    let cuda = torch.cuda.as_ref().map(|cuda| cuda.parse().unwrap()).or_else(|| CudaVersion::from_tag(local.as_deref()?));
    let folder = format!("{site}/torch");
    m.tree.file(&format!("{folder}/__init__.py"), "");
    m.tree.file(&format!("{folder}/version.py"), version_py(torch, &version, cuda));
    m.tree.file(&format!("{folder}/utils/cpp_extension.py"), "");
    m.tree.file(&format!("{folder}/include/torch/extension.h"), "#pragma once\n");
    let runtime = torch.runtime.unwrap_or(if cuda.is_some_and(|cuda| cuda.major >= 12) { Runtime::Wheels } else { Runtime::Bundled });
    let (names, rpath) = match cuda {
        Some(cuda) => cuda_libraries(m, torch, &site, &folder, cuda, runtime),
        None => (Vec::new(), "$ORIGIN".to_owned()),
    };
    let abi = torch.cxx11_abi.or_else(|| cuda.and_then(|cuda| m.know.torch_cxx11_abi(&version, cuda))).unwrap_or(version.at_least(&[2, 7]));
    torch_libraries(m, &folder, torch, &version, cuda, abi, &names, &rpath);
    let requires = requires(m, torch, &version, cuda, runtime);
    metadata(m, &site, "torch", "torch", &torch.version, &requires);
    for line in &requires {
        // Pinned requirements are what is installed.
        if let Some((name, version)) = line.split(';').next().unwrap().trim().split_once("==") {
            package(m, &site, name, version.trim());
        }
    }
    m.tree.time(&format!("{folder}/version.py"), torch.time);
    m.tree.time(&format!("{site}/torch-{}.dist-info/RECORD", torch.version), torch.time);
}

fn version_py(torch: &Torch, version: &Dotted, cuda: Option<CudaVersion>) -> String {
    let quoted = |value: Option<String>| value.map_or("None".to_owned(), |value| format!("'{value}'"));
    let (cuda, hip) = (quoted(cuda.map(|cuda| cuda.to_string())), quoted(torch.hip.clone()));
    const GIT: &str = "0123456789abcdef0123456789abcdef01234567";
    if version.at_least(&[2]) {
        let version = &torch.version;
        format!(
            "from typing import Optional\n\n__all__ = ['__version__', 'debug', 'cuda', 'git_version', 'hip', 'xpu']\n__version__ = '{version}'\ndebug = False\ncuda: Optional[str] = {cuda}\ngit_version = '{GIT}'\nhip: Optional[str] = {hip}\nxpu: Optional[str] = None\n"
        )
    } else {
        format!("__version__ = '{}'\ndebug = False\ncuda = {cuda}\ngit_version = '{GIT}'\nhip = {hip}\n", torch.version)
    }
}

/// CUDA's libraries for torch: the names in its NEEDED entries, and the folders in its RPATH.
fn cuda_libraries(
    m: &mut Machine<'_>,
    torch: &Torch,
    site: &str,
    folder: &str,
    cuda: CudaVersion,
    runtime: Runtime,
) -> (Vec<String>, String) {
    let all = cuda::libraries(cuda);
    let cudnn = if cuda.major >= 12 { "9" } else { "8" };
    let mut names = Vec::new();
    let mut folders = Vec::new();
    match runtime {
        Runtime::Wheels => {
            for library in all.iter().filter(|(name, _)| *name != "cufile" || cuda >= CudaVersion::new(12, 6)) {
                let soname = format!("lib{}.so.{}", library.0, library.1);
                let package = match library.0 {
                    _ if cuda.major >= 13 => "cu13",
                    "cudart" => "cuda_runtime",
                    "cublasLt" => "cublas",
                    "nvrtc" => "cuda_nvrtc",
                    "cupti" => "cuda_cupti",
                    "nvJitLink" => "nvjitlink",
                    "nvToolsExt" => "nvtx",
                    other => other,
                };
                let package = if cuda.major >= 14 { format!("cu{}", cuda.major) } else { package.to_owned() };
                // NVIDIA's packages find one another by RUNPATH, which the loader asks only after LD_LIBRARY_PATH.
                let runpath = match library.0 {
                    "cusparse" if cuda.major < 13 => "$ORIGIN/../../nvjitlink/lib",
                    "cusolver" if cuda.major < 13 => "$ORIGIN/../../cublas/lib:$ORIGIN/../../cusparse/lib:$ORIGIN/../../nvjitlink/lib",
                    _ => "$ORIGIN",
                };
                m.tree.file(&format!("{site}/nvidia/{package}/lib/{soname}"), cuda::library_file(m, library, cuda, Some(runpath)));
                if !["nvJitLink", "nvToolsExt", "cusolver"].contains(&library.0) {
                    names.push(soname);
                }
                let entry = format!("$ORIGIN/../../nvidia/{package}/lib");
                if !folders.contains(&entry) {
                    folders.push(entry);
                }
            }
            if cuda.major < 13 {
                m.tree.file(
                    &format!("{site}/nvidia/cuda_runtime/include/cuda_runtime_api.h"),
                    format!("#define CUDART_VERSION  {}\n", cuda.major * 1000 + cuda.minor * 10),
                );
            }
            let nccl = m.tree.library("libnccl.so.2").say([format!("NCCL version {}+cuda{cuda}", nccl_version(m, torch))]).bytes();
            m.tree.file(&format!("{site}/nvidia/nccl/lib/libnccl.so.2"), nccl);
            m.tree.file(&format!("{site}/nvidia/nccl/include/nccl.h"), "#define NCCL_MAJOR 2\n");
            m.tree.file(&format!("{site}/nvidia/cudnn/lib/libcudnn.so.{cudnn}"), m.tree.library(&format!("libcudnn.so.{cudnn}")).bytes());
            folders.extend(["cudnn", "nccl"].map(|name| format!("$ORIGIN/../../nvidia/{name}/lib")));
            names.extend(["libnccl.so.2".to_owned(), format!("libcudnn.so.{cudnn}")]);
        }
        Runtime::Bundled => {
            for library in all.iter().filter(|(name, _)| ["cudart", "cublas", "cublasLt", "nvrtc", "nvToolsExt"].contains(name)) {
                let name = match library.0 {
                    "cublas" | "cublasLt" => format!("lib{}.so.{}", library.0, library.1),
                    other => format!("lib{other}-a7b20f20.so.{}", library.1),
                };
                let mut elf = m.tree.library(&name);
                if library.0 == "cudart" {
                    elf.code = cuda::cudart_code(m.tree.machine, cuda);
                }
                m.tree.file(&format!("{folder}/lib/{name}"), elf.bytes());
                names.push(name);
            }
            m.tree.file(&format!("{folder}/lib/libcudnn.so.{cudnn}"), m.tree.library(&format!("libcudnn.so.{cudnn}")).bytes());
            names.push(format!("libcudnn.so.{cudnn}"));
        }
        Runtime::Shared => {
            names.extend(
                all.iter()
                    .filter(|(name, _)| !["cusolver", "nvJitLink", "nvToolsExt"].contains(name))
                    .map(|(name, version)| format!("lib{name}.so.{version}")),
            );
            // conda: `lib` of the environment.
            folders.push("$ORIGIN/../../../..".to_owned());
        }
    }
    folders.push("$ORIGIN".to_owned());
    (names, folders.join(":"))
}

#[expect(clippy::too_many_arguments)]
fn torch_libraries(
    m: &Machine<'_>,
    folder: &str,
    torch: &Torch,
    version: &Dotted,
    cuda: Option<CudaVersion>,
    abi: bool,
    cuda_names: &[String],
    rpath: &str,
) {
    let start = |start: &str| cuda_names.iter().filter(|name| name.starts_with(start)).cloned().collect::<Vec<String>>();
    let (cudart, cupti) = (start("libcudart"), start("libcupti"));
    // nvrtc is opened by name; 2.15 does without curand.
    let without_curand = version.at_least(&[2, 15]);
    let of_cuda: Vec<String> = cuda_names
        .iter()
        .filter(|name| !(name.starts_with("libcupti") || name.starts_with("libnvrtc") || without_curand && name.starts_with("libcurand")))
        .cloned()
        .collect();
    let system = ["libstdc++.so.6", "libgcc_s.so.1", "libc.so.6"].map(str::to_owned);
    // Wheels are for manylinux_2_28 since 2.7, for manylinux2014 before.
    let (libstdcxx, libc) = if version.at_least(&[2, 7]) { ("GLIBCXX_3.4.22", "GLIBC_2.28") } else { ("GLIBCXX_3.4.21", "GLIBC_2.17") };
    let needs = [
        ("libstdc++.so.6".to_owned(), vec![libstdcxx.to_owned()]),
        ("libc.so.6".to_owned(), vec!["GLIBC_2.14".to_owned(), libc.to_owned()]),
    ];
    let put = |name: &str, needed: Vec<String>, exports: Vec<String>, strings: Vec<String>| {
        let mut elf = m.tree.library(name);
        // libtorch.so holds nothing of its own, libtorch_global_deps.so is written in C.
        let without: &[&str] = match name {
            "libtorch.so" => &["libstdc++"],
            "libtorch_global_deps.so" => &["libstdc++", "libgcc_s"],
            _ => &[],
        };
        let has = |library: &str| !without.iter().any(|start| library.starts_with(start));
        elf.needed = needed.into_iter().chain(system.iter().filter(|system| has(system)).cloned()).collect();
        elf.rpath = Some(rpath.to_owned());
        elf.exports = exports;
        elf.needs = needs.iter().filter(|(library, _)| has(library)).cloned().collect();
        m.tree.file(&format!("{folder}/lib/{name}"), elf.say(strings).bytes());
    };
    let check = if abi {
        "_ZN3c106detail14torchCheckFailEPKcS2_jRKNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE"
    } else {
        "_ZN3c106detail14torchCheckFailEPKcS2_jRKSs"
    };
    let names = |list: &[&str]| list.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
    put("libc10.so", Vec::new(), names(&[check]), Vec::new());
    put("libtorch_global_deps.so", cudart.clone(), Vec::new(), Vec::new());
    put("libshm.so", names(&["libtorch_cpu.so"]), Vec::new(), Vec::new());
    put("libtorch_cpu.so", [names(&["libc10.so"]), cupti, cudart.clone()].concat(), Vec::new(), Vec::new());
    let mut python = names(&["libtorch.so", "libshm.so", "libtorch_cpu.so"]);
    let mut strings = Vec::new();
    if cuda.is_some() {
        put("libc10_cuda.so", [names(&["libc10.so"]), cudart.clone()].concat(), Vec::new(), Vec::new());
        put("libtorch_cuda.so", [names(&["libc10_cuda.so", "libtorch_cpu.so"]), of_cuda].concat(), Vec::new(), Vec::new());
        put("libtorch.so", names(&["libtorch_cpu.so", "libtorch_cuda.so"]), Vec::new(), Vec::new());
        python.extend([names(&["libtorch_cuda.so", "libc10_cuda.so"]), cudart].concat());
        strings = vec!["sm_%d".to_owned(), arch_list(m, torch, version, cuda).join(" ")];
    } else if torch.hip.is_some() {
        put("libtorch_hip.so", names(&["libamdhip64.so", "libtorch_cpu.so"]), Vec::new(), Vec::new());
        put("libc10_hip.so", names(&["libamdhip64.so", "libc10.so"]), Vec::new(), Vec::new());
        put("libtorch.so", names(&["libtorch_cpu.so", "libtorch_hip.so"]), Vec::new(), Vec::new());
    } else {
        put("libtorch.so", names(&["libtorch_cpu.so"]), Vec::new(), Vec::new());
    }
    python.push("libc10.so".to_owned());
    put("libtorch_python.so", python, Vec::new(), strings);
}

fn arch_list(m: &Machine<'_>, torch: &Torch, version: &Dotted, cuda: Option<CudaVersion>) -> Vec<String> {
    let from_tables = || {
        let code = m.know.torch_code(version, cuda?)?;
        Some(code.sass.iter().map(|target| target.sm()).chain(code.ptx.map(|target| target.compute())).collect())
    };
    torch.arch_list.clone().or_else(from_tables).unwrap_or_else(|| panic!("no table knows torch {}: give arch-list", torch.version))
}

/// The release that torch pins.
fn nccl_version(m: &Machine<'_>, torch: &Torch) -> String {
    torch
        .nccl
        .clone()
        .or_else(|| m.know.torch_release(&plain(&torch.version).parse().unwrap()).map(|row| row.nccl.to_string()))
        .unwrap_or_else(|| "2.30.7".to_owned())
}

/// torch's own requirements, and those of its CUDA.
fn requires(m: &Machine<'_>, torch: &Torch, version: &Dotted, cuda: Option<CudaVersion>, runtime: Runtime) -> Vec<String> {
    let mut lines = vec!["filelock".to_owned(), "typing-extensions>=4.10.0".to_owned()];
    if version.at_least(&[2, 11]) {
        lines.push("setuptools<82".to_owned());
    }
    let row = m.know.torch_release(&plain(&torch.version).parse().unwrap());
    let Some(cuda) = cuda else { return lines };
    const LINUX: &str = "; platform_system == \"Linux\" and platform_machine == \"x86_64\"";
    let nccl = nccl_version(m, torch);
    let cudnn = row.map_or_else(|| "9.30.0.1".to_owned(), |row| row.cudnn.to_string());
    if runtime == Runtime::Wheels {
        let major = cuda.major;
        if major >= 13 {
            lines.push(format!("nvidia-cuda-runtime=={cuda}.96{LINUX}"));
        } else {
            for name in ["nvidia-cuda-runtime", "nvidia-cuda-nvrtc", "nvidia-cuda-cupti"] {
                lines.push(format!("{name}-cu{major}=={cuda}.127{LINUX}"));
            }
        }
        lines.push(format!("nvidia-cudnn-cu{major}=={cudnn}{LINUX}"));
        lines.push(format!("nvidia-nccl-cu{major}=={nccl}{LINUX}"));
    }
    if let Some(triton) = row.and_then(|row| row.triton.as_ref()) {
        lines.push(format!("triton=={triton}{LINUX}"));
    }
    lines
}

pub fn deepspeed(m: &mut Machine<'_>, deepspeed: &DeepSpeed) {
    let site = of(m, deepspeed.python.as_deref()).site.clone();
    let folder = format!("{site}/deepspeed");
    m.tree.file(&format!("{folder}/__init__.py"), "");
    m.tree.file(&format!("{folder}/ops/op_builder/builder.py"), "");
    m.tree.file(&format!("{folder}/ops/csrc/adam/fused_adam_frontend.cpp"), "");
    let all = ["async_io", "cpu_adam", "fused_adam", "fused_lamb", "transformer", "utils"];
    let mut names: Vec<&str> = all.into_iter().chain(deepspeed.ops.iter().map(String::as_str)).collect();
    names.sort_unstable();
    names.dedup();
    let word = |name: &str| if deepspeed.ops.iter().any(|op| op == name) { "True" } else { "False" };
    let ops: Vec<String> = names.iter().map(|name| format!("'{name}': {}", word(name))).collect();
    let noted = |value: &Option<String>| value.clone().unwrap_or_else(|| "0.0".to_owned());
    let text = format!(
        "version='{}'\ngit_hash='unknown'\ngit_branch='unknown'\ninstalled_ops={{{}}}\naccelerator_name='{}'\ntorch_info={{'version': '{}', 'bf16_support': False, 'cuda_version': '{}', 'nccl_version': '0.0', 'hip_version': '0.0'}}\n",
        deepspeed.version,
        ops.join(", "),
        deepspeed.accelerator,
        noted(&deepspeed.torch),
        noted(&deepspeed.cuda),
    );
    m.tree.file(&format!("{folder}/git_version_info_installed.py"), text);
    for (op, path) in [("fused_adam", "ops/adam/fused_adam_op"), ("cpu_adam", "ops/adam/cpu_adam_op")] {
        if deepspeed.ops.iter().any(|have| have == op) {
            let mut elf = m.tree.library("");
            if op == "fused_adam" {
                elf.device_code = containers(&deepspeed.device_code);
            }
            m.tree.file(&format!("{folder}/{path}.cpython-311-x86_64-linux-gnu.so"), elf.bytes());
        }
    }
    metadata(m, &site, "deepspeed", "deepspeed", &deepspeed.version, &["torch".to_owned(), "ninja".to_owned()]);
    // pip installs what it asks for. The program that comes with the module lies where the manifest says that it is.
    package(m, &site, "ninja", "1.11.1.4");
}
