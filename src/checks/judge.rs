//! Every check on one case, a crash in one never hiding the others, and the result put in order.

use super::{CHECKS, Case, Verdict, fold, kernel, probe};
use crate::finding::{Finding, ProblemId, Severity};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// What the checks said of one machine.
#[derive(Debug, Clone, Default)]
pub struct Judged {
    /// Errors and warnings, root causes first, consequences folded under them.
    pub findings: Vec<Finding>,
    /// States worth knowing, shown with `-v`; never counted.
    pub notes: Vec<Finding>,
    pub undecided: Vec<Undecided>,
    pub passed: Vec<ProblemId>,
    /// With the reason.
    pub not_applicable: Vec<(ProblemId, String)>,
}

/// A question that could not be judged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Undecided {
    pub id: ProblemId,
    /// The topic that is missing.
    pub missing: &'static str,
    pub why: String,
    /// The topic failed to be read, rather than not having been asked.
    pub failed: bool,
}

/// Runs the checks that `wanted` lets through.
pub fn judge(case: &Case<'_>, wanted: &dyn Fn(ProblemId) -> bool) -> Judged {
    let mut judged = Judged::default();
    let mut found = Vec::new();
    for check in CHECKS.iter().flat_map(|topic| topic.iter()) {
        if !wanted(check.id) {
            continue;
        }
        match catch_unwind(AssertUnwindSafe(|| (check.run)(case))) {
            Ok(Ok(Verdict::Pass)) => judged.passed.push(check.id),
            Ok(Ok(Verdict::NotApplicable(why))) => judged.not_applicable.push((check.id, why)),
            Ok(Ok(Verdict::Found(findings))) => found.extend(findings),
            Ok(Err(missing)) => {
                judged.undecided.push(Undecided { id: check.id, missing: missing.topic, why: missing.why, failed: missing.failed })
            }
            Err(panic) => judged.undecided.push(Undecided { id: check.id, missing: "check", why: crash(&panic), failed: true }),
        }
    }
    let shown: Vec<Finding> =
        probe::findings(case).into_iter().chain(kernel::findings(case)).filter(|finding| wanted(finding.id)).collect();
    judged.passed.retain(|id| !shown.iter().any(|finding| finding.id == *id));
    judged.undecided.retain(|one| !shown.iter().any(|finding| finding.id == one.id));
    judged.not_applicable.retain(|(id, _)| !shown.iter().any(|finding| finding.id == *id));
    probe::join(&mut found, shown);
    let (notes, findings) = found.into_iter().partition(|finding: &Finding| finding.severity == Severity::Info);
    judged.notes = notes;
    judged.findings = fold(findings);
    judged
}

fn crash(panic: &(dyn std::any::Any + Send)) -> String {
    let words = panic.downcast_ref::<&str>().map(ToString::to_string).or_else(|| panic.downcast_ref::<String>().cloned());
    format!("the check itself crashed ({}): please report it", words.unwrap_or_default())
}
