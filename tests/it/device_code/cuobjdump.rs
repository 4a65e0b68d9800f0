//! Against NVIDIA's cuobjdump, entry by entry: real libraries, and kernels compiled here in every form that nvcc has.

use super::{open, read, stream};
use crate::util::{Doctor, lab, skipped, trial_with};
use ds_doctor::binary::fatbin::device_code;
use ds_doctor::binary::nvcc::nvcc_strings;
use ds_doctor::facts::device_code::{DeviceCode, Kind};
use ds_doctor::version::{Suffix, Target};
use libtest_mimic::Trial;
use serde_json::Value;
use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// Cuobjdump takes seconds and gigabytes for these.
const BIG: [&str; 3] = ["libtorch_cuda.so", "libnccl.so.2", "libnvshmem_host.so.3"];
/// Set by the lane that has the time.
const LONG: &str = "DS_DOCTOR_LONG";

pub fn trials() -> Vec<Trial> {
    let mut trials = vec![
        trial_with("device_code::like_cuobjdump_on_bitsandbytes", tools(), |tools| on_folder(&tools, "device-code/site/bitsandbytes", 7)),
        trial_with("device_code::like_cuobjdump_on_deepspeed_kernels", tools(), |tools| on_folder(&tools, "device-code/site/dskernels", 2)),
        trial_with("device_code::like_cuobjdump_on_the_members_of_a_wheel", tools(), |tools| on_wheel(&tools)),
        trial_with("device_code::like_cuobjdump_on_torch", torch(), |(tools, folder)| on_torch(&tools, &folder, false)),
    ];
    trials.extend(long().map(|(what, need, run)| {
        let name = format!("device_code::long_like_cuobjdump_on_{what}");
        match std::env::var_os(LONG) {
            Some(_) => trial_with(&name, need, run),
            None => skipped(&name, "takes minutes or 5 GB of memory"),
        }
    }));
    trials
}

type Long = (&'static str, Result<(), String>, fn(()));

/// What the lane `device-code` of `.ci/long` runs.
fn long() -> [Long; 5] {
    [
        ("torch_whole", torch().map(drop), |()| torch().map(|(tools, folder)| on_torch(&tools, &folder, true)).unwrap()),
        ("every_target_of_cu135", compiler("cu135").map(drop), |()| every_target(&compiler("cu135").unwrap())),
        ("every_form_of_cu135", compiler("cu135").map(drop), |()| every_form(&compiler("cu135").unwrap())),
        ("every_target_of_cu130", compiler("cu130").map(drop), |()| every_target(&compiler("cu130").unwrap())),
        ("every_form_of_cu130", compiler("cu130").map(drop), |()| every_form(&compiler("cu130").unwrap())),
    ]
}

/// The newest cuobjdump, and one that still knows what the newest has dropped.
#[derive(Clone)]
struct Tools {
    newest: PathBuf,
    older: PathBuf,
}

fn tools() -> Result<Tools, String> {
    let older = lab("torch-venv")?.join("lib/python3.11/site-packages/triton/backends/nvidia/bin/cuobjdump");
    Ok(Tools { newest: lab("device-code/nvidia/cu13/bin/cuobjdump")?, older })
}

fn torch() -> Result<(Tools, PathBuf), String> {
    Ok((tools()?, lab("torch-venv/lib/python3.11/site-packages")?))
}

/// Entries by name, as cuobjdump has them: cubins of family targets without their letter.
fn listed(tools: &Tools, file: &Path) -> BTreeMap<String, u64> {
    let run = |program: &Path| {
        let output = Command::new(program).args(["-all", "-lelf", "-lptx"]).arg(file).output().unwrap();
        (output.status.success(), String::from_utf8(output.stdout).unwrap(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let (good, mut text, errors) = run(&tools.newest);
    if !good && !errors.contains("does not contain device code") {
        let older = run(&tools.older);
        assert!(older.0, "{}: {errors}{}", file.display(), older.2);
        text = older.1;
    }
    let mut found = BTreeMap::new();
    // `ELF file    1: name.1.sm_80.cubin`, `PTX file    1: name.1.sm_80.ptx`
    for line in text.lines().filter(|line| line.contains(" file ")) {
        let mut words = line.rsplit('.');
        let (kind, target) = (words.next().unwrap(), words.next().unwrap());
        let name = if kind == "ptx" { target.replace("sm_", "compute_") } else { target.to_owned() };
        *found.entry(name).or_default() += 1;
    }
    found
}

fn ours(code: &DeviceCode) -> BTreeMap<String, u64> {
    let mut found = BTreeMap::new();
    for (target, held) in code.targets.iter().filter(|(target, _)| matches!(target.kind, Kind::Sass | Kind::Ptx)) {
        let mut name = target.to_string();
        if target.kind == Kind::Sass && target.target.suffix == Some(Suffix::Family) {
            name.pop();
        }
        *found.entry(name).or_default() += held.entries;
    }
    found
}

fn compare(tools: &Tools, file: &Path) -> DeviceCode {
    let code = read(file);
    assert_eq!(ours(&code), listed(tools, file), "{}", file.display());
    code
}

fn on_folder(tools: &Tools, folder: &str, libraries: usize) {
    let folder = lab(folder).unwrap();
    let mut with_code = 0;
    for file in folder.read_dir().unwrap().map(|entry| entry.unwrap().path()).filter(|path| path.extension().is_some_and(|e| e == "so")) {
        let code = compare(tools, &file);
        assert_eq!(stream(&file, 32 << 10), code, "{}", file.display());
        with_code += usize::from(code.entries > 0);
        // Whoever links device code puts the same targets into all of it.
        assert!(code.entries == 0 || code.listed().next().is_some(), "{}: {:?}", file.display(), code.groups);
    }
    assert_eq!(with_code, libraries, "{}", folder.display());
}

/// Real libraries in a wheel, deflated, against cuobjdump on the files; and the gate over them.
fn on_wheel(tools: &Tools) {
    let site = lab("device-code/site/bitsandbytes").unwrap();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("bits-1.0-py3-none-any.whl");
    let names = ["libbitsandbytes_cuda118.so", "libbitsandbytes_cuda130.so", "libbitsandbytes_cpu.so"];
    let mut wheel = zip::ZipWriter::new(std::fs::File::create(&path).unwrap());
    for name in names {
        let options = zip::write::SimpleFileOptions::default().compression_method(zip::CompressionMethod::Deflated);
        wheel.start_file(format!("bits/{name}"), options.compression_level(Some(1))).unwrap();
        wheel.write_all(&std::fs::read(site.join(name)).unwrap()).unwrap();
    }
    wheel.finish().unwrap();
    let run = |args: &[&str]| Doctor::new(["inspect"]).arg(&path).args(args).timeout(Duration::from_secs(300)).run();
    let out = run(&["--format", "json", "--env", "PATH=/usr/bin"]);
    let report: Value = serde_json::from_str(&out.stdout).unwrap_or_else(|error| panic!("{error}: {}{}", out.stdout, out.stderr));
    for name in names {
        let files = report["result"]["files"].as_array().unwrap();
        let file = files.iter().find(|file| file["member"] == format!("bits/{name}")).unwrap();
        let mut told: BTreeMap<String, u64> = BTreeMap::new();
        for target in file["device_code"]["targets"].as_array().map(Vec::as_slice).unwrap_or_default() {
            let mut target_name = target["target"].as_str().unwrap().to_owned();
            if target_name.starts_with("sm_") && target_name.ends_with('f') {
                target_name.pop();
            }
            *told.entry(target_name).or_default() += target["entries"].as_u64().unwrap();
        }
        let truth = listed(tools, &site.join(name));
        assert_eq!(told, truth, "{name}");
        assert_eq!(truth.is_empty(), name.contains("cpu"), "{name}");
    }
    // CUDA 11.8 knows no Blackwell: the one member that lacks it is named.
    assert_eq!(run(&["--expect", "8.0"]).code, Some(0));
    let out = run(&["--expect", "8.0;10.0"]);
    assert_eq!(out.code, Some(1), "{}", out.stdout);
    assert!(out.stdout.contains("libbitsandbytes_cuda118.so` of") && !out.stdout.contains("cuda130.so` of"), "{}", out.stdout);
}

fn on_torch(tools: &Tools, site: &Path, big: bool) {
    let mut seen = 0;
    for folder in ["torch/lib", "nvidia/nccl/lib", "nvidia/nvshmem/lib"] {
        let Ok(entries) = site.join(folder).read_dir() else { continue };
        for file in entries.map(|entry| entry.unwrap().path()) {
            let name = file.file_name().unwrap().to_str().unwrap();
            if !name.contains(".so") || BIG.contains(&name) != big {
                continue;
            }
            let code = compare(tools, &file);
            if code.entries > 0 {
                println!("{name}: {} entries in {} containers", code.entries, code.containers());
                seen += 1;
            }
        }
    }
    assert!(seen >= 2, "{seen}");
}

struct Kit {
    tools: Tools,
    nvcc: PathBuf,
    targets: Vec<Target>,
}

fn compiler(release: &str) -> Result<Kit, String> {
    let tools = tools()?;
    let nvcc = lab(&format!("pip-{release}/nvidia/cu13/bin/nvcc"))?;
    let targets = nvcc_strings(&open(&nvcc)).map_err(|error| error.to_string())?.targets;
    Ok(Kit { tools, nvcc, targets })
}

impl Kit {
    /// Compiles two kernels with these arguments to a file of this name.
    fn compile(&self, folder: &Path, name: &str, args: &[String]) -> PathBuf {
        let (one, two, out) = (folder.join("one.cu"), folder.join("two.cu"), folder.join(name));
        std::fs::write(&one, "__device__ float f(float x) { return 2 * x; }\n__global__ void one(float *x) { *x = f(*x); }\n").unwrap();
        std::fs::write(&two, "__global__ void two(float *x) { *x += 1; }\nvoid run(float *x) { two<<<1, 1>>>(x); }\n").unwrap();
        let library = name.ends_with(".so");
        let mut nvcc = Command::new(&self.nvcc);
        nvcc.env_clear().env("PATH", "/usr/bin:/bin").current_dir(folder).args(args).arg("-o").arg(&out).arg(&one);
        if library {
            nvcc.args(["-shared", "-Xcompiler", "-fPIC"]).arg(&two).arg("-L").arg(self.nvcc.parent().unwrap().with_file_name("lib"));
        }
        let output = nvcc.output().unwrap();
        assert!(output.status.success(), "{name}: {}", String::from_utf8_lossy(&output.stderr));
        out
    }
}

fn gencode(target: Target, ptx: bool) -> String {
    let (compute, sm) = (target.compute(), target.sm());
    if ptx { format!("-gencode=arch={compute},code=[{sm},{compute}]") } else { format!("-gencode=arch={compute},code={sm}") }
}

/// Each target with its PTX; nvcc refuses a target together with its family.
fn every_target(kit: &Kit) {
    let dir = tempfile::tempdir().unwrap();
    assert!(kit.targets.len() >= 20, "{:?}", kit.targets);
    for suffix in [None, Some(Suffix::Specific), Some(Suffix::Family)] {
        let of: Vec<Target> = kit.targets.iter().copied().filter(|target| target.suffix == suffix).collect();
        let args: Vec<String> = of.iter().map(|target| gencode(*target, true)).chain(["-fatbin".to_owned()]).collect();
        let code = compare(&kit.tools, &kit.compile(dir.path(), "all.fatbin", &args));
        let names: Vec<String> = code.listed().map(|(target, _)| target.to_string()).collect();
        let expected: Vec<String> = of.iter().map(|t| t.sm()).chain(of.iter().map(|t| t.compute())).collect();
        assert_eq!(names, expected);
    }
    for target in &kit.targets {
        if target.suffix.is_some() || target.capability.sm() == 90 {
            let args = [format!("-arch={}", target.sm()), "-cubin".to_owned()];
            let code = device_code(&open(&kit.compile(dir.path(), "one.cubin", &args))).unwrap().unwrap();
            assert_eq!(code.targets.keys().map(ToString::to_string).collect::<Vec<_>>(), [target.sm()]);
        }
    }
}

/// Each way to pack code, in objects and in libraries that nvcc links.
fn every_form(kit: &Kit) {
    let dir = tempfile::tempdir().unwrap();
    let target = |text: &str| text.parse::<Target>().unwrap();
    let targets = [gencode(target("8.0"), false), gencode(target("9.0a"), false), gencode(target("12.0f"), true)];
    let with = |more: &[&str]| -> Vec<String> { targets.iter().cloned().chain(more.iter().map(|arg| (*arg).to_owned())).collect() };
    let names = |code: &DeviceCode| code.listed().map(|(target, _)| target.to_string()).collect::<Vec<_>>().join(" ");
    let all = "sm_80 sm_90a sm_120f compute_120f";
    for mode in ["default", "size", "speed", "balance", "none"] {
        let file = kit.compile(dir.path(), "mode.o", &with(&["-c", &format!("-compress-mode={mode}")]));
        let code = compare(&kit.tools, &file);
        assert_eq!(names(&code), all, "{mode}");
        assert_eq!(code.compressed == 0, mode == "none", "{mode}");
        assert_eq!(stream(&file, 999), code, "{mode}");
        let file = kit.compile(dir.path(), "mode.fatbin", &with(&["-fatbin", &format!("-compress-mode={mode}")]));
        assert_eq!(names(&compare(&kit.tools, &file)), all, "{mode}");
    }
    let relocatable = compare(&kit.tools, &kit.compile(dir.path(), "rdc.o", &with(&["-dc"])));
    assert_eq!((names(&relocatable).as_str(), relocatable.relocatable), (all, 1));
    let archive = kit.compile(dir.path(), "code.a", &with(&["-lib"]));
    assert_eq!(names(&compare(&kit.tools, &archive)), all);
    // The last target of a link-time optimised build has its intermediate form alone.
    let lto = kit.compile(dir.path(), "lto.o", &["-dc", "-gencode=arch=compute_90,code=[sm_90,lto_90]"].map(str::to_owned));
    assert_eq!(names(&compare(&kit.tools, &lto)), "sm_90 lto_90");
    // nvcc links these: one with an empty result beside the code, and one with the code in the result.
    let plain = kit.compile(dir.path(), "plain.so", &with(&[]));
    let code = compare(&kit.tools, &plain);
    assert_eq!((names(&code).as_str(), code.containers(), code.stubs), (all, 2, 1), "{:?}", code.groups);
    assert_eq!(stream(&plain, 32 << 10), code);
    let linked = kit.compile(dir.path(), "linked.so", &with(&["-rdc=true"]));
    let code = compare(&kit.tools, &linked);
    assert_eq!((names(&code).as_str(), code.relocatable, code.stubs), (all, 2, 0), "{:?}", code.groups);
    assert_eq!(stream(&linked, 32 << 10), code);
    // Without a section table everything is found by its looks.
    let mut bytes = std::fs::read(&plain).unwrap();
    for range in [0x28..0x30, 0x3a..0x40] {
        bytes[range].fill(0);
    }
    let stripped = dir.path().join("sstripped.so");
    std::fs::write(&stripped, &bytes).unwrap();
    let found = read(&stripped);
    assert_eq!((ours(&found), found.listed().count() > 0), (ours(&read(&plain)), true));
    assert_eq!(stream(&stripped, 5000), found);
}
