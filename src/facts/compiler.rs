//! C and C++ compilers by file, with versions read without running them where that can be.

use super::raw::HostPath;
use crate::version::Dotted;
use serde::{Deserialize, Serialize};

/// One compiler file; several names (`cc`, `gcc`, `x86_64-linux-gnu-gcc-12`) may lead to it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Compiler {
    /// The file behind all links.
    pub real: HostPath,
    /// Every path that leads to it, as a search finds them.
    pub paths: Vec<HostPath>,
    pub family: Family,
    pub language: Language,
    pub version: Option<Dotted>,
    /// How the version is known: `strings of the program`, `--version`, `file name`.
    #[serde(default)]
    pub version_from: String,
    /// The machine it compiles for, where known: `x86_64-linux-gnu`.
    #[serde(default)]
    pub target: Option<String>,
    /// The conda environment it belongs to.
    #[serde(default)]
    pub conda: Option<HostPath>,
    /// `cc1plus` (gcc, C++ only), where its folder could be looked at: `None` unknown.
    #[serde(default)]
    pub cc1plus: Option<bool>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Family {
    Gcc,
    Clang,
    /// ccache, sccache, distcc: what it runs is decided at run time.
    Wrapper,
    Other,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Language {
    C,
    Cxx,
}

impl Compiler {
    pub fn has_path(&self, path: &std::path::Path) -> bool {
        &*self.real == path || self.paths.iter().any(|p| &**p == path)
    }
}
