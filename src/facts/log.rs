//! What was seen in the log of a build or a run.

use super::raw::HostPath;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// One log.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Log {
    /// The file; `-` for standard input; the command where it is a command's output.
    pub name: HostPath,
    pub lines: usize,
    /// As it was read: after unpacking.
    pub bytes: u64,
    /// In the order of lines.
    pub sightings: Vec<Sighting>,
    /// The first error-like line of each tool, whether a signature knows it or not.
    #[serde(default)]
    pub errors: Vec<ErrorLine>,
    /// Why reading ended before the end.
    #[serde(default)]
    pub cut: Option<String>,
}

/// Lines that one signature knows, and that say the same.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Sighting {
    pub signature: String,
    /// The first such line, counted from 1.
    pub line: usize,
    /// Without colours and prefixes; control characters are gone, text from outside it is still.
    pub text: String,
    /// What the signature's named groups caught: `library` = `cudart`.
    #[serde(default)]
    pub captures: BTreeMap<String, String>,
    pub times: usize,
}

/// A line that looks like an error.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ErrorLine {
    /// Who wrote it, as far as its form tells: `compiler`.
    pub tool: String,
    /// 0 is innermost: the compiler's own words say more than those of pip, which ran it.
    pub depth: usize,
    pub line: usize,
    pub text: String,
}

impl Log {
    /// The error-like line that says most where nothing is known.
    pub fn first_error(&self) -> Option<&ErrorLine> {
        self.errors.iter().min_by_key(|one| (one.depth, one.line))
    }
}
