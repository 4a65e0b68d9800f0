//! Whether the toolkit that torch picks is whole, of one release, and able to compile.

use super::lookup::NOT_ASKED;
use super::remedy::{best_toolkit, install_toolkit, pip_toolkit, use_toolkit};
use super::{Case, Check, Judgement, Verdict};
use crate::facts::observed::Missing;
use crate::facts::toolkit::{Layout, NvccKind, Stated, StatedBy, Toolkit};
use crate::finding::{Evidence, Finding, Fix};
use crate::model::build;
use crate::text::join;
use crate::version::CudaVersion;

pub const CHECKS: &[Check] = &[
    Check { id: "nvcc-wrapper", run: wrapper },
    Check { id: "toolkit-incomplete", run: incomplete },
    Check { id: "toolkit-mixed", run: mixed },
    Check { id: "nvcc-patch-release-bug", run: patch_bug },
    Check { id: "glibc-too-new-for-cuda-headers", run: glibc },
    Check { id: "nvcc-too-old-for-cxx-standard", run: standard },
    Check { id: "cxx-standard-conflict", run: standard_conflict },
    Check { id: "spaces-in-path", run: spaces },
];

/// The extras of NVIDIA's Python package `cuda-toolkit` that make up its compiler.
const PIP_PARTS: &[&str] = &["nvcc", "crt", "nvvm", "cudart", "cccl"];

/// The toolkit that torch finds, where building is asked for.
pub fn picked<'a>(case: &Case<'a>) -> Result<Result<&'a Toolkit, Verdict>, Missing> {
    if !case.purpose.builds() {
        return Ok(Err(Verdict::not_applicable(NOT_ASKED)));
    }
    Ok(match case.toolkit()? {
        Some(toolkit) => Ok(toolkit),
        None => Err(Verdict::not_applicable("torch finds no toolkit")),
    })
}

/// Another toolkit that is whole; else how to get one.
fn another(case: &Case<'_>, toolkit: &Toolkit, id: &'static str) -> Vec<Fix> {
    match best_toolkit(case, true).filter(|best| best.real != toolkit.real) {
        Some(best) => use_toolkit(case, best),
        None => install_toolkit(case, id),
    }
}

fn wrapper(case: &Case<'_>) -> Judgement {
    let toolkit = match picked(case)? {
        Ok(toolkit) => toolkit,
        Err(verdict) => return Ok(verdict),
    };
    let Some(nvcc) = toolkit.nvcc.get("nvcc")? else { return Ok(Verdict::not_applicable("no nvcc in the toolkit")) };
    let NvccKind::Wrapper { by, runs, found } = &nvcc.kind else { return Ok(Verdict::Pass) };
    let finding = |title: String| {
        Finding::warning("nvcc-wrapper", title).about(nvcc.path.to_string()).seen(Evidence::new("wrapper", by.clone()).at(&nvcc.path))
    };
    match runs {
        Some(target) if !found => Ok(Verdict::found(
            finding(format!("`{}` starts `{target}`, which is not there", nvcc.path))
                .then("every compilation fails before nvcc is reached")
                .fix(Fix::advice(format!(
                    "make `{}` start an nvcc that exists, or set `CUDA_HOME` to a toolkit with the real program",
                    nvcc.path
                ))),
        )),
        Some(target) => {
            // What it runs belongs to another toolkit than the folder it stands in.
            let owner = case.toolkits().iter().find(|other| other.real != toolkit.real && target.starts_with(&*other.real));
            let beside = toolkit
                .stated
                .iter()
                .find(|stated| matches!(stated.what, StatedBy::CudaHeader | StatedBy::RuntimeHeader | StatedBy::VersionJson));
            let (runs_release, own) = (nvcc.version.as_ref(), beside.map(|stated| &stated.version));
            let differ = runs_release.zip(own).is_some_and(|(a, b)| a.major_minor() != b.major_minor());
            if owner.is_none() && !differ {
                return Ok(Verdict::Pass);
            }
            let release = runs_release.map(|version| format!(" (CUDA {})", version.major_minor())).unwrap_or_default();
            let mut found = finding(format!("`{}` starts `{target}`{release}, which is not of this toolkit", nvcc.path))
                .then("the build compiles with another release than the folder it names");
            if let Some(stated) = beside {
                found = found.seen(Evidence::new("headers", stated.version.to_string()).at(&stated.path));
            }
            // The toolkit of torch's release before the one that the wrapper leads to.
            let better = best_toolkit(case, true).filter(|better| better.real != toolkit.real);
            if let Some(instead) = better.or(owner) {
                found = use_toolkit(case, instead).into_iter().fold(found, Finding::fix);
            } else {
                found = found
                    .fix(Fix::advice(format!("set `CUDA_HOME` to the toolkit of `{target}`, or let the wrapper start the nvcc beside it")));
            }
            Ok(Verdict::found(found))
        }
        None => Ok(Verdict::Pass),
    }
}

fn incomplete(case: &Case<'_>) -> Judgement {
    let toolkit = match picked(case)? {
        Ok(toolkit) => toolkit,
        Err(verdict) => return Ok(verdict),
    };
    let Some(nvcc) = toolkit.nvcc.get("nvcc")? else { return Ok(Verdict::not_applicable("no nvcc in the toolkit")) };
    let mut finding = match &nvcc.kind {
        NvccKind::Broken { why } => Finding::error("toolkit-incomplete", format!("`{}` is no compiler: {why}", nvcc.path))
            .seen(Evidence::new("nvcc", why.clone()).at(&nvcc.path))
            .then("every compilation fails at once"),
        _ => {
            let missing: Vec<&str> =
                toolkit.parts.iter().filter(|part| part.path.is_none() || part.broken.is_some()).map(|part| part.name.as_str()).collect();
            if missing.is_empty() {
                return Ok(Verdict::Pass);
            }
            let names: Vec<String> = missing.iter().map(|name| format!("`{name}`")).collect();
            let finding = Finding::error("toolkit-incomplete", format!("the toolkit in `{}` lacks {}", toolkit.root, join(&names)))
                .seen(Evidence::new("nvcc", nvcc.version.as_ref().map(ToString::to_string).unwrap_or_default()).at(&nvcc.path))
                .then(symptom(missing[0]));
            missing.iter().fold(finding, |finding, name| {
                match toolkit.part(name).and_then(|part| part.path.as_ref().zip(part.broken.as_ref())) {
                    Some((path, why)) => finding.seen(Evidence::new(*name, why.clone()).at(path)),
                    None => finding.seen(Evidence::new(*name, "not found where nvcc looks")),
                }
            })
        }
    };
    finding = finding.about(toolkit.root.to_string());
    if toolkit.layout == Layout::Pip
        && let Some(release) = toolkit.release()
    {
        return Ok(Verdict::found(finding.fix(pip_toolkit(case, toolkit, release, PIP_PARTS, "toolkit-incomplete"))));
    }
    Ok(Verdict::found(another(case, toolkit, "toolkit-incomplete").into_iter().fold(finding, Finding::fix)))
}

/// What the user meets first where a part is missing; `nvcc -V` works all the same.
fn symptom(part: &str) -> String {
    if part.ends_with(".h") {
        format!("every compilation stops with `fatal error: {part}: No such file or directory`, though `nvcc -V` works")
    } else {
        format!("every compilation stops with `sh: 1: {part}: not found`, though `nvcc -V` works")
    }
}

fn mixed(case: &Case<'_>) -> Judgement {
    let toolkit = match picked(case)? {
        Ok(toolkit) => toolkit,
        Err(verdict) => return Ok(verdict),
    };
    let release = |stated: &&Stated| (stated.version.major(), stated.version.minor());
    let compilers: Vec<&Stated> =
        toolkit.stated.iter().filter(|stated| matches!(stated.what, StatedBy::Nvcc | StatedBy::Ptxas | StatedBy::Cicc)).collect();
    let Some(first) = compilers.first() else { return Ok(Verdict::Pass) };
    let headers = toolkit.stated.iter().find(|stated| stated.what == StatedBy::CudaHeader);
    // A wrapper that runs another toolkit's nvcc says so itself.
    if toolkit.nvcc.value().is_some_and(|nvcc| matches!(nvcc.kind, NvccKind::Wrapper { .. })) {
        return Ok(Verdict::not_applicable("nvcc is a wrapper"));
    }
    let odd = compilers.iter().find(|stated| release(stated) != release(first)).copied();
    let odd_header = headers.filter(|stated| release(stated) != release(first));
    let (odd, finding) = match (odd, odd_header) {
        (Some(odd), _) => (odd, Finding::error("toolkit-mixed", title(toolkit, first, odd)).then("compilations stop with `ptxas fatal : Unsupported .version` or an error in the front end: nvcc, cicc and ptxas must be of one release")),
        (None, Some(odd)) if odd.version.major() != first.version.major() => {
            (odd, Finding::error("toolkit-mixed", title(toolkit, first, odd)).then("nvcc compiles against headers of another CUDA major"))
        }
        (None, Some(odd)) => (odd, Finding::warning("toolkit-mixed", title(toolkit, first, odd)).then("nvcc compiles against headers of another release")),
        (None, None) => return Ok(Verdict::Pass),
    };
    let finding = [*first, odd].into_iter().fold(finding.about(toolkit.root.to_string()), |finding, stated| {
        finding.seen(Evidence::new(name(stated.what), stated.version.to_string()).at(&stated.path))
    });
    let finding = if toolkit.layout == Layout::Pip {
        finding.fix(pip_toolkit(case, toolkit, first.version.major_minor(), PIP_PARTS, "toolkit-mixed"))
    } else {
        another(case, toolkit, "toolkit-mixed").into_iter().fold(finding, Finding::fix)
    };
    Ok(Verdict::found(finding))
}

fn title(toolkit: &Toolkit, first: &Stated, odd: &Stated) -> String {
    format!(
        "the toolkit in `{}` is of two releases: {} {} and {} {}",
        toolkit.root,
        name(first.what),
        first.version.major_minor(),
        name(odd.what),
        odd.version.major_minor()
    )
}

fn name(what: StatedBy) -> &'static str {
    match what {
        StatedBy::Nvcc => "nvcc",
        StatedBy::Ptxas => "ptxas",
        StatedBy::Cicc => "cicc",
        StatedBy::CudaHeader => "cuda.h",
        StatedBy::RuntimeHeader => "cuda_runtime_api.h",
        StatedBy::Cudart => "libcudart",
        StatedBy::VersionJson => "version.json",
        StatedBy::VersionTxt => "version.txt",
    }
}

fn patch_bug(case: &Case<'_>) -> Judgement {
    let toolkit = match picked(case)? {
        Ok(toolkit) => toolkit,
        Err(verdict) => return Ok(verdict),
    };
    if case.torch()?.is_none() {
        return Ok(Verdict::not_applicable("no torch"));
    }
    let Some(nvcc) = toolkit.nvcc.get("nvcc")? else { return Ok(Verdict::not_applicable("no nvcc in the toolkit")) };
    let Some(version) = &nvcc.version else { return Ok(Verdict::not_applicable("nvcc does not tell its build")) };
    let Some(row) = case.know.nvcc_build(version) else { return Ok(Verdict::Pass) };
    let Some(bug) = &row.bug else { return Ok(Verdict::Pass) };
    if let Some(least) = row.bug_from_gcc {
        let host = crate::model::host_compiler::nvcc_host(case.facts, case.know, case.cuda_home(), build::BuildPath::Setup);
        let gcc = host.and_then(|host| host.compiler).filter(|compiler| compiler.family == crate::facts::compiler::Family::Gcc);
        if gcc.and_then(|gcc| gcc.version.as_ref()).is_none_or(|version| version.major() < least) {
            return Ok(Verdict::Pass);
        }
    }
    let fixed = row.fixed_in.as_ref().map(|version| format!("; {version} is free of it")).unwrap_or_default();
    let finding = Finding::warning("nvcc-patch-release-bug", format!("this nvcc has a known bug: {bug}{fixed}"))
        .likely()
        .seen(Evidence::new("nvcc", version.to_string()).at(&nvcc.path))
        .then("correct sources fail to compile");
    Ok(Verdict::found(another(case, toolkit, "nvcc-patch-release-bug").into_iter().fold(finding, Finding::fix)))
}

fn glibc(case: &Case<'_>) -> Judgement {
    let toolkit = match picked(case)? {
        Ok(toolkit) => toolkit,
        Err(verdict) => return Ok(verdict),
    };
    // Distributions patch the headers they ship for their own glibc.
    if toolkit.layout == Layout::Distribution {
        return Ok(Verdict::not_applicable("the distribution fits its headers to its glibc"));
    }
    let Some(release) = toolkit.release().filter(|_| toolkit.nvcc.value().is_some()) else {
        return Ok(Verdict::not_applicable("no nvcc whose release is known"));
    };
    let Some(glibc) = case.facts.host.glibc.get("glibc")? else { return Ok(Verdict::not_applicable("no glibc")) };
    let Some(clash) = case.know.glibc_clashes(glibc, release).next() else { return Ok(Verdict::Pass) };
    let finding = Finding::error(
        "glibc-too-new-for-cuda-headers",
        format!("glibc {glibc} declares `{}` in another way than the headers of CUDA {release}", clash.function),
    )
    .likely()
    .seen(Evidence::new("glibc", glibc.to_string()))
    .seen(Evidence::new("toolkit", release.to_string()).at(&toolkit.root))
    .then(format!("every `.cu` file stops with `exception specification is incompatible with that of previous function \"{}\"`; another gcc does not help", clash.function));
    let better = case
        .toolkits()
        .iter()
        .find(|other| super::remedy::usable(other) && other.release().is_some_and(|release| release >= clash.fixed_in));
    let finding = match better {
        Some(better) => use_toolkit(case, better).into_iter().fold(finding, Finding::fix),
        None => finding.fix(
            Fix::advice(format!("build with CUDA {} or newer and a torch for it, or in a container with an older glibc", clash.fixed_in))
                .curing("glibc-too-new-for-cuda-headers"),
        ),
    };
    Ok(Verdict::found(finding))
}

fn standard(case: &Case<'_>) -> Judgement {
    let toolkit = match picked(case)? {
        Ok(toolkit) => toolkit,
        Err(verdict) => return Ok(verdict),
    };
    let Some(torch) = case.torch()? else { return Ok(Verdict::not_applicable("no torch")) };
    let Some(release) = toolkit.release().filter(|_| toolkit.nvcc.value().is_some()) else {
        return Ok(Verdict::not_applicable("no nvcc whose release is known"));
    };
    let asked = build::torch_cxx_standard(case.know, torch);
    let known = match case.know.toolkit(release) {
        Some(row) => row.max_cxx_standard,
        None if case.know.newest_cuda().is_some_and(|newest| release > newest) => return Ok(Verdict::Pass),
        None => return Err(Missing { topic: "toolkit", why: format!("no table knows CUDA {release}"), failed: false }),
    };
    if known >= asked {
        return Ok(Verdict::Pass);
    }
    let finding = Finding::error(
        "nvcc-too-old-for-cxx-standard",
        format!("torch {} asks for C++{asked}, and nvcc {release} knows C++{known} at most", torch.version),
    )
    .seen(Evidence::new("nvcc", release.to_string()).at(&toolkit.root))
    .seen(super::torch::shown(torch))
    .then(format!("nvcc stops with `Value 'c++{asked}' is not defined for option 'std'`"));
    Ok(Verdict::found(another(case, toolkit, "nvcc-too-old-for-cxx-standard").into_iter().fold(finding, Finding::fix)))
}

/// A `-std` in nvcc's own variables that is below what torch's headers need, or stands beside torch's.
fn standard_conflict(case: &Case<'_>) -> Judgement {
    if let Err(verdict) = picked(case)? {
        return Ok(verdict);
    }
    let Some(torch) = case.torch()? else { return Ok(Verdict::not_applicable("no torch")) };
    let needed = build::torch_cxx_standard(case.know, torch);
    let mut findings = Vec::new();
    for name in ["NVCC_APPEND_FLAGS", "NVCC_PREPEND_FLAGS"] {
        let Some(flags) = case.facts.env.text(name) else { continue };
        let Some(standard) = standard_in(&flags) else { continue };
        // What is put in front is overridden by torch's own flag; only what comes last decides.
        if name == "NVCC_PREPEND_FLAGS" || standard >= needed {
            continue;
        }
        findings.push(
            Finding::error("cxx-standard-conflict", format!("`{name}` asks for C++{standard}, and the headers of torch {} need C++{needed}", torch.version))
                .about(name)
                .seen(Evidence::new(name, flags.clone()).said_by("environment"))
                .then(format!("nvcc warns `incompatible redefinition for option 'std'`, takes C++{standard}, and stops with `#error C++{needed} or later compatible compiler is required`"))
                .fix(Fix::advice(format!("take `-std` out of `{name}`"))),
        );
    }
    Ok(Verdict::of(findings))
}

/// The last C++ standard named in a list of flags, as 14, 17, 20.
fn standard_in(flags: &str) -> Option<u32> {
    let mut words = flags.split_whitespace();
    let mut found = None;
    while let Some(word) = words.next() {
        let value = match word {
            "-std" | "--std" => words.next(),
            word => word.strip_prefix("-std=").or_else(|| word.strip_prefix("--std=")),
        };
        if let Some(number) = value.and_then(|value| value.trim_start_matches("gnu++").trim_start_matches("c++").parse().ok()) {
            found = Some(number);
        }
    }
    found
}

/// A character that ninja or the shell does not take as it is, where a path stands without quotes.
fn special(byte: u8) -> bool {
    byte.is_ascii_whitespace() || b"'\"`$\\;&|<>()".contains(&byte)
}

fn spoken(byte: u8) -> String {
    match byte {
        b'\n' => "a newline".to_owned(),
        b'\r' => "a carriage return".to_owned(),
        b'\'' => "a single quote".to_owned(),
        b'"' => "a double quote".to_owned(),
        b'`' => "a backtick".to_owned(),
        b'\\' => "a backslash".to_owned(),
        byte if byte.is_ascii_whitespace() => "a blank".to_owned(),
        byte => format!("`{}`", char::from(byte)),
    }
}

/// What a JIT build prints, run with dash and ninja 1.13. `at` is where the first character that is special stands.
fn words_of_shell(value: &[u8], at: usize, byte: u8) -> String {
    let cut = String::from_utf8_lossy(value.get(..at).unwrap_or_default());
    let odd = value.iter().filter(|other| **other == byte).count() % 2 == 1;
    match byte {
        // Ninja reads these itself: its file has one variable a line, and `$` begins one.
        b'\n' => "JIT builds stop at torch's ninja file with `ninja: error: build.ninja:…: expected '='`".to_owned(),
        b'$' => "JIT builds stop: ninja reads the name of a variable there, and another path is started".to_owned(),
        b'\'' | b'"' if odd => "JIT builds stop with `/bin/sh: 1: Syntax error: Unterminated quoted string`".to_owned(),
        b'`' if odd => "JIT builds stop with `/bin/sh: 1: Syntax error: EOF in backquote substitution`".to_owned(),
        b'\'' | b'"' | b'`' | b'\\' => "JIT builds stop: `/bin/sh` takes these characters away, and another path is started".to_owned(),
        b'(' | b')' => "JIT builds stop with `/bin/sh: 1: Syntax error`".to_owned(),
        _ => format!("JIT builds stop with `/bin/sh: 1: {cut}: not found`"),
    }
}

/// Only the toolkit's path matters: torch's ninja file passes it to a shell without quotes. Special characters in cache and source folders
/// are fine.
fn spaces(case: &Case<'_>) -> Judgement {
    if let Err(verdict) = picked(case)? {
        return Ok(verdict);
    }
    let Some(value) = &case.cuda_home().value else { return Ok(Verdict::Pass) };
    let bytes = value.bytes();
    let Some((at, first)) = bytes.iter().copied().enumerate().find(|(_, byte)| special(*byte)) else { return Ok(Verdict::Pass) };
    let by = case.cuda_home().by.source().map(|source| source.to_string()).unwrap_or_default();
    let mut finding = Finding::error("spaces-in-path", format!("the toolkit's path `{value}` has {} in it", spoken(first)))
        .seen(Evidence::new("CUDA_HOME", value.to_string()).said_by(by))
        .then(words_of_shell(bytes, at, first));
    let plain = |toolkit: &&Toolkit| !toolkit.root.bytes().iter().copied().any(special);
    let same = case.cuda_home().toolkit.and_then(|own| case.toolkits().iter().filter(plain).find(|other| other.real == own.real));
    let other = same.or_else(|| best_toolkit(case, true).filter(plain));
    finding = match other {
        Some(other) => use_toolkit(case, other).into_iter().fold(finding, Finding::fix),
        None => {
            let release = case
                .cuda_home()
                .toolkit
                .and_then(Toolkit::release)
                .map_or("cuda".to_owned(), |release: CudaVersion| format!("cuda-{release}"));
            let link = format!("/usr/local/{release}");
            finding
                .fix(Fix::run_as_root(["ln", "-s", &value.to_string(), &link], "a name that needs no quotes").curing("spaces-in-path"))
                .fix(Fix::set("CUDA_HOME", link, "").review())
        }
    };
    Ok(Verdict::found(finding))
}

#[cfg(test)]
#[expect(clippy::unwrap_used)]
mod tests {
    use super::*;

    use super::super::sample::*;
    use crate::facts::observed::Observed;

    #[test]
    fn characters_that_the_shell_reads() {
        for (root, says, then) in [
            ("/opt/my cuda", "a blank", "/bin/sh: 1: /opt/my: not found"),
            ("/opt/it's", "a single quote", "Unterminated quoted string"),
            ("/opt/a\"b", "a double quote", "Unterminated quoted string"),
            ("/opt/a`b", "a backtick", "EOF in backquote substitution"),
            ("/opt/a$b", "`$`", "name of a variable"),
            ("/opt/a'b'", "a single quote", "takes these characters away"),
            ("/opt/a;b", "`;`", "/bin/sh: 1: /opt/a: not found"),
            ("/opt/a\nb", "a newline", "expected '='"),
        ] {
            let mut facts = healthy();
            crate::model::assume::software(&mut facts, &crate::knowledge::Knowledge::embedded(), &["cuda=12.4".to_owned()]).unwrap();
            let mut kit = facts.toolkits.value().unwrap()[0].clone();
            (kit.root, kit.real) = (root.into(), root.into());
            facts.toolkits = Observed::seen(vec![kit]);
            facts.env.set("CUDA_HOME", root);
            let finding = finding(&facts, "spaces-in-path");
            assert!(finding.title.ends_with(&format!("has {says} in it")), "{}", finding.title);
            assert!(finding.consequence.contains(then), "{}", finding.consequence);
        }
    }

    #[test]
    fn standards_in_flags() {
        assert_eq!(standard_in("-O3 -std=c++14"), Some(14));
        assert_eq!(standard_in("--std c++17 -std=gnu++20"), Some(20));
        assert_eq!(standard_in("-O2 -lineinfo"), None);
    }
}
