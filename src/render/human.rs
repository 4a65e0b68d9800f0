//! For a person at a terminal. Colour never carries meaning; the text reads the same without it.

use super::{Detail, Report, Verdict, shell};
use crate::finding::{Action, Evidence, Finding, Fix, Safety, Severity};
use crate::text::{clean, count, join};
use owo_colors::{OwoColorize as _, Style};
use std::io::{self, Write};

const MARGIN: &str = "  ";

/// The whole report.
///
/// # Errors
/// Those of the writer.
pub fn render(report: &Report, detail: Detail, out: &mut dyn Write) -> io::Result<()> {
    opening(report, detail, out)?;
    rest(report, &[], detail, out)
}

/// What can be said while more is found out: what is judged, and the findings so far, which [`rest`] is to know.
///
/// # Errors
/// Those of the writer.
pub fn first(report: &Report, detail: Detail, out: &mut dyn Write) -> io::Result<Vec<Finding>> {
    opening(report, detail, out)?;
    findings(report, &[], detail, out)?;
    Ok(report.judged.findings.clone())
}

/// The report without its first line, and of the findings that were shown before what is new in them.
///
/// # Errors
/// Those of the writer.
pub fn rest(report: &Report, shown: &[Finding], detail: Detail, out: &mut dyn Write) -> io::Result<()> {
    if detail > Detail::Quiet && !report.body.is_empty() {
        writeln!(out)?;
        for line in &report.body {
            writeln!(out, "{line}")?;
        }
    }
    findings(report, shown, detail, out)?;
    if detail == Detail::Verbose {
        verbose(report, out)?;
    }
    if detail > Detail::Quiet {
        writeln!(out)?;
        closing(report, detail, out)?;
    }
    Ok(())
}

fn opening(report: &Report, detail: Detail, out: &mut dyn Write) -> io::Result<()> {
    if detail > Detail::Quiet {
        writeln!(out, "{}  {}", "judged".bold(), clean(&report.subject.join(", ")))?;
    }
    Ok(())
}

fn findings(report: &Report, shown: &[Finding], detail: Detail, out: &mut dyn Write) -> io::Result<()> {
    for finding in &report.judged.findings {
        let before = shown.iter().find(|one| one.is_same(finding));
        if before == Some(finding) {
            continue;
        }
        if detail == Detail::Quiet {
            if before.is_none_or(|before| before.severity != finding.severity) {
                headline(finding, out)?;
            }
            continue;
        }
        writeln!(out)?;
        match before {
            Some(before) => more(finding, before, shown, out)?,
            None => block(finding, shown, out)?,
        }
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
fn block(finding: &Finding, shown: &[Finding], out: &mut dyn Write) -> io::Result<()> {
    headline(finding, out)?;
    seen(&finding.evidence, out)?;
    if !finding.consequence.is_empty() {
        line("then", &clean(&finding.consequence), out)?;
    }
    also(&finding.folded, shown, out)?;
    fixes(&finding.fixes, out)?;
    line("more", &format!("ds-doctor explain {}", finding.id), out)
}

/// What has come to a finding that was shown.
fn more(finding: &Finding, before: &Finding, shown: &[Finding], out: &mut dyn Write) -> io::Result<()> {
    headline(finding, out)?;
    let new: Vec<Evidence> = finding.evidence.iter().filter(|one| !before.evidence.contains(one)).cloned().collect();
    seen(&new, out)?;
    let new: Vec<Finding> = finding.folded.iter().filter(|one| !before.folded.contains(one)).cloned().collect();
    also(&new, shown, out)?;
    if finding.fixes.is_empty() { Ok(()) } else { line("fix", "as above", out) }
}

/// What follows from a finding, in a line each.
fn also(folded: &[Finding], shown: &[Finding], out: &mut dyn Write) -> io::Result<()> {
    for one in folded {
        let name = format!("{}[{}]", one.severity.name(), one.id);
        let was_shown = shown.iter().any(|before| before.is_same(one));
        let text = if was_shown { format!("{name}, shown above, follows from this") } else { format!("{name}: {}", one.title) };
        line("also", &clean(&text), out)?;
    }
    Ok(())
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
        block(note, &[], out)?;
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

#[cfg(test)]
#[expect(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::checks::{Judged, fold};

    fn report(findings: Vec<Finding>) -> Report {
        Report {
            command: "check",
            subject: vec!["torch 2.11.0".to_owned()],
            body: Vec::new(),
            judged: Judged { findings: fold(findings), ..Judged::default() },
            verdict: Verdict::Broken,
            complete: true,
            waived: Vec::new(),
            proves: String::new(),
        }
    }

    fn text(print: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> String {
        let mut out = Vec::new();
        print(&mut out).unwrap();
        anstream::adapter::strip_str(&String::from_utf8(out).unwrap()).to_string()
    }

    /// What the first and the second part say.
    fn parts(before: Vec<Finding>, after: Vec<Finding>, detail: Detail) -> [String; 2] {
        let (before, after) = (report(before), report(after));
        let mut shown = Vec::new();
        let first = text(|out| {
            shown = first(&before, detail, out)?;
            Ok(())
        });
        [first, text(|out| rest(&after, &shown, detail, out))]
    }

    fn stubs() -> Finding {
        Finding::warning("stubs-on-loader-path", "a stub is first").seen(Evidence::new("entry", "1")).fix(Fix::advice("remove it"))
    }

    #[test]
    fn two_parts_are_the_whole() {
        let all = || vec![stubs(), Finding::error("probe-failed", "nvcc stops")];
        let whole = report(all());
        let [first, rest] = parts(vec![stubs()], all(), Detail::Normal);
        assert!(first.starts_with("judged  torch 2.11.0\n\nwarning[stubs-on-loader-path]: a stub is first\n  seen  entry 1\n"), "{first}");
        assert!(rest.starts_with("\nerror[probe-failed]: nvcc stops\n") && rest.ends_with("\n1 error and 1 warning\n"), "{rest}");
        let lines = |text: &str| {
            let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
            lines.sort();
            lines
        };
        assert_eq!(lines(&(first + &rest)), lines(&text(|out| render(&whole, Detail::Normal, out))));
    }

    #[test]
    fn what_comes_to_a_finding_is_told_alone() {
        let confirmed = Finding { severity: Severity::Error, ..stubs().seen(Evidence::new("load", "libcuda.so.1: stub")) };
        let [_, rest] = parts(vec![stubs()], vec![confirmed.clone()], Detail::Normal);
        assert_eq!(rest, "\nerror[stubs-on-loader-path]: a stub is first\n  seen  load libcuda.so.1: stub\n  fix   as above\n\n1 error\n");
        assert_eq!(parts(vec![stubs()], vec![confirmed], Detail::Quiet)[1], "error[stubs-on-loader-path]: a stub is first\n");
        assert_eq!(parts(vec![stubs()], vec![stubs()], Detail::Quiet)[1], "");
    }

    #[test]
    fn a_cause_that_is_found_later_takes_up_what_was_shown() {
        let consequence = || Finding::warning("multiple-toolkits-path-order", "two toolkits");
        let cause = Finding::error("torch-nvcc-mismatch-major", "13 and 12");
        let [_, rest] = parts(vec![consequence()], vec![consequence(), cause], Detail::Normal);
        assert!(rest.contains("  also  warning[multiple-toolkits-path-order], shown above, follows from this\n"), "{rest}");
        assert!(!rest.contains("two toolkits") && rest.ends_with("\n1 error\n"), "{rest}");
    }
}
