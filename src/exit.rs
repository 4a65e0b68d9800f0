//! Exit codes: few, named, the same for every command that judges.

use std::process::ExitCode;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// Nothing at or above `--fail-on`; `arch-list` knew; `fix` leaves nothing.
    Fine,
    /// Findings; or the answer would not be complete.
    Findings,
    /// Wrong use, unreadable input, nothing that could be judged, or a failure of our own.
    Unable,
    /// That of the command which `exec` ran.
    Command(u8),
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(match exit {
            Exit::Fine => 0,
            Exit::Findings => 1,
            Exit::Unable => 2,
            Exit::Command(code) => code,
        })
    }
}
