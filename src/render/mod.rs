//! Findings in the shapes people and programs read. Every renderer takes the same [`Report`]; none decides anything.

pub mod exports;
pub mod github;
pub mod human;
pub mod inspect;
pub mod json;
pub mod kernel;
pub mod markdown;
pub mod nccl;
pub mod ops;
pub mod ops_report;
pub mod plan;
pub mod probe;
pub mod sarif;
pub mod shell;
pub mod triage;

use crate::checks::Judged;
use serde::{Deserialize, Serialize};

/// One judged machine, ready to be printed.
#[derive(Debug, Clone)]
pub struct Report {
    pub command: &'static str,
    /// What was judged: interpreter, torch, toolkit, GPUs. One item a part.
    pub subject: Vec<String>,
    /// What a command shows beside findings, as lines: the steps of a trial.
    pub body: Vec<String>,
    pub judged: Judged,
    pub verdict: Verdict,
    /// No topic failed to be read.
    pub complete: bool,
    /// Findings that a waiver silenced.
    pub waived: Vec<Waived>,
    /// Without findings: what that proves, and what was not tested.
    pub proves: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// No finding above info.
    Healthy,
    Warnings,
    Broken,
    /// Nothing could be judged.
    Unknown,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Waived {
    pub id: String,
    pub title: String,
    pub reason: String,
}

/// Numbers of findings by weight; a folded finding counts with its root.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Counts {
    pub error: usize,
    pub warning: usize,
    pub info: usize,
    pub undecided: usize,
}

impl Report {
    pub fn counts(&self) -> Counts {
        use crate::finding::Severity;
        let with = |severity| self.judged.findings.iter().filter(|finding| finding.weight() == severity).count();
        Counts {
            error: with(Severity::Error),
            warning: with(Severity::Warning),
            info: self.judged.notes.len(),
            undecided: self.judged.undecided.len(),
        }
    }
}

/// How much a renderer says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Detail {
    Quiet,
    Normal,
    Verbose,
}
