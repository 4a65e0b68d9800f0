//! What a log is, for the first line of a report; what to show where no signature knows it; the result as JSON.

use crate::facts::log::Log;
use crate::text::{bytes, clean, count};
use serde_json::{Value, json};

/// `build.log (2228 lines, 250 KiB)`
pub fn name(log: &Log) -> String {
    let cut = log.cut.as_ref().map(|why| format!(", {why}")).unwrap_or_default();
    format!("{} ({}, {}{cut})", title(log), count(log.lines, "line"), bytes(log.bytes))
}

fn title(log: &Log) -> String {
    if log.name.bytes() == b"-" { "standard input".to_owned() } else { log.name.to_string() }
}

/// For a log without a known cause: the error-like lines that it has, innermost tool first.
pub fn unknown(log: &Log) -> Vec<String> {
    let mut errors: Vec<_> = log.errors.iter().collect();
    errors.sort_by_key(|one| (one.depth, one.line));
    let line = |one: &&crate::facts::log::ErrorLine| format!("  {:<10}  line {}: {}", one.tool, one.line, clean(&one.text));
    let mut lines: Vec<String> = errors.iter().take(3).map(line).collect();
    if !lines.is_empty() {
        lines.insert(0, format!("not known to ds-doctor, but the first error of each tool in {}:", title(log)));
    }
    lines
}

/// What the absence of a finding means.
pub fn proves(logs: &[Log]) -> String {
    let lines = logs.iter().map(|log| log.lines).sum();
    if lines == 0 {
        return "the log is empty".to_owned();
    }
    if logs.iter().any(|log| !log.errors.is_empty()) {
        return "no signature knows this failure; `ds-doctor triage --format markdown LOG` makes a report to send, and the log belongs to it".to_owned();
    }
    format!("nothing in {} looks like an error", count(lines, "line"))
}

pub fn result(logs: &[Log]) -> Value {
    let one = |log: &Log| {
        json!({
            "name": log.name,
            "lines": log.lines,
            "bytes": log.bytes,
            "cut": log.cut,
            "sightings": log.sightings.iter().map(|sighting| json!({
                "signature": sighting.signature,
                "line": sighting.line,
                "text": sighting.text,
                "captures": sighting.captures,
                "times": sighting.times,
            })).collect::<Vec<_>>(),
            "first_error": log.first_error().map(|error| json!({ "tool": error.tool, "line": error.line, "text": error.text })),
        })
    };
    json!({ "logs": logs.iter().map(one).collect::<Vec<_>>() })
}
