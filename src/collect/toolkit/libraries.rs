//! A toolkit's library folders.

use super::contents::View;
use super::profile::Profile;
use crate::binary::cudart::{CudartRelease, cudart_release};
use crate::collect::open;
use crate::facts::raw::HostPath;
use crate::facts::toolkit::{Layout, LibFolder, LibFolderKind};
use crate::host::{Entry, Host, Kind};
use crate::version::Dotted;
use std::path::{Path, PathBuf};

/// Starts of CUDA's library names, behind `lib`.
const STEMS: &[&str] = &[
    "accinj",
    "cublas",
    "cuda",
    "cudla",
    "cudnn",
    "cufft",
    "cufile",
    "cufilt",
    "cuinj",
    "culibos",
    "cupti",
    "curand",
    "cusolver",
    "cusparse",
    "cutensor",
    "nccl",
    "npp",
    "nvJitLink",
    "nvToolsExt",
    "nvblas",
    "nvfatbin",
    "nvidia-ml",
    "nvjpeg",
    "nvperf",
    "nvptxcompiler",
    "nvrtc",
    "nvvm",
];

const MULTIARCH: [&str; 2] = ["/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu"];

/// The release of the libcudart beside a toolkit.
pub struct Cudart {
    pub version: Dotted,
    pub path: HostPath,
}

pub fn look(view: &View<'_>, layout: Layout, profile: &Profile) -> (Vec<LibFolder>, Option<Cudart>) {
    use LibFolderKind::{Distribution, Lib, Lib64, MathLibs, Stubs, Targets};
    let host = view.look.host;
    let mut candidates: Vec<(PathBuf, LibFolderKind)> = vec![(view.root.join("lib64"), Lib64), (view.root.join("lib"), Lib)];
    candidates.extend(view.targets().into_iter().map(|target| (target.join("lib"), Targets)));
    if layout == Layout::Distribution {
        candidates.extend(MULTIARCH.iter().map(|folder| (PathBuf::from(folder), Distribution)));
    }
    candidates.extend(view.math_libs(layout).map(|path| (path.join("lib64"), MathLibs)));
    candidates.extend(profile.libraries.iter().filter(|path| !path.ends_with("stubs")).map(|path| (path.clone(), Targets)));
    let stubs: Vec<_> = candidates.iter().map(|(folder, _)| (folder.join("stubs"), Stubs)).collect();
    candidates.extend(stubs);
    let mut seen: Vec<PathBuf> = Vec::new();
    let mut found: Vec<LibFolder> = Vec::new();
    for (candidate, kind) in candidates {
        let Ok(real) = host.real_path(&candidate) else { continue };
        if !host.is_folder(&real) {
            continue;
        }
        let path = view.folder_name(&candidate);
        if let Some(known) = seen.iter().position(|known| *known == real).and_then(|at| found.get_mut(at)) {
            if !known.is(&path) {
                known.also.push(path);
            }
            continue;
        }
        let entries = view.look.folders.get(&real, || {
            let mut entries = host.list(&real).unwrap_or_default();
            entries.retain(|entry| entry.name.to_str().is_some_and(is_cuda_library));
            entries
        });
        let (files, broken): (Vec<&Entry>, Vec<&Entry>) =
            entries.iter().filter(|entry| entry.kind != Kind::Folder).partition(|entry| opens(host, &real, entry));
        let names = |entries: Vec<&Entry>| entries.iter().map(|entry| entry.name.to_string_lossy().into_owned()).collect();
        seen.push(real);
        found.push(LibFolder { path, also: Vec::new(), kind, files: names(files), broken: names(broken) });
    }
    let cudart = cudart(view, &found);
    (found, cudart)
}

fn opens(host: &dyn Host, folder: &Path, entry: &Entry) -> bool {
    host.metadata(&folder.join(&entry.name)).is_ok_and(|meta| meta.kind == Kind::File && meta.len > 0)
}

/// `libcudart.so`, `libcudart.so.12.4.127`, `libcudart_static.a`
fn is_cuda_library(name: &str) -> bool {
    let Some(rest) = name.strip_prefix("lib") else { return false };
    STEMS.iter().any(|stem| rest.starts_with(stem)) && (name.ends_with(".a") || name.ends_with(".so") || name.contains(".so."))
}

/// The release of the first libcudart, from its real name where that has three numbers, else from its code.
fn cudart(view: &View<'_>, folders: &[LibFolder]) -> Option<Cudart> {
    let host = view.look.host;
    let is_cudart = |name: &&String| name.strip_prefix("libcudart.so").is_some_and(|rest| rest.is_empty() || rest.starts_with('.'));
    let libraries = folders.iter().filter(|folder| folder.kind != LibFolderKind::Stubs);
    let path = libraries.flat_map(|folder| folder.files.iter().filter(is_cudart).map(|name| folder.path.join(name))).next()?;
    let real = host.real_path(&path).ok()?;
    let version = view.look.releases.get(&real, || {
        let name = real.file_name()?.to_str()?;
        let by_name = name.strip_prefix("libcudart.so.").and_then(|rest| rest.parse::<Dotted>().ok());
        by_name.filter(|version| version.parts.len() >= 3).or_else(|| match cudart_release(&open(host, &real).ok()?).ok()?? {
            CudartRelease::Exact(release) => release.to_string().parse().ok(),
            CudartRelease::AtLeast(_) => None,
        })
    })?;
    Some(Cudart { version, path: real_name(view, &path, &real) })
}

/// The file that holds the number, named below the toolkit's root where it lies there.
fn real_name(view: &View<'_>, path: &HostPath, real: &Path) -> HostPath {
    match path.parent() {
        Some(folder) if view.look.host.real_path(folder).ok().as_deref() == real.parent() => {
            real.file_name().map(|name| HostPath::new(folder.join(name))).unwrap_or_else(|| path.clone())
        }
        _ => real.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_cuda_libraries() {
        assert!(STEMS.is_sorted());
        for name in ["libcudart.so", "libcudart.so.12.4.127", "libcudart_static.a", "libcuda.so", "libnvidia-ml.so.1", "libnccl.so.2"] {
            assert!(is_cuda_library(name), "{name}");
        }
        for name in ["libcurl.so", "libcups.so.2", "libcudart.so~", "libcudart", "cudart.so", "libnvpair.so.1", "libcudart.txt"] {
            assert_eq!(is_cuda_library(name), name == "libcudart.so~" && name.contains(".so."), "{name}");
        }
    }
}
