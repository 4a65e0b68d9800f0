//! Where compiler and linker looked for what a trial names, and what was there. As long as that is so, the trial would end as it did.

use super::trial::{Bench, Program, Trial};
use crate::facts::probe::{End, Failure, Outcome, Step, StepName};
use crate::facts::raw::{HostPath, Raw};
use crate::host::{Host, Kind};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// A header or a library: the files that it could have been, in the order of the search, and which of them was there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Look {
    pub files: Vec<HostPath>,
    /// The first that is there, with what tells it from another in its place; `None`: none of them.
    pub found: Option<String>,
}

impl Look {
    fn new(host: &dyn Host, files: Vec<HostPath>) -> Self {
        let found = found(host, &files);
        Self { files, found }
    }

    /// Whether the search ends as it did.
    pub fn holds(&self, host: &dyn Host) -> bool {
        found(host, &self.files) == self.found
    }
}

fn found(host: &dyn Host, files: &[HostPath]) -> Option<String> {
    files.iter().find_map(|file| {
        let meta = host.metadata(&file.0).ok().filter(|meta| meta.kind != Kind::Folder)?;
        Some(format!("{file} {} {} {} {}", meta.len, meta.modified, meta.device, meta.inode))
    })
}

/// Folders in which a compiler with these words looks for headers; asked once for each.
#[derive(Default)]
pub struct Folders(BTreeMap<Vec<OsString>, Option<Vec<PathBuf>>>);

impl Folders {
    /// For the trials given, by the steps that became of them.
    pub fn of(bench: &Bench<'_>, tried: &[(&Trial, &[Step])], at_once: usize) -> Self {
        let all: BTreeMap<Vec<OsString>, &Trial> = tried.iter().filter_map(|(trial, steps)| Some((compiler(steps)?, *trial))).collect();
        let asked: Vec<(Vec<OsString>, &Trial)> = all.into_iter().collect();
        let answers = super::trial::side_by_side(&asked, at_once, |(words, trial)| includes(bench, words, trial));
        Self(asked.into_iter().map(|(words, _)| words).zip(answers).collect())
    }
}

/// The words in front of the source, where the source was compiled at all.
fn compiler(steps: &[Step]) -> Option<Vec<OsString>> {
    let argv = &steps.first()?.command.as_ref()?.argv;
    // `-c FILE -o OBJECT`
    let words = argv.len().checked_sub(4)?;
    Some(argv.iter().take(words).map(|word| word.0.clone()).collect())
}

/// Asks the compiler, with an empty source.
fn includes(bench: &Bench<'_>, words: &[OsString], trial: &Trial) -> Option<Vec<PathBuf>> {
    let name = format!("{}.where", trial.name);
    let (source, verbose): (_, &[&str]) = match trial.program {
        Program::Nvcc => (format!("{name}.cu"), &["-Xcompiler", "-v"]),
        Program::Cxx => (format!("{name}.cpp"), &["-v"]),
        Program::Other(_) => (format!("{name}.c"), &["-v"]),
    };
    bench.folder.write(&source, b"").ok()?;
    let tail = verbose.iter().copied().chain(["-E", &source, "-o"]).map(OsString::from).chain([format!("{name}.i").into()]);
    search_list(&bench.said(words.iter().cloned().chain(tail).collect()))
}

/// What gcc and clang print with `-v`. A folder that does not exist yet would be searched once it does, nobody knows in which place: first.
fn search_list(said: &str) -> Option<Vec<PathBuf>> {
    const ABSENT: &str = "ignoring nonexistent directory \"";
    let absent = said.lines().filter_map(|line| line.trim_start().strip_prefix(ABSENT)?.strip_suffix('"'));
    let (_, list) = said.split_once("search starts here:\n")?;
    let (list, _) = list.split_once("End of search list.")?;
    let list = list.lines().filter(|line| !line.ends_with("search starts here:")).map(str::trim);
    let folders: Vec<PathBuf> = absent.chain(list).map(PathBuf::from).filter(|path| path.is_absolute()).collect();
    (!folders.is_empty()).then_some(folders)
}

/// All that the end of this trial hangs on, besides programs and flags; `None`: it hangs on more, or the programs do not tell.
pub fn looks(bench: &Bench<'_>, trial: &Trial, steps: &[Step], folders: &Folders) -> Option<Vec<Look>> {
    let missing = match steps.iter().find_map(Step::failure) {
        Some(failure) => Some(missing(failure)?),
        None => None,
    };
    let places = folders.0.get(&compiler(steps)?)?.as_ref()?;
    let mut headers: BTreeSet<&str> = trial.headers().collect();
    let mut beside = None;
    if let Some(Missing { header: true, name, line }) = &missing {
        headers.insert(name);
        // `#include "X"` looks beside the file that says so, whose name the line begins with.
        beside = line.split(':').next().map(Path::new).filter(|file| file.is_absolute()).and_then(Path::parent);
    }
    let of_header = |name: &str| -> Vec<HostPath> {
        let own = beside.filter(|_| missing.as_ref().is_some_and(|missing| missing.name == name));
        own.into_iter().chain(places.iter().map(PathBuf::as_path)).map(|place| HostPath::new(place.join(name))).collect()
    };
    let mut files: BTreeMap<&str, Vec<HostPath>> = headers.into_iter().map(|name| (name, of_header(name))).collect();
    let link = steps.iter().find(|step| step.name == StepName::Link && !matches!(step.outcome, Outcome::NotReached { .. }));
    let attempts = link.and_then(|step| step.command.as_ref()).map(|command| attempts(bench, &command.argv));
    for (name, tried) in attempts.iter().flatten() {
        files.insert(name, tried.clone());
    }
    let looks: BTreeMap<&str, Look> = files.into_iter().map(|(name, files)| (name, Look::new(bench.host, files))).collect();
    let there = |name: &str| looks.get(name).is_none_or(|look| look.files.is_empty() || look.found.is_some());
    if missing.is_some_and(|missing| there(missing.name)) || looks.values().any(|look| look.files.is_empty()) {
        return None;
    }
    Some(looks.into_values().collect())
}

/// What the failure says that there is not.
struct Missing<'a> {
    /// Else a library.
    header: bool,
    name: &'a str,
    line: &'a str,
}

fn missing(failure: &Failure) -> Option<Missing<'_>> {
    let captures = &failure.meaning.as_ref().filter(|_| matches!(failure.ended, End::Exit { .. }))?.captures;
    let name = captures.get("header").or_else(|| captures.get("library"))?;
    Some(Missing { header: captures.contains_key("header"), name, line: &failure.line })
}

/// The files that GNU ld tries for each library that the command names. Another linker does not tell: none.
fn attempts(bench: &Bench<'_>, argv: &[Raw]) -> BTreeMap<String, Vec<HostPath>> {
    let names = argv.iter().filter_map(|word| word.0.to_str()?.strip_prefix("-l"));
    let mut tried: BTreeMap<String, Vec<HostPath>> = names.map(|name| (name.to_owned(), Vec::new())).collect();
    if tried.is_empty() {
        return tried;
    }
    let words = argv.iter().map(|word| word.0.clone()).chain(["-Wl,--verbose".into()]).collect();
    for line in bench.said(words).lines() {
        let Some(path) = attempt(line) else { continue };
        let library = path.file_name().and_then(|name| name.to_str()).and_then(|name| name.strip_prefix("lib"));
        let name = library.and_then(|name| name.strip_suffix(".so").or_else(|| name.strip_suffix(".a")));
        if let Some(files) = name.and_then(|name| tried.get_mut(name)).filter(|_| path.is_absolute()) {
            files.push(HostPath::new(path));
        }
    }
    tried
}

/// `attempt to open /usr/lib/libaio.so failed`
fn attempt(line: &str) -> Option<&Path> {
    let path = line.strip_prefix("attempt to open ")?;
    path.strip_suffix(" failed").or_else(|| path.strip_suffix(" succeeded")).map(Path::new)
}

#[cfg(test)]
#[expect(clippy::unwrap_used, clippy::disallowed_methods)]
mod tests {
    use super::*;
    use crate::host::Live;
    use std::fs;

    #[test]
    fn lists_of_gcc_and_clang() {
        let gcc = "Using built-in specs.\nignoring duplicate directory \"/a\"\n  as it is a non-system directory that duplicates a system directory\n\
                   ignoring nonexistent directory \"/usr/local/include/x\"\n#include \"...\" search starts here:\n\
                   #include <...> search starts here:\n /opt/cuda/include\n relative\n /usr/include\nEnd of search list.\n /no\n";
        let paths = |list: &[&str]| list.iter().map(PathBuf::from).collect::<Vec<_>>();
        assert_eq!(search_list(gcc).unwrap(), paths(&["/usr/local/include/x", "/opt/cuda/include", "/usr/include"]));
        assert_eq!(search_list("error: unknown argument: -v\n"), None);
        assert_eq!(attempt("attempt to open /l/libaio.a failed"), Some(Path::new("/l/libaio.a")));
        assert_eq!(attempt("/usr/bin/ld: cannot find -laio"), None);
    }

    #[test]
    fn a_look_holds_until_another_file_is_first() {
        let root = tempfile::tempdir().unwrap();
        let file = |name: &str| HostPath::new(root.path().join(name));
        let host = Live::with_env(Default::default());
        fs::create_dir(root.path().join("first")).unwrap();
        let files = vec![file("none/x.h"), file("first/x.h"), file("second.h")];
        let absent = Look::new(&host, files.clone());
        assert!(absent.found.is_none() && absent.holds(&host));
        fs::write(file("second.h").0, "1").unwrap();
        let second = Look::new(&host, files.clone());
        assert!(!absent.holds(&host) && second.holds(&host));
        fs::write(file("first/x.h").0, "1").unwrap();
        assert!(!second.holds(&host));
        let first = Look::new(&host, files);
        fs::write(file("first/x.h").0, "longer").unwrap();
        assert!(!first.holds(&host));
    }
}
