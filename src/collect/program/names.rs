//! Which program names matter.

use crate::collect::search;
use crate::host::Host;
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Sorted. A version may follow (`gcc-12`, `python3.11`), and a target may stand before (`x86_64-conda-linux-gnu-g++`).
const NAMES: &[&str] = &[
    "as",
    "c++",
    "cc",
    "ccache",
    "cicc",
    "clang",
    "clang++",
    "cmake",
    "conda",
    "cuda-g++",
    "cuda-gcc",
    "cudafe++",
    "cuobjdump",
    "distcc",
    "fatbinary",
    "g++",
    "gcc",
    "hipcc",
    "ld",
    "ldconfig",
    "make",
    "mamba",
    "micromamba",
    "ninja",
    "ninja-build",
    "nvc++",
    "nvcc",
    "nvidia-smi",
    "nvlink",
    "pip",
    "ptxas",
    "python",
    "samu",
    "sccache",
    "uv",
    "which",
];

/// Variables whose value is a program or a command line with one.
const VARIABLES: &[&str] = &["CC", "CXX", "CUDACXX", "CUDAHOSTCXX", "LDSHARED", "NVCC", "NVCC_CCBIN", "PYTORCH_NVCC"];

/// The name without the target before it and the version behind it: `x86_64-linux-gnu-g++-12` is `g++`, `python3.11` is `python`.
pub fn stem(name: &str) -> &str {
    let name = name.rsplit_once("-linux-gnu-").map_or(name, |(_, tool)| tool);
    let plain = name.strip_prefix("python").and(name.strip_suffix('t')).filter(|plain| plain.ends_with(|c: char| c.is_ascii_digit()));
    let unversioned = plain.unwrap_or(name).trim_end_matches(|c: char| c.is_ascii_digit() || c == '.');
    unversioned.strip_suffix('-').unwrap_or(unversioned)
}

pub fn of_interest(name: &str) -> bool {
    NAMES.binary_search(&stem(name)).is_ok()
}

/// Every name without a version, for folders that may be searched but not listed.
pub fn plain_names() -> &'static [&'static str] {
    NAMES
}

/// What variables and nvcc's flags name beside the usual programs.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Asked {
    /// Names to be looked up on PATH.
    pub names: BTreeSet<String>,
    /// Files, and folders with compilers in them.
    pub paths: BTreeSet<PathBuf>,
}

pub fn asked(host: &dyn Host) -> Asked {
    let mut asked = Asked::default();
    for value in VARIABLES.iter().filter_map(|name| host.var(name)) {
        add(host, &mut asked, value.as_bytes());
        for word in value.as_bytes().split(u8::is_ascii_whitespace) {
            add(host, &mut asked, word);
        }
    }
    for value in ["NVCC_PREPEND_FLAGS", "NVCC_APPEND_FLAGS"].iter().filter_map(|name| host.var(name)?.to_str()) {
        for program in host_compilers_in(value) {
            add(host, &mut asked, program.as_bytes());
        }
    }
    asked
}

fn add(host: &dyn Host, asked: &mut Asked, word: &[u8]) {
    if word.contains(&b'/') {
        asked.paths.extend(search::absolute(host, Path::new(OsStr::from_bytes(word))));
    } else if let Ok(name) = std::str::from_utf8(word)
        && !name.is_empty()
        && !name.starts_with('-')
        && !name.contains(|c: char| c.is_whitespace() || c == '=')
    {
        asked.names.insert(name.to_owned());
    }
}

/// The values of `-ccbin` in nvcc flags.
fn host_compilers_in(flags: &str) -> Vec<String> {
    const OPTIONS: [&str; 2] = ["-ccbin", "--compiler-bindir"];
    // A quote that is not closed: blanks still part the words.
    let words = shlex::split(flags).unwrap_or_else(|| flags.split_whitespace().map(str::to_owned).collect());
    let mut found = Vec::new();
    let mut words = words.into_iter();
    while let Some(word) = words.next() {
        match word.split_once('=') {
            Some((option, value)) if OPTIONS.contains(&option) => found.push(value.to_owned()),
            None if OPTIONS.contains(&word.as_str()) => found.extend(words.next()),
            _ => {}
        }
    }
    found
}

#[cfg(test)]
#[expect(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::host::{Environment, Rooted};

    #[test]
    fn names_with_targets_and_versions() {
        assert!(NAMES.is_sorted());
        for name in [
            "gcc",
            "gcc-12",
            "g++-4.9",
            "x86_64-linux-gnu-g++-12",
            "x86_64-conda-linux-gnu-cc",
            "c++",
            "clang++-14",
            "python3",
            "python3.13t",
            "pip3.11",
            "ninja",
            "cudafe++",
            "ld",
        ] {
            assert!(of_interest(name), "{name}");
        }
        for name in ["gcc-ar-12", "gccx", "c++filt", "pythonw", "ldd", "ld.bfd", "g", "12", "", "python3-config"] {
            assert!(!of_interest(name), "{name}");
        }
    }

    #[test]
    fn what_variables_name() {
        let dir = tempfile::tempdir().unwrap();
        let env: Environment = [
            ("CC".into(), "ccache my-gcc -m64".into()),
            ("CXX".into(), "/opt/gcc 11/bin/g++".into()),
            ("NVCC_PREPEND_FLAGS".into(), "-O2 -ccbin='/opt/x y/g++' --compiler-bindir gcc-10 -ccbin".into()),
        ]
        .into();
        let asked = asked(&Rooted::new(dir.path(), env).unwrap());
        assert_eq!(asked.names.iter().collect::<Vec<_>>(), ["ccache", "gcc-10", "my-gcc"]);
        let expected: Vec<&Path> = ["/opt/gcc", "/opt/gcc 11/bin/g++", "/opt/x y/g++"].map(Path::new).into();
        assert!(expected.iter().all(|path| asked.paths.contains(*path)), "{asked:?}");
    }
}
