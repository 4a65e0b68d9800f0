//! ninja: whether torch gets to run one.

use super::lookup::NOT_ASKED;
use super::remedy::{install, pip_install};
use super::{Case, Check, Judgement, Verdict};
use crate::facts::observed::Missing;
use crate::facts::program::{Program, ProgramKind};
use crate::facts::python::{EnvironmentKind, Interpreter};
use crate::facts::raw::HostPath;
use crate::facts::source::Source;
use crate::finding::{Evidence, Finding, Fix, Severity};
use crate::knowledge::host::Wanted;
use crate::knowledge::schema::deepspeed::DeepSpeedTrait;
use crate::knowledge::schema::host::Need;
use crate::model::assume::is_assumed;
use crate::model::search;
use std::path::Path;

pub const CHECKS: &[Check] = &[Check { id: "missing-ninja", run: missing_ninja }, Check { id: "ninja-broken", run: broken_ninja }];

const JIT_STOPS: &str =
    "JIT builds stop with `Ninja is required to load C++ extensions`; setup builds go on without it, one file after another";

/// Where builds with torch are asked for: the interpreter.
pub fn building<'a>(case: &Case<'a>) -> Result<Result<&'a Interpreter, Verdict>, Missing> {
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
    if case.deepspeed()?.is_some_and(|deepspeed| is_assumed(&deepspeed.path)) {
        return Ok(Verdict::not_applicable("the installation of DeepSpeed brings one along"));
    }
    case.environment_of_torch("ninja")?;
    // An environment that was only named may be activated before it is used.
    let named = matches!(case.python_choice().by, Some(Source::Option { .. }));
    let own =
        python.package("ninja").is_some() && !case.facts.env.entries("PATH").iter().any(|entry| Some(&**entry) == python.path.parent());
    let severity = if named && own { Severity::Warning } else { Severity::Error };
    let mut finding = Finding::new(ID, severity, "there is no program `ninja` on PATH, and JIT builds need it")
        .seen(Evidence::new("looked for", "ninja").said_by("PATH"))
        .then(JIT_STOPS);
    if severity == Severity::Warning {
        finding = finding.likely();
    }
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
    let assumed = is_assumed(&deepspeed.path);
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

#[cfg(test)]
#[expect(clippy::unwrap_used)]
mod tests {
    use super::super::Purpose;
    use super::super::sample::{cured, finding, findings, healthy, judged, program, python, silent};
    use super::*;
    use crate::facts::observed::Observed;
    use crate::facts::snapshot::Snapshot;
    use crate::finding::{Action, Safety};

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
        assert_eq!(found.severity, Severity::Warning, "it may be activated yet");
        silent(&cured(&facts, "missing-ninja"), CHECKS, Purpose::Build);
    }

    #[test]
    fn a_module_without_its_program() {
        let facts = without_ninja();
        let found = finding(&facts, "missing-ninja");
        assert_eq!(found.severity, Severity::Error);
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
    fn an_assumed_torch() {
        let know = crate::knowledge::Knowledge::embedded();
        let assume = |facts: &mut Snapshot, pairs: &[&str]| {
            let pairs: Vec<String> = pairs.iter().map(|pair| (*pair).to_owned()).collect();
            crate::model::assume::software(facts, &know, &pairs).unwrap();
        };
        let mut bare = without_ninja();
        python(&mut bare).packages.retain(|package| package.name != "ninja");
        bare.env.unset("VIRTUAL_ENV");
        assume(&mut bare, &["torch=2.6.0+cu124"]);
        python(&mut bare).deepspeed = Observed::absent(["site"]);
        // Nobody says that it will be this environment.
        assert_eq!(judged(&bare, Purpose::Build, "missing-ninja").undecided.len(), 1);
        // An activation says it, an option does, and so does a torch that is there.
        let mut active = bare.clone();
        active.env.set("VIRTUAL_ENV", "/venv");
        assert_eq!(finding(&active, "missing-ninja").severity, Severity::Error);
        let mut named = bare.clone();
        python(&mut named).sources.push(Source::Option { name: "--python".to_owned() });
        finding(&named, "missing-ninja");
        let mut upgrade = bare.clone();
        python(&mut upgrade).packages.push(super::super::sample::package("torch", "2.5.1"));
        finding(&upgrade, "missing-ninja");
        // DeepSpeed brings it along.
        assume(&mut active, &["deepspeed=0.16.9"]);
        silent(&active, CHECKS, Purpose::Build);
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
    fn without_facts_nothing_is_said() {
        let mut facts = without_ninja();
        python(&mut facts).torch = Observed::failed("unreadable");
        let judged = judged(&facts, Purpose::Build, "missing-ninja");
        assert!(judged.findings.is_empty() && judged.undecided.len() == 1);
    }
}
