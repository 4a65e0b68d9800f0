//! Which interpreter pip and setup.py would use.

use super::search::{self, Hit};
use crate::facts::python::{EnvironmentKind, Interpreter};
use crate::facts::raw::HostPath;
use crate::facts::snapshot::Snapshot;
use crate::facts::source::Source;
use std::path::Path;

/// The interpreter that is judged, and why that one.
#[derive(Debug, Clone, PartialEq)]
pub struct Choice<'a> {
    /// `None`: nothing is found, or what is found could not be followed to an interpreter.
    pub interpreter: Option<&'a Interpreter>,
    /// What said so: `--python`, or an entry of PATH. `None` where PATH has no python at all.
    pub by: Option<Source>,
    /// What PATH finds, also where it leads to no known interpreter (a broken file, a shim that could not be followed).
    pub hit: Option<Hit<'a>>,
    /// VIRTUAL_ENV and CONDA_PREFIX where set, in this order.
    pub named: Vec<NamedEnv<'a>>,
}

/// An environment that a variable claims to be the active one.
#[derive(Debug, Clone, PartialEq)]
pub struct NamedEnv<'a> {
    pub variable: &'static str,
    pub prefix: HostPath,
    /// The interpreter of that environment, where one was found.
    pub interpreter: Option<&'a Interpreter>,
    /// It is the environment of the chosen interpreter.
    pub chosen: bool,
}

impl<'a> Choice<'a> {
    /// The environment that the last activation meant, where another one would be used: no variable names the chosen one. A base conda
    /// environment under an active venv (CONDA_PREFIX differs, VIRTUAL_ENV fits) is the usual case and no conflict.
    pub fn conflict(&self) -> Option<&NamedEnv<'a>> {
        if self.interpreter.is_none() || self.named.iter().any(|named| named.chosen) { None } else { self.named.first() }
    }
}

/// `--python` where given, else the `python3` that PATH finds, else the `python`.
pub fn chosen(facts: &Snapshot) -> Choice<'_> {
    let all = facts.pythons.value().map(Vec::as_slice).unwrap_or_default();
    let said = |interpreter: &&Interpreter| interpreter.sources.iter().any(|source| matches!(source, Source::Option { .. }));
    let (interpreter, by, hit) = match all.iter().find(said) {
        Some(interpreter) => {
            (Some(interpreter), interpreter.sources.iter().find(|source| matches!(source, Source::Option { .. })).cloned(), None)
        }
        None => {
            let hit = search::which(facts, "python3").or_else(|| search::which(facts, "python"));
            (hit.as_ref().and_then(|hit| behind(all, hit)), hit.as_ref().map(Hit::source), hit)
        }
    };
    let named = ["VIRTUAL_ENV", "CONDA_PREFIX"]
        .into_iter()
        .filter_map(|variable| {
            let prefix = HostPath::new(facts.env.path(variable)?);
            let of_prefix = all.iter().find(|candidate| is_prefix(candidate, &prefix));
            let chosen = interpreter.is_some_and(|interpreter| is_prefix(interpreter, &prefix));
            Some(NamedEnv { variable, interpreter: of_prefix, chosen, prefix })
        })
        .collect();
    Choice { interpreter, by, hit, named }
}

/// The interpreter that a program found by a search is. Programs of one folder that are links to one file are one interpreter; a venv's
/// link and its base's program are two, though the file behind them is the same.
fn behind<'a>(all: &'a [Interpreter], hit: &Hit) -> Option<&'a Interpreter> {
    let program = hit.program;
    let same_path = all.iter().find(|candidate| candidate.path == program.path);
    let prefix = program.path.parent().and_then(Path::parent);
    let same_prefix =
        || all.iter().find(|candidate| candidate.real == program.real && prefix.is_some_and(|prefix| *candidate.prefix == *prefix));
    // A shim is followed by the collector, which notes the entry of PATH that it met it in.
    let by_entry = || {
        let entry = Source::entry("PATH", hit.entry?);
        let mut of_entry = all.iter().filter(|candidate| candidate.sources.contains(&entry));
        let first = of_entry.next()?;
        of_entry.next().is_none().then_some(first)
    };
    // `/bin/python3` where /bin is a link to /usr/bin.
    let same_file = || all.iter().find(|candidate| candidate.real == program.real && candidate.kind != EnvironmentKind::Venv);
    same_path.or_else(same_prefix).or_else(by_entry).or_else(same_file)
}

fn is_prefix(interpreter: &Interpreter, prefix: &Path) -> bool {
    *interpreter.prefix == *prefix || interpreter.path.parent().and_then(Path::parent) == Some(prefix)
}
