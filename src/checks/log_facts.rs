//! What the facts of a machine add to a line of a log: the very toolkit, file or compiler that its cure names.
//!
//! The machine need not be wrong itself: the log may be of a build that was started with other variables, or in an environment of its own.

use super::Case;
use super::compiler_fixes::older_gcc;
use super::compiler_limits::{lowest, pair};
use super::driver_libs::is_stub;
use super::remedy::{best_toolkit, usable, use_toolkit};
use crate::facts::compiler::{Compiler, Family, Language};
use crate::facts::loader::Library;
use crate::facts::python::EnvironmentKind;
use crate::facts::raw::HostPath;
use crate::facts::toolkit::{LibFolder, Toolkit};
use crate::finding::{Evidence, Fix, ProblemId};
use crate::knowledge::schema::signatures::{Reading, reading};
use crate::version::{CudaVersion, Dotted, Target};
use std::collections::BTreeMap;

/// Said by the machine, not by the log.
const HERE: &str = "this machine";

/// What was caught in the line, with the types of its names.
pub struct Caught<'s>(pub &'s BTreeMap<String, String>);

impl Caught<'_> {
    pub fn arch(&self) -> Option<Target> {
        self.0.iter().find_map(|(name, text)| match reading(name, text) {
            Ok(Some(Reading::Arch(target))) => Some(target),
            Ok(Some(Reading::Capability(capability))) => Some(Target { capability, suffix: None }),
            _ => None,
        })
    }

    fn text(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    fn cuda(&self, name: &str) -> Option<CudaVersion> {
        match reading(name, self.text(name)?) {
            Ok(Some(Reading::Cuda(release))) => Some(release),
            _ => None,
        }
    }
}

/// Evidence of the machine for this line, and the cures that fit here; both empty where it knows nothing of the matter.
pub fn sharpen(case: &Case<'_>, id: ProblemId, caught: &Caught<'_>) -> (Vec<Evidence>, Vec<Fix>) {
    let answer = match id {
        "nvcc-too-old-for-gpu" | "nvcc-dropped-arch" => caught.arch().and_then(|arch| targeting(case, arch)),
        "torch-nvcc-mismatch-major" | "torch-nvcc-mismatch-minor" => mismatch(case, caught),
        "no-nvcc" | "cuda-home-unset" | "cuda-home-wrong" | "cuda-home-dangling" => best_toolkit(case, true).map(|best| take(case, best)),
        "missing-cuda-headers" | "toolkit-incomplete" => caught.text("header").and_then(|header| with_header(case, header)),
        "linker-cannot-find-cuda-lib" | "libcuda-not-found-at-link" => caught.text("library").and_then(|name| linkable(case, name)),
        "libcudart-not-found" | "runtime-lib-not-on-loader-path" | "cudnn-not-found" => {
            caught.text("library").and_then(|name| loadable(case, name))
        }
        "gcc-too-new-for-nvcc" | "gcc-too-old-for-torch" => compiler(case, id, caught),
        "glibcxx-not-found" => caught.text("version").and_then(|version| newer_libstdcxx(case, version)),
        _ => None,
    };
    answer.unwrap_or_default()
}

type Answer = (Vec<Evidence>, Vec<Fix>);

fn shown(toolkit: &Toolkit) -> Evidence {
    let release = toolkit.release().map_or_else(|| "a toolkit".to_owned(), |release| format!("CUDA {release}"));
    Evidence::new("toolkit", release).at(&toolkit.root).said_by(HERE)
}

fn take(case: &Case<'_>, toolkit: &Toolkit) -> Answer {
    (vec![shown(toolkit)], use_toolkit(case, toolkit))
}

/// torch refuses an nvcc of another major.
fn fits_torch(case: &Case<'_>, toolkit: &Toolkit) -> bool {
    let cuda = case.torch().ok().flatten().and_then(|torch| torch.cuda);
    cuda.zip(toolkit.release()).is_none_or(|(cuda, release)| cuda.major == release.major)
}

/// The toolkit for which this holds: torch's own release first, then the nearest.
fn toolkit_with<'a>(case: &Case<'a>, has: impl Fn(&Toolkit) -> bool) -> Option<&'a Toolkit> {
    let best = best_toolkit(case, true).filter(|toolkit| has(toolkit));
    let newest = || {
        case.toolkits()
            .iter()
            .filter(|toolkit| usable(toolkit) && fits_torch(case, toolkit) && has(toolkit))
            .max_by_key(|toolkit| toolkit.release())
    };
    best.or_else(newest)
}

fn targeting(case: &Case<'_>, arch: Target) -> Option<Answer> {
    let targets = |toolkit: &Toolkit| toolkit.nvcc.value().is_some_and(|nvcc| nvcc.targets.contains(&arch));
    let toolkit = toolkit_with(case, targets)?;
    let evidence = Evidence::new("toolkit", format!("{} compiles for {}", named(toolkit), arch.compute())).at(&toolkit.root).said_by(HERE);
    Some((vec![evidence], use_toolkit(case, toolkit)))
}

fn named(toolkit: &Toolkit) -> String {
    toolkit.release().map_or_else(|| "its nvcc".to_owned(), |release| format!("CUDA {release}"))
}

/// The toolkit of the release that the build's torch has. A torch of another release than the installed one came with pip's own build
/// environment, and then the toolkit is not at fault.
fn mismatch(case: &Case<'_>, caught: &Caught<'_>) -> Option<Answer> {
    let installed = case.torch().ok().flatten();
    let own = installed.and_then(|torch| torch.cuda);
    let wanted = caught.cuda("torch_cuda").or(own)?;
    if let (Some(torch), Some(own), Some(nvcc)) = (installed, own, caught.cuda("nvcc"))
        && own.major != wanted.major
        && own.major == nvcc.major
    {
        let evidence = Evidence::new("torch", torch.version.to_string()).at(&torch.path).said_by(HERE);
        let advice = format!(
            "build with `--no-build-isolation`: the build saw a torch of CUDA {wanted}, and the installed one is of {own}, as nvcc is"
        );
        return Some((vec![evidence], vec![Fix::advice(advice)]));
    }
    let alike = |toolkit: &&Toolkit| usable(toolkit) && toolkit.release().is_some_and(|release| release.major == wanted.major);
    let distance = |toolkit: &&Toolkit| toolkit.release().map(|release| release.minor.abs_diff(wanted.minor));
    let toolkit = case.toolkits().iter().filter(alike).min_by_key(distance)?;
    Some(take(case, toolkit))
}

fn with_header(case: &Case<'_>, header: &str) -> Option<Answer> {
    let has = |toolkit: &Toolkit| {
        toolkit.includes.iter().any(|folder| folder.searched_by_torch && folder.headers.iter().any(|name| name == header))
    };
    let toolkit = toolkit_with(case, has)?;
    let evidence = Evidence::new("toolkit", format!("{} has `{header}`", named(toolkit))).at(&toolkit.root).said_by(HERE);
    Some((vec![evidence], use_toolkit(case, toolkit)))
}

fn has_file(folder: &LibFolder, file: &str) -> bool {
    folder.files.iter().any(|name| name == file) && !folder.broken.iter().any(|name| name == file)
}

/// Of the toolkit that torch picks: the folder that has it. Else a toolkit of torch's own that has it where torch's builds look.
fn linkable(case: &Case<'_>, library: &str) -> Option<Answer> {
    let file = format!("lib{library}.so");
    let picked = case.toolkit().ok().flatten();
    let folder = picked.and_then(|toolkit| toolkit.libs.iter().find(|folder| has_file(folder, &file)));
    if let Some(folder) = folder {
        let evidence = Evidence::new(file, "is here").at(&folder.path).said_by(HERE);
        return Some((vec![evidence], vec![Fix::prepend("LIBRARY_PATH", &folder.path, "where the linker looks too")]));
    }
    let toolkit = toolkit_with(case, |toolkit| toolkit.torch_lib().is_some_and(|folder| has_file(folder, &file)))?;
    let evidence = Evidence::new("toolkit", format!("{} has `{file}`", named(toolkit))).at(&toolkit.root).said_by(HERE);
    Some((vec![evidence], use_toolkit(case, toolkit)))
}

/// A copy of this name: of the environment itself first, then of a toolkit of torch's major. One of another major is told, and put in
/// force by nobody: what needs it was built for another torch.
fn loadable(case: &Case<'_>, name: &str) -> Option<Answer> {
    let libraries = case.facts.loader.value()?.libraries.iter();
    let python = case.python().ok().flatten();
    let sound = |library: &&Library| library.name == name && !is_stub(library) && library.elf.value().is_some();
    let own = |library: &Library| {
        python
            .is_some_and(|python| library.path.starts_with(&python.prefix) || python.site.iter().any(|site| library.path.starts_with(site)))
    };
    let found = libraries.filter(sound).min_by_key(|library| (!own(library), library.path.clone()));
    let toolkit =
        |path: &HostPath| case.toolkits().iter().find(|toolkit| path.starts_with(&toolkit.root) || path.starts_with(&toolkit.real));
    let in_toolkit = || {
        let folders = case.toolkits().iter().flat_map(|toolkit| toolkit.libs.iter().map(move |folder| (toolkit, folder)));
        folders.filter(|(_, folder)| has_file(folder, name)).min_by_key(|(toolkit, _)| !fits_torch(case, toolkit))
    };
    let (path, of) = match found {
        Some(library) => (library.path.clone(), toolkit(&library.path)),
        None => in_toolkit().map(|(toolkit, folder)| (folder.path.join(name), Some(toolkit)))?,
    };
    let evidence = Evidence::new(name, "is here").at(&path).said_by(HERE);
    if of.is_some_and(|toolkit| !fits_torch(case, toolkit)) {
        let advice = "build or install what needs it anew, for the torch that is installed: it was made for another CUDA";
        return Some((vec![evidence], vec![Fix::advice(advice)]));
    }
    let folder = HostPath::from(path.parent()?);
    Some((vec![evidence], vec![Fix::prepend("LD_LIBRARY_PATH", &folder, "for this program")]))
}

/// A g++ that is installed and that nvcc and torch take.
fn compiler(case: &Case<'_>, id: ProblemId, caught: &Caught<'_>) -> Option<Answer> {
    let pair = pair(case).ok()?.ok()?;
    let said = caught.text("limit").and_then(|limit| limit.parse::<Dotted>().ok()).map(|limit| limit.major());
    let most = said.or(pair.limits.gcc)?;
    let fits = |one: &Compiler| {
        let right = |version: &Dotted| (lowest(case)..=most).contains(&version.major());
        one.family == Family::Gcc && one.language == Language::Cxx && one.version.as_ref().is_some_and(right)
    };
    // How to get an older one is no cure for one that is too old.
    if id == "gcc-too-old-for-torch" && !case.facts.compilers.value().is_some_and(|all| all.iter().any(fits)) {
        return None;
    }
    let fixes = older_gcc(case, &pair, most, id);
    let here = Evidence::new("host compiler", pair.version.to_string()).at(&pair.compiler.real).said_by("what nvcc runs here");
    Some((vec![here], fixes))
}

/// Another libstdc++ on this machine that has the version, as conda brings one.
fn newer_libstdcxx(case: &Case<'_>, version: &str) -> Option<Answer> {
    let (family, needed) = version.split_once('_')?;
    let needed: Dotted = needed.parse().ok()?;
    let offers = |library: &&Library| library.elf.value().and_then(|elf| elf.highest_definition(family)).is_some_and(|have| have >= needed);
    let named = |library: &&Library| library.name == "libstdc++.so.6";
    let python = case.python().ok().flatten();
    let own = |library: &Library| python.is_some_and(|python| library.path.starts_with(&python.prefix));
    let library =
        case.facts.loader.value()?.of("stdc++").filter(named).filter(offers).min_by_key(|library| (!own(library), library.path.clone()))?;
    let evidence = Evidence::new("libstdc++.so.6", format!("has `{version}`")).at(&library.path).said_by(HERE);
    let conda = python.is_some_and(|python| python.kind == EnvironmentKind::Conda && own(library));
    let why = if conda { "the environment's own libstdc++, for this program alone" } else { "that libstdc++, for this program alone" };
    Some((vec![evidence], vec![Fix::prepend("LD_PRELOAD", &library.path, why).review()]))
}
