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

/// The interpreter that a program found by a search is: its collector noted every path that leads to it, links of one folder and shims
/// among them. The file behind a venv's link is its base's, so the file alone says nothing about a venv.
fn behind<'a>(all: &'a [Interpreter], hit: &Hit) -> Option<&'a Interpreter> {
    let program = hit.program;
    let by_path = all.iter().find(|one| one.path == program.path || one.paths.contains(&program.path));
    // `/bin/python3` where /bin is a link to /usr/bin.
    by_path.or_else(|| all.iter().find(|one| one.real == program.real && one.kind != EnvironmentKind::Venv))
}

fn is_prefix(interpreter: &Interpreter, prefix: &Path) -> bool {
    *interpreter.prefix == *prefix || interpreter.path.parent().and_then(Path::parent) == Some(prefix)
}

#[cfg(test)]
#[expect(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::facts::observed::Observed;
    use crate::facts::program::{Program, ProgramKind};

    fn interpreter(path: &str, real: &str, kind: EnvironmentKind) -> Interpreter {
        let prefix = Path::new(path).parent().and_then(Path::parent).unwrap();
        let text = format!(
            r#"{{"path": "{path}", "real": "{real}", "sources": [], "version": null, "kind": "system", "prefix": "{}", "base_prefix": "/usr"}}"#,
            prefix.display()
        );
        Interpreter { kind, ..serde_json::from_str(&text).unwrap() }
    }

    fn machine(path: &str) -> Snapshot {
        let mut facts = Snapshot::default();
        facts.env.set("PATH", path);
        let program = |path: &str, real: &str| Program {
            name: path.rsplit('/').next().unwrap().to_owned(),
            path: path.into(),
            real: real.into(),
            kind: ProgramKind::Elf,
        };
        facts.programs = vec![
            program("/venv/bin/python3", "/usr/bin/python3.11"),
            program("/venv/bin/python", "/usr/bin/python3.11"),
            program("/usr/bin/python3", "/usr/bin/python3.11"),
            program("/bin/python3", "/usr/bin/python3.11"),
            program("/old/bin/python", "/old/bin/python2.7"),
        ];
        let mut venv = interpreter("/venv/bin/python3", "/usr/bin/python3.11", EnvironmentKind::Venv);
        venv.paths = vec!["/venv/bin/python3".into(), "/venv/bin/python".into()];
        let system = interpreter("/usr/bin/python3", "/usr/bin/python3.11", EnvironmentKind::System);
        let conda = interpreter("/conda/bin/python3", "/conda/bin/python3.12", EnvironmentKind::Conda);
        facts.pythons = Observed::seen(vec![venv, system, conda]);
        facts
    }

    fn path(choice: &Choice) -> Option<String> {
        choice.interpreter.map(|one| one.path.to_string())
    }

    #[test]
    fn path_decides_between_a_venv_and_its_base() {
        assert_eq!(path(&chosen(&machine("/venv/bin:/usr/bin"))).unwrap(), "/venv/bin/python3");
        assert_eq!(path(&chosen(&machine("/usr/bin:/venv/bin"))).unwrap(), "/usr/bin/python3");
        let linked = machine("/bin:/venv/bin");
        assert_eq!(path(&chosen(&linked)).unwrap(), "/usr/bin/python3");
        assert_eq!(chosen(&linked).by.unwrap().to_string(), "1st entry of PATH");
    }

    #[test]
    fn python3_anywhere_comes_before_python() {
        assert_eq!(path(&chosen(&machine("/old/bin:/usr/bin"))).unwrap(), "/usr/bin/python3");
        let only_old = machine("/old/bin");
        let choice = chosen(&only_old);
        assert!(choice.interpreter.is_none() && choice.hit.is_some());
        assert!(chosen(&machine("/none")).by.is_none());
    }

    #[test]
    fn the_command_line_comes_first() {
        let mut facts = machine("/venv/bin");
        facts.pythons.value_mut().unwrap()[2].sources.push(Source::Option { name: "--python".to_owned() });
        assert_eq!(path(&chosen(&facts)).unwrap(), "/conda/bin/python3");
    }

    #[test]
    fn active_environments() {
        let mut facts = machine("/venv/bin:/usr/bin");
        facts.env.set("CONDA_PREFIX", "/conda");
        assert_eq!(chosen(&facts).conflict().unwrap().variable, "CONDA_PREFIX");
        facts.env.set("VIRTUAL_ENV", "/venv");
        assert!(chosen(&facts).conflict().is_none(), "a venv on top of conda's base");
        facts.env.set("PATH", "/usr/bin");
        let choice = chosen(&facts);
        assert_eq!(choice.conflict().unwrap().interpreter.unwrap().path, "/venv/bin/python3".into());
    }
}
