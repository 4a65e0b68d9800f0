//! C and C++ compilers: versions from the strings of the program, from its name, or, on the machine itself, by asking it.

use super::open;
use super::program::{Asked, asked, stem};
use crate::binary::compiler::compiler_strings;
use crate::facts::compiler::{Compiler, Family, Language};
use crate::facts::observed::Observed;
use crate::facts::program::{Program, ProgramKind};
use crate::facts::raw::HostPath;
use crate::host::{Ended, Host, Invocation, System};
use crate::version::Dotted;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

const C: [&str; 4] = ["cc", "clang", "cuda-gcc", "gcc"];
const CXX: [&str; 4] = ["c++", "clang++", "cuda-g++", "g++"];
const CACHES: [&str; 4] = ["ccache", "distcc", "icecc", "sccache"];
/// A version query prints a few hundred bytes.
const KEEP: usize = 4096;

/// The compilers among the programs, each file once for each language its names stand for.
pub fn collect(host: &dyn Host, programs: &[Program], limit: Duration) -> Observed<Vec<Compiler>> {
    let asked = asked(host);
    let mut found: Vec<Compiler> = Vec::new();
    for program in programs.iter().filter(|program| matches!(program.kind, ProgramKind::Elf | ProgramKind::Script { .. })) {
        let Some(language) = language(program, &asked) else { continue };
        match found.iter_mut().find(|compiler| compiler.real == program.real && compiler.language == language) {
            Some(compiler) => compiler.paths.push(program.path.clone()),
            None => found.push(read(host, program, language)),
        }
    }
    if found.is_empty() {
        return Observed::absent(["PATH", "/usr/bin", "/usr/local/bin"]);
    }
    if let Some(system) = host.system() {
        ask(system, &mut found, limit);
    }
    Observed::seen(found)
}

/// What the name stands for; `None` for what is no compiler.
fn language(program: &Program, asked: &Asked) -> Option<Language> {
    let stem = stem(&program.name);
    match () {
        () if C.contains(&stem) => Some(Language::C),
        () if CXX.contains(&stem) => Some(Language::Cxx),
        () if super::program::of_interest(&program.name) => None,
        // What CC, CXX and the like name: `icpx`, `my-g++`.
        () if asked.names.contains(&program.name) || asked.paths.contains(&program.path.0) => {
            let cxx = ["++", "px", "xx", "CC"].iter().any(|end| stem.ends_with(end));
            Some(if cxx { Language::Cxx } else { Language::C })
        }
        () => None,
    }
}

fn read(host: &dyn Host, program: &Program, language: Language) -> Compiler {
    let real: &Path = &program.real;
    let name = real.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let mut compiler = Compiler {
        real: program.real.clone(),
        paths: vec![program.path.clone()],
        family: Family::Other,
        language,
        version: None,
        version_from: String::new(),
        target: None,
        conda: conda(host, real).map(HostPath::new),
        cc1plus: None,
    };
    if CACHES.contains(&stem(&name)) || matches!(program.kind, ProgramKind::Script { .. }) {
        compiler.family = Family::Wrapper;
        return compiler;
    }
    if let Some(strings) = open(host, real).ok().and_then(|file| compiler_strings(&file).ok()) {
        compiler.family = strings.family;
        compiler.target = strings.target;
        if strings.version.is_some() {
            "strings of the program".clone_into(&mut compiler.version_from);
        }
        compiler.version = strings.version;
    }
    // A clang without LLVM's shared libraries says nothing in its strings.
    if compiler.family == Family::Other && ["clang", "clang++"].contains(&stem(&name)) {
        compiler.family = Family::Clang;
    }
    if compiler.version.is_none()
        && compiler.family != Family::Other
        && let Some(version) = version_in_name(&name)
    {
        compiler.version = Some(version);
        "file name".clone_into(&mut compiler.version_from);
    }
    if compiler.family == Family::Gcc && language == Language::Cxx {
        compiler.cc1plus = cc1plus(host, &compiler);
    }
    compiler
}

/// The conda environment that the file lies in.
fn conda(host: &dyn Host, real: &Path) -> Option<PathBuf> {
    let prefix = real.parent()?.parent()?;
    host.is_folder(&prefix.join("conda-meta")).then(|| prefix.to_owned())
}

/// `12` of `x86_64-linux-gnu-gcc-12`, `4.9` of `g++-4.9`.
fn version_in_name(name: &str) -> Option<Dotted> {
    let (_, version) = name.rsplit_once('-')?;
    let plain = version.bytes().all(|b| b.is_ascii_digit() || b == b'.');
    version.parse().ok().filter(|_| plain)
}

/// Whether gcc's C++ compiler proper is there: a `g++` without it is half installed. Its folder is named by target and version below
/// `lib` or `libexec` of the program's prefix; without such a folder nothing is known.
fn cc1plus(host: &dyn Host, compiler: &Compiler) -> Option<bool> {
    let prefix = compiler.real.parent()?.parent()?;
    let major = compiler.version.as_ref()?.major();
    let mut known = None;
    for lib in ["lib", "libexec", "lib64"] {
        let gcc = prefix.join(lib).join("gcc");
        let targets: Vec<PathBuf> = match &compiler.target {
            Some(target) => vec![gcc.join(target)],
            None => host.list(&gcc).unwrap_or_default().into_iter().map(|entry| gcc.join(entry.name)).collect(),
        };
        for target in targets {
            for entry in host.list(&target).unwrap_or_default() {
                let version: Option<Dotted> = entry.name.to_str().and_then(|name| name.parse().ok());
                if version.is_some_and(|version| version.major() == major) {
                    let there = host.is_file(&target.join(&entry.name).join("cc1plus"));
                    known = Some(known.unwrap_or(false) || there);
                }
            }
        }
    }
    known
}

/// Asks the compilers whose version nothing has told, side by side.
fn ask(system: &dyn System, compilers: &mut [Compiler], limit: Duration) {
    thread::scope(|scope| {
        for compiler in compilers.iter_mut().filter(|compiler| compiler.version.is_none()) {
            scope.spawn(move || {
                // By the name it was found under: a cache decides by its name what to run.
                let Some(program) = compiler.paths.first().map(|path| path.0.clone()) else { return };
                let env = vec![("LC_ALL".into(), "C".into())];
                let outcome = system.run(&Invocation { program, args: vec!["--version".into()], env, cwd: None, limit, keep: KEEP });
                if outcome.ended != Ended::Exit(0) {
                    return;
                }
                let text = String::from_utf8_lossy(&outcome.stdout);
                if let Some((family, version)) = said(&text) {
                    if compiler.family != Family::Wrapper {
                        compiler.family = family;
                    }
                    compiler.version = Some(version);
                    "--version".clone_into(&mut compiler.version_from);
                }
            });
        }
    });
}

/// Family and version in what `--version` prints.
fn said(text: &str) -> Option<(Family, Dotted)> {
    let first = text.lines().next()?;
    if let Some((_, rest)) = first.split_once("clang version ") {
        let word = rest.split([' ', '-']).next()?;
        return Some((Family::Clang, word.parse().ok()?));
    }
    // `g++ (Debian 12.2.0-14) 12.2.0`, `gcc (GCC) 11.4.1 20231218 (Red Hat 11.4.1-3)`
    let (_, rest) = first.split_once(") ")?;
    let version = rest.split(' ').next()?.parse().ok()?;
    let family = if text.contains("Free Software Foundation") { Family::Gcc } else { Family::Other };
    Some((family, version))
}

#[cfg(test)]
#[expect(clippy::unwrap_used, clippy::panic, clippy::disallowed_methods)]
mod tests {
    use super::*;
    use crate::collect::{Notes, program};
    use crate::host::{Environment, Live, Rooted};
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};

    fn put(root: &Path, path: &str, bytes: &[u8]) {
        let at = root.join(path);
        fs::create_dir_all(at.parent().unwrap()).unwrap();
        fs::write(&at, bytes).unwrap();
        fs::set_permissions(&at, fs::Permissions::from_mode(0o755)).unwrap();
    }

    fn gcc(version: &str) -> Vec<u8> {
        let mut bytes = vec![0; 64];
        bytes[..7].copy_from_slice(b"\x7fELF\x02\x01\x01");
        bytes[16..20].copy_from_slice(&[2, 0, 62, 0]);
        bytes[20] = 1;
        bytes[52] = 64;
        let text = format!("\0GCC_EXEC_PREFIX\0{version}\0(Debian {version}-1) \0../configure --target=x86_64-linux-gnu --x\0");
        bytes.extend_from_slice(text.as_bytes());
        bytes
    }

    fn look(host: &dyn Host) -> Vec<Compiler> {
        let programs = program::collect(host, &[], &mut Notes::new());
        match collect(host, &programs, Duration::from_secs(10)) {
            Observed::Seen { value } => value,
            other => panic!("{other:?}"),
        }
    }

    fn at<'a>(found: &'a [Compiler], path: &str) -> &'a Compiler {
        found.iter().find(|compiler| compiler.has_path(Path::new(path))).unwrap_or_else(|| panic!("{path} in {found:#?}"))
    }

    #[test]
    fn compilers_of_a_tree() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path();
        put(root, "usr/bin/x86_64-linux-gnu-g++-12", &gcc("12.2.0"));
        symlink("x86_64-linux-gnu-g++-12", root.join("usr/bin/g++")).unwrap();
        symlink("/usr/bin/g++", root.join("usr/bin/c++")).unwrap();
        put(root, "usr/lib/gcc/x86_64-linux-gnu/12/cc1", b"");
        put(root, "usr/bin/g++-9", &gcc("9.5.0"));
        put(root, "usr/lib/gcc/x86_64-linux-gnu/9/cc1plus", b"x");
        put(root, "usr/bin/g++-8", &gcc("%s"));
        put(root, "usr/lib/llvm-14/bin/clang-14", &gcc("")[..64]);
        symlink("../lib/llvm-14/bin/clang-14", root.join("usr/bin/clang")).unwrap();
        symlink("../lib/llvm-14/bin/clang-14", root.join("usr/bin/clang++")).unwrap();
        put(root, "opt/conda/conda-meta/history", b"");
        put(root, "opt/conda/bin/x86_64-conda-linux-gnu-c++", &gcc("11.4.0"));
        put(root, "usr/bin/ccache", &gcc("")[..64]);
        fs::create_dir_all(root.join("usr/lib/ccache")).unwrap();
        symlink("/usr/bin/ccache", root.join("usr/lib/ccache/gcc")).unwrap();
        put(root, "opt/intel/icpx", &gcc("")[..64]);
        put(root, "usr/local/bin/cc", b"#!/bin/sh\nexec gcc \"$@\"\n");
        put(root, "usr/bin/ld", b"x");
        let env: Environment =
            [("PATH".into(), "/usr/lib/ccache:/opt/conda/bin:/usr/bin".into()), ("CXX".into(), "/opt/intel/icpx".into())].into();
        let found = look(&Rooted::new(root, env).unwrap());
        let text = |compiler: &Compiler| compiler.version.as_ref().map(|version| version.text.clone());

        let gxx = at(&found, "/usr/bin/c++");
        assert_eq!((gxx.family, gxx.language, text(gxx).as_deref()), (Family::Gcc, Language::Cxx, Some("12.2.0")));
        assert_eq!((gxx.version_from.as_str(), gxx.target.as_deref()), ("strings of the program", Some("x86_64-linux-gnu")));
        assert_eq!(gxx.paths.len(), 3, "{gxx:?}");
        assert_eq!(gxx.cc1plus, Some(false));
        assert_eq!(at(&found, "/usr/bin/g++-9").cc1plus, Some(true));
        let by_name = at(&found, "/usr/bin/g++-8");
        assert_eq!((text(by_name).as_deref(), by_name.version_from.as_str()), (Some("8"), "file name"));
        for (path, language) in [("/usr/bin/clang", Language::C), ("/usr/bin/clang++", Language::Cxx)] {
            let clang = at(&found, path);
            assert_eq!((clang.family, clang.language, text(clang).as_deref()), (Family::Clang, language, Some("14")), "{path}");
        }
        let conda = at(&found, "/opt/conda/bin/x86_64-conda-linux-gnu-c++");
        assert_eq!((conda.conda.clone(), conda.cc1plus), (Some("/opt/conda".into()), None));
        let wrapper = at(&found, "/usr/lib/ccache/gcc");
        assert_eq!((wrapper.family, wrapper.language, text(wrapper)), (Family::Wrapper, Language::C, None));
        assert_eq!(at(&found, "/usr/local/bin/cc").family, Family::Wrapper);
        let intel = at(&found, "/opt/intel/icpx");
        assert_eq!((intel.family, intel.language, text(intel)), (Family::Other, Language::Cxx, None));
        assert_eq!(found.len(), 9, "{found:#?}");
    }

    #[test]
    fn a_wrapper_on_the_machine_itself_is_asked() {
        let dir = tempfile::tempdir().unwrap();
        put(dir.path(), "bin/g++", b"#!/bin/sh\necho 'g++ (GCC) 11.4.1 20231218 (Red Hat 11.4.1-3)'\necho 'Free Software Foundation'\n");
        put(dir.path(), "bin/gcc", b"#!/bin/sh\nsleep 100\n");
        let bin = dir.path().join("bin");
        let host = Live::with_env([("PATH".into(), bin.clone().into())].into());
        let programs = program::collect(&host, &[], &mut Notes::new());
        let ours: Vec<Program> = programs.into_iter().filter(|program| program.path.starts_with(&bin)).collect();
        let found = collect(&host, &ours, Duration::from_millis(300));
        let found = found.value().unwrap();
        let gxx = at(found, bin.join("g++").to_str().unwrap());
        assert_eq!(gxx.version.as_ref().map(|version| version.text.as_str()), Some("11.4.1"));
        assert_eq!((gxx.version_from.as_str(), gxx.family), ("--version", Family::Wrapper));
        assert_eq!(at(found, bin.join("gcc").to_str().unwrap()).version, None);
    }

    #[test]
    fn what_compilers_print() {
        let version = |text: &str| said(text).map(|(family, version)| (family, version.text));
        assert_eq!(version("Debian clang version 14.0.6\nTarget: x"), Some((Family::Clang, "14.0.6".to_owned())));
        assert_eq!(version("Ubuntu clang version 18.1.3-1ubuntu1\n"), Some((Family::Clang, "18.1.3".to_owned())));
        let gcc = "g++ (Debian 12.2.0-14+deb12u1) 12.2.0\nCopyright (C) 2022 Free Software Foundation, Inc.\n";
        assert_eq!(version(gcc), Some((Family::Gcc, "12.2.0".to_owned())));
        let intel = "Intel(R) oneAPI DPC++/C++ Compiler 2024.0.2 (2024.0.2.20231213)\n";
        assert_eq!(version(intel), None);
        assert_eq!(version("nvcc: NVIDIA (R) Cuda"), None);
        assert_eq!(version(""), None);
    }
}
