//! Host compilers: what nvcc and torch accept, and which one they will run.

use super::remedy::{as_root, install, overlay};
use super::toolkit::picked;
use super::{Case, Check, Judgement, Verdict};
use crate::facts::compiler::{Compiler, Family, Language};
use crate::facts::raw::HostPath;
use crate::facts::toolkit::{Layout, Nvcc, Toolkit};
use crate::finding::{Evidence, Finding, Fix};
use crate::knowledge::host::Wanted;
use crate::knowledge::schema::host::Need;
use crate::knowledge::schema::torch::Compiler as Kind;
use crate::model::build::BuildPath;
use crate::model::host_compiler::{self, ChosenBy, HostCompiler};
use crate::model::overlay::sibling;
use crate::model::search;
use crate::version::Dotted;
use std::os::unix::ffi::OsStrExt as _;

pub const CHECKS: &[Check] = &[
    Check { id: "cxx-env-var-malformed", run: malformed },
    Check { id: "missing-cxx-compiler", run: missing },
    Check { id: "gcc-too-new-for-nvcc", run: gcc_too_new },
    Check { id: "clang-unsupported-by-nvcc", run: clang },
    Check { id: "gcc-rejected-by-torch", run: rejected_by_torch },
    Check { id: "gcc-too-old-for-torch", run: too_old },
    Check { id: "conda-compiler-shadows-system-gcc", run: conda_shadows },
    Check { id: "compiler-env-not-reaching-nvcc", run: not_reaching },
];

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
fn nvcc_host<'a>(case: &Case<'a>) -> Option<HostCompiler<'a>> {
    host_compiler::nvcc_host(case.facts, case.know, case.cuda_home(), BuildPath::Jit)
}

fn malformed(case: &Case<'_>) -> Judgement {
    if !case.purpose.builds() {
        return Ok(Verdict::not_applicable(super::lookup::NOT_ASKED));
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
        return Ok(Verdict::not_applicable(super::lookup::NOT_ASKED));
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

/// The highest gcc and clang that the toolkit lets through, and who says so.
struct Limits {
    gcc: Option<u32>,
    clang: Option<u32>,
    said_by: String,
    path: Option<HostPath>,
}

fn limits(case: &Case<'_>, toolkit: &Toolkit, nvcc: &Nvcc) -> Limits {
    if let Some(own) = toolkit.host_limits.value()
        && (own.gcc_max.is_some() || own.clang_max.is_some())
    {
        return Limits { gcc: own.gcc_max, clang: own.clang_max, said_by: "crt/host_config.h".to_owned(), path: Some(own.path.clone()) };
    }
    let version = nvcc.version.as_ref();
    Limits {
        gcc: version.and_then(|version| case.know.max_gcc(version)),
        clang: version.and_then(|version| case.know.max_clang(version)),
        said_by: "rules/cuda.toml".to_owned(),
        path: None,
    }
}

/// nvcc, what it runs, and what it accepts.
struct Pair<'a> {
    toolkit: &'a Toolkit,
    nvcc: &'a Nvcc,
    host: HostCompiler<'a>,
    compiler: &'a Compiler,
    version: &'a Dotted,
    limits: Limits,
}

fn pair<'a>(case: &Case<'a>) -> Result<Result<Pair<'a>, Verdict>, crate::facts::observed::Missing> {
    let toolkit = match picked(case)? {
        Ok(toolkit) => toolkit,
        Err(verdict) => return Ok(Err(verdict)),
    };
    let Some(nvcc) = toolkit.nvcc.get("nvcc")? else { return Ok(Err(Verdict::not_applicable("no nvcc in the toolkit"))) };
    case.facts.compilers.get("compilers")?;
    let Some(host) = nvcc_host(case) else { return Ok(Err(Verdict::not_applicable("no host compiler"))) };
    let Some(compiler) = host.compiler else { return Ok(Err(Verdict::not_applicable("the host compiler is not known"))) };
    let Some(version) = &compiler.version else { return Ok(Err(Verdict::not_applicable("the version of the host compiler is not known"))) };
    let limits = limits(case, toolkit, nvcc);
    Ok(Ok(Pair { toolkit, nvcc, host, compiler, version, limits }))
}

/// The user has told nvcc not to check: it is not ours to repeat, though no cure either.
fn check_is_off(case: &Case<'_>) -> bool {
    ["NVCC_PREPEND_FLAGS", "NVCC_APPEND_FLAGS"].into_iter().any(|name| {
        case.facts
            .env
            .text(name)
            .is_some_and(|flags| flags.split_whitespace().any(|word| word.trim_start_matches('-') == "allow-unsupported-compiler"))
    })
}

fn chooser(host: &HostCompiler<'_>) -> String {
    match (&host.by, host.by.source()) {
        (ChosenBy::CcbinFlag(name), _) => format!("-ccbin by {name}"),
        (_, Some(source)) => source.to_string(),
        (ChosenBy::ToolkitBin, None) => "the toolkit's own bin".to_owned(),
        _ => "nvcc runs `gcc` of PATH".to_owned(),
    }
}

fn gcc_too_new(case: &Case<'_>) -> Judgement {
    const ID: &str = "gcc-too-new-for-nvcc";
    let pair = match pair(case)? {
        Ok(pair) => pair,
        Err(verdict) => return Ok(verdict),
    };
    if pair.compiler.family != Family::Gcc || check_is_off(case) {
        return Ok(Verdict::Pass);
    }
    let Some(most) = pair.limits.gcc else { return Ok(Verdict::not_applicable("no limit is known for this nvcc")) };
    if pair.version.major() <= most {
        return Ok(Verdict::Pass);
    }
    let release = pair.toolkit.release().map_or("this nvcc".to_owned(), |release| format!("nvcc {release}"));
    let mut limit = Evidence::new("gcc", format!("{most} at most")).said_by(pair.limits.said_by.clone());
    if let Some(path) = &pair.limits.path {
        limit = limit.at(path);
    }
    let finding = Finding::error(ID, format!("{release} takes gcc {most} at most, and would run gcc {}", pair.version))
        .seen(Evidence::new("gcc", pair.version.to_string()).at(&pair.compiler.real).said_by(chooser(&pair.host)))
        .seen(limit)
        .then("every `.cu` file stops with `#error -- unsupported GNU version! gcc versions later than … are not supported!`");
    let finding = older_gcc(case, &pair, most, ID).into_iter().fold(finding, Finding::fix);
    Ok(Verdict::found(finding))
}

/// The lowest gcc that torch's headers accept.
fn lowest(case: &Case<'_>) -> u32 {
    let torch = case.torch().ok().flatten();
    torch.and_then(|torch| case.know.torch_headers(&torch.version)).and_then(|row| row.min_gcc).unwrap_or(0)
}

/// A g++ on this machine that nvcc and torch accept, the newest first; else how to get one.
fn older_gcc(case: &Case<'_>, pair: &Pair<'_>, most: u32, id: &'static str) -> Vec<Fix> {
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
fn set_cc(case: &Case<'_>, gxx: &HostPath, title: &str) -> Fix {
    let installed = |path: &HostPath| search::program_at(case.facts, path).is_some();
    match sibling(gxx).filter(|gcc| installed(gcc) || !installed(gxx)) {
        Some(gcc) => Fix::set("CC", gcc.0, format!("{title}; torch hands CC to nvcc")),
        None => Fix::set("CC", gxx.0.clone(), format!("{title}; torch hands CC to nvcc, and there is no gcc beside it")).review(),
    }
}

fn by_flag(case: &Case<'_>, pair: &Pair<'_>, gxx: &HostPath, title: &str) -> Fix {
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

fn clang(case: &Case<'_>) -> Judgement {
    const ID: &str = "clang-unsupported-by-nvcc";
    let pair = match pair(case)? {
        Ok(pair) => pair,
        Err(verdict) => return Ok(verdict),
    };
    if pair.compiler.family != Family::Clang || check_is_off(case) {
        return Ok(Verdict::Pass);
    }
    let Some(most) = pair.limits.clang else { return Ok(Verdict::not_applicable("no limit is known for this nvcc")) };
    if pair.version.major() <= most {
        return Ok(Verdict::Pass);
    }
    let finding = Finding::error(ID, format!("this nvcc takes clang {most} at most, and would run clang {}", pair.version))
        .seen(Evidence::new("clang", pair.version.to_string()).at(&pair.compiler.real).said_by(chooser(&pair.host)))
        .seen(Evidence::new("clang", format!("{most} at most")).said_by(pair.limits.said_by.clone()))
        .then("every `.cu` file stops with `#error -- unsupported clang version!`");
    let gcc = pair.limits.gcc.unwrap_or(u32::MAX);
    let finding = older_gcc(case, &pair, gcc, ID).into_iter().fold(finding, Finding::fix);
    Ok(Verdict::found(finding))
}

/// torch's own bounds on the compiler of setup builds, apart from what nvcc says.
fn rejected_by_torch(case: &Case<'_>) -> Judgement {
    let toolkit = match picked(case)? {
        Ok(toolkit) => toolkit,
        Err(verdict) => return Ok(verdict),
    };
    let Some(torch) = case.torch()? else { return Ok(Verdict::not_applicable("no torch")) };
    if torch.built_from_source()
        || case
            .facts
            .env
            .text("TORCH_DONT_CHECK_COMPILER_ABI")
            .is_some_and(|value| ["ON", "1", "YES", "TRUE", "Y"].contains(&value.as_str()))
    {
        return Ok(Verdict::not_applicable("this torch does not check the compiler"));
    }
    let Some(nvcc) = toolkit.nvcc.get("nvcc")?.and_then(|nvcc| nvcc.version.as_ref()) else {
        return Ok(Verdict::not_applicable("no nvcc whose build is known"));
    };
    case.facts.compilers.get("compilers")?;
    let cxx = host_compiler::distutils_cxx(case.facts);
    let Some(compiler) = cxx.compiler else { return Ok(Verdict::not_applicable("the C++ compiler is not known")) };
    let (kind, name) = match compiler.family {
        Family::Gcc => (Kind::Gcc, "gcc"),
        Family::Clang => (Kind::Clang, "clang"),
        _ => return Ok(Verdict::not_applicable("neither gcc nor clang")),
    };
    let Some(version) = &compiler.version else { return Ok(Verdict::not_applicable("the version of the C++ compiler is not known")) };
    let Some(bound) = case.know.torch_host_bound(&torch.version, kind, nvcc) else { return Ok(Verdict::Pass) };
    if bound.accepts(version) {
        return Ok(Verdict::Pass);
    }
    let range = format!("{} to below {}", bound.min, bound.max);
    let mut finding = Finding::error(
        "gcc-rejected-by-torch",
        format!("torch {} refuses {name} {version} with CUDA {}: it takes {range}", torch.version, nvcc.major_minor()),
    )
    .seen(Evidence::new(name, version.to_string()).at(&compiler.real))
    .seen(Evidence::new("torch", torch.version.to_string()).at(&torch.path).said_by("torch/utils/cpp_extension.py"))
    .then(format!(
        "setup builds stop with `The current installed version of {} … is greater than the maximum required version`; JIT builds go on",
        cxx.name()
    ));
    if !bound.known {
        finding = finding.likely();
    }
    let all = case.facts.compilers.value().map_or(&[][..], Vec::as_slice);
    let other = all
        .iter()
        .filter(|other| other.family == Family::Gcc && other.language == Language::Cxx)
        .filter(|other| {
            other.version.as_ref().is_some_and(|version| {
                case.know.torch_host_bound(&torch.version, Kind::Gcc, nvcc).is_none_or(|bound| bound.accepts(version))
            })
        })
        .max_by(|a, b| a.version.cmp(&b.version));
    finding = match other {
        Some(other) => {
            finding.fix(Fix::set("CXX", other.paths.first().unwrap_or(&other.real).0.clone(), "torch takes it for setup builds"))
        }
        None => {
            let most = bound.max.dotted().major().saturating_sub(1);
            finding.fix(Fix::advice(format!("install g++ {most} and set `CXX` to it")).curing("gcc-rejected-by-torch"))
        }
    };
    Ok(Verdict::found(finding))
}

fn too_old(case: &Case<'_>) -> Judgement {
    if !case.purpose.builds() {
        return Ok(Verdict::not_applicable(super::lookup::NOT_ASKED));
    }
    let Some(torch) = case.torch()? else { return Ok(Verdict::not_applicable("no torch")) };
    case.facts.compilers.get("compilers")?;
    let Some(headers) = case.know.torch_headers(&torch.version) else {
        return Ok(Verdict::not_applicable("no table knows what this torch needs"));
    };
    let Some(least) = headers.min_gcc else { return Ok(Verdict::not_applicable("this torch names no lowest gcc")) };
    let cxx = host_compiler::cxx(case.facts);
    let nvcc = nvcc_host(case).filter(|_| case.toolkit().ok().flatten().is_some());
    let mut findings = Vec::new();
    for (host, who) in [(Some(cxx), "the host compiler"), (nvcc, "nvcc's host compiler")] {
        let Some(host) = host else { continue };
        let Some(compiler) = host.compiler.filter(|compiler| compiler.family == Family::Gcc) else { continue };
        let Some(version) = compiler.version.as_ref().filter(|version| version.major() < least) else { continue };
        if findings.iter().any(|finding: &Finding| finding.subject == compiler.real.to_string()) {
            continue;
        }
        let finding = Finding::error("gcc-too-old-for-torch", format!("the headers of torch {} need gcc {least}, and {who} is gcc {version}", torch.version))
            .about(compiler.real.to_string())
            .seen(Evidence::new("gcc", version.to_string()).at(&compiler.real).said_by(host.by.source().map_or("PATH".to_owned(), |source| source.to_string())))
            .seen(super::torch::shown(torch))
            .then(if headers.default_standard >= 20 {
                "compilations stop in torch's headers, which use features of C++20 that this gcc does not know".to_owned()
            } else {
                "compilations stop in torch's headers, with `#error \"You're trying to build PyTorch with a too old version of GCC\"` or missing C++17 features".to_owned()
            });
        let newer = case.facts.compilers.value().and_then(|all| {
            all.iter()
                .filter(|other| {
                    other.family == Family::Gcc
                        && other.language == Language::Cxx
                        && other.version.as_ref().is_some_and(|version| version.major() >= least)
                })
                .min_by(|a, b| a.version.cmp(&b.version))
        });
        findings.push(match newer {
            Some(newer) => {
                let path = newer.paths.first().unwrap_or(&newer.real);
                finding.fix(Fix::set("CXX", path.0.clone(), "torch's C++ compiler")).fix(set_cc(case, path, "of the same gcc"))
            }
            None => {
                let fixes = install(case, Need::GxxVersion, &Wanted { gcc: Some(least), ..Wanted::default() }, "gcc-too-old-for-torch");
                if fixes.is_empty() {
                    finding.fix(
                        Fix::advice(format!("install gcc {least} or newer (on clusters: load its module) and set `CC` and `CXX` to it"))
                            .curing("gcc-too-old-for-torch"),
                    )
                } else {
                    fixes.into_iter().fold(finding, Finding::fix)
                }
            }
        });
    }
    Ok(Verdict::of(findings))
}

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
