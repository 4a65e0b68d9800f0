//! The tables against the real things of the lab: toolkits, runtime libraries, torch's and DeepSpeed's own sources.

use crate::util::{lab, trial_with};
use ds_doctor::binary::elf::Elf;
use ds_doctor::binary::hostconfig::host_compilers;
use ds_doctor::binary::nvcc::nvcc_strings;
use ds_doctor::knowledge::Knowledge;
use ds_doctor::knowledge::deepspeed::CudaPair;
use ds_doctor::knowledge::schema::cuda::NvccAbility;
use ds_doctor::knowledge::schema::deepspeed::{AcceleratorKind, Part};
use ds_doctor::knowledge::schema::torch::{Compiler, HostBound};
use ds_doctor::version::{CudaVersion, Dotted, Target};
use libtest_mimic::Trial;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The lab's toolkits: the part, the folder of the headers and the nvcc program in it.
const TOOLKITS: [(&str, &str, &str); 4] = [
    ("deb-cuda118", "usr/include", "usr/lib/nvidia-cuda-toolkit/bin/nvcc"),
    ("full-cu130", "nvidia/cu13/include", "nvidia/cu13/bin/nvcc"),
    ("pip-cu130", "nvidia/cu13/include", "nvidia/cu13/bin/nvcc"),
    ("pip-cu135", "nvidia/cu13/include", "nvidia/cu13/bin/nvcc"),
];

pub fn trials() -> Vec<Trial> {
    let mut trials: Vec<Trial> = TOOLKITS
        .iter()
        .map(|(part, include, nvcc)| {
            let name = format!("knowledge: the rows of {part} are what it says itself");
            trial_with(&name, lab(part), move |folder| toolkit(&folder.join(include), &folder.join(nvcc)))
        })
        .collect();
    trials.push(trial_with("knowledge: each libcudart has the SONAME of its row", lab("cudart"), cudart));
    let sources = || Ok((lab("torch-sources")?, lab("truth-python")?.join("bin/python")));
    trials.push(trial_with("knowledge: torch's rows are its own tables", sources(), |(sources, python)| torch(&sources, &python)));
    trials.push(trial_with("knowledge: DeepSpeed's CUDA rows and lists are its own", sources(), |(sources, python)| {
        deepspeed(&sources, &python)
    }));
    trials.push(trial_with("knowledge: DeepSpeed's ops are its own", lab("torch-sources"), |sources| ops(&sources)));
    trials
}

fn toolkit(include: &Path, nvcc: &Path) {
    let all = Knowledge::embedded();
    let seen = nvcc_strings(&fs::read(nvcc).unwrap().as_slice()).unwrap();
    let version = seen.version.unwrap();
    let cuda: CudaVersion = version.to_string().parse().unwrap();
    let row = all.toolkit(cuda).unwrap();
    assert_eq!(seen.targets, row.targets.to_vec(), "targets of {cuda}");
    assert_eq!(seen.reads_nvcc_ccbin, all.nvcc_can(NvccAbility::ReadsCcbinVariable, cuda), "NVCC_CCBIN in {cuda}");
    let family = seen.targets.iter().any(|target| target.to_string().ends_with('f'));
    assert_eq!(Some(family), all.nvcc_can(NvccAbility::FamilyTargets, cuda), "family targets of {cuda}");

    let header = fs::read_to_string(include.join("crt/host_config.h")).unwrap();
    let limits = host_compilers(&header);
    assert_eq!(limits.gcc.unwrap().max, all.max_gcc(&version), "gcc of {version}");
    assert_eq!(limits.clang.unwrap().max, all.max_clang(&version), "clang of {version}");
    let override_known = header.contains("-allow-unsupported-compiler");
    assert_eq!(Some(override_known), all.nvcc_can(NvccAbility::AllowUnsupportedCompiler, cuda), "the override of {cuda}");

    let mathematics = fs::read_to_string(include.join("crt/math_functions.h")).unwrap();
    for clash in all.cuda.glibc_clash.iter() {
        let allowed_for = mathematics.contains(clash.header_marker.as_ref());
        assert_eq!(allowed_for, cuda >= clash.fixed_in, "`{}` in the headers of {cuda}", clash.header_marker);
    }
    assert!(all.releases_of_nvcc(&version).all(|release| release.label.dotted().major_minor() == cuda.to_string()), "{version}");
    assert!(all.releases_of_nvcc(&version).next().is_some(), "{version} is in no release");
}

fn cudart(folder: PathBuf) {
    let all = Knowledge::embedded();
    let mut seen = 0;
    for entry in fs::read_dir(folder).unwrap().map(Result::unwrap) {
        let cuda: CudaVersion = entry.file_name().to_str().unwrap().parse().unwrap();
        let libraries = ["nvidia/cu13/lib", "nvidia/cuda_runtime/lib"].map(|folder| entry.path().join(folder));
        let files = libraries.iter().filter_map(|folder| fs::read_dir(folder).ok()).flatten().map(|file| file.unwrap().path());
        for file in files.filter(|file| file.file_name().unwrap().to_str().unwrap().starts_with("libcudart.so.")) {
            let library = fs::read(&file).unwrap();
            let soname = Elf::open(&library.as_slice()).unwrap().soname().unwrap();
            assert_eq!(soname.as_deref(), Some(all.toolkit(cuda).unwrap().cudart_soname.as_ref()), "{}", file.display());
            seen += 1;
        }
    }
    assert!(seen >= 12, "{seen}");
}

/// Runs a script of tests/lab/truth with questions on its standard input, one JSON value a line; its answers likewise.
fn ask(python: &Path, script: &str, args: &[&str], questions: &[Value]) -> Vec<Value> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/lab/truth").join(script);
    let mut child = Command::new(python).arg(script).args(args).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    let text: String = questions.iter().map(|question| format!("{question}\n")).collect();
    let writer = std::thread::spawn(move || input.write_all(text.as_bytes()));
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap().unwrap();
    assert!(output.status.success(), "{python:?}");
    String::from_utf8(output.stdout).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// The releases of a package in the lab's sources.
fn releases(sources: &Path, package: &str) -> Vec<String> {
    let names = fs::read_dir(sources).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut releases: Vec<String> = names.filter_map(|name| Some(name.strip_prefix(package)?.to_owned())).collect();
    releases.sort();
    assert!(releases.len() >= 4, "{package}: {releases:?}");
    releases
}

fn torch(sources: &Path, python: &Path) {
    let all = Knowledge::embedded();
    for release in releases(sources, "torch-") {
        let torch: Dotted = release.parse().unwrap();
        let own = ask(python, "torch_tables.py", &[sources.to_str().unwrap(), &release], &[]).remove(0);

        let archs: BTreeSet<Target> = own["archs"].as_array().unwrap().iter().map(|arch| arch.as_str().unwrap().parse().unwrap()).collect();
        let row: BTreeSet<Target> = all.torch_arch_values(&torch).unwrap().values.iter().copied().collect();
        assert_eq!(row, archs, "archs of torch {release}");

        let pairs = own["names"].as_array().unwrap().iter().map(|pair| (pair[0].as_str().unwrap(), pair[1].as_str().unwrap()));
        let names: BTreeMap<&str, &str> = pairs.clone().collect();
        let rows: BTreeMap<&str, &str> = all.torch_arch_names(&torch).iter().map(|row| (row.name.as_ref(), row.expands.as_ref())).collect();
        assert_eq!(rows, names, "names of torch {release}");
        // Replacing in torch's own order must come to the same.
        for list in ["Ampere+Tegra;Hopper", "Blackwell+Tegra Volta", "Kepler+Tesla;Kepler;Maxwell+Tegra"] {
            let in_its_order = pairs.clone().fold(list.to_owned(), |list, (name, expands)| list.replace(name, expands));
            assert_eq!(all.expand_torch_arch_names(&torch, list), in_its_order, "{list} in torch {release}");
        }

        let inclusive = torch.major() == 1;
        for (key, compiler) in [("gcc", Compiler::Gcc), ("clang", Compiler::Clang)] {
            let own = own[key].as_object().unwrap();
            let rows = |row: &&HostBound| row.compiler == compiler && row.nvcc.is_none() && row.torch.contain(&torch.semver());
            let rows: BTreeMap<String, [String; 2]> = all
                .torch
                .host_bound
                .iter()
                .filter(rows)
                .map(|row| {
                    assert_eq!(row.inclusive, inclusive, "{row:?}");
                    (row.cuda.to_string(), [row.min.to_string(), row.max.to_string()])
                })
                .collect();
            let text = |value: &Value| value.as_str().unwrap().to_owned();
            let own: BTreeMap<String, [String; 2]> =
                own.iter().map(|(cuda, ends)| (cuda.clone(), [text(&ends[0]), text(&ends[1])])).collect();
            assert_eq!(rows, own, "{key} bounds of torch {release}");
        }
    }
}

fn deepspeed(sources: &Path, python: &Path) {
    let all = Knowledge::embedded();
    let cuda = |text: &str| text.parse::<CudaVersion>().unwrap();
    for release in releases(sources, "deepspeed-") {
        let deepspeed: Dotted = release.parse().unwrap();
        // A torch of its time, whose cpp_extension the lab has.
        let torch = if deepspeed.at_least(&[0, 16]) { "2.11.0" } else { "2.1.2" };
        let kits: Vec<String> = all.cuda.toolkit.iter().map(|kit| kit.cuda.to_string()).filter(|kit| cuda(kit).major >= 10).collect();
        let builds = ["11.8", "12.1", "12.8", "13.0"];
        let mut questions = Vec::new();
        for nvcc in &kits {
            questions.push(json!({"ask": "default_archs", "deepspeed": release, "torch": torch, "nvcc": nvcc}));
            let ops = json!(["quantizer.QuantizerBuilder"]);
            let env = json!({"TORCH_CUDA_ARCH_LIST": "8.0"});
            questions
                .push(json!({"ask": "prebuild", "deepspeed": release, "torch": torch, "cuda": nvcc, "nvcc": nvcc, "ops": ops, "env": env}));
            questions
                .extend(builds.map(|build| json!({"ask": "mismatch", "deepspeed": release, "torch": torch, "cuda": build, "nvcc": nvcc})));
        }
        questions.push(json!({"ask": "default_archs", "deepspeed": release, "torch": torch, "nvcc": null}));
        let answers = ask(python, "deepspeed_says.py", &[sources.to_str().unwrap()], &questions);
        assert_eq!(answers.len(), questions.len());
        for (question, answer) in questions.iter().zip(&answers) {
            let nvcc = question["nvcc"].as_str().map(cuda);
            match question["ask"].as_str().unwrap() {
                "default_archs" => {
                    let archs = all.deepspeed_default_archs(&deepspeed, nvcc).unwrap();
                    let archs: Vec<String> = archs.iter().map(ToString::to_string).collect();
                    assert_eq!(answer["ok"].as_str(), Some(archs.join(";").as_str()), "{question}");
                }
                "prebuild" => {
                    let flags = answer["ok"][0]["nvcc_args"].as_array().unwrap_or_else(|| panic!("{question}: {answer}"));
                    let std = flags.iter().filter_map(|flag| flag.as_str()?.strip_prefix("-std=c++")?.parse().ok()).next();
                    let row = all.deepspeed_standard(Part::Nvcc, &deepspeed, nvcc.unwrap(), &torch.parse().unwrap());
                    assert_eq!(row, std, "{question}: {answer}");
                }
                _ => {
                    let pair = all.deepspeed_cuda_pair(&deepspeed, nvcc.unwrap(), cuda(question["cuda"].as_str().unwrap()));
                    let refused = answer.get("error").is_some();
                    assert_eq!(pair == CudaPair::Refused, refused, "{question}: {answer}");
                }
            }
        }
    }
}

fn ops(sources: &Path) {
    let all = Knowledge::embedded();
    for release in releases(sources, "deepspeed-") {
        let builders = sources.join(format!("deepspeed-{release}/op_builder"));
        for (kind, folder) in [(AcceleratorKind::Cuda, builders.clone()), (AcceleratorKind::Cpu, builders.join("cpu"))] {
            let mut own: BTreeMap<String, String> = BTreeMap::new();
            let mut take = |file: &Path| {
                let text = fs::read_to_string(file).unwrap();
                let value = |line: &str, name: &str| Some(line.trim().strip_prefix(name)?.trim_matches(['"', '\'']).to_owned());
                let variables = text.lines().filter_map(|line| value(line, "BUILD_VAR = "));
                own.extend(text.lines().filter_map(|line| value(line, "NAME = ")).zip(variables));
            };
            let Ok(files) = fs::read_dir(&folder) else { continue };
            files.map(|file| file.unwrap().path()).filter(|file| file.extension().is_some_and(|e| e == "py")).for_each(|file| take(&file));
            // Since 0.19.5 the CPU set takes over the plain builder of pin_memory.
            let borrowed =
                kind == AcceleratorKind::Cpu && fs::read_to_string(folder.join("__init__.py")).unwrap().contains("PinMemoryBuilder");
            if borrowed {
                take(&builders.join("pin_memory.py"));
            }
            if kind == AcceleratorKind::Cuda && release == "0.19.8" {
                // The builders of these three were moved; both accelerators take them from the CPU set.
                for op in ["cpu_adagrad", "cpu_adam", "cpu_lion"] {
                    take(&builders.join("cpu").join(format!("{op}.py")));
                }
            }
            let rows: BTreeMap<String, String> =
                all.deepspeed_ops(&release.parse().unwrap(), kind).map(|row| (row.op.to_string(), row.variable.to_string())).collect();
            assert_eq!(rows, own, "{kind:?} ops of DeepSpeed {release}");
        }
    }
}
