//! `ops` and `plan` from the outside: what they print, how they end, what they refuse; and the ops against DeepSpeed's own builders.

use crate::util::{BINARY, Doctor, Output, lab, trial, trial_with};
use libtest_mimic::Trial;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;

pub fn trials() -> Vec<Trial> {
    let matrix = |release: &'static str| {
        let need = lab("truth-python/bin/python").and_then(|python| {
            for part in ["full-cu124", "full-cu130", "pip-cu132", "torch-venv", "torch26-venv", "torch-sources", "deepspeed-ops"] {
                lab(part)?;
            }
            Ok((python, lab("")?))
        });
        // A minute and a half each: one of them in every run, the others in a lane of their own.
        let (long, need) = match release {
            "0.19.8" => ("", need),
            _ if std::env::var_os("DS_DOCTOR_LONG").is_some() => ("long_", need),
            _ => ("long_", Err("takes a minute and more; DS_DOCTOR_LONG=1 runs it".to_owned())),
        };
        trial_with(&format!("ops_plan::{long}the_builders_of_{release}_say_the_same"), need, move |(python, lab)| {
            builders(&python, &lab, release)
        })
    };
    let mut trials: Vec<Trial> = ["0.12.6", "0.14.5", "0.16.9", "0.18.9", "0.19.8"].map(matrix).into();
    trials.extend([
        trial("ops_plan::bad_input_is_named", bad_input),
        trial("ops_plan::every_format_of_ops", formats),
        trial("ops_plan::ds_report_has_its_layout", ds_report),
        trial("ops_plan::a_changed_builder_is_told", changed_builder),
        trial("ops_plan::a_plan_is_a_script_that_bash_takes", script),
        trial("ops_plan::a_refused_plan_fails_in_a_pipe", refused),
        trial("ops_plan::the_list_of_a_plan_is_that_of_the_gpus", lists),
        trial("ops_plan::a_file_that_is_no_wheel", no_wheel),
    ]);
    trials
}

/// `tests/lab/truth/ops_matrix.py` tells what differs.
fn builders(python: &Path, lab: &Path, release: &str) {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/lab/truth/ops_matrix.py");
    let run = Command::new(python).arg(script).args([BINARY.as_ref(), lab.as_os_str()]).arg(release).output().unwrap();
    let (said, told) = (String::from_utf8_lossy(&run.stdout), String::from_utf8_lossy(&run.stderr));
    assert!(run.status.success(), "{said}{told}");
    let agree: usize = said.split_whitespace().nth(1).and_then(|number| number.parse().ok()).unwrap_or(0);
    assert!(agree > 1000, "{said}");
}

/// A machine with torch and DeepSpeed that are assumed, and no toolkit but an assumed one.
fn assumed(command: &str) -> Doctor {
    Doctor::new([command, "--assume", "torch=2.6.0+cu124,cuda=12.4"])
}

fn json(out: &Output) -> Value {
    serde_json::from_str(&out.stdout).unwrap_or_else(|e| panic!("{e}: {}{}", out.stdout, out.stderr))
}

fn bad_input() {
    for (args, words) in [
        (&["ops", "--deepspeed", "0.16.10"][..], "near it: 0.16.9, 0.17.0"),
        (&["ops", "--deepspeed", "zero"], "--deepspeed"),
        (&["ops", "--source", "/nowhere"], "no folder"),
        (&["ops", "--source", "/"], "version.txt"),
        (&["plan", "--deepspeed", "0.19.8", "--assume", "torch=2.6.0+cu124", "--gpu", "h100", "--ops", "fusedadam"], "near it: fused_adam"),
        (
            &["plan", "--deepspeed", "0.19.8", "--assume", "torch=2.6.0+cu124", "--gpu", "h100", "--ops", "sparse_attn"],
            "has no op `sparse_attn`",
        ),
        (&["plan", "--deepspeed", "0.19.8", "--gpu", "h1000"], "h1000"),
        (&["plan", "--deepspeed", "0.19.8", "--ops", "all,fusedadam"], "near it: fused_adam"),
        (&["plan", "--deepspeed", "0.19.8", "--ops", ""], "there is no op ``; `ds-doctor ops` lists them"),
    ] {
        let out = Doctor::new([]).args(args).run();
        assert_eq!(out.code, Some(2), "{args:?}: {}{}", out.stdout, out.stderr);
        let shell = if args[0] == "plan" { "exit 2\n" } else { "" };
        assert!(out.stderr.contains(words) && out.stdout == shell, "{args:?}: {}", out.stderr);
    }
}

fn formats() {
    let out = assumed("ops").args(["--deepspeed", "0.19.8", "--gpu", "h100", "--format", "json"]).run();
    assert_eq!(out.code, Some(0), "{}", out.stderr);
    let said = json(&out);
    let rows = said["result"]["ops"].as_array().unwrap();
    assert_eq!(rows.len(), 23);
    let row = |name: &str| rows.iter().find(|row| row["op"] == name).unwrap();
    assert_eq!(row("fp_quantizer")["prebuild"]["why"][0]["id"], "ds-op-source-broken");
    assert_eq!(row("cutlass_ops")["prebuild"]["why"][0]["id"], "ds-kernels-missing");
    assert_eq!(said["result"]["from"], "assumed");
    let human = assumed("ops").args(["--deepspeed", "0.19.8", "--gpu", "h100"]).run();
    assert!(human.stdout.contains("fused_adam") && human.stdout.contains("ds-op-source-broken: "), "{}", human.stdout);
    let markdown = assumed("ops").args(["--deepspeed", "0.19.8", "--gpu", "h100", "--format", "markdown"]).run();
    assert!(markdown.stdout.starts_with("### ds-doctor"), "{}", markdown.stdout);
    // An op that is asked for and cannot be built is an error.
    let asked = assumed("ops").args(["--deepspeed", "0.19.8", "--gpu", "h100"]).env("DS_BUILD_CUTLASS_OPS", "1").run();
    assert_eq!(asked.code, Some(1), "{}", asked.stdout);
    assert!(asked.stdout.contains("error[ds-kernels-missing]"), "{}", asked.stdout);
}

fn ds_report() {
    let out = assumed("ops").args(["--deepspeed", "0.16.9", "--gpu", "h100", "--format", "ds-report"]).run();
    assert_eq!(out.code, Some(0), "{}", out.stderr);
    for line in [
        "DeepSpeed C++/CUDA extension op report",
        "op name ................ installed .. compatible",
        "fused_adam ............. [NO] ....... [OKAY]",
        "DeepSpeed general environment info:",
        "torch version .................... 2.6.0+cu124",
        "nvcc version ..................... 12.4",
        "deepspeed wheel compiled w. ...... torch 0.0, cuda 0.0",
    ] {
        assert!(out.stdout.lines().any(|own| own == line), "{line}\n{}", out.stdout);
    }
}

fn changed_builder() {
    let Ok(sources) = lab("deepspeed-ops/deepspeed-0.16.9") else { return };
    let folder = tempfile::tempdir().unwrap();
    let copy = folder.path().join("tree");
    let status = Command::new("cp").arg("-r").arg(&sources).arg(&copy).status().unwrap();
    assert!(status.success());
    std::fs::write(copy.join("version.txt"), "0.16.9\n").unwrap();
    let changed = |copy: &Path| -> Vec<String> {
        let out = assumed("ops").args(["--gpu", "h100", "--format", "json", "--source"]).arg(copy).run();
        serde_json::from_value(json(&out)["result"]["changed_builders"].clone()).unwrap()
    };
    assert_eq!(changed(&copy), Vec::<String>::new());
    let file = copy.join("op_builder/fused_adam.py");
    let text = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, format!("{text}# mine\n")).unwrap();
    std::fs::write(copy.join("op_builder/mine.py"), "").unwrap();
    assert_eq!(changed(&copy), ["fused_adam.py", "mine.py"]);
}

/// With a pip of its own, so that a wheel can be made.
fn environment() -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let bin = folder.path().join("bin");
    let site = folder.path().join("lib/python3.11/site-packages");
    for dir in [&bin, &site.join("pip-24.0.dist-info"), &site.join("setuptools-75.0.0.dist-info")] {
        std::fs::create_dir_all(dir).unwrap();
    }
    std::fs::write(site.join("pip-24.0.dist-info/METADATA"), "Name: pip\nVersion: 24.0\n").unwrap();
    (folder, bin)
}

fn plan(args: &[&str]) -> Output {
    assumed("plan").args(["--deepspeed", "0.19.8"]).args(args).run()
}

fn script() {
    let out = plan(&["--ops", "fused_adam,utils", "--gpu", "a100", "--gpu", "h100", "--wheel"]);
    if out.code == Some(1) {
        // Without compilers or Python's headers here the plan is refused, and says so.
        assert!(out.stdout.starts_with("echo 'ds-doctor: plan refused: "), "{}", out.stdout);
        return;
    }
    assert_eq!(out.code, Some(0), "{}{}", out.stdout, out.stderr);
    for line in [
        "set -eu",
        // The GPUs that are named are those of another machine.
        "export DS_ACCELERATOR=cuda",
        "export TORCH_CUDA_ARCH_LIST='8.0;9.0'",
        "export DS_BUILD_OPS=0",
        "export DS_BUILD_FUSED_ADAM=1",
        "export DS_BUILD_UTILS=1",
    ] {
        assert!(out.stdout.lines().any(|own| own.split("  # ").next() == Some(line)), "{line}\n{}", out.stdout);
    }
    let check = Command::new("bash").arg("-n").arg("-c").arg(&out.stdout).status().unwrap();
    assert!(check.success());
}

fn refused() {
    let (_folder, _bin) = environment();
    let out = plan(&["--ops", "fp_quantizer", "--gpu", "h100"]);
    assert_eq!(out.code, Some(1), "{}", out.stderr);
    assert!(out.stdout.contains("ds-op-source-broken") && out.stdout.ends_with("exit 1\n"), "{}", out.stdout);
    assert!(out.stderr.contains("ds-op-source-broken: "), "{}", out.stderr);
    let piped = Command::new("bash").arg("-c").arg(&out.stdout).output().unwrap();
    assert_eq!(piped.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&piped.stderr).contains("plan refused"), "{piped:?}");
    let docker = plan(&["--ops", "fp_quantizer", "--gpu", "h100", "--format", "dockerfile"]);
    assert!(docker.stdout.starts_with("RUN echo 'ds-doctor: plan refused"), "{}", docker.stdout);
    let said = json(&plan(&["--ops", "fp_quantizer", "--gpu", "h100", "--format", "json"]));
    assert_eq!(said["verdict"], "broken");
    let ids: Vec<&str> = said["result"]["refused"].as_array().unwrap().iter().map(|one| one["id"].as_str().unwrap()).collect();
    assert!(ids.contains(&"ds-op-source-broken"), "{ids:?}");
}

fn lists() {
    let said = |args: &[&str]| json(&plan(&[args, &["--format", "json"]].concat()))["result"].clone();
    let archs = |args: &[&str]| {
        said(args)["archs"].as_array().unwrap().iter().map(|arch| arch.as_str().unwrap().to_owned()).collect::<Vec<_>>().join(";")
    };
    assert_eq!(archs(&["--ops", "fused_adam", "--gpu", "a100", "--gpu", "h100*8"]), "8.0;9.0");
    assert_eq!(archs(&["--ops", "fused_adam", "--env", "TORCH_CUDA_ARCH_LIST=8.0;9.0+PTX"]), "8.0;9.0+PTX");
    let ids = |args: &[&str]| {
        let refused = said(args)["refused"].clone();
        refused.as_array().unwrap().iter().map(|one| one["id"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert!(ids(&["--ops", "fused_adam"]).contains(&"arch-list-unset-no-gpu".to_owned()));
    assert!(!ids(&["--ops", "utils"]).contains(&"arch-list-unset-no-gpu".to_owned()), "no CUDA code is built");
    assert!(ids(&["--ops", "fused_adam", "--env", "TORCH_CUDA_ARCH_LIST=8.0,9.0"]).contains(&"arch-list-malformed".to_owned()));
    let left = said(&["--gpu", "h100"])["left_out"].clone();
    let left: Vec<&str> = left.as_array().unwrap().iter().map(|one| one["op"].as_str().unwrap()).collect();
    assert!(left.contains(&"fp_quantizer") && left.contains(&"cutlass_ops"), "{left:?}");
}

fn no_wheel() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("deepspeed-0.19.8-py3-none-any.whl");
    std::fs::write(&file, "no zip").unwrap();
    let verify = |path: &Path| Doctor::new(["plan", "--gpu", "h100", "--verify"]).arg(path).run();
    let out = verify(&file);
    assert_eq!(out.code, Some(2), "{}", out.stdout);
    assert!(out.stderr.contains("no wheel"), "{}", out.stderr);
    let out = verify(&folder.path().join("none.whl"));
    assert_eq!(out.code, Some(2), "{}", out.stdout);
}
