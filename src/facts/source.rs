//! Where a fact came from, so that a finding can say how it knows.

use super::raw::HostPath;
use serde::{Deserialize, Serialize};
use std::fmt;

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Source {
    /// The value of one variable: `CUDA_HOME`.
    Variable {
        name: String,
    },
    /// One entry of a list variable, counted from 1: the 2nd entry of `PATH`.
    Entry {
        name: String,
        index: usize,
    },
    /// A place where such things usually are: `/usr/local/cuda*`, `/opt`.
    UsualPlace,
    /// The distribution's own packages.
    Distribution,
    Conda {
        prefix: HostPath,
    },
    /// A Python package's folder.
    Pip {
        site: HostPath,
    },
    HpcSdk {
        root: HostPath,
    },
    /// `/etc/ld.so.cache`
    LdCache,
    /// A folder the loader or linker searches by default.
    DefaultFolder,
    /// Found beside or below something else: torch's own `lib`, a toolkit's `bin`.
    Beside {
        path: HostPath,
    },
    /// Read from this file.
    File {
        path: HostPath,
    },
    /// Said on the command line.
    Option {
        name: String,
    },
    /// The driver, asked through NVML.
    Driver,
}

impl Source {
    pub fn variable(name: impl Into<String>) -> Self {
        Self::Variable { name: name.into() }
    }

    pub fn entry(name: impl Into<String>, index: usize) -> Self {
        Self::Entry { name: name.into(), index }
    }
}

/// `1st`, `2nd`, `11th`
pub fn ordinal(number: usize) -> String {
    let ending = match (number % 100, number % 10) {
        (11..=13, _) => "th",
        (_, 1) => "st",
        (_, 2) => "nd",
        (_, 3) => "rd",
        _ => "th",
    };
    format!("{number}{ending}")
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Variable { name } => f.write_str(name),
            Self::Entry { name, index } => write!(f, "{} entry of {name}", ordinal(*index)),
            Self::UsualPlace => f.write_str("usual place"),
            Self::Distribution => f.write_str("distribution package"),
            Self::Conda { .. } => f.write_str("conda environment"),
            Self::Pip { .. } => f.write_str("Python package"),
            Self::HpcSdk { .. } => f.write_str("NVIDIA HPC SDK"),
            Self::LdCache => f.write_str("/etc/ld.so.cache"),
            Self::DefaultFolder => f.write_str("default folder"),
            Self::Beside { path } => write!(f, "beside {path}"),
            Self::File { path } => write!(f, "{path}"),
            Self::Option { name } => f.write_str(name),
            Self::Driver => f.write_str("NVML"),
        }
    }
}
