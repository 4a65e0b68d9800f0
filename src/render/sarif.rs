//! SARIF 2.1.0, for code scanning.

use super::Report;
use crate::finding::{Finding, Severity};
use crate::knowledge::Knowledge;
use crate::text::clean;
use serde_json::{Value, json};
use std::collections::BTreeSet;

fn level(severity: Severity) -> &'static str {
    match severity {
        Severity::Error => "error",
        Severity::Warning => "warning",
        Severity::Info => "note",
    }
}

/// The whole document, with a newline at the end.
pub fn text(report: &Report, know: &Knowledge) -> String {
    let findings = &report.judged.findings;
    let ids: BTreeSet<&str> = findings.iter().map(|finding| finding.id).collect();
    let rules: Vec<Value> = ids
        .iter()
        .filter_map(|id| know.problem(id))
        .map(|problem| {
            json!({
                "id": problem.id,
                "shortDescription": { "text": problem.summary },
                "help": { "text": problem.page, "markdown": problem.page },
                "defaultConfiguration": { "level": if problem.severity == "info" { "note" } else { problem.severity } },
            })
        })
        .collect();
    let results: Vec<Value> = findings.iter().map(result).collect();
    let document = json!({
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [{
            "tool": { "driver": { "name": "ds-doctor", "version": env!("CARGO_PKG_VERSION"), "rules": rules } },
            "results": results,
        }],
    });
    let mut text = serde_json::to_string_pretty(&document).unwrap_or_default();
    text.push('\n');
    text
}

fn result(finding: &Finding) -> Value {
    let mut message = clean(&finding.title).into_owned();
    if !finding.consequence.is_empty() {
        message.push_str(&format!(". Then: {}", clean(&finding.consequence)));
    }
    for fix in finding.fixes.iter().filter(|fix| fix.choice == 0) {
        message.push_str(&format!("\nFix: {}", clean(&super::human::fix_line(fix))));
    }
    let mut result = json!({ "ruleId": finding.id, "level": level(finding.weight()), "message": { "text": message } });
    // Code scanning refuses a result without a place: the file that was read stands in where there is one.
    let file = finding.location.as_ref().map(|place| (place.file.to_string(), place.line));
    let file = file.or_else(|| finding.evidence.iter().find_map(|one| one.path.as_ref()).map(|path| (path.to_string(), None)));
    if let Some((uri, line)) = file {
        let region = line.map_or(json!({ "startLine": 1 }), |line| json!({ "startLine": line }));
        result["locations"] = json!([{ "physicalLocation": { "artifactLocation": { "uri": percent(&uri) }, "region": region } }]);
    }
    result
}

/// A path as a URI: everything but unreserved characters and `/` is escaped.
fn percent(path: &str) -> String {
    let keep = |b: u8| b.is_ascii_alphanumeric() || b"-._~/".contains(&b);
    path.bytes().map(|b| if keep(b) { char::from(b).to_string() } else { format!("%{b:02X}") }).collect()
}
