//! What is wrong with a table, in words that lead to the place.

use std::fmt;

/// What is wrong with a row, or with a table as a whole: the key, and why.
#[derive(Debug)]
pub struct Fault {
    /// The key of the row, or the name of the table.
    pub key: &'static str,
    pub why: String,
}

impl Fault {
    pub fn new(key: &'static str, why: impl Into<String>) -> Self {
        Self { key, why: why.into() }
    }
}

/// A table that cannot be used, and where in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RulesError {
    pub file: String,
    /// Counted from 1; `None` for what no single line shows.
    pub line: Option<usize>,
    /// The table and the row: `toolkit 12.4`.
    pub row: Option<String>,
    pub key: Option<String>,
    pub why: String,
}

impl fmt::Display for RulesError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.file)?;
        if let Some(line) = self.line {
            write!(f, ":{line}")?;
        }
        if let Some(row) = &self.row {
            write!(f, ": {row}")?;
        }
        if let Some(key) = &self.key {
            write!(f, ": `{key}`")?;
        }
        write!(f, ": {}", self.why)
    }
}

impl std::error::Error for RulesError {}
