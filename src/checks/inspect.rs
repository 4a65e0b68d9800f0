//! Whether a file that was looked into will load here: its libraries, their versions, and every symbol that it wants.

use super::{Case, inspect_cache};
use crate::facts::inspect::{Binary, Wheel};
use crate::facts::raw::HostPath;
use crate::facts::torch::Torch;
use crate::finding::{Evidence, Finding, Fix, ProblemId, Severity};
use crate::model::inspect::{Load, Loads, Within, is_torchs, needs_torch};
use crate::model::loader::{Answer, Need};
use crate::model::symbols::{Owner, cxx11_abi, owner, shown};
use crate::text::{count, join};
use crate::version::Dotted;

/// A file, and what was found out about its loading.
pub struct Looked<'a> {
    pub binary: &'a Binary,
    pub load: &'a Load,
    /// Symbols that it cannot do without and that no file in its scope has. `Err`: not known, and why.
    pub missing: Result<Vec<Symbol>, String>,
    /// The user asked for this very file, or for the wheel that it is in.
    pub named: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Symbol {
    pub name: String,
    /// A library of torch's that has it, though the file is not linked with that.
    pub in_torch: Option<HostPath>,
}

/// So many symbols are shown.
const SHOWN: usize = 3;

/// What keeps the file from loading, the first cause first.
pub fn findings(case: &Case<'_>, loads: &Loads<'_>, looked: &Looked<'_>) -> Vec<Finding> {
    let mut found: Vec<Finding> = Vec::new();
    found.extend(impostor(looked));
    found.extend(library(case, loads, looked));
    found.extend(two_runtimes(loads, looked));
    if found.iter().all(|finding| finding.severity == Severity::Info) {
        found.extend(version(loads, looked));
    }
    // What a library would bring that is not there, nobody knows: only torch's own symbols are judged then.
    let whole = looked.load.opening.is_whole();
    found.extend(symbols(loads, looked, whole));
    let found = inspect_cache::with_cause(case, looked.binary, found);
    let found: Vec<Finding> = found.into_iter().map(|finding| finding.about(looked.binary.name())).collect();
    under_the_first(found)
}

/// Loading stops at the first error: what else is wrong with the file is told with it.
fn under_the_first(found: Vec<Finding>) -> Vec<Finding> {
    let (mut errors, mut rest): (Vec<Finding>, Vec<Finding>) = found.into_iter().partition(|finding| finding.severity == Severity::Error);
    if errors.len() > 1 {
        let mut others = errors.split_off(1);
        if let Some(first) = errors.first_mut() {
            others.iter_mut().for_each(|other| other.caused_by.push(first.id));
            first.folded = others;
        }
    }
    errors.append(&mut rest);
    errors
}

/// A file that is called after one release of the CUDA runtime and is another.
fn impostor(looked: &Looked<'_>) -> Option<Finding> {
    const ID: &str = "libcudart-impostor";
    let name = looked.binary.file_name();
    let soname = looked.binary.elf.value()?.soname.as_deref()?;
    if !name.starts_with("libcudart.so.") || name == soname || name.starts_with(&format!("{soname}.")) {
        return None;
    }
    let finding = Finding::error(ID, format!("`{}` is called `{name}` and says of itself that it is `{soname}`", looked.binary.name()))
        .seen(Evidence::new("SONAME", soname).at(&looked.binary.path))
        .then("what asks for this name gets another release, whose symbols have other versions")
        .fix(Fix::advice(format!("remove it, and install the release that has `{name}`")));
    Some(finding)
}

/// The file brings another CUDA runtime into the process than torch's: each has its own state, and pointers and streams of the one mean
/// nothing to the other's libraries.
fn two_runtimes(loads: &Loads<'_>, looked: &Looked<'_>) -> Option<Finding> {
    let torch = loads.torch()?;
    let own = torch.cudart.as_deref()?;
    let elf = looked.binary.elf.value().filter(|elf| needs_torch(elf))?;
    let other = elf.needed.iter().find(|name| name.starts_with("libcudart.so.") && *name != own)?;
    let path = looked.load.opening.needs.iter().find(|need| need.name == *other)?.answer.path()?;
    let name = looked.binary.name();
    let finding = Finding::warning(
        "two-cuda-families",
        format!("`{name}` needs `{other}`, and torch {} runs with `{own}`: both are loaded", torch.version),
    )
    .seen(Evidence::new("needed", other.clone()).at(path))
    .seen(Evidence::new("torch", own.to_owned()).at(&torch.path))
    .then("two CUDA runtimes in one process; libraries of the two do not know each other's handles")
    .fix(Fix::advice(format!(
        "take a build for CUDA {}, or build it here",
        torch.cuda.map_or("of torch".to_owned(), |cuda| cuda.to_string())
    )));
    Some(finding)
}

/// What a wheel says of itself, against the torch that it would meet, and against what its files need.
pub fn of_wheel(torch: Option<&Torch>, wheel: &Wheel) -> Vec<Finding> {
    let mut found = Vec::new();
    let name = wheel.path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    if let (Some(torch), Some(built)) = (torch, wheel.built.value())
        && built.ops.values().any(|built| *built)
    {
        let known = |version: &Option<String>| version.clone().filter(|version| version != "0.0" && !version.is_empty());
        let other = |then: &Option<String>, now: Option<String>| known(then).zip(now).filter(|(then, now)| then != now);
        let pairs = [
            ("torch", other(&built.torch, Some(torch.version.major_minor()))),
            ("CUDA", other(&built.cuda, torch.cuda.map(|cuda| cuda.to_string()))),
        ];
        if let Some((what, (then, now))) = pairs.into_iter().find_map(|(what, pair)| Some((what, pair?))) {
            let finding = Finding::error(
                "prebuilt-ops-torch-changed",
                format!("the ops in `{name}` were built for {what} {then}, and this environment has {what} {now}"),
            )
            .seen(Evidence::new("built for", format!("{what} {then}")).at(&wheel.path).said_by("deepspeed/git_version_info_installed.py"))
            .seen(Evidence::new("torch", torch.version.to_string()).at(&torch.path))
            .then("DeepSpeed refuses each of them when it is loaded")
            .fix(Fix::advice(format!("take or build a wheel for {what} {now}")));
            found.push(finding.about(wheel.path.to_string()));
        }
    }
    let claim = wheel.name.as_ref().and_then(|name| name.glibc());
    let highest = |binary: &Binary| Some((binary.name(), binary.elf.value().filter(|_| binary.is_loaded())?.highest_need("GLIBC")?));
    let needs = wheel.binaries.iter().filter_map(highest).max_by(|one, other| one.1.cmp(&other.1));
    if let (Some(claim), Some((member, needs))) = (claim, needs)
        && needs > claim
    {
        let finding =
            Finding::warning("binary-glibc-too-new", format!("`{name}` says that glibc {claim} is enough, and `{member}` needs {needs}"))
                .seen(Evidence::new("needed", format!("GLIBC_{needs}")).at(&wheel.path))
                .then(format!(
                    "pip installs it on a system of glibc {claim}, where loading stops with ``version `GLIBC_{needs}' not found``"
                ))
                .fix(Fix::advice("auditwheel repair"));
        found.push(finding.about(wheel.path.to_string()));
    }
    found
}

/// The first library that is not found or refused: the loader stops there.
fn library(case: &Case<'_>, loads: &Loads<'_>, looked: &Looked<'_>) -> Option<Finding> {
    let need = looked.load.opening.first_missing()?;
    let name = looked.binary.name();
    let (id, severity) = id_of(case, loads, looked, need);
    let whose = if need.by.file_name().is_some_and(|by| *by == *looked.binary.file_name()) {
        format!("`{name}` needs `{}`", need.name)
    } else {
        format!("`{name}` needs `{}`, by way of `{}`", need.name, file_name(&need.by))
    };
    let mut finding = match &need.answer {
        Answer::Refused { path, why, .. } => {
            let words = if why.contains("ELF") { "invalid ELF header" } else { "file too short" };
            Finding::new(id, severity, format!("{whose}, and the first file of that name that the loader meets is no library: {why}"))
                .seen(Evidence::new(&need.name, why.clone()).at(path))
                .then(format!("loading stops with `{path}: {words}`"))
        }
        _ => Finding::new(id, severity, format!("{whose}, and the loader finds no such file"))
            .then(format!("loading stops with `{}: cannot open shared object file: No such file or directory`", need.name)),
    };
    finding = finding.seen(Evidence::new("needed", need.name.clone()).at(&need.by).said_by("NEEDED"));
    match (id, loads.torch()) {
        ("prebuilt-binary-torch-mismatch", Some(torch)) => {
            finding = finding.seen(Evidence::new("torch", torch.version.to_string()).at(&torch.path));
            let advice = format!(
                "take a build for torch {} with CUDA {}, or build it here",
                torch.version,
                torch.cuda.map_or("none".to_owned(), |cuda| cuda.to_string())
            );
            Some(finding.fix(Fix::advice(advice)))
        }
        ("torch-not-found", _) => Some(finding.fix(Fix::advice("install the torch that it was built for into this Python"))),
        ("libcuda-not-found" | "libnvidia-ml-not-found", _) => {
            Some(finding.fix(Fix::advice("it comes with NVIDIA's driver, never with a toolkit")))
        }
        _ => {
            let folder = copy_elsewhere(case, &need.name);
            let fix = folder.map_or_else(
                || Fix::advice(format!("install the package that has `{}`, beside it or on the loader's path", need.name)),
                |folder| Fix::prepend("LD_LIBRARY_PATH", &folder, "has a library of this name").review(),
            );
            Some(finding.fix(fix))
        }
    }
}

fn id_of(case: &Case<'_>, loads: &Loads<'_>, looked: &Looked<'_>, need: &Need) -> (ProblemId, Severity) {
    let name = need.name.as_str();
    let start = |prefix: &str| name.starts_with(prefix);
    if start("libcuda.so") || start("libnvidia-ml.so") {
        // A machine without a driver has neither, and a build there is right without.
        let severity = if case.facts.gpu.driver_seen() { Severity::Error } else { Severity::Info };
        return (if start("libcuda.so") { "libcuda-not-found" } else { "libnvidia-ml-not-found" }, severity);
    }
    if is_torchs(name) {
        return match loads.torch() {
            None => ("torch-not-found", Severity::Error),
            Some(_) => ("prebuilt-binary-torch-mismatch", Severity::Error),
        };
    }
    let torchs_cudart = loads.torch().and_then(|torch| torch.cudart.as_deref());
    let of_torch = looked.binary.elf.value().is_some_and(needs_torch);
    match torchs_cudart {
        Some(own) if start("libcudart.so") && of_torch && own != name => ("prebuilt-binary-torch-mismatch", Severity::Error),
        _ if start("libcudart.so") => {
            (if matches!(need.answer, Answer::Refused { .. }) { "libcudart-impostor" } else { "libcudart-not-found" }, Severity::Error)
        }
        _ if start("libcudnn") => ("cudnn-not-found", Severity::Error),
        _ => ("runtime-lib-not-on-loader-path", Severity::Error),
    }
}

/// The folder of a good copy of that name that no search of this file meets.
fn copy_elsewhere(case: &Case<'_>, name: &str) -> Option<HostPath> {
    let all = case.facts.loader.value()?;
    let copy = all.libraries.iter().find(|library| library.name == name && library.elf.value().is_some())?;
    copy.path.parent().map(HostPath::new)
}

/// A version that a library lacks. What has no versions at all is taken as it is, as the loader takes it.
fn version(loads: &Loads<'_>, looked: &Looked<'_>) -> Option<Finding> {
    let elf = looked.binary.elf.value()?;
    for need in &elf.version_needs {
        let path = looked.load.opening.needs.iter().find(|one| one.name == need.library)?.answer.path()?;
        let Some(library) = loads.elf_at(path).filter(|library| !library.version_definitions.is_empty()) else { continue };
        let lacking: Vec<&String> = need.versions.iter().filter(|node| !library.version_definitions.contains(node)).collect();
        let Some(highest) = lacking.iter().max_by_key(|node| number(node)) else { continue };
        let id = if highest.starts_with("GLIBC_") { "glibc-not-found" } else { "glibcxx-not-found" };
        let family = highest.split('_').next().unwrap_or_default();
        let offered =
            library.highest_definition(family).map_or("none of that name".to_owned(), |most| format!("`{family}_{most}` at most"));
        let known = ["GLIBC", "GLIBCXX", "CXXABI", "GCC"].contains(&family);
        let id = if known { id } else { "runtime-lib-not-on-loader-path" };
        return Some(
            Finding::error(id, format!("`{}` needs `{highest}`, and the {} that loads has {offered}", looked.binary.name(), need.library))
                .seen(Evidence::new("needed", (*highest).clone()).at(&looked.binary.path))
                .seen(Evidence::new(&need.library, offered.replace('`', "")).at(path))
                .then(format!("loading stops with ``{path}: version `{highest}' not found``"))
                .fix(Fix::advice("build it on this system or an older one, or use a system as new as the one it was built on")),
        );
    }
    None
}

fn number(node: &str) -> Dotted {
    node.rsplit('_').next().and_then(|number| number.parse().ok()).unwrap_or_default()
}

fn symbols(loads: &Loads<'_>, looked: &Looked<'_>, whole: bool) -> Vec<Finding> {
    let Ok(missing) = &looked.missing else { return Vec::new() };
    let of_torch = looked.binary.elf.value().is_some_and(needs_torch);
    // Python binds every symbol of what it loads; of other libraries many are given by the program that loads them.
    let judged = looked.load.within != Within::Alone && (looked.binary.module || of_torch);
    if !judged {
        return Vec::new();
    }
    let mut found = Vec::new();
    let (mut torchs, mut others): (Vec<&Symbol>, Vec<&Symbol>) = missing.iter().partition(|symbol| owner(&symbol.name) == Owner::Torch);
    if loads.torch().is_none() {
        torchs.clear();
    }
    let unlinked: Vec<&Symbol> = torchs.iter().copied().filter(|symbol| symbol.in_torch.is_some()).collect();
    torchs.retain(|symbol| symbol.in_torch.is_none());
    found.extend(of_other_torch(loads, looked, &torchs));
    found.extend(not_linked_with_torch(looked, &unlinked));
    if whole {
        let pythons: Vec<&Symbol> = others.iter().copied().filter(|symbol| owner(&symbol.name) == Owner::Python).collect();
        found.extend(of_other_python(loads, looked, &pythons));
        others.retain(|symbol| owner(&symbol.name) != Owner::Python);
        found.extend(not_linked(looked, &others));
    }
    found
}

fn named<'s>(symbols: &[&'s Symbol]) -> (String, &'s str) {
    let first = symbols.first().map(|symbol| symbol.name.as_str()).unwrap_or_default();
    let more = if symbols.len() > 1 { format!(" and {} more", symbols.len() - 1) } else { String::new() };
    (format!("`{}`{more}", shown(first)), first)
}

fn with_symbols(finding: Finding, symbols: &[&Symbol]) -> Finding {
    let finding = symbols.iter().take(SHOWN).fold(finding, |finding, symbol| finding.seen(Evidence::new("undefined", shown(&symbol.name))));
    if symbols.len() > SHOWN {
        finding.seen(Evidence::new("undefined", format!("{} in all", count(symbols.len(), "symbol"))))
    } else {
        finding
    }
}

fn stops(looked: &Looked<'_>, first: &str) -> String {
    format!("loading stops with `{}: undefined symbol: {first}`", looked.binary.file_name())
}

/// Symbols of torch that this torch has not: another ABI where the names say so, else another release.
fn of_other_torch(loads: &Loads<'_>, looked: &Looked<'_>, symbols: &[&Symbol]) -> Option<Finding> {
    let torch = loads.torch().filter(|_| !symbols.is_empty())?;
    let name = looked.binary.name();
    let own = torch.cxx11_abi.value().copied();
    let other: Vec<&Symbol> =
        symbols.iter().copied().filter(|symbol| cxx11_abi(&symbol.name).is_some_and(|abi| own.is_some_and(|own| own != abi))).collect();
    let same = symbols.iter().any(|symbol| cxx11_abi(&symbol.name).is_some_and(|abi| own == Some(abi)));
    let torch_seen = |finding: Finding| finding.seen(Evidence::new("torch", torch.version.to_string()).at(&torch.path));
    if let (Some(own), false, false) = (own, other.is_empty(), same) {
        let (theirs, ours) = if own { ("the older", "the C++11 ABI") } else { ("the C++11", "the older ABI") };
        let (_, first) = named(&other);
        let finding = Finding::error(
            "cxx11-abi-mismatch",
            format!("`{name}` was compiled with {theirs} ABI of libstdc++, and torch {} with {ours}", torch.version),
        );
        let finding = torch_seen(with_symbols(finding, &other)).then(stops(looked, first));
        return Some(finding.fix(Fix::advice(format!(
            "build it against this torch without a `-D_GLIBCXX_USE_CXX11_ABI` of your own, or take the build named `cxx11abi{}`",
            if own { "TRUE" } else { "FALSE" }
        ))));
    }
    let (words, first) = named(symbols);
    let finding = Finding::error(
        "undefined-symbol-torch-version",
        format!("`{name}` wants {words}, which torch {} does not have: it was built for another torch", torch.version),
    );
    let finding = torch_seen(with_symbols(finding, symbols)).then(stops(looked, first));
    Some(finding.fix(Fix::advice(format!("build it against torch {}, or take a build for it", torch.version))))
}

/// Symbols that this torch has, in a library that the file does not ask for.
fn not_linked_with_torch(looked: &Looked<'_>, symbols: &[&Symbol]) -> Option<Finding> {
    let (words, first) = Some(named(symbols)).filter(|_| !symbols.is_empty())?;
    let mut libraries: Vec<String> =
        symbols.iter().filter_map(|symbol| symbol.in_torch.as_ref()).map(|path| format!("`{}`", file_name(path))).collect();
    libraries.sort();
    libraries.dedup();
    let finding = Finding::error(
        "undefined-symbol-missing-link",
        format!("`{}` wants {words} and is not linked with {}, which has it", looked.binary.name(), join(&libraries)),
    );
    Some(
        with_symbols(finding, symbols)
            .then(stops(looked, first))
            .fix(Fix::advice("link it as torch's `CUDAExtension`, `CppExtension` or `load` does")),
    )
}

fn of_other_python(loads: &Loads<'_>, looked: &Looked<'_>, symbols: &[&Symbol]) -> Option<Finding> {
    let python = loads.python().filter(|_| !symbols.is_empty())?;
    let (words, first) = named(symbols);
    let version = python.version.as_ref().map(ToString::to_string).unwrap_or_default();
    let finding = Finding::error(
        "prebuilt-binary-torch-mismatch",
        format!("`{}` wants {words}, which Python {version} does not have: it was built for another Python", looked.binary.name()),
    );
    let finding = with_symbols(finding, symbols).seen(Evidence::new("Python", version).at(&python.path)).then(stops(looked, first));
    Some(finding.fix(Fix::advice("build it for this Python, or take a build for it")))
}

/// The rest: of libraries that are known by the names of their functions, and of nobody.
fn not_linked(looked: &Looked<'_>, symbols: &[&Symbol]) -> Option<Finding> {
    let known: Vec<(&Symbol, &str, &str)> = symbols
        .iter()
        .filter_map(|symbol| match owner(&symbol.name) {
            Owner::Library(link, file) => Some((*symbol, link, file)),
            _ => None,
        })
        .collect();
    let name = looked.binary.name();
    if let Some((_, link, file)) = known.first() {
        let of_it: Vec<&Symbol> = known.iter().filter(|(_, other, _)| other == link).map(|(symbol, ..)| *symbol).collect();
        let (words, first) = named(&of_it);
        let finding = Finding::error(
            "undefined-symbol-missing-link",
            format!("`{name}` wants {words} and is not linked with `{file}`, and nothing that it sees in the process has it"),
        );
        let fix = Fix::advice(format!("link it with `-l{link}`: `libraries=[\"{link}\"]`, or `extra_ldflags=[\"-l{link}\"]`"));
        return Some(with_symbols(finding, &of_it).then(stops(looked, first)).fix(fix));
    }
    let (words, first) = Some(named(symbols)).filter(|_| !symbols.is_empty())?;
    // A package can load a library of its own for everybody before its modules: of what merely lies in a folder that is not known.
    let severity = if looked.named { Severity::Error } else { Severity::Warning };
    let finding = Finding::new(
        "undefined-symbol-missing-link",
        severity,
        format!("`{name}` wants {words}, and neither its libraries nor this Python have it"),
    );
    Some(
        with_symbols(finding.likely(), symbols)
            .then(stops(looked, first))
            .fix(Fix::advice("link it with the library, or the source file, that has it")),
    )
}

fn file_name(path: &HostPath) -> String {
    path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
}
