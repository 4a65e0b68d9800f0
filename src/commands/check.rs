//! `ds-doctor check`

use super::probe::{How, try_out};
use super::progress::Progress;
use super::subject::{self, Subject};
use super::waiver::{self, Waiver};
use super::{nccl_test, output};
use crate::checks::{Case, Judged, judge, summary};
use crate::cli::{CheckArgs, ChoiceArgs, FailOn, Format, Required, SubjectArgs};
use crate::exit::Exit;
use crate::facts::snapshot::Snapshot;
use crate::finding::{ProblemId, Severity};
use crate::knowledge::Knowledge;
use crate::knowledge::problems::Problem;
use crate::probe::ops::Which;
use crate::render::{self, Report, Verdict, human};
use anyhow::bail;
use std::io::Write as _;

/// # Errors
/// Unreadable input, or a result that cannot be written.
pub fn run(args: &CheckArgs) -> anyhow::Result<Exit> {
    let Subject { mut facts, know, purpose, .. } = subject::load(&args.subject)?;
    let wanted = wanted(&args.choice, &know)?;
    let required: Vec<String> = args.require.iter().map(|what| name(*what).to_owned()).collect();
    let waivers = waiver::load(&know, &args.talk)?;
    let judged = |facts: &Snapshot| report(&Case::new(facts, &know, purpose, &required), &wanted, &waivers, args.talk.verbose);
    let (mut report, expired) = judged(&facts);
    for note in expired.iter().chain(&facts.notes) {
        output::note(&args.talk, note);
    }
    let detail = output::detail(&args.talk);
    let mut out = output::result(&args.talk)?;
    let mut shown = None;
    for trial in [Trial::Build, Trial::Nccl] {
        let case = Case::new(&facts, &know, purpose, &required);
        if !goes_on(args) || !trial.concerns(&case) || !trial.is_asked_for(&args.choice, &know, &wanted) || trial.is_settled(&report, &know)
        {
            continue;
        }
        // A person has something to read meanwhile.
        if args.format == Format::Human && shown.is_none() {
            shown = Some(human::first(&report, detail, &mut out)?);
            out.flush()?;
        }
        match trial {
            Trial::Build => {
                let how =
                    How { cache: true, keep: false, run: purpose.runs(), quiet: args.talk.quiet, ops: Some(Which::Asked), torch: false };
                facts.probe = try_out(&subject::live(&args.subject)?, &facts, &know, &args.subject, &how);
            }
            Trial::Nccl => {
                let progress = Progress::new(args.talk.quiet);
                progress.say("testing NCCL on the idle GPUs…");
                facts.nccl = nccl_test::short(&case, nccl_test::patience(args.subject.timeout), &mut |_| {});
            }
        }
        report = judged(&facts).0;
    }
    match args.format {
        Format::Human => match shown {
            Some(shown) => human::rest(&report, &shown, detail, &mut out)?,
            None => human::render(&report, detail, &mut out)?,
        },
        Format::Json => out.write_all(render::json::Envelope::new(&report, result(&facts, &report.subject)).text().as_bytes())?,
        Format::Markdown => render::markdown::render(&report, &mut out)?,
        Format::Github => render::github::render(&report, &mut out)?,
        Format::Sarif => out.write_all(render::sarif::text(&report, &know).as_bytes())?,
    }
    out.flush()?;
    Ok(exit(&report, args))
}

/// What the facts so far amount to, and the texts of waivers that hold no more.
fn report(case: &Case<'_>, wanted: &dyn Fn(ProblemId) -> bool, waivers: &[Waiver], verbose: bool) -> (Report, Vec<String>) {
    let mut judged = judge(case, wanted);
    let (waived, expired) = waiver::apply(&mut judged, waivers, case.facts.taken);
    let verdict = verdict(case, &judged);
    let proves = match verdict {
        Verdict::Unknown => summary::point_at_something(case),
        _ => summary::proves(case, &judged),
    };
    let report = Report {
        command: "check",
        subject: summary::subject(case),
        body: if verbose { render::probe::table(&case.facts.probe, true) } else { Vec::new() },
        complete: !judged.undecided.iter().any(|one| one.failed),
        judged,
        verdict,
        waived,
        proves,
    };
    (report, expired)
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

/// What follows the facts.
#[derive(Clone, Copy)]
enum Trial {
    Build,
    /// On GPUs that nobody uses.
    Nccl,
}

impl Trial {
    /// Whether the machine is for it.
    fn concerns(self, case: &Case<'_>) -> bool {
        match self {
            Self::Build => case.purpose.builds(),
            Self::Nccl => {
                let gpus = case.purpose.runs() && case.facts.gpu.driver_seen() && case.gpus().is_ok_and(|gpus| !gpus.is_empty());
                gpus && case.torch().ok().flatten().is_some_and(|torch| torch.cuda.is_some())
            }
        }
    }

    /// Whether what it can show is among the problems that are looked for.
    fn is_asked_for(self, choice: &ChoiceArgs, know: &Knowledge, wanted: &dyn Fn(ProblemId) -> bool) -> bool {
        let shows = |problem: &Problem| match self {
            Self::Build => problem.seen_in.contains(&"probe"),
            Self::Nccl => problem.topic == "nccl",
        };
        choice.only.is_empty() || know.problems().iter().any(|problem| shows(problem) && wanted(problem.id))
    }

    /// What is known already shows an error of these topics: the trial would say nothing new.
    fn is_settled(self, report: &Report, know: &Knowledge) -> bool {
        let topics: &[&str] = match self {
            Self::Build => &["toolkit", "compiler", "python", "torch", "deepspeed", "arch", "cache"],
            Self::Nccl => &["gpu", "nccl"],
        };
        report.judged.findings.iter().any(|finding| {
            let topic = know.problem(finding.id).map(|problem| problem.topic);
            finding.weight() == Severity::Error && topic.is_some_and(|topic| topics.contains(&topic))
        })
    }
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
