//! Trial builds: real toolkits of the lab, and compilers that hang, die or fill the disk.

use crate::util::{BINARY, Doctor, Output, lab, trial, trial_with};
use libtest_mimic::Trial;
use rustix::process::Signal;
use serde_json::Value;
use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

pub fn trials() -> Vec<Trial> {
    vec![
        trial_with("probe::pip_toolkit_links_only_with_a_name_for_cudart", lab("pip-cu130/nvidia/cu13"), |kit| pip_toolkit(&kit)),
        trial_with("probe::whole_toolkit_with_torch_passes_and_is_not_built_twice", real(), |(kit, venv)| whole_toolkit(&kit, &venv)),
        trial_with("probe::parts_that_are_missing", real(), |(kit, venv)| broken_toolkits(&kit, &venv)),
        trial_with("probe::variables_that_break_a_build", real(), |(kit, venv)| broken_environments(&kit, &venv)),
        trial("probe::nothing_to_build_with", nothing),
        trial("probe::cache_and_what_ends_it", cache),
        trial_with("probe::what_an_op_lacks_is_remembered_until_it_is_there", without_libaio(), |()| remembered()),
        trial_with("probe::async_io_with_an_unpacked_libaio", lab("deb-libaio/usr"), |libaio| unpacked_libaio(&libaio)),
        trial("probe::kept_folder_repeats_by_hand", kept),
        trial("probe::compilers_that_hang_die_or_say_nothing", bad_compilers),
        trial("probe::an_op_that_was_not_done_is_undecided", slow_op),
        trial("probe::interrupted_runs_leave_nothing", interrupted),
        trial("probe::check_stays_static", check_stays_static),
        trial_with("probe::file_systems_noexec_and_full", namespaces(), |()| file_systems()),
    ]
}

fn real() -> Result<(PathBuf, PathBuf), String> {
    Ok((lab("full-cu130/nvidia/cu13")?, lab("torch-venv/bin")?))
}

fn namespaces() -> Result<(), String> {
    let tried = Doctor::new(["-rm", "sh", "-c", "mount -t tmpfs tmpfs /mnt"]).program("unshare").run();
    if tried.code == Some(0) { Ok(()) } else { Err("no user namespace with mounts".to_owned()) }
}

fn without_libaio() -> Result<(), String> {
    let there = ["/usr/include/libaio.h", "/usr/local/include/libaio.h"].into_iter().find(|header| Path::new(header).exists());
    there.map_or(Ok(()), |header| Err(format!("this machine has {header}")))
}

fn json(out: &Output) -> Value {
    serde_json::from_str(&out.stdout).unwrap_or_else(|e| panic!("{e}: {out:?}"))
}

/// Ids of errors, roots and what is folded under them.
fn ids(out: &Output) -> Vec<String> {
    let json = json(out);
    let all = json["findings"].as_array().unwrap().iter();
    all.filter(|one| one["severity"] == "error").map(|one| one["id"].as_str().unwrap().to_owned()).collect()
}

fn outcome(out: &Output, step: &str) -> String {
    let json = json(out);
    let steps = json["result"]["steps"].as_array().unwrap();
    let step = steps.iter().find(|one| one["name"] == step).unwrap_or_else(|| panic!("no step {step}: {out:?}"));
    step["outcome"].as_str().unwrap().to_owned()
}

fn probe(kit: &Path) -> Doctor {
    Doctor::new(["probe", "--format", "json"]).env("CUDA_HOME", kit).timeout(Duration::from_secs(300))
}

fn passes(out: &Output) {
    assert_eq!(out.code, Some(0), "{out:?}");
    let json = json(out);
    assert_eq!(json["result"]["toolchain"], "proven", "{out:?}");
    assert_eq!(json["verdict"], "healthy");
}

/// The trial names the id, and so does the static check of the same environment.
fn agree(kit: &Path, venv: &Path, env: &[(&str, &str)], id: &str) {
    let path = format!("{}:/usr/local/bin:/usr/bin:/bin", venv.display());
    let with = |mut doctor: Doctor| {
        doctor = doctor.env("CUDA_HOME", kit).env("PATH", &path).env("TORCH_CUDA_ARCH_LIST", "9.0");
        env.iter().fold(doctor, |doctor, (name, value)| doctor.env(name, value)).timeout(Duration::from_secs(300))
    };
    let out = with(Doctor::new(["probe", "--format", "json"])).run();
    assert!(ids(&out).contains(&id.to_owned()), "{id} {env:?}: {out:?}");
    assert_eq!(out.code, Some(1));
    let failed = ["compile", "host-compile", "link", "load"].iter().any(|step| outcome(&out, step) == "failed");
    assert!(failed, "the trial itself failed, not only the facts: {out:?}");
    let known = json(&out)["result"]["steps"].as_array().unwrap().iter().any(|step| step["id"].is_string());
    let started = !out.stdout.contains("could not be started");
    assert!(known || !started, "a signature knows the line: {out:?}");
    let stated = ids(&with(Doctor::new(["check", "--static", "--format", "json"])).run());
    assert!(stated.contains(&id.to_owned()), "{id} {env:?}: the facts say {stated:?}");
}

fn pip_toolkit(kit: &Path) {
    let out = probe(kit).run();
    assert_eq!((out.code, ids(&out)), (Some(1), vec!["linker-cannot-find-cuda-lib".to_owned()]), "{out:?}");
    assert_eq!(["compile", "host-compile", "link", "load"].map(|step| outcome(&out, step)), ["passed", "passed", "failed", "not-reached"]);
    assert!(out.stdout.contains("cannot find -lcudart"), "the linker's own words");
    let stated = ids(&Doctor::new(["check", "--static", "--format", "json"]).env("CUDA_HOME", kit).run());
    assert!(stated.contains(&"linker-cannot-find-cuda-lib".to_owned()), "{stated:?}");
    // A name for the linker is all that is missing.
    let names = tempfile::tempdir().unwrap();
    symlink(kit.join("lib/libcudart.so.13"), names.path().join("libcudart.so")).unwrap();
    passes(&probe(kit).env("LIBRARY_PATH", names.path()).env("TORCH_CUDA_ARCH_LIST", "9.0").run());
    let stated = ids(&Doctor::new(["check", "--static", "--format", "json"]).env("CUDA_HOME", kit).env("LIBRARY_PATH", names.path()).run());
    assert!(!stated.contains(&"linker-cannot-find-cuda-lib".to_owned()), "{stated:?}");
}

fn whole_toolkit(kit: &Path, venv: &Path) {
    let (cache, headers) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let with = |doctor: Doctor| {
        let path = format!("{}:/usr/local/bin:/usr/bin:/bin", venv.display());
        let doctor = doctor.env("PATH", path).env("CUDA_HOME", kit).env("XDG_CACHE_HOME", cache.path());
        doctor.env("TORCH_CUDA_ARCH_LIST", "9.0").env("CPATH", headers.path()).timeout(Duration::from_secs(300)).run()
    };
    let run = || with(Doctor::new(["probe", "--format", "json"]));
    let first = run();
    passes(&first);
    let result = &json(&first)["result"];
    assert_eq!((&result["cached"], &result["targets_from"]), (&Value::from(false), &Value::from("TORCH_CUDA_ARCH_LIST")));
    let summary = result["summary"].as_str().unwrap();
    assert!(summary.starts_with("toolchain proven"), "{summary}");
    // Flags as torch and DeepSpeed give them.
    let compile: Vec<String> = serde_json::from_value(result["steps"][0]["argv"].clone()).unwrap();
    for flag in ["--expt-relaxed-constexpr", "-D__CUDA_NO_HALF_OPERATORS__", "-gencode=arch=compute_90,code=sm_90", "--use_fast_math"] {
        assert!(compile.iter().any(|word| word == flag), "{flag}: {compile:?}");
    }
    let second = run();
    passes(&second);
    assert_eq!(json(&second)["result"]["cached"], true);
    assert!(second.wall < Duration::from_secs(3), "{:?}", second.wall);
    // What each op needs was tried too, and is not tried again; what is installed meanwhile is seen.
    let ops = |out: &Output| json(out)["result"]["ops"].as_array().unwrap().clone();
    assert_eq!((ops(&first).len(), ops(&first)), (23, ops(&second)));
    let lacks = |out: &Output| ops(out).iter().find(|one| one["op"] == "dc").and_then(|op| Some(op["id"].as_str()?.to_owned()));
    if !Path::new("/usr/include/nccl.h").exists() {
        assert_eq!(lacks(&second).as_deref(), Some("nccl-header-missing"));
        let nccl = venv.parent().unwrap().join("lib/python3.11/site-packages/nvidia/nccl/include/nccl.h");
        symlink(nccl, headers.path().join("nccl.h")).unwrap();
        let third = run();
        assert_eq!((lacks(&third), third.wall < first.wall / 2), (None, true), "{third:?}");
        fs::remove_file(headers.path().join("nccl.h")).unwrap();
        assert_eq!(lacks(&run()).as_deref(), Some("nccl-header-missing"));
    }
    // Plain `check` goes on to it.
    let check = with(Doctor::new(["check", "--for", "build", "--format", "json"]));
    assert_eq!((&json(&check)["verdict"], &json(&check)["result"]["probe"]["cached"]), (&"healthy".into(), &true.into()), "{check:?}");
    let text = with(Doctor::new(["check", "--for", "build"])).stdout;
    assert!(text.contains("setup build and JIT: ok, a trial was compiled, linked and loaded"), "{text}");
    let text = Doctor::new(["probe"]).env("CUDA_HOME", "/none").run();
    assert!(text.stdout.starts_with("judged  "), "{text:?}");
}

/// A toolkit of links to a real one, without some of it.
fn links(kit: &Path, without: &[&str]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let made = Command::new("cp").arg("-rs").arg(kit).arg(folder.path().join("cuda")).status().unwrap();
    assert!(made.success());
    for name in without {
        fs::remove_file(folder.path().join("cuda").join(name)).unwrap();
    }
    folder
}

fn broken_toolkits(kit: &Path, venv: &Path) {
    for (without, id) in [
        ("bin/cudafe++", "toolkit-incomplete"),
        ("nvvm/bin/cicc", "toolkit-incomplete"),
        ("include/crt/host_config.h", "toolkit-incomplete"),
        ("include/cuda_runtime_api.h", "missing-cuda-headers"),
    ] {
        let folder = links(kit, &[without]);
        agree(&folder.path().join("cuda"), venv, &[], id);
    }
    if let Ok(newer) = lab("pip-cu135/nvidia/cu13/nvvm/bin/cicc") {
        let folder = links(kit, &["nvvm/bin/cicc"]);
        symlink(newer, folder.path().join("cuda/nvvm/bin/cicc")).unwrap();
        agree(&folder.path().join("cuda"), venv, &[], "toolkit-mixed");
    }
}

fn broken_environments(kit: &Path, venv: &Path) {
    let without_compiler = tempfile::tempdir().unwrap();
    for name in ["as", "ld", "cat", "sed", "sh"] {
        let real = ["/usr/bin", "/bin"].map(|folder| Path::new(folder).join(name));
        symlink(real.iter().find(|path| path.exists()).unwrap(), without_compiler.path().join(name)).unwrap();
    }
    let path = format!("{}:{}", venv.display(), without_compiler.path().display());
    for (env, id) in [
        (("TORCH_CUDA_ARCH_LIST", "7.0"), "nvcc-dropped-arch"),
        (("TMPDIR", "/none/at/all"), "tmpdir-broken"),
        (("CC", "/none/gcc-10"), "cxx-env-var-malformed"),
        (("CC", "/usr/bin/gcc-10:/usr/bin/gcc-11"), "cxx-env-var-malformed"),
        (("PATH", path.as_str()), "missing-cxx-compiler"),
    ] {
        agree(kit, venv, &[env], id);
    }
}

fn nothing() {
    let out = Doctor::new(["probe", "--format", "json"]).run();
    // What this machine has in its usual places is its own affair.
    if json(&out)["result"]["toolchain"] == "skipped" && ids(&out).is_empty() {
        assert_eq!((out.code, &json(&out)["verdict"]), (Some(2), &Value::from("unknown")), "{out:?}");
    }
    let out = probe(Path::new("/none/cuda")).run();
    assert_eq!(json(&out)["result"]["toolchain"], "skipped");
    assert_eq!(ids(&out), ["cuda-home-wrong"], "{out:?}");
    assert_eq!(out.code, Some(1));
    for args in [["probe", "--root", "/"], ["probe", "--from", "/none"]] {
        assert_eq!(Doctor::new(args).run().code, Some(2));
    }
}

/// A toolkit and a C++ compiler of scripts, which count how often they run; what they make is real.
struct Fake {
    folder: tempfile::TempDir,
}

const MAKE: &str = r#"
for word; do [ "$last" = -o ] && out=$word; last=$word; done
[ -n "$out" ] || exit 0
echo x >> "$COUNT"
case " $* " in *" -shared "*) exec /usr/bin/cc -shared -o "$out" -x c /dev/null;; *) exec /usr/bin/cc -c -fPIC -o "$out" -x c /dev/null;; esac
"#;

impl Fake {
    fn new(nvcc: &str, cxx: &str) -> Self {
        let fake = Self { folder: tempfile::tempdir().unwrap() };
        for folder in ["cuda/bin", "cuda/include", "cuda/lib64", "bin", "tmp", "cache"] {
            fs::create_dir_all(fake.at(folder)).unwrap();
        }
        fake.script("cuda/bin/nvcc", nvcc);
        fake.script("bin/c++", cxx);
        fake
    }

    /// The real C and C++ compilers for all but the probe's own host half, whose headers are not there.
    fn with_real_compilers() -> Self {
        let counted = |program: &str| format!("case \" $* \" in *' -o '*) echo x >> \"$COUNT\";; esac; exec {program} \"$@\"");
        let fake = Self::new(MAKE, &format!("case \" $* \" in *' host.cpp '*|*' host.o '*) {MAKE};; esac\n{}", counted("/usr/bin/c++")));
        fake.script("bin/cc", &counted("/usr/bin/cc"));
        fs::write(fake.at("empty.c"), "").unwrap();
        let made = Command::new("cc").args(["-shared", "-o", "cuda/lib64/libcudart.so", "empty.c"]).current_dir(fake.at(".")).status();
        assert!(made.unwrap().success());
        fake
    }

    /// What the trial of DeepSpeed's async_io stops with, of the ops of a CPU.
    fn async_io_lacks(&self, headers: &Path, libs: &Path) -> Option<String> {
        let [headers, libs] = [headers, libs].map(|path| path.to_str().unwrap());
        let env = [("CPATH", headers), ("LIBRARY_PATH", libs), ("DS_ACCELERATOR", "cpu"), ("CC", "cc")];
        let out = self.run(&["probe", "--deepspeed", "0.19.8", "--format", "json"], &env);
        let report = json(&out);
        assert_eq!(report["result"]["toolchain"], "proven", "{report:#}");
        let ops = report["result"]["ops"].as_array().unwrap();
        let async_io = ops.iter().find(|one| one["op"] == "async_io").unwrap_or_else(|| panic!("{report:#}"));
        async_io["line"].as_str().map(str::to_owned)
    }

    fn at(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn script(&self, name: &str, body: &str) {
        fs::write(self.at(name), format!("#!/bin/sh\n{body}\n")).unwrap();
        fs::set_permissions(self.at(name), fs::Permissions::from_mode(0o755)).unwrap();
    }

    fn env(&self) -> [(&'static str, String); 6] {
        let text = |name: &str| self.at(name).to_str().unwrap().to_owned();
        [
            ("CUDA_HOME", text("cuda")),
            ("PATH", format!("{}:/usr/bin:/bin", text("bin"))),
            ("TMPDIR", text("tmp")),
            ("XDG_CACHE_HOME", text("cache")),
            ("COUNT", text("count")),
            ("TORCH_CUDA_ARCH_LIST", "9.0".to_owned()),
        ]
    }

    fn run(&self, args: &[&str], env: &[(&str, &str)]) -> Output {
        let doctor = self.env().into_iter().fold(Doctor::new([]).args(args), |doctor, (name, value)| doctor.env(name, value));
        env.iter().fold(doctor, |doctor, (name, value)| doctor.env(name, value)).run()
    }

    fn probe(&self, env: &[(&str, &str)]) -> Output {
        let out = self.run(&["probe", "--format", "json", "--timeout", "20"], env);
        assert!(self.left().is_empty(), "left behind: {:?}", self.left());
        out
    }

    /// Names in the temporary folder.
    fn left(&self) -> Vec<String> {
        fs::read_dir(self.at("tmp")).unwrap().map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned()).collect()
    }

    fn runs(&self) -> usize {
        fs::read_to_string(self.at("count")).unwrap_or_default().lines().count()
    }
}

fn cache() {
    let fake = Fake::new(MAKE, MAKE);
    passes(&fake.probe(&[]));
    assert_eq!(fake.runs(), 3, "compile, host compile, link");
    let again = fake.probe(&[]);
    passes(&again);
    assert_eq!((fake.runs(), json(&again)["result"]["cached"].as_bool()), (3, Some(true)));
    // Whatever the build is made from ends it.
    fake.probe(&[("TORCH_CUDA_ARCH_LIST", "8.0")]);
    assert_eq!(fake.runs(), 6);
    fake.probe(&[("NVCC_APPEND_FLAGS", "-g")]);
    assert_eq!(fake.runs(), 9);
    fake.probe(&[]);
    assert_eq!(fake.runs(), 9, "the first is still there");
    fake.script("bin/c++", &format!("{MAKE}\n# another compiler"));
    fake.probe(&[]);
    assert_eq!(fake.runs(), 12);
    fake.run(&["probe", "--no-cache"], &[]);
    assert_eq!(fake.runs(), 15);
    // A failure is never taken from there, and what was kept does no harm when it is damaged.
    let entries = || fs::read_dir(fake.at("cache/ds-doctor/probe")).unwrap().map(|entry| entry.unwrap().path());
    entries().for_each(|entry| fs::write(entry.join("result.json"), "{").unwrap());
    passes(&fake.probe(&[]));
    assert_eq!(fake.runs(), 18);
    entries().for_each(|entry| fs::remove_file(entry.join("probe.so")).unwrap());
    passes(&fake.probe(&[]));
    assert_eq!(fake.runs(), 21);
    // A cache that cannot be written is no fault.
    fs::write(fake.at("file"), "").unwrap();
    passes(&fake.probe(&[("XDG_CACHE_HOME", fake.at("file").to_str().unwrap())]));
}

/// The ops of a CPU, with the real compiler: async_io needs `libaio.h` and `libaio.so`.
fn remembered() {
    let fake = Fake::with_real_compilers();
    for folder in ["aio", "libs"] {
        fs::create_dir(fake.at(folder)).unwrap();
    }
    let cc = |args: &[&str]| assert!(Command::new("cc").args(args).current_dir(fake.at(".")).status().unwrap().success());
    // The programs that ran, and what async_io lacks.
    let probe = || {
        let before = fake.runs();
        let lacks = fake.async_io_lacks(&fake.at("aio"), &fake.at("libs"));
        (fake.runs() - before, lacks)
    };
    let (first, lacks) = probe();
    assert!(first > 10 && lacks.clone().unwrap().contains("cannot find -laio"), "{first} {lacks:?}");
    assert_eq!(probe(), (0, lacks.clone()), "nothing is made twice");
    // Each thing is seen as soon as it is there, and only what it concerns is tried again.
    fs::write(fake.at("aio/libaio.h"), "").unwrap();
    let (again, lacks) = probe();
    assert!(lacks.unwrap().contains("cannot find -laio"));
    assert!(again > 0 && again < first, "{again} of {first}");
    fs::write(fake.at("aio.c"), "void io_submit(void) {} void io_setup(void) {} void io_pgetevents(void) {}").unwrap();
    cc(&["-shared", "-o", "libs/libaio.so", "aio.c"]);
    assert_eq!(probe().1, None);
    assert_eq!(probe(), (0, None));
    // And as soon as it is gone.
    fs::remove_file(fake.at("aio/libaio.h")).unwrap();
    let (again, lacks) = probe();
    assert!(lacks.clone().unwrap().contains("libaio.h: No such file") && again < first, "{again} {lacks:?}");
    assert_eq!(probe(), (0, lacks));
}

/// Debian's packages, unpacked and not installed: two variables show them to the compilers.
fn unpacked_libaio(libaio: &Path) {
    let fake = Fake::with_real_compilers();
    let (headers, libs) = (libaio.join("include"), libaio.join("lib/x86_64-linux-gnu"));
    assert_eq!(fake.async_io_lacks(&headers, &libs), None);
    if without_libaio().is_ok() {
        let none = fake.at("tmp");
        assert!(fake.async_io_lacks(&headers, &none).unwrap().contains("cannot find -laio"));
        assert!(fake.async_io_lacks(&none, &libs).unwrap().contains("libaio.h: No such file"));
    }
}

fn kept() {
    let fake = Fake::new(MAKE, MAKE);
    let out = fake.run(&["probe", "--keep", "--format", "json"], &[]);
    passes(&out);
    let json = json(&out);
    let folder = PathBuf::from(json["result"]["folder"].as_str().unwrap());
    assert!(folder.starts_with(fake.at("tmp")) && folder.join("probe.so").is_file() && folder.join("probe.cu").is_file());
    let argv: Vec<String> = serde_json::from_value(json["result"]["steps"][2]["argv"].clone()).unwrap();
    fs::remove_file(folder.join("probe.so")).unwrap();
    let mut again = Command::new(&argv[0]);
    again.args(&argv[1..]).current_dir(&folder).envs(fake.env());
    assert!(again.status().unwrap().success() && folder.join("probe.so").is_file(), "{argv:?}");
    let text = fake.run(&["probe", "-v"], &[]).stdout;
    assert!(text.contains("LC_ALL=C c++ host.o probe.o -shared"), "{text}");
}

fn slow_op() {
    let fake = Fake::with_real_compilers();
    let cxx = fs::read_to_string(fake.at("bin/c++")).unwrap();
    fake.script("bin/c++", &format!("case \" $* \" in *async_io*) exec sleep 60;; esac\n{cxx}"));
    let env = [("DS_ACCELERATOR", "cpu"), ("CC", "cc")];
    let args = ["probe", "--deepspeed", "0.19.8", "--timeout", "5"];
    let out = fake.run(&[&args[..], &["--format", "json"]].concat(), &env);
    let report = json(&out);
    assert_eq!((out.code, &report["result"]["toolchain"]), (Some(0), &"proven".into()), "{report:#}");
    let ops = report["result"]["ops"].as_array().unwrap();
    let op = ops.iter().find(|one| one["op"] == "async_io").unwrap();
    // Where libaio is not there, DeepSpeed's own test of it fails, and that is known.
    if without_libaio().is_ok() {
        assert_eq!((&op["outcome"], &op["id"]), (&"failed".into(), &"libaio-missing".into()), "{op:#}");
        return slow_cpu_op();
    }
    assert_eq!((&op["outcome"], &op["passed"]), (&"undecided".into(), &false.into()), "{op:#}");
}

/// Of an op that no other trial decides.
fn slow_cpu_op() {
    let fake = Fake::with_real_compilers();
    let cxx = fs::read_to_string(fake.at("bin/c++")).unwrap();
    fake.script("bin/c++", &format!("case \" $* \" in *cpu_adam*) exec sleep 60;; esac\n{cxx}"));
    let run = |more: &[&str]| {
        fake.run(&[&["probe", "--deepspeed", "0.19.8", "--timeout", "5"], more].concat(), &[("DS_ACCELERATOR", "cpu"), ("CC", "cc")])
    };
    let report = json(&run(&["--format", "json"]));
    let undecided: Vec<&Value> = report["result"]["ops"].as_array().unwrap().iter().filter(|op| op["outcome"] == "undecided").collect();
    assert!(!undecided.is_empty() && undecided.iter().all(|op| op["passed"] == false && op["id"].is_null()), "{report:#}");
    assert_eq!(undecided[0]["line"], "not done after 5 s (--timeout)");
    let text = run(&[]).stdout;
    assert!(text.contains("not done after 5 s (--timeout)") && !text.contains("failed: not done"), "{text}");
    let last = text.lines().last().unwrap();
    assert!(last.contains("toolchain proven") && last.contains("not decided"), "{text}");
}

fn bad_compilers() {
    // Hangs, and its helper with it.
    let mark = "31.4159265";
    let fake = Fake::new(&format!("sleep {mark} & sleep {mark}"), MAKE);
    let begin = Instant::now();
    let out = fake.run(&["probe", "--format", "json", "--timeout", "1"], &[]);
    assert_eq!(ids(&out), ["probe-timeout"], "{out:?}");
    assert!(begin.elapsed() < Duration::from_secs(10) && fake.left().is_empty());
    gone(mark);
    // Slow is not broken: what to do is to give more time, and how busy the machine was is said.
    let report = json(&out);
    assert_eq!((&report["result"]["toolchain"], outcome(&out, "compile")), (&"not-proven".into(), "undecided".to_owned()), "{report:#}");
    let text = fake.run(&["probe", "--timeout", "1"], &[]).stdout;
    for words in ["was not done after 1 s: it hangs, or this machine is busy", "ds-doctor probe --timeout 5", "load average"] {
        assert!(text.contains(words), "{words}: {text}");
    }
    assert!(!text.contains("failed") && !text.contains("toolchain fails"), "{text}");
    for (nvcc, cxx, id) in [
        ("kill -SEGV $$", MAKE, "probe-crashed"),
        ("exit 0", MAKE, "probe-failed"),
        ("exit 3", MAKE, "probe-failed"),
        ("echo 'probe.cu(3): error: something new' >&2; exit 2", MAKE, "probe-failed"),
        (
            "yes 'a warning' | head -c 300000; echo 'nvcc fatal   : Unsupported gpu architecture '\\''compute_90'\\''' >&2; exit 1",
            MAKE,
            "nvcc-too-old-for-gpu",
        ),
        ("echo 'c++: fatal error: Killed signal terminated program cc1plus' >&2; exit 1", MAKE, "compile-oom"),
        (MAKE, "printf '\\377\\376\\033[2J: error: odd bytes\\n' >&2; exit 1", "probe-failed"),
    ] {
        let out = Fake::new(nvcc, cxx).probe(&[]);
        assert!(ids(&out).contains(&id.to_owned()), "{nvcc}: {out:?}");
        assert_eq!(out.code, Some(1));
        assert!(!out.stdout.contains('\u{1b}'), "{out:?}");
    }
    // A file that is there and cannot be started.
    let fake = Fake::new(MAKE, MAKE);
    fs::write(fake.at("bin/c++"), "").unwrap();
    assert_eq!(fake.probe(&[]).code, Some(1));
}

/// Whether a process whose command line has this text is running.
fn alive(text: &str) -> bool {
    let processes = fs::read_dir("/proc").unwrap().filter_map(Result::ok);
    processes.filter_map(|entry| fs::read(entry.path().join("cmdline")).ok()).any(|line| String::from_utf8_lossy(&line).contains(text))
}

/// A killed process takes a moment to go.
fn gone(text: &str) {
    let begin = Instant::now();
    while alive(text) {
        assert!(begin.elapsed() < Duration::from_secs(5), "{text} is still running");
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn interrupted() {
    for (at, signal) in [Signal::INT, Signal::TERM, Signal::HUP].into_iter().enumerate() {
        let mark = format!("27.18281{at}");
        let fake = Fake::new(&format!("touch \"$COUNT.began\"; sleep {mark} & sleep {mark}"), MAKE);
        let start = |ignored: bool| {
            let script = if ignored { "trap '' HUP; exec \"$@\"" } else { "exec \"$@\"" };
            let mut command = Command::new("/bin/sh");
            command.args(["-c", script, "sh", BINARY, "probe", "--timeout", "4"]).envs(fake.env()).env("HOME", fake.at("tmp"));
            command.stdout(Stdio::null()).stderr(Stdio::null()).process_group(0).spawn().unwrap()
        };
        let wait = || {
            let begin = Instant::now();
            while !fake.at("count.began").exists() {
                assert!(begin.elapsed() < Duration::from_secs(30));
                std::thread::sleep(Duration::from_millis(10));
            }
        };
        let mut child = start(false);
        wait();
        assert!(!fake.left().is_empty(), "it works in a folder");
        rustix::process::kill_process(rustix::process::Pid::from_child(&child), signal).unwrap();
        assert_eq!(child.wait().unwrap().signal(), Some(signal.as_raw()), "it ends as any program does");
        assert!(fake.left().is_empty(), "{:?}", fake.left());
        gone(&mark);
        // As under nohup: it goes on to its own end.
        if signal == Signal::HUP {
            fs::remove_file(fake.at("count.began")).unwrap();
            let mut child = start(true);
            wait();
            rustix::process::kill_process(rustix::process::Pid::from_child(&child), signal).unwrap();
            assert_eq!(child.wait().unwrap().code(), Some(1));
        }
    }
}

/// Without a trial where the machine as it is is not what is asked about, or the facts settle it.
fn check_stays_static() {
    let fake = Fake::new(MAKE, MAKE);
    let args =
        [&["--static"][..], &["--env", "A=b"], &["--gpu", "h100"], &["--only", "missing-ninja"], &["--for", "run"], &["--for", "build"]];
    for more in args {
        let out = fake.run(&[&["check", "--format", "json"][..], more].concat(), &[]);
        assert!(json(&out)["result"]["probe"].is_null(), "{more:?}");
    }
    let settled = fake.run(&["check", "--for", "build", "--format", "json"], &[]);
    assert!(!ids(&settled).is_empty(), "a toolkit without libraries: {settled:?}");
    assert_eq!(fake.runs(), 0);
}

/// Mounts and runs; the doctor's answer is the output.
const MOUNTED: &str = r#"mount -t tmpfs -o "$OPTIONS" tmpfs "$AT" || exit 99; shift 0; exec "$DOCTOR" probe --format json"#;

fn file_systems() {
    let mounted = |fake: &Fake, options: &str, at: &str, env: &[(&str, &str)]| {
        let doctor = Doctor::new(["-rm", "/bin/sh", "-c", MOUNTED]).program("unshare");
        let doctor = fake.env().into_iter().fold(doctor, |doctor, (name, value)| doctor.env(name, value));
        let doctor = env.iter().fold(doctor, |doctor, (name, value)| doctor.env(name, value));
        doctor.env("OPTIONS", options).env("AT", fake.at(at)).env("DOCTOR", BINARY).run()
    };
    // torch does not load from TMPDIR: no harm is done, and it is said.
    let fake = Fake::new(MAKE, MAKE);
    let out = mounted(&fake, "noexec", "tmp", &[]);
    passes(&out);
    assert!(json(&out)["result"]["notes"].to_string().contains("noexec"), "{out:?}");
    // The cache too.
    let fake = Fake::new(MAKE, MAKE);
    fs::create_dir_all(fake.at("all/tmp")).unwrap();
    let all = fake.at("all");
    let out = mounted(&fake, "noexec", "all", &[("TMPDIR", all.to_str().unwrap()), ("XDG_CACHE_HOME", all.to_str().unwrap())]);
    assert!(ids(&out).contains(&"tmp-noexec".to_owned()), "{out:?}");
    assert_eq!(out.code, Some(1));
    // Full, by the compiler's own output or before it starts.
    let fill = r#"head -c 10000000 /dev/zero > "$TMPDIR/x" 2>/dev/null; for word; do [ "$last" = -o ] && out=$word; last=$word; done
        head -c 100000 /dev/zero > "$out" || { echo "<built-in>: fatal error: when writing output to $out: No space left on device" >&2; exit 1; }"#;
    let fake = Fake::new(fill, MAKE);
    let out = mounted(&fake, "size=1m", "tmp", &[]);
    assert!(ids(&out).contains(&"disk-full-tmp".to_owned()), "{out:?}");
    let fake = Fake::new(MAKE, MAKE);
    let out = mounted(&fake, "size=4k", "tmp", &[]);
    assert!(ids(&out).contains(&"disk-full-tmp".to_owned()), "{out:?}");
}
