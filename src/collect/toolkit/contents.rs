//! What one toolkit's files say: its nvcc, the parts that nvcc needs, its headers, the releases stated.

use super::find::Root;
use super::libraries::{self, Cudart};
use super::profile::{self, Profile};
use super::{Look, nvcc};
use crate::binary::hostconfig::host_compilers;
use crate::binary::nvcc::program_release;
use crate::binary::releases::{header_release, version_json, version_txt};
use crate::collect::env::reason;
use crate::collect::lists::left_out;
use crate::collect::{open, search};
use crate::facts::elf::Machine;
use crate::facts::observed::Observed;
use crate::facts::program::ProgramKind;
use crate::facts::raw::HostPath;
use crate::facts::source::Source;
use crate::facts::toolkit::{
    HEADERS, HostLimits, IncludeFolder, Layout, Nvcc, NvccKind, OVERLAY_MANIFEST, Part, Stated, StatedBy, Toolkit,
};
use crate::host::Kind;
use crate::version::Dotted;
use std::collections::BTreeSet;
use std::path::{Component, Path, PathBuf};
use std::thread;

/// Programs nvcc starts.
const PROGRAMS: [&str; 5] = ["cicc", "ptxas", "cudafe++", "fatbinary", "nvlink"];
const HOST_CONFIG: &str = "crt/host_config.h";
/// Folders that compilers search by themselves.
const COMPILER_DEFAULTS: [&str; 4] =
    ["/usr/local/include", "/usr/include/x86_64-linux-gnu", "/usr/include/aarch64-linux-gnu", "/usr/include"];

/// Of the toolkit only the nvcc, where that tells its release.
pub fn nvcc_alone(look: &Look<'_>, root: &Root, real: &Path) -> Option<Toolkit> {
    let (nvcc, _) = nvcc::look(look, &root.path);
    let own = stated_by_nvcc(&nvcc)?;
    Some(Toolkit {
        root: HostPath::new(&root.path),
        real: real.into(),
        sources: root.sources.clone(),
        layout: Layout::Unknown,
        nvcc,
        stated: vec![own],
        parts: Vec::new(),
        includes: Vec::new(),
        libs: Vec::new(),
        host_limits: left_out(),
    })
}

fn stated_by_nvcc(nvcc: &Observed<Nvcc>) -> Option<Stated> {
    let nvcc = nvcc.value()?;
    Some(Stated { what: StatedBy::Nvcc, version: nvcc.version.clone()?, path: nvcc.path.clone() })
}

/// Reads the toolkit that lies in `real` and is named by `root`.
pub fn toolkit(look: &Look<'_>, root: &Root, real: &Path) -> Toolkit {
    let (nvcc, here) = nvcc::look(look, &root.path);
    let view = View { look, root: &root.path, real };
    let profile = here.as_deref().map(|here| view.profile(here));
    let searched = profile.clone().flatten().unwrap_or_default();
    let parts = here.as_deref().map(|here| view.parts(here, &searched)).unwrap_or_default();
    let layout = layout(&view, root, &nvcc);
    let path_of = |name: &str| match parts.iter().find(|part| part.name == name) {
        Some(part) => part.path.clone(),
        // Without an nvcc nothing is searched; what lies in the usual place still tells the release.
        None => [view.root.join("bin").join(name), view.root.join("nvvm/bin").join(name)]
            .into_iter()
            .find(|path| look.host.is_file(path))
            .map(HostPath::new),
    };
    let (ptxas, cicc) = (path_of("ptxas"), path_of("cicc"));
    // The two large programs are read beside the rest.
    thread::scope(|scope| {
        let running = scope.spawn(|| {
            let large = [(StatedBy::Ptxas, &ptxas), (StatedBy::Cicc, &cicc)];
            large.map(|(by, path)| view.program(by, path.as_ref()?))
        });
        let includes = view.includes(layout, &searched);
        let (libs, cudart) = libraries::look(&view, layout, &searched);
        let host_limits = view.host_limits(&includes);
        let programs = running.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        let stated = stated_by_nvcc(&nvcc)
            .into_iter()
            .chain(programs.into_iter().flatten())
            .chain(view.stated_by_headers(&includes, here.is_none()))
            .chain(cudart.map(|Cudart { version, path }| Stated { what: StatedBy::Cudart, version, path }))
            .chain(view.stated_by_version_files())
            .collect();
        let mut parts = parts;
        if here.is_some() {
            parts.push(Part { name: HOST_CONFIG.to_owned(), path: view.host_config(&includes), broken: None });
        }
        Toolkit {
            root: view.root.into(),
            real: real.into(),
            sources: root.sources.clone(),
            layout,
            nvcc,
            stated,
            parts,
            includes,
            libs,
            host_limits,
        }
    })
}

/// One toolkit under one name.
pub struct View<'a> {
    pub look: &'a Look<'a>,
    pub root: &'a Path,
    pub real: &'a Path,
}

impl View<'_> {
    /// A path as people would write it: below the root under the root's name, elsewhere by its real path.
    pub fn name(&self, path: &Path) -> PathBuf {
        match self.look.host.real_path(path) {
            Ok(real) => real.strip_prefix(self.real).map(|below| self.root.join(below)).unwrap_or(real),
            Err(_) => search::tidy(path),
        }
    }

    /// A folder's name as builds write it, links in it kept; the real one where it was reached by `..`.
    pub fn folder_name(&self, path: &Path) -> HostPath {
        let climbs = path.components().any(|part| part == Component::ParentDir);
        HostPath::new(if climbs { self.name(path) } else { search::tidy(path) })
    }

    /// The profile beside nvcc; `None` where there is none.
    fn profile(&self, here: &Path) -> Option<Profile> {
        let text = self.look.host.read_text(&here.join("nvcc.profile")).ok()?;
        let targets: &[&str] = match self.look.inspector.machine() {
            Some(Machine::AARCH64) => &["sbsa-linux", "aarch64-linux"],
            _ => &["x86_64-linux"],
        };
        let mut targets = targets.iter().map(|target| format!("targets/{target}"));
        let target = targets.find(|target| self.look.host.is_folder(&here.join("..").join(target))).unwrap_or_default();
        Some(profile::parse(&text, here, &target))
    }

    fn parts(&self, here: &Path, profile: &Profile) -> Vec<Part> {
        let host = self.look.host;
        let on_path: Vec<PathBuf> = search::entries(host, "PATH").into_iter().map(|entry| entry.path).collect();
        let mut parts: Vec<Part> = PROGRAMS
            .iter()
            .map(|name| {
                // With CICC_PATH set, nvcc looks nowhere else.
                let only = profile.cicc.as_ref().filter(|_| *name == "cicc");
                let found = match only {
                    Some(folder) => Some(folder.join(name)).filter(|path| host.exists(path)),
                    None => profile.path.iter().chain(&on_path).map(|folder| folder.join(name)).find(|path| host.exists(path)),
                };
                let broken = found.as_deref().and_then(|path| self.broken(path));
                Part { name: (*name).to_owned(), path: found.map(|path| self.name(&path).into()), broken }
            })
            .collect();
        let beside = here.join("nvcc.profile");
        let beside = Some(beside).filter(|path| host.is_file(path)).map(|path| self.name(&path).into());
        parts.push(Part { name: "nvcc.profile".to_owned(), path: beside, broken: None });
        let libdevice = profile.libdevice.as_deref().and_then(|folder| self.libdevice(folder));
        parts.push(Part { name: "libdevice".to_owned(), path: libdevice.map(Into::into), broken: None });
        parts
    }

    fn broken(&self, path: &Path) -> Option<String> {
        match self.look.inspector.kind(path) {
            ProgramKind::Elf | ProgramKind::Script { interpreter_found: true, .. } => None,
            ProgramKind::Script { interpreter, .. } => Some(format!("its interpreter {interpreter} is not there")),
            ProgramKind::Broken { why } | ProgramKind::Unreadable { why } => Some(why),
            ProgramKind::Folder => Some("a folder".to_owned()),
            ProgramKind::NotExecutable => Some("it has no execute permission".to_owned()),
        }
    }

    fn libdevice(&self, folder: &Path) -> Option<PathBuf> {
        let entries = self.look.host.list(folder).ok()?;
        let name = |name: &str| name.starts_with("libdevice") && name.ends_with(".bc");
        entries.iter().find(|entry| entry.name.to_str().is_some_and(name)).map(|entry| self.name(&folder.join(&entry.name)))
    }

    /// `targets/x86_64-linux` and its like.
    pub fn targets(&self) -> Vec<PathBuf> {
        let folder = self.root.join("targets");
        let entries = self.look.host.list(&folder).unwrap_or_default();
        entries.iter().filter(|entry| entry.kind != Kind::File).map(|entry| folder.join(&entry.name)).collect()
    }

    /// The HPC SDK's `math_libs`, which lie beside its toolkits.
    pub fn math_libs(&self, layout: Layout) -> Option<PathBuf> {
        if layout != Layout::HpcSdk {
            return None;
        }
        let version = self.root.file_name()?;
        let beside = self.root.parent()?.parent()?.join("math_libs").join(version);
        let above = self.root.parent()?.join("math_libs");
        [beside, above].into_iter().find(|path| self.look.host.is_folder(path))
    }

    fn includes(&self, layout: Layout, profile: &Profile) -> Vec<IncludeFolder> {
        let own = self.root.join("include");
        let mut candidates = vec![own.clone()];
        candidates.extend(self.targets().into_iter().map(|target| target.join("include")));
        candidates.extend(profile.includes.iter().cloned());
        candidates.extend(self.math_libs(layout).map(|path| path.join("include")));
        let cccl: Vec<PathBuf> = candidates.iter().map(|folder| folder.join("cccl")).collect();
        candidates.extend(cccl);
        // conda's compilers have a system root of their own.
        if layout != Layout::Conda {
            candidates.extend(COMPILER_DEFAULTS.iter().map(PathBuf::from));
        }
        let real = |path: &Path| self.look.host.real_path(path).ok();
        let by_nvcc: BTreeSet<PathBuf> = profile.includes.iter().filter_map(|path| real(path)).collect();
        let mut seen: Vec<PathBuf> = Vec::new();
        let mut found: Vec<IncludeFolder> = Vec::new();
        for candidate in candidates {
            let Some(real) = real(&candidate).filter(|real| self.look.host.is_folder(real)) else { continue };
            let path = self.folder_name(&candidate);
            if let Some(known) = seen.iter().position(|known| *known == real).and_then(|at| found.get_mut(at)) {
                if !known.is(&path) {
                    known.also.push(path);
                }
                continue;
            }
            let default = COMPILER_DEFAULTS.iter().any(|folder| candidate == Path::new(folder));
            let headers = self.headers(&real);
            // What compilers search anyway is of interest only where it holds something of CUDA.
            if headers.is_empty() && default && candidate != own {
                continue;
            }
            found.push(IncludeFolder {
                path,
                also: Vec::new(),
                searched_by_torch: candidate == own || default,
                searched_by_nvcc: default || by_nvcc.contains(&real),
                headers,
            });
            seen.push(real);
        }
        found
    }

    /// Those of [`HEADERS`] in a folder, given by its real path.
    fn headers(&self, real: &Path) -> Vec<String> {
        let host = self.look.host;
        self.look.headers.get(real, || {
            let list = host.list(real).unwrap_or_default();
            let has = |name: &str| list.binary_search_by(|entry| entry.name.as_os_str().cmp(std::ffi::OsStr::new(name))).is_ok();
            // A header in a folder is asked for only where that folder is.
            let there = |header: &&&str| has(header.split('/').next().unwrap_or_default()) && host.is_file(&real.join(header));
            HEADERS.iter().filter(there).map(|name| (*name).to_owned()).collect()
        })
    }

    /// The header that nvcc includes first in everything: of the folders that nvcc searches, else of any.
    fn in_includes(&self, includes: &[IncludeFolder], name: &str) -> Option<PathBuf> {
        let by_nvcc = includes.iter().filter(|folder| folder.searched_by_nvcc);
        let rest = includes.iter().filter(|folder| !folder.searched_by_nvcc);
        by_nvcc.chain(rest).map(|folder| folder.path.join(name).0).find(|path| self.look.host.is_file(path))
    }

    fn host_config(&self, includes: &[IncludeFolder]) -> Option<HostPath> {
        // Before CUDA 9.1 it lay beside the others; since then the one there only includes the one in `crt`.
        let old = || {
            let path = self.in_includes(includes, "host_config.h")?;
            let text = self.look.host.read_text(&path).ok()?;
            host_compilers(&text).gcc.is_some().then_some(path)
        };
        self.in_includes(includes, HOST_CONFIG).or_else(old).map(HostPath::new)
    }

    fn host_limits(&self, includes: &[IncludeFolder]) -> Observed<HostLimits> {
        let Some(path) = self.host_config(includes) else {
            return Observed::absent(includes.iter().map(|folder| folder.path.join(HOST_CONFIG).display().to_string()));
        };
        let text = match self.look.host.read_text(&path) {
            Ok(text) => text,
            Err(error) => return Observed::failed(format!("{path}: {}", reason(&error))),
        };
        let limits = host_compilers(&text);
        match limits.gcc {
            Some(gcc) => Observed::seen(HostLimits { path, gcc_max: gcc.max, clang_max: limits.clang.and_then(|clang| clang.max) }),
            None => Observed::failed(format!("{path} does not say which gcc it accepts in a form that is understood")),
        }
    }

    /// The release of one of nvcc's programs.
    fn program(&self, what: StatedBy, path: &HostPath) -> Option<Stated> {
        let real = self.look.host.real_path(path).ok()?;
        let version = self.look.releases.get(&real, || program_release(&open(self.look.host, &real).ok()?).ok()?)?;
        Some(Stated { what, version, path: path.clone() })
    }

    /// `own`: only of headers below the root; without an nvcc nothing makes the compiler's default folders a part of the toolkit.
    fn stated_by_headers(&self, includes: &[IncludeFolder], own: bool) -> Vec<Stated> {
        let headers = [(StatedBy::CudaHeader, "cuda.h", "CUDA_VERSION"), (StatedBy::RuntimeHeader, "cuda_runtime_api.h", "CUDART_VERSION")];
        let stated = |(what, name, word): (StatedBy, &str, &str)| {
            let path = self.in_includes(includes, name).filter(|path| !own || path.starts_with(self.root))?;
            let read = || {
                let release = header_release(&open(self.look.host, &path).ok()?, word).ok()??;
                release.to_string().parse::<Dotted>().ok()
            };
            let version = self.look.releases.get(&path, read);
            self.stated(what, version, path)
        };
        headers.into_iter().filter_map(stated).collect()
    }

    fn stated(&self, what: StatedBy, version: Option<Dotted>, path: PathBuf) -> Option<Stated> {
        if version.is_none() {
            self.look.note(format!("`{}` states no release", path.display()));
        }
        Some(Stated { what, version: version?, path: path.into() })
    }

    fn stated_by_version_files(&self) -> Vec<Stated> {
        let json = self.root.join("version.json");
        let txt = self.root.join("version.txt");
        let text = |path: &Path| self.look.host.read_text(path).ok();
        let json = text(&json).and_then(|text| {
            let version = version_json(&text).and_then(|mut parts| parts.remove("cuda"));
            self.stated(StatedBy::VersionJson, version, json)
        });
        let txt = text(&txt).and_then(|text| self.stated(StatedBy::VersionTxt, version_txt(&text), txt));
        json.into_iter().chain(txt).collect()
    }
}

fn layout(view: &View<'_>, root: &Root, nvcc: &Observed<Nvcc>) -> Layout {
    let path = view.root;
    let host = view.look.host;
    let is = |source: fn(&Source) -> bool| root.sources.iter().any(source);
    let has = |name: &str| host.exists(&path.join(name));
    let own_program = nvcc.value().is_none_or(|nvcc| nvcc.program.starts_with(view.real) || nvcc.kind == NvccKind::DistributionScript);
    match () {
        () if host.is_file(&path.join(OVERLAY_MANIFEST)) => Layout::Overlay,
        () if in_packages(view) || is(|source| matches!(source, Source::Pip { .. })) => Layout::Pip,
        () if host.is_folder(&path.join("conda-meta")) => Layout::Conda,
        () if is(|source| matches!(source, Source::HpcSdk { .. })) || path.components().any(|c| c.as_os_str() == "hpc_sdk") => {
            Layout::HpcSdk
        }
        () if [Path::new("/"), Path::new("/usr"), Path::new("/usr/lib/nvidia-cuda-toolkit"), Path::new("/usr/lib/cuda")]
            .contains(&view.real) =>
        {
            Layout::Distribution
        }
        () if !own_program => Layout::Unknown,
        () if has("version.json") || has("version.txt") || has("nvvm/bin/cicc") || has("targets") => Layout::Nvidia,
        () if has("include/cuda.h") && (has("lib64") || has("lib")) => Layout::Nvidia,
        () => Layout::Unknown,
    }
}

/// Below a folder of Python packages: one of the usual name, or one that holds the metadata of NVIDIA's packages.
fn in_packages(view: &View<'_>) -> bool {
    let named = |path: &Path| path.file_name().is_some_and(|name| name == "site-packages" || name == "dist-packages");
    if view.real.ancestors().any(named) {
        return true;
    }
    let Some(nvidia) = view.real.parent().filter(|parent| parent.ends_with("nvidia")) else { return false };
    let around = nvidia.parent().and_then(|folder| view.look.host.list(folder).ok()).unwrap_or_default();
    let metadata = |name: &str| name.starts_with("nvidia_") && name.ends_with(".dist-info");
    around.iter().any(|entry| entry.name.to_str().is_some_and(metadata))
}
