//! Programs and variables that steer builds: ninja, pip's isolation, the number of jobs.

use super::lookup::NOT_ASKED;
use super::remedy::{install, pip_install};
use super::{Case, Check, Judgement, Verdict};
use crate::facts::observed::Missing;
use crate::facts::program::{Program, ProgramKind};
use crate::facts::python::{EnvironmentKind, Interpreter};
use crate::facts::raw::HostPath;
use crate::finding::{Evidence, Finding, Fix};
use crate::knowledge::host::Wanted;
use crate::knowledge::schema::deepspeed::DeepSpeedTrait;
use crate::knowledge::schema::host::Need;
use crate::model::search;
use crate::text::join;
use std::path::Path;

pub const CHECKS: &[Check] = &[
    Check { id: "missing-ninja", run: missing_ninja },
    Check { id: "ninja-broken", run: broken_ninja },
    Check { id: "build-isolation", run: isolation },
    Check { id: "max-jobs-ignored", run: max_jobs },
];

const JIT_STOPS: &str =
    "JIT builds stop with `Ninja is required to load C++ extensions`; setup builds go on without it, one file after another";

/// Where builds with torch are asked for: the interpreter.
fn building<'a>(case: &Case<'a>) -> Result<Result<&'a Interpreter, Verdict>, Missing> {
    if !case.purpose.builds() {
        return Ok(Err(Verdict::not_applicable(NOT_ASKED)));
    }
    if case.torch()?.is_none() {
        return Ok(Err(Verdict::not_applicable("no torch")));
    }
    Ok(case.python()?.ok_or_else(|| Verdict::not_applicable("no Python on PATH")))
}

/// pyenv's shims put the `bin` of the version in front of PATH before they start its Python.
fn by_shim(case: &Case<'_>, python: &Interpreter) -> bool {
    let shim = case.python_choice().hit.as_ref().is_some_and(|hit| matches!(hit.program.kind, ProgramKind::Script { .. }));
    shim && python.package("ninja").is_some()
}

/// Whether torch gets to run a ninja.
pub fn ninja_runs(case: &Case<'_>, python: &Interpreter) -> bool {
    search::starts(case.facts, "ninja").is_some() || by_shim(case, python)
}

/// A program of that name that PATH does not lead to: that of the interpreter's own environment first.
fn off_path<'a>(case: &Case<'a>, python: &Interpreter) -> Option<&'a Program> {
    let beside = python.path.parent();
    let mut found: Vec<&Program> = case
        .facts
        .programs
        .iter()
        .filter(|program| program.name == "ninja" && search::can_start(program) && program.found_by_search())
        .collect();
    found.sort_by_key(|program| program.path.parent() != beside);
    found.first().copied()
}

/// How to get ninja into this environment; the system's package where pip may not write.
fn get_ninja(case: &Case<'_>, python: &Interpreter, id: &'static str, again: bool) -> Vec<Fix> {
    let packaged = install(case, Need::Ninja, &Wanted::default(), id);
    if (python.externally_managed || python.kind == EnvironmentKind::Conda) && !packaged.is_empty() {
        return packaged;
    }
    let words = if again { vec!["--force-reinstall", "ninja"] } else { vec!["ninja"] };
    let mut fixes = vec![pip_install(case, words, "into the environment that builds").curing(id)];
    let bin = python.prefix.join("bin");
    if python.kind == EnvironmentKind::Venv && !case.facts.env.entries("PATH").contains(&bin.0) {
        fixes.push(Fix::prepend("PATH", &bin, "where pip puts it").review());
    }
    fixes.extend(packaged.into_iter().zip(1..).map(|(fix, choice)| fix.or(choice)));
    fixes
}

fn missing_ninja(case: &Case<'_>) -> Judgement {
    const ID: &str = "missing-ninja";
    let python = match building(case)? {
        Ok(python) => python,
        Err(verdict) => return Ok(verdict),
    };
    if ninja_runs(case, python) {
        return without_module(case, python);
    }
    if search::which(case.facts, "ninja").is_some() {
        return Ok(Verdict::not_applicable("there is one, which does not run"));
    }
    let mut finding = Finding::error(ID, "there is no program `ninja` on PATH, and JIT builds need it")
        .seen(Evidence::new("looked for", "ninja").said_by("PATH"))
        .then(JIT_STOPS);
    if let Some(package) = python.package("ninja") {
        finding = finding.seen(Evidence::new("Python module", package.version.to_string()).at(&package.site));
    }
    if let Some(program) = off_path(case, python)
        && let Some(folder) = program.path.parent()
    {
        let folder = HostPath::new(folder);
        let own = python.path.parent() == Some(&folder) || folder.ends_with(".local/bin");
        finding = finding.seen(Evidence::new("ninja", "not on PATH").at(&program.path));
        let fix = Fix::prepend("PATH", &folder, "where pip has put it");
        return Ok(Verdict::found(finding.fix(if own { fix } else { fix.review() })));
    }
    // Some distributions have it by another name only.
    if let Some(hit) = search::starts(case.facts, "ninja-build") {
        finding = finding.seen(Evidence::new("ninja-build", "torch does not look for this name").at(&hit.program.path));
    }
    if let Some(package) = python.package("ninja") {
        let bin = bin_of(python, package.site.as_ref());
        let fix = Fix::prepend("PATH", &bin, "where pip puts the program of that module").review().curing(ID);
        return Ok(Verdict::found(finding.fix(fix)));
    }
    Ok(Verdict::found(get_ninja(case, python, ID, false).into_iter().fold(finding, Finding::fix)))
}

/// The folder of the programs that pip installs beside a site folder: `<prefix>/bin` for `<prefix>/lib/python3.11/site-packages`.
fn bin_of(python: &Interpreter, site: &Path) -> HostPath {
    site.ancestors()
        .nth(3)
        .filter(|prefix| prefix.join("lib") == *site.ancestors().nth(2).unwrap_or(prefix))
        .map_or_else(|| python.prefix.join("bin"), |prefix| HostPath::new(prefix.join("bin")))
}

/// DeepSpeed before 0.18.3 imports the module instead of asking for the program. conda's package of ninja may have none, and says
/// nothing of it in files that are read here.
fn without_module(case: &Case<'_>, python: &Interpreter) -> Judgement {
    const ID: &str = "missing-ninja";
    let Some(deepspeed) = case.deepspeed()? else { return Ok(Verdict::Pass) };
    let needs = case.know.deepspeed_does(DeepSpeedTrait::NinjaAsProgram, &deepspeed.version) == Some(false);
    // An assumed DeepSpeed has no files, and would bring the module along.
    let assumed = deepspeed.path.starts_with("/assumed");
    if !needs || assumed || python.kind == EnvironmentKind::Conda || python.package("ninja").is_some() {
        return Ok(Verdict::Pass);
    }
    let hit = search::starts(case.facts, "ninja");
    let mut finding =
        Finding::error(ID, format!("DeepSpeed {} asks for the Python module `ninja`, which is not installed", deepspeed.version))
            .about("module")
            .seen(Evidence::new("deepspeed", deepspeed.version.to_string()).at(&deepspeed.path))
            .then("JIT builds of its ops stop with `Unable to JIT load the … op due to ninja not being installed.`");
    if let Some(hit) = hit {
        finding = finding.seen(Evidence::new("ninja", "the program alone").at(&hit.program.path).from(&hit.source()));
    }
    Ok(Verdict::found(finding.fix(pip_install(case, ["ninja"], "DeepSpeed 0.18.3 and later ask for the program").curing_of(ID, "module"))))
}

fn broken_ninja(case: &Case<'_>) -> Judgement {
    const ID: &str = "ninja-broken";
    let python = match building(case)? {
        Ok(python) => python,
        Err(verdict) => return Ok(verdict),
    };
    if ninja_runs(case, python) {
        return Ok(Verdict::Pass);
    }
    // What cannot start is passed over in favour of the next on PATH: it matters only where no other follows.
    let Some(hit) = search::which(case.facts, "ninja") else { return Ok(Verdict::not_applicable("no ninja on PATH")) };
    let why = match &hit.program.kind {
        ProgramKind::Script { interpreter, .. } => format!("its first line names `{interpreter}`, which is not there"),
        ProgramKind::Broken { why } => why.clone(),
        _ => return Ok(Verdict::Pass),
    };
    let mut finding = Finding::error(ID, format!("`{}` cannot run: {why}", hit.program.path))
        .about(hit.program.path.to_string())
        .seen(Evidence::new("ninja", why).at(&hit.program.path).from(&hit.source()))
        .then(JIT_STOPS);
    if let Some(other) = off_path(case, python)
        && let Some(folder) = other.path.parent()
    {
        finding = finding
            .seen(Evidence::new("ninja", "not on PATH").at(&other.path))
            .fix(Fix::prepend("PATH", &HostPath::new(folder), "one that runs").review());
        return Ok(Verdict::found(finding));
    }
    Ok(Verdict::found(get_ninja(case, python, ID, true).into_iter().fold(finding, Finding::fix)))
}

/// Whether pip builds a project that has only a setup.py, as DeepSpeed is, in an environment of its own. Source: pip's changelog, 23.1 and
/// 25.3.
fn isolates(python: &Interpreter) -> bool {
    let Some(pip) = python.package("pip") else { return false };
    let has = |name| python.package(name).is_some();
    pip.version.at_least(&[25, 3]) || (pip.version.at_least(&[23, 1]) && !(has("setuptools") && has("wheel")))
}

/// pip reads the variable as the value of the option `build-isolation`: `1` leaves isolation on. Run with pip 23.2 and 26.3.
fn isolation(case: &Case<'_>) -> Judgement {
    const ID: &str = "build-isolation";
    if !case.purpose.builds() {
        return Ok(Verdict::not_applicable(NOT_ASKED));
    }
    let asked = case.asked_ops();
    if asked.is_empty() {
        return Ok(Verdict::not_applicable("no pre-build is asked for by a variable"));
    }
    let Some(python) = case.python()? else { return Ok(Verdict::not_applicable("no Python on PATH")) };
    if !isolates(python) {
        return Ok(Verdict::not_applicable("this pip builds DeepSpeed in the environment itself"));
    }
    let Some(value) = case.facts.env.text("PIP_NO_BUILD_ISOLATION") else {
        return Ok(Verdict::not_applicable("whether pip is told `--no-build-isolation` is not known beforehand"));
    };
    if !["1", "y", "yes", "t", "true", "on"].contains(&value.to_lowercase().as_str()) {
        return Ok(Verdict::Pass);
    }
    let names: Vec<String> = asked.iter().map(|name| format!("`{name}`")).collect();
    let finding = Finding::error(
        ID,
        format!("`PIP_NO_BUILD_ISOLATION={value}` leaves isolation on, and {} asks for ops that need torch to be built", join(&names)),
    )
    .seen(Evidence::new("PIP_NO_BUILD_ISOLATION", value).said_by("environment"))
    .then("pip builds where there is no torch: `Unable to pre-compile ops without torch installed`, or without ops")
    .fix(Fix::set("PIP_NO_BUILD_ISOLATION", "0", "pip takes the value for that of `build-isolation`: 0 turns isolation off"))
    .fix(Fix::advice("or unset it, and run `pip install --no-build-isolation …`").or(1));
    Ok(Verdict::found(finding))
}

fn max_jobs(case: &Case<'_>) -> Judgement {
    const ID: &str = "max-jobs-ignored";
    let python = match building(case)? {
        Ok(python) => python,
        Err(verdict) => return Ok(verdict),
    };
    let Some(value) = case.facts.env.text("MAX_JOBS") else { return Ok(Verdict::not_applicable("MAX_JOBS is unset")) };
    let evidence = Evidence::new("MAX_JOBS", value.clone()).said_by("environment");
    if !value.bytes().all(|byte| byte.is_ascii_digit()) {
        let finding = Finding::info(ID, format!("`MAX_JOBS` is `{value}`, and torch reads digits only"))
            .seen(evidence)
            .then("ninja starts as many jobs as there are processors, and two more")
            .fix(Fix::advice("write a plain number: `MAX_JOBS=4`"));
        return Ok(Verdict::found(finding));
    }
    if !ninja_runs(case, python) {
        let finding = Finding::info(ID, "`MAX_JOBS` is set, and no ninja runs that would read it")
            .seen(evidence)
            .then("setup builds compile one file after another");
        return Ok(Verdict::found(finding));
    }
    let deepspeed = case.deepspeed()?;
    let opt_in = deepspeed.is_none_or(|deepspeed| case.know.deepspeed_does(DeepSpeedTrait::NinjaOptIn, &deepspeed.version) == Some(true));
    if !case.asked_ops().is_empty() && opt_in && case.facts.env.filled("DS_ENABLE_NINJA").is_none() {
        let finding = Finding::info(ID, "`MAX_JOBS` is set, and DeepSpeed pre-builds without ninja unless `DS_ENABLE_NINJA` is set")
            .seen(evidence)
            .seen(Evidence::new("DS_ENABLE_NINJA", "unset").said_by("environment"))
            .then("the pre-build compiles one file after another")
            .fix(Fix::set("DS_ENABLE_NINJA", "1", "ninja compiles the files of an op side by side").review());
        return Ok(Verdict::found(finding));
    }
    Ok(Verdict::Pass)
}

#[cfg(test)]
#[expect(clippy::unwrap_used)]
mod tests {
    use super::super::Purpose;
    use super::super::sample::{cured, finding, findings, healthy, judged, package, program, python, silent};
    use super::*;
    use crate::facts::observed::Observed;
    use crate::facts::snapshot::Snapshot;
    use crate::finding::{Action, Safety, Severity};

    fn without_ninja() -> Snapshot {
        let mut facts = healthy();
        facts.programs.retain(|program| program.name != "ninja");
        facts
    }

    fn commands(finding: &Finding) -> Vec<String> {
        let command = |fix: &Fix| if let Action::Run { argv, .. } = &fix.action { Some(argv.join(" ")) } else { None };
        finding.fixes.iter().filter_map(command).collect()
    }

    #[test]
    fn a_healthy_machine_is_silent() {
        for purpose in [Purpose::Build, Purpose::Run, Purpose::Both] {
            silent(&healthy(), CHECKS, purpose);
        }
        silent(&without_ninja(), CHECKS, Purpose::Run);
    }

    #[test]
    fn a_ninja_beside_the_path() {
        let mut facts = without_ninja();
        facts.env.set("PATH", "/usr/bin:/bin");
        facts.env.unset("VIRTUAL_ENV");
        python(&mut facts).sources.push(crate::facts::source::Source::Option { name: "--python".to_owned() });
        facts.programs.extend([program("/root/.local/bin/ninja", ProgramKind::Elf), program("/venv/bin/ninja", ProgramKind::Elf)]);
        let found = finding(&facts, "missing-ninja");
        assert_eq!(found.fixes.len(), 1, "{found:#?}");
        assert!(matches!(&found.fixes[0].action, Action::PrependPath { dir, .. } if *dir == "/venv/bin".into()));
        assert_eq!(found.fixes[0].safety, Safety::Safe);
        silent(&cured(&facts, "missing-ninja"), CHECKS, Purpose::Build);
    }

    #[test]
    fn a_module_without_its_program() {
        let facts = without_ninja();
        let found = finding(&facts, "missing-ninja");
        assert!(found.evidence.iter().any(|seen| seen.what == "Python module"));
        assert!(matches!(&found.fixes[0].action, Action::PrependPath { dir, .. } if *dir == "/venv/bin".into()), "{found:#?}");
    }

    #[test]
    fn no_ninja_at_all() {
        let mut facts = without_ninja();
        python(&mut facts).packages.retain(|package| package.name != "ninja");
        assert_eq!(
            commands(&finding(&facts, "missing-ninja")),
            ["/venv/bin/python3 -m pip install ninja", "apt-get install -y ninja-build"]
        );
        python(&mut facts).packages.retain(|package| package.name != "pip");
        facts.programs.push(program("/usr/local/bin/uv", ProgramKind::Elf));
        assert_eq!(commands(&finding(&facts, "missing-ninja"))[0], "uv pip install --python /venv/bin/python3 ninja");
        python(&mut facts).externally_managed = true;
        assert_eq!(commands(&finding(&facts, "missing-ninja")), ["apt-get install -y ninja-build"]);
    }

    #[test]
    fn pyenv_puts_the_version_on_path_itself() {
        let mut facts = without_ninja();
        let shim = ProgramKind::Script { interpreter: "/usr/bin/env bash".to_owned(), interpreter_found: true };
        facts.programs = vec![program("/shims/python3", shim)];
        facts.env.set("PATH", "/shims");
        python(&mut facts).paths = vec!["/shims/python3".into()];
        silent(&facts, CHECKS, Purpose::Build);
    }

    #[test]
    fn older_deepspeed_wants_the_module() {
        let mut facts = healthy();
        python(&mut facts).packages.retain(|package| package.name != "ninja");
        assert!(finding(&facts, "missing-ninja").title.contains("Python module"));
        python(&mut facts).kind = EnvironmentKind::Conda;
        silent(&facts, CHECKS, Purpose::Build);
        python(&mut facts).kind = EnvironmentKind::Venv;
        python(&mut facts).deepspeed.value_mut().unwrap().version = "0.18.3".parse().unwrap();
        silent(&facts, CHECKS, Purpose::Build);
    }

    #[test]
    fn a_ninja_that_cannot_run() {
        let dead = || ProgramKind::Script { interpreter: "/gone/python".to_owned(), interpreter_found: false };
        let mut facts = without_ninja();
        facts.programs.push(program("/venv/bin/ninja", dead()));
        let found = finding(&facts, "ninja-broken");
        assert!(found.title.contains("`/gone/python`"), "{}", found.title);
        assert!(findings(&facts, "missing-ninja").is_empty(), "one of the two speaks");
        assert!(commands(&found)[0].ends_with("--force-reinstall ninja"));
        // In front of one that runs it is passed over.
        facts.programs.push(program("/usr/bin/ninja", ProgramKind::Elf));
        silent(&facts, CHECKS, Purpose::Build);
    }

    #[test]
    fn what_pip_makes_of_the_variable() {
        let mut facts = healthy();
        facts.env.set("PIP_NO_BUILD_ISOLATION", "1");
        facts.env.set("DS_BUILD_FUSED_ADAM", "1");
        silent(&facts, CHECKS, Purpose::Build);
        python(&mut facts).packages.retain(|package| package.name != "pip");
        python(&mut facts).packages.push(package("pip", "26.3"));
        assert_eq!(finding(&facts, "build-isolation").severity, Severity::Error);
        let after = cured(&facts, "build-isolation");
        assert_eq!(after.env.text("PIP_NO_BUILD_ISOLATION").as_deref(), Some("0"));
        facts.env.set("DS_BUILD_FUSED_ADAM", "0");
        silent(&facts, CHECKS, Purpose::Build);
    }

    #[test]
    fn pips_that_isolate() {
        let mut facts = healthy();
        let mut with = |version: &str, wheel: bool| {
            let python = python(&mut facts);
            python.packages.retain(|package| package.name != "pip" && package.name != "wheel");
            python.packages.push(package("pip", version));
            python.packages.extend(wheel.then(|| package("wheel", "0.43.0")));
            isolates(python)
        };
        assert_eq!(["23.0", "23.1", "25.2", "25.3"].map(|version| with(version, true)), [false, false, false, true]);
        assert_eq!(["23.0", "23.1", "25.2"].map(|version| with(version, false)), [false, true, true]);
    }

    #[test]
    fn jobs_that_nobody_reads() {
        let mut facts = healthy();
        for (value, found) in [("8", 0), ("8 ", 1), ("auto", 1), ("-1", 1)] {
            facts.env.set("MAX_JOBS", value);
            let found_now = findings(&facts, "max-jobs-ignored");
            assert_eq!(found_now.len(), found, "{value:?}");
            assert!(found_now.iter().all(|one| one.severity == Severity::Info));
        }
        facts.env.set("MAX_JOBS", "8");
        facts.env.set("DS_BUILD_OPS", "1");
        assert!(finding(&facts, "max-jobs-ignored").title.contains("DS_ENABLE_NINJA"));
        facts.env.set("DS_ENABLE_NINJA", "1");
        silent(&facts, CHECKS, Purpose::Build);
    }

    #[test]
    fn without_facts_nothing_is_said() {
        let mut facts = without_ninja();
        python(&mut facts).torch = Observed::failed("unreadable");
        let judged = judged(&facts, Purpose::Build, "missing-ninja");
        assert!(judged.findings.is_empty() && judged.undecided.len() == 1);
    }
}
