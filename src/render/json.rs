//! The public JSON: structs of its own, so that the inside is free to change. Version 1.

use super::{Counts, Report, Verdict};
use crate::facts::raw::HostPath;
use crate::finding::{Action, Confidence, Evidence, Finding, Fix, Safety, Severity};
use serde::Serialize;

/// The number of the envelope's shape; new fields do not raise it.
pub const SCHEMA_VERSION: u32 = 1;

#[derive(Debug, Serialize)]
pub struct Envelope {
    pub schema_version: u32,
    pub tool: Tool,
    pub command: &'static str,
    pub verdict: Verdict,
    pub complete: bool,
    pub counts: Counts,
    pub findings: Vec<JsonFinding>,
    pub undecided: Vec<JsonUndecided>,
    pub waived: Vec<JsonWaived>,
    pub result: serde_json::Value,
}

#[derive(Debug, Serialize)]
pub struct Tool {
    pub name: &'static str,
    pub version: &'static str,
}

pub const TOOL: Tool = Tool { name: env!("CARGO_PKG_NAME"), version: env!("CARGO_PKG_VERSION") };

#[derive(Debug, Serialize)]
pub struct JsonFinding {
    pub id: &'static str,
    pub severity: Severity,
    pub confidence: Confidence,
    pub title: String,
    pub subject: String,
    pub caused_by: Vec<&'static str>,
    pub evidence: Vec<JsonEvidence>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub location: Option<JsonLocation>,
    pub consequence: String,
    pub fixes: Vec<JsonFix>,
    pub page: String,
}

#[derive(Debug, Serialize)]
pub struct JsonEvidence {
    pub what: String,
    pub value: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<HostPath>,
    pub source: String,
}

#[derive(Debug, Serialize)]
pub struct JsonLocation {
    pub file: HostPath,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line: Option<usize>,
}

#[derive(Debug, Default, Serialize)]
pub struct JsonFix {
    pub title: String,
    pub action: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value: Option<HostPath>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub argv: Option<Vec<String>>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub needs_root: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<HostPath>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    pub safety: &'static str,
    /// Steps of one number belong together; 0 is the recommended cure.
    pub choice: u8,
}

#[derive(Debug, Serialize)]
pub struct JsonUndecided {
    pub id: &'static str,
    pub missing: Vec<&'static str>,
    pub why: String,
}

#[derive(Debug, Serialize)]
pub struct JsonWaived {
    pub id: String,
    pub title: String,
    pub reason: String,
}

impl Envelope {
    pub fn new(report: &Report, result: serde_json::Value) -> Self {
        let mut findings = Vec::new();
        for finding in &report.judged.findings {
            flatten(finding, &mut findings);
        }
        findings.extend(report.judged.notes.iter().map(JsonFinding::from));
        Self {
            schema_version: SCHEMA_VERSION,
            tool: TOOL,
            command: report.command,
            verdict: report.verdict,
            complete: report.complete,
            counts: report.counts(),
            findings,
            undecided: report
                .judged
                .undecided
                .iter()
                .map(|one| JsonUndecided { id: one.id, missing: vec![one.missing], why: one.why.clone() })
                .collect(),
            waived: report
                .waived
                .iter()
                .map(|one| JsonWaived { id: one.id.clone(), title: one.title.clone(), reason: one.reason.clone() })
                .collect(),
            result,
        }
    }

    /// Of a command that judges nothing: only a result.
    pub fn bare(command: &'static str, result: serde_json::Value) -> Self {
        Self {
            schema_version: SCHEMA_VERSION,
            tool: TOOL,
            command,
            verdict: Verdict::Healthy,
            complete: true,
            counts: Counts::default(),
            findings: Vec::new(),
            undecided: Vec::new(),
            waived: Vec::new(),
            result,
        }
    }

    /// The same, of something that was found not to be as it should.
    #[must_use]
    pub fn broken_if(mut self, broken: bool) -> Self {
        if broken {
            self.verdict = Verdict::Broken;
        }
        self
    }

    /// Pretty-printed, with a newline at the end.
    pub fn text(&self) -> String {
        let mut text = serde_json::to_string_pretty(self).unwrap_or_default();
        text.push('\n');
        text
    }
}

/// A root cause first, then what follows from it.
fn flatten(finding: &Finding, into: &mut Vec<JsonFinding>) {
    into.push(finding.into());
    for folded in &finding.folded {
        flatten(folded, into);
    }
}

impl From<&Finding> for JsonFinding {
    fn from(finding: &Finding) -> Self {
        Self {
            id: finding.id,
            severity: finding.severity,
            confidence: finding.confidence,
            title: finding.title.clone(),
            subject: finding.subject.clone(),
            caused_by: finding.caused_by.clone(),
            evidence: finding.evidence.iter().map(JsonEvidence::from).collect(),
            location: finding.location.as_ref().map(|place| JsonLocation { file: place.file.clone(), line: place.line }),
            consequence: finding.consequence.clone(),
            fixes: finding.fixes.iter().map(JsonFix::from).collect(),
            page: format!("ds-doctor explain {}", finding.id),
        }
    }
}

impl From<&Evidence> for JsonEvidence {
    fn from(one: &Evidence) -> Self {
        Self { what: one.what.clone(), value: one.value.clone(), path: one.path.clone(), source: one.source.clone() }
    }
}

impl From<&Fix> for JsonFix {
    fn from(fix: &Fix) -> Self {
        let base = Self {
            title: fix.title.clone(),
            safety: match fix.safety {
                Safety::Safe => "safe",
                Safety::Review => "review",
            },
            choice: fix.choice,
            ..Self::default()
        };
        match &fix.action {
            Action::SetEnv { name, value } => {
                Self { action: "set-env", name: Some(name.clone()), value: Some(HostPath::new(value.0.clone())), ..base }
            }
            Action::UnsetEnv { name } => Self { action: "unset-env", name: Some(name.clone()), ..base },
            Action::PrependPath { name, dir } => {
                Self { action: "prepend-path", name: Some(name.clone()), value: Some(dir.clone()), ..base }
            }
            Action::RemovePath { name, dir } => Self { action: "remove-path", name: Some(name.clone()), value: Some(dir.clone()), ..base },
            Action::Run { argv, needs_root } => Self { action: "run", argv: Some(argv.clone()), needs_root: *needs_root, ..base },
            Action::Edit { file, how } => Self { action: "edit", file: Some(file.clone()), text: Some(how.clone()), ..base },
            Action::Advice { text } => Self { action: "advice", text: Some(text.clone()), ..base },
        }
    }
}
