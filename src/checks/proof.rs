//! Fixes are proved as a set: applied to the snapshot, judged again, until nothing new comes up.

use super::{Case, Judged, Purpose, judge};
use crate::facts::env::{NamedPlace, PlaceState};
use crate::facts::snapshot::Snapshot;
use crate::finding::{Action, Change, Effect, Finding, Fix, ProblemId, merge};
use crate::knowledge::Knowledge;
use std::collections::BTreeMap;
use std::path::Path;

/// A cure for everything that can be cured.
#[derive(Debug, Clone, Default)]
pub struct Plan {
    /// The recommended steps, cause by cause, in the order they are to be taken.
    pub steps: Vec<Step>,
    /// What they make of the environment, taken together.
    pub changes: BTreeMap<String, Change>,
    /// Findings that are still there afterwards: nothing here cures them.
    pub remaining: Vec<Finding>,
    /// How many of the steps were taken in any case.
    given: usize,
}

#[derive(Debug, Clone)]
pub struct Step {
    /// The finding it is for.
    pub id: ProblemId,
    pub title: String,
    pub fix: Fix,
}

/// At most this many rounds of "what do these fixes uncover".
const ROUNDS: usize = 5;

/// Takes the first choice of every finding's fixes, applies them, judges again, and goes on with what was uncovered.
pub fn prove(facts: &Snapshot, know: &Knowledge, purpose: Purpose, required: &[String], wanted: &dyn Fn(ProblemId) -> bool) -> Plan {
    prove_after(Vec::new(), facts, know, purpose, required, wanted)
}

/// The same on top of steps that are taken in any case: no fix sets a variable that they set.
pub fn prove_after(
    given: Vec<Step>,
    facts: &Snapshot,
    know: &Knowledge,
    purpose: Purpose,
    required: &[String],
    wanted: &dyn Fn(ProblemId) -> bool,
) -> Plan {
    let mut plan = Plan { given: given.len(), steps: given, ..Plan::default() };
    let mut now = facts.clone();
    plan.take(facts, &mut now);
    for round in 0..ROUNDS {
        let judged = judge(&Case::new(&now, know, purpose, required), wanted);
        let open = open(&judged, &plan);
        let mut added = false;
        if round + 1 < ROUNDS {
            for finding in &open {
                added |= plan.add(finding);
            }
        }
        if !added {
            plan.remaining = open.into_iter().cloned().collect();
            break;
        }
        plan.take(facts, &mut now);
    }
    plan
}

/// The snapshot as it will be when these steps are taken.
pub fn after(steps: &[Step], facts: &Snapshot) -> Snapshot {
    let mut now = facts.clone();
    apply(&mut now, &merge(&steps.iter().map(|step| &step.fix).collect::<Vec<_>>(), &facts.env));
    now
}

/// Findings that no chosen step is said to cure. What is folded under a cured finding goes with it.
fn open<'a>(judged: &'a Judged, plan: &Plan) -> Vec<&'a Finding> {
    let mut open = Vec::new();
    let mut queue: Vec<&Finding> = judged.findings.iter().collect();
    while !queue.is_empty() {
        let mut next = Vec::new();
        for finding in queue {
            if plan.cures(finding) { next.extend(finding.folded.iter()) } else { open.push(finding) }
        }
        queue = next;
    }
    open
}

impl Plan {
    /// What the safe steps alone make of the environment.
    pub fn safe_changes(&self, env: &crate::facts::env::EnvFacts) -> BTreeMap<String, Change> {
        let fixes: Vec<&Fix> = self.steps.iter().map(|step| &step.fix).filter(|fix| fix.is_safe_env()).collect();
        merge(&fixes, env)
    }

    fn cures(&self, finding: &Finding) -> bool {
        self.steps.iter().flat_map(|step| &step.fix.assumes).any(|effect| match effect {
            Effect::Cures { id, subject } => *id == finding.id && subject.as_ref().is_none_or(|subject| *subject == finding.subject),
        })
    }

    /// What all steps make of the environment, and of the facts.
    fn take(&mut self, facts: &Snapshot, now: &mut Snapshot) {
        let fixes: Vec<&Fix> = self.steps.iter().map(|step| &step.fix).collect();
        self.changes = merge(&fixes, &facts.env);
        *now = facts.clone();
        apply(now, &self.changes);
    }

    /// False when it had nothing new to add. One command may cure several findings.
    fn add(&mut self, finding: &Finding) -> bool {
        let mut added = false;
        for fix in finding.fixes.iter().filter(|fix| fix.choice == 0) {
            if self.set_by_given(fix) {
                continue;
            }
            match self.steps.iter_mut().find(|step| step.fix.action == fix.action) {
                Some(step) => {
                    let new: Vec<Effect> = fix.assumes.iter().filter(|effect| !step.fix.assumes.contains(effect)).cloned().collect();
                    added |= !new.is_empty();
                    step.fix.assumes.extend(new);
                }
                None => {
                    self.steps.push(Step { id: finding.id, title: finding.title.clone(), fix: fix.clone() });
                    added = true;
                }
            }
        }
        added
    }

    fn set_by_given(&self, fix: &Fix) -> bool {
        let sets = |fix: &Fix| match &fix.action {
            Action::SetEnv { name, .. } | Action::UnsetEnv { name } => Some(name.clone()),
            _ => None,
        };
        let given = self.steps.iter().take(self.given);
        sets(fix).is_some_and(|name| given.filter_map(|step| sets(&step.fix)).any(|other| other == name))
    }
}

/// The snapshot as it will be: variables changed, and the places they name known to be what the facts say they are.
fn apply(facts: &mut Snapshot, changes: &BTreeMap<String, Change>) {
    for (name, change) in changes {
        match change.apply(facts.env.get(name)) {
            Some(value) => facts.env.set(name, value),
            None => facts.env.unset(name),
        }
    }
    let toolkits = facts.toolkits.value().map_or(&[][..], Vec::as_slice);
    let known: Vec<NamedPlace> = toolkits
        .iter()
        .flat_map(|toolkit| {
            [toolkit.root.clone(), toolkit.root.join("bin")].into_iter().chain(toolkit.libs.iter().map(|lib| lib.path.clone()))
        })
        .filter(|path: &crate::facts::raw::HostPath| facts.env.state(Path::new(&path.0)).is_none())
        .map(|path| NamedPlace { path, state: PlaceState::Folder })
        .collect();
    facts.env.places.extend(known);
}
