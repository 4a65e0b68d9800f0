//! Variables that steer builds: pip's isolation, the number of jobs.

use super::lookup::NOT_ASKED;
use super::ninja::{building, ninja_runs};
use super::{Case, Check, Judgement, Verdict};
use crate::facts::python::Interpreter;
use crate::finding::{Evidence, Finding, Fix};
use crate::knowledge::schema::deepspeed::DeepSpeedTrait;
use crate::text::join;

pub const CHECKS: &[Check] = &[Check { id: "build-isolation", run: isolation }, Check { id: "max-jobs-ignored", run: max_jobs }];

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
    .fix(Fix::advice("unset it, and run `pip install --no-build-isolation …`").or(1));
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
mod tests {
    use super::super::Purpose;
    use super::super::sample::{cured, finding, findings, healthy, package, python, silent};
    use super::*;
    use crate::finding::Severity;

    #[test]
    fn a_healthy_machine_is_silent() {
        for purpose in [Purpose::Build, Purpose::Run, Purpose::Both] {
            silent(&healthy(), CHECKS, purpose);
        }
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
}
