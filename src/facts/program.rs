//! Programs in the folders of PATH and in the usual places, by name, so that any PATH can be tried on the facts.

use super::raw::HostPath;
use serde::{Deserialize, Serialize};

/// One executable file (or a broken one of that name): `/usr/bin/nvcc`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Program {
    pub name: String,
    /// Folder and name as a search finds it, links not resolved.
    pub path: HostPath,
    /// The file behind all links; equal to `path` where there are none.
    pub real: HostPath,
    pub kind: ProgramKind,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "is", rename_all = "kebab-case")]
pub enum ProgramKind {
    Elf,
    /// A script: what its first line names, and whether that is there.
    Script {
        interpreter: String,
        interpreter_found: bool,
    },
    /// Runs only in name: a 0-byte file, a folder, an ELF file cut short or for another machine.
    Broken {
        why: String,
    },
    /// Without execute permission: every search passes over it.
    NotExecutable,
    Unreadable {
        why: String,
    },
}

impl Program {
    /// Whether a search of PATH takes it (execute permission is all that is asked).
    pub fn found_by_search(&self) -> bool {
        !matches!(self.kind, ProgramKind::NotExecutable)
    }
}
