//! What nvcc and torch accept of the compiler that nvcc will run.

use super::compiler::nvcc_host;
use super::compiler_fixes::{older_gcc, set_cc};
use super::lookup::NOT_ASKED;
use super::remedy::install;
use super::toolkit::picked;
use super::{Case, Check, Judgement, Verdict};
use crate::facts::compiler::{Compiler, Family, Language};
use crate::facts::raw::HostPath;
use crate::facts::toolkit::{Nvcc, Toolkit};
use crate::finding::{Evidence, Finding, Fix};
use crate::knowledge::host::Wanted;
use crate::knowledge::schema::host::Need;
use crate::knowledge::schema::torch::Compiler as Kind;
use crate::model::host_compiler::{self, ChosenBy, HostCompiler};
use crate::version::Dotted;

pub const CHECKS: &[Check] = &[
    Check { id: "gcc-too-new-for-nvcc", run: gcc_too_new },
    Check { id: "clang-unsupported-by-nvcc", run: clang },
    Check { id: "gcc-rejected-by-torch", run: rejected_by_torch },
    Check { id: "gcc-too-old-for-torch", run: too_old },
];

/// The highest gcc and clang that the toolkit lets through, and who says so.
pub struct Limits {
    pub gcc: Option<u32>,
    pub clang: Option<u32>,
    pub said_by: String,
    pub path: Option<HostPath>,
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
pub struct Pair<'a> {
    pub toolkit: &'a Toolkit,
    pub nvcc: &'a Nvcc,
    pub host: HostCompiler<'a>,
    pub compiler: &'a Compiler,
    pub version: &'a Dotted,
    pub limits: Limits,
}

pub fn pair<'a>(case: &Case<'a>) -> Result<Result<Pair<'a>, Verdict>, crate::facts::observed::Missing> {
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

pub fn chooser(host: &HostCompiler<'_>) -> String {
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
pub fn lowest(case: &Case<'_>) -> u32 {
    let torch = case.torch().ok().flatten();
    torch.and_then(|torch| case.know.torch_headers(&torch.version)).and_then(|row| row.min_gcc).unwrap_or(0)
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
        return Ok(Verdict::not_applicable(NOT_ASKED));
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
