//! For a person at a terminal. Colour never carries meaning; the text reads the same without it.

use super::{Detail, Report, Verdict, shell};
use crate::finding::{Action, Evidence, Finding, Fix, Safety, Severity};
use crate::text::{clean, count, join};
use owo_colors::{OwoColorize as _, Style};
use std::io::{self, Write};

const MARGIN: &str = "  ";

/// # Errors
/// Those of the writer.
pub fn render(report: &Report, detail: Detail, out: &mut dyn Write) -> io::Result<()> {
    if detail > Detail::Quiet {
        writeln!(out, "{}  {}", "judged".bold(), clean(&report.subject.join(", ")))?;
    }
    if detail > Detail::Quiet && !report.body.is_empty() {
        writeln!(out)?;
        for line in &report.body {
            writeln!(out, "{line}")?;
        }
    }
    for finding in &report.judged.findings {
        if detail == Detail::Quiet {
            headline(finding, out)?;
        } else {
            writeln!(out)?;
            block(finding, out)?;
        }
    }
    if detail == Detail::Verbose {
        verbose(report, out)?;
    }
    if detail > Detail::Quiet {
        writeln!(out)?;
        closing(report, detail, out)?;
    }
    Ok(())
}

fn style(severity: Severity) -> Style {
    match severity {
        Severity::Error => Style::new().red().bold(),
        Severity::Warning => Style::new().yellow().bold(),
        Severity::Info => Style::new().cyan(),
    }
}

fn headline(finding: &Finding, out: &mut dyn Write) -> io::Result<()> {
    let label = format!("{}[{}]", finding.severity.name(), finding.id);
    let doubt = if finding.confidence == crate::finding::Confidence::Likely { " (likely)" } else { "" };
    writeln!(out, "{}: {}{doubt}", label.style(style(finding.severity)), clean(&finding.title))
}

/// One finding in full.
fn block(finding: &Finding, out: &mut dyn Write) -> io::Result<()> {
    headline(finding, out)?;
    seen(&finding.evidence, out)?;
    if !finding.consequence.is_empty() {
        line("then", &clean(&finding.consequence), out)?;
    }
    for folded in &finding.folded {
        let text = format!("{}[{}]: {}", folded.severity.name(), folded.id, folded.title);
        line("also", &clean(&text), out)?;
    }
    fixes(&finding.fixes, out)?;
    line("more", &format!("ds-doctor explain {}", finding.id), out)
}

fn line(label: &str, text: &str, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "{MARGIN}{:<4}  {text}", label.dimmed())
}

/// Columns: fact, path, source.
fn seen(evidence: &[Evidence], out: &mut dyn Write) -> io::Result<()> {
    let rows: Vec<[String; 3]> = evidence
        .iter()
        .map(|one| {
            let path = one.path.as_ref().map(ToString::to_string).unwrap_or_default();
            [format!("{} {}", one.what, one.value), path, one.source.clone()].map(|cell| clean(cell.trim()).into_owned())
        })
        .collect();
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).filter(|w| *w <= 60).max().unwrap_or(0);
    let (first, second) = (width(0), width(1));
    for [fact, path, source] in &rows {
        line("seen", format!("{fact:<first$}  {path:<second$}  {source}").trim_end(), out)?;
    }
    Ok(())
}

fn fixes(fixes: &[Fix], out: &mut dyn Write) -> io::Result<()> {
    let mut last = 0;
    for fix in fixes {
        let label = if fix.choice == last { "fix" } else { "or" };
        last = fix.choice;
        line(label, &clean(&fix_line(fix)), out)?;
    }
    Ok(())
}

/// The line to paste, and why; or the words.
pub fn fix_line(fix: &Fix) -> String {
    let text = match (&fix.action, shell::paste_line(fix)) {
        (_, Some(line)) => line,
        (Action::Edit { file, how }, _) => format!("in {file}: {how}"),
        (Action::Advice { text }, _) => text.clone(),
        _ => String::new(),
    };
    let mut remarks = Vec::new();
    if fix.safety == Safety::Safe {
        remarks.push("safe".to_owned());
    }
    if !fix.title.is_empty() {
        remarks.push(fix.title.clone());
    }
    if remarks.is_empty() { text } else { format!("{text}    # {}", remarks.join("; ")) }
}

fn verbose(report: &Report, out: &mut dyn Write) -> io::Result<()> {
    for note in &report.judged.notes {
        writeln!(out)?;
        block(note, out)?;
    }
    for waived in &report.waived {
        writeln!(out, "\nwaived[{}]: {}\n{MARGIN}{:<4}  {}", waived.id, clean(&waived.title), "why", clean(&waived.reason))?;
    }
    if !report.judged.undecided.is_empty() {
        writeln!(out, "\n{}", "not judged".bold())?;
        for one in &report.judged.undecided {
            writeln!(out, "{MARGIN}{}: {} {}", one.id, one.missing, clean(&one.why))?;
        }
    }
    if !report.judged.not_applicable.is_empty() {
        writeln!(out, "\n{}", "not applicable".bold())?;
        for (id, why) in &report.judged.not_applicable {
            writeln!(out, "{MARGIN}{id}: {}", clean(why))?;
        }
    }
    if !report.judged.passed.is_empty() {
        writeln!(out, "\n{}", "passed".bold())?;
        writeln!(out, "{MARGIN}{}", report.judged.passed.join(", "))?;
    }
    Ok(())
}

fn closing(report: &Report, detail: Detail, out: &mut dyn Write) -> io::Result<()> {
    let counts = report.counts();
    let mut parts = Vec::new();
    for (number, noun) in [(counts.error, "error"), (counts.warning, "warning")] {
        if number > 0 {
            parts.push(count(number, noun));
        }
    }
    let mut rest = Vec::new();
    if counts.undecided > 0 {
        rest.push(format!("{} not judged", counts.undecided));
    }
    if !report.waived.is_empty() {
        rest.push(format!("{} waived", report.waived.len()));
    }
    if counts.info > 0 && detail < Detail::Verbose {
        rest.push(format!("{} worth knowing", counts.info));
    }
    let hint = if rest.is_empty() || detail == Detail::Verbose { "" } else { " (-v shows them)" };
    let rest = if rest.is_empty() { String::new() } else { format!("{}{hint}", join(&rest)) };
    match (report.verdict, parts.is_empty()) {
        (Verdict::Unknown, true) => writeln!(out, "{}: {}", "unknown".bold(), clean(&report.proves)),
        (_, true) => {
            let rest = if rest.is_empty() { rest } else { format!("; {rest}") };
            writeln!(out, "{}: {}{rest}", "no finding".green().bold(), clean(&report.proves))
        }
        _ => {
            let rest = if rest.is_empty() { rest } else { format!("; {rest}") };
            writeln!(out, "{}{rest}", join(&parts).bold())
        }
    }
}
