//! Lookup, lists and version rules against torch's and DeepSpeed's own sources, run by `tests/lab/truth`.

use super::{Draw, machine, script};
use crate::util::{lab, trial_with};
use ds_doctor::facts::env::{NamedPlace, PlaceState};
use ds_doctor::facts::snapshot::Snapshot;
use ds_doctor::facts::torch::Torch;
use ds_doctor::knowledge::Knowledge;
use ds_doctor::model::arch_list::{self, Format, Item, Reader, Reading, Refusal, Refuser, Use};
use ds_doctor::model::build::{self, BuildPath, Pair, VersionCheck};
use ds_doctor::model::cuda_home;
use ds_doctor::version::{Capability, CudaVersion, Dotted};
use libtest_mimic::Trial;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// An interpreter and the sources.
struct Lab {
    python: PathBuf,
    sources: PathBuf,
}

fn need() -> Result<Lab, String> {
    Ok(Lab { python: lab("truth-python")?.join("bin/python"), sources: lab("torch-sources")? })
}

impl Lab {
    /// The releases of `torch` or `deepspeed` whose sources are there.
    fn releases(&self, of: &str) -> Vec<String> {
        let entries = std::fs::read_dir(&self.sources).unwrap().flatten();
        let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
        let mut all: Vec<String> = names.filter_map(|name| name.strip_prefix(&format!("{of}-")).map(str::to_owned)).collect();
        all.sort_by_key(|text| version(text));
        assert!(all.len() > 2, "{all:?}");
        all
    }

    /// The answers to questions, in order. `folder` is the current folder of the one who answers.
    fn ask(&self, who: &str, folder: &Path, questions: &[Value]) -> Vec<Value> {
        let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/lab/truth").join(format!("{who}_says.py"));
        let mut child = Command::new(&self.python)
            .arg(program)
            .arg(&self.sources)
            .current_dir(folder)
            .env_clear()
            .env("PATH", "/usr/bin:/bin")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut input = child.stdin.take().unwrap();
        let lines: String = questions.iter().map(|question| format!("{question}\n")).collect();
        let feed = std::thread::spawn(move || input.write_all(lines.as_bytes()));
        let output = child.wait_with_output().unwrap();
        feed.join().unwrap().unwrap();
        let answers: Vec<Value> =
            String::from_utf8(output.stdout).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(answers.len(), questions.len(), "{}", String::from_utf8_lossy(&output.stderr));
        answers
    }
}

fn version(text: &str) -> Dotted {
    text.parse().unwrap()
}

fn torch(release: &str, cuda: Option<&str>, hip: Option<&str>) -> Torch {
    serde_json::from_value(json!({"path": "/site/torch", "version": release, "cuda": cuda, "hip": hip})).unwrap()
}

/// The error of an answer as Python prints it: `ValueError: …`.
fn error(answer: &Value) -> Option<String> {
    let error = answer.get("error")?;
    Some(format!("{}: {}", error["type"].as_str().unwrap(), error["text"].as_str().unwrap()))
}

fn strings(value: &Value) -> BTreeSet<String> {
    value.as_array().unwrap().iter().map(|flag| flag.as_str().unwrap().to_owned()).collect()
}

fn flags(items: &[Item]) -> BTreeSet<String> {
    arch_list::print(items, Format::Gencode).split(' ').filter(|flag| !flag.is_empty()).map(str::to_owned).collect()
}

pub fn trials() -> Vec<Trial> {
    vec![
        trial_with("model::cuda_home_as_torch_finds_it", need(), |lab| cuda_homes(&lab)),
        trial_with("model::arch_lists_as_torch_reads_them", need(), |lab| torch_lists(&lab)),
        trial_with("model::arch_lists_as_deepspeed_reads_them", need(), |lab| deepspeed_lists(&lab)),
        trial_with("model::arch_lists_from_gpus", need(), |lab| from_gpus(&lab)),
        trial_with("model::default_lists_of_deepspeed", need(), |lab| default_lists(&lab)),
        trial_with("model::version_checks_of_deepspeed_and_torch", need(), |lab| version_checks(&lab)),
    ]
}

fn cuda_homes(lab: &Lab) {
    let root = tempfile::tempdir().unwrap();
    let at = |name: &str| root.path().join(name).to_string_lossy().into_owned();
    for folder in ["kit/bin", "other/bin", "here", "flat"] {
        script(&root.path().join(folder).join("nvcc"), "#!/bin/sh\n");
    }
    std::os::unix::fs::symlink("kit", root.path().join("link")).unwrap();
    std::fs::create_dir_all(root.path().join("folder/bin/nvcc")).unwrap();
    std::fs::create_dir_all(root.path().join("plain/bin")).unwrap();
    std::fs::write(root.path().join("plain/bin/nvcc"), "").unwrap();
    let cwd = root.path().join("here");
    let entries = [
        "".to_owned(),
        ".".to_owned(),
        "bin".to_owned(),
        "../kit/bin".to_owned(),
        at("kit/bin"),
        format!("{}/", at("kit/bin")),
        format!("{}//", at("other/bin")),
        at("link/bin"),
        at("folder/bin"),
        at("plain/bin"),
        at("flat"),
        at("none/bin"),
    ];
    // torch up to 2.3 asks the program `which`, so the folder with it is at the end of every PATH but some.
    let mut draw = Draw(1);
    let homes = [None, Some(""), Some("/x"), Some("/usr/local/cuda"), Some("/a:/b")];
    let builds = [(Some("12.4"), None), (None, None), (None, Some("6.2"))];
    let (mut questions, mut machines) = (Vec::new(), Vec::new());
    for release in lab.releases("torch") {
        for _ in 0..60 {
            let mut env: Vec<(String, String)> = Vec::new();
            for name in ["CUDA_HOME", "CUDA_PATH"] {
                let value = if draw.chance(2) { None } else { *draw.of(&homes) };
                env.extend(value.map(|value| (name.to_owned(), value.to_owned())));
            }
            let mut path: Vec<String> = (0..draw.below(4)).map(|_| draw.of(&entries).clone()).collect();
            if !draw.chance(4) {
                path.push("/usr/bin".to_owned());
            }
            env.push(("PATH".to_owned(), path.join(":")));
            let (cuda, hip) = *draw.of(&builds);
            let there = draw.chance(2);
            let object: serde_json::Map<String, Value> = env.iter().map(|(name, value)| (name.clone(), json!(value))).collect();
            questions.push(json!({"ask": "cuda_home", "torch": release, "env": object, "cuda": cuda, "hip": hip, "usr_local_cuda": there}));
            machines.push((release.clone(), env, cuda, hip, there));
        }
    }
    let answers = lab.ask("torch", &cwd, &questions);
    let know = Knowledge::embedded();
    let folders: Vec<PathBuf> = ["kit/bin", "other/bin", "link/bin", "folder/bin", "plain/bin", "flat", "here", "here/../kit/bin"]
        .map(|name| root.path().join(name))
        .into();
    let mut seen = BTreeSet::new();
    for ((question, answer), (release, env, cuda, hip, there)) in questions.iter().zip(&answers).zip(&machines) {
        let mut folders: Vec<&Path> = folders.iter().map(PathBuf::as_path).collect();
        folders.push(Path::new("/usr/bin"));
        let mut facts = machine(env, &cwd, &folders);
        let state = if *there { PlaceState::Folder } else { PlaceState::Missing };
        facts.env.places = vec![NamedPlace { path: "/usr/local/cuda".into(), state }];
        let torch = torch(release, *cuda, *hip);
        let home = cuda_home::cuda_home(&facts, &know, Some(&torch));
        let ours = home.value.as_ref().map_or(Value::Null, |value| json!(value.to_string()));
        assert_eq!(answer.get("ok"), Some(&ours), "{question}\n{:?}", home.by);
        seen.insert(format!("{:?} {}", std::mem::discriminant(&home.by), home.gate.is_some()));
    }
    assert!(seen.len() >= 8, "every way and every gate should be met: {seen:?}");
}

const ITEMS: &[&str] = &[
    "3.5",
    "5.2",
    "6.1",
    "7.0",
    "7.2",
    "7.5",
    "8.0",
    "8.0+PTX",
    "8.6",
    "8.7",
    "8.8",
    "8.9",
    "9.0",
    "9.0a",
    "9.0a+PTX",
    "10.0",
    "10.0+PTX",
    "10.0a",
    "10.0f",
    "10.1",
    "10.3",
    "10.7",
    "11.0",
    "12.0",
    "12.0a",
    "12.1+PTX",
    "13.0",
    "80",
    "8",
    "8.",
    ".8",
    "8.6.1",
    "08.6",
    "8.06",
    "8.60",
    "-8.6",
    "sm_80",
    "compute_80",
    "8_0.0",
    "8.6+ptx",
    "8.6+PTX+PTX",
    "8.6+",
    "+PTX",
    "Ampere",
    "Ampere+Tegra",
    "Volta",
    "Volta+Tegra",
    "Kepler",
    "Kepler+Tesla",
    "Maxwell",
    "Pascal",
    "Turing",
    "Ada",
    "Hopper",
    "Blackwell",
    "Blackwell+Tegra",
    "Rubin",
    "Common",
    "All",
    "Auto",
    "native",
    "８.６",
    "8。6",
    "８.6",
    "\"8.0\"",
    "8.0,8.6",
    "8.0,9.0+PTX",
    "8.0\t8.6",
    "it's",
    "",
];

/// Lists of one, two and three items with all separators, each item of [`ITEMS`] alone first.
fn lists() -> Vec<String> {
    let mut lists: Vec<String> = ITEMS.iter().map(|item| (*item).to_owned()).collect();
    lists.extend(
        ["8.0;9.0+PTX", "8.0 9.0", "8.0  9.0", "8.0;", ";8.0", ";", " ", "8.0; 9.0", "12.0;8.0", "8.0;8.0+PTX", "7.5;8.0"]
            .map(str::to_owned),
    );
    let mut draw = Draw(7);
    let common = ["8.0", "8.6", "9.0", "9.0+PTX", "10.0", "12.0", "7.5+PTX", "Hopper"];
    for _ in 0..30 {
        let count = 2 + draw.below(2);
        let mut list = String::new();
        for at in 0..count {
            let item = if draw.chance(4) { draw.of(ITEMS) } else { draw.of(&common) };
            if at > 0 {
                list.push_str([";", " ", ";", "; "][draw.below(4)]);
            }
            list.push_str(item);
        }
        lists.push(list);
    }
    lists
}

fn torch_lists(lab: &Lab) {
    let know = Knowledge::embedded();
    let releases = lab.releases("torch");
    let lists = lists();
    let pairs: Vec<(&String, &String)> = releases.iter().flat_map(|release| lists.iter().map(move |list| (release, list))).collect();
    let questions: Vec<Value> =
        pairs.iter().map(|(release, list)| json!({"ask": "arch_flags", "torch": release, "list": list, "devices": [[8, 6]]})).collect();
    let answers = lab.ask("torch", Path::new("/"), &questions);
    let (mut taken, mut refused) = (0, 0);
    for ((release, list), answer) in pairs.iter().zip(&answers) {
        let about = format!("torch {release} `{list}`: {answer}");
        match arch_list::read(&know, &Reader::Torch(Some(&version(release))), Some(list)) {
            Ok(Reading::List(items)) => {
                assert_eq!(strings(answer.get("ok").unwrap_or_else(|| panic!("{about}"))), flags(&items), "{about}");
                taken += 1;
            }
            // It asks the one GPU there is.
            Ok(Reading::VisibleGpus) => assert_eq!(strings(&answer["ok"]), flags(&[Item::with_ptx("8.6".parse().unwrap())]), "{about}"),
            Ok(other) => panic!("{about}: {other:?}"),
            Err(refusal) => {
                assert_eq!(error(answer).as_deref(), Some(refusal.message.as_str()), "{about}");
                refused += 1;
            }
        }
    }
    assert!(taken > 150 && refused > 150, "{taken} taken, {refused} refused");
}

fn deepspeed_lists(lab: &Lab) {
    let know = Knowledge::embedded();
    let mut lists: Vec<Option<String>> = lists().into_iter().map(Some).collect();
    lists.push(None);
    for (ask, usage) in [("prebuild", Use::Prebuild), ("jit", Use::Jit)] {
        let releases = lab.releases("deepspeed");
        let pairs: Vec<(&String, &Option<String>)> =
            releases.iter().flat_map(|release| lists.iter().map(move |list| (release, list))).collect();
        let questions: Vec<Value> = pairs
            .iter()
            .map(|(release, list)| {
                let env = list.as_ref().map_or(json!({}), |list| json!({"TORCH_CUDA_ARCH_LIST": list}));
                json!({"ask": ask, "deepspeed": release, "torch": "2.11.0", "cuda": "12.8", "nvcc": "12.8", "env": env,
                    "devices": [[8, 6]], "ops": ["fused_adam.FusedAdamBuilder"]})
            })
            .collect();
        let answers = lab.ask("deepspeed", Path::new("/"), &questions);
        for ((release, list), answer) in pairs.iter().zip(&answers) {
            let answer = &answer["ok"][0];
            let about = format!("DeepSpeed {release} {ask} {list:?}: {answer}");
            let version = version(release);
            let reading = arch_list::read(&know, &Reader::DeepSpeed(Some(&version), usage), list.as_deref());
            deepspeed_agrees(&know, &version, usage, reading, answer, &about);
        }
    }
}

fn deepspeed_agrees(know: &Knowledge, version: &Dotted, usage: Use, reading: Result<Reading, Refusal>, answer: &Value, about: &str) {
    let one_gpu = || flags(&[Item::with_ptx("8.6".parse().unwrap())]);
    let given = || strings(answer.get("arch_args").unwrap_or_else(|| panic!("{about}")));
    match reading {
        Ok(Reading::List(items)) if usage == Use::Prebuild => assert_eq!(given(), flags(&items), "{about}"),
        // What DeepSpeed reads goes to torch, which makes the flags.
        Ok(Reading::List(items)) => {
            let list = arch_list::print(&items, Format::List);
            match arch_list::read(know, &Reader::Torch(Some(&"2.11.0".parse().unwrap())), Some(&list)) {
                Ok(Reading::List(items)) => assert_eq!(strings(&answer["torch_adds"]), flags(&items), "{about}"),
                Ok(other) => panic!("{about}: {other:?}"),
                Err(refusal) => assert_eq!(error(answer).as_deref(), Some(refusal.message.as_str()), "{about}"),
            }
        }
        Ok(Reading::Default) => {
            let default = arch_list::default_list(know, version, Some(CudaVersion::new(12, 8)));
            assert_eq!(given(), flags(&default), "{about}");
        }
        Ok(Reading::Ignored) => assert_eq!(given(), one_gpu(), "{about}"),
        Ok(Reading::VisibleGpus) => assert_eq!(strings(&answer["torch_adds"]), one_gpu(), "{about}"),
        Ok(other) => panic!("{about}: {other:?}"),
        // DeepSpeed lets it through as a flag that nvcc will not take; nvcc's own words are tried elsewhere. A JIT of 0.19 meets torch first.
        Err(refusal) if refusal.by == Refuser::Nvcc => {
            let name = refusal.message.split('\'').nth(1).unwrap();
            let passed = answer.get("arch_args").is_some_and(|args| strings(args).iter().any(|arg| arg.contains(name)));
            let by_torch = error(answer).is_some_and(|text| text.contains("Unknown CUDA arch"));
            assert!(passed || (usage == Use::Jit && by_torch), "{about}: {refusal:?}");
        }
        Err(refusal) => assert_eq!(error(answer).as_deref(), Some(refusal.message.as_str()), "{about}"),
    }
}

fn from_gpus(lab: &Lab) {
    let know = Knowledge::embedded();
    let sets: [&[(u32, u32)]; 6] = [&[], &[(8, 6)], &[(12, 0), (8, 0)], &[(9, 0), (9, 0), (7, 5)], &[(10, 3), (9, 0), (8, 9)], &[(15, 0)]];
    let archs = [vec!["sm_50", "sm_80", "sm_86"], vec!["sm_80", "sm_90", "sm_120", "compute_120"], vec!["sm_80", "sm_90a"], vec![]];
    let mut questions = Vec::new();
    let mut ours = Vec::new();
    for release in lab.releases("torch") {
        for (set, archs) in sets.iter().flat_map(|set| archs.iter().map(move |archs| (set, archs))) {
            questions.push(json!({"ask": "arch_flags", "torch": release, "list": null, "devices": set, "torch_archs": archs}));
            let devices: Vec<Capability> = set.iter().map(|(major, minor)| Capability::new(*major, *minor)).collect();
            let archs: Vec<String> = archs.iter().map(|arch| (*arch).to_owned()).collect();
            let read = arch_list::for_gpus(&know, &Reader::Torch(Some(&version(&release))), &devices, &archs);
            // What it makes of the GPUs goes through its own list of accepted items.
            ours.push(read.and_then(|items| {
                let list = arch_list::print(&items, Format::List);
                arch_list::read(&know, &Reader::Torch(Some(&version(&release))), Some(&list)).map(|_| items)
            }));
        }
    }
    for ((question, answer), ours) in questions.iter().zip(lab.ask("torch", Path::new("/"), &questions)).zip(&ours) {
        match ours {
            Ok(items) => assert_eq!(answer.get("ok").map(strings), Some(flags(items)), "{question} {answer}"),
            Err(refusal) => {
                let message = error(&answer).unwrap_or_else(|| panic!("{question} {answer} {refusal:?}"));
                assert!(message.starts_with(refusal.message.split('(').next().unwrap()), "{question} {message} {refusal:?}");
            }
        }
    }
    let (mut questions, mut ours) = (Vec::new(), Vec::new());
    for release in lab.releases("deepspeed") {
        for set in sets {
            questions.push(json!({"ask": "jit", "deepspeed": release, "torch": "2.11.0", "cuda": "12.8", "nvcc": "12.8", "devices": set,
                "ops": ["fused_adam.FusedAdamBuilder"]}));
            let devices: Vec<Capability> = set.iter().map(|(major, minor)| Capability::new(*major, *minor)).collect();
            ours.push((
                version(&release),
                arch_list::for_gpus(&know, &Reader::DeepSpeed(Some(&version(&release)), Use::Jit), &devices, &[]),
            ));
        }
    }
    for ((question, answer), (release, ours)) in questions.iter().zip(lab.ask("deepspeed", Path::new("/"), &questions)).zip(&ours) {
        let answer = &answer["ok"][0];
        let by_characters = !release.at_least(&[0, 16, 4]);
        match ours {
            // Before 0.16.4 a capability of two digits became garbage for nvcc, and 15.0 is none that torch 2.11 takes.
            Ok(items) if items.iter().any(|item| item.target.capability.major > 9 && by_characters) => {}
            Ok(items) if items.iter().any(|item| item.target.capability.major == 15) && release.at_least(&[0, 19]) => {
                assert!(error(answer).is_some_and(|text| text.contains("Unknown CUDA arch")), "{question} {answer}");
            }
            Ok(items) if release.at_least(&[0, 19]) => {
                assert_eq!(answer["list_during"], json!(arch_list::print(items, Format::List)), "{question} {answer}");
            }
            Ok(items) => assert_eq!(strings(&answer["arch_args"]), flags(items), "{question} {answer}"),
            Err(refusal) => {
                let message = error(answer).unwrap_or_else(|| panic!("{question} {answer}"));
                assert!(message.contains(refusal.message.split(": ").nth(1).unwrap()), "{question} {message}");
            }
        }
    }
}

fn default_lists(lab: &Lab) {
    let know = Knowledge::embedded();
    let nvccs = [
        None,
        Some("10.2"),
        Some("11.0"),
        Some("11.1"),
        Some("11.8"),
        Some("12.0"),
        Some("12.4"),
        Some("12.8"),
        Some("12.9"),
        Some("13.0"),
        Some("13.5"),
    ];
    let releases = lab.releases("deepspeed");
    let pairs: Vec<(&String, &Option<&str>)> = releases.iter().flat_map(|release| nvccs.iter().map(move |nvcc| (release, nvcc))).collect();
    let questions: Vec<Value> = pairs
        .iter()
        .map(|(release, nvcc)| json!({"ask": "default_archs", "deepspeed": release, "torch": "2.11.0", "nvcc": nvcc}))
        .collect();
    for ((release, nvcc), answer) in pairs.iter().zip(lab.ask("deepspeed", Path::new("/"), &questions)) {
        let ours = arch_list::default_list(&know, &version(release), nvcc.map(|text| text.parse().unwrap()));
        assert_eq!(answer["ok"], json!(arch_list::print(&ours, Format::List)), "DeepSpeed {release}, nvcc {nvcc:?}");
    }
}

fn version_checks(lab: &Lab) {
    let know = Knowledge::embedded();
    let cudas = ["11.7", "11.8", "12.1", "12.4", "12.6", "12.7", "12.8", "12.9", "13.0", "13.2", "14.0"];
    let mut questions = Vec::new();
    let mut ours = Vec::new();
    for release in lab.releases("deepspeed") {
        for (cuda, nvcc) in cudas.iter().flat_map(|cuda| cudas.iter().map(move |nvcc| (cuda, nvcc))) {
            for skip in ["0", "1"] {
                questions.push(json!({"ask": "mismatch", "deepspeed": release, "torch": "2.11.0", "cuda": cuda, "nvcc": nvcc,
                    "env": {"DS_SKIP_CUDA_CHECK": skip}}));
                let mut facts = Snapshot::default();
                facts.env.set("DS_SKIP_CUDA_CHECK", skip);
                let pair = Pair { deepspeed: &version(&release), torch: &torch("2.11.0", Some(cuda), None), nvcc: nvcc.parse().unwrap() };
                ours.push(build::deepspeed_check(&pair, &know, BuildPath::Prebuild, &facts, false));
            }
        }
    }
    for ((question, answer), ours) in questions.iter().zip(lab.ask("deepspeed", Path::new("/"), &questions)).zip(&ours) {
        let said = answer["said"].to_string();
        match ours {
            VersionCheck::Passes => assert!(answer["ok"] == json!(true) && !said.contains("does not match"), "{question} {answer}"),
            VersionCheck::Warns { message } => {
                assert!(answer["ok"] == json!(true) && said.contains(message), "{question} {answer} {message}")
            }
            VersionCheck::Skipped { .. } => {
                assert!(answer["ok"] == json!(true) && said.contains("DS_SKIP_CUDA_CHECK=1"), "{question} {answer}")
            }
            VersionCheck::Stops { message, .. } => {
                let text = error(&answer).unwrap_or_else(|| panic!("{question} {answer}"));
                assert!(text.contains(message), "{question}\n{text}\n{message}");
            }
            VersionCheck::NotChecked => panic!("{question}"),
        }
    }
    torch_checks(lab);
}

fn torch_checks(lab: &Lab) {
    let cudas = ["11.8", "12.4", "12.8", "13.0", "13.2"];
    let mut questions = Vec::new();
    let mut ours = Vec::new();
    for release in lab.releases("torch") {
        for (cuda, nvcc) in cudas.iter().flat_map(|cuda| cudas.iter().map(move |nvcc| (cuda, nvcc))) {
            // A compiler that no bounds refuse: these have words of their own.
            questions
                .push(json!({"ask": "cuda_check", "torch": release, "cuda": cuda, "nvcc": nvcc, "compiler": "cc", "version": "9.4.0"}));
            ours.push(build::torch_check(BuildPath::Setup, &torch(&release, Some(cuda), None), nvcc.parse().unwrap()));
        }
    }
    for ((question, answer), ours) in questions.iter().zip(lab.ask("torch", Path::new("/"), &questions)).zip(&ours) {
        let said = answer["said"].to_string();
        match ours {
            VersionCheck::Passes => assert!(answer.get("ok").is_some() && !said.contains("mismatch"), "{question} {answer}"),
            VersionCheck::Warns { .. } => {
                assert!(answer.get("ok").is_some() && said.contains("minor version mismatch"), "{question} {answer}");
            }
            VersionCheck::Stops { .. } => {
                let text = error(&answer).unwrap_or_else(|| panic!("{question} {answer}"));
                assert!(text.contains("mismatches the version"), "{question} {text}");
            }
            other => panic!("{question} {other:?}"),
        }
    }
}
