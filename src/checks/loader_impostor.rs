//! Files that have the name of a libcudart and are none, or another one.

use super::driver_libs::{library_at, source, taken_out};
use super::loader::pinned;
use super::remedy::pip_install;
use super::{Case, Check, Judgement, Verdict};
use crate::facts::loader::Library;
use crate::facts::observed::Observed;
use crate::facts::source::Source;
use crate::finding::{Evidence, Finding, Fix};
use crate::model::loader::{Answer, Process, Via};
use crate::version::Dotted;
use std::collections::BTreeSet;

const ID: &str = "libcudart-impostor";

pub const CHECKS: &[Check] = &[Check { id: ID, run: impostor }];

/// A file that has the name of a libcudart, and is none or another one. Judged are those that a search really gives: to torch, to an
/// extension, to a program that has not imported torch.
fn impostor(case: &Case<'_>) -> Judgement {
    let Some(loader) = case.facts.loader.get("libraries")? else { return Ok(Verdict::Pass) };
    let process = case.process()?;
    let before = match case.python()? {
        Some(python) => Process::started(case.facts, python, None)?,
        None => None,
    };
    let torch = case.torch()?;
    // Asked on behalf of the library that needs it: where the import fails, none of torch's is loaded.
    let torchs = |name: &str| {
        let (lib, elf) = torch?.libs.iter().find(|(_, elf)| elf.needed.iter().any(|needed| needed == name))?;
        Some(process.object_gets(&torch?.path.join("lib").join(lib), elf, name))
    };
    let names: BTreeSet<&str> =
        loader.of("cudart").map(|library| library.name.as_str()).filter(|name| soname_number(name).is_some()).collect();
    let mut findings: Vec<Finding> = Vec::new();
    for name in names {
        let in_use = [torchs(name), Some(process.extension_gets(name))].map(|answer| (answer, true));
        // Where torch brings its own, only what comes before its import or does without it meets this file.
        let early = before.as_ref().map(|before| before.extension_gets(name));
        for (answer, in_use) in in_use.into_iter().chain([(early, torch.is_none())]) {
            let Some(answer) = answer else { continue };
            let (path, via) = match &answer {
                Answer::Found { path, via } | Answer::Refused { path, via, .. } => (path, via),
                _ => continue,
            };
            let Some(library) = library_at(case, path) else { continue };
            let Some(what) = what_is_wrong(library, name) else { continue };
            if findings.iter().any(|finding| finding.subject == path.to_string()) {
                continue;
            }
            findings.push(unmasked(case, library, via, &what, in_use));
        }
    }
    Ok(Verdict::of(findings))
}

/// `12` of `libcudart.so.12`, `11.0` of `libcudart.so.11.0`: names that a program asks for. Longer ones are files behind links.
fn soname_number(name: &str) -> Option<Dotted> {
    let number: Dotted = name.strip_prefix("libcudart.so.")?.parse().ok()?;
    let most = if number.major() < 12 { 2 } else { 1 };
    (number.parts.len() == most).then_some(number)
}

fn what_is_wrong(library: &Library, name: &str) -> Option<String> {
    let elf = match &library.elf {
        Observed::Seen { value } => value,
        Observed::Failed { why } => return Some(format!("is no library: {why}")),
        _ => return None,
    };
    if let Some(cut) = elf.truncated.filter(|cut| cut.segments) {
        return Some(format!("is cut short: it has {} of {} bytes", cut.actual, cut.expected));
    }
    if let Some(soname) = elf.soname.as_ref().filter(|soname| *soname != name) {
        return Some(format!("calls itself `{soname}`"));
    }
    let nodes: Vec<&String> = elf.version_definitions.iter().filter(|node| node.starts_with("libcudart.so.")).collect();
    if let (Some(node), false) = (nodes.first(), nodes.iter().any(|node| *node == name)) {
        return Some(format!("has the symbols of `{node}`"));
    }
    let major = soname_number(name)?.major();
    let release = library.release.as_ref().filter(|release| release.major() != major)?;
    Some(format!("is of CUDA {}", release.major_minor()))
}

fn unmasked(case: &Case<'_>, library: &Library, via: &Via, what: &str, in_use: bool) -> Finding {
    let id = ID;
    let name = &library.name;
    let title = format!("`{}` {what}", library.path);
    let mut finding = if in_use { Finding::error(id, title) } else { Finding::warning(id, title) }
        .about(library.path.to_string())
        .seen(Evidence::new(name, what.to_owned()).at(&library.path).from(&source(case, &library.path)));
    if library.path != library.real {
        finding = finding.seen(Evidence::new("link", format!("to {}", library.real)).at(&library.path));
    }
    let broken = library.elf.is_failed() || library.elf.value().is_some_and(|elf| elf.truncated.is_some());
    let who = if in_use {
        "whatever asks"
    } else {
        "torch has its own, but a program without torch, or an extension imported before it, that asks"
    };
    finding = finding.then(if broken {
        format!("{who} for `{name}` stops with `file too short` or `invalid ELF header`; the loader does not look further")
    } else {
        format!("{who} for `{name}` gets another library: ``version `{name}' not found``, `undefined symbol`, or calls with structures of the wrong size")
    });
    let subject = library.path.to_string();
    let cured = |fix: Fix| fix.curing_of(id, subject.clone());
    if let Via::LibraryPath { .. } = via {
        finding = finding.fix(taken_out(case, library, via, id));
        return if library.path == library.real {
            finding
        } else {
            finding.fix(cured(Fix::run(["rm", &library.path.to_string()], "the link alone, where the folder is needed")).or(1))
        };
    }
    if library.path != library.real && !broken {
        return finding.fix(cured(Fix::run(["rm", &library.path.to_string()], "cure what the link was made for")));
    }
    let of_pip = library.sources.iter().any(|source| matches!(source, Source::Pip { .. }));
    let package = case.torch().ok().flatten().filter(|_| of_pip).and_then(|torch| pinned(case, torch, "nvidia-cuda-runtime"));
    finding.fix(match package {
        Some(package) => {
            cured(pip_install(case, ["--force-reinstall".to_owned(), "--no-deps".to_owned(), package], "the package that owns the file"))
        }
        None => {
            cured(Fix::advice(format!("install again what owns `{}` (`dpkg -S` or `rpm -qf` tells), or remove the file", library.real)))
        }
    })
}

#[cfg(test)]
#[expect(clippy::unwrap_used)]
mod tests {
    use super::super::sample::{add, ask, elf, loader, machine, one, quiet, wheels};
    use super::*;
    use crate::facts::elf::Truncated;
    use crate::facts::snapshot::Snapshot;
    use crate::finding::{Action, Severity};

    #[test]
    fn whole_machines_are_quiet() {
        assert!(quiet(&ask(impostor, &machine())) && quiet(&ask(impostor, &wheels(&[]))));
    }

    fn with_link(soname: &str) -> Snapshot {
        let mut facts = wheels(&[]);
        let library = add(&mut facts, "/opt/fix/libcudart.so.12", Source::entry("LD_LIBRARY_PATH", 1));
        library.real = "/opt/fix/libcudart.so.11.8.89".into();
        library.elf = Observed::seen(elf(soname, &[]));
        facts.env.set("LD_LIBRARY_PATH", "/opt/fix");
        facts
    }

    #[test]
    fn names_that_lie() {
        let finding = one(ask(impostor, &with_link("libcudart.so.11.0")));
        assert_eq!(finding.title, "`/opt/fix/libcudart.so.12` calls itself `libcudart.so.11.0`");
        assert!(matches!(&finding.fixes[0].action, Action::RemovePath { dir, .. } if dir.to_string() == "/opt/fix"));
        assert_eq!(finding.severity, Severity::Warning, "RPATH leads torch to its own first");
        let mut by_runpath = with_link("libcudart.so.11.0");
        let torch = by_runpath.pythons.value_mut().unwrap()[0].torch.value_mut().unwrap();
        for elf in torch.libs.values_mut() {
            elf.runpath = std::mem::take(&mut elf.rpath);
        }
        assert_eq!(one(ask(impostor, &by_runpath)).severity, Severity::Error, "LD_LIBRARY_PATH comes before RUNPATH");
        assert!(quiet(&ask(impostor, &with_link("libcudart.so.12"))));
        let mut unsearched = with_link("libcudart.so.11.0");
        unsearched.env.unset("LD_LIBRARY_PATH");
        assert!(quiet(&ask(impostor, &unsearched)), "no search meets it");
    }

    #[test]
    fn contents_that_lie() {
        let changed = |change: fn(&mut Library)| {
            let mut facts = wheels(&[]);
            change(loader(&mut facts).libraries.iter_mut().find(|library| library.family == "cudart").unwrap());
            ask(impostor, &facts)
        };
        let node = |library: &mut Library| library.elf.value_mut().unwrap().version_definitions = vec!["libcudart.so.11.0".to_owned()];
        assert!(one(changed(node)).title.ends_with("has the symbols of `libcudart.so.11.0`"));
        let right = |library: &mut Library| library.elf.value_mut().unwrap().version_definitions = vec!["libcudart.so.12".to_owned()];
        assert!(quiet(&changed(right)));
        assert!(one(changed(|library| library.release = Some("11.8".parse().unwrap()))).title.ends_with("is of CUDA 11.8"));
        assert!(quiet(&changed(|library| library.release = Some("12.8.90".parse().unwrap()))));
        let cut = |library: &mut Library| {
            library.elf.value_mut().unwrap().truncated = Some(Truncated { expected: 10, actual: 5, segments: true })
        };
        let finding = one(changed(cut));
        assert!(finding.title.ends_with("is cut short: it has 5 of 10 bytes"), "{}", finding.title);
        assert!(
            matches!(&finding.fixes[0].action, Action::Run { argv, .. } if argv.last().unwrap() == "nvidia-cuda-runtime-cu12==12.4.127")
        );
        assert!(one(changed(|library| library.elf = Observed::failed("an empty file"))).title.ends_with("is no library: an empty file"));
    }

    #[test]
    fn names_of_releases() {
        let number = |name| soname_number(name).map(|number| number.text);
        assert_eq!(number("libcudart.so.12").as_deref(), Some("12"));
        assert_eq!(number("libcudart.so.11.0").as_deref(), Some("11.0"));
        for name in ["libcudart.so", "libcudart.so.11", "libcudart.so.12.4.127", "libcudart.so.11.8.89"] {
            assert_eq!(number(name), None, "{name}");
        }
    }
}
