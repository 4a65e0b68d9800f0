//! `plan` on made-up machines: what it is refused for where the root of all is missing, who makes the wheel, and words that a shell would
//! take for its own; `ops` where what came with DeepSpeed does not serve a GPU.

use crate::machines;
use crate::util::{Doctor, Output, trial};
use libtest_mimic::Trial;
use serde_json::Value;
use std::path::Path;
use std::process::Command;

pub fn trials() -> Vec<Trial> {
    vec![
        trial("plan::the_root_cause_is_what_it_is_refused_for", roots),
        trial("plan::what_makes_the_wheel", fronts),
        trial("plan::no_python", no_python),
        trial("plan::every_failure_fails_in_a_pipe", piped),
        trial("plan::names_are_no_commands", names),
        trial("plan::a_plan_is_a_script_for_sh", posix),
        trial("plan::installed_ops_against_the_gpus", installed),
        trial("plan::a_half_written_file_of_installed_ops", half_written),
    ]
}

/// A machine that builds DeepSpeed: each test changes a line.
const MACHINE: &str = r#"about = "a machine that builds"
expect = []
system = "debian-12"
links = { "/usr/local/cuda" = "cuda-12.4" }
without = []

[[toolkit]]
root = "/usr/local/cuda-12.4"
release = "12.4.131"

[[python]]
prefix = "/opt/venv"
kind = "venv"
ninja = true
packages = { pip = "24.0", setuptools = "75.0.0" }

[[torch]]
version = "2.6.0+cu124"
"#;

fn on(machine: &str, args: &[&str]) -> Output {
    let folder = tempfile::tempdir().unwrap();
    let manifest = folder.path().join("machine.toml");
    std::fs::write(&manifest, machine).unwrap();
    let (_folder, root, env) = machines::tree(&manifest);
    let env = env.into_iter().flat_map(|(name, value)| ["--env".to_owned(), format!("{name}={value}")]);
    Doctor::new([]).args(args).arg("--root").arg(root).args(env).run()
}

fn json(out: &Output) -> Value {
    serde_json::from_str(&out.stdout).unwrap_or_else(|e| panic!("{e}: {}{}", out.stdout, out.stderr))
}

fn changed(from: &str, to: &str) -> String {
    assert!(MACHINE.contains(from), "{from}");
    MACHINE.replace(from, to)
}

/// Ids, and what is said to do.
fn refused(machine: &str, args: &[&str]) -> (Vec<String>, String) {
    let out = on(machine, &[&["plan", "--deepspeed", "0.16.3", "--format", "json"], args].concat());
    let said = json(&out);
    let refused = said["result"]["refused"].as_array().unwrap().clone();
    assert_eq!(out.code, Some(i32::from(!refused.is_empty())), "{}", out.stderr);
    assert_eq!(said["result"]["lines"].as_array().unwrap().is_empty(), !refused.is_empty());
    let word = |one: &Value| one["id"].as_str().unwrap().to_owned();
    (refused.iter().map(word).collect(), said["result"].to_string())
}

fn roots() {
    const H100: &[&str] = &["--gpu", "h100"];
    let no_torch = changed("[[torch]]\nversion = \"2.6.0+cu124\"\n", "");
    let cpu = changed("2.6.0+cu124", "2.6.0+cpu");
    let toolkit = "[[toolkit]]\nroot = \"/usr/local/cuda-12.4\"\nrelease = \"12.4.131\"\n";
    let no_nvcc = changed(toolkit, "").replace("links = { \"/usr/local/cuda\" = \"cuda-12.4\" }", "");
    let hidden = MACHINE.replace("links = { \"/usr/local/cuda\" = \"cuda-12.4\" }", "");
    let other = changed("12.4.131", "11.8.89").replace("cuda-12.4", "cuda-11.8");
    let no_cxx = changed("without = []", "without = [\"gcc\", \"g++\", \"c++\"]");
    let no_headers = changed("without = []", "without = [\"python-headers\"]");
    for (machine, args, ids) in [
        (MACHINE, H100, &[][..]),
        (MACHINE, &["--ops", "fused_lamb", "--gpu", "a100"], &[]),
        // Nobody can say what for.
        (MACHINE, &[], &["arch-list-unset-no-gpu"]),
        (MACHINE, &["--ops", "cpu_adam"], &[]),
        (&no_torch, H100, &["torch-not-found"]),
        (&no_torch, &[], &["torch-not-found"]),
        (&no_torch, &["--ops", "cpu_adam,fused_lamb"], &["torch-not-found"]),
        (&no_torch, &["--ops", "all"], &["torch-not-found"]),
        // A torch for the CPU builds what the CPU set has, and nothing for GPUs.
        (&cpu, &[], &[]),
        (&cpu, &["--ops", "cpu_adam"], &[]),
        (&cpu, H100, &["cpu-only-torch"]),
        (&cpu, &["--ops", "cpu_adam,fused_lamb"], &["cpu-only-torch"]),
        (MACHINE, &["--assume", "torch=2.6.0+rocm6.2", "--gpu", "h100"], &["rocm-torch"]),
        (&no_nvcc, H100, &["no-nvcc"]),
        (&no_nvcc, &["--ops", "fused_adam", "--gpu", "h100"], &["no-nvcc"]),
        (&no_nvcc, &[], &["no-nvcc"]),
        (&hidden, H100, &["cuda-home-unset"]),
        (&other, &["--gpu", "a100"], &["torch-nvcc-mismatch-major"]),
        (&no_cxx, H100, &["missing-cxx-compiler"]),
        (&no_cxx, &["--ops", "cpu_adam"], &["missing-cxx-compiler"]),
        (&no_headers, H100, &["missing-python-h"]),
    ] {
        let (found, said) = refused(machine, args);
        assert_eq!(found, ids, "{args:?}\n{said}");
    }
    // What to do is that of the root, and not to leave out each op.
    let (_, said) = refused(&no_torch, H100);
    assert!(said.contains("-m pip install torch") && !said.contains("DS_BUILD_"), "{said}");
    let out = on(&no_nvcc, &["plan", "--deepspeed", "0.16.3", "--gpu", "h100"]);
    assert_eq!(out.stdout, "echo 'ds-doctor: plan refused: no-nvcc' >&2; exit 1\n");
    assert!(out.stderr.contains("apt-get install"), "{}", out.stderr);
    let out = on(MACHINE, &["plan", "--deepspeed", "0.16.3", "--gpu", "h100"]);
    assert!(out.stderr.contains("cutlass_ops") && out.stderr.contains("left out; `--why` tells why"), "{}", out.stderr);
    assert!(out.stdout.contains("export MAX_JOBS="), "{}", out.stdout);
    // An op that no release has is wrong use before all else.
    let out = on(&no_torch, &["plan", "--deepspeed", "0.16.3", "--ops", "fused_adm"]);
    assert_eq!(out.code, Some(2));
    assert!(out.stderr.contains("near it: fused_adam"), "{}", out.stderr);
}

fn fronts() {
    let with = |packages: &str| changed("{ pip = \"24.0\", setuptools = \"75.0.0\" }", &format!("{{ {packages} }}"));
    let ids = |packages: &str| refused(&with(packages), &["--ops", "cpu_adam"]).0;
    assert_eq!(ids("pip = \"24.0\", setuptools = \"70.1.0\""), [""; 0]);
    assert_eq!(ids("pip = \"24.0\", setuptools = \"69.5.1\", wheel = \"0.43.0\""), [""; 0]);
    assert_eq!(ids("pip = \"24.0\", setuptools = \"69.5.1\""), ["python-distutils-setuptools"]);
    assert_eq!(ids("setuptools = \"75.0.0\""), ["ds-op-incompatible"]);
    // PyPA's build makes wheels of source trees.
    assert_eq!(ids("build = \"1.2.1\", setuptools = \"75.0.0\""), ["ds-op-incompatible"]);
}

fn no_python() {
    let out = Doctor::new(["plan", "--deepspeed", "0.16.3", "--gpu", "h100"]).env("PATH", "/nowhere").run();
    assert_eq!(out.code, Some(1), "{}", out.stderr);
    assert_eq!(out.stdout, "echo 'ds-doctor: plan refused: torch-not-found' >&2; exit 1\n");
    assert!(out.stderr.contains("no Python on PATH") && out.stderr.contains("--python PATH"), "{}", out.stderr);
    // A torch that is assumed has no interpreter to name.
    let out =
        Doctor::new(["plan", "--deepspeed", "0.16.3", "--assume", "torch=2.6.0+cpu", "--ops", "cpu_adam"]).env("PATH", "/nowhere").run();
    assert!(!out.stdout.contains("/assumed"), "{}", out.stdout);
}

fn piped() {
    for args in [&["--deepspeed", "0.16.99"][..], &["--deepspeed", "0.16.3", "--ops", "fused_adm"], &["--source", "/nowhere"]] {
        let out = Doctor::new(["plan"]).args(args).run();
        assert_eq!((out.code, out.stdout.as_str()), (Some(2), "exit 2\n"), "{args:?}");
        for shell in ["bash", "sh"] {
            let fed = Command::new(shell).arg("-c").arg(&out.stdout).status().unwrap();
            assert_eq!(fed.code(), Some(2), "{shell}");
        }
        let out = Doctor::new(["plan", "--format", "json"]).args(args).run();
        assert_eq!((out.code, out.stdout.as_str()), (Some(2), ""), "{args:?}");
    }
}

/// A source tree whose folder and version are made to be run by a careless script.
fn names() {
    let folder = tempfile::tempdir().unwrap();
    let tree = folder.path().join("it's a $(touch told) \"tree\" `touch told`\n#");
    std::fs::create_dir_all(tree.join("op_builder")).unwrap();
    std::fs::write(tree.join("op_builder/builder.py"), "").unwrap();
    for version in ["0.16.3", "0.16.3.$(touch told)", "0.16.3;touch told", "0.16.3 `touch told`", "0.16.3\ntouch told"] {
        std::fs::write(tree.join("version.txt"), version).unwrap();
        let out = Doctor::new(["plan", "--assume", "torch=2.6.0+cpu", "--ops", "cpu_adam", "--source"]).arg(&tree).run();
        if out.code != Some(0) {
            assert!(out.stdout.ends_with("exit 1\n") || out.stdout == "exit 2\n", "{}", out.stdout);
            continue;
        }
        // The commands themselves are told to do nothing.
        let (head, tail) = out.stdout.split_once("set -eu\n").unwrap();
        let script = format!("{head}set -eu\n{}", tail.replace("python3 -m pip", "python3 --version"));
        for shell in ["bash", "sh"] {
            let work = tempfile::tempdir().unwrap();
            let ran = Command::new(shell).arg("-c").arg(&script).current_dir(work.path()).output().unwrap();
            assert!(!work.path().join("told").exists(), "{version:?}: {script}");
            assert!(ran.status.success(), "{version:?}: {script}{}", String::from_utf8_lossy(&ran.stderr));
        }
    }
}

fn posix() {
    let out = on(MACHINE, &["plan", "--deepspeed", "0.16.3", "--gpu", "h100", "--ops", "fused_adam,cpu_adam"]);
    assert_eq!(out.code, Some(0), "{}", out.stderr);
    // Where ninja is does not depend on the shell that runs it.
    assert!(out.stdout.contains("export PATH=\"${PATH:+$PATH:}\"/opt/venv/bin  # "), "{}", out.stdout);
    let all = format!("{}\n", out.stdout).replace("/opt/venv/bin/python3", "printf '%s\\n'");
    for shell in ["bash", "sh"] {
        let ran = Command::new(shell)
            .arg("-c")
            .arg(format!("{all}\nprintf '%s|' \"$TORCH_CUDA_ARCH_LIST\" \"$DS_BUILD_OPS\" \"$PATH\""))
            .output();
        let ran = ran.unwrap();
        let said = String::from_utf8_lossy(&ran.stdout).into_owned();
        assert!(ran.status.success() && said.contains("9.0|0|") && said.ends_with(":/opt/venv/bin|"), "{shell}: {said}");
        assert!(said.contains("dist/deepspeed-0.16.3*.whl"), "{said}");
    }
}

fn installed() {
    let text = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/machines/healthy-prebuilt-ops.toml")).unwrap();
    // The modules of a manifest are for the Python of this system.
    let text = text.replace("ubuntu-22.04", "debian-12");
    let of = |gpus: &[&str], text: &str| {
        let gpus: Vec<&str> = gpus.iter().flat_map(|gpu| ["--gpu", gpu]).collect();
        let out = on(text, &[&["ops", "--format", "json", "--for", "run"], gpus.as_slice()].concat());
        let said = json(&out);
        let row = |name: &str| said["result"]["ops"].as_array().unwrap().iter().find(|row| row["op"] == name).unwrap().clone();
        let why: Vec<String> =
            row("fused_adam")["invalid"].as_array().unwrap().iter().map(|one| one["id"].as_str().unwrap().to_owned()).collect();
        assert_eq!(row("cpu_adam")["installed"], "yes", "it has no code for GPUs: {}", row("cpu_adam"));
        (out.code.unwrap(), row("fused_adam")["installed"].as_str().unwrap().to_owned(), why.join(" "))
    };
    let is = |code: i32, word: &str, why: &str| (code, word.to_owned(), why.to_owned());
    // One source has 8.0 and 9.0, the other PTX of 9.0 as well: each kernel must run.
    assert_eq!(of(&["h100"], &text), is(0, "yes", ""));
    assert_eq!(of(&["a100", "h100"], &text), is(0, "yes", ""));
    assert_eq!(of(&["v100"], &text), is(1, "invalid", "no-kernel-image"));
    assert_eq!(of(&["h100", "v100"], &text), is(1, "invalid", "no-kernel-image"));
    let ptx = text.replace("[\"sm_80 sm_90\", \"sm_80 sm_90 compute_90@8.4\"]", "[\"compute_80@8.4\"]");
    assert_ne!(ptx, text);
    assert_eq!(of(&["h100"], &ptx), is(0, "yes", ""), "the driver's level is not known");
    let out = on(&text, &["ops", "--for", "run", "--gpu", "v100"]);
    assert!(out.stdout.contains("no-kernel-image: DeepSpeed's pre-built `fused_adam_op` has no code for"), "{}", out.stdout);
    assert!(out.stdout.lines().any(|line| line.starts_with("fused_adam ") && line.contains("invalid")), "{}", out.stdout);
}

/// What a crash of setup.py or of the disk leaves.
fn half_written() {
    const WHOLE: &str = "version='0.16.3'\ngit_hash='x'\ninstalled_ops={'fused_adam': True, 'utils': False}\naccelerator_name='cuda'\n";
    let site = "/opt/venv/lib/python3.11/site-packages";
    let machine = |text: &str, metadata: bool| {
        let file = |path: &str, text: &str| format!("\"{site}/{path}\" = {}\n", Value::from(text));
        let mut files = file("deepspeed/__init__.py", "") + &file("deepspeed/git_version_info_installed.py", text);
        if metadata {
            files += &file("deepspeed-0.16.3.dist-info/METADATA", "Metadata-Version: 2.1\nName: deepspeed\nVersion: 0.16.3\n");
        }
        format!("{MACHINE}\n[files]\n{files}")
    };
    assert_eq!(on(&machine(WHOLE, true), &["ops", "--gpu", "h100", "--format", "ds-report"]).code, Some(0));
    for cut in [0, 20, WHOLE.find('{').unwrap() + 9] {
        for (metadata, words) in [(true, "which ops DeepSpeed was installed with cannot be read"), (false, "nothing tells the version")] {
            for command in ["ops", "plan"] {
                let out = on(&machine(&WHOLE[..cut], metadata), &[command, "--gpu", "h100"]);
                assert_eq!(out.code, Some(2), "{cut} {metadata} {command}: {}", out.stdout);
                assert!(out.stderr.contains(words) && out.stderr.contains("installed_ops"), "{cut} {command}: {}", out.stderr);
            }
        }
    }
}
