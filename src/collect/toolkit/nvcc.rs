//! The program in nvcc's place: what it is, what it starts, and what that says in its strings.

use super::Look;
use super::script;
use crate::binary::nvcc::{NvccStrings, nvcc_strings};
use crate::collect::env::reason;
use crate::collect::program::stem;
use crate::collect::{open, search};
use crate::facts::observed::Observed;
use crate::facts::program::ProgramKind;
use crate::facts::raw::HostPath;
use crate::facts::toolkit::{Nvcc, NvccKind};
use crate::host::Kind;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// Wrappers in wrappers that are followed.
const DEEPEST: usize = 8;
const DEBIAN: &str = "/usr/lib/nvidia-cuda-toolkit";

/// How a chain of wrappers ends.
struct End {
    /// The last file reached.
    program: PathBuf,
    /// The name it is started by.
    started_as: PathBuf,
    strings: Option<NvccStrings>,
    broken: Option<String>,
}

/// What a file in nvcc's place is.
enum Step {
    Program,
    /// By what, and the path of what it starts where that could be read.
    Wrapper(String, Option<PathBuf>),
    Broken(String),
    Unreadable(String),
}

/// `root/bin/nvcc`, and the folder in which nvcc looks for its profile (none where the program is not known).
pub fn look(look: &Look<'_>, root: &Path) -> (Observed<Nvcc>, Option<PathBuf>) {
    let path = root.join("bin/nvcc");
    match look.host.link_metadata(&path) {
        Ok(_) => {}
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            return (Observed::absent([path.to_string_lossy()]), None);
        }
        Err(error) => return (Observed::failed(format!("{}: {}", path.display(), reason(&error))), None),
    }
    let nvcc = |program: &Path, kind, strings: Option<NvccStrings>| {
        let strings = strings.unwrap_or_default();
        Observed::seen(Nvcc {
            path: path.clone().into(),
            program: program.into(),
            kind,
            version: strings.version,
            targets: strings.targets,
            reads_nvcc_ccbin: strings.reads_nvcc_ccbin,
        })
    };
    let real = look.host.real_path(&path).unwrap_or_else(|_| path.clone());
    match step(look, &path) {
        Step::Unreadable(why) => (Observed::failed(format!("{}: {why}", path.display())), None),
        Step::Broken(why) => (nvcc(&real, NvccKind::Broken { why }, None), None),
        Step::Program => match end(look, &path, &real) {
            End { broken: Some(why), .. } => (nvcc(&real, NvccKind::Broken { why }, None), None),
            // A program without a word of CUDA: it may start nvcc, and nobody can say which.
            End { strings: Some(strings), .. } if strings.version.is_none() && strings.targets.is_empty() => {
                (nvcc(&real, NvccKind::Wrapper { by: "another program".to_owned(), runs: None, found: false }, None), None)
            }
            End { strings, .. } => (nvcc(&real, NvccKind::Program, strings), path.parent().map(Path::to_owned)),
        },
        Step::Wrapper(by, None) => (nvcc(&real, NvccKind::Wrapper { by, runs: None, found: false }, None), None),
        Step::Wrapper(by, Some(target)) => {
            let end = follow(look, &target);
            let found = end.broken.is_none();
            let kind = if found && target.starts_with(DEBIAN) {
                NvccKind::DistributionScript
            } else {
                NvccKind::Wrapper { by, runs: Some(HostPath::new(&target)), found }
            };
            let here = end.started_as.parent().filter(|_| found && end.strings.is_some()).map(Path::to_owned);
            (nvcc(&end.program, kind, end.strings), here)
        }
    }
}

/// Goes on from what a wrapper starts.
fn follow(look: &Look<'_>, target: &Path) -> End {
    let mut at = target.to_owned();
    for _ in 0..DEEPEST {
        let real = look.host.real_path(&at).unwrap_or_else(|_| at.clone());
        let broken = match step(look, &at) {
            Step::Program => return end(look, &at, &real),
            Step::Wrapper(_, Some(next)) => {
                at = next;
                continue;
            }
            // It is there; what it starts is its own affair.
            Step::Wrapper(_, None) => None,
            Step::Broken(why) | Step::Unreadable(why) => Some(why),
        };
        return End { program: real, started_as: at, strings: None, broken };
    }
    End { program: at.clone(), started_as: at, strings: None, broken: Some("it starts itself".to_owned()) }
}

/// The strings of an ELF program in nvcc's place.
fn end(look: &Look<'_>, at: &Path, real: &Path) -> End {
    let read = look.nvcc.get(real, || {
        let file = open(look.host, real).map_err(|error| reason(&error))?;
        nvcc_strings(&file).map_err(|error| error.to_string())
    });
    let (strings, broken) = match read {
        Ok(strings) => (Some(strings), None),
        Err(why) => (None, Some(why)),
    };
    End { program: real.to_owned(), started_as: at.to_owned(), strings, broken }
}

fn step(look: &Look<'_>, at: &Path) -> Step {
    let real = match look.host.real_path(at) {
        Ok(real) => real,
        Err(error) if error.kind() == ErrorKind::NotFound => {
            let link = look.host.link_metadata(at).is_ok_and(|meta| meta.kind == Kind::Link);
            return Step::Broken(if link { "a link to a file that is not there" } else { "there is no such file" }.to_owned());
        }
        Err(error) => return Step::Broken(reason(&error)),
    };
    let name = real.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    match look.inspector.kind(&real) {
        ProgramKind::Elf if ["ccache", "sccache", "distcc"].contains(&stem(&name)) => {
            let target = on_path(look, "nvcc", &real);
            Step::Wrapper(stem(&name).to_owned(), target)
        }
        ProgramKind::Elf => Step::Program,
        ProgramKind::Script { interpreter_found: false, interpreter } => {
            Step::Broken(format!("its interpreter {interpreter} is not there"))
        }
        ProgramKind::Script { .. } => script(look, at, &real),
        ProgramKind::Broken { why } => Step::Broken(why),
        ProgramKind::Folder => Step::Broken("a folder".to_owned()),
        ProgramKind::NotExecutable => Step::Broken("it has no execute permission".to_owned()),
        ProgramKind::Unreadable { why } => Step::Unreadable(why),
    }
}

fn script(look: &Look<'_>, at: &Path, real: &Path) -> Step {
    let Ok(text) = look.host.read_text(real) else { return Step::Wrapper("script".to_owned(), None) };
    let folder = |path: &Path| path.parent().map(Path::to_owned).unwrap_or_default();
    let variable = |name: &str| look.host.var(name).map(|value| value.to_string_lossy().into_owned());
    let Some(start) = script::starts(&text, &folder(at), &folder(real), &variable) else { return Step::Wrapper("script".to_owned(), None) };
    let target = if start.program.contains('/') {
        let path = Path::new(&start.program);
        path.is_absolute().then(|| search::tidy(path))
    } else {
        on_path(look, &start.program, real)
    };
    Step::Wrapper(start.through.unwrap_or_else(|| "script".to_owned()), target)
}

/// The first program of that name on PATH (for ccache, on CCACHE_PATH where that is set) that is another file than `not`.
fn on_path(look: &Look<'_>, name: &str, not: &Path) -> Option<PathBuf> {
    let variable = if look.host.var("CCACHE_PATH").is_some_and(|value| !value.is_empty()) { "CCACHE_PATH" } else { "PATH" };
    search::entries(look.host, variable).into_iter().map(|entry| entry.path.join(name)).find(|path| {
        look.host.metadata(path).is_ok_and(|meta| meta.executable()) && look.host.real_path(path).is_ok_and(|real| real != not)
    })
}
