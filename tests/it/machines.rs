//! Fake machines: each manifest of `tests/machines` is made into a file tree, which the built binary judges. What must come out stands in
//! the manifest, by what such machines really do, not by what the program prints.
//!
//! Of each machine: `machines::NAME` (what `check` says), `::facts` (what was collected of the parts that the manifest names), `::saved`
//! (the same judgement from a saved snapshot, redacted or not), where something is wrong, `::fix` (what a real shell makes of the
//! exports cures what they are said to cure) and `::lists` (an arch list is made from the same facts).

mod cuda;
mod elf;
mod facts;
mod fatbin;
mod fix;
mod lists;
mod machine;
mod manifest;
mod python;
mod release;
mod system;
mod torch;
mod tree;
mod written;

use crate::util::{Doctor, Output, trial};
use libtest_mimic::Trial;
use manifest::Manifest;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

pub fn trials() -> Vec<Trial> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/machines");
    let mut files: Vec<PathBuf> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.retain(|file| file.extension().is_some_and(|ending| ending == "toml"));
    files.sort();
    let mut trials = written::trials();
    let all = files.clone();
    trials.push(trial("machines::every_problem_that_is_checked_has_a_machine", move || every_problem(&all)));
    for file in files {
        let name = file.file_stem().unwrap().to_str().unwrap().to_owned();
        let case = Arc::new(Case { file, built: OnceLock::new() });
        let add = |topic: &str, run: fn(&Built)| {
            let case = Arc::clone(&case);
            trial(&format!("machines::{name}{topic}"), move || run(case.built()))
        };
        trials.extend([
            add("", judged),
            add("::facts", facts::agree),
            add("::saved", saved),
            add("::fix", fix::closes),
            add("::lists", lists::agree),
        ]);
    }
    trials
}

/// The tree of a machine, in its folder, and its environment.
pub fn tree(manifest: &Path) -> (tempfile::TempDir, PathBuf, BTreeMap<String, String>) {
    let case = Case { file: manifest.to_owned(), built: OnceLock::new() };
    case.built();
    let built = case.built.into_inner().unwrap();
    (built.folder, built.root, built.env)
}

/// The snapshot of a machine with what its arguments assume, redacted.
pub fn snapshot(manifest: &Path) -> String {
    let case = Case { file: manifest.to_owned(), built: OnceLock::new() };
    let built = case.built();
    let gpus = built.manifest.args.windows(2).filter(|pair| pair[0] == "--gpu").flatten();
    let out = Doctor::new(["snapshot", "--root"]).arg(&built.root).arg("--env-file").arg(built.at("env")).args(gpus).run();
    assert_eq!(out.code, Some(0), "{}", out.stderr);
    out.stdout
}

/// What a file tree cannot show, with the reason.
const NOT_IN_A_TREE: &[(&str, &str)] = &[
    ("cuda-visible-devices-mask", "the GPUs are asked for over NVML, and --gpu takes the mask away"),
    ("mig", "as above"),
    ("cache-permission", "who will write is known of a running machine only; see `live`"),
    ("disk-full-tmp", "free space is known of a running machine only; see `live`"),
    ("shm-too-small", "as above"),
    ("nccl-not-found", "what NCCL does is known where the test ran; see `nccl`"),
    ("nccl-ifname-no-match", "what NCCL does is known where the test ran; see `nccl`"),
    ("nccl-comm-id-set", "what NCCL does is known where the test ran; see `nccl`"),
    ("nccl-no-interface", "what NCCL does is known where the test ran; see `nccl`"),
    ("nccl-init-failed", "what NCCL does is known where the test ran; see `nccl`"),
    ("nccl-crashed", "what NCCL does is known where the test ran; see `nccl`"),
    ("nccl-hang", "what NCCL does is known where the test ran; see `nccl`"),
    ("nccl-collective-failed", "what NCCL does is known where the test ran; see `nccl`"),
    ("nccl-wrong-result", "what NCCL does is known where the test ran; see `nccl`"),
];

/// A check that no machine has ever seen fire is not known to work.
fn every_problem(files: &[PathBuf]) {
    let read = |file: &PathBuf| toml::from_str::<Manifest>(&std::fs::read_to_string(file).unwrap()).unwrap();
    let lists = |m: Manifest| [m.expect, m.folded.unwrap_or_default(), m.info.unwrap_or_default()].concat();
    let known: BTreeSet<String> = files.iter().map(read).flat_map(lists).collect();
    let ids = ds_doctor::checks::CHECKS.iter().flat_map(|topic| topic.iter()).map(|check| check.id);
    let without: Vec<&str> = ids.filter(|id| !known.contains(*id) && !NOT_IN_A_TREE.iter().any(|(not, _)| not == id)).collect();
    assert!(without.is_empty(), "no machine of tests/machines shows {without:?}");
}

/// One machine, built when the first of its trials runs.
struct Case {
    file: PathBuf,
    built: OnceLock<Built>,
}

impl Case {
    fn built(&self) -> &Built {
        self.built.get_or_init(|| {
            let text = std::fs::read_to_string(&self.file).unwrap();
            let manifest: Manifest = toml::from_str(&text).unwrap_or_else(|e| panic!("{}: {e}", self.file.display()));
            assert!(manifest.about.len() > 20, "say what kind of machine this is");
            let folder = tempfile::tempdir().unwrap();
            let root = folder.path().join("root");
            std::fs::create_dir(&root).unwrap();
            let env = machine::build(&manifest, &root);
            let built = Built { manifest, root, env, folder, live: OnceLock::new(), whole: OnceLock::new() };
            built.write_env("env", &built.env);
            built
        })
    }
}

struct Built {
    manifest: Manifest,
    root: PathBuf,
    env: BTreeMap<String, String>,
    folder: tempfile::TempDir,
    /// What `check` says of the tree.
    live: OnceLock<(Output, Said)>,
    /// The snapshot with all paths and names.
    whole: OnceLock<PathBuf>,
}

impl Built {
    fn at(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// As `env -0` prints it.
    fn write_env(&self, name: &str, env: &BTreeMap<String, String>) {
        let bytes: Vec<u8> = env.iter().flat_map(|(name, value)| format!("{name}={value}\0").into_bytes()).collect();
        std::fs::write(self.at(name), bytes).unwrap();
    }

    /// `--python` looks into the tree, the rest of the arguments changes what was collected.
    fn arguments(&self) -> (Vec<&str>, Vec<&str>) {
        let (mut collect, mut assume) = (Vec::new(), Vec::new());
        let mut words = self.manifest.args.iter().map(String::as_str);
        while let Some(word) = words.next() {
            if word == "--python" { collect.extend([Some(word), words.next()].into_iter().flatten()) } else { assume.push(word) }
        }
        (collect, assume)
    }

    /// Runs a command on the tree with the environment of that name.
    fn run(&self, command: &[&str], env: &str) -> Output {
        let (collect, assume) = self.arguments();
        Doctor::new([]).args(command).args(collect).args(assume).arg("--root").arg(&self.root).arg("--env-file").arg(self.at(env)).run()
    }

    fn check(&self, env: &str) -> (Output, Said) {
        let out = self.run(&["check", "--format", "json"], env);
        let said = Said::read(&out);
        (out, said)
    }

    fn live(&self) -> &(Output, Said) {
        self.live.get_or_init(|| self.check("env"))
    }

    fn whole(&self) -> &Path {
        self.whole.get_or_init(|| self.snapshot("whole.json", false))
    }

    fn snapshot(&self, name: &str, redact: bool) -> PathBuf {
        let at = self.at(name);
        let (collect, _) = self.arguments();
        let mut doctor = Doctor::new(["snapshot"]).args(collect).arg("--root").arg(&self.root).arg("--env-file").arg(self.at("env"));
        if !redact {
            doctor = doctor.arg("--no-redact");
        }
        let out = doctor.run();
        assert_eq!(out.code, Some(0), "snapshot: {}", out.stderr);
        std::fs::write(&at, out.stdout).unwrap();
        at
    }
}

/// What `check --format json` says.
struct Said {
    json: Value,
    roots: Vec<String>,
    folded: BTreeSet<String>,
    info: BTreeSet<String>,
}

impl Said {
    fn read(out: &Output) -> Self {
        let json: Value = serde_json::from_str(&out.stdout)
            .unwrap_or_else(|e| panic!("no JSON ({e}), exit {:?}:\n{}{}", out.code, out.stdout, out.stderr));
        let (mut roots, mut folded, mut info) = (Vec::new(), BTreeSet::new(), BTreeSet::new());
        for finding in json["findings"].as_array().unwrap() {
            let id = finding["id"].as_str().unwrap().to_owned();
            match (finding["severity"].as_str().unwrap(), finding["caused_by"].as_array().unwrap().is_empty()) {
                ("info", _) => drop(info.insert(id)),
                (_, false) => drop(folded.insert(id)),
                // One id may be said of several things.
                (_, true) if roots.contains(&id) => {}
                (_, true) => roots.push(id),
            }
        }
        Self { json, roots, folded, info }
    }

    fn ids(&self) -> BTreeSet<String> {
        self.roots.iter().chain(&self.folded).cloned().collect()
    }
}

fn set(list: &[String]) -> BTreeSet<String> {
    list.iter().cloned().collect()
}

/// `check` says what the manifest says, and its exit code and verdict follow from that.
fn judged(built: &Built) {
    let manifest = &built.manifest;
    let (out, said) = built.live();
    let exit = manifest.exit.unwrap_or(i32::from(!manifest.expect.is_empty()));
    let verdict = manifest.verdict.clone().unwrap_or_else(|| {
        let word = match (manifest.expect.is_empty(), exit) {
            (true, _) => "healthy",
            (false, 0) => "warnings",
            _ => "broken",
        };
        word.to_owned()
    });
    let mut wrong = Vec::new();
    let mut compare = |what: &str, expected: String, got: String| {
        if expected != got {
            wrong.push(format!("{what}\n  expected {expected}\n  got      {got}"));
        }
    };
    compare("root causes", format!("{:?}", manifest.expect), format!("{:?}", said.roots));
    if let Some(folded) = &manifest.folded {
        compare("folded below them", format!("{:?}", set(folded)), format!("{:?}", said.folded));
    }
    if let Some(info) = &manifest.info {
        compare("states told", format!("{:?}", set(info)), format!("{:?}", said.info));
    }
    compare("exit code", exit.to_string(), format!("{:?}", out.code.unwrap_or(-1)));
    compare("verdict", verdict, said.json["verdict"].as_str().unwrap_or_default().to_owned());
    // Nothing of a tree that was made whole may be unreadable; on a healthy one a check that could not be made hides something.
    compare("complete", "true".to_owned(), said.json["complete"].to_string());
    let human = built.run(&["check", "--color", "never", "-v"], "env");
    compare("exit code for people", exit.to_string(), format!("{:?}", human.code.unwrap_or(-1)));
    let told = |id: &&String| human.stdout.contains(&format!("error[{id}]: ")) || human.stdout.contains(&format!("warning[{id}]: "));
    let silent: Vec<&String> = said.roots.iter().filter(|id| !told(id)).collect();
    compare("not told to people", "[]".to_owned(), format!("{silent:?}"));
    if !wrong.is_empty() {
        panic!("{}\n\n{}\n\nwhat it prints:\n{}{}", manifest.about, wrong.join("\n"), human.stdout, human.stderr);
    }
}

/// A snapshot is the machine: saved and loaded, the same is said; redacted, the same ids, and no exports.
fn saved(built: &Built) {
    let (_, assume) = built.arguments();
    let from = |file: &Path, command: &[&str]| Doctor::new([]).args(command).args(&assume).arg("--from").arg(file).run();
    let (_, live) = built.live();

    let whole = from(built.whole(), &["check", "--format", "json"]);
    let loaded = Said::read(&whole);
    assert_eq!(loaded.json, live.json, "judged from the saved snapshot, then from the tree");

    let file = built.snapshot("redacted.json", true);
    let redacted = Said::read(&from(&file, &["check", "--format", "json"]));
    assert_eq!((&redacted.roots, &redacted.folded), (&live.roots, &live.folded), "from the redacted snapshot, then from the tree");
    if !live.roots.is_empty() {
        let exports = from(&file, &["fix", "--print-exports"]);
        assert_eq!((exports.code, exports.stdout.as_str()), (Some(2), ""), "exports of a redacted snapshot: {}", exports.stderr);
    }
}
