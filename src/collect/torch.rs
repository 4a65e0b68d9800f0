//! torch as it lies in its folder: `version.py`, the strings and needs of its libraries, and its package's requirements.

use super::Lists;
use super::lists::left_out;
use super::literal::{Binding, Literal, binding};
use super::python::dist::{self, Dist};
use super::python::dist_of;
use super::python::site::{Module, Site};
use crate::binary::elf::summarise;
use crate::binary::{fatbin, torch as binary};
use crate::facts::elf::ElfFacts;
use crate::facts::observed::Observed;
use crate::facts::torch::Torch;
use crate::host::Host;
use crate::version::Dotted;
use std::collections::BTreeMap;
use std::path::Path;

/// The torch that this environment would import. `lists`: only its versions and, where asked for, its targets.
pub fn collect(host: &dyn Host, site: &Site, dists: &[Dist], lists: Option<Lists>) -> Observed<Torch> {
    let path = match site.module(host, "torch") {
        Some(Module::Package(path)) => path,
        Some(Module::File(path)) => return Observed::failed(format!("`{}` hides the package of that name", path.display())),
        Some(Module::Hollow(path)) => {
            return Observed::failed(format!("`{}` has no `__init__.py`: what a removed torch leaves behind", path.display()));
        }
        None => return Observed::absent(site.folders.iter().map(|folder| folder.path.display().to_string())),
    };
    match read(host, &path, dists, lists) {
        Ok(torch) => Observed::seen(torch),
        Err(why) => Observed::failed(why),
    }
}

/// What version.py says.
#[derive(Debug, Clone, PartialEq)]
struct Stated {
    version: Dotted,
    cuda: Option<String>,
    hip: Option<String>,
    git: Option<String>,
}

/// Source of the forms: version.py of torch 1.13 to 2.15.
fn stated(text: &str) -> Result<Stated, String> {
    let version = match binding(text, "__version__") {
        Binding::Value(Literal::Text(version)) => version,
        Binding::Unbound => return Err("has no `__version__`".to_owned()),
        _ => return Err("computes its `__version__`".to_owned()),
    };
    let optional = |name: &str| match binding(text, name) {
        Binding::Value(Literal::Text(text)) if !text.is_empty() => Ok(Some(text)),
        Binding::Value(Literal::Text(_) | Literal::None) => Ok(None),
        // Every release since 0.4 has both lines; without them nobody knows what it was built for.
        Binding::Unbound => Err(format!("has no `{name}`")),
        _ => Err(format!("has a `{name}` that is neither text nor `None`")),
    };
    Ok(Stated {
        version: version.parse().map_err(|_| format!("says version `{version}`"))?,
        cuda: optional("cuda")?,
        hip: optional("hip").unwrap_or_default(),
        git: binding(text, "git_version").text().map(str::to_owned),
    })
}

fn read(host: &dyn Host, path: &Path, dists: &[Dist], lists: Option<Lists>) -> Result<Torch, String> {
    let file = path.join("version.py");
    let text = host.read_text(&file).map_err(|error| format!("`{}`: {error}", file.display()))?;
    let stated = stated(&text).map_err(|why| format!("`{}` {why}", file.display()))?;
    let cuda = match &stated.cuda {
        Some(cuda) => Some(cuda.parse().map_err(|_| format!("`{}` says CUDA `{cuda}`", file.display()))?),
        None => None,
    };
    let targets = || if cuda.is_some() { arch_list(host, path) } else { Observed::absent(["version.py says no CUDA"]) };
    let torch = Torch {
        arch_list: if lists.is_none_or(|lists| lists.torch_targets) { targets() } else { left_out() },
        cxx11_abi: left_out(),
        path: path.into(),
        version: stated.version,
        cuda,
        hip: stated.hip,
        git_version: stated.git,
        ..Torch::default()
    };
    Ok(if lists.is_none() { whole(host, path, dists, torch) } else { torch })
}

/// What its libraries and its package say.
fn whole(host: &dyn Host, path: &Path, dists: &[Dist], torch: Torch) -> Torch {
    let site = path.parent().unwrap_or(path);
    let dist = dist_of(dists, "torch", site, &torch.version.text);
    let requires = dist.map(|dist| requires(host, &dist.metadata)).unwrap_or_default();
    let (libs, broken) = libraries(host, &path.join("lib"));
    let modified = |path: &Path| host.metadata(path).ok().map(|meta| meta.modified);
    let recorded = dist.and_then(|dist| modified(&dist.metadata.join("RECORD")));
    Torch {
        cxx11_abi: cxx11_abi(host, path),
        cudart: cudart(&libs),
        nccl: requires.iter().find_map(|(name, specifier)| {
            let pinned = name.starts_with("nvidia-nccl").then(|| specifier.strip_prefix("=="))??;
            Some((name.clone(), pinned.parse().ok()?))
        }),
        requires,
        libs,
        broken,
        installed: modified(&path.join("version.py")).max(recorded),
        ..torch
    }
}

/// The libraries of torch's own, and those of them that cannot be read.
fn libraries(host: &dyn Host, folder: &Path) -> (BTreeMap<String, ElfFacts>, BTreeMap<String, String>) {
    let (mut libs, mut broken) = (BTreeMap::new(), BTreeMap::new());
    let entries = match host.list(folder) {
        Ok(entries) => entries,
        Err(error) => {
            broken.insert(folder.display().to_string(), error.to_string());
            return (libs, broken);
        }
    };
    for name in entries.iter().filter_map(|entry| entry.name.to_str()) {
        let own = ["libtorch", "libc10", "libcaffe2", "libshm"].iter().any(|start| name.starts_with(start));
        if !own || !name.ends_with(".so") {
            continue;
        }
        match super::open(host, &folder.join(name)).map_err(|e| e.to_string()).and_then(|file| summarise(&file).map_err(|e| e.to_string()))
        {
            Ok(facts) => drop(libs.insert(name.to_owned(), facts)),
            Err(why) => drop(broken.insert(name.to_owned(), why)),
        }
    }
    (libs, broken)
}

/// libtorch_python is asked first: every build with CUDA links it against the runtime.
fn cudart(libs: &BTreeMap<String, ElfFacts>) -> Option<String> {
    let first = libs.get("libtorch_python.so").into_iter();
    first.chain(libs.values()).flat_map(|lib| &lib.needed).find(|name| name.starts_with("libcudart")).cloned()
}

/// The library itself is asked first; the CMake file states it up to 2.14.
fn cxx11_abi(host: &dyn Host, path: &Path) -> Observed<bool> {
    let library = path.join("lib/libc10.so");
    let read = super::open(host, &library).map_err(|e| e.to_string()).and_then(|file| binary::cxx11_abi(&file).map_err(|e| e.to_string()));
    let why = match read {
        Ok(Some(new)) => return Observed::seen(new),
        Ok(None) => "has neither form of the symbol that tells".to_owned(),
        Err(why) => why,
    };
    let text = host.read_text(&path.join("share/cmake/Torch/TorchConfig.cmake")).unwrap_or_default();
    let stated = text.split("_GLIBCXX_USE_CXX11_ABI=").nth(1).and_then(|rest| rest.chars().next());
    match stated {
        Some('0') => Observed::seen(false),
        Some('1') => Observed::seen(true),
        _ => Observed::failed(format!("`{}`: {why}", library.display())),
    }
}

fn arch_list(host: &dyn Host, path: &Path) -> Observed<Vec<String>> {
    let library = path.join("lib/libtorch_python.so");
    let read = super::open(host, &library).map_err(|e| e.to_string()).and_then(|file| binary::arch_list(&file).map_err(|e| e.to_string()));
    let why = match read {
        Ok(Some(list)) => return Observed::seen(list),
        Ok(None) => format!("`{}` has no list of targets, or more than one", library.display()),
        Err(why) => format!("`{}`: {why}", library.display()),
    };
    // The code itself says the same in more words.
    let kernels = super::open(host, &path.join("lib/libtorch_cuda.so")).ok().and_then(|file| fatbin::device_code(&file).ok().flatten());
    let listed: Vec<String> = kernels.iter().flat_map(|code| code.listed()).map(|(target, _)| target.to_string()).collect();
    if listed.is_empty() { Observed::failed(why) } else { Observed::seen(listed) }
}

/// The requirements that decide what torch runs with, as name and specifier: `("triton", "==3.2.0")`.
fn requires(host: &dyn Host, metadata: &Path) -> Vec<(String, String)> {
    let headers = dist::headers(host, metadata);
    let lines = headers.iter().filter(|(key, _)| key == "Requires-Dist").map(|(_, value)| value.as_str());
    lines.filter_map(requirement).filter(|(name, _)| matters(name)).collect()
}

fn matters(name: &str) -> bool {
    matches!(name, "triton" | "pytorch-triton" | "setuptools") || name.starts_with("nvidia-") || name.starts_with("cuda-")
}

/// Name and specifier of a requirement that is no extra. Source of the form: PEP 508.
fn requirement(line: &str) -> Option<(String, String)> {
    let (requirement, marker) = line.split_once(';').unwrap_or((line, ""));
    if marker.contains("extra") {
        return None;
    }
    let end = requirement.find(|c: char| !(c.is_alphanumeric() || matches!(c, '-' | '_' | '.'))).unwrap_or(requirement.len());
    let (name, rest) = requirement.split_at(end);
    let rest = rest.trim_start();
    let rest = if rest.starts_with('[') { rest.split_once(']')?.1 } else { rest };
    // Old metadata puts the specifier in brackets.
    let specifier = rest.trim().trim_start_matches('(').trim_end_matches(')').replace(' ', "");
    Some((dist::normalise(name.trim()), specifier))
}

#[cfg(test)]
#[expect(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn version_files() {
        let old = "__version__ = '1.13.1+cu117'\ndebug = False\ncuda = '11.7'\ngit_version = 'abc'\nhip = None\n";
        let read = stated(old).unwrap();
        assert_eq!((read.version.text.as_str(), read.cuda.as_deref(), read.hip), ("1.13.1+cu117", Some("11.7"), None));
        assert_eq!(read.git.as_deref(), Some("abc"));
        let new = "from typing import Optional\n\n__all__ = ['__version__', 'cuda']\n__version__ = '2.6.0a0+ecf3bae40a.nv25.01'\n\
                   cuda: Optional[str] = None\nhip: Optional[str] = '6.2.41133'\n";
        let read = stated(new).unwrap();
        assert_eq!((read.cuda, read.hip.as_deref()), (None, Some("6.2.41133")));
        for bad in ["", "__version__ = '2.6.0'\n", "__version__ = f()\ncuda = None\n", "__version__ = 'x'\ncuda = None\n", "\0\0\0"] {
            assert!(stated(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn requirements() {
        let read = |line| requirement(line).map(|(name, specifier)| format!("{name} {specifier}"));
        assert_eq!(read("triton==3.2.0; platform_system == \"Linux\"").as_deref(), Some("triton ==3.2.0"));
        assert_eq!(read("nvidia_cublas-cu12 (==12.4.5.8) ; platform_system == 'Linux'").as_deref(), Some("nvidia-cublas-cu12 ==12.4.5.8"));
        assert_eq!(read("cuda-toolkit[cublas,cudart]==13.0.2; x").as_deref(), Some("cuda-toolkit ==13.0.2"));
        assert_eq!(read("setuptools<82").as_deref(), Some("setuptools <82"));
        assert_eq!(read("optree>=0.13.0; extra == \"optree\""), None);
        assert_eq!(read("broken[").as_deref(), None);
    }
}
