//! Putting one question to a sample: by the id of the check, through the registry, or by the check's own function.

use crate::checks::{CHECKS, Case, Check, Judged, Judgement, Purpose, Verdict, judge, prove};
use crate::facts::snapshot::Snapshot;
use crate::finding::{Finding, ProblemId};
use crate::knowledge::Knowledge;

/// What one check says.
pub fn judged(facts: &Snapshot, purpose: Purpose, id: ProblemId) -> Judged {
    assert!(CHECKS.iter().flat_map(|topic| topic.iter()).any(|check| check.id == id), "no check {id}");
    judge(&Case::new(facts, &Knowledge::embedded(), purpose, &[]), &|other| other == id)
}

/// The findings of one check, states included.
pub fn findings(facts: &Snapshot, id: ProblemId) -> Vec<Finding> {
    let judged = judged(facts, Purpose::Both, id);
    assert!(judged.undecided.is_empty(), "{:?}", judged.undecided);
    judged.findings.into_iter().chain(judged.notes).collect()
}

/// The one finding of a check.
pub fn finding(facts: &Snapshot, id: ProblemId) -> Finding {
    let mut all = findings(facts, id);
    assert_eq!(all.len(), 1, "{all:#?}");
    all.remove(0)
}

/// Nothing is found, and it is known: nothing undecided.
pub fn silent(facts: &Snapshot, checks: &[Check], purpose: Purpose) {
    let know = Knowledge::embedded();
    for check in checks {
        match (check.run)(&Case::new(facts, &know, purpose, &[])) {
            Ok(Verdict::Pass | Verdict::NotApplicable(_)) => {}
            other => panic!("{}: {other:#?}", check.id),
        }
    }
}

/// That the recommended cure is proved: after the steps that change variables the finding is gone.
pub fn cured(facts: &Snapshot, id: ProblemId) -> Snapshot {
    let plan = prove(facts, &Knowledge::embedded(), Purpose::Both, &[], &|other| other == id);
    assert!(!plan.steps.is_empty() && plan.remaining.is_empty(), "{plan:#?}");
    let mut after = facts.clone();
    for (name, change) in &plan.changes {
        match change.apply(after.env.get(name)) {
            Some(value) => after.env.set(name, value),
            None => after.env.unset(name),
        }
    }
    after
}

/// Asks one check, for building and running.
pub fn ask(run: fn(&Case<'_>) -> Judgement, facts: &Snapshot) -> Judgement {
    ask_for(run, facts, Purpose::Both)
}

pub fn ask_for(run: fn(&Case<'_>) -> Judgement, facts: &Snapshot, purpose: Purpose) -> Judgement {
    run(&Case::new(facts, &Knowledge::embedded(), purpose, &[]))
}

/// The findings; none where it passes. Panics where the question does not arise or is undecided.
pub fn found(judgement: Judgement) -> Vec<Finding> {
    match judgement {
        Ok(Verdict::Found(findings)) => findings,
        Ok(Verdict::Pass) => Vec::new(),
        other => panic!("{other:?}"),
    }
}

/// The one finding.
pub fn one(judgement: Judgement) -> Finding {
    let mut findings = found(judgement);
    assert_eq!(findings.len(), 1, "{findings:?}");
    findings.remove(0)
}

/// Nothing is wrong, or the question does not arise; never undecided.
pub fn quiet(judgement: &Judgement) -> bool {
    matches!(judgement, Ok(Verdict::Pass | Verdict::NotApplicable(_)))
}
