//! Exit codes: few, named, the same for every command that judges.

use std::process::ExitCode;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// Nothing at or above `--fail-on`; `arch-list` knew; `fix` leaves nothing.
    Fine = 0,
    /// Findings; or the answer would not be complete.
    Findings = 1,
    /// Wrong use, unreadable input, nothing that could be judged, or a failure of our own.
    Unable = 2,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}
