//! Compilers that stand in front of the one that is meant, and variables that do not reach it.

use super::compiler_fixes::by_flag;
use super::compiler_limits::{chooser, pair};
use super::toolkit::picked;
use super::{Case, Check, Judgement, Verdict};
use crate::facts::compiler::{Family, Language};
use crate::facts::raw::HostPath;
use crate::facts::toolkit::Layout;
use crate::finding::{Evidence, Finding, Fix};
use crate::model::host_compiler::ChosenBy;
use crate::model::overlay::sibling;
use crate::model::search;

pub const CHECKS: &[Check] = &[
    Check { id: "conda-compiler-shadows-system-gcc", run: conda_shadows },
    Check { id: "compiler-env-not-reaching-nvcc", run: not_reaching },
];

/// conda's plain `gcc` or `c++` in front of the system's, with a toolkit that is not conda's and no variable that says so.
fn conda_shadows(case: &Case<'_>) -> Judgement {
    let toolkit = match picked(case)? {
        Ok(toolkit) => toolkit,
        Err(verdict) => return Ok(verdict),
    };
    case.facts.compilers.get("compilers")?;
    if toolkit.layout == Layout::Conda || case.facts.env.filled("CC").is_some() || case.facts.env.filled("CXX").is_some() {
        return Ok(Verdict::Pass);
    }
    let all = case.facts.compilers.value().map_or(&[][..], Vec::as_slice);
    let mut shadowing = None;
    for name in ["gcc", "c++"] {
        let Some(hit) = search::which(case.facts, name) else { continue };
        let Some(compiler) = all.iter().find(|compiler| compiler.has_path(&hit.program.path)) else { continue };
        if let Some(prefix) = &compiler.conda {
            shadowing = Some((name, hit, compiler, prefix));
            break;
        }
    }
    let Some((name, hit, compiler, prefix)) = shadowing else { return Ok(Verdict::Pass) };
    let system = all.iter().find(|other| {
        other.conda.is_none() && other.family == Family::Gcc && other.language == Language::Cxx && other.real.starts_with("/usr")
    });
    let Some(system) = system else { return Ok(Verdict::Pass) };
    let mut finding = Finding::warning(
        "conda-compiler-shadows-system-gcc",
        format!("`{name}` is conda's, in `{prefix}`, and the toolkit is the system's"),
    )
    .likely()
    .seen(
        Evidence::new(name, compiler.version.as_ref().map(ToString::to_string).unwrap_or_default())
            .at(&hit.program.path)
            .from(&hit.source()),
    )
    .seen(Evidence::new("system g++", system.version.as_ref().map(ToString::to_string).unwrap_or_default()).at(&system.real))
    .then(
        "conda's compiler has its own sysroot with an older glibc: links fail on system libraries, or nvcc and c++ use different headers",
    );
    let path = system.paths.first().unwrap_or(&system.real);
    let gcc = sibling(path).filter(|path| search::program_at(case.facts, path).is_some());
    finding = finding.fix(Fix::set("CXX", path.0.clone(), "the system's own").review());
    if let Some(gcc) = gcc {
        finding = finding.fix(Fix::set("CC", gcc.0, "the system's own; torch hands it to nvcc").review());
    }
    Ok(Verdict::found(finding))
}

/// CUDAHOSTCXX is CMake's, and CXX does not reach nvcc: set in vain only where nvcc then runs a compiler it refuses, or quite another one.
fn not_reaching(case: &Case<'_>) -> Judgement {
    let pair = match pair(case)? {
        Ok(pair) => pair,
        Err(verdict) => return Ok(verdict),
    };
    if matches!(pair.host.by, ChosenBy::CcbinFlag(_) | ChosenBy::Variable(_)) {
        return Ok(Verdict::Pass);
    }
    let refused = match pair.compiler.family {
        Family::Gcc => pair.limits.gcc.is_some_and(|most| pair.version.major() > most),
        Family::Clang => pair.limits.clang.is_some_and(|most| pair.version.major() > most),
        _ => false,
    };
    let mut findings = Vec::new();
    for name in ["CUDAHOSTCXX", "CXX"] {
        let Some(value) = case.facts.env.path(name) else { continue };
        if name == "CXX" && !refused {
            continue;
        }
        let program = search::starts(case.facts, value.as_os_str()).map(|hit| hit.program);
        let all = case.facts.compilers.value().map_or(&[][..], Vec::as_slice);
        let meant = program.and_then(|program| all.iter().find(|compiler| compiler.has_path(&program.path)));
        let Some((meant, version)) = meant.and_then(|meant| meant.version.as_ref().map(|version| (meant, version))) else { continue };
        if version.major() == pair.version.major() && meant.family == pair.compiler.family {
            continue;
        }
        let shown = HostPath::new(value);
        findings.push(
            Finding::warning(
                "compiler-env-not-reaching-nvcc",
                format!("`{name}` is `{shown}` (version {version}), but nvcc runs gcc {}", pair.version),
            )
            .about(name)
            .seen(Evidence::new(name, shown.to_string()).said_by("environment"))
            .seen(Evidence::new("nvcc runs", pair.version.to_string()).at(&pair.compiler.real).said_by(chooser(&pair.host)))
            .then("torch and DeepSpeed hand nvcc only CC; the `.cu` files are compiled with the other compiler")
            .fix(by_flag(case, &pair, &shown, "the compiler that was meant")),
        );
    }
    Ok(Verdict::of(findings))
}
