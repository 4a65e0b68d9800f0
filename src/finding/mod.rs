//! What is wrong, how it is known, and what cures it: plain values between checks and renderers.

mod fix;
mod merge;

pub use fix::{Action, Effect, Fix, Safety};
pub use merge::{Change, merge};

use crate::facts::raw::HostPath;
use crate::facts::source::Source;
use serde::{Deserialize, Serialize};

/// An id of the problem table; named there, explained by `ds-doctor explain`.
pub type ProblemId = &'static str;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Severity {
    Info,
    Warning,
    Error,
}

impl Severity {
    pub const fn name(self) -> &'static str {
        match self {
            Self::Info => "info",
            Self::Warning => "warning",
            Self::Error => "error",
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Confidence {
    /// Follows from facts that were read.
    Certain,
    /// Follows from facts and a rule of thumb, or from a table that may be old.
    Likely,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Finding {
    pub id: ProblemId,
    pub severity: Severity,
    pub confidence: Confidence,
    /// One sentence, no full stop: the facts that clash.
    pub title: String,
    pub evidence: Vec<Evidence>,
    /// What will happen because of it: the very message where it is known.
    pub consequence: String,
    pub fixes: Vec<Fix>,
    /// What tells two findings of one id apart: a toolkit's root, an op, a variable.
    pub subject: String,
    /// Ids of the findings this one follows from; filled by precedence.
    pub caused_by: Vec<ProblemId>,
    /// Findings that follow from this one, folded under it by precedence.
    pub folded: Vec<Finding>,
    pub location: Option<Location>,
}

/// One fact that speaks: `nvcc 13.0.88  /usr/local/cuda/bin/nvcc  CUDA_HOME`.
#[derive(Debug, Clone, PartialEq)]
pub struct Evidence {
    /// `nvcc`, `torch`, `CUDA_HOME`
    pub what: String,
    /// `13.0.88`
    pub value: String,
    pub path: Option<HostPath>,
    /// How it came to be looked at, or the file that was read.
    pub source: String,
}

/// A place in a file, for annotations.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Location {
    pub file: HostPath,
    pub line: Option<usize>,
}

impl Finding {
    pub fn new(id: ProblemId, severity: Severity, title: impl Into<String>) -> Self {
        Self {
            id,
            severity,
            confidence: Confidence::Certain,
            title: title.into(),
            evidence: Vec::new(),
            consequence: String::new(),
            fixes: Vec::new(),
            subject: String::new(),
            caused_by: Vec::new(),
            folded: Vec::new(),
            location: None,
        }
    }

    pub fn error(id: ProblemId, title: impl Into<String>) -> Self {
        Self::new(id, Severity::Error, title)
    }

    pub fn warning(id: ProblemId, title: impl Into<String>) -> Self {
        Self::new(id, Severity::Warning, title)
    }

    pub fn info(id: ProblemId, title: impl Into<String>) -> Self {
        Self::new(id, Severity::Info, title)
    }

    pub fn likely(mut self) -> Self {
        self.confidence = Confidence::Likely;
        self
    }

    pub fn about(mut self, subject: impl Into<String>) -> Self {
        self.subject = subject.into();
        self
    }

    pub fn seen(mut self, evidence: Evidence) -> Self {
        self.evidence.push(evidence);
        self
    }

    pub fn then(mut self, consequence: impl Into<String>) -> Self {
        self.consequence = consequence.into();
        self
    }

    pub fn fix(mut self, fix: Fix) -> Self {
        self.fixes.push(fix);
        self
    }

    /// Told apart by id, subject and title; what was added to it does not matter.
    pub fn is_same(&self, other: &Self) -> bool {
        (self.id, &self.subject, &self.title) == (other.id, &other.subject, &other.title)
    }

    /// The highest severity of itself and all that is folded under it: what counts for exit codes and verdicts.
    pub fn weight(&self) -> Severity {
        self.folded.iter().map(Finding::weight).fold(self.severity, Severity::max)
    }
}

impl Evidence {
    pub fn new(what: impl Into<String>, value: impl Into<String>) -> Self {
        Self { what: what.into(), value: value.into(), path: None, source: String::new() }
    }

    pub fn at(mut self, path: &HostPath) -> Self {
        self.path = Some(path.clone());
        self
    }

    pub fn from(mut self, source: &Source) -> Self {
        self.source = source.to_string();
        self
    }

    pub fn said_by(mut self, source: impl Into<String>) -> Self {
        self.source = source.into();
        self
    }
}
