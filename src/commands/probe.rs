//! `ds-doctor probe`

use super::check::verdict;
use super::output;
use super::progress::Progress;
use super::subject::{self, Subject};
use crate::checks::{Case, judge, kernel, probe as judged_probe, summary};
use crate::cli::{Format, ProbeArgs, SubjectArgs};
use crate::exit::Exit;
use crate::facts::observed::Observed;
use crate::facts::probe::Probe;
use crate::facts::snapshot::Snapshot;
use crate::finding::{Finding, Severity};
use crate::host::{Host, Live, Store};
use crate::knowledge::Knowledge;
use crate::probe::ops::Which;
use crate::probe::{self, Options, Phase};
use crate::render::{self, Report, Verdict};
use anyhow::bail;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// For a compiler, where nothing else is said.
const LIMIT: f64 = 120.0;

/// # Errors
/// Wrong use, or a result that cannot be written.
pub fn run(args: &ProbeArgs) -> anyhow::Result<Exit> {
    if !args.subject.from.is_empty() || args.subject.root.is_some() {
        bail!("probe runs compilers on this machine: --from and --root are for `check`");
    }
    let mut named = args.subject.clone();
    named.assume.extend(args.deepspeed.as_ref().map(|release| format!("deepspeed={release}")));
    let Subject { mut facts, know, purpose, .. } = subject::load(&named)?;
    let host = subject::live(&args.subject)?;
    facts.probe = try_out(
        &host,
        &facts,
        &know,
        &args.subject,
        &How {
            cache: !args.no_cache,
            keep: args.keep,
            run: true,
            quiet: args.talk.quiet,
            ops: (!args.no_ops).then_some(Which::All),
            torch: args.torch,
        },
    );
    let case = Case::new(&facts, &know, purpose, &[]);
    let mut judged = judge(&case, &|_| true);
    // What the trial says nothing about is `check`'s.
    let shown: Vec<_> = judged_probe::findings(&case).iter().chain(&kernel::findings(&case)).map(|finding| finding.id).collect();
    let skipped = facts.probe.value().is_none();
    judged.findings.retain(|finding| concerns(finding, &shown, skipped));
    judged.notes.retain(|note| shown.contains(&note.id));
    judged.undecided.clear();
    judged.passed.clear();
    judged.not_applicable.clear();
    let verdict = if skipped && judged.findings.is_empty() { Verdict::Unknown } else { verdict(&case, &judged) };
    let report = Report {
        command: "probe",
        subject: summary::subject(&case),
        body: render::probe::table(&facts.probe, args.talk.verbose),
        judged,
        verdict,
        complete: !facts.probe.is_failed(),
        waived: Vec::new(),
        proves: render::probe::summary(&facts.probe),
    };
    let detail = output::detail(&args.talk);
    let mut out = output::result(&args.talk)?;
    match args.format {
        Format::Human => render::human::render(&report, detail, &mut out)?,
        Format::Json => {
            let result = serde_json::to_value(render::probe::json(&facts.probe, &report.subject))?;
            out.write_all(render::json::Envelope::new(&report, result).text().as_bytes())?;
        }
        Format::Markdown => render::markdown::render(&report, &mut out)?,
        Format::Github => render::github::render(&report, &mut out)?,
        Format::Sarif => out.write_all(render::sarif::text(&report, &know).as_bytes())?,
    }
    out.flush()?;
    Ok(match report.judged.findings.iter().map(Finding::weight).max() {
        Some(Severity::Error) => Exit::Findings,
        _ if verdict == Verdict::Unknown => Exit::Unable,
        _ => Exit::Fine,
    })
}

/// Those that the trial showed, with what they are folded under; without a trial, those that say why there is none.
fn concerns(finding: &Finding, shown: &[&str], skipped: bool) -> bool {
    const WHY: &[&str] =
        &["no-nvcc", "cuda-home-unset", "cuda-home-dangling", "cuda-home-wrong", "cpu-only-torch", "rocm-torch", "nvcc-wrapper"];
    shown.contains(&finding.id)
        || (skipped && WHY.contains(&finding.id))
        || finding.folded.iter().any(|folded| concerns(folded, shown, skipped))
}

/// What the command line says of the trial.
pub struct How {
    pub cache: bool,
    pub keep: bool,
    /// The kernels are run, where there is a driver.
    pub run: bool,
    pub quiet: bool,
    /// As in [`Options`].
    pub ops: Option<Which>,
    pub torch: bool,
}

/// The trial build on this machine.
pub fn try_out(host: &Live, facts: &Snapshot, know: &Knowledge, args: &SubjectArgs, how: &How) -> Observed<Probe> {
    let progress = Progress::new(how.quiet);
    let say = |phase: Phase| {
        progress.say(match phase {
            Phase::Compiling => "compiling the trial kernels…",
            Phase::Linking => "linking the trial kernels…",
            Phase::Loading => "loading the trial kernels…",
            Phase::Running => "running the trial kernels on the GPUs…",
            Phase::Ops => "trying what each op needs…",
            Phase::Done => return,
        });
    };
    let store = if how.cache { cache_folder(host).map(Store::new) } else { None };
    let limit = Duration::from_secs_f64(args.timeout.unwrap_or(LIMIT));
    probe::probe(
        host,
        facts,
        know,
        &Options { limit, store, keep: how.keep, run: how.run, ops: how.ops, with_torch: how.torch, progress: &say },
    )
}

/// `$XDG_CACHE_HOME/ds-doctor/probe`; a relative value is no value, as the specification says.
fn cache_folder(host: &dyn Host) -> Option<PathBuf> {
    let absolute = |name: &str| host.var(name).map(Path::new).filter(|path| path.is_absolute());
    let base = absolute("XDG_CACHE_HOME").map(Path::to_owned).or_else(|| absolute("HOME").map(|home| home.join(".cache")))?;
    Some(base.join("ds-doctor/probe"))
}
