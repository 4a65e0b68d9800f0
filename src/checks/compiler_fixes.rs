//! How nvcc is led to another compiler.

use super::Case;
use super::compiler_limits::{Pair, lowest};
use super::remedy::{as_root, install, overlay};
use crate::facts::compiler::{Family, Language};
use crate::facts::raw::HostPath;
use crate::finding::Fix;
use crate::knowledge::host::Wanted;
use crate::knowledge::schema::host::Need;
use crate::model::host_compiler::ChosenBy;
use crate::model::overlay::sibling;
use crate::model::search;
use crate::version::Dotted;

/// A g++ on this machine that nvcc and torch accept, the newest first; else how to get one.
pub fn older_gcc(case: &Case<'_>, pair: &Pair<'_>, most: u32, id: &'static str) -> Vec<Fix> {
    let fits = |version: &Dotted| version.major() <= most && version.major() >= lowest(case);
    let all = case.facts.compilers.value().map_or(&[][..], Vec::as_slice);
    let candidate = all
        .iter()
        .filter(|compiler| compiler.family == Family::Gcc && compiler.language == Language::Cxx && compiler.cc1plus != Some(false))
        .filter(|compiler| compiler.version.as_ref().is_some_and(fits))
        .max_by(|a, b| a.version.cmp(&b.version));
    if let Some(compiler) = candidate {
        let path = compiler.paths.first().unwrap_or(&compiler.real);
        let title = format!("gcc {}", compiler.version.as_ref().map(ToString::to_string).unwrap_or_default());
        let mut fixes = point_nvcc_at(case, pair, path, &title);
        // A compiler that a variable names comes before the one in an overlay.
        if pair.host.by.source().is_none() && sibling(path).is_some_and(|gcc| search::program_at(case.facts, &gcc).is_some()) {
            let fix = overlay(pair.toolkit, "a CUDA_HOME of links with that gcc where only nvcc looks");
            fixes.extend(fix.map(|fix| fix.or(1).curing(id)));
        }
        return fixes;
    }
    let offer = || {
        let os = case.facts.host.os.value()?;
        let release: Dotted = os.version.as_deref()?.parse().ok()?;
        case.know.gcc_offer(&os.id, &release)?.iter().copied().filter(|major| *major <= most && *major >= lowest(case)).max()
    };
    let system = super::remedy::system(case);
    let from_system = offer()
        .zip(system)
        .and_then(|(gcc, family)| case.know.install(family, Need::GxxVersion, &Wanted { gcc: Some(gcc), ..Wanted::default() }));
    let mut fixes = Vec::new();
    if let Some(install) = from_system {
        fixes.push(as_root(case, install.command.split_whitespace(), "an older gcc beside the system's own").curing(id));
        if let Some(program) = install.program {
            fixes.extend(point_nvcc_at(case, pair, &HostPath::new(program), "once it is installed").into_iter().map(Fix::review));
        }
    }
    let conda = install(case, Need::GxxVersion, &Wanted { gcc: Some(most), ..Wanted::default() }, id);
    let next = u8::from(!fixes.is_empty());
    fixes.extend(
        conda
            .into_iter()
            .filter(
                |fix| matches!(&fix.action, crate::finding::Action::Run { argv, .. } if argv.first().is_some_and(|word| word == "conda")),
            )
            .map(|fix| fix.or(next)),
    );
    if fixes.is_empty() {
        fixes.push(
            Fix::advice(format!("install a g++ of version {most} or older beside the system's own, and name it to nvcc with `-ccbin`"))
                .curing(id),
        );
    }
    fixes
}

/// The variables that make this nvcc run another compiler. CC wins over all where it is set; NVCC_CCBIN only for an nvcc that reads it.
fn point_nvcc_at(case: &Case<'_>, pair: &Pair<'_>, gxx: &HostPath, title: &str) -> Vec<Fix> {
    if pair.host.by == ChosenBy::CcbinFlag("CC") {
        return vec![set_cc(case, gxx, title), Fix::set("CXX", gxx.0.clone(), "the C++ compiler of the same gcc")];
    }
    vec![by_flag(case, pair, gxx, title)]
}

/// CC is a C compiler to everybody else (DeepSpeed's test for libaio compiles C with it): the gcc beside the g++. A package that is still to
/// be installed brings both.
pub fn set_cc(case: &Case<'_>, gxx: &HostPath, title: &str) -> Fix {
    let installed = |path: &HostPath| search::program_at(case.facts, path).is_some();
    match sibling(gxx).filter(|gcc| installed(gcc) || !installed(gxx)) {
        Some(gcc) => Fix::set("CC", gcc.0, format!("{title}; torch hands CC to nvcc")),
        None => Fix::set("CC", gxx.0.clone(), format!("{title}; torch hands CC to nvcc, and there is no gcc beside it")).review(),
    }
}

pub fn by_flag(case: &Case<'_>, pair: &Pair<'_>, gxx: &HostPath, title: &str) -> Fix {
    if let ChosenBy::CcbinFlag(name) = pair.host.by {
        return Fix::advice(format!("let the `-ccbin` in `{name}` name `{gxx}`"));
    }
    let reads = pair
        .nvcc
        .reads_nvcc_ccbin
        .unwrap_or_else(|| pair.toolkit.release().is_some_and(|release| (release.major, release.minor) >= (12, 5)));
    if reads {
        return Fix::set("NVCC_CCBIN", gxx.0.clone(), title.to_owned());
    }
    let mut flags = std::ffi::OsString::from("-ccbin ");
    flags.push(&gxx.0);
    if let Some(rest) = case.facts.env.filled("NVCC_PREPEND_FLAGS") {
        flags.push(" ");
        flags.push(rest);
    }
    Fix::set("NVCC_PREPEND_FLAGS", flags, format!("{title}; this nvcc does not read NVCC_CCBIN"))
}

#[cfg(test)]
mod tests {
    use super::super::Purpose;
    use super::super::sample::{healthy, program};
    use super::*;
    use crate::facts::program::ProgramKind;
    use crate::finding::{Action, Safety};
    use crate::knowledge::Knowledge;

    #[test]
    fn cc_stays_a_c_compiler() {
        let gxx = HostPath::new("/usr/bin/g++-12");
        for (installed, value, safety) in [
            (&["/usr/bin/g++-12", "/usr/bin/gcc-12"][..], "/usr/bin/gcc-12", Safety::Safe),
            (&[], "/usr/bin/gcc-12", Safety::Safe),
            (&["/usr/bin/g++-12"], "/usr/bin/g++-12", Safety::Review),
        ] {
            let mut facts = healthy();
            facts.programs.extend(installed.iter().map(|path| program(path, ProgramKind::Elf)));
            let fix = set_cc(&Case::new(&facts, &Knowledge::embedded(), Purpose::Build, &[]), &gxx, "gcc 12");
            assert!(matches!(&fix.action, Action::SetEnv { name, value: set } if name == "CC" && *set == value.into()), "{fix:?}");
            assert_eq!(fix.safety, safety, "{installed:?}");
        }
    }
}
