//! `ds-doctor triage`

use super::log_input::{self, Read as Reading};
use super::output;
use super::subject::{self, Subject};
use crate::checks::log::{judge_both, judge_logs};
use crate::checks::{Case, Judged, Purpose, summary};
use crate::cli::{FailOn, SubjectArgs, TriageArgs, TriageFormat};
use crate::exit::Exit;
use crate::facts::log::Log;
use crate::facts::snapshot::Snapshot;
use crate::finding::{Finding, Severity};
use crate::knowledge::Knowledge;
use crate::logs::Reader;
use crate::model::assume;
use crate::render::{self, Detail, Report, Verdict};
use std::io::{self, Write};

/// # Errors
/// No log could be read, or a result that cannot be written.
pub fn run(args: &TriageArgs) -> anyhow::Result<Exit> {
    let with_facts = args.here || names_a_machine(&args.subject);
    let know = subject::knowledge(&args.subject)?;
    let reader = Reader::new(&know);
    let (mut logs, mut unread) = (Vec::new(), Vec::new());
    for path in &args.logs {
        match log_input::read(&reader, path, args.talk.quiet) {
            Reading::Whole(log) => logs.push(log),
            Reading::Part(log, why) => {
                logs.push(log);
                unread.push(why);
            }
            Reading::Nothing(why) => unread.push(why),
        }
    }
    for why in &unread {
        let _ = writeln!(io::stderr(), "ds-doctor: {}", crate::text::clean(why));
    }
    if logs.is_empty() {
        return Ok(Exit::Unable);
    }
    let (mut facts, purpose) = match with_facts {
        true => subject::load(&args.subject).map(|Subject { facts, purpose, .. }| (facts, purpose))?,
        false => (Snapshot::default(), Purpose::Both),
    };
    facts.logs = logs;
    if with_facts {
        assume_from_logs(&mut facts, &know);
    }
    let report = report("triage", &facts, &know, purpose, with_facts);
    let mut out = output::result(&args.talk)?;
    match args.format {
        TriageFormat::Human => render::human::render(&report, output::detail(&args.talk), &mut out)?,
        TriageFormat::Json => out.write_all(render::json::Envelope::new(&report, render::triage::result(&facts.logs)).text().as_bytes())?,
        TriageFormat::Markdown => render::markdown::render(&report, &mut out)?,
        TriageFormat::Github => render::github::render(&report, &mut out)?,
    }
    out.flush()?;
    Ok(exit(&report, args.fail_on, !unread.is_empty()))
}

fn names_a_machine(args: &SubjectArgs) -> bool {
    !args.from.is_empty() || args.root.is_some() || !args.assume.is_empty() || !args.gpu.is_empty() || args.python.is_some()
}

/// Logs, with or without a machine's facts, judged and ready to be printed.
pub fn report(command: &'static str, facts: &Snapshot, know: &Knowledge, purpose: Purpose, with_facts: bool) -> Report {
    let case = Case::new(facts, know, purpose, &[]);
    let (judged, rest) = if with_facts { judge_both(&case) } else { (judge_logs(&case), Vec::new()) };
    let mut subject: Vec<String> = facts.logs.iter().map(render::triage::name).collect();
    if with_facts {
        subject.extend(summary::subject(&case));
    }
    let mut body = Vec::new();
    // A consequence alone names no cause: what looks like one is shown.
    if judged.findings.iter().all(|finding| finding.weight() == Severity::Info) {
        body.extend(facts.logs.iter().flat_map(render::triage::unknown));
    }
    if !rest.is_empty() {
        body.push(format!("the machine has other problems too, which the log does not show: {} (`ds-doctor check`)", rest.join(", ")));
    }
    Report {
        command,
        subject,
        body,
        verdict: verdict(&judged, &facts.logs),
        complete: facts.logs.iter().all(|log| log.cut.is_none()),
        judged,
        waived: Vec::new(),
        proves: render::triage::proves(&facts.logs),
    }
}

/// An error that no signature knows is not healthy.
fn verdict(judged: &Judged, logs: &[Log]) -> Verdict {
    match judged.findings.iter().map(Finding::weight).max() {
        Some(Severity::Error) => Verdict::Broken,
        Some(Severity::Warning) => Verdict::Warnings,
        Some(Severity::Info) => Verdict::Unknown,
        None if logs.iter().any(|log| !log.errors.is_empty() || log.lines == 0) => Verdict::Unknown,
        None => Verdict::Healthy,
    }
}

/// The architecture that the log asks for counts as the machine's GPU where no GPU is seen: a build for another machine.
fn assume_from_logs(facts: &mut Snapshot, know: &Knowledge) {
    if facts.gpu.devices.value().is_some_and(|devices| !devices.is_empty()) {
        return;
    }
    let arch = facts
        .logs
        .iter()
        .flat_map(|log| &log.sightings)
        .find_map(|one| one.captures.get("arch").or_else(|| one.captures.get("capability")));
    if let Some(arch) = arch.cloned() {
        // One that the tables do not know is nothing to judge by.
        let _ = assume::gpus(facts, know, &[arch]);
    }
}

fn exit(report: &Report, fail_on: Option<FailOn>, unread: bool) -> Exit {
    let floor = match fail_on {
        None => None,
        Some(FailOn::Info) => Some(Severity::Info),
        Some(FailOn::Warning) => Some(Severity::Warning),
        Some(FailOn::Error) => Some(Severity::Error),
    };
    match floor {
        _ if unread => Exit::Unable,
        Some(floor) if report.judged.findings.iter().any(|finding| finding.weight() >= floor) => Exit::Findings,
        _ => Exit::Fine,
    }
}

/// For a person, on a stream that is not the result.
///
/// # Errors
/// Those of the writer.
pub fn tell(report: &Report, out: &mut dyn Write) -> io::Result<()> {
    render::human::render(report, Detail::Normal, out)
}
