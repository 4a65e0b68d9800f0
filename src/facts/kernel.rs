//! What loading and running the probe's kernels showed. Everything was tried in a child process; what became of that is told too.

use super::raw::HostPath;
use serde::{Deserialize, Serialize};

/// The probe's library, loaded with every symbol bound.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Loaded {
    /// The files that the loader took for it, the CUDA runtime among them: `libcudart.so.13.0.96`. Links resolved, in no order.
    pub libraries: Vec<HostPath>,
}

impl Loaded {
    /// The CUDA runtime that it is bound to.
    pub fn runtime(&self) -> Option<&HostPath> {
        self.libraries.iter().find(|path| path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"libcudart.so")))
    }
}

/// Why a child gave no answer to its question.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "fault", rename_all = "kebab-case")]
pub enum Fault {
    /// The loader could not find or bind everything: its own words.
    NotLoaded { words: String },
    /// A signal ended it. `at` is what it was doing, `stderr` the last that was said.
    Crashed { signal: i32, at: Option<String>, stderr: String },
    /// It did not end in time and was killed.
    TimedOut { seconds: f32, at: Option<String>, stderr: String },
    /// Anything else: it could not be started, or ended without a word.
    Unanswered { why: String },
}
