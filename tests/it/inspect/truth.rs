//! What is printed of real files, against readelf and against ldd in the same environment.

use super::{inspect, json};
use crate::util::{lab, program, trial_with};
use ds_doctor::binary::FileAt;
use ds_doctor::binary::elf::summarise;
use ds_doctor::collect::{self, loader::needs};
use ds_doctor::facts::raw::HostPath;
use ds_doctor::host::Live;
use ds_doctor::model::loader::{Answer, Process};
use libtest_mimic::Trial;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

pub fn trials() -> Vec<Trial> {
    let tools = || Ok((program("readelf")?, lab("torch-venv")?));
    let ldd = || Ok((program("ldd")?, lab("torch-venv")?));
    vec![
        trial_with("inspect::needs_are_readelfs", tools(), |(readelf, venv)| agree(&readelf, &venv)),
        trial_with("inspect::what_loads_is_ldds", ldd(), |(ldd, venv)| what_loads(&ldd, &venv)),
    ]
}

/// Shared libraries below a folder, sorted.
fn libraries(below: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![below.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap() {
            let entry = entry.unwrap();
            let path = entry.path();
            if entry.file_type().unwrap().is_dir() {
                folders.push(path);
            } else if entry.file_type().unwrap().is_file() && path.file_name().unwrap().to_string_lossy().contains(".so") {
                found.push(path);
            }
        }
    }
    found.retain(|path| fs::read(path).is_ok_and(|bytes| bytes.starts_with(b"\x7fELF")));
    found.sort();
    found
}

/// Libraries of an environment with torch, and of the system: at least fifty.
fn some(venv: &Path) -> Vec<PathBuf> {
    let site = venv.join("lib/python3.11/site-packages");
    let small = |path: &PathBuf| fs::metadata(path).is_ok_and(|meta| meta.len() < 64 << 20);
    let mut all: Vec<PathBuf> = ["torch/lib", "torch", "nvidia", "numpy", "triton", "psutil", "pydantic_core"]
        .iter()
        .flat_map(|folder| libraries(&site.join(folder)))
        .filter(small)
        .collect();
    for folder in ["/usr/lib/x86_64-linux-gnu", "/usr/lib64"] {
        let system = fs::read_dir(folder).into_iter().flatten().map(|entry| entry.unwrap().path());
        all.extend(system.filter(|path| path.is_file() && path.to_string_lossy().contains(".so.")).take(60));
    }
    all.sort();
    all.dedup();
    all
}

fn output(program: &Path, args: &[&str]) -> String {
    let out = Command::new(program).args(args).env_clear().env("PATH", "/usr/bin:/bin").env("LC_ALL", "C").output().unwrap();
    String::from_utf8_lossy(&out.stdout).into_owned()
}

fn bracket(line: &str) -> Option<String> {
    Some(line.split_once('[')?.1.rsplit_once(']')?.0.to_owned())
}

fn agree(readelf: &Path, venv: &Path) {
    let all: Vec<PathBuf> = some(venv).into_iter().filter(|path| path.starts_with(venv)).collect();
    assert!(all.len() >= 50, "{}", all.len());
    let report = json(inspect(&venv.join("lib/python3.11/site-packages")).args(["--python"]).arg(venv.join("bin/python")), 0);
    let files: BTreeMap<&str, &serde_json::Value> =
        report["result"]["files"].as_array().unwrap().iter().map(|file| (file["path"].as_str().unwrap(), file)).collect();
    for path in all {
        let name = path.to_str().unwrap();
        let file = files.get(name).unwrap_or_else(|| panic!("{name} is not in the report"));
        let text = output(readelf, &["-dW", name]);
        let of = |tag: &str| text.lines().filter(|line| line.contains(tag)).filter_map(bracket).collect::<Vec<String>>();
        let list = |value: &serde_json::Value| -> Vec<String> {
            value.as_array().into_iter().flatten().map(|one| one.as_str().unwrap().to_owned()).collect()
        };
        assert_eq!(list(&file["needed"]), of("(NEEDED)"), "{name}");
        assert_eq!(file["soname"].as_str().map(str::to_owned), of("(SONAME)").first().cloned(), "{name}");
        for (tag, key) in [("(RPATH)", "rpath"), ("(RUNPATH)", "runpath")] {
            let joined = list(&file[key]).join(":");
            assert_eq!(joined, of(tag).first().cloned().unwrap_or_default(), "{name} {tag}");
        }
        let versions = output(readelf, &["-VW", name]);
        for family in ["GLIBC", "GLIBCXX", "CXXABI"] {
            let theirs = highest(&versions, family);
            assert_eq!(file["versions"][family].as_str().map(str::to_owned), theirs, "{name} {family}");
        }
        let sections = output(readelf, &["-SW", name]);
        assert_eq!(file["stripped"].as_bool(), Some(!sections.contains(" .symtab ")), "{name}");
    }
}

/// The highest version of a family among the needs that `readelf -V` prints.
fn highest(text: &str, family: &str) -> Option<String> {
    let needs = text.split("Version needs section").nth(1)?;
    let start = format!("Name: {family}_");
    let numbers = needs.lines().filter(|line| !line.contains("WEAK")).filter_map(|line| {
        let version = line.split_once(&start)?.1.split_whitespace().next()?;
        version.bytes().all(|b| b.is_ascii_digit() || b == b'.').then(|| version.to_owned())
    });
    numbers.max_by_key(|version| version.split('.').map(|part| part.parse().unwrap()).collect::<Vec<u32>>())
}

/// ldd's lines: a name and its file, or none.
fn ldds(ldd: &Path, path: &Path) -> Option<BTreeMap<String, Option<PathBuf>>> {
    let text = output(ldd, &[path.to_str().unwrap()]);
    if text.contains("not a dynamic executable") || text.contains("statically linked") {
        return None;
    }
    let mut found = BTreeMap::new();
    for line in text.lines() {
        let Some((name, rest)) = line.trim().split_once(" => ") else { continue };
        let path = rest.split(" (0x").next().unwrap();
        found.insert(name.to_owned(), (path != "not found").then(|| fs::canonicalize(path).unwrap()));
    }
    Some(found)
}

fn what_loads(ldd: &Path, venv: &Path) {
    let host = Live::with_env([("PATH".into(), "/usr/bin:/bin".into())].into());
    let options = collect::Options { ask_gpu: false, python: Some(venv.join("bin/python")), ..collect::Options::default() };
    let mut facts = collect::snapshot(&host, &options);
    let all = some(venv);
    let mut elfs = Vec::new();
    for path in &all {
        let file = File::open(path).unwrap();
        let length = file.metadata().unwrap().len();
        if let Ok(elf) = summarise(&FileAt::new(file, length)) {
            elfs.push((HostPath::new(path.clone()), elf));
        }
    }
    needs::widen(&host, facts.loader.value_mut().unwrap(), &elfs, &[]);
    let process = Process::of_program(&facts, &"/usr/bin/env".into(), None, None).unwrap().unwrap();
    let (mut compared, mut missing, mut names) = (0, 0, 0);
    for (path, elf) in &elfs {
        let Some(theirs) = ldds(ldd, path) else { continue };
        let opening = process.opening(path, elf);
        let mut ours: BTreeMap<String, Option<PathBuf>> = BTreeMap::new();
        for need in &opening.needs {
            let file = match &need.answer {
                Answer::Found { path, .. } => Some(fs::canonicalize(path).unwrap()),
                Answer::NotFound { .. } => None,
                other => panic!("{path}: {}: {other:?}", need.name),
            };
            ours.entry(need.name.clone()).or_insert(file);
        }
        // The loader itself and the kernel's page are printed in other forms.
        let listed = |name: &String| !name.starts_with("ld-linux") && !name.starts_with("linux-vdso");
        ours.retain(|name, _| listed(name));
        let theirs: BTreeMap<String, Option<PathBuf>> = theirs.into_iter().filter(|(name, _)| listed(name)).collect();
        assert_eq!(ours, theirs, "{path}");
        compared += 1;
        names += ours.len();
        missing += ours.values().filter(|file| file.is_none()).count();
    }
    let kinds: BTreeSet<bool> = elfs.iter().map(|(path, _)| path.starts_with(venv)).collect();
    assert!(compared >= 50 && names > 300 && missing > 0 && kinds.len() == 2, "{compared} files, {names} names, {missing} not found");
}
