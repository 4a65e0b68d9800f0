//! Versions and targets read from programs and libraries, against what these say when they run.

use super::{Counted, printed, tool};
use crate::util::{lab, trial, trial_with};
use ds_doctor::binary::compiler::compiler_strings;
use ds_doctor::binary::cudart::{CudartRelease, cudart_release};
use ds_doctor::binary::nccl::nccl_release;
use ds_doctor::binary::nvcc::{NvccStrings, nvcc_strings, program_release};
use ds_doctor::binary::{driver, torch};
use ds_doctor::facts::compiler::Family;
use libtest_mimic::Trial;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// What nvcc prints: its version, and the virtual targets that `--help` allows for `-arch` (`--list-gpu-arch` leaves out a and f).
fn asked(nvcc: &Path) -> (String, BTreeSet<String>) {
    let version = printed(nvcc, &["--version"], &[]);
    let version = version.split(", V").nth(1).unwrap().split_whitespace().next().unwrap().to_owned();
    let help = printed(nvcc, &["--help"], &[]);
    let option = help.split("--gpu-architecture <arch>").nth(1).unwrap().split("--gpu-code <code>").next().unwrap();
    let allowed = option.split("Allowed values").nth(1).unwrap();
    let targets = allowed.split('\'').filter(|word| word.starts_with("compute_")).map(str::to_owned).collect();
    (version, targets)
}

fn nvcc_agrees(nvcc: &Path, reads_ccbin: bool) {
    let read = nvcc_strings(&Counted::open(nvcc)).unwrap();
    let targets: BTreeSet<_> = read.targets.iter().map(|t| t.compute()).collect();
    let (version, allowed) = asked(nvcc);
    assert!(allowed.len() > 5, "{allowed:?}");
    assert_eq!((read.version.unwrap().text, targets), (version, allowed));
    assert_eq!(read.reads_nvcc_ccbin, Some(reads_ccbin));
}

/// Every file below a folder whose name starts so, links left out.
fn below(folder: &Path, start: &str) -> Vec<PathBuf> {
    let files = walkdir::WalkDir::new(folder).sort_by_file_name().into_iter().map(Result::unwrap);
    let wanted = files.filter(|e| e.file_type().is_file() && e.file_name().to_string_lossy().starts_with(start));
    wanted.map(|e| e.into_path()).collect()
}

fn gcc_agrees(gcc: &Path) {
    let read = compiler_strings(&Counted::open(gcc)).unwrap();
    let say = |flag: &str| printed(gcc, &[flag], &[]).trim().to_owned();
    assert_eq!(read.family, Family::Gcc, "{}", gcc.display());
    assert_eq!(read.version.unwrap().text, say("-dumpfullversion"));
    assert_eq!(read.target.unwrap(), say("-dumpmachine"));
}

/// What torch itself answers, by the names of the doctor's readers.
fn ask_torch(venv: &Path) -> serde_json::Value {
    const QUESTION: &str = "import json, torch; print(json.dumps([torch._C._cuda_getArchFlags().split(), torch._C._GLIBCXX_USE_CXX11_ABI,\
        '.'.join(map(str, torch.cuda.nccl.version())), torch.version.cuda]))";
    serde_json::from_str(&printed(&venv.join("bin/python"), &["-c", QUESTION], &[])).unwrap()
}

pub fn trials() -> Vec<Trial> {
    vec![
        trial_with("binary::strings::nvcc_13_0_is_read_as_it_describes_itself", lab("pip-cu130/nvidia/cu13/bin/nvcc"), |nvcc| {
            nvcc_agrees(&nvcc, true);
        }),
        trial_with("binary::strings::nvcc_13_5_is_read_as_it_describes_itself", lab("pip-cu135/nvidia/cu13/bin/nvcc"), |nvcc| {
            nvcc_agrees(&nvcc, true);
        }),
        trial_with(
            "binary::strings::nvcc_11_8_is_read_as_it_describes_itself",
            lab("deb-cuda118/usr/lib/nvidia-cuda-toolkit/bin/nvcc"),
            |nvcc| nvcc_agrees(&nvcc, false),
        ),
        trial_with("binary::strings::the_parts_of_a_toolkit_state_the_release_of_nvcc", lab("pip-cu130/nvidia/cu13"), |root| {
            for part in ["bin/ptxas", "bin/cudafe++", "bin/nvlink", "bin/fatbinary", "nvvm/bin/cicc", "bin/nvcc"] {
                let release = program_release(&Counted::open(root.join(part))).unwrap();
                assert_eq!(release.map(|r| r.text).as_deref(), Some("13.0.88"), "{part}");
            }
        }),
        trial("binary::strings::another_program_is_not_taken_for_nvcc", || {
            // Not this test itself: other tests here hold nvcc's text.
            for name in ["sh", "ls", "env"] {
                assert_eq!(nvcc_strings(&Counted::open(tool(name).unwrap())).unwrap(), NvccStrings::default(), "{name}");
            }
        }),
        trial_with("binary::strings::every_libcudart_tells_its_release", lab("cudart"), |folder| {
            let libraries = below(&folder, "libcudart.so");
            assert!(libraries.len() >= 10, "{libraries:?}");
            for library in libraries {
                let release = library.strip_prefix(&folder).unwrap().iter().next().unwrap().to_str().unwrap();
                let read = cudart_release(&Counted::open(&library)).unwrap();
                assert_eq!(read, Some(CudartRelease::Exact(release.parse().unwrap())), "{}", library.display());
            }
        }),
        trial_with("binary::strings::a_library_that_is_not_cudart_has_no_cuda_release", tool("readelf"), |_| {
            let libc = ["/lib/x86_64-linux-gnu/libc.so.6", "/lib/aarch64-linux-gnu/libc.so.6", "/lib64/libc.so.6"];
            let libc = libc.iter().find(|path| Path::new(path).exists()).unwrap();
            assert_eq!(cudart_release(&Counted::open(libc)).unwrap(), None);
            assert_eq!(nccl_release(&Counted::open(libc)).unwrap(), None);
            assert_eq!(driver::release_in_strings(&Counted::open(libc)).unwrap(), None);
            assert_eq!(torch::arch_list(&Counted::open(libc)).unwrap(), None);
            assert_eq!(torch::cxx11_abi(&Counted::open(libc)).unwrap(), None);
        }),
        trial_with("binary::strings::driver_libraries_say_inside_what_their_names_say", lab("deb-driver"), |folder| {
            let mut seen = 0;
            for path in ["libcuda.so.", "libnvidia-ml.so."].iter().flat_map(|stem| below(&folder, stem)) {
                let name = driver::release_in_name(path.file_name().unwrap().to_str().unwrap()).unwrap();
                let inside = driver::release_in_strings(&Counted::open(&path)).unwrap();
                assert_eq!(inside.map(|r| r.text), Some(name.text), "{}", path.display());
                seen += 1;
            }
            assert_eq!(seen, 2);
        }),
        trial_with("binary::strings::torch_is_read_as_it_describes_itself", lab("torch-venv"), |venv| {
            let library = |name: &str| Counted::open(below(&venv.join("lib"), name).first().unwrap());
            let nccl = nccl_release(&library("libnccl.so")).unwrap().unwrap();
            let read = serde_json::json!([
                torch::arch_list(&library("libtorch_python.so")).unwrap(),
                torch::cxx11_abi(&library("libc10.so")).unwrap(),
                nccl.version.text,
                nccl.cuda.unwrap().to_string(),
            ]);
            assert_eq!(read, ask_torch(&venv));
        }),
        trial_with("binary::strings::gcc_is_read_as_it_describes_itself", tool("gcc"), |gcc| {
            let folder = gcc.parent().unwrap().to_owned();
            let mut seen = 0;
            for name in ["gcc", "g++", "cpp"].iter().flat_map(|name| (9..20).map(move |n| format!("{name}-{n}")).chain([name.to_string()]))
            {
                let path = folder.join(name);
                if path.exists() {
                    gcc_agrees(&path);
                    seen += 1;
                }
            }
            assert!(seen > 0);
        }),
        trial_with("binary::strings::gcc_11_is_read_without_running_it", lab("deb-cuda118/usr/bin/x86_64-linux-gnu-gcc-11"), |gcc| {
            let read = compiler_strings(&Counted::open(gcc)).unwrap();
            assert_eq!((read.version.unwrap().text.as_str(), read.target.as_deref()), ("11.3.0", Some("x86_64-linux-gnu")));
        }),
    ]
}
