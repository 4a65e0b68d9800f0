//! Python environments: every interpreter that a search, a variable or an option leads to, and what is installed for it. Nothing is
//! imported and no Python is run.

pub mod dist;
pub mod layout;
mod shim;
pub mod site;
mod strings;

use super::{deepspeed, search, torch};
use crate::binary::elf::summarise;
use crate::facts::elf::ElfFacts;
use crate::facts::observed::Observed;
use crate::facts::python::{EnvironmentKind, Interpreter};
use crate::facts::raw::HostPath;
use crate::facts::source::Source;
use crate::host::Host;
use dist::Dist;
use layout::Layout;
use shim::Behind;
use site::Site;
use std::path::{Path, PathBuf};

/// An unpacked image tells neither its PATH nor its user, so environments of such images are looked for by place.
const IMAGE_PLACES: &[&str] =
    &["/opt/venv", "/opt/conda", "/venv", "/.venv", "/app/.venv", "/workspace/.venv", "/root/.venv", "/usr/local", "/usr"];

struct Candidate {
    path: PathBuf,
    source: Source,
    /// What a search passes over is still told where something names it.
    named: bool,
}

/// The environments, in the order in which they were found: the option, VIRTUAL_ENV, CONDA_PREFIX, what a search of PATH finds
/// (`python3`, else `python`), the rest of PATH, `.venv` in the current folder.
///
/// `chosen` is what `--python` says: a program, or the folder of an environment.
pub fn collect(host: &dyn Host, chosen: Option<&Path>, notes: &mut Vec<String>) -> Observed<Vec<Interpreter>> {
    let mut found: Vec<Interpreter> = Vec::new();
    let mut looked: Vec<String> = Vec::new();
    for candidate in candidates(host, chosen) {
        match shim::follow(host, &candidate.path) {
            Behind::Program(executable) => meet(host, &mut found, candidate, &executable, notes),
            Behind::Unknown(why) => found.push(unknown(candidate, &why)),
            Behind::Nothing if candidate.named => match nothing(host, &candidate, notes) {
                Some(interpreter) => found.push(interpreter),
                None => looked.push(candidate.path.display().to_string()),
            },
            Behind::Nothing => {}
        }
    }
    if found.is_empty() {
        looked.push("PATH".to_owned());
        return Observed::absent(looked);
    }
    Observed::seen(found)
}

fn candidates(host: &dyn Host, chosen: Option<&Path>) -> Vec<Candidate> {
    let mut all = Vec::new();
    let mut named = |path: PathBuf, source: Source| all.push(Candidate { path, source, named: true });
    let path = search::entries(host, "PATH");
    if let Some(chosen) = chosen {
        let source = Source::Option { name: "--python".to_owned() };
        let in_path = (chosen.components().count() == 1 && chosen.parent() == Some(Path::new("")))
            .then(|| path.iter().map(|entry| entry.path.join(chosen)).find(|path| host.is_file(path)))
            .flatten();
        if let Some(path) = in_path.or_else(|| search::absolute(host, chosen)) {
            named(if host.is_folder(&path) { program_in(host, &path) } else { path }, source);
        }
    }
    for variable in ["VIRTUAL_ENV", "CONDA_PREFIX"] {
        if let Some(folder) = search::variable(host, variable) {
            named(program_in(host, &folder), Source::variable(variable));
        }
    }
    let mut searched: Vec<Candidate> = Vec::new();
    let mut first: Option<usize> = None;
    for entry in &path {
        for name in ["python3", "python"] {
            let candidate = Candidate { path: entry.path.join(name), source: Source::entry("PATH", entry.index), named: false };
            if host.metadata(&candidate.path).is_ok_and(|meta| meta.executable()) {
                if name == "python3" && first.is_none() {
                    first = Some(searched.len());
                }
                searched.push(candidate);
            }
        }
    }
    // What a search finds goes in front of what it would find later, whichever of the two names it has.
    if let Some(first) = first {
        let candidate = searched.remove(first);
        searched.insert(0, candidate);
    }
    all.append(&mut searched);
    if let Some(folder) = host.cwd().map(|cwd| cwd.join(".venv")).filter(|folder| host.is_file(&folder.join("pyvenv.cfg"))) {
        let source = Source::File { path: folder.join("pyvenv.cfg").into() };
        all.push(Candidate { path: program_in(host, &folder), source, named: true });
    }
    if host.root().is_some() {
        let programs = IMAGE_PLACES.iter().map(|folder| program_in(host, Path::new(folder)));
        all.extend(programs.map(|path| Candidate { path, source: Source::UsualPlace, named: false }));
    }
    all
}

/// `bin/python3`, or `bin/python` where only that is there.
fn program_in(host: &dyn Host, folder: &Path) -> PathBuf {
    let [first, second] = ["bin/python3", "bin/python"].map(|name| folder.join(name));
    if host.link_metadata(&first).is_err() && host.link_metadata(&second).is_ok() { second } else { first }
}

/// Adds an environment, or one more way to it.
fn meet(host: &dyn Host, found: &mut Vec<Interpreter>, candidate: Candidate, executable: &Path, notes: &mut Vec<String>) {
    let layout = layout::look(host, executable);
    let real = |path: &Path| host.real_path(path).unwrap_or_else(|_| path.to_owned());
    // A virtual environment is its folder; any other installation is its program.
    let same = |known: &&mut Interpreter| {
        known.version.is_some() == layout.version.is_some()
            && known.kind == layout.kind
            && match layout.kind {
                EnvironmentKind::Venv => real(&known.prefix) == real(&layout.prefix),
                _ => *known.real == *layout.real,
            }
    };
    match found.iter_mut().find(same) {
        Some(known) => {
            known.sources.push(candidate.source);
            known.paths.push(candidate.path.into());
        }
        None => found.push(build(host, candidate, executable, layout, notes)),
    }
}

fn build(host: &dyn Host, candidate: Candidate, executable: &Path, layout: Layout, notes: &mut Vec<String>) -> Interpreter {
    let site = Site::build(host, &layout);
    let dists = dist::list(host, &site);
    let stdlib = layout.base.as_ref().and_then(|base| base.stdlib.clone());
    let (torch, deepspeed) = if layout.series.is_some() {
        (torch::collect(host, &site, &dists), deepspeed::collect(host, &site, &dists))
    } else {
        let why = format!("the version of `{}`, and so its package folder, is not known", executable.display());
        notes.push(why.clone());
        (Observed::failed(why.clone()), Observed::failed(why))
    };
    Interpreter {
        path: executable.into(),
        paths: vec![candidate.path.into()],
        sources: vec![candidate.source],
        elf: program(host, &layout.real),
        header: layout::header(host, &layout),
        version: layout.version,
        free_threaded: layout.series.is_some_and(|series| series.free_threaded),
        kind: layout.kind,
        // PEP 668: the mark counts for the base alone.
        externally_managed: layout.kind != EnvironmentKind::Venv
            && stdlib.as_ref().is_some_and(|stdlib| host.is_file(&stdlib.join("EXTERNALLY-MANAGED"))),
        // Debian keeps a stub of it where the rest is not installed.
        has_distutils: stdlib.map(|stdlib| host.is_file(&stdlib.join("distutils/core.py"))),
        base_prefix: layout.base.map(|base| base.prefix.into()).unwrap_or_default(),
        prefix: layout.prefix.into(),
        real: layout.real.into(),
        site: site.folders.iter().map(|folder| HostPath::new(&folder.path)).collect(),
        packages: dists.into_iter().map(|dist| dist.package).collect(),
        torch,
        deepspeed,
    }
}

/// An interpreter of which only the way to it is known.
fn unknown(candidate: Candidate, why: &str) -> Interpreter {
    Interpreter {
        path: candidate.path.clone().into(),
        real: candidate.path.clone().into(),
        paths: vec![candidate.path.into()],
        sources: vec![candidate.source],
        elf: Observed::failed(why),
        header: Observed::failed(why),
        torch: Observed::failed(why),
        deepspeed: Observed::failed(why),
        ..Interpreter::default()
    }
}

fn program(host: &dyn Host, real: &Path) -> Observed<ElfFacts> {
    match super::open(host, real).map_err(|e| e.to_string()).and_then(|file| summarise(&file).map_err(|e| e.to_string())) {
        Ok(facts) => Observed::seen(facts),
        Err(why) => Observed::failed(format!("`{}`: {why}", real.display())),
    }
}

/// Something names a program that is not there. A virtual environment whose Python was removed still has its packages.
fn nothing(host: &dyn Host, candidate: &Candidate, notes: &mut Vec<String>) -> Option<Interpreter> {
    let dangling = host.read_link(&candidate.path).ok()?;
    notes.push(format!("`{}` ({}) leads to `{}`, which is not there", candidate.path.display(), candidate.source, dangling.display()));
    let layout = layout::look(host, &candidate.path);
    let candidate = Candidate { path: candidate.path.clone(), source: candidate.source.clone(), named: true };
    let path = candidate.path.clone();
    Some(build(host, candidate, &path, layout, notes))
}

/// The package whose metadata lies nearest to a folder of packages: the one that was installed with it.
pub(super) fn dist_of<'d>(dists: &'d [Dist], name: &str, site: &Path, version: &str) -> Option<&'d Dist> {
    let mut own = dists.iter().filter(|dist| dist.package.name == name && *dist.package.site == *site);
    let first = own.clone().next();
    // An interrupted upgrade leaves two; the local part may be in one place only.
    let plain = |text: &str| text.split('+').next().unwrap_or_default().to_owned();
    own.find(|dist| plain(&dist.package.version.text) == plain(version)).or(first)
}
