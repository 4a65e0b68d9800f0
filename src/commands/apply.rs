//! `ds-doctor fix --apply`: of a plan the steps that are the user's own and can be undone.

use super::{output, overlay};
use crate::checks::{Case, Plan, Step, cache};
use crate::cli::{FixArgs, FixFormat};
use crate::collect;
use crate::exit::Exit;
use crate::facts::cache::{CacheFacts, CachedOp};
use crate::facts::raw::HostPath;
use crate::finding::Action;
use crate::host::{Host, Live};
use crate::render;
use crate::render::json::Envelope;
use crate::repair::keep::{self, Removal};
use crate::repair::overlay::Done;
use crate::text::clean;
use anyhow::bail;
use serde_json::json;
use std::io::Write;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

/// One act, as it went.
struct Act {
    id: &'static str,
    did: Result<Deed, String>,
}

struct Deed {
    /// `moved the lock … away`
    what: String,
    undo: Option<String>,
    /// What the person does next.
    next: Option<String>,
}

/// # Errors
/// When facts are not this machine's, or the result cannot be written. An act that is refused is told, and the others are done.
pub fn run(args: &FixArgs, case: &Case<'_>, plan: &Plan) -> anyhow::Result<Exit> {
    if case.facts.redacted {
        bail!("nothing is changed by facts from elsewhere");
    }
    let mut acts = Vec::new();
    let mut left: Vec<&Step> = Vec::new();
    let mut removals = Vec::new();
    for step in &plan.steps {
        match (step.id, &step.fix.action) {
            (_, Action::Run { argv, .. }) if *argv == ["ds-doctor", "overlay", "create"] => {
                acts.push(Act { id: step.id, did: links(args) })
            }
            ("stale-jit-lock" | "stale-jit-cache", Action::Run { argv, .. }) => {
                removals.extend(named(case, step.id, argv).into_iter().map(|removal| (step.id, removal)));
            }
            _ if step.fix.is_safe_env() => {}
            _ => left.push(step),
        }
    }
    acts.extend(clear(case, removals, args.dry_run));
    let done = left.is_empty() && plan.remaining.is_empty() && acts.iter().all(|act| act.did.is_ok());
    let mut out = output::result(&args.talk)?;
    match args.format {
        FixFormat::Json => {
            let envelope = Envelope::bare("fix", result(&acts, &left, plan, args.dry_run)).broken_if(!done);
            out.write_all(envelope.text().as_bytes())?;
        }
        _ => told(&mut out, &acts, &left, plan, args.dry_run)?,
    }
    out.flush()?;
    Ok(if done { Exit::Fine } else { Exit::Findings })
}

fn links(args: &FixArgs) -> Result<Deed, String> {
    let (dir, done) = overlay::make_usual(args.subject.python.as_deref(), args.dry_run).map_err(|error| format!("{error:#}"))?;
    let (path, word) = (dir.display(), word(&dir));
    Ok(Deed {
        what: match done {
            None => format!("would make the overlay `{path}`"),
            Some(Done::Unchanged) => format!("the overlay `{path}` is as it should be"),
            Some(Done::Made) => format!("made the overlay `{path}`"),
            Some(Done::Renewed) => format!("renewed the overlay `{path}`"),
        },
        undo: matches!(done, Some(Done::Made | Done::Renewed)).then(|| format!("ds-doctor overlay remove {word}")),
        next: Some(format!("eval \"$(ds-doctor fix --print-exports --overlay {word})\"")),
    })
}

fn word(path: &Path) -> String {
    render::shell::word(path.as_os_str().as_bytes())
}

/// Whole builds first: a lock that goes with one is not moved by itself.
fn clear(case: &Case<'_>, mut removals: Vec<(&'static str, Result<Removal, String>)>, dry_run: bool) -> Vec<Act> {
    let stamp = case.facts.taken.to_string();
    let is_op = |removal: &Result<Removal, String>| removal.as_ref().is_ok_and(|removal| removal.what == keep::What::Op);
    removals.sort_by_key(|(_, removal)| !is_op(removal));
    let mut acts = Vec::new();
    let mut gone: Vec<PathBuf> = Vec::new();
    for (id, removal) in removals {
        let path = removal.as_ref().map(Removal::full).unwrap_or_default();
        if gone.iter().any(|op| path.starts_with(op)) {
            continue;
        }
        let did = away(case, removal, &stamp, dry_run);
        if did.is_ok() {
            gone.push(path);
        }
        acts.push(Act { id, did });
    }
    acts
}

/// What a step's `rm` names, as things of the cache with the reason why they may go.
fn named(case: &Case<'_>, id: &str, argv: &[String]) -> Vec<Result<Removal, String>> {
    let Ok(Ok(cache)) = cache(case) else { return Vec::new() };
    let root = &cache.folder.root;
    let real = match Live::new().real_path(root) {
        Ok(real) => real,
        Err(error) => return vec![Err(format!("`{root}`: {error}"))],
    };
    let is_named = |path: &HostPath| argv.iter().any(|word| *word == path.to_string());
    let outside = |path: &HostPath| format!("`{path}` does not lie in `{root}`");
    if id == "stale-jit-lock" {
        let locks = cache.stale_locks(case).into_iter().filter(|(_, lock, _)| is_named(&lock.path));
        return locks.map(|(_, lock, why)| keep::lock(root, real.clone(), lock, why).ok_or_else(|| outside(&lock.path))).collect();
    }
    let why = "built against another torch";
    let ops = cache.stale_ops().into_iter().filter(|op| is_named(&op.path));
    ops.map(|op| match keep::op(root, real.clone(), op, why.to_owned()) {
        Ok(removal) => removal.ok_or_else(|| outside(&op.path)),
        Err(trouble) => Err(trouble.to_string()),
    })
    .collect()
}

fn away(case: &Case<'_>, removal: Result<Removal, String>, stamp: &str, dry_run: bool) -> Result<Deed, String> {
    let removal = removal?;
    let what = match removal.what {
        keep::What::Lock { .. } => "the lock",
        keep::What::Op => "the build",
    };
    let shown = format!("{what} `{}` ({})", removal.full().display(), removal.why);
    if dry_run {
        removal.check().map_err(|trouble| trouble.to_string())?;
        return Ok(Deed { what: format!("would move {shown} out of the way"), undo: None, next: None });
    }
    still_so(case, &removal)?;
    let kept = removal.carry_out(stamp).map_err(|trouble| trouble.to_string())?;
    Ok(Deed {
        what: format!("moved {shown} out of the way"),
        undo: Some(format!("mv {} {}", word(&kept.to), word(&kept.from))),
        next: None,
    })
}

/// The cache is read again: a build may have begun since it was judged.
fn still_so(case: &Case<'_>, removal: &Removal) -> Result<(), String> {
    let folder = match removal.what {
        keep::What::Lock { .. } => removal.path.parent().unwrap_or(&removal.path),
        keep::What::Op => &removal.path,
    };
    let op = cache(case).ok().and_then(Result::ok).map(|cache| cache.folder.root.join(folder));
    let of = |facts: Option<&CacheFacts>| -> Option<CachedOp> {
        facts?.roots.iter().flat_map(|root| &root.ops).find(|known| Some(&known.path) == op.as_ref()).cloned()
    };
    let now = collect::cache::collect(&Live::new(), &mut Vec::new());
    match (of(case.facts.cache.value()), of(now.value())) {
        (Some(before), Some(now)) if before == now => Ok(()),
        _ => Err(format!("`{}` is left alone: something in its folder has changed since it was judged", removal.full().display())),
    }
}

fn told(out: &mut dyn Write, acts: &[Act], left: &[&Step], plan: &Plan, dry_run: bool) -> anyhow::Result<()> {
    if acts.is_empty() {
        writeln!(out, "nothing that `--apply` does")?;
    }
    for act in acts {
        match &act.did {
            Ok(deed) => {
                writeln!(out, "{}: {}", act.id, clean(&deed.what))?;
                for (label, line) in [("undo", &deed.undo), ("then", &deed.next)] {
                    if let Some(line) = line.as_ref().filter(|_| !dry_run) {
                        writeln!(out, "  {label}  {}", clean(line))?;
                    }
                }
            }
            Err(why) => writeln!(out, "{}: not done: {}", act.id, clean(why))?,
        }
    }
    for step in left {
        writeln!(out, "{}: left to you: {}", step.id, clean(&render::human::fix_line(&step.fix)))?;
    }
    for finding in &plan.remaining {
        writeln!(out, "{} remains: {}", finding.id, clean(&finding.title))?;
    }
    let overlay = acts.iter().any(|act| act.did.as_ref().is_ok_and(|deed| deed.next.is_some()));
    if !overlay && plan.steps.iter().any(|step| step.fix.is_safe_env()) {
        writeln!(out, "variables of this shell: eval \"$(ds-doctor fix --print-exports)\"")?;
    }
    Ok(())
}

fn result(acts: &[Act], left: &[&Step], plan: &Plan, dry_run: bool) -> serde_json::Value {
    let acts: Vec<_> = acts
        .iter()
        .map(|act| match &act.did {
            Ok(deed) => json!({ "id": act.id, "done": !dry_run, "what": deed.what, "undo": deed.undo, "then": deed.next }),
            Err(why) => json!({ "id": act.id, "done": false, "why": why }),
        })
        .collect();
    let left: Vec<_> = left.iter().map(|step| json!({ "id": step.id, "fix": render::json::JsonFix::from(&step.fix) })).collect();
    let remaining: Vec<_> = plan.remaining.iter().map(|finding| finding.id).collect();
    json!({ "dry_run": dry_run, "acts": acts, "left": left, "remaining": remaining })
}
