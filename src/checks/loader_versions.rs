//! Packages that write over each other's libraries, and libraries of the system that are older than what torch needs.

use super::driver_libs::{library_at, source, taken_out};
use super::loader::pinned;
use super::remedy::pip_install;
use super::torch::shown;
use super::{Case, Check, Judgement, Verdict};
use crate::facts::elf::ElfFacts;
use crate::facts::observed::Missing;
use crate::facts::python::{EnvironmentKind, Package};
use crate::facts::torch::Torch;
use crate::finding::{Evidence, Finding, Fix};
use crate::model::loader::{Answer, Via};
use crate::text::join;
use crate::version::Dotted;
use std::collections::BTreeMap;

pub const CHECKS: &[Check] = &[
    Check { id: "two-cuda-families", run: families },
    Check { id: "glibcxx-not-found", run: glibcxx },
    Check { id: "glibc-not-found", run: glibc },
];

/// Packages whose files have the same names for two CUDA majors, by the name between `nvidia-` and `-cu12`; the second: only for 11 beside
/// 12, since those for 13 lie in a folder of their own. Source: contents of NVIDIA's packages on PyPI.
const SAME_FILES: &[(&str, bool)] =
    &[("nccl", false), ("cudnn", false), ("nvshmem", false), ("cusparselt", false), ("curand", true), ("cusolver", true), ("nvtx", true)];

/// `nccl` and 12 of `nvidia-nccl-cu12`.
fn stem_and_major(name: &str) -> Option<(&str, u32)> {
    let (stem, major) = name.strip_prefix("nvidia-")?.rsplit_once("-cu")?;
    Some((stem, major.parse().ok()?))
}

fn families(case: &Case<'_>) -> Judgement {
    const ID: &str = "two-cuda-families";
    let Some(torch) = case.torch()? else { return Ok(Verdict::not_applicable("no torch")) };
    let Some(cuda) = torch.cuda else { return Ok(Verdict::not_applicable("this torch is not built for CUDA")) };
    let Some(python) = case.python()? else { return Ok(Verdict::not_applicable("no Python")) };
    let site = torch.path.parent();
    let mut by_stem: BTreeMap<&str, Vec<(u32, &Package)>> = BTreeMap::new();
    for package in python.packages.iter().filter(|package| Some(&*package.site) == site) {
        if let Some((stem, major)) = stem_and_major(&package.name) {
            by_stem.entry(stem).or_default().push((major, package));
        }
    }
    let same_files = |stem: &str, majors: &[(u32, &Package)]| {
        let row = SAME_FILES.iter().find(|(known, _)| *known == stem);
        row.is_some_and(|(_, old_only)| !old_only || majors.iter().filter(|(major, _)| *major < 13).count() > 1)
    };
    let clashing: Vec<(&str, &Vec<(u32, &Package)>)> = by_stem
        .iter()
        .filter(|(stem, majors)| majors.len() > 1 && same_files(stem, majors))
        .map(|(stem, majors)| (*stem, majors))
        .collect();
    if clashing.is_empty() {
        return Ok(beside(torch, cuda.major, &by_stem).map_or(Verdict::Pass, Verdict::found));
    }
    let stems: Vec<String> = clashing.iter().map(|(stem, _)| format!("`nvidia-{stem}`")).collect();
    let mut finding = Finding::warning(ID, format!("{} is installed for more than one CUDA major, and the copies have the same files", join(&stems)))
        .seen(shown(torch))
        .then("the one installed last has won, and removing one takes the files from both: torch may meet another NCCL or cuDNN than it was built for (`undefined symbol: ncclMemFree`, `CUDNN_STATUS_SUBLIBRARY_VERSION_MISMATCH`)");
    let (mut out, mut back) = (Vec::new(), Vec::new());
    for (stem, majors) in clashing {
        for (major, package) in majors {
            finding = finding.seen(Evidence::new(&package.name, package.version.to_string()).at(&package.site));
            if *major != cuda.major {
                out.push(package.name.clone());
            }
        }
        back.extend(pinned(case, torch, &format!("nvidia-{stem}")));
    }
    let start = [python.path.to_string(), "-m".to_owned(), "pip".to_owned()];
    let uninstall = ["uninstall", "-y"].map(str::to_owned);
    finding = finding.fix(
        Fix::run(start.into_iter().chain(uninstall).chain(out), "what torch does not use; it takes the shared files with it").curing(ID),
    );
    if !back.is_empty() {
        let options = ["--force-reinstall", "--no-deps"].map(str::to_owned);
        finding = finding.fix(pip_install(case, options.into_iter().chain(back), "puts the files of torch's own back").curing(ID));
    }
    Ok(Verdict::found(finding.fix(Fix::advice("make a new environment: torch first, and the others in the variant for its CUDA").or(1))))
}

/// Packages of another major that do not touch torch's files: a state.
fn beside(torch: &Torch, own: u32, by_stem: &BTreeMap<&str, Vec<(u32, &Package)>>) -> Option<Finding> {
    let others: Vec<&Package> = by_stem.values().flatten().filter(|(major, _)| *major != own).map(|(_, package)| *package).collect();
    let first = others.first()?;
    let finding = Finding::info("two-cuda-families", format!("packages of another CUDA major are beside those of torch: `{}`", first.name))
        .seen(shown(torch))
        .then("their libraries have other names, and one process may load both");
    Some(
        others
            .iter()
            .fold(finding, |finding, package| finding.seen(Evidence::new(&package.name, package.version.to_string()).at(&package.site))),
    )
}

/// The highest version of a family that torch's libraries need, and the library that needs it.
fn highest<'t>(torch: &'t Torch, family: &str) -> Option<(&'t String, Dotted)> {
    let needs = torch.libs.iter().filter_map(|(name, elf): (&String, &ElfFacts)| Some((name, elf.highest_need(family)?)));
    needs.max_by(|(_, one), (_, other)| one.cmp(other))
}

/// The gcc that brought a version of libstdc++. Source: GCC libstdc++ manual, ABI policy.
const GCC: &[(u32, u32)] = &[(21, 5), (22, 6), (24, 7), (25, 8), (28, 9), (29, 11), (30, 12), (32, 13), (33, 14), (34, 15)];

fn glibcxx(case: &Case<'_>) -> Judgement {
    const ID: &str = "glibcxx-not-found";
    const LIBRARY: &str = "libstdc++.so.6";
    let Some(torch) = case.torch()? else { return Ok(Verdict::not_applicable("no torch")) };
    let needs: Vec<(&str, &String, Dotted)> = ["GLIBCXX", "CXXABI"]
        .into_iter()
        .filter_map(|family| highest(torch, family).map(|(name, version)| (family, name, version)))
        .collect();
    if needs.is_empty() {
        return Ok(Verdict::not_applicable("torch's libraries need no version of libstdc++"));
    }
    let (path, via) = match case.process()?.torch_gets(LIBRARY) {
        Answer::Found { path, via } => (path, via),
        Answer::Unknown { why } => return Err(Missing { topic: "libraries", why, failed: false }),
        Answer::Refused { .. } | Answer::NotFound { .. } => {
            return Err(Missing { topic: "libraries", why: format!("the loader finds no {LIBRARY}"), failed: false });
        }
    };
    let library = library_at(case, &path);
    let elf = library.and_then(|library| library.elf.value());
    let Some((library, elf)) = library.zip(elf) else {
        return Err(Missing { topic: "libraries", why: format!("`{path}` could not be read"), failed: false });
    };
    for (family, by, needed) in needs {
        let Some(offered) = elf.highest_definition(family) else {
            return Err(Missing { topic: "libraries", why: format!("`{path}` says nothing of its versions"), failed: false });
        };
        if offered >= needed {
            continue;
        }
        let finding = Finding::error(
            ID,
            format!("torch {} needs `{family}_{needed}`, and the {LIBRARY} that loads has `{family}_{offered}` at most", torch.version),
        )
        .seen(Evidence::new("needed", format!("{family}_{needed}")).at(&torch.path.join("lib").join(by)))
        .seen(Evidence::new(LIBRARY, format!("{family}_{offered}")).at(&path).from(&source(case, &path)))
        .then(format!("`import torch` stops with ``{path}: version `{family}_{needed}' not found``"));
        let gcc = GCC.iter().find(|(number, _)| family == "GLIBCXX" && *number >= needed.part(2)).map(|(_, gcc)| gcc);
        let conda = case.python()?.is_some_and(|python| python.kind == EnvironmentKind::Conda && path.starts_with(&python.prefix));
        let fix = match via {
            Via::LibraryPath { .. } | Via::Preloaded => taken_out(case, library, &via, ID),
            _ if conda => {
                let package = gcc.map_or("libstdcxx-ng".to_owned(), |gcc| format!("libstdcxx-ng>={gcc}"));
                Fix::run(["conda", "install", "-y", "-c", "conda-forge", &package], "into this environment").curing(ID)
            }
            _ => Fix::advice("use a newer system or container, or a torch that was built for this one").curing(ID),
        };
        return Ok(Verdict::found(finding.fix(fix)));
    }
    Ok(Verdict::Pass)
}

fn glibc(case: &Case<'_>) -> Judgement {
    const ID: &str = "glibc-not-found";
    let Some(torch) = case.torch()? else { return Ok(Verdict::not_applicable("no torch")) };
    let Some((by, needed)) = highest(torch, "GLIBC") else {
        return Ok(Verdict::not_applicable("torch's libraries need no version of glibc"));
    };
    let Some(have) = case.facts.host.glibc.get("glibc")? else { return Ok(Verdict::not_applicable("this system has no glibc")) };
    if *have >= needed {
        return Ok(Verdict::Pass);
    }
    let finding = Finding::error(ID, format!("torch {} needs glibc {needed}, and this system has {have}", torch.version))
        .seen(Evidence::new("needed", format!("GLIBC_{needed}")).at(&torch.path.join("lib").join(by)))
        .seen(Evidence::new("glibc", have.to_string()))
        .then(format!("`import torch` stops with ``version `GLIBC_{needed}' not found``"))
        .fix(Fix::advice("use a container of a newer distribution (the host's driver stays as it is), or a torch that was built for this one; never replace the system's libc").curing(ID));
    Ok(Verdict::found(finding))
}

#[cfg(test)]
#[expect(clippy::unwrap_used)]
mod tests {
    use super::super::samples::{SITE, SYSTEM_LIB, add, ask, machine, one, quiet, with_torch};
    use super::*;
    use crate::facts::elf::VersionNeed;
    use crate::facts::observed::Observed;
    use crate::facts::snapshot::Snapshot;
    use crate::facts::source::Source;
    use crate::finding::{Action, Severity};

    fn with_packages(packages: &[(&str, &str)]) -> Snapshot {
        let mut facts = machine();
        let torch = with_torch(&mut facts, "2.7.1+cu128", "12.8", &[]);
        torch.requires = vec![("nvidia-nccl-cu12".to_owned(), "==2.26.2".to_owned())];
        facts.pythons.value_mut().unwrap()[0].packages = packages
            .iter()
            .map(|(name, version)| Package { name: (*name).to_owned(), version: version.parse().unwrap(), site: SITE.into() })
            .collect();
        facts
    }

    #[test]
    fn one_family_is_quiet() {
        for packages in [
            &[("nvidia-nccl-cu12", "2.26.2"), ("nvidia-cudnn-cu12", "9.7.1.26"), ("nvidia-cublas-cu12", "12.8.4.1")][..],
            &[("nvidia-ml-py", "12.570.86"), ("nvidia-nccl-cu12", "2.26.2")],
            &[],
        ] {
            assert!(quiet(&ask(families, &with_packages(packages))), "{packages:?}");
        }
    }

    #[test]
    fn two_nccls_write_over_each_other() {
        let finding = one(ask(families, &with_packages(&[("nvidia-nccl-cu12", "2.26.2"), ("nvidia-nccl-cu13", "2.28.9")])));
        assert_eq!(finding.severity, Severity::Warning);
        let argv = |at: usize| match &finding.fixes[at].action {
            Action::Run { argv, .. } => argv.join(" "),
            other => format!("{other:?}"),
        };
        assert!(argv(0).ends_with("-m pip uninstall -y nvidia-nccl-cu13"), "{}", argv(0));
        assert!(argv(1).ends_with("--no-deps nvidia-nccl-cu12==2.26.2"), "{}", argv(1));
    }

    #[test]
    fn other_names_are_a_state() {
        let severity = |packages: &[(&str, &str)]| one(ask(families, &with_packages(packages))).severity;
        assert_eq!(severity(&[("nvidia-cublas-cu11", "11.10.3.66"), ("nvidia-cublas-cu12", "12.8.4.1")]), Severity::Info);
        assert_eq!(severity(&[("nvidia-curand-cu12", "10.3.9.90"), ("nvidia-curand-cu13", "10.4.0.35")]), Severity::Info);
        assert_eq!(severity(&[("nvidia-curand-cu11", "10.3.0.86"), ("nvidia-curand-cu12", "10.3.9.90")]), Severity::Warning);
    }

    #[test]
    fn packages_of_another_site_do_not_touch_these() {
        let mut facts = with_packages(&[("nvidia-nccl-cu12", "2.26.2"), ("nvidia-nccl-cu13", "2.28.9")]);
        facts.pythons.value_mut().unwrap()[0].packages[1].site = "/usr/lib/python3/dist-packages".into();
        assert!(quiet(&ask(families, &facts)));
    }

    fn with_needs(library: &str, versions: &[&str]) -> Snapshot {
        let mut facts = machine();
        let torch = with_torch(&mut facts, "2.7.1+cu128", "12.8", &[]);
        let versions = versions.iter().map(|version| (*version).to_owned()).collect();
        let lib = torch.libs.get_mut("libtorch_cuda.so").unwrap();
        lib.version_needs = vec![VersionNeed { library: library.to_owned(), versions, weak: Vec::new() }];
        lib.needed.push(library.to_owned());
        facts
    }

    fn with_libstdcxx(folder: &str, source: Source, offered: &str) -> Snapshot {
        let mut facts = with_needs("libstdc++.so.6", &["GLIBCXX_3.4.21", "GLIBCXX_3.4.29"]);
        let library = add(&mut facts, &format!("{folder}/libstdc++.so.6"), source);
        library.elf.value_mut().unwrap().version_definitions = vec!["GLIBCXX_3.4".to_owned(), offered.to_owned()];
        facts
    }

    #[test]
    fn an_old_libstdcxx() {
        assert!(quiet(&ask(glibcxx, &with_libstdcxx(SYSTEM_LIB, Source::DefaultFolder, "GLIBCXX_3.4.30"))));
        let finding = one(ask(glibcxx, &with_libstdcxx(SYSTEM_LIB, Source::DefaultFolder, "GLIBCXX_3.4.28")));
        assert!(finding.title.contains("`GLIBCXX_3.4.29`") && finding.title.contains("`GLIBCXX_3.4.28` at most"), "{}", finding.title);
        let mut facts = with_libstdcxx("/opt/matlab", Source::entry("LD_LIBRARY_PATH", 1), "GLIBCXX_3.4.22");
        facts.env.set("LD_LIBRARY_PATH", "/opt/matlab");
        assert!(matches!(&one(ask(glibcxx, &facts)).fixes[0].action, Action::RemovePath { dir, .. } if dir.to_string() == "/opt/matlab"));
    }

    #[test]
    fn the_libstdcxx_of_conda() {
        let mut facts = with_libstdcxx("/opt/conda/lib", Source::Conda { prefix: "/opt/conda".into() }, "GLIBCXX_3.4.26");
        let python = &mut facts.pythons.value_mut().unwrap()[0];
        python.kind = EnvironmentKind::Conda;
        python.real = "/opt/conda/bin/python3.11".into();
        (python.prefix, python.base_prefix) = ("/opt/conda".into(), "/opt/conda".into());
        let fix = &one(ask(glibcxx, &facts)).fixes[0];
        assert!(matches!(&fix.action, Action::Run { argv, .. } if argv.last().unwrap() == "libstdcxx-ng>=11"), "{fix:?}");
    }

    #[test]
    fn a_libstdcxx_that_says_nothing() {
        assert!(ask(glibcxx, &with_needs("libstdc++.so.6", &["GLIBCXX_3.4.29"])).is_err(), "there is none");
        assert!(ask(glibcxx, &with_libstdcxx(SYSTEM_LIB, Source::DefaultFolder, "OTHER_1")).is_err() || quiet(&ask(glibcxx, &machine())));
    }

    #[test]
    fn an_old_glibc() {
        let mut facts = with_needs("libc.so.6", &["GLIBC_2.17", "GLIBC_2.28", "GLIBC_PRIVATE"]);
        assert!(quiet(&ask(glibc, &facts)));
        facts.host.glibc = Observed::seen("2.27".parse().unwrap());
        let finding = one(ask(glibc, &facts));
        assert!(finding.title.ends_with("needs glibc 2.28, and this system has 2.27"), "{}", finding.title);
        facts.host.glibc = Observed::failed("unreadable");
        assert!(ask(glibc, &facts).is_err());
    }
}
