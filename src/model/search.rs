//! Which file a bare program name gets: the search that a shell, `execvp` and `shutil.which` make along PATH.

use crate::facts::program::{Program, ProgramKind};
use crate::facts::raw::HostPath;
use crate::facts::snapshot::Snapshot;
use crate::facts::source::Source;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// A program and how the search came to it.
#[derive(Debug, Clone, PartialEq)]
pub struct Hit<'a> {
    pub program: &'a Program,
    /// Entry, slash and name as the search writes them: relative where the entry is. torch derives CUDA_HOME from this text.
    pub written: HostPath,
    /// The entry of PATH, counted from 1; `None` for a name that needed no search, and where PATH is unset.
    pub entry: Option<usize>,
}

impl Hit<'_> {
    /// How it was found: the entry of PATH, else the name itself.
    pub fn source(&self) -> Source {
        match self.entry {
            Some(index) => Source::entry("PATH", index),
            None => Source::File { path: self.program.path.clone() },
        }
    }
}

/// The folders of PATH as written, an empty entry included. Unset: the system's own two (`confstr(_CS_PATH)` of glibc). Set but empty:
/// none, as `shutil.which` reads it.
pub fn path_folders(facts: &Snapshot) -> Vec<PathBuf> {
    if facts.env.get("PATH").is_none() { vec!["/bin".into(), "/usr/bin".into()] } else { facts.env.entries("PATH") }
}

/// What PATH finds: the first executable of that name, whatever is in it. A name with a slash is taken as it is.
pub fn which<'a>(facts: &'a Snapshot, name: impl AsRef<OsStr>) -> Option<Hit<'a>> {
    let set = facts.env.get("PATH").is_some();
    which_in(facts, &path_folders(facts), name).map(|hit| Hit { entry: hit.entry.filter(|_| set), ..hit })
}

/// [`which`] along other folders; `entry` counts these.
pub fn which_in<'a>(facts: &'a Snapshot, folders: &[PathBuf], name: impl AsRef<OsStr>) -> Option<Hit<'a>> {
    candidates(facts, folders, name.as_ref()).next()
}

/// The first that the kernel can start. `execvp` and Python's `subprocess` go on to the next entry when a file's interpreter is missing
/// or its format is not one, so a dead `ninja` in front of a good one does no harm.
pub fn starts<'a>(facts: &'a Snapshot, name: impl AsRef<OsStr>) -> Option<Hit<'a>> {
    let set = facts.env.get("PATH").is_some();
    let folders = path_folders(facts);
    let hit = candidates(facts, &folders, name.as_ref()).find(|hit| can_start(hit.program))?;
    Some(Hit { entry: hit.entry.filter(|_| set), ..hit })
}

/// Whether the kernel can start it. Unknown (unreadable) counts as able.
pub fn can_start(program: &Program) -> bool {
    match &program.kind {
        ProgramKind::Elf | ProgramKind::Unreadable { .. } => true,
        ProgramKind::Script { interpreter_found, .. } => *interpreter_found,
        ProgramKind::Broken { .. } | ProgramKind::Folder | ProgramKind::NotExecutable => false,
    }
}

fn candidates<'a>(facts: &'a Snapshot, folders: &[PathBuf], name: &OsStr) -> impl Iterator<Item = Hit<'a>> {
    let direct = name.as_bytes().contains(&b'/');
    let written: Vec<(Option<usize>, PathBuf)> = match (name.is_empty(), direct) {
        (true, _) => Vec::new(),
        (false, true) => vec![(None, PathBuf::from(name))],
        (false, false) => folders.iter().enumerate().map(|(at, folder)| (Some(at + 1), folder.join(name))).collect(),
    };
    written.into_iter().filter_map(move |(entry, written)| {
        let program = program_at(facts, &written).filter(|program| program.found_by_search())?;
        Some(Hit { program, written: HostPath(written), entry })
    })
}

/// The program that lies at this path; a relative one counts from the current folder.
pub fn program_at<'a>(facts: &'a Snapshot, path: &Path) -> Option<&'a Program> {
    let path = absolute(facts, path)?;
    facts.programs.iter().find(|program| *program.path == *path)
}

/// The path from the root; `None` for a relative one where the current folder is not known.
pub fn absolute(facts: &Snapshot, path: &Path) -> Option<PathBuf> {
    if path.is_absolute() { Some(path.to_owned()) } else { facts.env.cwd.as_ref().map(|cwd| cwd.0.join(path)) }
}

#[cfg(test)]
#[expect(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn program(path: &str, kind: ProgramKind) -> Program {
        let path = HostPath::new(path);
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        Program { name, real: path.clone(), path, kind }
    }

    fn machine(path: Option<&str>, programs: &[(&str, ProgramKind)]) -> Snapshot {
        let mut facts = Snapshot::default();
        if let Some(path) = path {
            facts.env.set("PATH", path);
        }
        facts.env.cwd = Some(HostPath::new("/here"));
        facts.programs = programs.iter().map(|(path, kind)| program(path, kind.clone())).collect();
        facts
    }

    fn found(facts: &Snapshot, name: &str) -> Option<(String, Option<usize>)> {
        which(facts, name).map(|hit| (hit.program.path.to_string(), hit.entry))
    }

    #[test]
    fn the_first_executable_counts() {
        let facts = machine(
            Some("/a:/b:/c"),
            &[("/a/gcc", ProgramKind::NotExecutable), ("/c/gcc", ProgramKind::Elf), ("/b/gcc", ProgramKind::Elf)],
        );
        assert_eq!(found(&facts, "gcc"), Some(("/b/gcc".to_owned(), Some(2))));
        assert_eq!(found(&facts, "g++"), None);
        assert_eq!(which(&facts, "gcc").unwrap().source().to_string(), "2nd entry of PATH");
    }

    #[test]
    fn names_with_a_slash_need_no_search() {
        let facts = machine(Some("/b"), &[("/x/gcc", ProgramKind::Elf), ("/here/bin/gcc", ProgramKind::Elf)]);
        assert_eq!(found(&facts, "/x/gcc"), Some(("/x/gcc".to_owned(), None)));
        assert_eq!(found(&facts, "bin/gcc"), Some(("/here/bin/gcc".to_owned(), None)));
        assert_eq!(found(&facts, ""), None);
    }

    #[test]
    fn odd_entries() {
        let programs = [("/here/nvcc", ProgramKind::Elf), ("/usr/bin/ls", ProgramKind::Elf), ("/a/x", ProgramKind::Elf)];
        let empty_entry = machine(Some("/b::/a/"), &programs);
        assert_eq!(which(&empty_entry, "nvcc").unwrap().written, HostPath::new("nvcc"));
        assert_eq!(found(&empty_entry, "x"), Some(("/a/x".to_owned(), Some(3))));
        assert_eq!(found(&machine(None, &programs), "ls"), Some(("/usr/bin/ls".to_owned(), None)));
        assert_eq!(found(&machine(Some(""), &programs), "nvcc"), None);
    }

    #[test]
    fn starting_goes_past_what_cannot_start() {
        let dead = ProgramKind::Script { interpreter: "/none/python3".to_owned(), interpreter_found: false };
        let facts = machine(Some("/a:/b"), &[("/a/ninja", dead), ("/b/ninja", ProgramKind::Elf)]);
        assert_eq!(found(&facts, "ninja").unwrap().1, Some(1));
        assert_eq!(starts(&facts, "ninja").unwrap().entry, Some(2));
    }
}
