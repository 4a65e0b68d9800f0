//! Folders that come before torch's own on the loader's search, and what they put in the place of torch's libraries.

use super::driver_libs::{library_at, source, taken_out};
use super::loader::{importing, is_cuda, owner, pinned};
use super::remedy::pip_install;
use super::{Case, Check, Judgement, Verdict};
use crate::facts::loader::Library;
use crate::facts::observed::Missing;
use crate::facts::source::Source;
use crate::facts::torch::Torch;
use crate::finding::{Evidence, Finding, Severity};
use crate::model::loader::{Answer, Process, Via};
use crate::version::{CudaVersion, Dotted};
use std::cmp::Ordering;

pub const CHECKS: &[Check] =
    &[Check { id: "ld-library-path-overrides-torch-libs", run: overrides }, Check { id: "nccl-system-vs-torch", run: nccl }];

const VARIABLE: &str = "LD_LIBRARY_PATH";

/// A library that torch's process has from elsewhere, though torch's environment holds a copy.
struct Foreign<'a> {
    library: &'a Library,
    via: Via,
    own: &'a Library,
}

/// It lies where torch's own do: in torch's folder, in one that its RPATH names, in NVIDIA's packages of the same site folder.
fn is_own(torch: &Torch, library: &Library) -> bool {
    let site = torch.path.parent();
    library.sources.iter().any(|source| match source {
        Source::Beside { path } => *path == torch.path,
        Source::Pip { site: other } => Some(&**other) == site,
        _ => false,
    })
}

/// What is loaded, or would be when torch opens it later, and is not torch's own.
fn foreign<'a>(case: &Case<'a>, torch: &Torch, process: &Process<'_>) -> Vec<Foreign<'a>> {
    let libraries = case.facts.loader.value().map_or(&[][..], |loader| loader.libraries.as_slice());
    let mut all: Vec<Foreign<'a>> = Vec::new();
    for own in libraries.iter().filter(|library| is_cuda(&library.family) && library.elf.value().is_some() && is_own(torch, library)) {
        let loaded = process.loaded().map(|(path, via)| Answer::Found { path: path.clone(), via: via.clone() });
        let answers = loaded
            .filter(|answer| answer.path().is_some_and(|path| path.file_name() == own.path.file_name()))
            .chain([process.torch_gets(&own.name)]);
        for answer in answers {
            let Answer::Found { path, via } = answer else { continue };
            let in_front = matches!(via, Via::LibraryPath { .. } | Via::Cache | Via::DefaultFolder | Via::Preloaded);
            let Some(library) = library_at(case, &path).filter(|library| in_front && !is_own(torch, library) && library.real != own.real)
            else {
                continue;
            };
            if !all.iter().any(|known| known.library.path == library.path) {
                all.push(Foreign { library, via, own });
            }
        }
    }
    all
}

/// The CUDA release of a library: that of its toolkit; its own number, where the library is numbered as CUDA is.
fn cuda_of(case: &Case<'_>, library: &Library) -> Option<CudaVersion> {
    let numbered = matches!(library.family.as_str(), "cudart" | "nvjitlink" | "nvrtc");
    let own = library.release.as_ref().filter(|release| numbered && release.parts.len() > 1);
    own.map(|release| CudaVersion::new(release.major(), release.minor())).or_else(|| owner(case, library)?.release())
}

/// How the foreign release stands to torch's, by the numbers that matter (updates of one minor release fit each other), and both in words.
/// `None` where it cannot be told.
fn compared(case: &Case<'_>, torch: &Torch, foreign: &Foreign<'_>) -> Option<(Ordering, String, String)> {
    let minor = |release: &Dotted| (release.major(), release.minor());
    if let (Some(theirs), Some(own)) = (&foreign.library.release, &foreign.own.release) {
        return Some((minor(theirs).cmp(&minor(own)), theirs.to_string(), own.to_string()));
    }
    let (theirs, own) = (cuda_of(case, foreign.library)?, torch.cuda?);
    Some((theirs.cmp(&own), format!("of CUDA {theirs}"), format!("of CUDA {own}")))
}

fn overrides(case: &Case<'_>) -> Judgement {
    const ID: &str = "ld-library-path-overrides-torch-libs";
    let (torch, process) = match importing(case)? {
        Ok(both) => both,
        Err(verdict) => return Ok(verdict),
    };
    if process.import_fails() {
        return Ok(Verdict::not_applicable("the import of torch stops before"));
    }
    let mut findings: Vec<Finding> = Vec::new();
    for foreign in foreign(case, torch, process).iter().filter(|foreign| foreign.library.family != "nccl") {
        let Some((order, theirs, own)) = compared(case, torch, foreign) else { continue };
        // A newer one has what an older one had: a state, as long as nothing says more.
        let severity = match order {
            Ordering::Less => Severity::Warning,
            Ordering::Greater => Severity::Info,
            Ordering::Equal => continue,
        };
        let name = &foreign.library.name;
        let folder = foreign.library.path.parent().map(|folder| folder.to_string_lossy().into_owned()).unwrap_or_default();
        let here = source(case, &foreign.library.path);
        let seen = |finding: Finding| {
            finding
                .seen(Evidence::new(name, theirs.clone()).at(&foreign.library.path).from(&here))
                .seen(Evidence::new("torch's own", own.clone()).at(&foreign.own.path))
        };
        // One finding for each folder.
        if let Some(known) = findings.iter_mut().find(|finding| finding.subject == folder && finding.severity == severity) {
            *known = seen(known.clone());
            continue;
        }
        let title = format!("torch gets `{name}` {theirs} {}, in front of its own {own}", via_words(&foreign.via));
        let then = match (order, cuda_of(case, foreign.own).or(torch.cuda).filter(|_| foreign.own.family == "nvjitlink")) {
            (Ordering::Less, Some(cuda)) => {
                format!(
                    "`import torch` or the first call stops with `undefined symbol: __nvJitLinkCreate_{}_{}, version {name}`",
                    cuda.major, cuda.minor
                )
            }
            (Ordering::Less, None) => {
                format!("functions that torch's libraries expect may be missing: `undefined symbol …, version {name}`")
            }
            _ => "torch runs with another release than it was tested with".to_owned(),
        };
        findings.push(seen(Finding::new(ID, severity, title).about(folder).then(then).fix(taken_out(
            case,
            foreign.library,
            &foreign.via,
            ID,
        ))));
    }
    Ok(Verdict::of(findings))
}

fn via_words(via: &Via) -> String {
    match via {
        Via::LibraryPath { entry } => format!("from the {} entry of {VARIABLE}", crate::facts::source::ordinal(*entry)),
        Via::Cache => "from a folder in /etc/ld.so.conf".to_owned(),
        Via::DefaultFolder => "from the system's folder".to_owned(),
        Via::Preloaded => "by LD_PRELOAD".to_owned(),
        Via::Rpath { .. } | Via::Runpath { .. } | Via::ByPath => "from elsewhere".to_owned(),
    }
}

fn nccl(case: &Case<'_>) -> Judgement {
    const ID: &str = "nccl-system-vs-torch";
    let (torch, process) = match importing(case)? {
        Ok(both) => both,
        Err(verdict) => return Ok(verdict),
    };
    if process.import_fails() {
        return Ok(Verdict::not_applicable("the import of torch stops before"));
    }
    if !torch.libs.values().flat_map(|elf| &elf.needed).any(|name| name.starts_with("libnccl.so")) {
        return Ok(Verdict::not_applicable("this torch holds its own NCCL, or none"));
    }
    let number = |release: &Dotted| (release.major(), release.minor(), release.part(2));
    if let Some(foreign) = foreign(case, torch, process).into_iter().find(|foreign| foreign.library.family == "nccl") {
        let (Some(theirs), Some(own)) = (&foreign.library.release, &foreign.own.release) else {
            return Err(Missing {
                topic: "NCCL",
                why: format!("the release of `{}` could not be read", foreign.library.path),
                failed: false,
            });
        };
        let severity = match number(theirs).cmp(&number(own)) {
            Ordering::Equal => return Ok(Verdict::Pass),
            Ordering::Less => Severity::Warning,
            Ordering::Greater => Severity::Info,
        };
        let then = match severity {
            Severity::Info => {
                "it works where all nodes have the same one; another release on another node makes communicators fail or hang"
            }
            _ => {
                "functions that torch calls may be missing (`libtorch_cuda.so: undefined symbol: ncclCommRegister`), and nodes with another release do not join"
            }
        };
        let title = format!("torch gets NCCL {theirs} {}, in front of its own {own}", via_words(&foreign.via));
        let finding = Finding::new(ID, severity, title)
            .seen(Evidence::new("NCCL", theirs.to_string()).at(&foreign.library.path).from(&source(case, &foreign.library.path)))
            .seen(Evidence::new("torch's own", own.to_string()).at(&foreign.own.path))
            .then(then)
            .fix(taken_out(case, foreign.library, &foreign.via, ID));
        return Ok(Verdict::found(finding));
    }
    // torch's own was written over by an older one. Newer ones are put there on purpose.
    let (Some((package, wanted)), Answer::Found { path, .. }) = (&torch.nccl, process.torch_gets("libnccl.so.2")) else {
        return Ok(Verdict::Pass);
    };
    let Some(library) = library_at(case, &path) else { return Ok(Verdict::Pass) };
    let Some(release) = library.release.as_ref().filter(|release| number(release) < number(wanted)) else { return Ok(Verdict::Pass) };
    let finding = Finding::warning(ID, format!("torch {} asks for NCCL {wanted}, and the one that it gets is {release}", torch.version))
        .seen(Evidence::new("NCCL", release.to_string()).at(&path).said_by(library.release_from.clone()))
        .seen(Evidence::new(package, format!("=={wanted}")).at(&torch.path).said_by("torch's metadata"))
        .then("functions that torch calls may be missing: `libtorch_cuda.so: undefined symbol: ncclCommRegister`");
    let options = ["--force-reinstall", "--no-deps"].map(str::to_owned);
    let packages = pinned(case, torch, "nvidia-nccl").unwrap_or_else(|| format!("{package}=={wanted}"));
    Ok(Verdict::found(finding.fix(pip_install(case, options.into_iter().chain([packages]), "the release that torch asks for").curing(ID))))
}

#[cfg(test)]
#[expect(clippy::unwrap_used)]
mod tests {
    use super::super::sample::{SITE, SYSTEM_LIB, add, ask, elf, machine, one, quiet, with_torch};
    use super::*;
    use crate::facts::observed::Observed;
    use crate::facts::snapshot::Snapshot;
    use crate::finding::Action;

    /// torch 2.5 with NVIDIA's packages: libcusparse pulls libnvJitLink by RUNPATH, so LD_LIBRARY_PATH comes before it.
    fn wheels() -> Snapshot {
        let mut facts = machine();
        with_torch(&mut facts, "2.5.1+cu124", "12.4", &["libcusparse.so.12", "libnccl.so.2"]);
        let mut own = |folder: &str, name: &str, release: &str| {
            let library = add(&mut facts, &format!("{SITE}/nvidia/{folder}/lib/{name}"), Source::Pip { site: SITE.into() });
            library.release = Some(release.parse().unwrap());
            let needed: &[&str] = if folder == "cusparse" { &["libnvJitLink.so.12"] } else { &[] };
            let mut elf = elf(name, needed);
            elf.runpath = Some(vec!["$ORIGIN/../../nvjitlink/lib".to_owned()]);
            library.elf = Observed::seen(elf);
        };
        own("cusparse", "libcusparse.so.12", "12.3.1.170");
        own("nvjitlink", "libnvJitLink.so.12", "12.4.127");
        own("nccl", "libnccl.so.2", "2.21.5");
        facts
    }

    fn with_toolkit(libraries: &[(&str, &str)]) -> Snapshot {
        let mut facts = wheels();
        for (name, release) in libraries {
            add(&mut facts, &format!("/opt/cuda/lib64/{name}"), Source::entry(VARIABLE, 1)).release = Some(release.parse().unwrap());
        }
        facts.env.set(VARIABLE, "/opt/cuda/lib64/:/other");
        facts
    }

    #[test]
    fn whole_machines_are_quiet() {
        for facts in [machine(), wheels(), with_toolkit(&[("libnvJitLink.so.12", "12.4.99"), ("libcusparse.so.12", "12.3.0.142")])] {
            for check in CHECKS {
                assert!(quiet(&ask(check.run, &facts)), "{}", check.id);
            }
        }
    }

    #[test]
    fn an_older_library_in_front() {
        let facts = with_toolkit(&[("libnvJitLink.so.12", "12.1.105"), ("libcusparse.so.12", "12.1.0.106")]);
        let finding = one(ask(overrides, &facts));
        assert!(
            finding.title.starts_with("torch gets `libnvJitLink.so.12` 12.1.105 from the 1st entry of LD_LIBRARY_PATH"),
            "{}",
            finding.title
        );
        assert!(finding.consequence.contains("__nvJitLinkCreate_12_4, version libnvJitLink.so.12"), "{}", finding.consequence);
        assert_eq!(finding.severity, Severity::Warning);
        assert!(
            matches!(&finding.fixes[0].action, Action::RemovePath { dir, .. } if dir.to_string() == "/opt/cuda/lib64/"),
            "as it is written"
        );
        assert_eq!(finding.evidence.len(), 2, "libcusparse comes by torch's RPATH");
    }

    #[test]
    fn a_newer_library_is_a_state() {
        assert_eq!(one(ask(overrides, &with_toolkit(&[("libnvJitLink.so.12", "12.8.93")]))).severity, Severity::Info);
    }

    #[test]
    fn torch_that_loads_its_own_first() {
        let mut facts = with_toolkit(&[("libnvJitLink.so.12", "12.1.105")]);
        let python = &mut facts.pythons.value_mut().unwrap()[0];
        let torch = python.torch.value_mut().unwrap();
        torch.version = "2.10.0+cu124".parse().unwrap();
        for name in ["libtorch_global_deps.so", "libtorch_cuda.so"] {
            torch.libs.get_mut(name).unwrap().needed.push("libcudart.so.12".to_owned());
        }
        add(&mut facts, &format!("{SITE}/nvidia/cuda_runtime/lib/libcudart.so.12"), Source::Pip { site: SITE.into() });
        let torch = facts.pythons.value_mut().unwrap()[0].torch.value_mut().unwrap();
        torch.libs.get_mut("libtorch_global_deps.so").unwrap().needed = vec!["libcudart.so.12".to_owned()];
        // 2.6 and later open libnvrtc, then libnvJitLink.
        add(&mut facts, &format!("{SITE}/nvidia/cuda_nvrtc/lib/libnvrtc.so.12"), Source::Pip { site: SITE.into() });
        facts.pythons.value_mut().unwrap()[0].torch.value_mut().unwrap().version = "2.7.1+cu124".parse().unwrap();
        assert!(quiet(&ask(overrides, &facts)));
    }

    #[test]
    fn nccl_of_the_system() {
        let preloaded = |release: &str| {
            let mut facts = wheels();
            let path = format!("{SYSTEM_LIB}/libnccl.so.2");
            add(&mut facts, &path, Source::DefaultFolder).release = Some(release.parse().unwrap());
            facts.env.set("LD_PRELOAD", path);
            ask(nccl, &facts)
        };
        assert_eq!(one(preloaded("2.18.3")).severity, Severity::Warning);
        assert_eq!(one(preloaded("2.26.2")).severity, Severity::Info);
        assert!(quiet(&preloaded("2.21.5")));
        let mut facts = wheels();
        add(&mut facts, &format!("{SYSTEM_LIB}/libnccl.so.2"), Source::DefaultFolder).release = Some("2.18.3".parse().unwrap());
        assert!(quiet(&ask(nccl, &facts)), "it lies there, and torch has its own");
    }

    #[test]
    fn an_nccl_that_was_written_over() {
        let mut facts = wheels();
        let torch = facts.pythons.value_mut().unwrap()[0].torch.value_mut().unwrap();
        torch.nccl = Some(("nvidia-nccl-cu12".to_owned(), "2.26.2".parse().unwrap()));
        let finding = one(ask(nccl, &facts));
        assert!(finding.title.contains("asks for NCCL 2.26.2") && finding.title.ends_with("2.21.5"), "{}", finding.title);
        let torch = facts.pythons.value_mut().unwrap()[0].torch.value_mut().unwrap();
        torch.nccl = Some(("nvidia-nccl-cu12".to_owned(), "2.20.5".parse().unwrap()));
        assert!(quiet(&ask(nccl, &facts)), "a newer one is put there on purpose");
    }
}
