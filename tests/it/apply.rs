//! `ds-doctor fix --apply`: what it moves away, what it leaves alone, and that torch's own lock code agrees.

use crate::util::{Doctor, Output, lab, trial, trial_with};
use libtest_mimic::Trial;
use serde_json::Value;
use std::fs::{self, File};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, UNIX_EPOCH};

pub fn trials() -> Vec<Trial> {
    let both = || Ok((lab("torch-venv")?, lab("pip-cu130/nvidia/cu13")?));
    vec![
        trial_with("apply::a_stale_lock_is_moved_away", lab("torch-venv"), |venv| stale_lock(&venv)),
        trial_with("apply::a_lock_that_is_held_stays", lab("torch-venv"), |venv| held_lock(&venv)),
        trial_with("apply::a_build_of_another_torch_is_moved_away", lab("torch-venv"), |venv| stale_build(&venv)),
        trial_with("apply::the_overlay_is_made", both(), |(venv, kit)| overlay(&venv, &kit)),
        trial("apply::facts_from_elsewhere_change_nothing", elsewhere),
    ]
}

/// A cache folder of the torch of the lab.
struct Cache {
    venv: PathBuf,
    dir: tempfile::TempDir,
}

impl Cache {
    fn new(venv: &Path) -> Self {
        Self { venv: venv.to_owned(), dir: tempfile::tempdir().unwrap() }
    }

    fn at(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// A file of the year 2001: before this machine was started, and before torch was installed.
    fn put(&self, name: &str, text: &str) {
        let path = self.at(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, text).unwrap();
        File::options().write(true).open(&path).unwrap().set_modified(UNIX_EPOCH + Duration::from_secs(1_000_000_000)).unwrap();
    }

    /// An op as torch's ninja file names it.
    fn build(&self, op: &str) {
        let torch = self.venv.join("lib/python3.11/site-packages/torch/include");
        self.put(&format!("{op}/build.ninja"), &format!("common_cflags = -isystem {}\n", torch.display()));
        self.put(&format!("{op}/{op}.so"), "x");
    }

    fn doctor(&self, args: &[&str]) -> Output {
        let path = format!("{}:/usr/bin:/bin", self.venv.join("bin").display());
        Doctor::new([]).args(args).env("PATH", path).env("TORCH_EXTENSIONS_DIR", self.dir.path()).run()
    }

    fn apply(&self, id: &str, more: &[&str]) -> (Output, Vec<Value>) {
        let out = self.doctor(&[&["fix", "--apply", "--only", id, "--format", "json"], more].concat());
        let json: Value = serde_json::from_str(&out.stdout).unwrap_or_else(|error| panic!("{error}: {out:?}"));
        let acts = json["result"]["acts"].as_array().unwrap().clone();
        (out, acts)
    }

    /// torch's own answer, by its file_baton.py: whether a load would go on.
    fn goes_on(&self, op: &str) -> bool {
        let code = "import importlib.util as u, sys; s = u.spec_from_file_location('b', sys.argv[1]); m = u.module_from_spec(s); \
                    s.loader.exec_module(m); b = m.FileBaton(sys.argv[2]); got = b.try_acquire(); got and b.release(); print(got)";
        let baton = self.venv.join("lib/python3.11/site-packages/torch/utils/file_baton.py");
        let mut command = Command::new(self.venv.join("bin/python3"));
        let out = command.args(["-c", code]).arg(baton).arg(self.at(op).join("lock")).output().unwrap();
        match String::from_utf8_lossy(&out.stdout).trim() {
            "True" => true,
            "False" => false,
            other => panic!("{other} {}", String::from_utf8_lossy(&out.stderr)),
        }
    }

    fn undo(&self, acts: &[Value]) {
        for act in acts {
            let line = act["undo"].as_str().unwrap();
            assert!(Command::new("/bin/sh").args(["-c", line]).status().unwrap().success(), "{line}");
        }
    }
}

fn stale_lock(venv: &Path) {
    let cache = Cache::new(venv);
    cache.put("my op/lock", "");
    cache.put("my op/build.ninja", "");
    assert!(!cache.goes_on("my op"));
    let (out, acts) = cache.apply("stale-jit-lock", &["--dry-run"]);
    assert!(out.code == Some(0) && acts.len() == 1 && acts[0]["done"] == false && cache.at("my op/lock").exists(), "{out:?}");
    let (out, acts) = cache.apply("stale-jit-lock", &[]);
    assert!(out.code == Some(0) && acts[0]["done"] == true && acts[0]["what"].as_str().unwrap().contains("moved the lock"), "{out:?}");
    assert!(cache.at("my op/build.ninja").exists() && cache.goes_on("my op"));
    let (out, again) = cache.apply("stale-jit-lock", &[]);
    assert!(out.code == Some(0) && again.is_empty(), "{out:?}");
    cache.undo(&acts);
    assert!(!cache.goes_on("my op"), "undone");
}

fn held_lock(venv: &Path) {
    let cache = Cache::new(venv);
    cache.put("op/build.ninja", "");
    fs::write(cache.at("op/lock"), "").unwrap();
    let holder = Command::new("/bin/sleep").arg("60").current_dir(cache.at("op")).stdin(Stdio::null()).spawn();
    let mut holder = holder.unwrap();
    let (_, acts) = cache.apply("stale-jit-lock", &[]);
    let there = cache.at("op/lock").exists();
    holder.kill().unwrap();
    holder.wait().unwrap();
    assert!(acts.is_empty() && there, "{acts:?}");
}

fn stale_build(venv: &Path) {
    let cache = Cache::new(venv);
    cache.build("fused_adam");
    cache.put("fused_adam/lock", "");
    cache.build("cpu_adam");
    cache.put("cpu_adam/notes.txt", "mine");
    // A link for an op leads out of the cache.
    let other = Cache::new(venv);
    other.build("linked");
    symlink(other.at("linked"), cache.at("linked")).unwrap();
    let out = cache.doctor(&["fix", "--apply", "--only", "stale-jit-cache,stale-jit-lock", "--format", "json"]);
    let json: Value = serde_json::from_str(&out.stdout).unwrap_or_else(|error| panic!("{error}: {out:?}"));
    let acts = json["result"]["acts"].as_array().unwrap();
    let (done, refused): (Vec<&Value>, Vec<&Value>) = acts.iter().partition(|act| act["done"] == true);
    assert!(out.code == Some(1) && done.len() == 1 && refused.len() == 1, "{acts:#?}");
    assert!(done[0]["what"].as_str().unwrap().contains("fused_adam"));
    assert!(refused[0]["why"].as_str().unwrap().contains("notes.txt"));
    assert!(!cache.at("fused_adam").exists() && cache.at("cpu_adam/cpu_adam.so").exists() && other.at("linked/linked.so").exists());
    cache.undo(&[done[0].clone()]);
    assert!(cache.at("fused_adam/fused_adam.so").exists() && cache.at("fused_adam/lock").exists());
}

fn overlay(venv: &Path, kit: &Path) {
    let data = tempfile::tempdir().unwrap();
    let path = format!("{}:/usr/bin:/bin", venv.join("bin").display());
    let run = |args: &[&str]| Doctor::new([]).args(args).env("PATH", &path).env("CUDA_HOME", kit).env("XDG_DATA_HOME", data.path()).run();
    let only = ["--for", "build", "--gpu", "h100", "--only", "linker-cannot-find-cuda-lib,missing-cuda-headers"];
    let out = run(&[&["fix", "--apply", "--dry-run"], &only[..]].concat());
    assert!(out.stdout.contains("would make the overlay") && fs::read_dir(data.path()).unwrap().count() == 0, "{out:?}");
    let out = run(&[&["fix", "--apply"], &only[..]].concat());
    assert!(
        out.code == Some(0) && out.stdout.contains("made the overlay") && out.stdout.contains("undo  ds-doctor overlay remove"),
        "{out:?}"
    );
    assert!(data.path().join("ds-doctor/overlay/lib64/libcudart.so").exists());
    let out = run(&[&["fix", "--apply"], &only[..]].concat());
    assert!(out.stdout.contains("is as it should be") && !out.stdout.contains("undo"), "{out:?}");
}

fn elsewhere() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().to_str().unwrap();
    for args in [
        &["--root", root][..],
        &["--from", "x.json"],
        &["--env", "TORCH_EXTENSIONS_DIR=/x"],
        &["--assume", "torch=2.6.0"],
        &["--print-exports"],
        &["--format", "dotenv"],
    ] {
        let out = Doctor::new(["fix", "--apply"]).args(args).env("TORCH_EXTENSIONS_DIR", root).run();
        assert!(out.code == Some(2) && out.stdout.is_empty(), "{args:?}: {out:?}");
    }
    assert_eq!(Doctor::new(["fix", "--dry-run"]).run().code, Some(2), "only with --apply");
}
