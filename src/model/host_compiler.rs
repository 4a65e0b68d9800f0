//! Which host compilers a build runs: nvcc's own (`gcc` by default, whatever CXX says), and the C++ and C compilers beside it.
//!
//! Order of precedence and splitting of words were tried on nvcc 13.0.88 with compilers that say their names: the last `-ccbin` counts, in
//! the order NVCC_PREPEND_FLAGS, command line, NVCC_APPEND_FLAGS; without any, NVCC_CCBIN, even when it is empty; without that, `gcc`.

use super::build::BuildPath;
use super::cuda_home::CudaHome;
use super::search;
use crate::facts::compiler::Compiler;
use crate::facts::env::PlaceState;
use crate::facts::program::Program;
use crate::facts::snapshot::Snapshot;
use crate::facts::source::Source;
use crate::facts::toolkit::NvccKind;
use crate::facts::torch::Torch;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// A compiler command and what it leads to.
#[derive(Debug, Clone, PartialEq)]
pub struct HostCompiler<'a> {
    /// The command as words. More than one where a variable holds flags or a launcher; nvcc takes none but the first for the compiler.
    pub words: Vec<OsString>,
    /// The file that runs, where it is known: found on PATH, or at the path given.
    pub program: Option<&'a Program>,
    /// What that file is. A launcher (ccache) is a compiler of the family `Wrapper`.
    pub compiler: Option<&'a Compiler>,
    pub by: ChosenBy,
    /// Whether the command can be found; `None` where the facts do not tell.
    pub found: Option<bool>,
}

/// What decides for a compiler.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ChosenBy {
    /// CC, CXX or NVCC_CCBIN.
    Variable(&'static str),
    /// A `-ccbin` in NVCC_PREPEND_FLAGS or NVCC_APPEND_FLAGS, or the one torch makes of CC.
    CcbinFlag(&'static str),
    /// nvcc's default name `gcc`, or torch's `c++`, on PATH.
    Default,
    /// A program in the toolkit's own `bin`, which nvcc searches before PATH (Debian's toolkit has a script there that picks a gcc).
    ToolkitBin,
    /// The compiler this Python was built with, taken by setuptools; its name is not known, only guessed.
    Python,
}

impl ChosenBy {
    /// For evidence.
    pub fn source(&self) -> Option<Source> {
        match self {
            Self::Variable(name) | Self::CcbinFlag(name) => Some(Source::variable(*name)),
            Self::Default | Self::ToolkitBin | Self::Python => None,
        }
    }
}

impl HostCompiler<'_> {
    /// The first word, for people.
    pub fn name(&self) -> String {
        self.words.first().map(|word| word.to_string_lossy().into_owned()).unwrap_or_default()
    }

    /// Words behind the first: to nvcc they are input files, which it refuses.
    pub fn extra_words(&self) -> &[OsString] {
        self.words.get(1..).unwrap_or_default()
    }
}

/// The compiler that nvcc runs when torch or DeepSpeed starts it. `None` without a toolkit path (CUDA_HOME is None).
pub fn nvcc_host<'a>(facts: &'a Snapshot, home: &CudaHome<'a>, path: BuildPath) -> Option<HostCompiler<'a>> {
    home.value.as_ref()?;
    let flags = |name: &'static str| ccbin_in(facts.env.get(name)?).map(|value| (ChosenBy::CcbinFlag(name), value));
    // torch passes CC on even when it is empty.
    let cc = || facts.env.get("CC").map(|value| (ChosenBy::CcbinFlag("CC"), value.to_owned()));
    let variable = || {
        let value = facts.env.get("NVCC_CCBIN").filter(|_| reads_nvcc_ccbin(home))?;
        Some((ChosenBy::Variable("NVCC_CCBIN"), value.to_owned()))
    };
    let said = flags("NVCC_APPEND_FLAGS").or_else(cc).or_else(|| flags("NVCC_PREPEND_FLAGS")).or_else(variable);
    let folders = nvcc_folders(facts, home);
    let Some((by, value)) = said else {
        let own = folders.len().saturating_sub(search::path_folders(facts).len());
        let hit = search::which_in(facts, &folders, "gcc");
        let in_toolkit = hit.as_ref().and_then(|hit| hit.entry).is_some_and(|entry| entry <= own);
        let by = if in_toolkit { ChosenBy::ToolkitBin } else { ChosenBy::Default };
        return Some(describe(facts, &folders, vec!["gcc".into()], by));
    };
    // The ninja file of a JIT build holds CC unquoted, so the shell splits it; everywhere else it is one word.
    let words = if by == ChosenBy::CcbinFlag("CC") && path == BuildPath::Jit { shell_words(&value) } else { vec![value] };
    let words = match words.split_first() {
        Some((first, rest)) => [in_folder(facts, first)].into_iter().chain(rest.iter().cloned()).collect(),
        None => vec![OsString::new()],
    };
    Some(describe(facts, &folders, words, by))
}

/// The compiler that a JIT build, a build with ninja, and torch's own checks run for C++.
pub fn cxx<'a>(facts: &'a Snapshot, torch: Option<&Torch>) -> HostCompiler<'a> {
    let _ = torch;
    let (words, by) = match facts.env.get("CXX") {
        Some(value) => (shell_words(value), ChosenBy::Variable("CXX")),
        None => (vec!["c++".into()], ChosenBy::Default),
    };
    describe(facts, &search::path_folders(facts), words, by)
}

/// The compiler that setuptools runs for C++ where ninja is not used: DeepSpeed's pre-build by default, and torch's fallback.
pub fn distutils_cxx(facts: &Snapshot) -> HostCompiler<'_> {
    let (words, by) = match facts.env.get("CXX") {
        Some(value) => (shell_words(value), ChosenBy::Variable("CXX")),
        None => (vec!["g++".into()], ChosenBy::Python),
    };
    describe(facts, &search::path_folders(facts), words, by)
}

/// The C compiler of setuptools: what DeepSpeed's libaio and cuFile tests run.
pub fn distutils_cc(facts: &Snapshot) -> HostCompiler<'_> {
    let (words, by) = match facts.env.get("CC") {
        Some(value) => (shell_words(value), ChosenBy::Variable("CC")),
        None => (vec!["gcc".into()], ChosenBy::Python),
    };
    describe(facts, &search::path_folders(facts), words, by)
}

/// Whether this nvcc reads NVCC_CCBIN: by its strings, else by its release (12.5 and later).
fn reads_nvcc_ccbin(home: &CudaHome) -> bool {
    let Some(kit) = home.toolkit else { return true };
    let told = kit.nvcc.value().and_then(|nvcc| nvcc.reads_nvcc_ccbin);
    told.unwrap_or_else(|| kit.release().is_none_or(|release| (release.major, release.minor) >= (12, 5)))
}

/// The folders nvcc searches: its profile puts `nvvm/bin` and its own `bin` before PATH. Its `bin` is the folder of the path that is run,
/// links not resolved; a wrapper script starts the real nvcc from another one.
pub fn nvcc_folders(facts: &Snapshot, home: &CudaHome) -> Vec<PathBuf> {
    let run = match home.toolkit.and_then(|kit| kit.nvcc.value()) {
        Some(nvcc) if nvcc.kind == NvccKind::DistributionScript => Some(nvcc.program.0.clone()),
        Some(nvcc) => match &nvcc.kind {
            NvccKind::Wrapper { runs: Some(runs), .. } => Some(runs.0.clone()),
            _ => home.nvcc().map(|path| path.0),
        },
        None => home.nvcc().map(|path| path.0),
    };
    let bin = run.and_then(|run| run.parent().map(Path::to_owned));
    let own = bin.iter().flat_map(|bin| [bin.join("../nvvm/bin"), bin.clone()]);
    own.chain(search::path_folders(facts)).collect()
}

/// The value of the last `-ccbin` in flags as nvcc splits them. A flag without value takes the word that follows on the command line;
/// here it is empty.
pub fn ccbin_in(flags: &OsStr) -> Option<OsString> {
    let words = nvcc_words(flags);
    let mut found = None;
    let mut at = words.iter();
    while let Some(word) = at.next() {
        if matches!(word.as_slice(), b"-ccbin" | b"--compiler-bindir") {
            found = Some(at.next().cloned().unwrap_or_default());
        } else if let Some(value) = [&b"-ccbin="[..], b"--compiler-bindir="].iter().find_map(|start| word.strip_prefix(*start)) {
            found = Some(value.to_vec());
        }
    }
    found.map(|bytes| OsStr::from_bytes(&bytes).to_owned())
}

/// Words as nvcc reads its variables: split at blanks and tabs; double quotes hold words together and stay in them; single quotes and
/// backslashes mean nothing.
fn nvcc_words(text: &OsStr) -> Vec<Vec<u8>> {
    let mut words = Vec::new();
    let mut word: Option<Vec<u8>> = None;
    let mut quoted = false;
    for byte in text.as_bytes() {
        if !quoted && matches!(byte, b' ' | b'\t') {
            words.extend(word.take());
            continue;
        }
        quoted ^= *byte == b'"';
        word.get_or_insert_default().push(*byte);
    }
    words.extend(word);
    words
}

/// Words as a shell reads them; text that no shell can read (an open quote) stays one word.
fn shell_words(text: &OsStr) -> Vec<OsString> {
    match shlex::bytes::split(text.as_bytes()) {
        Some(words) => words.into_iter().map(|word| OsStr::from_bytes(&word).to_owned()).collect(),
        None => vec![text.to_owned()],
    }
}

/// nvcc takes a folder for `<folder>/gcc`.
fn in_folder(facts: &Snapshot, value: &OsStr) -> OsString {
    let path = Path::new(value);
    let named = facts.env.state(path) == Some(&PlaceState::Folder);
    let is_folder = named || value.as_bytes().ends_with(b"/") || {
        let slash = value.as_bytes().contains(&b'/');
        slash && search::program_at(facts, path).is_none() && search::program_at(facts, &path.join("gcc")).is_some()
    };
    if is_folder { path.join("gcc").into_os_string() } else { value.to_owned() }
}

fn describe<'a>(facts: &'a Snapshot, folders: &[PathBuf], words: Vec<OsString>, by: ChosenBy) -> HostCompiler<'a> {
    let empty = OsString::new();
    let first = words.first().unwrap_or(&empty);
    let program = search::which_in(facts, folders, first).map(|hit| hit.program);
    let path = search::absolute(facts, Path::new(first));
    let all = facts.compilers.value().map(Vec::as_slice).unwrap_or_default();
    let slash = first.as_bytes().contains(&b'/');
    let compiler = match (program, path) {
        (Some(program), _) => all.iter().find(|c| c.has_path(&program.path)).or_else(|| all.iter().find(|c| c.has_path(&program.real))),
        (None, Some(path)) if slash => all.iter().find(|c| c.has_path(&path)),
        _ => None,
    };
    let missing = || matches!(facts.env.state(Path::new(first)), Some(PlaceState::Missing | PlaceState::Dangling { .. }));
    let collected = || facts.programs.iter().any(|program| *program.name == **first);
    let found = match () {
        () if program.is_some() || compiler.is_some() => Some(true),
        () if first.is_empty() => Some(false),
        () if slash => missing().then_some(false),
        // A name of which the facts know some file, but none on this search.
        () if collected() || ["gcc", "g++", "c++", "cc"].iter().any(|name| *first == **name) => Some(false),
        () => None,
    };
    HostCompiler { words, program, compiler, by, found }
}
