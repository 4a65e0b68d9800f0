//! For an issue tracker: a table of findings, and the particulars folded away.

use super::{Report, Verdict, human};
use crate::finding::Finding;
use crate::text::clean;
use std::io::{self, Write};

/// # Errors
/// Those of the writer.
pub fn render(report: &Report, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "### ds-doctor {}\n", env!("CARGO_PKG_VERSION"))?;
    for part in &report.subject {
        writeln!(out, "- {}", inline(part))?;
    }
    writeln!(out)?;
    if !report.body.is_empty() {
        let text = report.body.join("\n");
        let fence = fence(&text);
        writeln!(out, "{fence}text\n{text}\n{fence}\n")?;
    }
    if report.judged.findings.is_empty() {
        let head = if report.verdict == Verdict::Unknown { "Unknown" } else { "No finding" };
        writeln!(out, "**{head}**: {}", inline(&report.proves))?;
    } else {
        writeln!(out, "| severity | problem | what |\n|---|---|---|")?;
        for finding in &report.judged.findings {
            row(finding, "", out)?;
        }
        for finding in &report.judged.findings {
            details(finding, out)?;
        }
    }
    if !report.waived.is_empty() {
        writeln!(out, "\nWaived:\n")?;
        for one in &report.waived {
            writeln!(out, "- {} ({})", inline(&one.id), inline(&one.reason))?;
        }
    }
    if !report.judged.undecided.is_empty() {
        writeln!(out, "\n<details><summary>{} not judged</summary>\n", report.judged.undecided.len())?;
        for one in &report.judged.undecided {
            writeln!(out, "- {}: {} {}", one.id, one.missing, inline(&one.why))?;
        }
        writeln!(out, "\n</details>")?;
    }
    Ok(())
}

fn row(finding: &Finding, indent: &str, out: &mut dyn Write) -> io::Result<()> {
    let title = inline(&finding.title).replace('|', "\\|");
    writeln!(out, "| {} | {indent}`{}` | {title} |", finding.severity.name(), finding.id)?;
    for folded in &finding.folded {
        row(folded, "follows: ", out)?;
    }
    Ok(())
}

fn details(finding: &Finding, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "\n<details><summary><code>{}</code></summary>\n", finding.id)?;
    for one in &finding.evidence {
        let path = one.path.as_ref().map(|path| format!(" at {}", code(&path.to_string()))).unwrap_or_default();
        let source = if one.source.is_empty() { String::new() } else { format!(" ({})", inline(&one.source)) };
        writeln!(out, "- {} {}{path}{source}", inline(&one.what), code(&one.value))?;
    }
    if !finding.consequence.is_empty() {
        writeln!(out, "\nThen: {}", inline(&finding.consequence))?;
    }
    if !finding.fixes.is_empty() {
        let lines: Vec<String> = finding.fixes.iter().map(|fix| clean(&human::fix_line(fix)).into_owned()).collect();
        let text = lines.join("\n");
        let fence = fence(&text);
        writeln!(out, "\n{fence}sh\n{text}\n{fence}")?;
    }
    writeln!(out, "\n</details>")
}

/// A fence longer than any run of backticks inside.
fn fence(text: &str) -> String {
    let longest = text.split(|c| c != '`').map(str::len).max().unwrap_or(0);
    "`".repeat(longest.max(2) + 1)
}

/// Text from outside: no control characters, no HTML, no mentions.
fn inline(text: &str) -> String {
    clean(text).replace('&', "&amp;").replace('<', "&lt;").replace('@', "@\u{200b}")
}

fn code(text: &str) -> String {
    let text = clean(text);
    if text.is_empty() {
        return String::new();
    }
    let fence = "`".repeat(text.split(|c| c != '`').map(str::len).max().unwrap_or(0) + 1);
    if fence.len() > 1 { format!("{fence} {text} {fence}") } else { format!("`{text}`") }
}
