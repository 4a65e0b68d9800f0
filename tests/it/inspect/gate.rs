//! The release gate on device code whose contents are known, and on limits of glibc and RPATH.

use super::{ids, inspect, json, says};
use crate::util::{BINARY, Doctor, program, trial, trial_with};
use libtest_mimic::Trial;
use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

pub fn trials() -> Vec<Trial> {
    vec![
        trial("inspect::gate_opens_and_shuts_where_it_must", targets),
        trial("inspect::gate_by_compatibility", runs),
        trial("inspect::gate_lists_from_elsewhere", elsewhere),
        trial("inspect::gate_shuts_on_what_cannot_be_read", unreadable),
        trial_with("inspect::gate_shuts_on_a_folder_that_is_closed", nobody(), |setpriv| closed(&setpriv)),
        trial("inspect::links_and_what_is_no_file", links),
        trial("inspect::wrong_use_of_a_gate", wrong_use),
        trial_with("inspect::gate_of_glibc_and_rpath", program("gcc"), |gcc| limits(&gcc)),
        trial("inspect::lines_for_scripts", lines),
    ]
}

/// A file that nvcc made: what is in it stands in tests/it/device_code/samples.tsv.
fn sample(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus/fatbin").join(name)
}

fn gate(name: &str, list: &str) -> Doctor {
    inspect(&sample(name)).args(["--expect", list])
}

fn targets() {
    // cu135_size.o: sm_80, sm_90a, sm_100f, sm_120, compute_100f, compute_120.
    for open in ["8.0", "8.0;9.0a;10.0f", "12.0+PTX", "10.0f+PTX;8.0", "sm_80 sm_90a compute_120", "8.0,12.0"] {
        let report = json(gate("cu135_size.o", open), 0);
        assert_eq!(report["verdict"], "healthy", "{open}: {report:#}");
    }
    for (shut, lacks, flag) in [
        ("8.0;9.0", "`sm_90`", "-gencode=arch=compute_90,code=sm_90"),
        ("8.0+PTX", "`compute_80`", "-gencode=arch=compute_80,code=compute_80"),
        ("10.0", "`sm_100`", "-gencode=arch=compute_100,code=sm_100"),
        ("12.0f", "`sm_120f`", "-gencode=arch=compute_120f,code=sm_120f"),
        ("9.0a+PTX", "`compute_90a`", "-gencode=arch=compute_90a,code=compute_90a"),
    ] {
        let report = json(gate("cu135_size.o", shut), 1);
        assert_eq!(ids(&report), ["binary-lacks-arch"], "{shut}");
        let finding = &report["findings"][0];
        assert!(
            finding["title"].as_str().unwrap().contains(lacks) && finding["title"].as_str().unwrap().contains("cu135_size.o"),
            "{finding}"
        );
        assert!(finding["fixes"][0]["text"].as_str().unwrap().contains(flag), "{finding}");
        assert!(finding["location"]["file"].as_str().unwrap().ends_with("cu135_size.o"), "{finding}");
    }
    // A file without device code shuts it too.
    let folder = tempfile::tempdir().unwrap();
    let plain = folder.path().join("plain.so");
    fs::copy("/proc/self/exe", &plain).unwrap();
    let report = json(inspect(&plain).args(["--expect", "8.0"]), 1);
    assert_eq!(ids(&report), ["binary-lacks-device-code"]);
    // Of two files each is judged.
    let report = json(gate("cu135_size.o", "8.0").arg(sample("cu124_all.o")), 1);
    assert_eq!(ids(&report), ["binary-lacks-arch"]);
    assert!(report["findings"][0]["title"].as_str().unwrap().contains("cu124_all.o"));
}

fn runs() {
    // cu118_all.o: sm_35, sm_86, compute_86. cu124_all.o: sm_70, sm_90a, compute_90a.
    for (file, gpus, code) in [
        ("cu118_all.o", "rtx 3090", 0),
        ("cu118_all.o", "h100,8.9", 0),
        ("cu118_all.o", "a100", 1),
        ("cu124_all.o", "h100;v100", 0),
        ("cu124_all.o", "b200", 1),
        ("cu135_size.o", "b300", 0),
        ("cu135_size.o", "h100", 0),
        ("cu135_size.o", "t4", 1),
    ] {
        let report = json(inspect(&sample(file)).args(["--expect-runs", gpus]), code);
        assert_eq!(ids(&report), vec!["no-kernel-image"; code as usize], "{file} {gpus}: {report:#}");
    }
    // Asked without a gate: the same by --gpu.
    let report = json(inspect(&sample("cu124_all.o")).args(["--gpu", "b200", "--gpu", "h100"]), 1);
    assert_eq!(ids(&report), ["no-kernel-image"]);
    let rows = report["result"]["files"][0]["runs_on"].as_array().unwrap();
    assert_eq!(rows.iter().map(|row| row["runs"].as_bool().unwrap()).collect::<Vec<_>>(), [false, true]);
    assert_eq!(rows[1]["by"], "sm_90a");
}

fn elsewhere() {
    let from_env = |list: &str| inspect(&sample("cu135_size.o")).args(["--expect-from", "env"]).env("TORCH_CUDA_ARCH_LIST", list);
    json(from_env("8.0;12.0+PTX"), 0);
    let report = json(from_env("8.0;8.6"), 1);
    assert_eq!(ids(&report), ["binary-lacks-arch"]);
    assert!(report["findings"][0]["evidence"].as_array().unwrap().iter().any(|one| one["source"] == "TORCH_CUDA_ARCH_LIST"));
    says(&from_env("").run(), 2, "TORCH_CUDA_ARCH_LIST is not set");
    let tree = tempfile::tempdir().unwrap();
    let none = inspect(&sample("cu135_size.o")).args(["--expect-from", "torch", "--root"]).arg(tree.path());
    says(&none.run(), 2, "no torch");
}

fn unreadable() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str, bytes: &[u8]| {
        let path = folder.path().join(name);
        fs::write(&path, bytes).unwrap();
        path
    };
    let whole = fs::read(sample("cu135_size.o")).unwrap();
    for (name, bytes, why) in [
        ("text.so", &b"#!/bin/sh\n"[..], "neither an ELF file"),
        ("empty.so", b"", "the file is empty"),
        ("zeros.so.1", &[0; 5000], "not an ELF file"),
        ("pointer.so", b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n", "pointer of Git LFS"),
        ("cut.so", &whole[..whole.len() / 2], "cut short"),
        ("head.so", &whole[..40], "cut short"),
        ("not.whl", b"text", "not a zip file"),
    ] {
        let path = at(name, bytes);
        says(&inspect(&path).args(["--expect", "8.0"]).run(), 2, why);
        says(&inspect(&path).run(), 2, why);
        let report = json(inspect(&path).args(["--expect", "8.0"]), 2);
        assert_eq!((report["complete"].as_bool(), report["result"]["unreadable"].as_array().unwrap().len()), (Some(false), 1), "{name}");
    }
    says(&inspect(&folder.path().join("none.so")).run(), 2, "No such file");
    // Met in a folder, each is told too, and a script of the linker is none of them.
    let report = json(inspect(folder.path()), 2);
    let mut told: Vec<&str> = report["result"]["unreadable"].as_array().unwrap().iter().map(|one| one["path"].as_str().unwrap()).collect();
    told.sort_unstable();
    let names: Vec<&str> = told.iter().map(|path| path.rsplit('/').next().unwrap()).collect();
    assert_eq!(names, ["cut.so", "empty.so", "head.so", "not.whl", "pointer.so", "zeros.so.1"]);
    let empty = tempfile::tempdir().unwrap();
    says(&inspect(empty.path()).args(["--expect", "8.0"]).run(), 2, "no library");
}

fn nobody() -> Result<PathBuf, String> {
    if rustix::process::geteuid().is_root() { program("setpriv") } else { Err("not root, so nobody else can be played".to_owned()) }
}

fn closed(setpriv: &Path) {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    for path in [folder.path().to_owned(), at("open"), at("closed")] {
        fs::create_dir_all(&path).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    }
    let doctor = at("doctor");
    fs::copy(BINARY, &doctor).unwrap();
    fs::copy(sample("cu135_size.o"), at("open/a.o")).unwrap();
    fs::copy(sample("cu124_all.o"), at("closed/b.o")).unwrap();
    let run = || {
        let args = ["--reuid", "65534", "--regid", "65534", "--clear-groups"];
        let inspect = Doctor::new([]).program(setpriv).args(args).arg(&doctor).arg("inspect").arg(at("open")).arg(at("closed"));
        inspect.args(["--expect", "8.0"]).run()
    };
    assert_eq!(run().code, Some(1), "the other file lacks it");
    fs::set_permissions(at("closed"), fs::Permissions::from_mode(0o300)).unwrap();
    says(&run(), 2, "the folder cannot be listed");
    fs::set_permissions(at("closed"), fs::Permissions::from_mode(0o755)).unwrap();
    fs::set_permissions(at("closed/b.o"), fs::Permissions::from_mode(0o000)).unwrap();
    says(&run(), 2, "Permission denied");
}

/// Loops, pipes, and folders of links.
fn links() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    symlink(folder.path(), at("loop")).unwrap();
    symlink("itself.so", at("itself.so")).unwrap();
    symlink("gone.so", at("dangling.so")).unwrap();
    let made = Command::new("mkfifo").arg(at("pipe.so")).status().unwrap();
    assert!(made.success());
    symlink(sample("cu135_size.o"), at("elsewhere.o")).unwrap();
    let report = json(inspect(folder.path()), 0);
    let files = report["result"]["files"].as_array().unwrap();
    assert_eq!(files.len(), 1, "{report:#}");
    assert!(files[0]["path"].as_str().unwrap().ends_with("/elsewhere.o"), "{report:#}");
    // The file and two links to it are one.
    fs::copy(sample("cu135_size.o"), at("real.o")).unwrap();
    symlink("real.o", at("a.o")).unwrap();
    symlink("real.o", at("z.o")).unwrap();
    assert_eq!(json(inspect(folder.path()), 0)["result"]["files"].as_array().unwrap().len(), 2);
    says(&inspect(&at("itself.so")).run(), 2, "symbolic links");
    says(&inspect(&at("pipe.so")).run(), 2, "not a regular file");
    says(&inspect(Path::new("/dev/null")).run(), 2, "not a regular file");
    says(&inspect(Path::new("-")).run(), 2, "standard input");
}

fn wrong_use() {
    says(&gate("cu135_size.o", "Ampere").run(), 2, "`Ampere` is no target");
    says(&gate("cu135_size.o", " ; ").run(), 2, "names no target");
    says(&inspect(&sample("cu135_size.o")).args(["--expect-runs", "h1000000"]).run(), 2, "--expect-runs");
    says(&inspect(&sample("cu135_size.o")).args(["--max-glibc", "new"]).run(), 2, "--max-glibc `new`");
    says(&Doctor::new(["inspect"]).run(), 2, "PATH");
    says(&gate("cu135_size.o", "8.0").args(["--expect-from", "env"]).run(), 2, "cannot be used with");
}

fn limits(gcc: &Path) {
    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join("x.c");
    fs::write(&source, "#include <stdio.h>\nvoid f(void) { puts(\"\"); }\n").unwrap();
    let made = |name: &str, rpath: &str| {
        let path = folder.path().join(name);
        let out =
            Command::new(gcc).args(["-shared", "-fPIC", "-o"]).arg(&path).arg(&source).arg(format!("-Wl,-rpath,{rpath}")).output().unwrap();
        assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
        path
    };
    let (own, foreign) = (made("own.so", "$ORIGIN/../lib"), made("foreign.so", "/home/builder/cuda/lib64"));
    json(inspect(&own).args(["--no-rpath-outside", "--max-glibc", "2.100"]), 0);
    let report = json(inspect(&foreign).arg("--no-rpath-outside"), 1);
    assert_eq!(ids(&report), ["binary-rpath-outside"]);
    assert!(report["findings"][0]["title"].as_str().unwrap().contains("`/home/builder/cuda/lib64`"));
    let report = json(inspect(&own).args(["--max-glibc", "2.1"]), 1);
    assert_eq!(ids(&report), ["binary-glibc-too-new"]);
}

fn lines() {
    let out = Doctor::new(["inspect", "--list"]).arg(sample("cu135_size.o")).arg(sample("cu124_all.o")).run();
    assert_eq!(out.code, Some(0), "{}", out.stderr);
    let rows: Vec<Vec<&str>> = out.stdout.lines().map(|line| line.split('\t').collect()).collect();
    assert_eq!(rows.len(), 2);
    assert!(rows.iter().all(|row| row.len() == 5));
    assert_eq!(rows[0][1..], ["object-file", "sm_80 sm_90a sm_100f sm_120 compute_100f compute_120", "-", "-"]);
    assert_eq!(rows[1][2], "sm_70 sm_90a compute_90a");
}
