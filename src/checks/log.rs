//! What logs say, under the ids that the facts alone would have led to: causes first, what follows from them folded under them.

use super::log_facts::{Caught, sharpen};
use super::log_fixes::page_fixes;
use super::{Case, Judged, fold, judge};
use crate::facts::log::{Log, Sighting};
use crate::finding::{Confidence, Evidence, Finding, Location, ProblemId, Severity};
use crate::knowledge::Knowledge;
use crate::knowledge::schema::signatures::{Kind, Signature, Trust};
use crate::text::clean;
use std::collections::BTreeMap;

/// Causes of a rank above this one count only where no other is there.
const STRONG: u32 = 50;
/// So many lines of one problem, and so many consequences, are shown.
const SHOWN: usize = 6;
const SECONDARY: ProblemId = "secondary-error";

/// A sighting with its signature, and the problem that it means here.
struct Seen<'a> {
    log: &'a Log,
    sighting: &'a Sighting,
    signature: &'a Signature,
    id: ProblemId,
}

/// The logs of the case alone.
pub fn judge_logs(case: &Case<'_>) -> Judged {
    let (mut findings, notes) = findings(case);
    let order: Vec<ProblemId> = findings.iter().map(|finding| finding.id).collect();
    findings = fold(findings);
    findings.sort_by_key(|finding| order.iter().position(|id| *id == finding.id));
    Judged { findings, notes, ..Judged::default() }
}

/// The logs and the facts together: what the logs show, with the facts' evidence and cures where the facts show it too, and what of the
/// facts explains it. What else the facts show is left out, and named.
pub fn judge_both(case: &Case<'_>) -> (Judged, Vec<ProblemId>) {
    let (shown, notes) = findings(case);
    let ids: Vec<ProblemId> = shown.iter().map(|finding| finding.id).collect();
    let facts = judge(case, &|_| true);
    let mut all: Vec<Finding> = facts.findings.into_iter().flat_map(unfolded).collect();
    for finding in shown {
        match all.iter_mut().find(|known| known.id == finding.id) {
            Some(known) => join(known, finding),
            None => all.push(finding),
        }
    }
    let (concerned, rest): (Vec<Finding>, Vec<Finding>) = fold(all).into_iter().partition(|root| concerns(root, &ids));
    let rest = rest.into_iter().map(|finding| finding.id).collect();
    (Judged { findings: concerned, notes, ..Judged::default() }, rest)
}

fn unfolded(mut finding: Finding) -> Vec<Finding> {
    let below = std::mem::take(&mut finding.folded);
    finding.caused_by.clear();
    std::iter::once(finding).chain(below.into_iter().flat_map(unfolded)).collect()
}

/// The log's words first; the facts' cures.
fn join(known: &mut Finding, shown: Finding) {
    known.severity = known.severity.max(shown.severity);
    known.location = shown.location;
    let facts = std::mem::replace(&mut known.evidence, shown.evidence);
    let log = known.evidence.clone();
    let said = |one: &Evidence| log.iter().any(|other| other.what == one.what && other.value == one.value && other.path == one.path);
    known.evidence.extend(facts.into_iter().filter(|one| !said(one)).collect::<Vec<_>>());
    known.folded.extend(shown.folded);
    if known.fixes.is_empty() {
        known.fixes = shown.fixes;
    }
}

fn concerns(finding: &Finding, ids: &[ProblemId]) -> bool {
    ids.contains(&finding.id) || finding.folded.iter().any(|folded| concerns(folded, ids))
}

/// Causes, by rank and line; and lines that are harmless.
fn findings(case: &Case<'_>) -> (Vec<Finding>, Vec<Finding>) {
    let (mut all, mut notes): (Vec<(u32, Finding)>, Vec<Finding>) = (Vec::new(), Vec::new());
    let facts = case.facts;
    for log in &facts.logs {
        let (causes, harmless) = of_log(case, log);
        notes.extend(harmless);
        for (rank, finding) in causes {
            match all.iter_mut().find(|(_, known)| known.id == finding.id) {
                // The same in another log: of another rank, or another try.
                Some((best, known)) => {
                    *best = rank.min(*best);
                    known.evidence.extend(finding.evidence);
                    known.folded.extend(finding.folded);
                }
                None => all.push((rank, finding)),
            }
        }
    }
    all.sort_by_key(|(rank, _)| *rank);
    // A consequence alone says nothing where another log names a cause.
    let named = all.iter().any(|(_, finding)| finding.id != SECONDARY);
    let findings = all.into_iter().map(|(_, finding)| finding).filter(|finding| !named || finding.id != SECONDARY).collect();
    (findings, notes)
}

fn of_log<'a>(case: &Case<'a>, log: &'a Log) -> (Vec<(u32, Finding)>, Vec<Finding>) {
    let seen: Vec<Seen<'a>> = log.sightings.iter().filter_map(|sighting| resolve(case, log, sighting)).collect();
    let named = |name: &str| seen.iter().any(|one| one.signature.name == name);
    let explained = |one: &Seen<'_>| {
        let family = &one.signature.family;
        let earlier = |other: &Seen<'_>| {
            !family.is_empty()
                && other.signature.family == *family
                && other.signature.kind() == Kind::Cause
                && other.sighting.line < one.sighting.line
        };
        one.signature.after.iter().any(|name| named(name)) || seen.iter().any(earlier)
    };
    let mut causes: Vec<&Seen<'_>> = seen.iter().filter(|one| one.signature.kind() == Kind::Cause && !explained(one)).collect();
    if causes.iter().any(|one| one.signature.rank() <= STRONG) {
        causes.retain(|one| one.signature.rank() <= STRONG);
    }
    causes.sort_by_key(|one| (one.signature.rank(), one.sighting.line));
    let mut findings: Vec<(u32, Finding, &Seen<'_>)> = Vec::new();
    for one in &causes {
        match findings.iter_mut().find(|(_, known, _)| known.id == one.id) {
            Some((_, known, _)) => known.evidence.push(evidence(one)),
            None => findings.push((one.signature.rank(), cause(case, one), *one)),
        }
    }
    let follows = |one: &&Seen<'_>| one.signature.kind() != Kind::Harmless && !causes.iter().any(|cause| std::ptr::eq(*cause, *one));
    let followers: Vec<&Seen<'_>> = seen.iter().filter(follows).collect();
    if findings.is_empty() {
        let alone = followers.iter().min_by_key(|one| (one.signature.rank(), one.sighting.line));
        findings.extend(alone.map(|one| (STRONG + 1, consequence_alone(one), *one)));
    }
    for one in followers {
        // What the signature itself says; else the nearest cause above; else the first.
        let by_name = findings.iter().position(|(_, _, root)| one.signature.after.contains(&root.signature.name));
        let above = findings.iter().enumerate().filter(|(_, (_, _, root))| root.sighting.line < one.sighting.line);
        let at = by_name.or_else(|| above.max_by_key(|(_, (_, _, root))| root.sighting.line).map(|(at, _)| at)).unwrap_or(0);
        if let Some((_, root, of)) = findings.get_mut(at)
            && !std::ptr::eq(*of, one)
        {
            follower(root, one);
        }
    }
    for (_, finding, _) in &mut findings {
        shorten(finding);
    }
    let harmless = seen.iter().filter(|one| one.signature.kind() == Kind::Harmless).map(harmless).collect();
    (findings.into_iter().map(|(rank, finding, _)| (rank, finding)).collect(), harmless)
}

fn resolve<'a>(case: &Case<'a>, log: &'a Log, sighting: &'a Sighting) -> Option<Seen<'a>> {
    let signature = case.know.signatures.signature.iter().find(|signature| signature.name == sighting.signature)?;
    let id = case.know.problem(&signature.id)?.id;
    Some(Seen { log, sighting, signature, id: exact(case, id, sighting) })
}

/// Where one text stands for two problems, what the tables or the facts know decides.
fn exact(case: &Case<'_>, id: ProblemId, sighting: &Sighting) -> ProblemId {
    if id != "nvcc-dropped-arch" {
        return id;
    }
    let Some(arch) = Caught(&sighting.captures).arch() else { return id };
    let newest = case.nvcc().ok().flatten().and_then(|nvcc| nvcc.targets.iter().map(|target| target.capability).max());
    let newer = match (newest, case.know.arch(arch.capability)) {
        (Some(newest), _) => arch.capability > newest,
        // No nvcc has dropped it yet: so this one is from before it.
        (None, Some(row)) => row.last_cuda.is_none(),
        (None, None) => false,
    };
    if newer { "nvcc-too-old-for-gpu" } else { id }
}

fn cause(case: &Case<'_>, one: &Seen<'_>) -> Finding {
    let mut finding = Finding::new(one.id, severity(case.know, one.id), says(one)).seen(evidence(one));
    if one.signature.confidence() == Trust::Likely {
        finding.confidence = Confidence::Likely;
    }
    let caught = Caught(&one.sighting.captures);
    if let Some(arch) = caught.arch()
        && let Some(row) = case.know.arch(arch.capability)
    {
        let since =
            row.last_cuda.map_or_else(|| format!("CUDA {} and later", row.first_cuda), |last| format!("CUDA {} to {last}", row.first_cuda));
        finding = finding.seen(Evidence::new(arch.compute(), format!("{} ({since})", row.name)).said_by("table of architectures"));
    }
    finding.location = Some(location(one));
    let (here, fixes) = sharpen(case, one.id, &caught);
    finding.evidence.extend(here);
    finding.fixes = if fixes.is_empty() { page_fixes(case.know, one.id) } else { fixes };
    finding
}

fn consequence_alone(one: &Seen<'_>) -> Finding {
    let mut finding = Finding::info(one.id, says(one)).seen(evidence(one));
    finding.location = Some(location(one));
    finding.then("its cause stands in another log, or above where this one begins")
}

fn harmless(one: &Seen<'_>) -> Finding {
    let mut finding = Finding::info(one.id, format!("harmless: {}", says(one))).seen(evidence(one));
    finding.location = Some(location(one));
    finding
}

fn follower(root: &mut Finding, one: &Seen<'_>) {
    let title = format!("{} (line {}{})", says(one), one.sighting.line, times(one.sighting.times));
    if root.folded.iter().any(|known| known.title == title) {
        return;
    }
    let mut finding = Finding::info(one.id, title).seen(evidence(one));
    finding.location = Some(location(one));
    finding.caused_by = vec![root.id];
    root.folded.push(finding);
}

/// A log of a thousand undefined symbols is told of in a few lines.
fn shorten(finding: &mut Finding) {
    finding.folded.sort_by_key(|one| one.location.as_ref().and_then(|place| place.line));
    let lines = finding.evidence.len();
    if lines > SHOWN {
        finding.evidence.truncate(SHOWN);
        finding.evidence.push(Evidence::new("and", format!("{} more such lines", lines - SHOWN)));
    }
    let folded = finding.folded.len();
    if folded > SHOWN {
        finding.folded.truncate(SHOWN);
        let mut more = Finding::info(SECONDARY, format!("{} more that follow", folded - SHOWN));
        more.caused_by = vec![finding.id];
        finding.folded.push(more);
    }
}

fn severity(know: &Knowledge, id: ProblemId) -> Severity {
    match know.problem(id).map(|problem| problem.severity) {
        Some("warning") => Severity::Warning,
        Some("info") => Severity::Info,
        _ => Severity::Error,
    }
}

fn location(one: &Seen<'_>) -> Location {
    Location { file: one.log.name.clone(), line: Some(one.sighting.line) }
}

fn evidence(one: &Seen<'_>) -> Evidence {
    let what = format!("line {}", one.sighting.line);
    Evidence::new(what, clean(&one.sighting.text)).at(&one.log.name).said_by(times(one.sighting.times).trim_start_matches(", ").to_owned())
}

fn times(number: usize) -> String {
    if number > 1 { format!(", {number} times") } else { String::new() }
}

/// The signature's sentence, filled in; the problem's where this pattern leaves a hole in it.
fn says(one: &Seen<'_>) -> String {
    filled(&one.signature.says, &one.sighting.captures).unwrap_or_else(|| {
        let problem = crate::knowledge::problems::PROBLEMS.iter().find(|problem| problem.id == one.id);
        problem.map_or(one.id, |problem| problem.summary).to_owned()
    })
}

/// A signature's sentence with what was caught; `None` where something is missing.
pub fn filled(says: &str, captures: &BTreeMap<String, String>) -> Option<String> {
    let mut text = says.to_owned();
    for (name, value) in captures {
        text = text.replace(&format!("{{{name}}}"), value);
    }
    (!text.contains('{')).then_some(text)
}
