//! What `import torch` loads, and in which order.
//!
//! Source: `_load_global_deps` and `_preload_cuda_deps` of torch/__init__.py, 1.13 to 2.15.

use super::{PROGRAM, Process, Unmet, path};
use crate::facts::raw::HostPath;
use crate::facts::torch::Torch;
use std::path::{Path, PathBuf};

/// A library that torch opens by path: the folder under `nvidia` (CUDA 13 has them all in `nvidia/cu13`), the start of its name, and the
/// releases that open it.
type Dependency = (&'static str, &'static str, &'static [u32], Option<&'static [u32]>);

/// In torch's order. Those of no family (cusparselt, nvshmem, nvrtc-builtins) are left out.
const DEPENDENCIES: &[Dependency] = &[
    ("cublas", "libcublasLt.so.", &[2, 11], None),
    ("cublas", "libcublas.so.", &[1, 13], None),
    ("cudnn", "libcudnn.so.", &[1, 13], None),
    ("cuda_nvrtc", "libnvrtc.so.", &[2, 0], None),
    ("cuda_runtime", "libcudart.so.", &[2, 0], None),
    ("cuda_cupti", "libcupti.so.", &[2, 0], None),
    ("cufft", "libcufft.so.", &[2, 0], None),
    ("curand", "libcurand.so.", &[2, 0], Some(&[2, 15])),
    ("nvjitlink", "libnvJitLink.so.", &[2, 5], None),
    ("cusparse", "libcusparse.so.", &[2, 0], None),
    ("cusolver", "libcusolver.so.", &[2, 0], None),
    ("nccl", "libnccl.so.", &[2, 0], None),
    ("cufile", "libcufile.so.", &[2, 7], None),
    ("nvtx", "libnvToolsExt.so.", &[2, 0], None),
];

/// What is opened although the search succeeded.
enum Always {
    Nothing,
    /// libnvrtc and libnvJitLink, where libcudart came from a wheel (2.6 to 2.8) or from anywhere (2.9).
    Two {
        wheel_only: bool,
    },
    /// All of them, where libcudart is loaded.
    All,
}

/// How opening a dependency by path ended.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Opened {
    Yes,
    NoFile,
    /// The loader refuses it, or does not find what it needs.
    Failed,
}

impl<'a> Process<'a> {
    /// `import torch`: the global dependencies first, with torch's own help, then the extension module.
    pub(super) fn import_torch(&mut self, site: &[HostPath], torch: &'a Torch) {
        let lib = torch.path.join("lib");
        let global_deps = lib.join("libtorch_global_deps.so").to_string();
        if self.open(&global_deps, PROGRAM).is_some() {
            self.open_always(site, torch);
        } else if self.helps(torch) {
            // torch opens every dependency by path and tries again. Where it cannot, that is the error: the first is noted already.
            let noted = std::mem::take(&mut self.unmet);
            let opened = dependencies(torch)
                .all(|dependency| self.open_dependency(site, torch, dependency) == Opened::Yes || dependency.0 == "nvtx");
            if opened && self.open(&global_deps, PROGRAM).is_some() {
                self.unmet.clear();
            } else {
                self.unmet = noted;
                return;
            }
        } else {
            return;
        }
        self.open(&lib.join("libtorch_python.so").to_string(), PROGRAM);
    }

    /// Whether torch answers the error by opening its dependencies: the name in it is one of theirs.
    fn helps(&self, torch: &Torch) -> bool {
        let first = self.unmet.first().map(|unmet| unmet.name.as_str()).unwrap_or_default();
        match torch.version.at_least(&[2]) {
            true => dependencies(torch).any(|(_, start, ..)| first.starts_with(start.trim_end_matches('.'))),
            false => first.starts_with("libcublas.so.11"),
        }
    }

    fn open_always(&mut self, site: &[HostPath], torch: &Torch) {
        let since = |parts: &[u32]| torch.version.at_least(parts);
        let always = match () {
            () if since(&[2, 10]) => Always::All,
            () if since(&[2, 9]) => Always::Two { wheel_only: false },
            () if since(&[2, 6]) => Always::Two { wheel_only: true },
            () => Always::Nothing,
        };
        let cudart = self.objects.iter().map(|object| object.path.to_string()).find(|path| path.contains("libcudart.so"));
        let Some(cudart) = cudart else { return };
        match always {
            Always::Nothing => {}
            Always::Two { wheel_only: true } if !cudart.contains("nvidia/cuda_runtime/lib/libcudart.so") => {}
            Always::Two { .. } => {
                for dependency in dependencies(torch).filter(|(folder, ..)| matches!(*folder, "cuda_nvrtc" | "nvjitlink")) {
                    if self.open_dependency(site, torch, dependency) != Opened::Yes {
                        break;
                    }
                }
            }
            Always::All => {
                for dependency in dependencies(torch) {
                    // Up to 2.14 the first that is missing ends the row; libnvToolsExt may be.
                    let required = !since(&[2, 15]) && dependency.0 != "nvtx";
                    match self.open_dependency(site, torch, dependency) {
                        Opened::Yes => {}
                        Opened::NoFile if !required => {}
                        Opened::NoFile | Opened::Failed => break,
                    }
                }
            }
        }
        // What torch opens in addition may fail without ending the import.
        self.unmet.clear();
    }

    /// Opens the first file of that name in the site folders.
    fn open_dependency(&mut self, site: &[HostPath], torch: &Torch, (folder, start, ..): &Dependency) -> Opened {
        let joint = torch.cuda.filter(|_| torch.version.at_least(&[2, 9])).map(|cuda| format!("nvidia/cu{}/lib", cuda.major));
        let beside = torch.version.at_least(&[2, 6]).then(|| format!("{folder}/lib"));
        let folders = [Some(format!("nvidia/{folder}/lib")), joint, beside];
        let found = site.iter().find_map(|site| {
            let mut below = folders.iter().flatten().map(|folder| site.join(folder));
            below.find_map(|folder| self.first_in(&folder, start))
        });
        match found.map(|path| self.open(&path.to_string(), PROGRAM)) {
            Some(Some(_)) => Opened::Yes,
            Some(None) => Opened::Failed,
            None => Opened::NoFile,
        }
    }

    /// The first file of a folder with this start and a digit at the end, in order of names (torch takes the file system's).
    fn first_in(&self, folder: &Path, start: &str) -> Option<HostPath> {
        let folder: PathBuf = path::tidy(folder);
        let mut names: Vec<&HostPath> = self
            .files
            .iter()
            .filter(|(path, _)| path.parent() == Some(&folder))
            .map(|(_, file)| &file.path)
            .filter(|path| {
                let name = path.file_name().unwrap_or_default().to_string_lossy();
                name.starts_with(start) && name.ends_with(|c: char| c.is_ascii_digit())
            })
            .collect();
        names.sort();
        names.first().map(|path| (*path).clone())
    }
}

fn dependencies(torch: &Torch) -> impl Iterator<Item = &'static Dependency> {
    DEPENDENCIES
        .iter()
        .filter(move |(_, _, since, until)| torch.version.at_least(since) && until.is_none_or(|until| !torch.version.at_least(until)))
}

impl Process<'_> {
    /// Whether the import ends in an error about a library.
    pub fn import_fails(&self) -> bool {
        self.unmet.iter().any(Unmet::is_certain)
    }
}
