//! What `import torch` needs of the dynamic loader and does not get.

use super::driver_libs::source;
use super::remedy::pip_install;
use super::{Case, Check, Judgement, Verdict};
use crate::facts::loader::{FAMILIES, Library};
use crate::facts::observed::Missing;
use crate::facts::python::EnvironmentKind;
use crate::facts::source::Source;
use crate::facts::toolkit::{Layout, LibFolderKind, Toolkit};
use crate::facts::torch::Torch;
use crate::finding::{Evidence, Finding, Fix};
use crate::model::loader::{Answer, Process, Unmet};
use crate::text::join;
use std::collections::BTreeSet;

pub const CHECKS: &[Check] = &[
    Check { id: "libcudart-not-found", run: cudart },
    Check { id: "cudnn-not-found", run: cudnn },
    Check { id: "runtime-lib-not-on-loader-path", run: others },
];

/// Libraries of CUDA that torch uses: family, NVIDIA's package on PyPI without `-cu12`, conda-forge's package.
const PACKAGES: &[(&str, &str, &str)] = &[
    ("cudart", "nvidia-cuda-runtime", "cuda-cudart"),
    ("cublas", "nvidia-cublas", "libcublas"),
    ("cublasLt", "nvidia-cublas", "libcublas"),
    ("cudnn", "nvidia-cudnn", "cudnn"),
    ("cufft", "nvidia-cufft", "libcufft"),
    ("cufile", "nvidia-cufile", "libcufile"),
    ("cupti", "nvidia-cuda-cupti", "cuda-cupti"),
    ("curand", "nvidia-curand", "libcurand"),
    ("cusolver", "nvidia-cusolver", "libcusolver"),
    ("cusparse", "nvidia-cusparse", "libcusparse"),
    ("nccl", "nvidia-nccl", "nccl"),
    ("nvjitlink", "nvidia-nvjitlink", "libnvjitlink"),
    ("nvrtc", "nvidia-cuda-nvrtc", "cuda-nvrtc"),
    ("nvtx", "nvidia-nvtx", "cuda-nvtx"),
];

/// The family of a name, where it is a library of CUDA that torch uses; not the driver's, not the compiler's.
pub fn family(name: &str) -> Option<&'static str> {
    let (family, _) =
        FAMILIES.iter().find(|(_, start)| name.strip_prefix(start).is_some_and(|rest| rest.is_empty() || rest.starts_with('.')))?;
    is_cuda(family).then_some(*family)
}

pub fn is_cuda(family: &str) -> bool {
    PACKAGES.iter().any(|(known, ..)| *known == family)
}

/// torch for CUDA and a process that imported it.
///
/// # Errors
/// When torch or the libraries could not be looked at.
pub fn importing<'c, 'a>(case: &'c Case<'a>) -> Result<Result<(&'a Torch, &'c Process<'a>), Verdict>, Missing> {
    let Some(torch) = case.torch()? else { return Ok(Err(Verdict::not_applicable("no torch"))) };
    if torch.cuda.is_none() {
        return Ok(Err(Verdict::not_applicable("this torch is not built for CUDA")));
    }
    if torch.libs.is_empty() {
        return Err(Missing { topic: "torch's libraries", why: "what they need is not known".to_owned(), failed: false });
    }
    let process = case.process()?;
    // Without torch's own files nothing tells what it loads.
    if let Some(own) = process.unmet().iter().find(|unmet| unmet.name.contains('/')) {
        return Err(Missing {
            topic: "torch's libraries",
            why: format!("`{}` is not there, or could not be read", own.name),
            failed: false,
        });
    }
    Ok(Ok((torch, process)))
}

/// Names of these families that torch's libraries need and do not get, where the import fails. All of them, though the loader stops at the
/// first.
fn unmet(case: &Case<'_>, torch: &Torch, process: &Process<'_>, wanted: fn(&str) -> bool) -> Result<Vec<Unmet>, Missing> {
    let mut all: Vec<Unmet> = Vec::new();
    if !process.import_fails() {
        return Ok(all);
    }
    let needs = torch.libs.iter().flat_map(|(lib, elf)| elf.needed.iter().map(move |name| (lib, elf, name)));
    for (lib, elf, name) in needs.filter(|(.., name)| family(name).is_some_and(wanted)) {
        if all.iter().any(|known| known.name == *name) {
            continue;
        }
        let by = torch.path.join("lib").join(lib);
        let answer = process.object_gets(&by, elf, name);
        match &answer {
            Answer::Found { .. } => continue,
            Answer::Unknown { why } => return Err(Missing { topic: "libraries", why: why.clone(), failed: false }),
            Answer::NotFound { no_cache: true } if elsewhere(case, name) => {
                let why = format!("there is no `/etc/ld.so.cache`, and a folder that it may list has `{name}`");
                return Err(Missing { topic: "loader's cache", why, failed: false });
            }
            Answer::Refused { .. } | Answer::NotFound { .. } => all.push(Unmet { name: name.clone(), by, answer }),
        }
    }
    Ok(all)
}

/// A good copy lies in some folder.
fn elsewhere(case: &Case<'_>, name: &str) -> bool {
    case.facts
        .loader
        .value()
        .into_iter()
        .flat_map(|loader| &loader.libraries)
        .any(|library| library.name == name && library.elf.value().is_some())
}

fn cudart(case: &Case<'_>) -> Judgement {
    missing(case, "libcudart-not-found", |family| family == "cudart")
}

fn cudnn(case: &Case<'_>) -> Judgement {
    missing(case, "cudnn-not-found", |family| family == "cudnn")
}

fn others(case: &Case<'_>) -> Judgement {
    missing(case, "runtime-lib-not-on-loader-path", |family| !matches!(family, "cudart" | "cudnn"))
}

fn missing(case: &Case<'_>, id: &'static str, wanted: fn(&str) -> bool) -> Judgement {
    let (torch, process) = match importing(case)? {
        Ok(both) => both,
        Err(verdict) => return Ok(verdict),
    };
    let mut unmet = unmet(case, torch, process, wanted)?;
    // A libcudart that is no library has an id of its own.
    unmet.retain(|unmet| id != "libcudart-not-found" || matches!(unmet.answer, Answer::NotFound { .. }));
    let Some(first) = unmet.first() else { return Ok(Verdict::Pass) };
    let names: Vec<String> = unmet.iter().map(|unmet| format!("`{}`", unmet.name)).collect();
    let (title, then) = match &first.answer {
        Answer::Refused { path, why, .. } => (
            format!("torch needs {}, and the first file of that name that the loader meets is no library: {why}", join(&names)),
            format!("`import torch` stops with `{path}: {}`", refusal(why)),
        ),
        _ => (
            format!("torch {} needs {}, and the loader finds no such file", torch.version, join(&names)),
            format!("`import torch` stops with `{}: cannot open shared object file: No such file or directory`", first.name),
        ),
    };
    let mut finding = Finding::error(id, title).then(then);
    for unmet in &unmet {
        let evidence = match &unmet.answer {
            Answer::Refused { path, why, .. } => Evidence::new(&unmet.name, why.clone()).at(path).from(&source(case, path)),
            _ => Evidence::new("needed", unmet.name.clone()).at(&unmet.by).said_by("NEEDED"),
        };
        finding = finding.seen(evidence);
    }
    finding = finding.seen(Evidence::new("looked", "torch's own RPATH, LD_LIBRARY_PATH, /etc/ld.so.cache, default folders"));
    if let Some(other) = of_another_machine(case, process, &first.name) {
        finding = finding.seen(Evidence::new("passed over", "for another processor").at(&other.path).from(&source(case, &other.path)));
    }
    let wanted: Vec<&str> = unmet.iter().map(|unmet| unmet.name.as_str()).collect();
    Ok(Verdict::found(provided(case, torch, &wanted, id).into_iter().fold(finding, Finding::fix)))
}

/// The loader's words for a file that it refuses.
fn refusal(why: &str) -> &'static str {
    if why.contains("ELF") { "invalid ELF header" } else { "file too short" }
}

/// A file of this name in a folder that is searched, which the loader passes over without a word.
fn of_another_machine<'a>(case: &Case<'a>, process: &Process<'_>, name: &str) -> Option<&'a Library> {
    let libraries = &case.facts.loader.value()?.libraries;
    let other = |library: &&Library| {
        library.elf.value().is_some_and(|elf| process.machine().is_some_and(|own| own != (elf.machine, elf.class_bits)))
    };
    let searched = |library: &&Library| {
        library.sources.iter().any(|source| matches!(source, Source::Entry { .. } | Source::LdCache | Source::DefaultFolder))
    };
    libraries.iter().filter(|library| library.name == name).filter(searched).find(other)
}

/// How torch gets libraries: from the toolkit of its own release, or from the packages that it was installed with.
fn provided(case: &Case<'_>, torch: &Torch, names: &[&str], id: &'static str) -> Vec<Fix> {
    let has = |folder: &&crate::facts::toolkit::LibFolder| {
        folder.kind != LibFolderKind::Stubs && names.iter().all(|name| folder.files.iter().any(|file| file == name))
    };
    let folder = case
        .toolkits()
        .iter()
        .filter(|toolkit| toolkit.release().is_some() && toolkit.release() == torch.cuda)
        .find_map(|toolkit| toolkit.torch_lib().into_iter().chain(&toolkit.libs).find(has));
    if let Some(folder) = folder {
        return vec![Fix::prepend("LD_LIBRARY_PATH", &folder.path, "the toolkit of torch's own release; nothing else has the library")];
    }
    let families: Vec<&str> = names.iter().filter_map(|name| family(name)).collect();
    let rows: Vec<&(&str, &str, &str)> = PACKAGES.iter().filter(|(family, ..)| families.contains(family)).collect();
    let by_pip = torch.requires.iter().any(|(name, _)| name.starts_with("nvidia-") || name == "cuda-toolkit");
    let conda = case.python().ok().flatten().is_some_and(|python| python.kind == EnvironmentKind::Conda);
    let release = torch.cuda.map(|cuda| cuda.to_string()).unwrap_or_default();
    if by_pip {
        let packages: BTreeSet<String> = rows.iter().filter_map(|(_, stem, _)| pinned(case, torch, stem)).collect();
        if !packages.is_empty() {
            let options = ["--force-reinstall", "--no-deps"].map(str::to_owned);
            return vec![pip_install(case, options.into_iter().chain(packages), "puts back what torch was installed with").curing(id)];
        }
        let again = ["--force-reinstall".to_owned(), format!("torch=={}", torch.version)];
        return vec![pip_install(case, again, "with everything that it needs").curing(id)];
    }
    if conda {
        let packages: BTreeSet<&str> = rows.iter().map(|(.., conda)| *conda).collect();
        let argv = ["conda", "install", "-y", "-c", "conda-forge"].into_iter().chain(packages).map(str::to_owned);
        return vec![Fix::run(argv.chain([format!("cuda-version={release}")]), "into this environment").curing(id)];
    }
    vec![Fix::advice(format!("install CUDA's runtime libraries of release {release}, which this torch was built for")).curing(id)]
}

/// NVIDIA's package in the version that torch asks for, else in the one that is installed.
pub fn pinned(case: &Case<'_>, torch: &Torch, stem: &str) -> Option<String> {
    let fits = |name: &str| name.strip_prefix(stem).is_some_and(|rest| rest.is_empty() || rest.starts_with("-cu"));
    if let Some((name, version)) =
        torch.requires.iter().find_map(|(name, wanted)| Some((name, wanted.strip_prefix("==")?)).filter(|_| fits(name)))
    {
        return Some(format!("{name}=={version}"));
    }
    let tag = torch.cuda.map(|cuda| format!("-cu{}", cuda.major)).unwrap_or_default();
    let packages = &case.python().ok()??.packages;
    let own = packages.iter().find(|package| fits(&package.name) && (package.name == stem || package.name.ends_with(&tag)))?;
    Some(format!("{}=={}", own.name, own.version))
}

/// The toolkit that a library belongs to.
pub fn owner<'a>(case: &Case<'a>, library: &Library) -> Option<&'a Toolkit> {
    let folder = library.path.parent()?;
    let in_libs = |toolkit: &&Toolkit| toolkit.libs.iter().any(|lib| *lib.path == *folder || lib.also.iter().any(|also| **also == *folder));
    let below = |toolkit: &&Toolkit| toolkit.layout == Layout::Nvidia && library.real.starts_with(&toolkit.real);
    case.toolkits().iter().find(in_libs).or_else(|| case.toolkits().iter().find(below))
}

#[cfg(test)]
#[expect(clippy::unwrap_used)]
mod tests {
    use super::super::loader_impostor;
    use super::super::sample::{SYSTEM_LIB, add, ask, cache, found, loader, machine, one, quiet, wheels, with_torch};
    use super::*;
    use crate::facts::elf::Machine;
    use crate::facts::observed::Observed;
    use crate::facts::snapshot::Snapshot;
    use crate::finding::Action;

    #[test]
    fn whole_machines_are_quiet() {
        let mut cpu = machine();
        with_torch(&mut cpu, "2.5.1+cpu", "12.4", &[]).cuda = None;
        for facts in [machine(), wheels(&[]), cpu] {
            for check in CHECKS {
                assert!(quiet(&ask(check.run, &facts)), "{}", check.id);
            }
        }
    }

    #[test]
    fn a_package_that_is_gone() {
        let facts = wheels(&["libcudart.so.12"]);
        let finding = one(ask(cudart, &facts));
        assert!(finding.consequence.contains("`libcudart.so.12: cannot open shared object file"), "{}", finding.consequence);
        assert!(
            matches!(&finding.fixes[0].action, Action::Run { argv, .. } if argv.last().unwrap() == "nvidia-cuda-runtime-cu12==12.4.127")
        );
        assert!(quiet(&ask(cudnn, &facts)) && quiet(&ask(others, &facts)));
        assert_eq!(one(ask(cudnn, &wheels(&["libcudnn.so.9"]))).id, "cudnn-not-found");
        assert!(one(ask(others, &wheels(&["libcublas.so.12"]))).title.contains("`libcublas.so.12`"));
    }

    #[test]
    fn any_search_that_finds_it_will_do() {
        for by_cache in [false, true] {
            let mut facts = wheels(&["libcudart.so.12"]);
            let path = "/usr/local/cuda-12.4/lib64/libcudart.so.12";
            add(&mut facts, path, Source::UsualPlace);
            assert_eq!(found(ask(cudart, &facts)).len(), 1);
            if by_cache {
                cache(&mut facts, path)
            } else {
                facts.env.set("LD_LIBRARY_PATH", "/usr/local/cuda-12.4/lib64")
            }
            assert!(quiet(&ask(cudart, &facts)), "{by_cache}");
        }
    }

    #[test]
    fn without_a_cache_nobody_knows() {
        let mut facts = wheels(&["libcudart.so.12"]);
        loader(&mut facts).cache = Observed::absent(["/etc/ld.so.cache"]);
        assert_eq!(found(ask(cudart, &facts)).len(), 1, "there is no copy anywhere");
        add(&mut facts, "/usr/local/cuda-12.4/lib64/libcudart.so.12", Source::UsualPlace);
        assert!(ask(cudart, &facts).is_err(), "one made later may list the folder");
    }

    #[test]
    fn torch_whose_files_are_not_known() {
        let mut facts = wheels(&[]);
        let torch = |facts: &mut Snapshot| facts.pythons.value().unwrap()[0].torch.value().unwrap().clone();
        let mut assumed = torch(&mut facts);
        assumed.libs.clear();
        facts.pythons.value_mut().unwrap()[0].torch = Observed::seen(assumed);
        for check in CHECKS {
            assert!(ask(check.run, &facts).is_err(), "{}", check.id);
        }
    }

    #[test]
    fn a_broken_one_is_told_once() {
        let mut facts = wheels(&[]);
        loader(&mut facts).libraries[0].elf = Observed::failed("an empty file");
        assert_eq!(found(ask(loader_impostor::CHECKS[0].run, &facts)).len(), 1);
        assert!(quiet(&ask(cudart, &facts)), "libcudart-impostor says it");
        loader(&mut facts).libraries[2].elf = Observed::failed("not an ELF file");
        assert!(one(ask(cudnn, &facts)).consequence.contains("invalid ELF header"));
    }

    #[test]
    fn files_for_another_processor_are_named() {
        let mut facts = wheels(&["libcudart.so.12"]);
        add(&mut facts, &format!("{SYSTEM_LIB}/libcudart.so.12"), Source::DefaultFolder).elf.value_mut().unwrap().machine =
            Machine::AARCH64;
        assert!(one(ask(cudart, &facts)).evidence.iter().any(|evidence| evidence.value == "for another processor"));
    }

    #[test]
    fn families_of_cuda() {
        assert_eq!(
            (family("libcublasLt.so.12"), family("libcuda.so.1"), family("libstdc++.so.6"), family("libcudnn_ops.so.9")),
            (Some("cublasLt"), None, None, None)
        );
    }
}
