//! Python environments: interpreter, headers, packages, and torch and DeepSpeed in them. Nothing is imported or run.

use super::elf::ElfFacts;
use super::observed::Observed;
use super::raw::HostPath;
use super::source::Source;
use super::torch::{DeepSpeed, Torch};
use crate::version::Dotted;
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Interpreter {
    /// As found: `/opt/venv/bin/python3`, shims already resolved.
    pub path: HostPath,
    /// Every path that leads to it (`python3` and `python` of one folder, a pyenv shim), in the order of `sources`: what a search of
    /// PATH finds is looked up here.
    #[serde(default)]
    pub paths: Vec<HostPath>,
    /// The program behind all links.
    pub real: HostPath,
    pub sources: Vec<Source>,
    /// What the program's own file says: its RPATH counts for every library that is loaded into it.
    #[serde(default)]
    pub elf: Observed<ElfFacts>,
    /// `3.11.7` or, where only the folder tells, `3.11`.
    pub version: Option<Dotted>,
    /// A build without the global lock: `t` is part of its cache tag.
    #[serde(default)]
    pub free_threaded: bool,
    pub kind: EnvironmentKind,
    /// `sys.prefix`
    pub prefix: HostPath,
    /// `sys.base_prefix`: where the headers come from. Empty, as `prefix` is, where it cannot be known; `torch` and the others are
    /// `Failed` then.
    pub base_prefix: HostPath,
    /// Folders packages are imported from, in order.
    #[serde(default)]
    pub site: Vec<HostPath>,
    /// The path of Python.h for this version.
    #[serde(default)]
    pub header: Observed<HostPath>,
    /// From `*.dist-info` and `*.egg-info` names, in order of import; a second copy of a name is listed too.
    #[serde(default)]
    pub packages: Vec<Package>,
    /// PEP 668: the distribution asks pip not to install here.
    #[serde(default)]
    pub externally_managed: bool,
    /// The standard library still has `distutils` (before 3.12).
    #[serde(default)]
    pub has_distutils: Option<bool>,
    #[serde(default)]
    pub torch: Observed<Torch>,
    #[serde(default)]
    pub deepspeed: Observed<DeepSpeed>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum EnvironmentKind {
    #[default]
    System,
    Venv,
    Conda,
    /// pyenv, uv and other installs in a prefix of their own.
    Standalone,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Package {
    /// Normalised: lower case, `-` for `_` and `.`.
    pub name: String,
    pub version: Dotted,
    /// The site folder it lies in.
    pub site: HostPath,
}

impl Interpreter {
    /// The copy that would be imported.
    pub fn package(&self, name: &str) -> Option<&Package> {
        self.packages.iter().find(|package| package.name == name)
    }

    /// `311`, `313t`: as in extension cache folders. Source: `_get_build_directory` of torch/utils/cpp_extension.py, which appends
    /// `sys.abiflags` (`m` up to 3.7, `t` without the global lock).
    pub fn tag(&self) -> Option<String> {
        let version = self.version.as_ref().filter(|version| version.parts.len() > 1)?;
        let flags = match (version.major(), version.minor()) {
            _ if self.free_threaded => "t",
            (3, 2..=7) => "m",
            _ => "",
        };
        Some(format!("{}{}{flags}", version.major(), version.minor()))
    }
}
