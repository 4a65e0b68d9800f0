//! The Python environment: which one, its headers, what shadows what.

use super::lookup::NOT_ASKED;
use super::remedy::install;
use super::{Case, Check, Judgement, Verdict};
use crate::facts::env::{LocalKind, LocalModule, PlaceState};
use crate::facts::observed::{Missing, Observed};
use crate::facts::python::{EnvironmentKind, Interpreter};
use crate::facts::raw::HostPath;
use crate::facts::source::{Source, ordinal};
use crate::finding::{Evidence, Finding, Fix, Severity};
use crate::knowledge::host::Wanted;
use crate::knowledge::schema::host::Need;
use crate::model::assume::is_assumed;
use std::path::Path;

pub const CHECKS: &[Check] = &[
    Check { id: "python-env-mismatch", run: mismatch },
    Check { id: "module-shadowing", run: shadowing },
    Check { id: "missing-python-h", run: headers },
];

pub fn shown(python: &Interpreter) -> Evidence {
    Evidence::new("python", python.version.as_ref().map(ToString::to_string).unwrap_or_default()).at(&python.path)
}

/// What of torch and DeepSpeed an environment has, for people.
fn contents(python: &Interpreter) -> String {
    let torch = python.torch.value().map_or("no torch".to_owned(), |torch| format!("torch {}", torch.version));
    match python.deepspeed.value() {
        Some(deepspeed) => format!("{torch}, deepspeed {}", deepspeed.version),
        None => torch,
    }
}

fn mismatch(case: &Case<'_>) -> Judgement {
    const ID: &str = "python-env-mismatch";
    case.facts.pythons.get("python")?;
    let choice = case.python_choice();
    let Some(python) = choice.interpreter else { return Ok(Verdict::not_applicable("no Python on PATH")) };
    if matches!(choice.by, Some(Source::Option { .. })) {
        return Ok(Verdict::not_applicable("the interpreter was named on the command line"));
    }
    if python.prefix.as_os_str().is_empty() {
        let why = format!("the environment of `{}` is not known", python.path);
        return Err(Missing { topic: "python", why, failed: true });
    }
    let Some(named) = choice.conflict() else { return Ok(Verdict::Pass) };
    // A conda environment may hold nothing but a toolkit or compilers.
    let without_python = named.interpreter.is_none() && matches!(case.facts.env.state(&named.prefix), Some(PlaceState::Folder));
    if without_python && named.variable == "CONDA_PREFIX" {
        return Ok(Verdict::Pass);
    }
    let by = choice.by.as_ref().map_or("PATH".to_owned(), ToString::to_string);
    let mut finding = Finding::warning(
        ID,
        format!("`{}` is `{}`, but the Python on PATH is `{}`, of another environment", named.variable, named.prefix, python.path),
    )
    .about(named.variable)
    .seen(Evidence::new("on PATH", contents(python)).at(&python.path).said_by(by));
    finding = match named.interpreter {
        Some(other) => finding
            .seen(Evidence::new("named", contents(other)).at(&named.prefix).said_by(named.variable))
            .then("what is installed in one is not found in the other: `No module named 'torch'`, or an older torch than the one meant")
            .fix(
                Fix::prepend("PATH", &HostPath::new(other.path.parent().unwrap_or(&other.path)), "the environment that the variable names")
                    .review(),
            )
            .fix(Fix::unset(named.variable, format!("if `{}` is meant", python.prefix)).review().or(1)),
        None => finding
            .seen(Evidence::new("named", "no Python there").at(&named.prefix).said_by(named.variable))
            .then("pip, uv and ds-doctor do not agree on which environment is meant")
            .fix(Fix::unset(named.variable, "the environment is gone")),
    };
    Ok(Verdict::found(finding))
}

/// Where the copy lies that a local module hides; `None` where nothing is hidden.
fn hidden(python: &Interpreter, module: &LocalModule) -> Option<HostPath> {
    let installed = match module.name.as_str() {
        "torch" => python.torch.value().map(|torch| torch.path.clone()),
        "deepspeed" => python.deepspeed.value().map(|deepspeed| deepspeed.path.clone()),
        name => python.package(name).map(|package| package.site.join(name)),
    };
    installed.filter(|installed| *installed != module.path && !is_assumed(installed))
}

/// The current folder comes first on `sys.path` for `python -c` and `-m`, and for scripts that lie in it.
fn looks_here(case: &Case<'_>, python: &Interpreter) -> bool {
    let safe =
        python.version.as_ref().is_some_and(|version| version.at_least(&[3, 11])) && case.facts.env.filled("PYTHONSAFEPATH").is_some();
    !safe
}

fn shadowing(case: &Case<'_>) -> Judgement {
    const ID: &str = "module-shadowing";
    let Some(python) = case.python()? else { return Ok(Verdict::not_applicable("no Python on PATH")) };
    let mut findings = Vec::new();
    for module in &case.facts.env.modules {
        // A folder that PYTHONPATH names is there on purpose: what lies in it is what is used, and so what is judged.
        let on_purpose = module.entry.is_some() && module.is == LocalKind::Package;
        if on_purpose || (module.entry.is_none() && !looks_here(case, python)) {
            continue;
        }
        let Some(installed) = hidden(python, module) else { continue };
        let name = &module.name;
        let place = module.entry.map_or("current folder".to_owned(), |entry| format!("{} entry of PYTHONPATH", ordinal(entry)));
        let severity = if module.is == LocalKind::File { Severity::Error } else { Severity::Warning };
        let mut finding = Finding::new(ID, severity, format!("`{}` hides the installed package `{name}`", module.path))
            .about(module.path.to_string())
            .seen(Evidence::new("local", name.clone()).at(&module.path).said_by(place))
            .seen(Evidence::new("installed", name.clone()).at(&installed));
        finding = match (module.is, name.as_str()) {
            (LocalKind::File, "deepspeed") => {
                finding.then("programs that import it stop with `No module named 'deepspeed.ops'; 'deepspeed' is not a package`")
            }
            (LocalKind::File, _) => {
                finding.then(format!("programs that import it stop with `AttributeError: partially initialized module '{name}' has no attribute …`"))
            }
            (LocalKind::Package, _) => finding
                .likely()
                .then("scripts in this folder, and what is started here with `python -c` or `-m`, import this copy: ops that were pre-built for the installed one seem to be gone"),
        };
        if module.is == LocalKind::File {
            let rename = format!("give `{}` another name, and delete `__pycache__` beside it", module.path);
            finding = finding.fix(Fix::advice(rename).curing_of(ID, module.path.to_string()));
        } else {
            finding = finding.fix(Fix::advice("start programs from another folder").curing_of(ID, module.path.to_string()));
        }
        finding = match (module.entry, module.path.parent()) {
            (Some(_), Some(folder)) => {
                finding.fix(Fix::remove("PYTHONPATH", &HostPath::new(folder), "nothing in it is imported then").review().or(1))
            }
            (None, _) if python.version.as_ref().is_some_and(|version| version.at_least(&[3, 11])) => {
                finding.fix(Fix::set("PYTHONSAFEPATH", "1", "Python leaves the script's and the current folder out then").review().or(1))
            }
            _ => finding,
        };
        findings.push(finding);
    }
    Ok(Verdict::of(findings))
}

fn headers(case: &Case<'_>) -> Judgement {
    const ID: &str = "missing-python-h";
    if !case.purpose.builds() {
        return Ok(Verdict::not_applicable(NOT_ASKED));
    }
    if case.torch()?.is_none() {
        return Ok(Verdict::not_applicable("no torch"));
    }
    let Some(python) = case.python()? else { return Ok(Verdict::not_applicable("no Python on PATH")) };
    if python.header.get("python headers")?.is_some() {
        return Ok(Verdict::Pass);
    }
    case.environment_of_torch("python headers")?;
    let series = python.version.as_ref().map(|version| version.major_minor()).unwrap_or_default();
    if by_variable(case, &series) {
        return Ok(Verdict::not_applicable("a variable names a folder of Python's headers"));
    }
    let mut finding = Finding::error(ID, format!("there is no `Python.h` for Python {series}, and every extension includes it"));
    finding = finding.seen(shown(python));
    if let Observed::Absent { looked } = &python.header {
        for place in looked {
            finding = finding.seen(Evidence::new("looked for", "Python.h").at(&HostPath::new(place)));
        }
    }
    let finding =
        finding.then("compilations stop with `fatal error: Python.h: No such file or directory`; so does triton when it first runs");
    let of_system = *python.base_prefix == *Path::new("/usr");
    let wanted = Wanted { python: python.version.as_ref(), ..Wanted::default() };
    let fixes = if of_system { install(case, Need::PythonHeaders, &wanted, ID) } else { Vec::new() };
    let finding = match (fixes.is_empty(), python.kind) {
        (false, _) => fixes.into_iter().fold(finding, Finding::fix),
        (true, EnvironmentKind::Conda) => {
            let again = ["conda", "install", "-y", "--force-reinstall", "-p", &python.prefix.to_string(), "python"].map(ToOwned::to_owned);
            finding.fix(Fix::run(again, "conda's package of Python holds the headers").curing(ID))
        }
        (true, _) => {
            let advice = format!(
                "install the development files of the Python in `{}`, or use a Python that brings its headers: `uv python install {series}`, then a new environment with it",
                python.base_prefix
            );
            finding.fix(Fix::advice(advice).curing(ID))
        }
    };
    Ok(Verdict::found(finding))
}

/// Whether the compilers are led to headers of this release, which nobody has looked into.
fn by_variable(case: &Case<'_>, series: &str) -> bool {
    let folder = format!("python{series}");
    ["CPATH", "CPLUS_INCLUDE_PATH", "C_INCLUDE_PATH"]
        .into_iter()
        .any(|name| case.facts.env.entries(name).iter().any(|entry| entry.to_string_lossy().contains(&folder)))
}

#[cfg(test)]
#[expect(clippy::unwrap_used)]
mod tests {
    use super::super::Purpose;
    use super::super::sample::{cured, finding, findings, healthy, judged, package, python, silent};
    use super::*;
    use crate::finding::Action;

    fn command(finding: &Finding) -> String {
        finding.fixes.iter().find_map(|fix| if let Action::Run { argv, .. } = &fix.action { Some(argv.join(" ")) } else { None }).unwrap()
    }

    #[test]
    fn a_healthy_machine_is_silent() {
        for purpose in [Purpose::Build, Purpose::Run, Purpose::Both] {
            silent(&healthy(), CHECKS, purpose);
        }
    }

    #[test]
    fn environments() {
        let mut facts = healthy();
        facts.env.set("PATH", "/usr/bin:/venv/bin");
        let found = finding(&facts, "python-env-mismatch");
        assert!(found.title.contains("`VIRTUAL_ENV` is `/venv`"), "{}", found.title);
        assert_eq!(python(&mut cured(&facts, "python-env-mismatch")).path, "/venv/bin/python3".into());
        // A conda environment on the path that holds tools only.
        facts.env.unset("VIRTUAL_ENV");
        facts.env.set("CONDA_PREFIX", "/opt/conda/envs/cuda");
        assert_eq!(findings(&facts, "python-env-mismatch").len(), 1, "nothing is there");
        let place = crate::facts::env::NamedPlace { path: "/opt/conda/envs/cuda".into(), state: PlaceState::Folder };
        facts.env.places.push(place);
        silent(&facts, CHECKS, Purpose::Both);
    }

    #[test]
    fn the_command_line_settles_it() {
        let mut facts = healthy();
        facts.env.set("VIRTUAL_ENV", "/other");
        assert_eq!(findings(&facts, "python-env-mismatch").len(), 1);
        python(&mut facts).sources.insert(0, Source::Option { name: "--python".to_owned() });
        silent(&facts, CHECKS, Purpose::Both);
    }

    fn module(name: &str, path: &str, is: LocalKind, entry: Option<usize>) -> LocalModule {
        LocalModule { name: name.to_owned(), path: path.into(), is, entry }
    }

    #[test]
    fn modules_in_the_way() {
        let mut facts = healthy();
        facts.env.modules = vec![module("deepspeed", "/srv/deepspeed.py", LocalKind::File, None)];
        let found = finding(&facts, "module-shadowing");
        assert_eq!(found.severity, Severity::Error);
        assert!(found.consequence.contains("is not a package"));
        facts.env.set("PYTHONSAFEPATH", "1");
        silent(&facts, CHECKS, Purpose::Both);
        facts.env.modules = vec![module("torch", "/job/torch.py", LocalKind::File, Some(2))];
        assert!(finding(&facts, "module-shadowing").evidence[0].source.contains("2nd entry of PYTHONPATH"));
    }

    #[test]
    fn a_checkout_is_in_the_way_only_of_another_copy() {
        let mut facts = healthy();
        facts.env.modules = vec![module("deepspeed", "/srv/deepspeed", LocalKind::Package, None)];
        assert_eq!(finding(&facts, "module-shadowing").severity, Severity::Warning);
        python(&mut facts).deepspeed.value_mut().unwrap().path = "/srv/deepspeed".into();
        silent(&facts, CHECKS, Purpose::Both);
        facts.env.modules = vec![
            module("deepspeed", "/src/deepspeed", LocalKind::Package, Some(1)),
            module("triton", "/srv/triton.py", LocalKind::File, None),
        ];
        silent(&facts, CHECKS, Purpose::Both);
        python(&mut facts).packages.push(package("triton", "3.2.0"));
        assert_eq!(findings(&facts, "module-shadowing").len(), 1);
    }

    #[test]
    fn headers_of_python() {
        let mut facts = healthy();
        python(&mut facts).header = Observed::absent(["/usr/include/python3.11/Python.h"]);
        let found = finding(&facts, "missing-python-h");
        assert_eq!(command(&found), "apt-get install -y python3.11-dev");
        assert!(judged(&facts, Purpose::Run, "missing-python-h").findings.is_empty());
        facts.env.set("CPATH", "/opt/python3.11/include/python3.11");
        silent(&facts, CHECKS, Purpose::Both);
        facts.env.set("CPATH", "/opt/python3.1/include/python3.1x");
        python(&mut facts).base_prefix = "/opt/python".into();
        assert!(matches!(finding(&facts, "missing-python-h").fixes[0].action, Action::Advice { .. }), "not the system's package");
    }
}
