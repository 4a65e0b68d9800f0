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
    /// A script: the words of its first line (`/usr/bin/env python3`), and whether what they name is there.
    Script {
        interpreter: String,
        interpreter_found: bool,
    },
    /// Runs only in name: a 0-byte file, text without a first line, an ELF file cut short, for another machine or without its loader.
    Broken {
        why: String,
    },
    /// A folder of that name: every search passes over it.
    Folder,
    /// Without execute permission: every search passes over it.
    NotExecutable,
    Unreadable {
        why: String,
    },
}

impl Program {
    /// Whether a search of PATH takes it (a file with execute permission; nothing more is asked).
    pub fn found_by_search(&self) -> bool {
        !matches!(self.kind, ProgramKind::NotExecutable | ProgramKind::Folder)
    }
}
