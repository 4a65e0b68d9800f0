//! Entries of LD_LIBRARY_PATH that should not be there, whatever torch is.

use super::driver_libs::{LIBCUDA, in_folder, is_stub, library_at, taken_out};
use super::{Case, Check, Judgement, Verdict};
use crate::facts::loader::Library;
use crate::facts::raw::HostPath;
use crate::facts::source::Source;
use crate::finding::{Evidence, Finding, Fix, Severity};
use crate::model::loader::{Answer, Via};
use crate::text::{count, join};
use std::os::unix::ffi::OsStrExt as _;

pub const CHECKS: &[Check] =
    &[Check { id: "stubs-on-loader-path", run: stubs }, Check { id: "ld-library-path-empty-item", run: empty_item }];

const VARIABLE: &str = "LD_LIBRARY_PATH";

/// Stubs serve the linker: a program that loads one gets an error from its first call.
fn stubs(case: &Case<'_>) -> Judgement {
    const ID: &str = "stubs-on-loader-path";
    const THEN: &str = "a program that opens `libcuda.so` gets the stub, and its first call answers 34, `CUDA driver is a stub library`, also where there is a driver";
    let Some(loader) = case.facts.loader.get("libraries")? else { return Ok(Verdict::Pass) };
    let mut findings = Vec::new();
    for (at, entry) in case.facts.env.entries(VARIABLE).iter().enumerate() {
        let folder = HostPath::new(entry);
        let in_entry =
            |library: &&Library| library.sources.contains(&Source::entry(VARIABLE, at + 1)) || library.path.parent() == Some(&*folder);
        let held: Vec<&Library> = loader.libraries.iter().filter(in_entry).filter(|library| is_stub(library)).collect();
        let of_toolkit =
            case.toolkits().iter().flat_map(|toolkit| toolkit.stubs()).any(|stubs| stubs.path == folder && !stubs.files.is_empty());
        if held.is_empty() && !(of_toolkit && in_folder(&folder, "stubs"))
            || findings.iter().any(|finding: &Finding| finding.subject == folder.to_string())
        {
            continue;
        }
        let names: Vec<String> = held.iter().take(3).map(|library| library.name.clone()).collect();
        let finding = Finding::warning(ID, format!("`{folder}` on {VARIABLE} holds a toolkit's stubs, which serve the linker only"))
            .about(folder.to_string())
            .seen(Evidence::new("stubs", join(&names)).at(&folder).from(&Source::entry(VARIABLE, at + 1)))
            .then(THEN)
            .fix(Fix::remove(VARIABLE, &folder, "for linking it belongs on LIBRARY_PATH"));
        findings.push(finding);
    }
    if let Answer::Found { path, via: via @ (Via::Cache | Via::DefaultFolder) } = case.process()?.extension_gets(LIBCUDA)
        && let Some(library) = library_at(case, &path).filter(|library| is_stub(library))
    {
        findings.push(
            Finding::warning(ID, format!("the loader's configuration lists a stub as `{LIBCUDA}`"))
                .about(path.to_string())
                .seen(Evidence::new("stub", LIBCUDA).at(&path).from(&Source::LdCache))
                .then(THEN)
                .fix(taken_out(case, library, &via, ID)),
        );
    }
    Ok(Verdict::of(findings))
}

/// An empty item is the current folder.
fn empty_item(case: &Case<'_>) -> Judgement {
    const ID: &str = "ld-library-path-empty-item";
    let Some(value) = case.facts.env.filled(VARIABLE) else { return Ok(Verdict::not_applicable("LD_LIBRARY_PATH is unset or empty")) };
    let items: Vec<&[u8]> = value.as_bytes().split(|byte| matches!(byte, b':' | b';')).collect();
    let empty: Vec<usize> = items.iter().enumerate().filter(|(_, item)| item.is_empty()).map(|(at, _)| at + 1).collect();
    let Some(first) = empty.first() else { return Ok(Verdict::Pass) };
    let place = match *first {
        1 => "begins with a colon".to_owned(),
        last if last == items.len() => "ends with a colon".to_owned(),
        _ => "has two colons in a row".to_owned(),
    };
    let loader = case.facts.loader.get("libraries")?;
    let sources: Vec<Source> = empty.iter().map(|at| Source::entry(VARIABLE, *at)).collect();
    let here: Vec<&Library> = loader
        .into_iter()
        .flat_map(|loader| &loader.libraries)
        .filter(|library| library.sources.iter().any(|source| sources.contains(source)))
        .collect();
    let severity = if here.is_empty() { Severity::Info } else { Severity::Warning };
    let holds = here.first().map(|library| format!(", which holds `{}`", library.name)).unwrap_or_default();
    let mut finding = Finding::new(ID, severity, format!("{VARIABLE} {place}, and an empty item means the current folder{holds}"))
        .seen(Evidence::new(VARIABLE, value.to_string_lossy().into_owned()).said_by("environment"))
        .then("programs load libraries from whatever folder they are started in");
    for library in here.iter().take(3) {
        finding = finding.seen(Evidence::new(&library.name, count(empty.len(), "empty item")).at(&library.path));
    }
    Ok(Verdict::found(finding.fix(Fix::remove(VARIABLE, &HostPath::default(), "the empty items"))))
}

#[cfg(test)]
mod tests {
    use super::super::sample::{add, ask, cache, loader, machine, one, quiet};
    use super::*;

    #[test]
    fn stubs_for_linking_only() {
        let mut facts = machine();
        add(&mut facts, "/usr/local/cuda/lib64/stubs/libcuda.so", Source::entry(VARIABLE, 2));
        assert!(quiet(&ask(stubs, &facts)));
        facts.env.set("LIBRARY_PATH", "/usr/local/cuda/lib64/stubs");
        assert!(quiet(&ask(stubs, &facts)));
        facts.env.set(VARIABLE, "/x:/usr/local/cuda/lib64/stubs");
        let finding = one(ask(stubs, &facts));
        assert_eq!(
            finding.fixes[0],
            Fix::remove(VARIABLE, &"/usr/local/cuda/lib64/stubs".into(), "for linking it belongs on LIBRARY_PATH")
        );
        facts.env.set(VARIABLE, "/x:/none/stubs");
        loader(&mut facts).libraries.clear();
        assert!(quiet(&ask(stubs, &facts)), "a folder that is not there does nothing");
        let path = "/usr/local/cuda/lib64/stubs/libcuda.so.1";
        add(&mut facts, path, Source::LdCache);
        cache(&mut facts, path);
        assert!(one(ask(stubs, &facts)).title.contains("configuration"));
    }

    #[test]
    fn items_that_are_empty() {
        let said = |value: &str, library: Option<usize>| {
            let mut facts = machine();
            facts.env.set(VARIABLE, value);
            if let Some(at) = library {
                add(&mut facts, "/home/x/libcudart.so.12", Source::entry(VARIABLE, at));
            }
            ask(empty_item, &facts)
        };
        for (value, word) in [(":/a", "begins"), ("/a:", "ends"), ("/a::/b", "two colons"), (":", "begins")] {
            let finding = one(said(value, None));
            assert_eq!(finding.severity, Severity::Info, "{value}");
            assert!(finding.title.contains(word), "{value}: {}", finding.title);
        }
        assert!(quiet(&said("/a:/b", None)) && quiet(&said("", None)));
        let warned = one(said("/a:", Some(2)));
        assert_eq!((warned.severity, warned.title.ends_with("which holds `libcudart.so.12`")), (Severity::Warning, true));
        assert_eq!(one(said("/a:", Some(1))).severity, Severity::Info, "it lies in /a");
    }
}
