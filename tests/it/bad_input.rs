//! Bad input gives a clear fact, note or error; never a panic, a hang or a false finding, and the other facts are still judged.
//!
//! Here: every file of a machine damaged in every way, programs that misbehave when they are asked, no environment at all. Elsewhere:
//! paths that lead nowhere and links in circles (`collect::env`, `collect::program`, `collect::loader`, `collect::python`), names that are
//! not UTF-8 (`collect::env::other_bytes_than_utf8_survive`, `collect::python::odd_trees_are_looked_at_to_the_end`), ELF files with any
//! byte changed or cut anywhere (`binary::damaged`), a `torch/version.py` that is none (`collect::python::a_torch_that_is_none_says_why`),
//! NVML that is missing, junk, crashes or hangs (`gpu`, `gpu_e2e`), snapshots that are cut short or newer
//! (`commands::snapshots_that_cannot_be_read`), a rules row with a wrong key (`commands::a_rules_row_with_a_wrong_key_names_the_place`).

use crate::machines;
use crate::util::{BINARY, Doctor, trial};
use ds_doctor::checks::{Case, Purpose, judge};
use ds_doctor::collect::{self, Options};
use ds_doctor::host::{Environment, Rooted};
use ds_doctor::knowledge::Knowledge;
use libtest_mimic::Trial;
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::time::Duration;

pub fn trials() -> Vec<Trial> {
    let damages: [(&str, Damage); 5] = [
        ("is_empty", |at| fs::write(at, "").unwrap()),
        ("is_cut_in_half", |at| {
            let bytes = fs::read(at).unwrap();
            fs::write(at, &bytes[..bytes.len() / 2]).unwrap();
        }),
        ("is_rubbish", |at| fs::write(at, [0xff, 0xfe, 0, b'\n', b'=', b'"', b'[', 0x80].repeat(600)).unwrap()),
        ("is_a_folder", |at| {
            fs::remove_file(at).unwrap();
            fs::create_dir(at).unwrap();
        }),
        ("is_a_link_to_itself", |at| {
            fs::remove_file(at).unwrap();
            symlink(at.file_name().unwrap(), at).unwrap();
        }),
    ];
    let mut trials: Vec<Trial> =
        damages.into_iter().map(|(name, damage)| trial(&format!("bad_input::each_file_in_turn_{name}"), move || each(damage))).collect();
    trials.extend([
        trial("bad_input::compilers_and_nvcc_that_misbehave", misbehaving),
        trial("bad_input::no_environment_at_all", no_environment),
        trial("bad_input::a_path_of_everything_that_is_no_folder", odd_path),
    ]);
    trials
}

type Damage = fn(&Path);

fn files(below: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(below).unwrap() {
        let entry = entry.unwrap();
        match entry.file_type().unwrap() {
            kind if kind.is_dir() => files(&entry.path(), found),
            kind if kind.is_file() => found.push(entry.path()),
            _ => {}
        }
    }
}

/// Damages one file after the other, each whole again before the next. What was found without any damage stays found, unless the file had
/// to do with it: so much is asked only of files that say nothing of the toolkit.
fn each(damage: Damage) {
    let (folder, root, env) = machines::tree(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/old_snapshots/machine.toml"));
    let env: Environment = env.iter().map(|(name, value)| (name.into(), value.into())).collect();
    let know = Knowledge::embedded();
    let ids = |what: &Path| -> BTreeSet<&'static str> {
        let host = Rooted::new(&root, env.clone()).unwrap();
        let facts = collect::snapshot(&host, &Options { ask_gpu: true, ..Options::default() });
        let text = serde_json::to_string(&facts).unwrap();
        assert!(!text.contains("panicked"), "{}: {text}", what.display());
        let judged = judge(&Case::new(&facts, &know, Purpose::Both, &[]), &|_| true);
        let said = format!("{:?}", judged.undecided);
        assert!(!said.contains("panic"), "{}: {said}", what.display());
        judged.findings.iter().map(|finding| finding.id).collect()
    };
    let whole = ids(&root);
    let mut all = Vec::new();
    files(&root, &mut all);
    all.sort();
    // Of most headers only the name counts.
    let read = ["cuda.h", "cuda_runtime_api.h", "host_config.h", "Python.h", "patchlevel.h"];
    all.retain(|file| file.extension().is_none_or(|ending| ending != "h") || read.iter().any(|name| file.ends_with(name)));
    assert!(all.len() > 100, "{}", all.len());
    for file in all {
        // The file itself is laid aside: it comes back with its times.
        let aside = folder.path().join("aside");
        fs::rename(&file, &aside).unwrap();
        fs::copy(&aside, &file).unwrap();
        damage(&file);
        let after = ids(&file);
        // The lock in the cache is another matter than what was damaged.
        let inside = file.strip_prefix(&root).unwrap().to_string_lossy().into_owned();
        let concerns = ["venv", "proc", "etc", "home", "python"].iter().any(|word| inside.contains(word));
        assert!(concerns || after.contains("stale-jit-lock"), "{inside}: {after:?} instead of {whole:?}");
        if fs::symlink_metadata(&file).unwrap().is_dir() {
            fs::remove_dir(&file).unwrap()
        } else {
            fs::remove_file(&file).unwrap()
        }
        fs::rename(&aside, &file).unwrap();
    }
}

fn script(folder: &Path, name: &str, text: &str) {
    let at = folder.join(name);
    fs::write(&at, format!("#!/bin/sh\n{text}\n")).unwrap();
    fs::set_permissions(at, fs::Permissions::from_mode(0o755)).unwrap();
}

fn misbehaving() {
    let dir = tempfile::tempdir().unwrap();
    let bin = dir.path().join("cuda/bin");
    fs::create_dir_all(&bin).unwrap();
    for (name, text) in [
        ("nvcc", "sleep 100"),
        ("g++", "yes"),
        ("gcc", "kill -SEGV $$"),
        ("c++", "printf '\\377\\376\\033[31m(((\\n'"),
        ("clang", "exec sleep 100 &"),
        ("clang++", "echo clang version x.y.z"),
        ("python3", "exit 3"),
        ("ninja", "cat"),
    ] {
        script(&bin, name, text);
    }
    let path = format!("{}:/usr/bin:/bin", bin.display());
    for command in [&["check", "--static", "--format", "json"][..], &["arch-list", "--gpu", "h100"], &["snapshot"], &["fix"]] {
        let out = Doctor::new([]).args(command).args(["--timeout", "1"]).env("PATH", &path).env("CUDA_HOME", dir.path().join("cuda")).run();
        assert!(matches!(out.code, Some(0..=2)), "{command:?}: {:?} {}", out.code, out.stderr);
        assert!(!out.stdout.contains("panicked") && !out.stderr.contains("panicked"), "{command:?}: {}{}", out.stdout, out.stderr);
        assert!(!out.stdout.contains('\u{1b}'), "{command:?}: words of a program are not cleaned");
        assert!(out.wall < Duration::from_secs(20), "{command:?}: {:?}", out.wall);
    }
}

fn no_environment() {
    for command in [&["check", "--static"][..], &["arch-list", "--gpu", "h100"], &["fix"], &["snapshot"]] {
        let out = Doctor::new(["-i", BINARY]).program("env").args(command).run();
        assert!(matches!(out.code, Some(0..=2)), "{command:?}: {:?} {}", out.code, out.stderr);
        assert!(!out.stderr.contains("panicked"), "{command:?}: {}", out.stderr);
    }
}

fn odd_path() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("file"), "").unwrap();
    symlink("circle", dir.path().join("circle")).unwrap();
    symlink("gone", dir.path().join("dangling")).unwrap();
    let at = |name: &str| dir.path().join(name).display().to_string();
    let odd =
        ["/none".to_owned(), at("file"), at("file/below"), at("circle"), at("dangling"), String::new(), ".".to_owned(), "a".repeat(5000)];
    let odd = format!("{}:/usr/bin:/bin", odd.join(":"));
    for command in [&["check", "--static", "--format", "json"][..], &["arch-list", "--gpu", "h100"]] {
        let run = |path: &str| Doctor::new([]).args(command).env("PATH", path).env("LD_LIBRARY_PATH", &odd).cwd(dir.path()).run();
        let (plain, out) = (run("/usr/bin:/bin"), run(&odd));
        assert_eq!(out.code, plain.code, "{command:?}: {}", out.stderr);
        assert!(!out.stderr.contains("panicked"), "{command:?}: {}", out.stderr);
    }
}
