//! `ds-doctor check`

use super::probe::{How, try_out};
use super::progress::Progress;
use super::subject::{self, Subject};
use super::{nccl_test, output, waiver};
use crate::checks::{Case, Judged, judge, summary};
use crate::cli::{CheckArgs, ChoiceArgs, FailOn, Format, Required, SubjectArgs};
use crate::exit::Exit;
use crate::facts::snapshot::Snapshot;
use crate::finding::{ProblemId, Severity};
use crate::knowledge::Knowledge;
use crate::knowledge::problems::Problem;
use crate::render::{self, Report, Verdict};
use anyhow::bail;
use std::io::Write as _;

/// # Errors
/// Unreadable input, or a result that cannot be written.
pub fn run(args: &CheckArgs) -> anyhow::Result<Exit> {
    let Subject { mut facts, know, purpose, .. } = subject::load(&args.subject)?;
    let wanted = wanted(&args.choice, &know)?;
    let required: Vec<String> = args.require.iter().map(|what| name(*what).to_owned()).collect();
    let case = Case::new(&facts, &know, purpose, &required);
    let mut judged = judge(&case, &wanted);
    if goes_on(args) {
        let build = purpose.builds() && asks_for(&args.choice, &know, &wanted, |problem| problem.seen_in.contains(&"probe"));
        if build && !settled(&judged, &know, OF_A_BUILD) {
            let how = How { cache: true, keep: false, run: purpose.runs(), quiet: args.talk.quiet, ops: None, torch: false };
            facts.probe = try_out(&subject::live(&args.subject)?, &facts, &know, &args.subject, &how);
        }
        let case = Case::new(&facts, &know, purpose, &required);
        let gpus = purpose.runs() && facts.gpu.driver_seen() && case.gpus().is_ok_and(|gpus| !gpus.is_empty());
        let cuda = case.torch().ok().flatten().is_some_and(|torch| torch.cuda.is_some());
        let nccl = gpus && cuda && asks_for(&args.choice, &know, &wanted, |problem| problem.topic == "nccl");
        if nccl && !settled(&judged, &know, &["gpu", "nccl"]) {
            let progress = Progress::new(args.talk.quiet);
            progress.say("testing NCCL on the idle GPUs…");
            facts.nccl = nccl_test::short(&case, &mut |_| {});
        }
        if !facts.probe.is_skipped() || !facts.nccl.is_skipped() {
            judged = judge(&Case::new(&facts, &know, purpose, &required), &wanted);
        }
    }
    let case = Case::new(&facts, &know, purpose, &required);
    let (waived, expired) = waiver::apply(&mut judged, &waiver::load(&know)?, facts.taken);
    for note in expired.iter().chain(&facts.notes) {
        output::note(&args.talk, note);
    }
    let verdict = verdict(&case, &judged);
    let complete = !judged.undecided.iter().any(|one| one.failed);
    let proves = match verdict {
        Verdict::Unknown => summary::point_at_something(&case),
        _ => summary::proves(&case, &judged),
    };
    let report = Report {
        command: "check",
        subject: summary::subject(&case),
        body: if args.talk.verbose { render::probe::table(&facts.probe, true) } else { Vec::new() },
        judged,
        verdict,
        complete,
        waived,
        proves,
    };
    let detail = output::detail(&args.talk);
    let mut out = output::result(&args.talk)?;
    match args.format {
        Format::Human => render::human::render(&report, detail, &mut out)?,
        Format::Json => out.write_all(render::json::Envelope::new(&report, result(&facts, &report.subject)).text().as_bytes())?,
        Format::Markdown => render::markdown::render(&report, &mut out)?,
        Format::Github => render::github::render(&report, &mut out)?,
        Format::Sarif => out.write_all(render::sarif::text(&report, &know).as_bytes())?,
    }
    out.flush()?;
    Ok(exit(&report, args))
}

/// What was judged, and the trials where there were any.
fn result(facts: &Snapshot, subject: &[String]) -> serde_json::Value {
    let mut result = serde_json::json!({ "subject": subject });
    if facts.probe.value().is_some() {
        result["probe"] = serde_json::json!(render::probe::json(&facts.probe, subject));
    }
    if facts.nccl.value().is_some() {
        result["nccl"] = render::nccl::result(&facts.nccl);
    }
    result
}

/// Only the machine as it is can be tried.
fn goes_on(args: &CheckArgs) -> bool {
    let SubjectArgs { from, root, env, env_file, gpu, assume, .. } = &args.subject;
    let other = !from.is_empty() || root.is_some() || !env.is_empty() || !env_file.is_empty() || !gpu.is_empty() || !assume.is_empty();
    !args.only_static && !other
}

/// Whether problems of this kind are among those that are looked for.
fn asks_for(choice: &ChoiceArgs, know: &Knowledge, wanted: &dyn Fn(ProblemId) -> bool, kind: fn(&Problem) -> bool) -> bool {
    choice.only.is_empty() || know.problems().iter().any(|problem| kind(problem) && wanted(problem.id))
}

const OF_A_BUILD: &[&str] = &["toolkit", "compiler", "python", "torch", "deepspeed", "arch", "cache"];

/// The facts alone show an error of these topics: a trial would say nothing new.
fn settled(judged: &Judged, know: &Knowledge, topics: &[&str]) -> bool {
    let stops = |finding: &crate::finding::Finding| {
        let topic = know.problem(finding.id).map(|problem| problem.topic);
        finding.weight() == Severity::Error && topic.is_some_and(|topic| topics.contains(&topic))
    };
    judged.findings.iter().any(stops)
}

fn name(what: Required) -> &'static str {
    match what {
        Required::Torch => "torch",
        Required::Nvcc => "nvcc",
        Required::Gpu => "gpu",
        Required::Deepspeed => "deepspeed",
    }
}

/// A filter on problem ids from `--only` and `--skip`.
///
/// # Errors
/// A name that is neither a problem nor a topic.
pub fn wanted(choice: &ChoiceArgs, know: &Knowledge) -> anyhow::Result<impl Fn(ProblemId) -> bool + use<>> {
    let ids = |names: &[String]| -> anyhow::Result<Vec<&'static str>> {
        let mut ids = Vec::new();
        for name in names {
            let of_topic: Vec<&str> = know.problems().iter().filter(|p| p.topic == name).map(|p| p.id).collect();
            match know.problem(name) {
                Some(problem) => ids.push(problem.id),
                None if !of_topic.is_empty() => ids.extend(of_topic),
                None => bail!("`{name}` is neither a problem nor a topic; `ds-doctor list` names them"),
            }
        }
        Ok(ids)
    };
    let (only, skip) = (ids(&choice.only)?, ids(&choice.skip)?);
    let all = choice.only.is_empty();
    Ok(move |id: ProblemId| (all || only.contains(&id)) && !skip.contains(&id))
}

/// What the findings amount to.
pub fn verdict(case: &Case<'_>, judged: &Judged) -> Verdict {
    match judged.findings.iter().map(crate::finding::Finding::weight).max() {
        Some(Severity::Error) => Verdict::Broken,
        Some(_) => Verdict::Warnings,
        None if summary::anything(case) => Verdict::Healthy,
        None => Verdict::Unknown,
    }
}

fn exit(report: &Report, args: &CheckArgs) -> Exit {
    let floor = match (args.strict, args.fail_on) {
        (true, FailOn::Error | FailOn::Warning) | (false, FailOn::Warning) => Severity::Warning,
        (_, FailOn::Info) => Severity::Info,
        (false, FailOn::Error) => Severity::Error,
    };
    let weights = report.judged.findings.iter().chain(&report.judged.notes).map(crate::finding::Finding::weight);
    if args.exit_zero {
        return Exit::Fine;
    }
    if weights.max() >= Some(floor) || (args.strict && !report.complete) {
        return Exit::Findings;
    }
    if report.verdict == Verdict::Unknown { Exit::Unable } else { Exit::Fine }
}
