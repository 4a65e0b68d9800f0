//! `ds-doctor nccl`

use super::progress::Progress;
use super::{nccl_test, output, subject, waiver};
use crate::checks::{Case, judge, summary};
use crate::cli::{NcclArgs, NcclFormat, SubjectArgs, TalkArgs};
use crate::exit::Exit;
use crate::facts::nccl::{Nccl, Step};
use crate::facts::observed::Observed;
use crate::finding::{Finding, ProblemId, Severity};
use crate::gpu::nccl::client::Watched;
use crate::render::{self, Report, Verdict};
use crate::text::clean;
use std::io::{self, Write as _};

/// Problems beside those of the topic that keep NCCL from working.
const CAUSES: &[ProblemId] = &[
    "nccl-system-vs-torch",
    "two-cuda-families",
    "shm-too-small",
    "libcuda-not-found",
    "stubs-on-loader-path",
    "nvml-driver-library-mismatch",
    "cuda-compat-wrong",
    "fabric-manager-down",
    "gpu-device-nodes",
    "cuda-visible-devices-mask",
];

/// # Errors
/// Unreadable input, GPUs named that are not there, or a result that cannot be written.
pub fn run(args: &NcclArgs) -> anyhow::Result<Exit> {
    let subject = subject::load(&SubjectArgs {
        env: args.env.clone(),
        env_file: args.env_file.clone(),
        python: args.python.clone(),
        purpose: Some(crate::cli::PurposeArg::Run),
        rules_dir: args.rules_dir.clone(),
        ..SubjectArgs::default()
    })?;
    let mut facts = subject.facts;
    let options = nccl_test::Options {
        gpus: match args.devices.as_slice() {
            [] => nccl_test::Gpus::All,
            numbers => nccl_test::Gpus::These(numbers),
        },
        most: u64::MAX,
        patience: nccl_test::patience(args.timeout),
    };
    let nccl = {
        let case = Case::new(&facts, &subject.know, subject.purpose, &[]);
        tested(&case, &options, &args.talk)?
    };
    facts.nccl = nccl;
    let case = Case::new(&facts, &subject.know, subject.purpose, &[]);
    let topic = |id: ProblemId| subject.know.problem(id).is_some_and(|problem| problem.topic == "nccl");
    let mut judged = judge(&case, &|id| topic(id) || CAUSES.contains(&id));
    let (waived, expired) = waiver::apply(&mut judged, &waiver::load(&subject.know, &args.talk)?, facts.taken);
    for note in expired.iter().chain(&facts.notes) {
        output::note(&args.talk, note);
    }
    let verdict = match judged.findings.iter().map(Finding::weight).max() {
        Some(Severity::Error) => Verdict::Broken,
        Some(_) => Verdict::Warnings,
        None if facts.nccl.value().is_some() => Verdict::Healthy,
        None => Verdict::Unknown,
    };
    let complete = !judged.undecided.iter().any(|one| one.failed);
    let torch = case.torch().ok().flatten();
    let report = Report {
        command: "nccl",
        subject: summary::subject(&case),
        body: render::nccl::lines(&facts.nccl, torch),
        judged,
        verdict,
        complete,
        waived,
        proves: render::nccl::proves(&facts.nccl),
    };
    let detail = output::detail(&args.talk);
    let mut out = output::result(&args.talk)?;
    match args.format {
        NcclFormat::Human => render::human::render(&report, detail, &mut out)?,
        NcclFormat::Markdown => render::markdown::render(&report, &mut out)?,
        NcclFormat::Json => out.write_all(render::json::Envelope::new(&report, render::nccl::result(&facts.nccl)).text().as_bytes())?,
    }
    out.flush()?;
    Ok(match report.verdict {
        Verdict::Broken => Exit::Findings,
        Verdict::Unknown => Exit::Unable,
        Verdict::Healthy | Verdict::Warnings => Exit::Fine,
    })
}

/// Runs the test, with a word on what goes on for whom it takes long, and NCCL's own log where the user asked NCCL for it.
fn tested(case: &Case<'_>, options: &nccl_test::Options<'_>, talk: &TalkArgs) -> anyhow::Result<Observed<Nccl>> {
    let progress = Progress::new(talk.quiet);
    let log = nccl_test::wants_log(case) || talk.verbose;
    let mut now = String::new();
    nccl_test::test(case, options, &mut |watched| match watched {
        Watched::At { rank: 0, step } => {
            // All sizes of an operation are one thing that goes on.
            let next = match step {
                Step::Collective { op, .. } => op.name().to_owned(),
                step => step.to_string(),
            };
            if next != now {
                progress.say(format!("NCCL test: {next}"));
                now = next;
            }
        }
        Watched::Said { rank, line } if log => {
            // A closed standard error is no reason to fail.
            let _ = writeln!(io::stderr(), "rank {rank}: {}", clean(line));
        }
        Watched::At { .. } | Watched::Said { .. } | Watched::Tick => {}
    })
}
