//! The builder's own files against independent readers: a builder that invents its formats would prove nothing.

use super::elf::{Elf, X86_64};
use crate::util::{lab, program, trial_with};
use libtest_mimic::Trial;
use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

fn readelf(tool: &Path, file: &Path, flags: &[&str]) -> String {
    let out = Command::new(tool).args(flags).arg(file).env("LC_ALL", "C").output().unwrap();
    let said = String::from_utf8(out.stdout).unwrap();
    assert!(out.status.success() && out.stderr.is_empty(), "{}{said}", String::from_utf8_lossy(&out.stderr));
    said
}

fn library() -> Elf {
    let mut elf = Elf::library(X86_64, "libone.so.1");
    elf.needed = vec!["libtwo.so.2".to_owned(), "libc.so.6".to_owned()];
    elf.rpath = Some("$ORIGIN/../a:$ORIGIN".to_owned());
    elf.exports = ["one", "two", "three", "four", "cudaRuntimeGetVersion"].map(str::to_owned).into();
    elf.defines = ["ONE_1.0", "ONE_1.1"].map(str::to_owned).into();
    elf.needs = vec![
        ("libtwo.so.2".to_owned(), vec!["TWO_2".to_owned()]),
        ("libc.so.6".to_owned(), ["GLIBC_2.2.5", "GLIBC_2.34"].map(str::to_owned).into()),
    ];
    elf.say(["some words", "more"])
}

pub fn trials() -> Vec<Trial> {
    let mut trials = against_the_lab();
    trials.extend(of_elf());
    trials
}

fn of_elf() -> Vec<Trial> {
    vec![
        trial_with("machines::written::readelf_finds_everything_in_a_written_library", program("readelf"), |tool| {
            let folder = tempfile::tempdir().unwrap();
            let file = folder.path().join("one");
            std::fs::write(&file, library().bytes()).unwrap();
            let said = readelf(&tool, &file, &["-W", "-h", "-l", "-S", "-d", "-V", "--dyn-syms", "-p", ".rodata", "--histogram"]);
            for wanted in [
                "DYN (Shared object file)",
                "Shared library: [libtwo.so.2]",
                "Library soname: [libone.so.1]",
                "Library rpath: [$ORIGIN/../a:$ORIGIN]",
                "Name: ONE_1.1",
                "Name: GLIBC_2.34",
                "File: libtwo.so.2",
                "cudaRuntimeGetVersion",
                "some words",
                "Histogram for `.gnu.hash' bucket list length (total of 5 buckets)",
            ] {
                assert!(said.contains(wanted), "no `{wanted}` in\n{said}");
            }
        }),
        trial_with("machines::written::a_written_program_names_its_loader", program("readelf"), |tool| {
            let folder = tempfile::tempdir().unwrap();
            let file = folder.path().join("one");
            std::fs::write(&file, Elf::program(X86_64, "/lib64/ld-linux-x86-64.so.2").bytes()).unwrap();
            let said = readelf(&tool, &file, &["-W", "-l", "-d"]);
            assert!(said.contains("[Requesting program interpreter: /lib64/ld-linux-x86-64.so.2]"), "{said}");
        }),
    ]
}

/// A machine with the very releases of the lab's real parts.
const LIKE_THE_LAB: &str = r#"
about = "what the lab has, made by the builder"
expect = []
system = "debian-12"

[[toolkit]]
root = "/pip"
release = "13.0.88"
layout = "pip"

[[python]]
prefix = "/venv"
kind = "venv"

[[torch]]
version = "2.11.0+cu130"
"#;

fn built() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    super::machine::build(&toml::from_str(LIKE_THE_LAB).unwrap(), folder.path());
    folder
}

/// Runs of printable characters, four or more.
fn strings(tool: &Path, file: &Path) -> BTreeSet<String> {
    let out = Command::new(tool).args(["-a", "-n", "4"]).arg(file).output().unwrap();
    assert!(out.status.success());
    String::from_utf8_lossy(&out.stdout).lines().map(|line| line.trim().to_owned()).collect()
}

/// What the written file says, the names of its sections and of the C library left out, is in the real one.
fn says_nothing_new(tool: &Path, written: &Path, real: &Path, but: &[&str]) {
    let known = strings(tool, real);
    let own = strings(tool, written);
    let new: Vec<&String> =
        own.iter().filter(|line| !known.contains(*line) && !line.starts_with('.') && !but.iter().any(|part| line.contains(part))).collect();
    assert!(new.is_empty(), "in {} and not in {}: {new:?}", written.display(), real.display());
    assert!(own.len() > 5, "{own:?}");
}

fn against_the_lab() -> Vec<Trial> {
    let both = |part: &str| lab(part).and_then(|real| Ok((program("strings")?, real)));
    vec![
        trial_with("machines::written::nvcc_says_what_the_real_one_says", both("pip-cu130/nvidia/cu13"), |(tool, real)| {
            let folder = built();
            let at = |name: &str| folder.path().join("pip").join(name);
            // The number of its compiler branch is its own.
            says_nothing_new(&tool, &at("bin/nvcc"), &real.join("bin/nvcc"), &["compiler."]);
            for name in ["bin/cudafe++", "bin/nvlink", "bin/fatbinary"] {
                says_nothing_new(&tool, &at(name), &real.join(name), &["compiler."]);
            }
            let text = |path: &Path| std::fs::read_to_string(path).unwrap();
            assert_eq!(text(&at("bin/nvcc.profile")), text(&real.join("bin/nvcc.profile")));
            let header = text(&real.join("include/crt/host_config.h"));
            let own = text(&at("include/crt/host_config.h"));
            for line in own.lines().filter(|line| line.starts_with("#if __GNUC__ >") || line.starts_with("#if (__clang_major__")) {
                assert!(header.lines().any(|real| real == line), "{line}");
            }
            for (name, word) in [("cuda.h", "#define CUDA_VERSION "), ("cuda_runtime_api.h", "#define CUDART_VERSION ")] {
                let line = |folder: &Path| text(&folder.join(name)).lines().find(|line| line.starts_with(word)).map(str::to_owned);
                assert_eq!(line(&at("include")), line(&real.join("include")), "{name}");
            }
        }),
        trial_with(
            "machines::written::gcc_says_what_the_real_one_says",
            both("deb-cuda118/usr/bin/x86_64-linux-gnu-g++-12"),
            |(tool, real)| {
                let folder = built();
                let written = folder.path().join("usr/bin/x86_64-linux-gnu-g++-12");
                // Debian's revision of the package goes on.
                says_nothing_new(&tool, &written, &real, &["configure", "(Debian"]);
            },
        ),
        trial_with("machines::written::torch_needs_what_the_real_one_needs", lab("torch-venv"), |real| {
            let folder = built();
            let site = "lib/python3.11/site-packages/torch";
            let read = |path: &Path| {
                let file = std::fs::read(path).unwrap();
                ds_doctor::binary::elf::summarise(&file.as_slice()).unwrap()
            };
            for name in ["libtorch_global_deps.so", "libtorch_python.so", "libtorch_cuda.so", "libc10_cuda.so", "libtorch.so", "libc10.so"]
            {
                let at = |root: &Path| read(&root.join(site).join("lib").join(name));
                let (own, real) = (at(&folder.path().join("venv")), at(&real));
                let new: Vec<&String> = own.needed.iter().filter(|name| !real.needed.contains(name)).collect();
                assert!(new.is_empty(), "{name} needs {new:?}, the real one {:?}", real.needed);
                assert_eq!(own.soname, real.soname);
                let known = real.rpath.unwrap();
                assert!(own.rpath.unwrap().iter().all(|entry| known.contains(entry)), "{name}: {known:?}");
            }
        }),
    ]
}
