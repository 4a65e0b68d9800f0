//! The builder's own files against independent readers: a builder that invents its formats would prove nothing.

use super::elf::{Elf, X86_64};
use crate::util::{program, trial_with};
use libtest_mimic::Trial;
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
