//! `ds-doctor check` goes on to the short NCCL test: a torch whose libraries load the fake NCCL, and idle fake GPUs.

use super::fake_machine::Machine;
use crate::fake::build;
use crate::gpu_e2e::{RELEASE, under_driver};
use crate::util::{Output, program, trial_with};
use libtest_mimic::Trial;
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// Below a gigabyte is used, and there is room for 256 KiB, not for 8 MiB: the fake is slow.
const IDLE: (u64, u64) = (2 << 30, (1 << 30) + (4 << 20));
const BUSY: (u64, u64) = (80 << 30, 20 << 30);

type Run = fn(&Path);

pub fn trials() -> Vec<Trial> {
    let need = Machine::possible().and_then(|()| program("python3"));
    let all: [(&str, Run); 5] = [
        ("healthy_is_silent_and_says_so", healthy),
        ("a_wrong_sum", wrong),
        ("a_hang_within_the_time_limit", hang),
        ("gpus_in_use_are_left_alone", busy),
        ("what_is_known_already_is_said_first", known_first),
    ];
    all.into_iter().map(|(name, run)| trial_with(&format!("nccl::check_{name}"), need.clone(), move |python| run(&python))).collect()
}

/// A virtual environment with the files of a torch, whose libraries need one another and NCCL as the real ones do. Its Python's path.
fn torch(machine: &Machine, python: &Path) -> PathBuf {
    let prefix = machine.folder().join("venv");
    let made = Command::new(python).args(["-m", "venv", "--without-pip"]).arg(&prefix).output().unwrap();
    assert!(made.status.success(), "{made:?}");
    let say = "import sysconfig; print(sysconfig.get_path('purelib'))";
    let said = Command::new(prefix.join("bin/python3")).args(["-c", say]).output().unwrap();
    let site = PathBuf::from(String::from_utf8(said.stdout).unwrap().trim());
    let put = |path: &str, text: &str| {
        let at = site.join(path);
        fs::create_dir_all(at.parent().unwrap()).unwrap();
        fs::write(at, text).unwrap();
    };
    put("torch/__init__.py", "");
    put("torch/version.py", "__version__ = '2.6.0+cu124'\ncuda = '12.4'\nhip = None\ngit_version = 'x'\n");
    for (name, version) in [("torch", "2.6.0"), ("setuptools", "75.0.0")] {
        put(&format!("{name}-{version}.dist-info/METADATA"), &format!("Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"));
        put(&format!("{name}-{version}.dist-info/RECORD"), "");
    }
    put("nvidia/nccl/lib/README", "");
    fs::copy(machine.folder().join("libnccl.so.2"), site.join("nvidia/nccl/lib/libnccl.so.2")).unwrap();
    fs::remove_file(machine.folder().join("libnccl.so.2")).unwrap();
    put("torch/lib/source.c", "int nothing;\n");
    let lib = site.join("torch/lib");
    let nccl = site.join("nvidia/nccl/lib/libnccl.so.2");
    let names = [
        ("libtorch_global_deps.so", vec![]),
        ("libc10.so", vec![]),
        ("libtorch_cpu.so", vec![lib.join("libc10.so")]),
        ("libtorch_cuda.so", vec![lib.join("libtorch_cpu.so"), nccl]),
        ("libtorch.so", vec![lib.join("libtorch_cpu.so"), lib.join("libtorch_cuda.so")]),
        ("libtorch_python.so", vec![lib.join("libtorch.so"), lib.join("libtorch_cuda.so")]),
    ];
    for (name, needs) in names {
        let flags = ["-Wl,--no-as-needed", "-Wl,--disable-new-dtags", "-Wl,-rpath,$ORIGIN:$ORIGIN/../../nvidia/nccl/lib"];
        let needs = needs.iter().map(|path| path.to_str().unwrap());
        build(lib.join("source.c").to_str().unwrap(), &lib.join(name), &flags.into_iter().chain(needs).collect::<Vec<_>>());
    }
    prefix.join("bin/python3")
}

fn check(machine: &Machine, python: &Path, more: &[&str]) -> Output {
    let python = torch(machine, python);
    machine.doctor(&[&["check", "--for", "run", "--color", "never", "--python", python.to_str().unwrap()], more].concat())
}

fn json(out: &Output) -> Value {
    serde_json::from_str(&out.stdout).unwrap_or_else(|e| panic!("{e}: {out:?}"))
}

fn ids(report: &Value) -> Vec<&str> {
    report["findings"].as_array().unwrap().iter().filter(|one| one["severity"] != "info").filter_map(|one| one["id"].as_str()).collect()
}

fn healthy(python: &Path) {
    let machine = Machine::with_memory(2, IDLE, "", "");
    let out = check(&machine, python, &["-v"]);
    assert_eq!(out.code, Some(0), "{out:?}");
    assert!(out.stdout.contains("run: ok by the facts, no kernel was run; NCCL: right on 2 GPUs"), "{}", out.stdout);
    assert_eq!(out.stdout.matches("judged  ").count(), 1, "{}", out.stdout);
    let machine = Machine::with_memory(2, IDLE, "", "");
    let report = json(&check(&machine, python, &["--format", "json"]));
    assert_eq!((report["verdict"].as_str(), ids(&report)), (Some("healthy"), vec![]), "{report:#}");
    let nccl = &report["result"]["nccl"];
    assert!(nccl["library"]["path"].as_str().unwrap().ends_with("site-packages/nvidia/nccl/lib/libnccl.so.2"), "{nccl:#}");
    // Five operations, and the sizes up to 8 MiB that there is room for.
    assert_eq!(nccl["bandwidths"].as_array().unwrap().len(), 5 * 4, "{nccl:#}");
}

fn wrong(python: &Path) {
    let machine = Machine::with_memory(2, IDLE, "wrong ncclAllReduce 1", "");
    let report = check(&machine, python, &["--format", "json"]);
    assert_eq!((report.code, ids(&json(&report))), (Some(1), vec!["nccl-wrong-result"]), "{report:?}");
}

fn hang(python: &Path) {
    let machine = Machine::with_memory(2, IDLE, "1.act ncclBroadcast hang", "");
    let out = check(&machine, python, &["--format", "json", "--timeout", "2"]);
    let report = json(&out);
    assert_eq!((out.code, ids(&report)), (Some(1), vec!["nccl-hang"]), "{report:#}");
    let title = report["findings"][0]["title"].as_str().unwrap();
    assert!(title.starts_with("broadcast of 8 B did not finish within 2 s: rank 1 (GPU 1)"), "{title}");
    assert!(out.wall < Duration::from_secs(40), "{:?}", out.wall);
}

fn busy(python: &Path) {
    let machine = Machine::with_memory(2, BUSY, "wrong ncclAllReduce 1", "");
    let out = check(&machine, python, &["--format", "json"]);
    let report = json(&out);
    assert_eq!((out.code, ids(&report), &report["result"]["nccl"]), (Some(0), vec![], &Value::Null), "{report:#}");
}

/// A warning does not wait for the error that is found last.
fn known_first(python: &Path) {
    let machine = Machine::with_memory(2, IDLE, "1.act ncclBroadcast hang", "");
    let stubs = machine.folder().join("lib64/stubs");
    fs::create_dir_all(&stubs).unwrap();
    fs::copy(machine.folder().join("libcuda.so.1"), stubs.join("libcuda.so")).unwrap();
    let python = torch(&machine, python);
    let path = format!("{}:{}", machine.folder().display(), stubs.display());
    let args = ["check", "--for", "run", "--color", "never", "--timeout", "2", "--python", python.to_str().unwrap()];
    let out = under_driver(RELEASE, &path, &args);
    let lines = ["judged  ", "warning[stubs-on-loader-path]: ", "error[nccl-hang]: ", "1 error and 1 warning"];
    let places = lines.map(|line| out.stdout.find(line).unwrap_or_else(|| panic!("{line}: {out:?}")));
    assert!(places.is_sorted(), "{}", out.stdout);
    assert!(lines.iter().all(|line| out.stdout.matches(line).count() == 1), "{}", out.stdout);
}
