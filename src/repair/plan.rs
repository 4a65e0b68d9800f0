//! Which links make a toolkit whole: a `CUDA_HOME` in which torch, nvcc and the linker each find things where they look.
//!
//! nvcc takes its place from the name it is started by, links in it not followed: so `bin` is a real folder of links, and nvcc then finds
//! its profile, `nvvm` and `include` in the overlay. `nvvm/bin` comes first on the PATH that its profile makes, so a host compiler there is
//! nvcc's alone; in `bin`, which people put on PATH, it would stand in front of the shell's own. `targets` is left out: with it nvcc
//! would search there instead of in `include` and `lib64`.

use super::manifest::{Link, Manifest, Why};
use crate::facts::raw::HostPath;
use crate::facts::toolkit::{HEADERS, Layout, LibFolderKind, NvccKind, Toolkit};
use crate::host::{Entry, Host, Kind};
use crate::version::Dotted;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// A gcc that nvcc accepts, with the g++ of the same release.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostGcc {
    pub gcc: HostPath,
    pub gxx: HostPath,
}

/// What an overlay is made from.
#[derive(Debug, Clone)]
pub struct Order<'a> {
    pub toolkit: &'a Toolkit,
    /// NVIDIA's Python packages of the same release: folders with `include` and `lib`.
    pub packages: Vec<PathBuf>,
    /// Only where nvcc would refuse the one it finds by itself.
    pub compiler: Option<HostGcc>,
    /// The driver's `libcuda.so.1`, for where the toolkit has no stub of it.
    pub driver: Option<HostPath>,
}

/// Why no overlay can be made from a toolkit; `None` where one can.
pub fn refusal(toolkit: &Toolkit) -> Option<String> {
    let root = &toolkit.root;
    let Some(nvcc) = toolkit.nvcc.value() else { return Some(format!("`{root}` has no nvcc, and an overlay of links cannot make one")) };
    match &nvcc.kind {
        NvccKind::Program => {}
        NvccKind::DistributionScript => {
            return Some(format!(
                "`{root}` is the distribution's toolkit: its headers and libraries are where every compiler looks, and its nvcc picks a gcc by itself; take it as it is with `CUDA_HOME=/usr`"
            ));
        }
        NvccKind::Wrapper { runs: Some(runs), .. } => {
            return Some(format!("the nvcc in `{root}` is a wrapper of `{runs}`: name that one's toolkit with --toolkit"));
        }
        NvccKind::Wrapper { runs: None, .. } => return Some(format!("the nvcc in `{root}` is a wrapper, and what it starts is not known")),
        NvccKind::Broken { why } => return Some(format!("the nvcc in `{root}` cannot work: {why}")),
    }
    let lacking: Vec<String> = toolkit
        .parts
        .iter()
        .filter_map(|part| match (&part.path, &part.broken) {
            (None, _) => Some(format!("`{}`", part.name)),
            (_, Some(why)) => Some(format!("`{}` ({why})", part.name)),
            _ => None,
        })
        .collect();
    (!lacking.is_empty())
        .then(|| format!("`{root}` lacks {}, without which nvcc compiles nothing; links cannot make it", lacking.join(", ")))
}

/// Every link of the overlay.
pub fn manifest(host: &dyn Host, order: &Order<'_>) -> Manifest {
    let mut plan = Plan { host, order, root: &order.toolkit.real, links: BTreeMap::new() };
    plan.programs();
    plan.nvvm();
    plan.headers();
    plan.libraries();
    plan.stubs();
    plan.rest();
    let links = plan.links.into_iter().map(|(at, (to, why))| Link { at: at.into(), to: to.into(), why }).collect();
    Manifest::new(order.toolkit.real.clone(), order.toolkit.release(), links)
}

struct Plan<'a> {
    host: &'a dyn Host,
    order: &'a Order<'a>,
    root: &'a Path,
    links: BTreeMap<PathBuf, (PathBuf, Why)>,
}

impl Plan<'_> {
    /// The first to name a place gets it.
    fn link(&mut self, at: impl Into<PathBuf>, to: impl Into<PathBuf>, why: Why) {
        self.links.entry(at.into()).or_insert_with(|| (to.into(), why));
    }

    fn list(&self, folder: &Path) -> Vec<Entry> {
        self.host.list(folder).unwrap_or_default()
    }

    /// A root whose folders hold other software too.
    fn shared(&self) -> bool {
        self.order.toolkit.layout == Layout::Conda || [Path::new("/"), Path::new("/usr"), Path::new("/usr/local")].contains(&self.root)
    }

    fn programs(&mut self) {
        let bin = self.root.join("bin");
        let shared = self.shared();
        for name in names(self.list(&bin)) {
            if if shared { PROGRAMS.contains(&name.as_str()) } else { !is_compiler(&name) } {
                self.link(Path::new("bin").join(&name), bin.join(&name), Why::Toolkit);
            }
        }
    }

    fn nvvm(&mut self) {
        let nvvm = self.root.join("nvvm");
        for name in names(self.list(&nvvm)) {
            if name != "bin" {
                self.link(Path::new("nvvm").join(&name), nvvm.join(&name), Why::Toolkit);
            }
        }
        for name in names(self.list(&nvvm.join("bin"))) {
            if !is_compiler(&name) {
                self.link(Path::new("nvvm/bin").join(&name), nvvm.join("bin").join(&name), Why::Toolkit);
            }
        }
        if let Some(HostGcc { gcc, gxx }) = self.order.compiler.clone() {
            self.link("nvvm/bin/gcc", gcc.0, Why::Compiler);
            self.link("nvvm/bin/g++", gxx.0, Why::Compiler);
        }
    }

    /// The toolkit's own folders first: what two of them have is taken from the first.
    fn headers(&mut self) {
        let own = self.root.join("include");
        let shared = self.shared();
        for folder in self.own_folders("include") {
            for name in names(self.list(&folder)) {
                if !shared || folder != own || is_cuda_header(&name) {
                    self.link(Path::new("include").join(&name), folder.join(&name), Why::Toolkit);
                }
            }
        }
        for package in &self.order.packages {
            let folder = package.join("include");
            for name in names(self.list(&folder)) {
                self.link(Path::new("include").join(&name), folder.join(&name), Why::Package);
            }
        }
    }

    /// `include` or `lib` of the toolkit, of its `targets` of this machine, and of the HPC SDK's `math_libs`; by real path, once each.
    fn own_folders(&self, what: &str) -> Vec<PathBuf> {
        let toolkit = self.order.toolkit;
        let mut folders = vec![self.root.join(what)];
        if what == "lib" {
            folders.insert(0, self.root.join("lib64"));
        }
        folders.extend(TARGETS.iter().map(|target| self.root.join("targets").join(target).join(what)));
        let math = toolkit.libs.iter().filter(|lib| lib.kind == LibFolderKind::MathLibs).map(|lib| lib.path.0.clone());
        match what {
            "lib" => folders.extend(math),
            _ => folders.extend(math.filter_map(|lib| Some(lib.parent()?.join(what)))),
        }
        let mut seen = BTreeSet::new();
        folders.retain(|folder| self.host.is_folder(folder) && self.host.real_path(folder).is_ok_and(|real| seen.insert(real)));
        folders
    }

    fn libraries(&mut self) {
        let shared = self.shared();
        let own: Vec<(PathBuf, Why)> = self.own_folders("lib").into_iter().map(|folder| (folder, Why::Toolkit)).collect();
        let packages: Vec<(PathBuf, Why)> = self.order.packages.iter().map(|package| (package.join("lib"), Why::Package)).collect();
        for (folder, why) in own.into_iter().chain(packages) {
            for name in names(self.list(&folder)) {
                let library = is_library(&name) && (!shared || why == Why::Package || is_cuda_library(&name));
                // A name that leads to nothing would hide one that works.
                if library && self.host.metadata(&folder.join(&name)).is_ok_and(|meta| meta.kind == Kind::File && meta.len > 0) {
                    self.link(Path::new("lib64").join(&name), folder.join(&name), why);
                }
            }
        }
        self.unversioned();
        // Some profiles name `lib` (the packages of CUDA 13.5), others `lib64`.
        self.link("lib", "lib64", Why::Alias);
    }

    /// `libcurand.so` for `libcurand.so.10`, the highest where there are several; of the runtime that of this toolkit's major.
    fn unversioned(&mut self) {
        let major = self.order.toolkit.release().map(|release| release.major);
        let mut best: BTreeMap<String, (Dotted, String)> = BTreeMap::new();
        for at in self.links.keys() {
            let Some(name) = at.strip_prefix("lib64").ok().and_then(Path::to_str) else { continue };
            let Some((stem, version)) = name.split_once(".so.") else { continue };
            let Ok(version) = version.parse::<Dotted>() else { continue };
            if stem == "libcudart" && major.is_some_and(|major| version.major() != major) {
                continue;
            }
            let plain = format!("{stem}.so");
            // Of `libcudart.so.13` and `libcudart.so.13.0.96`, one file, the shorter name outlives an update.
            let better = best.get(&plain).is_none_or(|(known, _)| *known < version && !version.parts.starts_with(&known.parts));
            if better {
                best.insert(plain, (version, name.to_owned()));
            }
        }
        for (plain, (_, name)) in best {
            self.link(Path::new("lib64").join(plain), name, Why::Name);
        }
    }

    fn stubs(&mut self) {
        let toolkit = self.order.toolkit;
        let folders = toolkit.libs.iter().filter(|lib| lib.kind == LibFolderKind::Stubs).map(|lib| lib.path.0.clone());
        let folders: Vec<PathBuf> = folders.filter_map(|folder| self.host.real_path(&folder).ok()).collect();
        for folder in folders {
            for name in names(self.list(&folder)) {
                if is_library(&name) {
                    self.link(Path::new("lib64/stubs").join(&name), folder.join(&name), Why::Toolkit);
                }
            }
        }
        if let Some(driver) = self.order.driver.clone() {
            self.link("lib64/stubs/libcuda.so", driver.0, Why::Driver);
        }
    }

    /// `version.json`, `nvml`, `extras` and what else a toolkit brings.
    fn rest(&mut self) {
        const MADE: [&str; 6] = ["bin", "include", "lib", "lib64", "nvvm", "targets"];
        let shared = self.shared();
        for name in names(self.list(self.root)) {
            let wanted = if shared { name == "version.json" } else { !MADE.contains(&name.as_str()) && !name.starts_with('.') };
            if wanted {
                self.link(&name, self.root.join(&name), Why::Toolkit);
            }
        }
    }
}

/// Of the `targets` of a toolkit those of this machine.
#[cfg(target_arch = "aarch64")]
const TARGETS: &[&str] = &["sbsa-linux", "aarch64-linux"];
#[cfg(not(target_arch = "aarch64"))]
const TARGETS: &[&str] = &["x86_64-linux"];

/// CUDA's programs, for roots whose `bin` holds others too.
const PROGRAMS: &[&str] = &[
    "__nvcc_device_query",
    "bin2c",
    "compute-sanitizer",
    "crt",
    "cu++filt",
    "cudafe++",
    "cuobjdump",
    "fatbinary",
    "nvcc",
    "nvcc.profile",
    "nvdisasm",
    "nvlink",
    "nvprune",
    "ptxas",
    "tileiras",
];

/// Names that are UTF-8; CUDA has no others.
fn names(entries: Vec<Entry>) -> Vec<String> {
    entries.into_iter().filter(|entry| entry.kind != Kind::Other).filter_map(|entry| entry.name.into_string().ok()).collect()
}

/// `gcc`, `g++-12`, `x86_64-linux-gnu-c++`: in a folder on PATH they would stand in front of the user's own.
fn is_compiler(name: &str) -> bool {
    let stem = match name.rsplit_once('-') {
        Some((stem, version)) if version.starts_with(|c: char| c.is_ascii_digit()) => stem,
        _ => name,
    };
    let last = stem.rsplit('-').next().unwrap_or(stem);
    ["gcc", "g++", "cc", "c++", "cpp", "clang", "clang++"].contains(&last)
}

fn is_library(name: &str) -> bool {
    name.starts_with("lib") && (name.ends_with(".a") || name.ends_with(".so") || name.contains(".so."))
}

/// In a folder of other software's libraries too.
fn is_cuda_library(name: &str) -> bool {
    const STARTS: &[&str] = &["libcu", "libnccl", "libnpp", "libnv"];
    const NOT: &[&str] = &["libcurl", "libcups", "libcurses", "libnvpair"];
    STARTS.iter().any(|start| name.starts_with(start)) && !NOT.iter().any(|start| name.starts_with(start))
}

fn is_cuda_header(name: &str) -> bool {
    HEADERS.iter().any(|header| header.split('/').next() == Some(name)) || name.starts_with("cudnn") || name.starts_with("nccl")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn compilers_by_name() {
        for name in ["gcc", "g++-12", "x86_64-linux-gnu-g++", "x86_64-conda-linux-gnu-c++", "clang++-17", "cc"] {
            assert!(is_compiler(name), "{name}");
        }
        for name in ["nvcc", "crt", "cuda-gdb", "cudafe++", "cu++filt", "ncu", "gcc-ar", "nsys"] {
            assert!(!is_compiler(name), "{name}");
        }
    }

    #[test]
    fn libraries_by_name() {
        for name in ["libcudart.so.13", "libcudadevrt.a", "libcufile_rdma.so.1", "libnvvm.so.4"] {
            assert!(is_library(name) && is_cuda_library(name), "{name}");
        }
        for name in ["cmake", "libcudart", "nvcc.profile"] {
            assert!(!is_library(name), "{name}");
        }
        assert!(!is_cuda_library("libcurl.so.4"));
    }
}
