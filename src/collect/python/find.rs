//! Which programs are Python interpreters to be looked at, and what names them.

use crate::collect::search;
use crate::facts::source::Source;
use crate::host::Host;
use std::path::{Path, PathBuf};

/// An unpacked image tells neither its PATH nor its user, so environments of such images are looked for by place.
const IMAGE_PLACES: &[&str] =
    &["/opt/venv", "/opt/conda", "/venv", "/.venv", "/app/.venv", "/workspace/.venv", "/root/.venv", "/usr/local", "/usr"];

pub struct Candidate {
    pub path: PathBuf,
    pub source: Source,
    /// What a search passes over is still told where something names it.
    pub named: bool,
}

/// Every one of them, in the order of [`super::collect`].
pub fn candidates(host: &dyn Host, chosen: Option<&Path>) -> Vec<Candidate> {
    let path = search::entries(host, "PATH");
    let mut all: Vec<Candidate> = asked_for(host, chosen, &path).into_iter().collect();
    for variable in ["VIRTUAL_ENV", "CONDA_PREFIX"] {
        if let Some(folder) = search::variable(host, variable) {
            all.push(Candidate { path: program_in(host, &folder), source: Source::variable(variable), named: true });
        }
    }
    // What a search finds goes in front of what it would find later, whichever of the two names it has.
    let first = in_path(host, &path, "python3").next();
    let known = first.as_ref().map(|first| (first.path.clone(), first.source.clone()));
    all.extend(first);
    let each =
        path.iter().flat_map(|entry| ["python3", "python"].into_iter().flat_map(|name| in_path(host, std::slice::from_ref(entry), name)));
    all.extend(each.filter(|found| known.as_ref().is_none_or(|(path, source)| found.path != *path || found.source != *source)));
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

/// Those that would run: what `--python` says, and what a search of PATH finds, which counts where the first is not there.
pub fn that_run(host: &dyn Host, chosen: Option<&Path>) -> Vec<Candidate> {
    let path = search::entries(host, "PATH");
    let first = |name| in_path(host, &path, name).next();
    asked_for(host, chosen, &path).into_iter().chain(first("python3").or_else(|| first("python"))).collect()
}

/// What `--python` says: a path, a name that PATH has, or the folder of an environment.
fn asked_for(host: &dyn Host, chosen: Option<&Path>, path: &[search::Entry]) -> Option<Candidate> {
    let chosen = chosen?;
    let bare = chosen.components().count() == 1 && chosen.parent() == Some(Path::new(""));
    let in_path = bare.then(|| path.iter().map(|entry| entry.path.join(chosen)).find(|path| host.is_file(path))).flatten();
    let path = in_path.or_else(|| search::absolute(host, chosen))?;
    let path = if host.is_folder(&path) { program_in(host, &path) } else { path };
    Some(Candidate { path, source: Source::Option { name: "--python".to_owned() }, named: true })
}

/// The programs of this name that a search of PATH takes, in order.
fn in_path(host: &dyn Host, path: &[search::Entry], name: &str) -> impl Iterator<Item = Candidate> {
    let candidate =
        move |entry: &search::Entry| Candidate { path: entry.path.join(name), source: Source::entry("PATH", entry.index), named: false };
    path.iter().map(candidate).filter(|candidate| host.metadata(&candidate.path).is_ok_and(|meta| meta.executable()))
}

/// `bin/python3`, or `bin/python` where only that is there.
fn program_in(host: &dyn Host, folder: &Path) -> PathBuf {
    let [first, second] = ["bin/python3", "bin/python"].map(|name| folder.join(name));
    if host.link_metadata(&first).is_err() && host.link_metadata(&second).is_ok() { second } else { first }
}
