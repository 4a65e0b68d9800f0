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
use crate::knowledge::Knowledge;
use crate::knowledge::schema::cuda::NvccAbility;
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
    /// A program in the toolkit's own `bin`, which nvcc searches before PATH.
    ToolkitBin,
    /// The script that Debian's and Ubuntu's toolkit has there: it runs the newest `gcc-N` this nvcc takes that has its `g++-N` on PATH,
    /// and stops with `No supported gcc/g++ host compiler found` where there is none.
    DistributionScript,
    /// The compiler this Python was built with, taken by setuptools; its name is not known, only guessed.
    Python,
}

impl ChosenBy {
    /// For evidence.
    pub fn source(&self) -> Option<Source> {
        match self {
            Self::Variable(name) | Self::CcbinFlag(name) => Some(Source::variable(*name)),
            Self::Default | Self::ToolkitBin | Self::DistributionScript | Self::Python => None,
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
pub fn nvcc_host<'a>(facts: &'a Snapshot, know: &Knowledge, home: &CudaHome<'a>, path: BuildPath) -> Option<HostCompiler<'a>> {
    home.value.as_ref()?;
    let flags = |name: &'static str| ccbin_in(facts.env.get(name)?).map(|value| (ChosenBy::CcbinFlag(name), value));
    // torch passes CC on even when it is empty.
    let cc = || facts.env.get("CC").map(|value| (ChosenBy::CcbinFlag("CC"), value.to_owned()));
    let variable = || {
        let value = facts.env.get("NVCC_CCBIN").filter(|_| reads_nvcc_ccbin(know, home))?;
        Some((ChosenBy::Variable("NVCC_CCBIN"), value.to_owned()))
    };
    let said = flags("NVCC_APPEND_FLAGS").or_else(cc).or_else(|| flags("NVCC_PREPEND_FLAGS")).or_else(variable);
    let folders = nvcc_folders(facts, home);
    let Some((by, value)) = said else {
        if let Some(picked) = distribution_gcc(facts, know, home, &folders) {
            return Some(picked);
        }
        let own = folders.len().saturating_sub(search::path_folders(facts).len());
        let hit = search::which_in(facts, &folders, "gcc");
        let in_toolkit = hit.as_ref().and_then(|hit| hit.entry).is_some_and(|entry| entry <= own);
        let by = if in_toolkit { ChosenBy::ToolkitBin } else { ChosenBy::Default };
        return Some(describe(facts, &folders, vec!["gcc".into()], by));
    };
    if value == "gcc"
        && let Some(picked) = distribution_gcc(facts, know, home, &folders)
    {
        return Some(picked);
    }
    // The ninja file of a JIT build holds CC unquoted, so the shell splits it; everywhere else it is one word.
    let words = if by == ChosenBy::CcbinFlag("CC") && path == BuildPath::Jit { shell_words(&value) } else { vec![value] };
    let words = match words.split_first() {
        Some((first, rest)) => [in_folder(facts, first)].into_iter().chain(rest.iter().cloned()).collect(),
        None => vec![OsString::new()],
    };
    Some(describe(facts, &folders, words, by))
}

/// The compiler that a JIT build, a build with ninja, and torch's own checks run for C++. torch 2.13 and later put a ccache or sccache that
/// PATH finds in front, unless TORCH_NO_COMPILER_WRAPPER is set; the compiler stays the same.
pub fn cxx(facts: &Snapshot) -> HostCompiler<'_> {
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

/// Whether this nvcc reads NVCC_CCBIN: by its strings, else by its release; one that nobody knows does, as every newer one.
fn reads_nvcc_ccbin(know: &Knowledge, home: &CudaHome) -> bool {
    let Some(kit) = home.toolkit else { return true };
    let told = kit.nvcc.value().and_then(|nvcc| nvcc.reads_nvcc_ccbin);
    told.or_else(|| know.nvcc_can(NvccAbility::ReadsCcbinVariable, kit.release()?)).unwrap_or(true)
}

/// What the script of a distribution's toolkit runs. Source: /usr/lib/nvidia-cuda-toolkit/bin/gcc of Debian's 11.8 packages.
fn distribution_gcc<'a>(facts: &'a Snapshot, know: &Knowledge, home: &CudaHome<'a>, folders: &[PathBuf]) -> Option<HostCompiler<'a>> {
    let kit = home.toolkit?;
    folders.iter().find(|folder| folder.ends_with("nvidia-cuda-toolkit/bin"))?;
    let by_table = || know.max_gcc(kit.nvcc.value()?.version.as_ref()?);
    let newest = kit.host_limits.value().and_then(|limits| limits.gcc_max).or_else(by_table)?;
    let path = search::path_folders(facts);
    let fits = |version: &u32| search::which_in(facts, &path, format!("g++-{version}")).is_some_and(|hit| search::can_start(hit.program));
    let by = ChosenBy::DistributionScript;
    Some(match (6..=newest).rev().find(fits) {
        Some(version) => describe(facts, &path, vec![format!("gcc-{version}").into()], by),
        None => HostCompiler { words: vec!["gcc".into()], program: None, compiler: None, by, found: Some(false) },
    })
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
    // Where `bin` is a real folder, as it nearly always is, `..` is the folder that its path names.
    let own = bin.iter().flat_map(|bin| bin.parent().map(|home| home.join("nvvm/bin")).into_iter().chain([bin.clone()]));
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
pub fn shell_words(text: &OsStr) -> Vec<OsString> {
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
    // The programs that these variables name are collected, so what is not among them is not there.
    let found = if facts.programs.is_empty() && compiler.is_none() { None } else { Some(program.is_some() || compiler.is_some()) };
    HostCompiler { words, program, compiler, by, found }
}

#[cfg(test)]
#[expect(clippy::unwrap_used)]
mod tests {
    use super::super::cuda_home::cuda_home;
    use super::*;
    use crate::facts::env::NamedPlace;
    use crate::facts::observed::Observed;
    use crate::facts::program::ProgramKind;
    use crate::facts::toolkit::Toolkit;

    fn toolkit(root: &str, version: &str, reads: Option<bool>) -> Toolkit {
        let nvcc = format!(
            r#"{{"state": "seen", "value": {{"path": "{root}/bin/nvcc", "program": "{root}/bin/nvcc", "kind": {{"is": "program"}},
                "version": "{version}", "reads_nvcc_ccbin": {reads}}}}}"#,
            reads = reads.map_or("null".to_owned(), |reads| reads.to_string())
        );
        let text = format!(r#"{{"root": "{root}", "real": "{root}", "sources": [], "layout": "nvidia", "nvcc": {nvcc}}}"#);
        serde_json::from_str(&text).unwrap()
    }

    fn machine(version: &str, programs: &[&str], env: &[(&str, &str)]) -> Snapshot {
        let mut facts = Snapshot { toolkits: Observed::seen(vec![toolkit("/cuda", version, None)]), ..Snapshot::default() };
        for (name, value) in [("PATH", "/usr/bin"), ("CUDA_HOME", "/cuda")].iter().chain(env) {
            facts.env.set(name, *value);
        }
        facts.programs = programs
            .iter()
            .map(|path| Program {
                name: path.rsplit('/').next().unwrap().to_owned(),
                path: (*path).into(),
                real: (*path).into(),
                kind: ProgramKind::Elf,
            })
            .collect();
        facts
    }

    fn told(facts: &Snapshot, path: BuildPath) -> (Vec<String>, Option<String>, ChosenBy) {
        let home = cuda_home(facts, &Knowledge::embedded(), None);
        let host = nvcc_host(facts, &Knowledge::embedded(), &home, path).unwrap();
        let words = host.words.iter().map(|word| word.to_string_lossy().into_owned()).collect();
        (words, host.program.map(|program| program.path.to_string()), host.by)
    }

    const PROGRAMS: &[&str] = &["/usr/bin/gcc", "/usr/bin/gcc-11", "/usr/bin/g++", "/x/gcc", "/x/flag", "/x/pre", "/x/app"];

    #[test]
    fn precedence() {
        let all = [
            ("CC", "/x/flag"),
            ("NVCC_PREPEND_FLAGS", "-O3 -ccbin /x/pre"),
            ("NVCC_APPEND_FLAGS", "--compiler-bindir=/x/app"),
            ("NVCC_CCBIN", "gcc-11"),
        ];
        let programs = |kept: &[usize]| {
            let env: Vec<_> = kept.iter().map(|at| all[*at]).collect();
            told(&machine("13.0.88", PROGRAMS, &env), BuildPath::Setup).1.unwrap()
        };
        assert_eq!(programs(&[0, 1, 2, 3]), "/x/app");
        assert_eq!(programs(&[0, 1, 3]), "/x/flag");
        assert_eq!(programs(&[1, 3]), "/x/pre");
        assert_eq!(programs(&[3]), "/usr/bin/gcc-11");
        assert_eq!(programs(&[]), "/usr/bin/gcc");
        let cxx_only = machine("13.0.88", PROGRAMS, &[("CXX", "/x/flag"), ("CUDAHOSTCXX", "/x/flag")]);
        assert_eq!(told(&cxx_only, BuildPath::Jit).1.unwrap(), "/usr/bin/gcc");
    }

    #[test]
    fn old_nvcc_does_not_read_the_variable() {
        let old = machine("12.4.131", PROGRAMS, &[("NVCC_CCBIN", "/none")]);
        assert_eq!(told(&old, BuildPath::Setup).1.unwrap(), "/usr/bin/gcc");
        let mut read = machine("12.4.131", PROGRAMS, &[("NVCC_CCBIN", "/x/app")]);
        read.toolkits = Observed::seen(vec![toolkit("/cuda", "12.4.131", Some(true))]);
        assert_eq!(told(&read, BuildPath::Setup).1.unwrap(), "/x/app", "what its own strings say comes first");
        let empty = machine("13.0.88", PROGRAMS, &[("NVCC_CCBIN", "")]);
        assert_eq!(told(&empty, BuildPath::Setup), (vec![String::new()], None, ChosenBy::Variable("NVCC_CCBIN")));
    }

    #[test]
    fn folders_and_the_toolkits_own_gcc() {
        let mut folder = machine("13.0.88", PROGRAMS, &[("NVCC_CCBIN", "/x")]);
        folder.env.places = vec![NamedPlace { path: "/x".into(), state: PlaceState::Folder }];
        assert_eq!(told(&folder, BuildPath::Setup).1.unwrap(), "/x/gcc");
        let own = [PROGRAMS, &["/cuda/bin/gcc"]].concat();
        let own = machine("13.0.88", &own, &[]);
        assert_eq!(told(&own, BuildPath::Setup), (vec!["gcc".to_owned()], Some("/cuda/bin/gcc".to_owned()), ChosenBy::ToolkitBin));
        // Its profile puts `nvvm/bin` first of all.
        let both = [PROGRAMS, &["/cuda/bin/gcc", "/cuda/nvvm/bin/gcc"]].concat();
        let both = machine("13.0.88", &both, &[]);
        assert_eq!(told(&both, BuildPath::Setup).1.unwrap(), "/cuda/nvvm/bin/gcc");
    }

    #[test]
    fn the_distributions_script() {
        let of = |programs: &[&str]| {
            let mut facts = machine("11.8.89", programs, &[("CUDA_HOME", "/usr")]);
            let text = r#"{"root": "/usr", "real": "/usr", "sources": [], "layout": "distribution", "nvcc": {"state": "seen", "value":
                {"path": "/usr/bin/nvcc", "program": "/usr/lib/nvidia-cuda-toolkit/bin/nvcc", "kind": {"is": "distribution-script"},
                "version": "11.8.89", "reads_nvcc_ccbin": false}}}"#;
            facts.toolkits = Observed::seen(vec![serde_json::from_str(text).unwrap()]);
            let told = told(&facts, BuildPath::Setup);
            (told.1, told.2)
        };
        let every = ["/usr/bin/gcc", "/usr/bin/gcc-12", "/usr/bin/g++-12", "/usr/bin/gcc-11", "/usr/bin/g++-10", "/usr/bin/gcc-10"];
        assert_eq!(of(&every), (Some("/usr/bin/gcc-10".to_owned()), ChosenBy::DistributionScript), "gcc-11 has no g++-11");
        assert_eq!(of(&every[..3]), (None, ChosenBy::DistributionScript));
    }

    #[test]
    fn two_words_in_cc() {
        let facts = machine("13.0.88", PROGRAMS, &[("CC", "ccache gcc")]);
        let jit = told(&facts, BuildPath::Jit);
        assert_eq!((jit.0, jit.1), (vec!["ccache".to_owned(), "gcc".to_owned()], None));
        assert_eq!(told(&facts, BuildPath::Setup).0, ["ccache gcc"]);
        let home = cuda_home(&facts, &Knowledge::embedded(), None);
        assert_eq!(nvcc_host(&facts, &Knowledge::embedded(), &home, BuildPath::Jit).unwrap().found, Some(false));
    }

    #[test]
    fn words_of_nvcc() {
        let of = |text: &str| ccbin_in(OsStr::new(text)).map(|value| value.to_string_lossy().into_owned());
        assert_eq!(of("\t-ccbin\t /a "), Some("/a".to_owned()));
        assert_eq!(of("-ccbin /a -ccbin=/b"), Some("/b".to_owned()));
        assert_eq!(of("-ccbin \"/a b\""), Some("\"/a b\"".to_owned()), "quotes stay");
        assert_eq!(of("-ccbin '/a b'"), Some("'/a".to_owned()), "single quotes mean nothing");
        assert_eq!(of("-Xcompiler \"-O1 -g\" -ccbin /a"), Some("/a".to_owned()));
        assert_eq!(of("-ccbin"), Some(String::new()));
        assert_eq!(of("-O3 -ccbinary"), None);
    }

    #[test]
    fn cxx_is_read_by_the_host_side() {
        let facts = machine("13.0.88", PROGRAMS, &[("CXX", "/usr/bin/g++ -m64")]);
        let host = cxx(&facts);
        assert_eq!((host.words.len(), host.by.clone()), (2, ChosenBy::Variable("CXX")));
        assert_eq!(host.program.unwrap().path, "/usr/bin/g++".into());
        assert_eq!(cxx(&machine("13.0.88", PROGRAMS, &[])).found, Some(false), "torch runs `c++`, whatever `g++` there is");
    }
}
