//! setuptools and distutils: what torch's build helper imports.

use super::lookup::NOT_ASKED;
use super::python::shown;
use super::remedy::{install, pip_install};
use super::{Case, Check, Judgement, Verdict};
use crate::facts::observed::Missing;
use crate::facts::python::Interpreter;
use crate::finding::{Evidence, Finding, Fix};
use crate::knowledge::host::Wanted;
use crate::knowledge::schema::deepspeed::DeepSpeedTrait;
use crate::knowledge::schema::host::Need;

pub const CHECKS: &[Check] = &[Check { id: "python-distutils-setuptools", run: setuptools }];

/// setuptools before this does not run on Python 3.12: `pkgutil.ImpImporter` is gone. Source: run with 59.5.0, 60.0.0, 66.0.0 and 66.1.0.
const FIRST_FOR_312: [u32; 2] = [66, 1];

fn setuptools(case: &Case<'_>) -> Judgement {
    let verdict = of_environment(case)?;
    if matches!(verdict, Verdict::Found(_)) {
        case.environment_of_torch("packages")?;
    }
    Ok(verdict)
}

fn of_environment(case: &Case<'_>) -> Judgement {
    const ID: &str = "python-distutils-setuptools";
    let Some(python) = case.python()? else { return Ok(Verdict::not_applicable("no Python on PATH")) };
    let deepspeed = case.deepspeed()?;
    let Some(torch) = case.torch()? else { return Ok(Verdict::not_applicable("no torch")) };
    if !case.purpose.builds() && deepspeed.is_none() {
        return Ok(Verdict::not_applicable(NOT_ASKED));
    }
    let limit = case.know.setuptools_limit(&torch.version);
    let at_import = deepspeed.is_some_and(|deepspeed| {
        case.know.deepspeed_does(DeepSpeedTrait::ImportNeedsDistutils, &deepspeed.version) == Some(true)
            && python.has_distutils == Some(false)
    });
    let consequence = |module: &str| {
        let import = if at_import { "`import deepspeed`, " } else { "" };
        format!("{import}JIT and setup builds stop with `No module named '{module}'`: `torch.utils.cpp_extension` imports it")
    };
    let Some(own) = python.package("setuptools") else {
        // An assumed torch has no files: what its installation would bring along is not known.
        if torch.installed.is_none() {
            let why = "whether setuptools comes with this torch is not known before it is installed".to_owned();
            return Err(Missing { topic: "packages", why, failed: false });
        }
        let finding = Finding::error(ID, format!("there is no setuptools in `{}`, and torch's build helper imports it", python.prefix))
            .seen(shown(python))
            .seen(super::torch::shown(torch))
            .then(consequence(if at_import { "distutils" } else { "setuptools" }));
        return Ok(Verdict::found(get_setuptools(case, python, torch, ID).into_iter().fold(finding, Finding::fix)));
    };
    let evidence = Evidence::new("setuptools", own.version.to_string()).at(&own.site);
    if let Some(limit) = limit.filter(|limit| own.version >= limit.below.dotted()) {
        let finding = Finding::error(ID, format!("setuptools {} is too new for torch {}: {}", own.version, torch.version, limit.why))
            .seen(evidence)
            .seen(super::torch::shown(torch))
            .then("JIT and setup builds stop with `No module named 'pkg_resources'`");
        return Ok(Verdict::found(get_setuptools(case, python, torch, ID).into_iter().fold(finding, Finding::fix)));
    }
    let on_312 = python.version.as_ref().is_some_and(|version| version.at_least(&[3, 12]));
    if on_312 && !own.version.at_least(&FIRST_FOR_312) {
        let finding = Finding::error(
            ID,
            format!(
                "setuptools {} does not run on Python {}: it needs 66.1 or newer",
                own.version,
                python.version.as_ref().map(ToString::to_string).unwrap_or_default()
            ),
        )
        .seen(evidence)
        .seen(shown(python))
        .then("JIT and setup builds stop with `module 'pkgutil' has no attribute 'ImpImporter'` or `No module named 'distutils'`");
        return Ok(Verdict::found(get_setuptools(case, python, torch, ID).into_iter().fold(finding, Finding::fix)));
    }
    // Any other value than `local`, an empty one too, sends setuptools to the standard library's copy.
    let told = case.facts.env.get("SETUPTOOLS_USE_DISTUTILS").filter(|value| *value != "local");
    if let Some(value) = told.filter(|_| python.has_distutils == Some(false)) {
        let value = value.to_string_lossy();
        let finding = Finding::error(
            ID,
            format!("`SETUPTOOLS_USE_DISTUTILS` is `{value}`, and the standard library of this Python has no distutils"),
        )
        .about("SETUPTOOLS_USE_DISTUTILS")
        .seen(Evidence::new("SETUPTOOLS_USE_DISTUTILS", value.clone()).said_by("environment"))
        .seen(shown(python))
        .then(consequence("distutils"))
        .fix(Fix::unset("SETUPTOOLS_USE_DISTUTILS", "setuptools brings its own copy"));
        return Ok(Verdict::found(finding));
    }
    Ok(Verdict::Pass)
}

/// setuptools as torch asks for it.
fn get_setuptools(case: &Case<'_>, python: &Interpreter, torch: &crate::facts::torch::Torch, id: &'static str) -> Vec<Fix> {
    let asked =
        torch.requires.iter().find(|(name, specifier)| name == "setuptools" && specifier.starts_with('<')).map(|(_, asked)| asked.clone());
    let limit = || case.know.setuptools_limit(&torch.version).map(|limit| format!("<{}", limit.below));
    let bound = asked.or_else(limit).unwrap_or_default();
    if python.externally_managed {
        let packaged = install(case, Need::Setuptools, &Wanted::default(), id);
        if !packaged.is_empty() {
            return packaged;
        }
    }
    vec![pip_install(case, [format!("setuptools{bound}"), "wheel".to_owned()], "into the environment that builds").curing(id)]
}

#[cfg(test)]
#[expect(clippy::unwrap_used)]
mod tests {
    use super::super::Purpose;
    use super::super::sample::{cured, finding, findings, healthy, judged, package, python, silent};
    use super::*;
    use crate::facts::snapshot::Snapshot;
    use crate::finding::Action;

    fn without(facts: &mut Snapshot, name: &str) {
        python(facts).packages.retain(|package| package.name != name);
    }

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
    fn setuptools_that_do_not_fit() {
        let mut facts = healthy();
        without(&mut facts, "setuptools");
        let found = finding(&facts, "python-distutils-setuptools");
        assert!(found.consequence.contains("'setuptools'"), "{}", found.consequence);
        assert_eq!(command(&found), "/venv/bin/python3 -m pip install setuptools wheel");
        // DeepSpeed 0.16.9 cannot even be imported then on 3.12.
        python(&mut facts).has_distutils = Some(false);
        assert!(finding(&facts, "python-distutils-setuptools").consequence.contains("`import deepspeed`"));
        python(&mut facts).torch.value_mut().unwrap().requires = vec![("setuptools".to_owned(), "<82".to_owned())];
        assert!(command(&finding(&facts, "python-distutils-setuptools")).contains("setuptools<82"));
        python(&mut facts).torch.value_mut().unwrap().installed = None;
        assert_eq!(judged(&facts, Purpose::Build, "python-distutils-setuptools").undecided.len(), 1, "an assumed torch");
    }

    #[test]
    fn setuptools_by_version() {
        let mut facts = healthy();
        let with = |facts: &mut Snapshot, version: &str| {
            without(facts, "setuptools");
            python(facts).packages.push(package("setuptools", version));
            findings(facts, "python-distutils-setuptools").len()
        };
        assert_eq!(with(&mut facts, "82.0.1"), 0);
        super::super::sample::torch(&mut facts, "2.1.2+cu118");
        assert_eq!([with(&mut facts, "80.9.0"), with(&mut facts, "82.0.1")], [0, 1]);
        assert!(command(&finding(&facts, "python-distutils-setuptools")).contains("setuptools<82"));
        python(&mut facts).version = Some("3.12.1".parse().unwrap());
        assert_eq!([with(&mut facts, "66.0.0"), with(&mut facts, "66.1.0")], [1, 0]);
    }

    #[test]
    fn distutils_of_the_standard_library() {
        let mut facts = healthy();
        for (value, on_311, on_312) in [("local", 0, 0), ("stdlib", 0, 1), ("", 0, 1)] {
            facts.env.set("SETUPTOOLS_USE_DISTUTILS", value);
            let mut of = |there| {
                python(&mut facts).has_distutils = Some(there);
                findings(&facts, "python-distutils-setuptools").len()
            };
            assert_eq!([of(true), of(false)], [on_311, on_312], "{value:?}");
        }
        cured(&facts, "python-distutils-setuptools");
    }
}
