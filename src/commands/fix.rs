//! `ds-doctor fix`

use super::check::wanted;
use super::{apply, output, overlay, subject, waiver};
use crate::checks::{Case, Plan, judge, prove_after, summary};
use crate::cli::{FixArgs, FixFormat, Shell, TalkArgs};
use crate::exit::Exit;
use crate::finding::{Change, Finding, Fix};
use crate::render::{self, Report, exports};
use crate::text::{clean, count};
use anyhow::bail;
use std::collections::BTreeMap;
use std::io::Write;

/// # Errors
/// Unreadable input, nothing to judge, or exports asked of a redacted snapshot.
pub fn run(args: &FixArgs) -> anyhow::Result<Exit> {
    if args.shell.is_some() && !args.print_exports {
        bail!("--shell says how exports are written: it goes with --print-exports");
    }
    let overlay = args.overlay.as_deref().map(overlay::whole).transpose()?;
    let subject = subject::load_with(&args.subject, overlay.as_deref())?;
    let (facts, know) = (&subject.facts, &subject.know);
    let target = target(args);
    if facts.redacted && target.is_some() {
        bail!(
            "this snapshot is redacted, so exports made from it would not fit the machine: take it with `ds-doctor snapshot --no-redact`"
        );
    }
    if target.is_some() && args.subject.assume.iter().any(|pair| pair.starts_with("cuda=")) {
        bail!("an assumed toolkit has no folder that exports could point to: leave `cuda=` out of --assume");
    }
    let waivers: Vec<String> = waiver::load(know, &args.talk)?.into_iter().map(|waiver| waiver.id).collect();
    let chosen = wanted(&args.choice, know)?;
    let wanted = move |id: &'static str| chosen(id) && !waivers.iter().any(|waived| waived == id);
    let case = Case::new(facts, know, subject.purpose, &[]);
    let judged = judge(&case, &wanted);
    if judged.findings.is_empty() && !summary::anything(&case) {
        bail!("{}", summary::point_at_something(&case));
    }
    let given = overlay.as_deref().map_or_else(Vec::new, |dir| overlay::steps(facts, dir));
    if let Some(dir) = &overlay {
        overlay::healthy(&subject, &given, dir)?;
    }
    let plan = prove_after(given, facts, know, subject.purpose, &[], &wanted);
    if args.apply {
        if target.is_some() {
            bail!("--apply goes with --format human and json: what it does is no export");
        }
        return apply::run(args, &case, &plan);
    }
    let mut out = output::result(&args.talk)?;
    let exit = match target {
        Some(target) => printed(args, &plan, facts, target, &mut out)?,
        None => {
            if args.format == FixFormat::Json {
                let verdict = super::check::verdict(&case, &judged);
                let complete = !judged.undecided.iter().any(|one| one.failed);
                let report = Report {
                    command: "fix",
                    subject: summary::subject(&case),
                    body: Vec::new(),
                    proves: String::new(),
                    waived: Vec::new(),
                    judged,
                    verdict,
                    complete,
                };
                out.write_all(render::json::Envelope::new(&report, result(&plan, facts)).text().as_bytes())?;
            } else {
                human(&plan, facts, &mut out)?;
            }
            name_remaining(&plan.remaining, &args.talk);
            if plan.remaining.is_empty() { Exit::Fine } else { Exit::Findings }
        }
    };
    out.flush()?;
    Ok(exit)
}

fn target(args: &FixArgs) -> Option<exports::Target> {
    if args.print_exports {
        return Some(match args.shell.unwrap_or(Shell::Sh) {
            Shell::Sh | Shell::Bash | Shell::Zsh => exports::Target::Sh,
            Shell::Fish => exports::Target::Fish,
            Shell::Csh => exports::Target::Csh,
        });
    }
    match args.format {
        FixFormat::GithubEnv => Some(exports::Target::GithubEnv),
        FixFormat::Dockerfile => Some(exports::Target::Dockerfile),
        FixFormat::Dotenv => Some(exports::Target::Dotenv),
        FixFormat::Human | FixFormat::Json => None,
    }
}

/// Statements only on standard output; what a shell cannot do is named on standard error.
fn printed(
    args: &FixArgs,
    plan: &Plan,
    facts: &crate::facts::snapshot::Snapshot,
    target: exports::Target,
    out: &mut dyn Write,
) -> anyhow::Result<Exit> {
    let safe: BTreeMap<String, Change> = plan.safe_changes(&facts.env);
    let exports = exports::render(&safe, &facts.env, target);
    out.write_all(&exports.text)?;
    if target == exports::Target::Sh && args.subject.from.is_empty() {
        hint_shell(args);
    }
    for step in plan.steps.iter().filter(|step| step.fix.is_safe_env()) {
        if safe.contains_key(step.fix.variable().unwrap_or_default()) {
            output::note(&args.talk, &format!("{}: {}: {}", step.id, step.title, render::human::fix_line(&step.fix)));
        }
    }
    let mut incomplete = !exports.left_out.is_empty();
    for (name, why) in &exports.left_out {
        output::note(&args.talk, &format!("{name} is not exported: its value {why}"));
    }
    for step in plan.steps.iter().filter(|step| !step.fix.is_safe_env()) {
        incomplete = true;
        output::note(&args.talk, &format!("{}: still to do by hand: {}", step.id, render::human::fix_line(&step.fix)));
    }
    if let Some(dir) = overlay::usual_for(plan) {
        let word = render::shell::word(dir.as_os_str().as_encoded_bytes());
        output::note(&args.talk, &format!("there is an overlay: `--overlay {word}` points to it"));
    }
    name_remaining(&plan.remaining, &args.talk);
    incomplete |= !plan.remaining.is_empty();
    Ok(if incomplete { Exit::Findings } else { Exit::Fine })
}

fn hint_shell(args: &FixArgs) {
    let flag = match subject::parent_program().as_deref() {
        Some("fish") => "--shell fish",
        Some("csh" | "tcsh") => "--shell csh",
        _ => return,
    };
    output::note(&args.talk, &format!("these are statements for sh, bash and zsh; for this shell add `{flag}`"));
}

fn name_remaining(remaining: &[Finding], talk: &TalkArgs) {
    for finding in remaining {
        output::note(talk, &format!("{} remains: {}", finding.id, finding.title));
    }
}

fn human(plan: &Plan, facts: &crate::facts::snapshot::Snapshot, out: &mut dyn Write) -> anyhow::Result<()> {
    if plan.steps.is_empty() && plan.remaining.is_empty() {
        writeln!(out, "nothing to fix")?;
        return Ok(());
    }
    let mut last = "";
    for (index, step) in plan.steps.iter().enumerate() {
        if step.id != last {
            writeln!(out, "{}[{}] {}", if index > 0 { "\n" } else { "" }, step.id, clean(&step.title))?;
            last = step.id;
        }
        writeln!(out, "  {}", clean(&render::human::fix_line(&step.fix)))?;
    }
    let changes = &plan.changes;
    if !changes.is_empty() {
        writeln!(out, "\n{} taken together:", count(changes.len(), "variable"))?;
        for (name, change) in changes {
            let before = facts.env.get(name).map_or("(unset)".to_owned(), |value| value.display().to_string());
            let after = change.apply(facts.env.get(name)).map_or("(unset)".to_owned(), |value| value.to_string());
            writeln!(out, "  {name}\n    was  {}\n    now  {}", clean(&before), clean(&after))?;
        }
        if !plan.safe_changes(&facts.env).is_empty() {
            writeln!(out, "the safe ones in this shell: eval \"$(ds-doctor fix --print-exports)\"")?;
        }
    }
    if !plan.remaining.is_empty() {
        writeln!(out, "\n{} that no fix here cures:", count(plan.remaining.len(), "finding"))?;
        for finding in &plan.remaining {
            writeln!(out, "  {}: {}", finding.id, clean(&finding.title))?;
            for line in finding.fixes.iter().map(|fix: &Fix| render::human::fix_line(fix)) {
                writeln!(out, "    {}", clean(&line))?;
            }
        }
    }
    Ok(())
}

/// The plan for programs: steps in order, variables before and after, what remains.
fn result(plan: &Plan, facts: &crate::facts::snapshot::Snapshot) -> serde_json::Value {
    use crate::facts::raw::Raw;
    let steps: Vec<serde_json::Value> =
        plan.steps.iter().map(|step| serde_json::json!({ "id": step.id, "fix": render::json::JsonFix::from(&step.fix) })).collect();
    let changes: serde_json::Map<String, serde_json::Value> = plan
        .changes
        .iter()
        .map(|(name, change)| {
            let before = facts.env.get(name).map(|value| Raw(value.to_owned()));
            (name.clone(), serde_json::json!({ "before": before, "after": change.apply(facts.env.get(name)) }))
        })
        .collect();
    let remaining: Vec<&str> = plan.remaining.iter().map(|finding| finding.id).collect();
    serde_json::json!({ "steps": steps, "environment": changes, "remaining": remaining })
}
