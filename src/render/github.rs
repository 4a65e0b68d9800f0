//! GitHub workflow commands: one annotation a finding. The messages' own escaping keeps text from outside from forging a command.

use super::Report;
use crate::finding::{Finding, Severity};
use crate::text::clean;
use std::io::{self, Write};

/// # Errors
/// Those of the writer.
pub fn render(report: &Report, out: &mut dyn Write) -> io::Result<()> {
    for finding in &report.judged.findings {
        annotation(finding, out)?;
    }
    Ok(())
}

fn annotation(finding: &Finding, out: &mut dyn Write) -> io::Result<()> {
    // The weight: what is folded below is not annotated again.
    let level = match finding.weight() {
        Severity::Error => "error",
        Severity::Warning => "warning",
        Severity::Info => "notice",
    };
    let mut properties = vec![format!("title={}", property(finding.id))];
    if let Some(place) = &finding.location {
        properties.push(format!("file={}", property(&place.file.to_string())));
        if let Some(line) = place.line {
            properties.push(format!("line={line}"));
        }
    }
    let mut message = clean(&finding.title).into_owned();
    if !finding.consequence.is_empty() {
        message.push_str(&format!("\nthen: {}", clean(&finding.consequence)));
    }
    for fix in finding.fixes.iter().filter(|fix| fix.choice == 0) {
        message.push_str(&format!("\nfix: {}", clean(&super::human::fix_line(fix))));
    }
    writeln!(out, "::{level} {}::{}", properties.join(","), data(&message))
}

/// As the toolkit's `escapeData` does.
fn data(text: &str) -> String {
    text.replace('%', "%25").replace('\r', "%0D").replace('\n', "%0A")
}

fn property(text: &str) -> String {
    data(text).replace(':', "%3A").replace(',', "%2C")
}
