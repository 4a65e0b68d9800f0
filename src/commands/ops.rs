//! `ds-doctor ops`

use super::check::verdict;
use super::probe::{How, try_out};
use super::subject::{self, Subject};
use super::{op_subject, output};
use crate::checks::{Case, judge, ops_report, summary};
use crate::cli::{OpsArgs, OpsFormat};
use crate::exit::Exit;
use crate::finding::{Finding, Severity};
use crate::knowledge::schema::deepspeed::AcceleratorKind;
use crate::probe::ops::Which;
use crate::render::{self, Report, Verdict};
use anyhow::bail;
use std::io::Write as _;

/// # Errors
/// Wrong use, unreadable input, no DeepSpeed, or a result that cannot be written.
pub fn run(args: &OpsArgs) -> anyhow::Result<Exit> {
    if args.probe && (!args.subject.from.is_empty() || args.subject.root.is_some() || args.source.is_some()) {
        bail!(
            "--probe compiles on this machine for an installed DeepSpeed or --deepspeed: it goes with none of --from, --root and --source"
        );
    }
    let subject = op_subject::load(&args.subject, args.source.as_deref(), args.deepspeed.as_deref())?;
    let Subject { mut facts, know, purpose } = subject;
    if args.probe {
        let how = How { cache: true, keep: false, run: false, quiet: args.talk.quiet, ops: Some(Which::All), torch: false };
        facts.probe = try_out(&subject::live(&args.subject)?, &facts, &know, &args.subject, &how);
    }
    let case = Case::new(&facts, &know, purpose, &[]);
    let mut judged = judge(&case, &|_| true);
    let (scene, states) = op_subject::ops(&case)?;
    let rows = ops_report::rows(&case, scene, states, &judged);
    let changed = ops_report::changed_builders(scene);
    let cuda = !(scene.said && scene.accelerator == AcceleratorKind::Cpu);
    judged.findings.retain(|finding| concerns(&know, finding, cuda));
    judged.notes.retain(|note| know.problem(note.id).is_some_and(|problem| problem.topic == "deepspeed"));
    judged.undecided.retain(|one| know.problem(one.id).is_some_and(|problem| problem.topic == "deepspeed"));
    judged.passed.clear();
    judged.not_applicable.clear();
    let view = render::ops::View { case: &case, scene, rows: &rows, changed: changed.as_deref(), probe: facts.probe.value() };
    if args.format == OpsFormat::DsReport {
        let mut out = output::result(&args.talk)?;
        out.write_all(render::ops_report::text(&view).as_bytes())?;
        out.flush()?;
        return Ok(Exit::Fine);
    }
    let verdict = verdict(&case, &judged);
    let report = Report {
        command: "ops",
        subject: summary::subject(&case),
        body: render::ops::table(&view, args.talk.verbose),
        verdict: if verdict == Verdict::Unknown { Verdict::Healthy } else { verdict },
        complete: !judged.undecided.iter().any(|one| one.failed),
        judged,
        waived: Vec::new(),
        proves: render::ops::summary(&view),
    };
    let mut out = output::result(&args.talk)?;
    match args.format {
        OpsFormat::Json => {
            let result = serde_json::to_value(render::ops::json(&view))?;
            out.write_all(render::json::Envelope::new(&report, result).text().as_bytes())?;
        }
        OpsFormat::Markdown => render::markdown::render(&report, &mut out)?,
        OpsFormat::Human | OpsFormat::DsReport => render::human::render(&report, output::detail(&args.talk), &mut out)?,
    }
    out.flush()?;
    let worst = report.judged.findings.iter().map(Finding::weight).max();
    Ok(if worst == Some(Severity::Error) { Exit::Findings } else { Exit::Fine })
}

fn concerns(know: &crate::knowledge::Knowledge, finding: &Finding, cuda: bool) -> bool {
    let topic = know.problem(finding.id).map(|problem| problem.topic);
    ops_report::concerns(finding.id, topic, cuda) || finding.folded.iter().any(|folded| concerns(know, folded, cuda))
}
