//! Whether there is a compiler, and what variables name in its place.

use super::lookup::NOT_ASKED;
use super::remedy::install;
use super::{Case, Check, Judgement, Verdict};
use crate::finding::{Evidence, Finding, Fix};
use crate::knowledge::host::Wanted;
use crate::knowledge::schema::host::Need;
use crate::model::build::BuildPath;
use crate::model::host_compiler::{self, ChosenBy, HostCompiler};
use crate::model::search;
use std::os::unix::ffi::OsStrExt as _;

pub const CHECKS: &[Check] = &[Check { id: "cxx-env-var-malformed", run: malformed }, Check { id: "missing-cxx-compiler", run: missing }];

/// Variables that name compilers and that a build reads.
const VARIABLES: &[&str] = &["CC", "CXX", "NVCC_CCBIN"];

/// The variable, its value, and what its reader makes of it.
fn named<'a>(case: &Case<'a>, name: &'static str) -> Option<HostCompiler<'a>> {
    case.facts.env.get(name)?;
    match name {
        "CXX" => Some(host_compiler::cxx(case.facts)),
        "CC" => Some(host_compiler::distutils_cc(case.facts)),
        _ => nvcc_host(case).filter(|host| host.by == ChosenBy::Variable("NVCC_CCBIN")),
    }
}

/// What nvcc runs when torch starts it. JIT and setup differ only where CC has several words.
pub fn nvcc_host<'a>(case: &Case<'a>) -> Option<HostCompiler<'a>> {
    host_compiler::nvcc_host(case.facts, case.know, case.cuda_home(), BuildPath::Jit)
}

fn malformed(case: &Case<'_>) -> Judgement {
    if !case.purpose.builds() {
        return Ok(Verdict::not_applicable(NOT_ASKED));
    }
    if case.torch()?.is_none() {
        return Ok(Verdict::not_applicable("no torch"));
    }
    let mut findings = Vec::new();
    for name in VARIABLES {
        let Some(host) = named(case, name) else { continue };
        let value = case.facts.env.get(name).unwrap_or_default();
        let text = value.to_string_lossy().into_owned();
        let (what, then) = if value.as_bytes().contains(&b':') && host.found == Some(false) {
            ("a list with colons, where one program must stand", format!("the build stops with `{text}: No such file or directory`"))
        } else if text.trim().is_empty() {
            ("empty, which is taken for a compiler without a name", "the build stops at the first compilation".to_owned())
        } else if *name == "CC" && !host.extra_words().is_empty() {
            // torch hands CC to nvcc as `-ccbin`, unquoted in JIT builds: nvcc takes the second word for an input file.
            (
                "several words, and torch hands it to nvcc as one compiler",
                "nvcc stops with `A single input file is required for a non-link phase when an outputfile is specified`".to_owned(),
            )
        } else if host.found == Some(false) {
            ("no program that can be found", format!("the build stops with `{}: not found`", host.name()))
        } else {
            continue;
        };
        let mut finding = Finding::error("cxx-env-var-malformed", format!("`{name}` is `{text}`, {what}"))
            .about(*name)
            .seen(Evidence::new(*name, text.clone()).said_by("environment"))
            .then(then);
        // The last word of `ccache gcc` is the compiler.
        let single =
            host.words.last().filter(|_| host.extra_words().iter().all(|word| !word.as_bytes().starts_with(b"-")) && host.words.len() > 1);
        finding = match single.and_then(|word| search::which(case.facts, word)) {
            Some(hit) => finding.fix(Fix::set(name, hit.program.path.0.clone(), "the compiler alone")),
            None => finding.fix(Fix::unset(name, "the compiler on PATH is taken then")),
        };
        findings.push(finding);
    }
    Ok(Verdict::of(findings))
}

fn missing(case: &Case<'_>) -> Judgement {
    if !case.purpose.builds() {
        return Ok(Verdict::not_applicable(NOT_ASKED));
    }
    if case.torch()?.is_none() {
        return Ok(Verdict::not_applicable("no torch"));
    }
    case.facts.compilers.get("compilers")?;
    let cxx = host_compiler::cxx(case.facts);
    // A variable that names nothing is told by its own id.
    if cxx.by != ChosenBy::Default || cxx.found != Some(false) {
        return Ok(Verdict::Pass);
    }
    const ID: &str = "missing-cxx-compiler";
    let other = ["g++", "clang++"].into_iter().find_map(|name| search::which(case.facts, name));
    let numbered = || case.facts.programs.iter().find(|program| program.name.starts_with("g++-") && program.found_by_search());
    let finding = match other.map(|hit| hit.program).or_else(numbered) {
        Some(program) => Finding::error(ID, format!("there is no `c++` on PATH, which torch runs, though there is `{}`", program.path))
            .seen(Evidence::new(program.name.clone(), "").at(&program.path))
            .then("JIT and ninja builds stop with `/bin/sh: 1: c++: not found`")
            .fix(Fix::set("CXX", program.path.0.clone(), "torch takes it instead of `c++`")),
        None => {
            let finding = Finding::error(ID, "there is no C++ compiler on PATH")
                .seen(Evidence::new("looked for", "c++, g++, clang++").said_by("PATH"))
                .then("JIT and ninja builds stop with `/bin/sh: 1: c++: not found`, setup builds with `command 'g++' failed`");
            install(case, Need::Gxx, &Wanted::default(), ID).into_iter().fold(finding, Finding::fix)
        }
    };
    Ok(Verdict::found(finding))
}
